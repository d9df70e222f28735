"""The files that a broker, a controller or ZooKeeper needs, release by release."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from judge import jars

CONTROLLER = 100  # the id of the only controller of a KRaft cluster, which is not a broker
CLUSTER_ID = "aXNybGFiLXJlY29yZGluZw"
JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Duser.timezone=UTC",
        "-Dzookeeper.jmx.log4j.disable=true")  # fmt: skip
SMALL = {  # a broker that needs little memory, and writes its high watermark often
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "num.io.threads": "3",
    "num.network.threads": "2",
    "offsets.topic.replication.factor": "1",
    "replica.high.watermark.checkpoint.interval.ms": "300",
}
Settings = Mapping[str, object]
Release = tuple[int, ...]


def zookeeper(folder: Path, port: int) -> dict[str, object]:
    """The settings of ZooKeeper, with ticks so short that a session may be one second."""
    return {
        "dataDir": folder / "data",
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
        "tickTime": 500,
        "minSessionTimeout": 500,
        "maxSessionTimeout": 120_000,
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
    }


def broker(release: Release, number: int, folder: Path, base: int, kraft: bool) -> Settings:
    """The settings of one broker; ports are counted from `base`."""
    port = base + number
    settings: dict[str, object] = {**SMALL, "log.dirs": folder / "data"}
    if release < (0, 9):
        settings |= {"host.name": "127.0.0.1", "port": port}
    else:
        settings |= {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    if not kraft:
        return {
            **settings,
            "broker.id": number,
            "zookeeper.connect": f"127.0.0.1:{base + CONTROLLER}",
        }
    role = "controller" if number == CONTROLLER else "broker"
    kind = "CONTROLLER" if number == CONTROLLER else "PLAINTEXT"
    return {
        **settings,
        "process.roles": role,
        "node.id": number,
        "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{base + CONTROLLER}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{kind}://127.0.0.1:{port}",
    }


def write(path: Path, settings: Settings) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def logging(release: Release, folder: Path, loggers: Mapping[str, str]) -> list[str]:
    """Write a configuration like Kafka's shipped one, plus `loggers`; returns its JVM options."""
    news = "INFO" if release >= (2, 7) else "TRACE"
    own = {"kafka.controller": news, "org.apache.kafka.controller": "INFO"}
    own |= {"state.change.logger": news}
    quiet = {"kafka.request.logger": "OFF", "kafka.network.RequestChannel$": "OFF"}
    lines = ["log4j.rootLogger=INFO, server"]
    for name in ("server", "controller", "state-change"):
        at = f"log4j.appender.{name}"
        lines += [f"{at}=org.apache.log4j.FileAppender", f"{at}.File={folder}/logs/{name}.log",
                  f"{at}.layout=org.apache.log4j.PatternLayout",
                  f"{at}.layout.ConversionPattern=[%d] %p %m (%c)%n"]  # fmt: skip
    for name, level in {**quiet, **own, **loggers}.items():
        target = "state-change" if name.startswith("state") else "controller"
        lines += [f"log4j.logger.{name}={level}" + (f", {target}" if name in own else "")]
        lines += [f"log4j.additivity.{name}=false"] if name in own else []
    path = folder / "log4j.properties"
    path.write_text("\n".join(lines) + "\n")
    return [f"-Dlog4j.configuration={path.as_uri()}", "-Dlog4j1.compatibility=true"]


def dying_with_parent() -> None:
    """Let the kernel kill this new process when its parent ends, for whatever reason."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL


def java(
    version: str,
    main: str,
    *args: object,
    heap: str = "256m",
    logs: Sequence[str] = (),
    classes: Path | None = None,
    artifacts: Callable[[str], list[jars.Artifact]] = jars.broker,
) -> list[str]:
    """The command that runs a class of a release, or of `classes`. Raises NoJarsError."""
    path = [str(classes)] if classes else []
    path += jars.classpath(version, artifacts)
    return ["java", f"-Xmx{heap}", *JAVA, *logs, "-cp", os.pathsep.join(path), main,
            *map(str, args)]  # fmt: skip


def compiled(version: str, name: str, more: Sequence[str] = ()) -> Path:
    """The folder with the classes of a source file beside this module, compiled for a release,
    with `more` jars."""
    source = Path(__file__).with_name(name)
    folder = jars.CACHE / f"{name}-{version}-{zlib.crc32(source.read_bytes()):08x}"
    if not folder.exists():
        path = os.pathsep.join([*more, *jars.classpath(version, jars.broker)])
        new = Path(tempfile.mkdtemp(dir=jars.CACHE))
        subprocess.run(["javac", "-cp", path, "-d", str(new), str(source)], check=True)
        with suppress(OSError):  # another process was quicker
            new.rename(folder)
    return folder


def agent(version: str) -> Path:
    """The jar of a Java agent made of Gate.java, which uses Byte Buddy."""
    (buddy,) = jars.classpath(version, lambda _: [("net.bytebuddy", "byte-buddy", "1.15.4", "")])
    folder = compiled(version, "Gate.java", [buddy])
    target = folder.with_suffix(".jar")
    if not target.exists():
        manifest = f"Premain-Class: Gate\nClass-Path: {Path(buddy).as_uri()}\n"
        (folder / "manifest.txt").write_text(manifest)
        build = ["jar", "--create", "--file", target, "--manifest", folder / "manifest.txt"]
        subprocess.run([*build, "-C", folder, "."], check=True)
    return target


def format_storage(version: str, folder: Path, features: Mapping[str, int]) -> None:
    """Format the storage of a KRaft controller, and give its brokers the same cluster id."""
    chosen = [f"--feature={name}={level}" for name, level in features.items()]
    command = java(version, "kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID,
                   "--config", folder / f"broker-{CONTROLLER}" / "server.properties",
                   *chosen)  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the storage was not formatted: {done.stdout}{done.stderr}")
    made = (folder / f"broker-{CONTROLLER}" / "data" / "meta.properties").read_text()
    made = re.sub(r"directory\.id=.*\n?", "", made)
    for home in folder.glob("broker-*"):
        if home.name != f"broker-{CONTROLLER}":
            number = home.name.removeprefix("broker-")
            (home / "data").mkdir(exist_ok=True)
            text = re.sub(r"node\.id=\d+", f"node.id={number}", made)
            (home / "data" / "meta.properties").write_text(text)
