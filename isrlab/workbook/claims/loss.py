"""Records that disappear, and logs that part. Rows 12 to 16, 22 and 23."""

from __future__ import annotations

from isrlab.engine.log import LeaderEpochCache
from isrlab.engine.messages import EpochEndOffset
from isrlab.engine.versions import KafkaVersion
from isrlab.workbook.claims import runs
from isrlab.workbook.claims.model import Claim, Finding, Statement
from isrlab.world import scenario
from isrlab.world.script import Run
from isrlab.world.words import is_halt

THEME = "loss and divergence"
EARLY = runs.releases("0.8.2", "0.10.2")  # followers cut at their own high watermark
_CUT_BY = {
    "LeaderAndIsr": "its own high watermark",
    "ListOffsetsResponse": "its fetch was out of range",
}


def _word(name: str) -> runs.Measure:
    return lambda version: runs.library(name, version).outcome.word


# Row 12: the settings

WITH_ALL = (
    scenario.read("loss_bounce")
    .replace("acks=1", "acks=all")
    .replace("min.insync.replicas=1", "min.insync.replicas=2")
)
BEHIND = (
    "partition replicas=1,2 min.insync.replicas=1\npause 2 fetcher\nproduce 1 m1 acks=1\nstabilize"
)


def _is_committed_on_the_leader(version: KafkaVersion) -> bool:
    return "m1" in runs.play(BEHIND, version).cluster.committed


def _settings() -> Finding:
    words = {v.name: runs.library("loss_three_replicas", v).outcome.word for v in EARLY}
    both = runs.play(BEHIND, "2.5")
    return Finding(
        (
            runs.over(
                "only with weak settings",
                "safe",
                lambda v: runs.play(WITH_ALL, v).outcome.word,
                EARLY,
            ),
            runs.over(
                "with min.insync.replicas=1 committed once written",
                True,
                _is_committed_on_the_leader,
            ),
            runs.over("default acks answered by the leader alone", 1, lambda v: v.producer_acks),
        ),
        "With acks=all and min.insync.replicas=2 the same schedule ends, by version: "
        + ", ".join(f"{n} {w}" for n, w in words.items())
        + f". With min.insync.replicas=1 and a follower behind, the leader's end is "
        f"{both.frames[-1].disks[1].log_end_offset} and its high watermark "
        f"{runs.high_watermark(both.frames[-1])}.",
    )


# Row 13: who can be elected

NOTICED = scenario.read("loss_unclean").replace(
    "min.insync.replicas=1", "min.insync.replicas=1 unclean.leader.election.enable=false"
)


def _electable() -> Finding:
    noticed = runs.play(NOTICED, "0.10.2")
    words = {
        "unclean election allowed": runs.library("loss_unclean", "0.10.2").outcome.word,
        "the controller misses the restart": runs.library("loss_bounce", "0.10.2").outcome.word,
        "a third replica, no restart": runs.library("loss_three_replicas", "0.10.2").outcome.word,
        "restart noticed, election clean": noticed.outcome.word,
    }
    elected = [row.broker for row in runs.rows(noticed, "leader")]
    return Finding(
        (runs.situations("m2 is lost", *((k, "lost", v) for k, v in words.items())),),
        "A controller that sees the follower die takes it out of the ISR: with clean elections "
        f"it leads {elected.count(2)} times, and the run ends {noticed.outcome.word}.",
    )


# Rows 14 and 22: the old leader comes back


def fate(run: Run) -> str:
    """What becomes of broker 1, the old leader, when it returns."""
    if any(is_halt(row) and row.broker == 1 for row in run.cluster.events):
        return "its broker stops"
    if run.outcome.diverged:
        return "keeps its record"
    cuts = runs.rows(run, "truncate", broker=1)
    return f"cut to {cuts[-1].log_end_offset}" if cuts else "keeps its log"


def cause_of_cut(name: str) -> str:
    """Which message made broker 1 cut its log."""
    run = runs.library(name, "0.10.2")
    cut = runs.rows(run, "truncate", broker=1)[-1]
    return _CUT_BY[type(runs.cause_of(run, cut).message).__name__]


def _return() -> Finding:
    names = {
        "nothing written since": "loss_bounce",
        "unclean election forbidden": "loss_then_halt",
        "the new leader has written": "loss_then_write",
    }
    fates = {label: fate(runs.library(name, "0.10.2")) for label, name in names.items()}
    return Finding(
        (
            runs.situations("cut to 1", *((k, "cut to 1", v) for k, v in fates.items())),
            runs.situations(
                "by its high watermark",
                ("0.10.2", "its own high watermark", cause_of_cut("loss_bounce")),
            ),
        ),
        "The old leader, by situation: " + "; ".join(f"{k}: {v}" for k, v in fates.items()) + ".",
    )


def _one_record() -> Finding:
    lost = [v.releases for v in runs.VERSIONS if _word("loss_as_told")(v) == "lost"]
    before, after = (cause_of_cut(name) for name in ("loss_as_told", "loss_bounce"))
    return Finding(
        (
            runs.over(
                "lost before 0.11",
                lambda v: "lost" if runs.is_before(v, "0.11") else "safe",
                _word("loss_as_told"),
            ),
            runs.situations(
                "the old leader cuts at a high watermark",
                ("its own was not on disk yet", "its own high watermark", before),
                ("its own was on disk", "its own high watermark", after),
            ),
        ),
        f"m1 is lost in {', '.join(lost)}. What makes the old leader cut: {before} if its last one "
        f"was not on disk yet; else {after}.",
    )


# Row 15: what is asked, and when an epoch is noted

NO_WRITES = "partition replicas=1,2\nproduce 1 m1 acks=1\nstabilize\nkill 1\nelect\nstabilize"
SAME_EPOCH = scenario.read("loss_bounce").split("kill 1")[0] + "stabilize"


def epochs_before_a_write(version: KafkaVersion) -> LeaderEpochCache:
    """The new leader's epoch entries while it has not written anything."""
    return runs.play(NO_WRITES, version).cluster.brokers[2].log.epochs


def _entries_of_own_epoch(version: KafkaVersion) -> int:
    broker = runs.play(NO_WRITES, version).cluster.brokers[2]
    return sum(epoch == broker.leader_epoch for epoch, _ in broker.log.epochs.entries)


def _answer(text: str) -> tuple[int, int]:
    """The leader's end offset, and what it answers to the question, in 0.11."""
    frame = runs.messages(runs.play(text, "0.11"), EpochEndOffset)[-1]
    assert isinstance(frame.message, EpochEndOffset)
    return frame.brokers[frame.source].log.log_end_offset, frame.message.end_offset


def _leader_epochs() -> Finding:
    old, new = (epochs_before_a_write(KafkaVersion.of(v)).entries for v in ("0.11", "2.0"))
    end, answer = _answer(scenario.read("divergence_power_loss"))
    return Finding(
        (
            runs.situations(
                "asks for the leader's end",
                ("no election between", *_answer(SAME_EPOCH)),
                ("an election between", end, answer),
            ),
            runs.over(
                "noted with the first write", 0, _entries_of_own_epoch, runs.releases("0.11")
            ),
            runs.record("saved now and then", "at each entry, LeaderEpochFileCache 0.11.0.2:59"),
        ),
        f"After an election the answer is {answer}, where the asked epoch ends, while the "
        f"leader's log ends at {end}. Before any write a new leader has the entries {_pairs(old)} "
        f"in 0.11 and {_pairs(new)} in 2.0.",
    )


def _pairs(entries: tuple[tuple[int, int], ...]) -> str:
    return " ".join(f"({epoch}, {start})" for epoch, start in entries)


# Row 16: is that perfect?


def _agreement(version: KafkaVersion) -> str:
    return "differ" if runs.library("fast_leader_change", version).outcome.diverged else "agree"


def _perfect() -> Finding:
    epochs = runs.releases("0.11")
    tests: tuple[Statement, ...] = (
        runs.over("its own story", "safe", _word("loss_bounce"), epochs),
        runs.over("two elections in a row", "agree", _agreement, epochs),
        runs.over("the last replica loses power", "safe", _word("claim_last_replica"), epochs),
    )
    parted, lost = ([c.where for c in t.cases if not c.agrees] for t in tests[1:])
    return Finding(
        tests,
        f"Logs still part in {', '.join(parted)}; a committed record is still lost with the "
        f"page cache of the last ISR member in {lost[0].split('-')[0]} to {lost[-1]}.",
    )


# Row 23: a divergence


def _divergence() -> Finding:
    story = scenario.read("divergence_as_told")
    arrives = story.replace("drop 1>2", "stabilize")
    real = {
        label: runs.library(name, "0.10.2").outcome.word
        for label, name in (
            ("a power failure", "divergence_power_loss"),
            ("an unclean election", "divergence_unclean"),
        )
    }
    frame = runs.after_block(runs.play(story, "0.10.2"), 0)
    return Finding(
        (
            runs.over(
                "the response is lost",
                "diverged",
                lambda v: runs.play(story, v).outcome.word,
                EARLY,
            ),
            runs.over(
                "it arrives", "diverged", lambda v: runs.play(arrives, v).outcome.word, EARLY
            ),
        ),
        f"While the follower has {frame.disks[2].log_end_offset} record the old leader's high "
        f"watermark is {runs.high_watermark(frame)}, so it cuts m2 itself on its return. "
        + "; ".join(f"{k} ends {v}" for k, v in real.items())
        + " (0.10.2).",
    )


CLAIMS = (
    Claim(
        12,
        THEME,
        "article 003, section 4",
        "The loss is one of default acks and of min.insync.replicas=1, with which a record is "
        "committed once the leader has written it.",
        "The same schedule with acks=all and min.insync.replicas=2 (up to 0.10.2); a record that "
        "only the leader has; the default acks of each release.",
        _settings,
        WITH_ALL,
        "0.10.2",
    ),
    Claim(
        13,
        THEME,
        "article 003, section 4",
        "The follower restarts, cuts m2 off, the leader dies, and the follower must lead.",
        "Four ways to elect the follower that has cut its log (0.10.2).",
        _electable,
        NOTICED,
        "0.10.2",
    ),
    Claim(
        14,
        THEME,
        "article 003, section 4",
        "When the old leader returns it sets its high watermark to the new leader's, and cuts its "
        "log to 1.",
        "Its return in three situations, and the message that makes it cut (0.10.2).",
        _return,
        scenario.read("loss_then_write"),
        "0.10.2",
    ),
    Claim(
        15,
        THEME,
        "article 003, section 4",
        "A restarted follower asks for the leader's end offset; an epoch is noted when its leader "
        "first writes; the notes are saved to disk from time to time.",
        "The answer with and without an election between (0.11); a change of leader without a "
        "write (0.11 and later).",
        _leader_epochs,
        NO_WRITES + "\nstatus",
        "2.0",
    ),
    Claim(
        16,
        THEME,
        "article 003, section 4",
        "With leader epochs the loss of data is avoided perfectly.",
        "Its own schedule; two elections in a row (KIP-279); the last replica in sync loses its "
        "page cache (KIP-966); 0.11 and later.",
        _perfect,
        scenario.read("claim_last_replica"),
        "3.7",
    ),
    Claim(
        22,
        THEME,
        "article 004, section 1.1",
        "One record: the restarted follower cuts it off and is elected; the old leader follows it "
        "and cuts, too. Since 0.11 this does not happen.",
        "That schedule in every release, and the message that makes the old leader cut.",
        _one_record,
        scenario.read("loss_as_told"),
        "0.10.2",
    ),
    Claim(
        23,
        THEME,
        "article 004, section 1.2",
        "The follower has one record of two and leads; it writes another; both high watermarks "
        "are 2, so the old leader cuts nothing and the logs differ.",
        "That schedule, with the response lost (as it must be) or not, up to 0.10.2.",
        _divergence,
        scenario.read("divergence_as_told"),
        "0.10.2",
    ),
)
