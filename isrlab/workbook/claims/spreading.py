"""How the cluster learns of an ISR change. Rows 24, 25 and 26."""

from __future__ import annotations

from isrlab.engine.choices import IsrWrite
from isrlab.engine.messages import CONTROLLER, IsrChangeNotification
from isrlab.engine.versions import KafkaVersion
from isrlab.workbook.claims import runs
from isrlab.workbook.claims.model import By, Case, Claim, Finding, Statement
from isrlab.world import scenario

THEME = "telling the cluster"
TOLD = scenario.read("claim_after_shrink").replace("advance 20s", "advance 20s\nadvance 10s")


def _completed(version: KafkaVersion) -> str:
    run = runs.library("claim_after_shrink", version)
    stored, answered = runs.when(run, "isr_commit"), runs.acknowledged_ms(run, "m1")
    return "yes" if stored == answered else "no"


def _open_question() -> Finding:
    run = runs.library("claim_after_shrink", "0.9.0")
    cases = tuple(Case(v.releases, "?", _completed(v)) for v in runs.releases("0.8.2", "2.6"))
    return Finding(
        (
            Statement("are waiting requests completed", cases, By.QUESTION),
            runs.record("path", "it ends in /state: ZkUtils 0.8.2.2:188-190"),
        ),
        f"0.9.0 stores the smaller ISR at {runs.when(run, 'isr_commit')} ms and answers the "
        f"waiting request at {runs.acknowledged_ms(run, 'm1')} ms.",
    )


def announcement(version: KafkaVersion) -> tuple[int | None, str]:
    """Milliseconds from the stored change to its announcement, and what the controller sends."""
    run = runs.play(TOLD, version)
    stored, told = runs.when(run, "isr_commit"), runs.when(run, "notify")
    if stored is None or told is None:
        return None, "nothing"
    arrival = runs.messages(run, IsrChangeNotification)[0]
    later = run.frames[run.frames.index(arrival) + 1 :]
    sent = next(f for f in later if f.source == CONTROLLER)
    return told - stored, type(sent.message).__name__


def _is_in_time(version: KafkaVersion) -> str:
    delay, _ = announcement(version)
    if delay is None:
        return "never"
    return "5.0-7.5 s" if 5_000 <= delay <= 7_500 else f"{delay / 1000:g} s"


def _notice() -> Finding:
    era = runs.releases("0.9.0", "2.6")
    delay, message = announcement(KafkaVersion.of("0.9.0"))
    return Finding(
        (
            runs.over("002, MetadataRequest", "MetadataRequest", lambda v: announcement(v)[1], era),
            runs.over("000, announced 5.0-7.5 s later", "5.0-7.5 s", _is_in_time),
        ),
        f"In 0.9.0 the leader announces the change {delay} ms after it is stored, and the "
        f"controller sends {message} to all brokers; {_never()} never announce it.",
    )


def _never() -> str:
    silent = [v.name for v in runs.VERSIONS if _is_in_time(v) == "never"]
    return f"{silent[0]}, and {silent[1]} and later,"


def way(version: KafkaVersion) -> str:
    """Whether the leader writes the change and announces it later, or asks the controller."""
    delay, _ = announcement(version)
    return "asks the controller" if delay is None else "writes ZooKeeper"


def _request() -> Finding:
    era = runs.releases("2.2")
    older = [
        v.with_(isr_write=IsrWrite.ZOOKEEPER_NOTIFY, kraft=False)
        for v in runs.releases("2.7", "3.2")
    ]
    cases = tuple(Case(v.name.split(" ")[0], "asks the controller", way(v)) for v in older)
    return Finding(
        (
            runs.over(
                "by release",
                lambda v: "writes ZooKeeper" if runs.is_before(v, "2.7") else "asks the controller",
                way,
                era,
            ),
            Statement("with an older inter.broker.protocol.version", cases),
        ),
        f"2.6 {way(KafkaVersion.of('2.6'))}, 2.7 {way(KafkaVersion.of('2.7'))}; 2.7 that still "
        f"speaks the protocol of before 2.7-IV2 {way(older[0])}, a path kept until 3.9.",
    )


CLAIMS = (
    Claim(
        24,
        THEME,
        "article 002",
        "The ISR is stored in a ZooKeeper node that ends in /stat; it asks whether requests that "
        "wait for the high watermark are completed after a shrink.",
        "acks=all waits for a follower until the ISR has shrunk (0.8.2 to 2.6).",
        _open_question,
        scenario.read("claim_after_shrink"),
        "0.9.0",
    ),
    Claim(
        25,
        THEME,
        "article 002; article 000, section 3",
        "On a change notification the controller sends MetadataRequest to all brokers (002); a "
        "quiet change is announced after 5 s, looked at every 2.5 s (000).",
        "A shrink, then 10 quiet seconds: the announcement, and what the controller sends.",
        _notice,
        TOLD,
        "0.9.0",
    ),
    Claim(
        26,
        THEME,
        "article 000, section 3",
        "Up to 2.6 the leader writes the ISR to ZooKeeper; from 2.7 on it asks the controller.",
        "The same run in each release from 2.2 on, and with the older protocol kept.",
        _request,
        TOLD,
        "2.7",
    ),
)
