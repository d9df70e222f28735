"""A Spark session for isrlab: this machine by default, any cluster by its master address.

The package ships itself to the workers, so a cluster needs no installation of isrlab (it does need
the libraries that isrlab imports). Times are UTC throughout. Console progress is off: it would end
up in the stored output of notebooks. So would the greetings of the Java process; what that
writes goes to a file in the temporary folder (`isrlab-spark-*.log`) instead.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_VARIABLE = "ISRLAB_SPARK_MASTER"


class JavaMissingError(RuntimeError):
    """Spark needs a Java runtime and there is none; the message says how to install it."""


def session(master: str | None = None, app_name: str = "isrlab") -> SparkSession:
    """The running session, or a new one on `master`, `$ISRLAB_SPARK_MASTER` or `local[*]`.

    Raises JavaMissingError when no Java runtime is found.
    """
    require_java()
    from pyspark.sql import SparkSession

    master = master or os.environ.get(MASTER_VARIABLE) or "local[*]"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    options = {
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "isrlab-spark-warehouse"),
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
    }
    builder = SparkSession.builder.master(master).appName(app_name)
    for key, value in options.items():
        builder = builder.config(key, value)
    with _java_talks_to_a_file():
        spark = builder.getOrCreate()
    if not master.startswith("local"):
        spark.sparkContext.addPyFile(package_archive())
    return spark


@contextlib.contextmanager
def _java_talks_to_a_file() -> Iterator[None]:
    """A Java process that is started meanwhile inherits a file as its standard error."""
    kept = os.dup(2)
    with tempfile.NamedTemporaryFile(prefix="isrlab-spark-", suffix=".log", delete=False) as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def require_java() -> None:
    """Raise JavaMissingError unless `JAVA_HOME` or the path holds a Java runtime."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return
    if home is None and shutil.which("java"):
        return
    where = f"JAVA_HOME is {home!r}, which holds no bin/java" if home else "no java on the path"
    raise JavaMissingError(
        f"Spark needs Java 17 or 21, and there is none ({where}). Install one, for example "
        "'apt-get install openjdk-17-jre-headless', 'brew install openjdk@17' or "
        "'conda install openjdk=17', or point JAVA_HOME at it. "
        "The engine, the scenarios and the tutorials run without it."
    )


def package_archive() -> str:
    """The isrlab package as a zip that Spark ships to its workers; its path."""
    root = Path(__file__).resolve().parent
    stem = Path(tempfile.mkdtemp(prefix="isrlab-ship-")) / "isrlab"
    return shutil.make_archive(str(stem), "zip", root_dir=root.parent, base_dir=root.name)
