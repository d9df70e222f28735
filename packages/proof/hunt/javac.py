"""The hunt's Java, compiled against the jars of a release, and run."""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

from hunt import repairs
from judge import jars

SOURCES = sorted((Path(__file__).parent / "java").glob("*.java"))
# The last release of each line with Maven artifacts and managers to build: see CONTRIBUTING.
RELEASES = (
    *("3.3.2", "3.4.1", "3.5.2", "3.6.2", "3.7.2", "3.8.1", "3.9.2", "4.0.2", "4.1.2"),
    *("4.2.2", "4.3.1", "4.4.0"),
)
WHOLE = "3.5.2"  # the first with the logs and partitions that level two can make
LOGGING = ("slf4j-log4j", "log4j-slf4j", "reload4j", "logback")  # without these SLF4J is silent
# Only the quick compiler: a run of a few seconds takes half the processor time.
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SCALA = [("org.scala-lang", "scala-compiler", "2.13.18", "")]
MAIN = "org.apache.kafka.controller.Hunt"
WAITING: dict[tuple[str, tuple[str, ...]], subprocess.Popen[str]] = {}  # by release and repairs


class NoCompilerError(Exception):
    """javac rejected the sources; the message has its first errors."""


def is_whole(release: str) -> bool:
    """Whether level two can build the brokers of this release."""
    return jars.numbers(release) >= jars.numbers(WHOLE)


def artifacts(release: str) -> list[jars.Artifact]:
    return [("org.apache.kafka", "kafka_2.13", release, "")]


def classpath(release: str) -> str:
    paths = jars.classpath(release, artifacts)
    return ":".join(x for x in paths if not any(name in Path(x).name for name in LOGGING))


def compiled(release: str, repaired: tuple[str, ...] = ()) -> str:
    """The class path of the hunt for a release: repaired classes, the hunt, Kafka's jars."""
    theirs = classpath(release)
    folders = [built(release, "hunt", [(x.name, x.read_text()) for x in SOURCES], theirs)]
    if any(repairs.EDITS[name] for name in repaired):
        folders.insert(0, built(release, "repaired", repairs.edited(release, repaired), theirs))
    return ":".join([*map(str, folders), theirs])


def built(release: str, what: str, sources: list[tuple[str, str]], theirs: str) -> Path:
    """The folder of these sources' classes, compiled unless there is one for these texts."""
    mark = zlib.crc32("".join(f"{name}\n{text}" for name, text in sources).encode())
    folder = jars.CACHE.parent / "hunt" / f"{release}-{what}-{mark:08x}"
    if (folder / "done").exists():
        return folder
    (folder / "source").mkdir(parents=True, exist_ok=True)
    for name, text in sources:
        (folder / "source" / name).write_text(text)
    files = [str(folder / "source" / name) for name, _ in sources]
    for ending in sorted({Path(file).suffix for file in files}):
        mine = [file for file in files if file.endswith(ending)]
        command = [*compiler(ending), "-nowarn", "-cp", theirs, "-d", str(folder), *mine]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [x for x in (done.stderr + done.stdout).splitlines() if "error:" in x]
            raise NoCompilerError(f"{release}, {what}: " + "\n".join(errors[:6]))
    (folder / "done").touch()
    return folder


def compiler(ending: str) -> list[str]:
    """The command that compiles sources with this ending; Scala's compiler comes from Maven."""
    if ending == ".java":
        return ["javac", "-proc:none"]
    scala = jars.classpath("scala", lambda _: SCALA)
    return ["java", "-cp", ":".join(scala), "scala.tools.nsc.Main"]


def broken(release: str, schedule: str, repaired: tuple[str, ...] = ()) -> list[str]:
    """The promises that a schedule breaks on a release, in the order of the breaks."""
    return [text.strip() for text in replayed(release, schedule, repaired)[-1][1:] if text]


def replayed(release: str, schedule: str, repaired: tuple[str, ...] = ()) -> list[list[str]]:
    """The rows that the replay of a schedule prints, up to the one that is called `replayed`.

    The processes of the last sixteen releases and repairs wait for the next schedule.
    """
    key = release, repaired
    process = WAITING[key] = WAITING.pop(key, None) or started(*key, ["replay", "loud"])
    for old in [*WAITING][:-16]:
        WAITING.pop(old).communicate()  # ends with its input
    print(schedule, file=process.stdin, flush=True)
    found: list[list[str]] = []
    for row in rows(process):
        found.append(row)
        if row[0] == "replayed":
            return found
    raise RuntimeError(f"{release} did not play {schedule}")


def hunted(
    release: str, limits: list[str], repaired: tuple[str, ...] = (), is_patient: bool = False
) -> Iterator[list[str]]:
    """Runs a hunt. A patient one also shows breaks that have all the actions of one before."""
    patient = ["-Dpatient=true"] * is_patient
    process = started(release, repaired, ["hunt", *limits], patient)
    try:
        yield from rows(process)
    finally:
        process.kill()  # the caller may have seen enough


def started(
    release: str, repaired: tuple[str, ...], arguments: list[str], more: list[str] | None = None
) -> subprocess.Popen[str]:
    is_kept = str(repairs.RACE in repaired).lower()
    options = [*QUICK, f"-Drepaired={is_kept}", "-Xmx1g", *(more or [])]
    command = ["java", *options, "-cp", compiled(release, repaired), MAIN, *arguments]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(["nice"] * (os.name == "posix") + command, text=True, **pipes)


def rows(process: subprocess.Popen[str]) -> Iterator[list[str]]:
    """The rows of a hunt, which are separated by tabs, as they come."""
    assert process.stdout and process.stderr
    for line in process.stdout:
        yield line.rstrip("\n").split("\t")
    errors = [x for x in process.stderr.read().splitlines() if not x.startswith("SLF4J")]
    if process.wait():
        raise RuntimeError("the hunt ended with an error: " + "\n".join(errors[:12]))
