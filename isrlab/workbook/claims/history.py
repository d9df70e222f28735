"""Names and code of certain releases. Rows 28, 29 and 30 (row 20 is with the lag clock)."""

from __future__ import annotations

from dataclasses import fields

from isrlab.closeups.segment import Batch, Reader, ReadRules, SegmentedLog
from isrlab.engine.choices import EpochEntry
from isrlab.engine.versions import KafkaVersion
from isrlab.workbook.claims import runs
from isrlab.workbook.claims.model import Case, Claim, Finding, Statement
from isrlab.world import scenario

THEME = "code history"
_FINER = (
    "0.8.2", "0.9.0", "0.10.0", "0.10.1", "0.10.2", "0.11", "1.0", "1.1", "2.0", "2.1", "2.2",
    "2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "3.0", "3.3", "3.6", "3.9", "4.0", "4.1",
)  # fmt: skip


# Row 28: what KIP-537 changed


def raised_defaults(old: str, new: str) -> dict[str, tuple[int, int]]:
    """The numbers that differ between two releases: name -> (before, after)."""
    before, after = KafkaVersion.of(old), KafkaVersion.of(new)
    return {
        f.name: (getattr(before, f.name), getattr(after, f.name))
        for f in fields(KafkaVersion)
        if f.name.endswith("_ms") and getattr(before, f.name) != getattr(after, f.name)
    }


def _cited_kip() -> Finding:
    raised = raised_defaults("2.4", "2.5")
    lag = raised.get("replica_lag_time_max_ms")
    told = "; ".join(f"{name} {before} to {after}" for name, (before, after) in raised.items())
    return Finding(
        (
            runs.situations("lag time raised in 2.5", ("2.4 to 2.5", (10_000, 30_000), lag)),
            runs.situations(
                "it alone",
                ("defaults raised", "replica_lag_time_max_ms", " and ".join(raised)),
            ),
            runs.record("title", "KIP-537 names the ZooKeeper session timeout, KAFKA-9102"),
        ),
        f"Between 2.4 and 2.5 two numbers rise: {told}.",
    )


# Row 29: the read that is quoted


def reads_like(release: str) -> tuple[str, str]:
    """How that release bounds a read, and whether a first batch of any size is read."""
    known = ReadRules.of(release)
    log = SegmentedLog.empty(release).append(Batch(0, 9, 500)).append(Batch(10, 19, 500))
    read = log.read(Reader.FOLLOWER, 0, max_bytes=100)
    whole = "a whole first batch" if read.batches else "cut to size"
    return ("by position" if known.bounds_by_position else "by offset"), whole


def _quoted_read() -> Finding:
    cases = tuple(Case(r, ("by offset", "a whole first batch"), reads_like(r)) for r in _FINER)
    return Finding(
        (Statement("the code of article 001", cases),),
        f"A read of 100 bytes over a batch of 500: 0.10.0 {' and '.join(reads_like('0.10.0'))}, "
        f"0.10.1 {' and '.join(reads_like('0.10.1'))}, 2.4 {' and '.join(reads_like('2.4'))}.",
    )


# Row 30: an upgrade that is not finished


def _message_format() -> Finding:
    era = runs.releases("0.11", "2.8")
    pushing = [v.name for v in era if v.pushes_high_watermark]
    return Finding(
        (
            runs.over("records with epochs", "safe", _fate, era),
            runs.over("records of an older format", "safe", _fate_of_old_format, era),
        ),
        f"With records of an older format 0.11 ends {_fate_of_old_format(era[0])}: a log without "
        f"epochs is cut at the high watermark, as before. ({' and '.join(pushing)} escape because "
        "their leaders send a new high watermark at once.)",
    )


def _fate(version: KafkaVersion) -> str:
    return runs.library("loss_three_replicas", version).outcome.word


def _fate_of_old_format(version: KafkaVersion) -> str:
    return _fate(version.with_(epoch_entry=EpochEntry.NONE))


CLAIMS = (
    Claim(
        28,
        THEME,
        "article 000, sections 2 and 3",
        "KIP-537 is cited for the time that a follower may lag.",
        "The defaults of 2.4 beside those of 2.5.",
        _cited_kip,
    ),
    Claim(
        29,
        THEME,
        "article 001, section 1.1",
        "How a segment is read: an upper offset, turned into a position, and a whole first batch "
        "if asked.",
        "A read of 100 bytes over a batch of 500, by the read rules of each release.",
        _quoted_read,
    ),
    Claim(
        30,
        THEME,
        "article 004, section 2",
        "0.11 solves the loss, with leader epochs.",
        "A loss with three replicas in 0.11 to 2.8, with records of the format that has epochs and "
        "of an older one.",
        _message_format,
        scenario.read("loss_three_replicas"),
        "0.11",
    ),
)
