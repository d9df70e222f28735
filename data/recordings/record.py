#!/usr/bin/env python3
"""Record the broker logs of a real three-node Apache Kafka cluster under faults.

Fetches Kafka from Maven Central with `mvn`, starts three KRaft nodes (each both
broker and controller) on 127.0.0.1, keeps bursty acks=all producers running,
pauses, flaps, kills and restarts nodes, and copies server.log, controller.log
and state-change.log of every node to OUT, with timeline.csv saying to the
millisecond (UTC) what was done.  The log lines are left exactly as Kafka wrote
them.  Needs Java 17 and Maven; takes about seven minutes; uses the standard
library only.
"""
import argparse
import csv
import gzip
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
from datetime import datetime, timezone
from pathlib import Path

WORK = Path("/tmp/kafka")           # a neutral path: it appears in the logs
NODES = (1, 2, 3)
BOOTSTRAP = ",".join(f"127.0.0.1:{19090 + n}" for n in NODES)
LOGS = ("server.log", "controller.log", "state-change.log")
TOPICS = {                          # partitions, seconds on, seconds off, records/s
    "orders": (6, 3, 3, 200),
    "payments": (3, 2, 8, 60),
}
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>recording</groupId>
<artifactId>kafka</artifactId><version>1</version><dependencies>{}</dependencies></project>
"""
SERVER = """process.roles=broker,controller
node.id={n}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{cport}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={home}/data
replica.lag.time.max.ms=5000
min.insync.replicas=2
default.replication.factor=3
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
auto.create.topics.enable=false
leader.imbalance.check.interval.seconds=15
num.network.threads=2
num.io.threads=4
"""
# Loggers, as in the configuration Kafka ships: everything at INFO to server.log,
# the controller and the state changes to files of their own.  Left out: the
# console, the request, authorizer and log-cleaner logs, and (WARN) start-up dumps.
OWN_FILE = {"org.apache.kafka.controller": "controller.log",
            "state.change.logger": "state-change.log"}
LEVELS = {
    "kafka.request.logger": "OFF", "kafka.network.RequestChannel$": "OFF",
    "kafka.authorizer.logger": "OFF", "kafka.log.LogCleaner": "OFF",
    "org.apache.kafka.storage.internals.log.LogCleaner": "OFF",
    "kafka.server.KafkaConfig": "WARN",
    "org.apache.kafka.common.config": "WARN",
    "org.apache.kafka.common.utils.AppInfoParser": "WARN",
}
PATTERN = "[%d] %p %m (%c)%n"


def log4j1():
    """log4j.properties for Kafka 3.x."""
    lines = ["log4j.rootLogger=INFO, server"]
    for file in LOGS:
        name = "log4j.appender." + file.removesuffix(".log")
        lines += [f"{name}=org.apache.log4j.DailyRollingFileAppender",
                  f"{name}.DatePattern='.'yyyy-MM-dd-HH",
                  f"{name}.File=${{kafka.logs.dir}}/{file}",
                  f"{name}.layout=org.apache.log4j.PatternLayout",
                  f"{name}.layout.ConversionPattern={PATTERN}"]
    for logger, file in OWN_FILE.items():
        lines += [f"log4j.logger.{logger}=INFO, {file.removesuffix('.log')}",
                  f"log4j.additivity.{logger}=false"]
    lines += [f"log4j.logger.{logger}={level}" for logger, level in LEVELS.items()]
    return "\n".join(lines) + "\n"


def log4j2():
    """log4j2.yaml for Kafka 4.x."""
    lines = ["Configuration:", "  Appenders:", "    RollingFile:"]
    for file in LOGS:
        path = "${sys:kafka.logs.dir}/" + file
        lines += [f"      - name: {file}", f'        fileName: "{path}"',
                  f'        filePattern: "{path}.%d{{yyyy-MM-dd-HH}}"',
                  "        PatternLayout:", f'          pattern: "{PATTERN}"',
                  "        TimeBasedTriggeringPolicy:",
                  "          modulate: true", "          interval: 1"]
    lines += ["  Loggers:", "    Root:", "      level: INFO", "      AppenderRef:",
              "        - ref: server.log", "    Logger:"]
    for logger, file in OWN_FILE.items():
        lines += [f"      - name: {logger}", "        level: INFO", "        additivity: false",
                  "        AppenderRef:", f"          ref: {file}"]
    for logger, level in LEVELS.items():
        lines += [f"      - name: {logger}", f'        level: "{level}"']
    return "\n".join(lines) + "\n"


class Recording:
    def __init__(self, version, out, limit):
        self.version, self.out = version, out
        self.deadline = time.monotonic() + limit
        self.nodes, self.producers, self.rotated = {}, [], set()
        self.events = []
        self.new_logging = int(version.split(".")[0]) >= 4
        self.producer_class = ("org.apache.kafka" if self.new_logging else "kafka"
                               ) + ".tools.ConsoleProducer"
        self.logging = WORK / ("log4j2.yaml" if self.new_logging else "log4j.properties")

    # -- small tools ------------------------------------------------------
    def note(self, action, node="", detail=""):
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self.events.append((now.replace("+00:00", "Z"), action, node, detail))
        print(*self.events[-1], flush=True)

    def wait(self, seconds):
        if time.monotonic() + seconds > self.deadline:
            raise TimeoutError("the recording takes longer than --limit")
        time.sleep(seconds)

    def home(self, node):
        return WORK / f"broker-{node}"

    def java(self, home, main, *args, heap="128m", **popen):
        """Start a Java program of Kafka's; its console output goes to a file in home."""
        (home / "logs").mkdir(parents=True, exist_ok=True)
        config = "-Dlog4j2.configurationFile=" if self.new_logging else "-Dlog4j.configuration="
        with open(home / "console.out", "ab") as console:
            popen = {"stdout": console, "stderr": console, **popen}
            return subprocess.Popen(
                ["java", f"-Xmx{heap}", "-Duser.timezone=UTC", f"-Dkafka.logs.dir={home}/logs",
                 config + self.logging.as_uri(),
                 "-cp", f"{WORK}/lib/*", main, *args], cwd=home, **popen)

    def tool(self, main, *args):
        """Run a command-line tool to its end; return (exit code, output)."""
        process = self.java(WORK / "tool", main, *args, stdout=subprocess.PIPE)
        try:
            output, _ = process.communicate(timeout=60)
        finally:
            process.kill()
        return process.returncode, output.decode()

    def topics(self, *args):
        return self.tool("org.apache.kafka.tools.TopicCommand",
                         "--bootstrap-server", BOOTSTRAP, *args)

    # -- set-up -----------------------------------------------------------
    def install(self):
        jars = [("org.apache.kafka", "kafka_2.13", self.version),
                ("org.apache.kafka", "kafka-tools", self.version),
                ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3") if self.new_logging
                else ("org.slf4j", "slf4j-reload4j", "1.7.36")]
        (WORK / "pom.xml").write_text(POM.format("".join(
            f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId>"
            f"<version>{v}</version></dependency>" for g, a, v in jars)))
        subprocess.run(["mvn", "-q", "-B", "dependency:copy-dependencies",
                        f"-DoutputDirectory={WORK}/lib"], cwd=WORK, check=True, timeout=600)
        self.logging.write_text(log4j2() if self.new_logging else log4j1())

    def format(self):
        voters = ",".join(f"{n}@127.0.0.1:{19190 + n}" for n in NODES)
        for n in NODES:
            self.home(n).mkdir()
            config = self.home(n) / "server.properties"
            config.write_text(SERVER.format(n=n, voters=voters, port=19090 + n,
                                            cport=19190 + n, home=self.home(n)))
            code, output = self.tool("kafka.tools.StorageTool", "format", "-c", str(config),
                                     "-t", "aXNybGFiLXJlY29yZGluZw")
            if code:
                raise RuntimeError(f"formatting the storage failed:\n{output}")

    def start(self, node):
        self.nodes[node] = self.java(self.home(node), "kafka.Kafka",
                                     str(self.home(node) / "server.properties"), heap="384m")

    def create_topics(self):
        for topic, (partitions, *_) in TOPICS.items():
            while self.topics("--create", "--topic", topic, "--partitions", str(partitions),
                              "--replication-factor", "3")[0]:
                self.wait(2)        # not all three brokers are registered yet

    def produce(self, topic):
        """One console producer, fed from a thread in bursts of keyed records."""
        _, on, off, rate = TOPICS[topic]
        process = self.java(WORK / f"producer-{topic}", self.producer_class,
                            "--bootstrap-server", BOOTSTRAP, "--topic", topic,
                            "--request-required-acks", "all", "--request-timeout-ms", "5000",
                            "--message-send-max-retries", "1000", "--timeout", "50",
                            "--property", "parse.key=true", stdin=subprocess.PIPE)
        self.producers.append(process)
        dice = random.Random(topic)

        def feed():
            try:
                while True:
                    end = time.monotonic() + on * dice.uniform(0.5, 1.5)
                    while time.monotonic() < end:
                        for _ in range(rate // 10):
                            key = dice.randrange(10 ** 6)
                            process.stdin.write(b"%d\t%s\n" % (key, b"x" * 200))
                        process.stdin.flush()
                        time.sleep(0.1)
                    time.sleep(off * dice.uniform(0.5, 1.5))
            except (OSError, ValueError):
                pass                # the producer has been stopped

        threading.Thread(target=feed, daemon=True).start()

    # -- faults -----------------------------------------------------------
    def controller(self):
        """The node that last said it is the active controller."""
        said = []
        for n in NODES:
            text = (self.home(n) / "logs/controller.log").read_text()
            said += [(at, n) for at in re.findall(r"\[(.+?)\] .*Becoming the active", text)]
        return max(said)[1]

    def rotate(self, node):
        """Move server.log, while nothing writes to it, to server.log.<hour>.gz (once a node)."""
        if node not in self.rotated:
            self.rotated.add(node)
            log = self.home(node) / "logs/server.log"
            hour = datetime.now(timezone.utc).strftime("%Y-%m-%d-%H")
            with gzip.open(f"{log}.{hour}.gz", "wb") as packed:
                packed.write(log.read_bytes())
            os.truncate(log, 0)     # Kafka has it open for appending

    def settle(self, seconds):
        """Wait until no partition is under-replicated, then some seconds more."""
        while True:
            self.wait(2)
            code, output = self.topics("--describe", "--under-replicated-partitions")
            if code == 0 and not output.strip():
                break
        self.note("seen in sync", detail="no under-replicated partition")
        self.wait(seconds)

    def pause(self, node, seconds):
        self.note("SIGSTOP", node, f"active controller: {self.controller()}")
        self.nodes[node].send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        self.rotate(node)
        self.wait(begun + seconds - time.monotonic())
        self.nodes[node].send_signal(signal.SIGCONT)
        self.note("SIGCONT", node)

    def down(self, node, how, seconds):
        self.note(how.name, node, f"active controller: {self.controller()}")
        self.nodes[node].send_signal(how)
        self.nodes[node].wait(timeout=60)
        self.note("process gone", node)
        self.rotate(node)
        self.wait(seconds)
        self.note("start", node)
        self.start(node)

    def run(self, faults):
        self.install()
        self.format()
        for n in NODES:
            self.note("start", n, f"Kafka {self.version}")
            self.start(n)
        self.create_topics()
        self.note("topics created", detail=" ".join(TOPICS))
        for topic in TOPICS:
            self.produce(topic)
        self.settle(35)
        # Pause and kill nodes that are not the active controller; the third is shut down.
        first, second = [n for n in NODES if n != self.controller()][:2]
        third = sum(NODES) - first - second
        if "pause" in faults:       # longer than the lag limit and the 9 s session
            self.pause(first, 20)
            self.settle(20)
        if "flap" in faults:        # longer than the lag limit, within the session
            for _ in range(2):
                self.pause(first, 7)
                self.settle(15)
        if "kill" in faults:
            self.down(second, signal.SIGKILL, 20)
            self.settle(20)
        if "term" in faults:
            self.down(third, signal.SIGTERM, 15)
            self.settle(20)
        self.wait(20)
        self.note("end of recording")

    def stop(self):
        for process in [*self.producers, *self.nodes.values()]:
            process.kill()          # also ends a stopped process

    def harvest(self):
        for n in NODES:
            target = self.out / f"broker-{n}"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(self.home(n) / "logs", target)
            for log in target.glob("*.log.????-??-??-??"):      # rolled by Kafka on the hour
                with gzip.open(f"{log}.gz", "ab") as packed:
                    packed.write(log.read_bytes())
                log.unlink()
        with open(self.out / "timeline.csv", "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(
                [("time_utc", "action", "broker", "detail"), *self.events])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python3 record.py --version 3.9.2 --out kafka-3.9")
    parser.add_argument("--version", required=True, help="Kafka version, 3.9.x or 4.x")
    parser.add_argument("--out", required=True, type=Path, help="directory for the recording")
    parser.add_argument("--faults", default="pause,flap,kill,term",
                        help="which faults, in this order (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=900,
                        help="give up after so many seconds (default: %(default)s)")
    args = parser.parse_args()
    if WORK.exists():
        parser.error(f"{WORK} exists: remove it first")
    WORK.mkdir()
    args.out.mkdir(parents=True, exist_ok=True)
    recording = Recording(args.version, args.out, args.limit)
    try:
        recording.run(args.faults.split(","))
    finally:
        recording.stop()
    recording.harvest()
    shutil.rmtree(WORK)             # kept when the run failed, to see why


if __name__ == "__main__":
    main()
