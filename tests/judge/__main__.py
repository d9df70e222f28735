"""`python -m judge --help`, in the folder tests, or `make judge` at the top."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import click

from isrlab.engine.versions import KafkaVersion
from isrlab.judged.leader import LeaderPlayer
from isrlab.judged.stored import Run, write
from judge import jars, power, schedules
from judge.older import ManagedPartition, StoredPartition, ZooKeeperPartition
from judge.partition import KafkaPartition
from judge.world import World

RELEASES = (
    *("0.10.2.2", "2.4.1", "2.6.3", "2.8.2", "3.0.2", "3.1.2", "3.2.3"),
    *("3.3.2", "3.5.2", "3.6.2", "3.9.2", "4.1.2"),
)
MOST = 3  # differences shown of a release


def players(
    world: World, version: KafkaVersion, settings: dict[str, int]
) -> tuple[KafkaPartition, LeaderPlayer]:
    kind = KafkaPartition
    if version.writes_zookeeper:
        kind = StoredPartition if world.release >= (2, 4) else ManagedPartition
    elif not version.kraft:
        kind = ZooKeeperPartition
    return kind(world, **settings), LeaderPlayer(version, **settings)


def judge(release: str, seeds: range, folder: str, store: bool) -> bool:
    """Say what Kafka and the engine did not agree about; whether there is any of that."""
    try:
        world = World(release, folder)
    except jars.NoJarsError as missing:
        print(f"{release}: not judged: {missing}", flush=True)
        return True
    version, begun = KafkaVersion.of(release), time.monotonic()
    runs: list[Run] = []
    steps = differences = 0
    for seed in seeds:
        settings, schedule = schedules.settings(seed), schedules.schedule(seed, version)
        both = partial(players, world, version, settings)
        kafka, engine = both()
        try:
            runs.append(
                Run("partition", settings, schedule, schedules.play(schedule, kafka, engine))
            )
            steps += len(schedule)
        except schedules.Difference as difference:
            steps += len(difference.schedule)
            differences += 1
            print(f"{release}, seed {seed}: {schedules.shrunk(difference, both)}\n", flush=True)
            if differences == MOST:
                break
        kafka.close()
    took = time.monotonic() - begun
    print(f"{release}: {steps:,} steps in {took:.0f} s, {differences} differences", flush=True)
    if store and not differences:
        write(release, power.choose(runs, version))
    return differences > 0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("releases", nargs=-1)
@click.option("--runs", default=100, show_default=True, help="Schedules of each release.")
@click.option("--seed", default=0, show_default=True, help="The first schedule.")
@click.option("--jobs", default=1, show_default=True, help="Releases at a time.")
@click.option("--store", is_flag=True, help="Keep verdicts of these releases in data/judged.")
@click.option("--folder", hidden=True, help="Judge here and now, with the logs in this folder.")
def main(
    releases: tuple[str, ...], runs: int, seed: int, jobs: int, store: bool, folder: str | None
) -> None:
    """Kafka's own classes beside the engine, step by step, on random schedules.

    \b
    python -m judge                          every release, 100 schedules each
    python -m judge 3.9.2 --runs 1000        one release, longer
    python -m judge 2.8.2 --seed 7 --runs 1  one schedule
    python -m judge --store                  and keep what Kafka showed in data/judged
    """
    if folder:
        found = [judge(release, range(seed, seed + runs), folder, store) for release in releases]
        sys.stdout.flush()
        os._exit(any(found))  # the threads of a ReplicaManager would keep the JVM alive
    options = [f"--runs={runs}", f"--seed={seed}", *(["--store"] if store else [])]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    running: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory(prefix="isrlab-judge-") as temporary:

        def judged(release: str) -> int:
            command = [sys.executable, "-m", "judge", release, *options, f"--folder={temporary}"]
            running.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True))
            return running[-1].wait()

        pool = ThreadPoolExecutor(jobs)
        try:
            codes = list(pool.map(judged, releases or RELEASES))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                process.kill()
                process.wait()
    sys.exit(any(codes))


if __name__ == "__main__":
    main()
