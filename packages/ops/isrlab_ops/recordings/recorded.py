"""Recordings of real brokers: schedules of `data/scenarios`, played on clusters of a release.

`packages/proof/record` plays them, and keeps a file for each schedule and release in
`data/recordings/history`. Each line is a try, as JSON: for each block of the schedule, the stored
leader, epoch and ISR and the log of every replica; the answers to producers; the actions with their
times; and the brokers' log lines. This module turns them into frames like those of a scenario's
run, so that they can be drawn, checked and compared in the same way.

A high watermark is the last value that its broker wrote to `replication-offset-checkpoint`; a
leader's knowledge of its followers is not visible from outside.
"""

from __future__ import annotations

import lzma
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from isrlab.engine.choices import EpochEntry
from isrlab.engine.frozen import Frozen
from isrlab.engine.log import Log
from isrlab.engine.model import NO_LEADER, Broker, CommittedIsr, Follower, Leader, Settings
from isrlab.engine.partition import Controller, PartitionState
from isrlab.engine.versions import KafkaVersion
from isrlab.installed import DATA
from isrlab.world import scenario
from isrlab.world.frames import Fault, Frame
from isrlab.world.script import Run

FOLDER = DATA / "recordings" / "history"
RUNNING = ("alive", "paused")  # a broker that "hangs" has closed its sockets, and never ends


class BlockEnd(Frozen):
    """The end of a block. `lives`: each replica is alive, paused, dead, or hangs."""

    state: PartitionState
    lives: dict[int, str]
    disks: dict[int, Log]
    registered: tuple[int, ...] = ()  # the brokers that ZooKeeper has, where that was noted


class Try(msgspec.Struct):
    began: str  # UTC
    abandoned: str = ""  # why it did not finish
    moments: list[BlockEnd] = []
    answers: dict[str, str] = {}  # to producers, by record
    timeline: list[tuple[float, str]] = []  # seconds, action
    said: list[tuple[int, str, str]] = []  # broker, file, line

    @property
    def word(self) -> str:
        """The outcome, in the words of a scenario's run; "refused": only a producer was
        affected."""
        last = self.moments[-1]
        if last.state.leader == NO_LEADER:
            return "offline"
        log = last.disks[last.state.leader]
        in_sync = (last.disks[number].records for number in last.state.isr)
        if any(a.id != b.id for other in in_sync for a, b in zip(other, log.records, strict=False)):
            return "diverged"
        if not self._committed() <= {r.id for r in log.records}:
            return "lost"
        return "refused" if {*self.answers.values()} - {"ok"} else "safe"

    def _committed(self) -> set[str]:
        """Records below the high watermark of some replica."""
        names: set[str] = set()
        for log in (log for moment in self.moments for log in moment.disks.values()):
            end = min(log.checkpointed_high_watermark, log.log_end_offset)
            names |= {r.id for r in log.read(log.log_start_offset, end)}
        return names


@dataclass
class Recording:
    """All tries of a schedule on a release."""

    schedule: str
    release: str
    version: KafkaVersion
    tries: list[Try]

    @property
    def finished(self) -> list[Try]:
        return [t for t in self.tries if not t.abandoned]

    @property
    def words(self) -> str:
        """The outcomes and their counts, such as "lost 5 of 5"."""
        ends = Counter(t.word for t in self.finished)
        parts = [f"{word} {number} of {len(self.finished)}" for word, number in ends.most_common()]
        return ", ".join(parts)

    @property
    def title(self) -> str:
        return f"Seen on real brokers of Kafka {self.release}: {self.words}"

    def lines(self, *parts: str) -> list[str]:
        """The brokers' log lines that contain one of these parts, from the last finished try."""
        logged = [(line, f"broker {number}: {line}") for number, _, line in self.finished[-1].said]
        return [text for line, text in sorted(logged) if any(part in line for part in parts)]

    def engine(self) -> Run:
        """A run of the same commands in the engine, by the rules of that release."""
        return scenario.play(scenario.read(self.schedule), version=self.version)

    @property
    def engine_word(self) -> str:
        run = self.engine()
        is_refused = any(request.error for request in run.cluster.requests)
        return "refused" if is_refused and run.outcome.word == "safe" else run.outcome.word

    def frames(self, which: int = 0) -> list[Frame]:
        """A frame for the end of each block of the finished try with the number `which`."""
        return [self._frame(moment) for moment in self.finished[which].moments]

    def _frame(self, moment: BlockEnd) -> Frame:
        settings, brokers = Settings.of(self.version), {}
        state = moment.state
        follower = Follower(state.leader, state.leader_epoch, 0)
        leader = Leader(state.leader_epoch, 0, 0, CommittedIsr(state.isr), ())
        for number, log in moment.disks.items():
            if moment.lives[number] in RUNNING:
                role = leader if number == state.leader else follower
                brokers[number] = Broker(number, self.version, settings, state.replicas, log, role)
        controller = Controller(self.version, settings, state)
        return Frame(0, 0, 0, 0, Fault("the end of a block"), brokers, moment.disks, controller)

    def compared(self) -> list[list[Difference]]:
        """The differences between the engine and the brokers, for each finished try."""
        run = self.engine()
        expected = {name: r.error or "ok" for r in run.cluster.requests for name in r.ids}
        ends = [_visible(run.frames[block.frames[1] - 1]) for block in run.blocks]
        rows = []
        for which, attempt in enumerate(self.finished):
            answers = {f"answer to {name}": answer for name, answer in attempt.answers.items()}
            ours = {f"answer to {name}": expected[name] for name in attempt.answers}
            pairs = [(ours, answers), *zip(ends, map(_visible, self.frames(which)), strict=True)]
            rows.append(
                [
                    Difference(block, what, engine[what], kafka[what])
                    for block, (engine, kafka) in enumerate(pairs)
                    for what in engine
                    if engine[what] != kafka[what]
                ]
            )
        return rows

    def differences(self) -> Counter[Difference]:
        """The differences of all tries, and in how many tries each occurs."""
        return Counter(difference for attempt in self.compared() for difference in attempt)


class Difference(NamedTuple):
    block: int  # from 1; 0 for answers to producers
    what: str
    engine: str
    kafka: str


def _visible(frame: Frame) -> dict[str, str]:
    """The state that engine and brokers both show, by name: stored state, records, epochs (of a
    stopped broker those it will load), and the high watermarks of running brokers."""
    state = frame.controller.state
    shown = {"leader": str(state.leader), "leader epoch": str(state.leader_epoch)}
    shown |= {"ISR": str(sorted(state.isr)), "ELR": str(sorted(state.elr))}
    has_epochs = frame.controller.version.epoch_entry != EpochEntry.NONE
    for number, log in sorted(frame.disks.items()):
        broker = frame.brokers.get(number)
        records = [f"{r.id}:{r.leader_epoch}" if has_epochs else r.id for r in log.records]
        shown[f"broker {number}"] = "runs" if broker else "does not run"
        shown[f"records of {number}"] = " ".join(records)
        shown[f"epochs of {number}"] = str((log if broker else log.load()).epochs.entries)
        shown[f"high watermark of {number}"] = str(broker.log.high_watermark if broker else None)
    return shown


def recordings(schedule: str | None = None) -> list[Recording]:
    """All recordings, or those of one schedule, by release and without ELR first."""
    every = []
    for path in FOLDER.glob("*.txt.xz"):
        label = path.name.removesuffix(".txt.xz")
        if schedule in (None, label.partition("-")[0]):
            lines = lzma.decompress(path.read_bytes()).splitlines()
            every.append(labelled(label, [msgspec.json.decode(line, type=Try) for line in lines]))
    return sorted(
        every, key=lambda r: (r.schedule, r.version.first, r.version.eligible_leader_replicas)
    )


def labelled(label: str, tries: list[Try]) -> Recording:
    """The tries of a file. Its name has the schedule, the release, and whether there were eligible
    leader replicas, if that is not the release's default."""
    schedule, release, *features = label.split("-")
    version = KafkaVersion.of(release)
    if features:
        version = version.with_(eligible_leader_replicas=features[0] == "elr1")
    return Recording(schedule, "-".join([release, *features]), version, tries)


def read(schedule: str, release: str) -> Recording:
    """One recording. Raises ValueError with the known ones."""
    known = recordings(schedule)
    for recording in known:
        if recording.release == release:
            return recording
    names = ", ".join(r.release for r in known) or "none"
    raise ValueError(f"no recording of {schedule!r} on {release!r}; releases: {names}")


def table(*schedules: str) -> str:
    """A line for each release on which these schedules were played."""
    return "\n".join(row(r) for name in schedules for r in recordings(name))


def row(recording: Recording) -> str:
    """The outcomes of a schedule on real brokers and in the engine as a line, with differences."""
    engine = f"engine: {recording.engine_word}"
    compared = recording.compared()
    names = list(dict.fromkeys(d.what for differences in compared for d in differences))
    tries = sum(map(bool, compared))
    text = f"other in {tries} of {len(compared)}: {', '.join(names)}" if tries else "no difference"
    where = f"{recording.schedule.replace('_', ' '):<20} {recording.release:<10}"
    return f"{where} {recording.words:<17} {engine:<17} {text}"
