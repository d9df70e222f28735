"""`python -m judge --help`, in the folder packages/proof, or `make judge` at the top."""

from __future__ import annotations

import fcntl
import json
import lzma
import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import click

from isrlab.engine.versions import KafkaVersion
from isrlab.installed import DATA
from isrlab_proof.judged.stored import COMPARED, ENDING, FOLDER, SETTINGS, JudgedRun, Seen
from judge import jars, mutants, schedules
from judge.classes import CLASSES, Judged
from judge.world import World

RULES = tomllib.loads((DATA / "rules_to_try.toml").read_text())["rules"]
PROPOSED = [name for name, row in RULES.items() if "repairs" in row]
MOST = 3  # differences shown for a class
ONE_JVM = 250  # schedules in one JVM, which would run out of memory with more


def judge(
    release: str, kinds: tuple[str, ...], seeds: range, folder: str, store: bool, rule: str | None
) -> bool:
    """Print how Kafka and the engine differ; True if they do, or if nothing was judged."""
    proposal: dict[str, Any] = RULES[rule] if rule else {"repairs": (), "choices": {}}
    version = jars.rules(release).with_(**proposal["choices"])
    try:
        world = World(release, folder, tuple(proposal["repairs"]))
    except jars.NoJarsError as missing:
        print(f"{release}: not judged: {missing}", flush=True)
        return True
    number = jars.numbers(release)
    judged = [k for k in kinds if number >= CLASSES[k].first]
    if not world.has_tests:  # and none of another release serve it: jars.WITHOUT_TESTS
        judged = [kind for kind in judged if kind == "controller"]
    for kind in (kind for kind in kinds if kind not in judged):
        why = f"its player begins with {'.'.join(map(str, CLASSES[kind].first))}"
        why = why if world.has_tests else f"Kafka {release} was published without test jars"
        print(f"{release:9} {kind:10} is not judged: {why}", flush=True)
    found = not judged
    for kind in judged:
        runs, differences = judge_class(CLASSES[kind], world, release, version, seeds)
        found += differences
        if store and not differences:
            write(release, mutants.choose(runs, version))
            note(kind, release, sum(len(run.schedule) for run in runs))
    return found > 0


def judge_class(
    judged: Judged, world: World, release: str, version: KafkaVersion, seeds: range
) -> tuple[list[JudgedRun], int]:
    """Kafka's states in the runs that agree, and the number of other runs, at most `MOST`."""
    begun = time.monotonic()
    runs: list[JudgedRun] = []
    steps = differences = 0
    for seed in seeds:
        settings, schedule = judged.settings(seed, version), judged.schedule(seed, version)
        both = partial(judged.both, world, version, settings)
        kafka, engine = both()
        try:
            states = schedules.play(schedule, kafka, engine)
            runs.append(JudgedRun(judged.kind, settings, schedule, states))
            steps += len(schedule)
        except schedules.Difference as difference:
            steps += len(difference.schedule)
            differences += 1
            shortest = schedules.shrunk(difference, both)
            print(f"{release} {judged.kind}, seed {seed}, {settings}: {shortest}\n", flush=True)
            if differences == MOST:
                break
        kafka.close()
    took = time.monotonic() - begun
    rate = f"{steps:,} steps in {took:.0f} s ({60 * steps / took:,.0f} a minute)"
    print(f"{release:9} {judged.kind:10} {rate}, {differences} differences", flush=True)
    return runs, differences


def write(release: str, runs: list[JudgedRun]) -> None:
    """Store these runs, all of one class, in place of the stored runs of class and release."""
    folder = FOLDER / runs[0].kind
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{json.dumps(line)}\n" for run in runs for line in _lines(run))
    (folder / f"{release}{ENDING}").write_bytes(lzma.compress(text.encode(), preset=9))


def _lines(run: JudgedRun) -> Iterator[list[Any]]:
    yield [SETTINGS, run.settings]
    before: Seen = {}
    for command, state in zip(run.schedule, run.states, strict=True):
        after = dict.fromkeys(before) | state
        yield [*command, {k: v for k, v in after.items() if k not in before or before[k] != v}]
        before = after


def note(kind: str, release: str, steps: int) -> None:
    """Store how many steps were compared."""
    with COMPARED.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # releases are judged side by side
        compared = json.load(file)
        compared.setdefault(kind, {})[release] = steps
        file.seek(0)
        file.truncate()
        json.dump(compared, file, sort_keys=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("releases", nargs=-1)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(list(CLASSES)), help="Classes.")
@click.option("--runs", default=100, show_default=True, help="Schedules of each release and class.")
@click.option("--seed", default=0, show_default=True, help="The first schedule.")
@click.option("--jobs", default=1, show_default=True, help="Releases at a time.")
@click.option("--store", is_flag=True, help="Store verdicts of these releases in data/judged.")
@click.option("--rule", type=click.Choice(PROPOSED), help="Both by this rule of no release.")
@click.option("--folder", hidden=True, help="Judge here and now, with the logs in this folder.")
def main(releases: tuple[str, ...], jobs: int, **options: Any) -> None:
    """Compare Kafka's own classes with the engine, step by step, on random schedules.

    Needs Java, and Maven for Kafka's jars. Prints steps, speed and differences of each class.

    \b
    python -m judge                          every release and class, 100 schedules each
    python -m judge 3.9.2 --runs 1000        one release, any that is published, longer
    python -m judge 2.8.2 --seed 7 --runs 1  one schedule
    python -m judge --kind follower          one class
    python -m judge --store                  and store Kafka's states in data/judged
    python -m judge 4.1.2 --rule "wait to join under min ISR"   a rule that is only proposed
    """
    for release in releases:
        try:
            jars.rules(release)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    seeds = range(options["seed"], options["seed"] + options["runs"])
    kinds, folder = options["kinds"] or tuple(CLASSES), options["folder"]
    rule = options["rule"]
    if rule and options["store"]:
        raise click.UsageError("--store is for rules that the release has")
    if folder:
        try:
            found = [judge(each, kinds, seeds, folder, options["store"], rule) for each in releases]
        except BaseException:
            found = [True]
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(any(found))  # the threads of a ReplicaManager would keep the JVM alive
    words = [*(f"--kind={k}" for k in kinds), *(["--store"] if options["store"] else [])]
    words += [f"--rule={rule}"] if rule else []
    size = len(seeds) if options["store"] else ONE_JVM
    parts = [seeds[start : start + size] for start in range(0, len(seeds), size)]
    tasks = [
        [release, f"--runs={len(part)}", f"--seed={part.start}", *words]
        for release in releases or jars.EVERY
        for part in parts
    ]
    sys.exit(in_processes(tasks, jobs))


def in_processes(tasks: list[list[str]], jobs: int) -> int:
    """Run a process for each task, because a JVM loads one release; none outlives this process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    running: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory(prefix="isrlab-judge-") as temporary:

        def judged(words: list[str]) -> int:
            folder = tempfile.mkdtemp(dir=temporary)  # its own: a difference leaves its logs there
            command = [sys.executable, "-m", "judge", *words, f"--folder={folder}"]
            running.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True))
            return running[-1].wait()

        pool = ThreadPoolExecutor(jobs)
        try:
            codes = list(pool.map(judged, tasks))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                process.kill()
                process.wait()
    return int(any(codes))


if __name__ == "__main__":
    main()
