"""What `isrlab logs` says of every recording when something is missing: counts by what it was.

`python tests/ops/test_logs_with_less.py SEED [NAME ...]` reads each recording cut at tenths of its
time and at ten random moments, without one broker or one file, with one kind of file only, and with
one broker's logs only. The truth is the recorded faults and what the whole logs show (truth.json).
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from isrlab_ops.logs.history.record import Record
from isrlab_ops.logs.incidents.answer import LogAnswer, answer_about
from isrlab_ops.logs.incidents.look import CALM, NOT_KNOWN, WRONG, Findings, look
from isrlab_ops.logs.recordings import replayed

RECORDED = Path(__file__).parents[2] / "data" / "recordings" / "incidents"
KINDS = ("server", "controller", "state-change")
OUTCOMES = ("falsely calm", "unproved calm", "false alarm", "not known", "right")
NOTICED_MS = 5_000  # others have noticed a killed process by then
SETTLED_MS = 15_000  # a cluster may be restless for so long after a fault
COPIES = re.compile(r"(\d+) of (\d+) copies left")
HOLE = re.compile(r"  | [,.;:](\s|$)|\bNone\b(?! of)|[{}]")
BEGIN = re.compile(
    r"(kill|pause|lose|elect|damage|limit|cut|disk|starve|slow|SIG(?:KILL|STOP|TERM)|delete|reassign)\b"
)
END = re.compile(r"(start|resume|heal|launch|SIGCONT|every ISR|in sync|zookeeper back)")


class Truth(NamedTuple):
    """The faults of a recording as (from, to) in ms, the processes that were down, and what the
    whole logs show."""

    faults: list[tuple[int, float]]
    down: list[tuple[int, float]]
    whole: Findings


def truth(name: str) -> Truth:
    actions = json.loads((RECORDED / name / "truth.json").read_text(encoding="utf-8"))["actions"]
    faults, down = [], []
    for nth, action in enumerate(actions):
        if BEGIN.match(what := action["what"]):
            ends = (a["t_ms"] for a in actions[nth:] if END.match(a["what"]))
            faults.append((action["t_ms"], next(ends, float("inf"))))
            if what.startswith(("kill", "SIGKILL")) and "zookeeper" not in what:
                down.append(faults[-1])
    return Truth(faults, down, look(RECORDED / name / "logs", min_isr=2))


def holes(answer: LogAnswer) -> list[str]:
    """The sentences of an answer in which a name is missing."""
    texts = [answer.state, *answer.doubts, *(row.text for row in answer.rows)]
    for story in answer.stories:
        each = story.incident
        texts += [each.says, story.who, story.then, *each.notes, *each.instead]
    return [text for text in texts if HOLE.search(text)]


def contradictions(found: Findings, answer: LogAnswer) -> list[str]:
    """Pairs of what an answer says that cannot both be true."""
    text = " ".join(row.text for row in answer.rows)
    copies = COPIES.search(answer.state)
    pairs = {
        "a replica is lost, all copies are left": copies and int(copies[1]) >= int(copies[2]),
        "no leader, none lost its leader": found.leaderless and "none its leader" in answer.state,
        "not known, all in sync": found.doubts and answer.state.startswith(("All", "The part")),
        "nothing is left to repair, not calm": found.status and "nothing is left" in text,
        "calm, not over": found.status == CALM and any(not i.is_over for i in found.incidents),
    }
    return [pair for pair, are_said in pairs.items() if are_said]


def outcome(found: Findings, true: Truth, now_ms: int | None = None) -> str:
    """Whether the status is right for logs that end at `now_ms`; None: for logs to the end."""
    record, whole, answer = found.record, true.whole, answer_about(found)
    assert not holes(answer) and not contradictions(found, answer)
    if now_ms is None:
        is_wrong, is_calm = whole.status == WRONG, whole.status == CALM
    else:
        outs = [(o.start_ms, o.end_ms or float("inf")) for o in whole.record.outs]
        is_wrong = any(a < now_ms - 500 and now_ms + 500 < b for a, b in outs)
        is_wrong |= any(a + NOTICED_MS < now_ms < b for a, b in true.down)
        spans = [(a, b + SETTLED_MS) for a, b in (*true.faults, *outs)]
        spans += [(i.start_ms, (i.end_ms or float("inf")) + 500) for i in whole.incidents]
        is_calm = not is_wrong and not any(a <= now_ms <= b for a, b in spans)
        is_calm &= not any(each.start_ms <= now_ms for each in whole.losses)
    if found.status == NOT_KNOWN:
        return "not known"
    if found.status == WRONG:
        return "false alarm" if is_calm else "right"
    left = {out.replica for out in record.outs} | {b for i in found.incidents for b in i.who}
    is_unproved = bool(left & record.hosts - record.log_ends.keys())
    return "falsely calm" if is_wrong else "unproved calm" if is_unproved else "right"


def cuts(record: Record, logs: Path, folder: Path, parts: list[float]) -> Iterator[None]:
    """Write logs into a folder; yields when each of these parts of their time is written."""
    moments = sorted(record.start_ms + part * (record.end_ms - record.start_ms) for part in parts)
    for now_ms in replayed(logs, folder, 100):
        if moments and now_ms >= moments[0]:
            yield
            moments = [ms for ms in moments if ms > now_ms]


def with_less(logs: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Write logs without something into a folder; yields the kind of what is missing, and which."""
    brokers = sorted(path.name for path in logs.iterdir() if path.is_dir())
    files = [path for path in logs.rglob("*") if path.is_file()]
    places = {path: path.relative_to(logs).as_posix() for path in files}
    for what, which, is_kept in [
        *(
            ("a broker missing", name, lambda at, own=f"{name}/": not at.startswith(own))
            for name in brokers
        ),
        *(
            ("one broker only", name, lambda at, own=f"{name}/": at.startswith(own))
            for name in brokers
        ),
        *((f"only {kind}.log", kind, lambda at, kind=kind: f"/{kind}.log" in at) for kind in KINDS),
        *(("a file missing", name, lambda at, name=name: name != at) for name in places.values()),
    ]:
        if not (kept := [path for path in files if is_kept(places[path])]):
            continue
        for path in kept:
            (folder / places[path]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / places[path])
        yield what, which
        shutil.rmtree(folder)
        folder.mkdir()


def outcomes(name: str, at_random: list[float]) -> Iterator[tuple[str, str, str]]:
    """What was missing from a recording, which part, and the outcome."""
    parts = [*(part / 10 for part in range(1, 10)), *at_random]
    true, logs = truth(name), RECORDED / name / "logs"
    yield "nothing", "", outcome(true.whole, true)
    if not any(abs(clock.ahead_ms) > NOTICED_MS for clock in true.whole.history.clocks):
        with TemporaryDirectory() as folder:
            for _ in cuts(true.whole.record, logs, Path(folder), parts):
                found = look(folder, min_isr=2)
                end_ms = found.record.end_ms
                yield "cut", f"{end_ms}", outcome(found, true, end_ms)
    with TemporaryDirectory() as folder:
        for what, which in with_less(logs, Path(folder)):
            yield what, which, outcome(look(folder, min_isr=2), true)


@pytest.mark.parametrize(
    "name",
    [
        "b-412-follower-killed",
        "431-acks-one",
        "412-emptied-last",
        "412-made-again",
        "412-two-faults",
    ],
)
def test_with_less_a_recording_is_never_called_calm_wrongly_nor_alarming(name):
    """Broker 2 is killed 8 s before the first shrink; acks=1 records are lost by broker 2, whose
    log alone shows what it truncated; or by a follower of broker 2, whose log came back empty; a
    topic is deleted; and brokers that start do not reach the controller yet."""
    said = {(what, which): said for what, which, said in outcomes(name, [])}
    assert {where: said[where] for where in said if said[where] in OUTCOMES[:3]} == {}


def test_a_controller_that_starts_replays_assignments_of_the_past():
    """It prints the creation of orders-2, which had two replicas then, and has three now."""
    found = look(RECORDED / "i-392-throttle-left-behind" / "logs", min_isr=2)
    answer = answer_about(found)
    assert len(found.under_replicated) == 8 and not contradictions(found, answer)
    assert "2 of 3 copies left" in answer.state


def test_a_full_isr_of_an_idle_partition_does_not_prove_that_a_broker_is_reached(tmp_path):
    """Broker 3 hangs: its busy leader 1 removes it, leader 2 has nothing to replicate, and neither
    gets an answer to its fetches. KAFKA-7152 keeps broker 3 in the ISR of the idle partition."""
    log = "kafka.cluster.Partition"
    state = "starts at leader epoch 0 from offset 0 with partition epoch 0, high watermark 0, ISR"
    lines: dict[int, list[str]] = {}
    for leader, topic in ((1, "busy"), (2, "idle")):
        isr = f"[{leader},3]"
        lines[leader] = [f"00:00,000] INFO [Broker id={leader}] Leader {topic}-0 {state} {isr}, "
                         "adding replicas [] and removing replicas [] . Previous leader None and "
                         "previous leader epoch was -1. (state.change.logger)"]  # fmt: skip
        for second in (20, 50):
            lines[leader].append(
                f"01:{second},000] WARN [ReplicaFetcher replicaId={leader}, leaderId=3, "
                "fetcherId=0] Error in response for fetch request (type=FetchRequest) "
                "(kafka.server.ReplicaFetcherThread)\njava.net.SocketTimeoutException: no answer"
            )
    lines[1].insert(1, f"01:00,000] INFO [Partition busy-0 broker=1] Shrinking ISR from 1,3 to 1. "
                    "Leader: (highWatermark: 9, endOffset: 10). Out of sync replicas: (brokerId: 3,"
                    f" endOffset: 9). ({log})\n[2026-11-24 10:01:00,010] INFO [Partition busy-0 "
                    f"broker=1] ISR updated to 1 and version updated to 1 ({log})")  # fmt: skip
    for broker, own in lines.items():
        (tmp_path / f"broker-{broker}").mkdir()
        text = "".join(f"[2026-11-24 10:{line}\n" for line in own)
        (tmp_path / f"broker-{broker}" / "server.log").write_text(text, encoding="utf-8")
    (incident,) = look(tmp_path, min_isr=1).incidents
    assert (incident.what, incident.who, incident.is_over) == ("silent", (3,), False)


@pytest.mark.parametrize(
    ("recording", "pod", "status"),
    [("incidents/392-rolled-then-killed", "broker-1", WRONG), ("moved-392", "broker-3", NOT_KNOWN)],
)
def test_a_replica_was_not_moved_that_left_in_a_leader_epoch_that_goes_on(recording, pod, status):
    """Broker 3 is killed; and replicas are moved away, which raises the leader epoch."""
    (logs,) = (RECORDED.parent / recording).glob(f"**/{pod}")
    assert look(logs, min_isr=2).status == status


def test_of_a_metadata_log_alone_a_return_is_not_known_to_be_well():
    assert look(RECORDED / "d-392-rolling-restart" / "metadata", min_isr=2).status == NOT_KNOWN


def test_what_a_broker_saw_before_its_restart_is_no_lost_contact(tmp_path):
    """In this recording broker 1 could not reach broker 3, and was then itself restarted."""
    with tarfile.open(RECORDED.parent / "eras" / "0.10.2.2-trace.tar.xz") as archive:
        own = [member for member in archive if "broker-1/" in member.name]
        archive.extractall(tmp_path, own, filter="data")
    assert look(tmp_path, min_isr=2).status == NOT_KNOWN


if __name__ == "__main__":
    counts: Counter[tuple[str, str]] = Counter()
    names = sys.argv[2:] or sorted(path.parent.name for path in RECORDED.glob("*/truth.json"))
    for name in names:
        chance = random.Random(f"{sys.argv[1]} {name}")
        for what, which, said in outcomes(name, [chance.random() for _ in range(10)]):
            counts[what, said] += 1
            if said in OUTCOMES[:3]:
                print(f"{name}: {what} {which}: {said}", flush=True)
    print(f"{'missing':20}" + "".join(f"{each:>15}" for each in OUTCOMES))
    for what in dict.fromkeys(what for what, _ in counts):
        print(f"{what:20}" + "".join(f"{counts[what, each]:15,}" for each in OUTCOMES))
