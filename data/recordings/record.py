#!/usr/bin/env python3
"""Record the broker logs of a real three-node Apache Kafka cluster under faults.

Fetches Kafka from Maven Central with `mvn`, starts three KRaft nodes (each both
broker and controller, see config/) on 127.0.0.1, keeps bursty acks=all producers
running, pauses, flaps, kills and restarts nodes, and copies server.log,
controller.log and state-change.log of every node to OUT.  OUT/timeline.csv says to
the millisecond (UTC) what was done.  The log lines stay exactly as Kafka wrote them.
Needs Java 17 and Maven and about five minutes; uses the standard library only.
"""

import argparse
import csv
import gzip
import os
import random
import re
import shutil
import signal
import string
import subprocess
import sys
import threading
import time
from datetime import datetime, timezone
from pathlib import Path

CONFIG = Path(__file__).resolve().parent / "config"
WORK = Path("/tmp/kafka")  # a neutral path: it appears in the logs
NODES = (1, 2, 3)
BOOTSTRAP = ",".join(f"127.0.0.1:1909{n}" for n in NODES)
CLUSTER_ID = "aXNybGFiLXJlY29yZGluZw"
TOPICS = {  # partitions, seconds on, seconds off, records/s
    "orders": (6, 3, 3, 200),
    "payments": (3, 2, 8, 60),
}
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>recording</groupId>
<artifactId>kafka</artifactId><version>1</version><dependencies>{}</dependencies></project>
"""
JAR = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId>
<version>{}</version></dependency>
"""


class Recording:
    """One cluster, its producers, and what has been done to it."""

    def __init__(self, version, out, limit):
        self.version, self.out = version, out
        self.deadline = time.monotonic() + limit
        self.nodes, self.producers = {}, []
        self.rotated, self.timeline = set(), []
        if int(version.split(".")[0]) < 4:
            self.binding = ("org.slf4j", "slf4j-reload4j", "1.7.36")
            self.logging = f"-Dlog4j.configuration={CONFIG.as_uri()}/log4j.properties"
            self.console_producer = "kafka.tools.ConsoleProducer"
        else:
            self.binding = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3")
            self.logging = f"-Dlog4j2.configurationFile={CONFIG.as_uri()}/log4j2.yaml"
            self.console_producer = "org.apache.kafka.tools.ConsoleProducer"

    def note(self, action, node="", detail=""):
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self.timeline.append((now.replace("+00:00", "Z"), action, node, detail))
        print(*self.timeline[-1], flush=True)

    def wait(self, seconds):
        if time.monotonic() + seconds > self.deadline:
            raise TimeoutError("the recording takes longer than --limit")
        time.sleep(max(seconds, 0))

    # -- programs ---------------------------------------------------------
    def install(self):
        jars = [
            ("org.apache.kafka", "kafka_2.13", self.version),
            ("org.apache.kafka", "kafka-tools", self.version),
            self.binding,
        ]
        (WORK / "pom.xml").write_text(POM.format("".join(JAR.format(*jar) for jar in jars)))
        subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={WORK}/lib"],
            cwd=WORK,
            check=True,
            timeout=600,
        )

    def java(self, name, main, *args, heap="128m", **popen):
        """Start a program of Kafka's; what it prints goes to WORK/name/console.out."""
        home = WORK / name
        home.mkdir(exist_ok=True)
        with open(home / "console.out", "ab") as console:
            popen = {"stdout": console, "stderr": console, **popen}
            return subprocess.Popen(
                [
                    "java",
                    f"-Xmx{heap}",
                    "-Duser.timezone=UTC",
                    f"-Dkafka.logs.dir={home}/logs",
                    self.logging,
                    "-cp",
                    f"{WORK}/lib/*",
                    main,
                    *args,
                ],
                cwd=home,
                start_new_session=True,
                **popen,
            )

    def tool(self, main, *args):
        """Run a command-line tool to its end; return (exit code, output)."""
        process = self.java("tool", main, *args, stdout=subprocess.PIPE)
        try:
            output, _ = process.communicate(timeout=60)
        finally:
            process.kill()
        return process.returncode, output.decode()

    def topics(self, *args):
        return self.tool(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", BOOTSTRAP, *args
        )

    def format(self, node):
        """Write a node's configuration and format its storage."""
        home = WORK / f"broker-{node}"
        home.mkdir()
        template = string.Template((CONFIG / "server.properties").read_text())
        (home / "server.properties").write_text(template.safe_substitute(node=node, home=home))
        code, output = self.tool(
            "kafka.tools.StorageTool",
            "format",
            "--cluster-id",
            CLUSTER_ID,
            "--config",
            f"{home}/server.properties",
        )
        if code:
            raise RuntimeError(f"formatting the storage failed:\n{output}")

    def start(self, node):
        self.note("start", node, f"Kafka {self.version}")
        self.nodes[node] = self.java(
            f"broker-{node}", "kafka.Kafka", "server.properties", heap="384m"
        )

    def produce(self, topic):
        """Start a console producer and a thread that feeds it bursts of keyed records."""
        _, on, off, rate = TOPICS[topic]
        producer = self.java(
            f"producer-{topic}",
            self.console_producer,
            "--bootstrap-server",
            BOOTSTRAP,
            "--topic",
            topic,
            "--request-required-acks",
            "all",
            "--request-timeout-ms",
            "5000",
            "--message-send-max-retries",
            "1000",
            "--timeout",
            "50",
            "--property",
            "parse.key=true",
            stdin=subprocess.PIPE,
        )
        self.producers.append(producer)
        dice = random.Random(topic)

        def feed():
            try:
                while True:
                    end = time.monotonic() + on * dice.uniform(0.5, 1.5)
                    while time.monotonic() < end:
                        for _ in range(rate // 10):
                            key = dice.randrange(10**6)
                            producer.stdin.write(b"%d\t%s\n" % (key, b"x" * 200))
                        producer.stdin.flush()
                        time.sleep(0.1)
                    time.sleep(off * dice.uniform(0.5, 1.5))
            except OSError:
                pass  # the producer has been stopped

        threading.Thread(target=feed, daemon=True).start()

    # -- faults -----------------------------------------------------------
    def controller(self):
        """The node that last said it is the active controller."""
        said = []
        for n in NODES:
            text = (WORK / f"broker-{n}/logs/controller.log").read_text()
            said += [(at, n) for at in re.findall(r"\[(.+?)\] .*Becoming the active", text)]
        return max(said)[1]

    def rotate(self, node):
        """Once a node, while it cannot write: move server.log to server.log.<hour>.gz."""
        if node not in self.rotated:
            self.rotated.add(node)
            log = WORK / f"broker-{node}/logs/server.log"
            hour = datetime.now(timezone.utc).strftime("%Y-%m-%d-%H")
            with gzip.open(f"{log}.{hour}.gz", "wb") as packed:
                packed.write(log.read_bytes())
            os.truncate(log, 0)  # Kafka has it open for appending

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
        begun = time.monotonic()
        self.nodes[node].send_signal(signal.SIGSTOP)
        self.rotate(node)
        self.wait(begun + seconds - time.monotonic())
        self.note("SIGCONT", node)
        self.nodes[node].send_signal(signal.SIGCONT)

    def down(self, node, how, seconds):
        self.note(how.name, node, f"active controller: {self.controller()}")
        self.nodes[node].send_signal(how)
        self.nodes[node].wait(timeout=60)
        self.note("process gone", node)
        self.rotate(node)
        self.wait(seconds)
        self.start(node)

    def run(self, faults):
        self.install()
        for n in NODES:
            self.format(n)
        for n in NODES:
            self.start(n)
        for topic, (partitions, *_) in TOPICS.items():
            while self.topics(
                "--create",
                "--topic",
                topic,
                "--partitions",
                str(partitions),
                "--replication-factor",
                "3",
            )[0]:
                self.wait(2)  # not all three brokers are registered yet
            self.note("topic created", detail=topic)
            self.produce(topic)
        self.settle(40)
        third = self.controller()  # pausing the first may well move that role
        first, second = (n for n in NODES if n != third)
        if "pause" in faults:  # longer than the lag limit and the session
            self.pause(first, 20)
            self.settle(20)
        if "flap" in faults:  # longer than the lag limit, shorter than the session
            for _ in range(2):
                self.pause(first, 7)
                self.settle(15)
        if "kill" in faults:
            self.down(second, signal.SIGKILL, 20)
            self.settle(20)
        if "term" in faults:
            self.down(third, signal.SIGTERM, 15)
            self.settle(20)
        self.wait(15)
        self.note("end of recording")

    def stop(self):
        for process in [*self.producers, *self.nodes.values()]:
            process.kill()  # ends a paused process, too

    def harvest(self):
        """Copy the logs, pack those that Kafka itself rolled on the hour, write timeline.csv."""
        for n in NODES:
            target = self.out / f"broker-{n}"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(WORK / f"broker-{n}/logs", target)
            for log in target.glob("*.log.????-??-??-??"):
                with gzip.open(f"{log}.gz", "ab") as packed:
                    packed.write(log.read_bytes())
                log.unlink()
        with open(self.out / "timeline.csv", "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(
                [("time_utc", "action", "broker", "detail"), *self.timeline]
            )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python3 record.py --version 3.9.2 --out kafka-3.9",
    )
    parser.add_argument("--version", required=True, help="Kafka version, 3.9.x or 4.x")
    parser.add_argument("--out", required=True, type=Path, help="directory for the recording")
    parser.add_argument(
        "--faults",
        default="pause,flap,kill,term",
        help="which faults, always in this order (default: %(default)s)",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=900,
        metavar="SECONDS",
        help="give up after so many seconds (default: %(default)s)",
    )
    args = parser.parse_args()
    if WORK.exists():
        parser.error(f"{WORK} exists: remove it first")
    for name in (signal.SIGTERM, signal.SIGHUP):  # so that `finally` is reached
        signal.signal(name, lambda *_: sys.exit("stopped by a signal"))
    WORK.mkdir()
    args.out.mkdir(parents=True, exist_ok=True)
    recording = Recording(args.version, args.out, args.limit)
    try:
        recording.run(args.faults.split(","))
    finally:
        recording.stop()
    recording.harvest()
    shutil.rmtree(WORK)  # kept when the run failed, to see why


if __name__ == "__main__":
    main()
