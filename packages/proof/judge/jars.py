"""Kafka's jars, by release, as Maven resolves them. Resolved paths are cached."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

from isrlab.engine.versions import GENERATIONS, KafkaVersion

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "isrlab" / "judge"
EVERY = (
    *("0.10.2.2", "0.11.0.3", "1.1.1", "2.4.1", "2.6.3", "2.7.2", "2.8.2", "3.0.2", "3.1.2"),
    *("3.2.3", "3.3.2", "3.5.2", "3.6.2", "3.9.2", "4.0.2", "4.1.2", "4.2.2", "4.3.1", "4.4.0"),
)
# A release that is published without test jars, and the one whose test jars serve it
WITHOUT_TESTS = {"4.2.2": "4.2.1", "4.4.0": "4.3.1"}
Artifact = tuple[str, str, str, str]  # group, artifact, version, classifier
JAXB = ("javax.xml.bind", "jaxb-api", "2.3.1", "")
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>isrlab</groupId><artifactId>judge</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""
DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId>"
    "<version>{}</version><classifier>{}</classifier></dependency>"
)


class NoJarsError(Exception):
    """Java, Maven or a jar is missing; the message says how to get it."""


def numbers(release: str) -> tuple[int, ...]:
    """The numbers of one release. Raises ValueError if the text does not name one in full."""
    if not re.fullmatch(r"0\.\d+\.\d+\.\d+|[1-9]\d*\.\d+\.\d+", release):
        forms = "0.10.2.2, 2.5.1 or 3.9.2"
        raise ValueError(f"{release!r} is not one release of Kafka; name it in full, like {forms}")
    return tuple(map(int, release.split(".")))


def rules(release: str) -> KafkaVersion:
    """The rules of a release; for one that the table does not have yet, its newest rules."""
    if numbers(release)[:2] > GENERATIONS[-1].last[:2]:
        return GENERATIONS[-1]
    return KafkaVersion.of(release)


def broker(release: str) -> list[Artifact]:
    """The jars that a broker of this release needs, with Java 17."""
    number = numbers(release)
    found = [("org.apache.kafka", _kafka(number), release, "")]
    if number < (1, 1):
        found += [JAXB]
    if (2,) <= number < (2, 4):  # their own 3.4.13 resolves no host on Java 14 and later
        found += [("org.apache.zookeeper", "zookeeper", "3.4.10", "")]
    if number >= (4,):  # log4j 2, and the bridge that reads settings of log4j 1
        names = "log4j-slf4j-impl", "log4j-1.2-api"
        return [*found, *(("org.apache.logging.log4j", name, "2.24.3", "") for name in names)]
    return [*found, ("org.slf4j", "slf4j-reload4j", "1.7.36", "")]


def tools(release: str) -> list[Artifact]:
    """The jars of a broker, with Kafka's command line tools."""
    return [*broker(release), ("org.apache.kafka", "kafka-tools", release, "")]


def controller(release: str) -> list[Artifact]:
    """The jars with which a judge loads the controller of a release without test jars."""
    return [a for a in judge(release) if a[3] != "test"]


def judge(release: str) -> list[Artifact]:
    """The jars that a judge of this release loads."""
    number = numbers(release)
    kafka, since = _kafka(number), {"server-common": (3, 4), "storage": (3, 5), "metadata": (4,)}
    tests = WITHOUT_TESTS.get(release, release)
    names = [(kafka, release, ""), (kafka, tests, "test"), ("kafka-clients", tests, "test")]
    names += [(f"kafka-{name}", tests, "test") for name, first in since.items() if number >= first]
    found = [("org.apache.kafka", *name) for name in names]
    found += [("org.mockito", "mockito-core", "4.11.0", "")]
    return [*found, JAXB] if number < (2, 4) else found


def _kafka(number: tuple[int, ...]) -> str:
    return "kafka_2.13" if number >= (2, 4) else "kafka_2.11"


def classpath(release: str, artifacts: Callable[[str], list[Artifact]] = judge) -> list[str]:
    """The paths of the jars, fetched by Maven the first time. Raises NoJarsError if it cannot."""
    parts = [DEPENDENCY.format(*artifact) for artifact in artifacts(release)]
    name = f"{release}-{zlib.crc32(''.join(parts).encode()):08x}"
    kept = CACHE / f"{name}.txt"
    jars = kept.read_text().split(":") if kept.exists() else []
    if jars and all(Path(jar).exists() for jar in jars):
        return jars
    for command in ("java", "mvn"):
        if shutil.which(command) is None:
            raise NoJarsError(f"no {command}: on Debian, apt-get install default-jdk maven")
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(POM.format("".join(parts)))
    build = ["mvn", "-q", "dependency:build-classpath", f"-Dmdep.outputFile={kept}.new"]
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoJarsError(_reason(release, re.sub(r"\x1b\[[\d;]*m", "", done.stdout)))
    Path(f"{kept}.new").rename(kept)
    return kept.read_text().split(":")


def _reason(release: str, output: str) -> str:
    """Why Maven could not fetch the jars, in one sentence."""
    missing = re.search(r"(org\.apache\.kafka:\S+) was not found|artifact (org\.apache\S+)", output)
    if missing:
        return f"Maven's repository has no {missing[1] or missing[2]}; is {release} published?"
    first = next((line for line in output.splitlines() if "ERROR" in line), "no error message")
    return f"Maven could not fetch the jars of Kafka {release}: {first[:200]}"
