"""Random histories, written as the lines of every release, judge what the history of logs proves.

Every broker and the controller log a drawn history, each by its own clock; files may be duplicated
and lines removed. The proven states must be true, or gaps must name what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases.logs import DAY_MS
from isrlab.engine.versions import release as numbers
from isrlab.events import exact, schema
from isrlab.world import scenario
from isrlab_ops.logs import reader
from isrlab_ops.logs.history import history_of
from log_writer import write_line

RELEASES = ("0.8.2", "0.10.2", "0.11", "1.1", "2.0", "2.4", "2.6", "2.7", "2.8", "3.2", "3.5",
            "3.9", "4.1")  # fmt: skip
CONTROLLER = 9
START_MS = DAY_MS + 8 * 3_600_000
NEAR_MS = 300  # the longest delay from a change to its lines
SLOW = [HealthCheck.too_slow]
SOME = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=SLOW)


@dataclass
class Story:
    """One partition: its true states (ms, members, version), and the lines about them by writer."""

    release: str
    has_controller: bool
    ms: int = START_MS
    leader: int = 1
    isr: list[int] = field(default_factory=lambda: [1, 2, 3])
    leader_epoch: int = 0
    version: int = 0
    states: list[tuple[int, frozenset[int], int]] = field(default_factory=list)
    lines: list[tuple[int, int, str, int]] = field(default_factory=list)  # ms, writer, line, state

    def __post_init__(self) -> None:
        self.is_kraft = numbers(self.release) >= numbers("3.3")
        self.tells_controller = numbers(self.release) >= numbers("2.7")  # a leader's changes
        self.prints_commits = numbers(self.release) >= numbers("2.4")

    def say(self, kind: str, writer: int, late_ms: int, **more) -> None:
        row = {"ts_ms": self.ms + late_ms, "kind": kind, "broker": writer, "topic": "t",
               "partition": 0, "leader_epoch": self.leader_epoch, "isr": self.isr,
               "high_watermark": 5, "log_end_offset": 9,
               "partition_epoch": self.version} | more  # fmt: skip
        line = write_line(row, self.release)
        if line is not None:
            state = len(self.states) - (kind in ("isr_shrink", "isr_expand"))
            self.lines.append((row["ts_ms"], writer, line.partition("] ")[2], max(state - 1, 0)))

    def store(self, isr: list[int], by_leader: bool, new_leader: int | None = None) -> None:
        """Store a change, and let every machine log it that does so in this release."""
        before, self.isr = self.isr, isr
        self.version += 1
        self.leader_epoch += new_leader is not None or (not by_leader and not self.is_kraft)
        old, self.leader = self.leader, new_leader or self.leader
        self.states.append((self.ms, frozenset(isr), self.version))
        if self.has_controller:
            detail = {"said_by": "controller", "leader": str(self.leader), "controller_epoch": "1"}
            detail |= {"asked_by": "leader" if by_leader else "no", "topic_id": "x"}
            gone = [r for r in before if r not in isr]
            if gone and not by_leader:
                detail |= {"removed": str(gone[0]), "transition": "OfflineReplica"}
            detail |= {"from_state": "OnlinePartition", "to_state": "OnlinePartition"}
            more = {"isr_before": before if self.is_kraft else None, "detail": detail}
            if new_leader is not None and not self.is_kraft:
                self.say("leader", CONTROLLER, 2, **more)
            if not by_leader or self.tells_controller:
                self.say("isr_commit", CONTROLLER, 3, **more)
        if by_leader and self.prints_commits:
            self.say("isr_commit", self.leader, 20)
        elif not by_leader and (new_leader is not None or not self.is_kraft):
            self.say("leader", self.leader, 30, replica=self.leader)
            for broker in {1, 2, 3} - {self.leader, old}:
                self.say("follower", broker, 35, replica=self.leader, isr=None)

    def ask(self, isr: list[int]) -> None:
        kind = "isr_shrink" if len(isr) < len(self.isr) else "isr_expand"
        self.say(kind, self.leader, -10, isr=isr, isr_before=self.isr)


@st.composite
def stories(draw, release=None):
    """A history of up to nine changes; its first state is logged."""
    release = release or draw(st.sampled_from(RELEASES))
    story = Story(release, draw(st.booleans()))
    story.states.append((story.ms, frozenset(story.isr), 0))
    story.say("leader", 1, 5, replica=1)
    for broker in (2, 3):
        story.say("follower", broker, 6, replica=1, isr=None)
    kinds = ["shrink", "shrink", "expand", "expand", "removed", "election", "preferred", "twice"]
    for what in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=9)):
        story.ms += draw(st.integers(1_000, 40_000))
        others = [broker for broker in story.isr if broker != story.leader]
        out = [broker for broker in (1, 2, 3) if broker not in story.isr]
        if what == "expand" and out:
            isr = [*story.isr, out[0]]
            story.ask(isr)
            story.store(isr, by_leader=True)
        elif what in ("shrink", "twice") and others:
            gone = draw(st.sampled_from(others))
            isr = [broker for broker in story.isr if broker != gone]
            story.ask(isr)
            if what == "twice" and story.prints_commits:  # no answer; the leader asks again
                story.ms += 5_000
                story.ask(isr)
            story.store(isr, by_leader=True)
        elif what == "removed" and others:
            story.store([b for b in story.isr if b != others[-1]], by_leader=False)
        elif what == "election" and others:
            isr = [broker for broker in story.isr if broker != story.leader]
            story.store(isr, by_leader=False, new_leader=isr[0])
        elif what == "preferred" and others:
            story.store([*story.isr], by_leader=False, new_leader=others[0])
    return story


def prove(story: Story, ahead: dict[int, int], kept: list[bool], twice: bool):
    """The history that the kept lines prove, read as `read_local` does, and these lines."""
    rows, ends = [], []
    there = [line for line, keep in zip(story.lines, kept, strict=True) if keep]
    writers = sorted({writer for _, writer, *_ in story.lines})
    for writer in writers:
        own = sorted(line for line in there if line[1] == writer)
        file = f"b{writer}/server.log"
        for number, (ms, _, text, _) in enumerate(own, start=1):
            stamp = ms + ahead[writer]
            row = reader.read_line(f"{head(stamp)} {text}")
            assert isinstance(row, dict), text
            detail = {"file": file, "line": str(number), **row["detail"]}
            rows.append({"run": "r", **row, "detail": detail})
            if row["kind"] == "leader" and row.get("replica") is None:
                rows[-1]["replica"] = row["broker"]
        last_ms = max(ms for ms, *_ in story.lines) + 1_000 + ahead[writer]
        ends.append({"run": "r", "file": file, "first_ms": START_MS + ahead[writer],
                     "last_ms": last_ms})  # fmt: skip
    rows += [row | {"detail": row["detail"] | {"file": "old.log"}} for row in rows] if twice else []
    events = pa.Table.from_pylist(
        [{name: row.get(name) for name in schema.COLUMNS} for row in rows], schema=schema.SCHEMA
    )
    return history_of(events, pa.Table.from_pylist(ends)), there


def head(ms: int) -> str:
    from datetime import UTC, datetime

    seconds, rest = divmod(ms, 1000)
    return f"[{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S},{rest:03d}]"


def known(history) -> list[tuple[int, frozenset[int] | None]]:
    """The proven states in order, None where nothing is known, without repetitions."""
    rows = [r for r in history.events.to_pylist() if r["kind"] in ("isr_commit", "unknown")]
    states = [(r["ts_ms"], None if r["isr"] is None else frozenset(r["isr"])) for r in rows]
    return [states[0], *[b for a, b in pairwise(states) if a[1] != b[1]]] if states else []


def truth(story: Story) -> list[tuple[int, frozenset[int]]]:
    states = [(ms, isr) for ms, isr, _ in story.states]
    return [states[0], *[b for a, b in pairwise(states) if a[1] != b[1]]]


def is_part_of(states, whole) -> bool:
    """Whether the known ISRs occur in `whole` in this order; one may be known twice in a row."""
    isrs, at = [isr for _, isr in whole], 0
    for isr in (isr for _, isr in states if isr is not None):
        if isr not in isrs[at:]:
            return False
        at = isrs.index(isr, at)
    return True


@given(st.data(), st.sampled_from(RELEASES))
@SOME
def test_whole_logs_are_right_or_say_what_they_cannot_show(data, release):
    story = data.draw(stories(release))
    twice = data.draw(st.booleans())
    history, _ = prove(story, dict.fromkeys((1, 2, 3, 9), 0), [True] * len(story.lines), twice)
    states, whole = known(history), truth(story)
    marks = {gap.why for gap in history.gaps}
    is_known = bool(states) and all(isr is not None for _, isr in states)
    if is_known and (not marks or story.has_controller):
        assert [isr for _, isr in states] == [isr for _, isr in whole], (states, whole)
        later = zip(states[1:], whole[1:], strict=True)
        assert all(abs(a[0] - b[0]) <= NEAR_MS for a, b in later), (states, whole)
    else:
        assert is_part_of(states, whole), (states, whole)
        assert marks or not states


clocks = st.sampled_from([-90_000, -15_000, -40, 0, 0, 0, 30, 2_500, 3_600_000])


@given(st.data(), st.sampled_from(RELEASES))
@SOME
def test_what_is_missing_is_reported(data, release):
    """With clocks skewed, lines removed, files duplicated, known states keep their true order."""
    story = data.draw(stories(release))
    ahead = {broker: data.draw(clocks) for broker in (1, 2, 3, CONTROLLER)}
    share = data.draw(st.sampled_from([0, 1, 4]))  # of ten lines, how many are removed
    kept = [data.draw(st.integers(0, 9)) >= share for _ in story.lines]
    history, there = prove(story, ahead, kept, data.draw(st.booleans()))
    states, whole = known(history), truth(story)
    of_the_run = [gap.why for gap in history.gaps if gap.key is None]
    has_no_version = not story.is_kraft or any("Shrinking ISR" in text for *_, text, _ in there)
    if has_no_version and any("in which order" in why for why in of_the_run):
        return  # clocks cannot be compared, and lines (as requests) lack versions
    assert is_part_of(states, whole), (states, whole)
    if of_the_run:
        return  # the gap names what is missing
    isrs = [isr for _, isr in whole]
    for (_, first), (_, second) in pairwise(states):  # no state lies between known ones
        if first is not None and second is not None:
            assert any(a == first and b == second for a, b in pairwise(isrs)), (states, whole)
    newest = max((state for *_, state in there), default=0)
    if states and states[-1][1] is not None:  # as new as the newest line
        assert any(isr == states[-1][1] for _, isr, _ in story.states[newest:]), (states, whole)


# Histories of the engine and of the fleet


def written(rows, release):
    """The lines of a release for these events, by writer, with their times."""
    lines: dict[int, list[tuple[int, str]]] = {}
    for row in rows:
        detail = dict(row["detail"] or ())
        is_controllers = detail.get("said_by") == "controller"
        writer = CONTROLLER if is_controllers else row["broker"]
        if is_controllers:
            detail |= {"asked_by": detail.get("asked_by", "no"), "controller_epoch": "1"}
        own = row | {"broker": writer, "detail": detail, "ts_ms": row["ts_ms"] + START_MS}
        own |= {"topic": "t", "partition": row["partition"] or 0}
        own["replica"] = own["replica"] or (own["broker"] if own["kind"] == "leader" else None)
        line = write_line(own, release)
        if line is not None:
            lines.setdefault(writer, []).append((own["ts_ms"], line))
    return lines


def of_lines(lines):
    rows = []
    for writer, own in lines.items():
        for number, (_, line) in enumerate(sorted(own, key=lambda each: each[0]), start=1):
            row = reader.read_line(line)
            assert isinstance(row, dict), line
            where = {"file": f"b{writer}/server.log", "line": str(number)}
            replica = row.get("replica") or (row["broker"] if row["kind"] == "leader" else None)
            rows.append({"run": "r", **row, "replica": replica, "detail": where | row["detail"]})
    return pa.Table.from_pylist(
        [{name: row.get(name) for name in schema.COLUMNS} for row in rows], schema=schema.SCHEMA
    )


def differences(rows, release):
    """Partitions whose proven states are not those of the events; and the history."""
    events = pa.Table.from_pylist(rows, schema=schema.SCHEMA)
    history = history_of(of_lines(written(rows, release)))
    proven = exact.isr_spans(history.events)
    wrong = []
    for key, spans in exact.isr_spans(events).items():
        whole = [(span.start_ms, frozenset(span.isr)) for span in spans]
        own = proven.get(exact.Key("r", "t", key.partition), [])
        if not is_part_of([(span.start_ms, frozenset(span.isr)) for span in own], whole):
            wrong.append((key, whole, own))
    return wrong, history


SCENARIOS = sorted((Path(__file__).parents[2] / "data" / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_what_the_engine_does_is_proven_by_its_lines(path):
    run = scenario.play(path.read_text(encoding="utf-8"))
    rows = run.events().to_pylist()  # of one partition
    wrong, _ = differences(rows, ".".join(map(str, run.version.first)))
    assert wrong == []
