"""Counting messages, then counting time: article 004, section 3. Rows 19, 20 and 21."""

from __future__ import annotations

from dataclasses import fields

from isrlab.engine import rules
from isrlab.engine.model import Settings
from isrlab.engine.versions import KafkaVersion
from isrlab.workbook.claims import runs
from isrlab.workbook.claims.membership import STEADY, THEME, lag_ms
from isrlab.workbook.claims.model import Claim, Finding

_LIMIT = 3
BURST = (
    "# Ten records at once, with a limit of three. The leader looks at 10 s.\n"
    f"partition replicas=1,2 replica.lag.max.messages={_LIMIT}\n"
    "advance {before}ms\npause 2 fetcher\nproduce 1 count=10 acks=1\n"
    "advance 200ms\nresume 2\nstabilize\nadvance 20s"
)
SAW_TOOTH = (
    "# The follower stands still for 1.5 s, catches up in an instant, and stands still again.\n"
    "partition replicas=1,2 replica.lag.time.max.ms=2000\n"
    + "pause 2 fetcher\nproduce 1 acks=1\nadvance 1500ms\nresume 2\nstabilize\n"
    * 8
)
STUCK = (
    "# A follower that stops, with few records to miss.\n"
    "partition replicas=1,2\nadvance 1s\npause 2 fetcher\nproduce 1 count=5 acks=1\nadvance 25s"
)


def _is_dropped(text: str, version: KafkaVersion | str) -> bool:
    return runs.when(runs.play(text, version), "isr_shrink") is not None


def _allowed(version: KafkaVersion) -> int:
    """The most messages behind that stay in the ISR, with a fresh clock."""
    behind = range(100)
    out = (
        n
        for n in behind
        if rules.is_out_of_sync(version.shrink_rule, 100 - n, 100, 0, 0, 1000, _LIMIT)
    )
    return next(out) - 1


def _counting() -> Finding:
    version = KafkaVersion.of("0.8.2")
    outside, inside = (BURST.format(before=ms) for ms in (5_000, 9_900))
    dropped = runs.when(runs.play(inside, version), "isr_shrink")
    return Finding(
        (
            runs.situations("default", ("0.8.2", 4_000, version.replica_lag_max_messages)),
            runs.situations("more than the limit", (f"limit {_LIMIT}", _LIMIT, _allowed(version))),
            runs.situations(
                "a burst drops followers",
                ("a look falls into it", True, _is_dropped(inside, version)),
                ("no look falls into it", True, _is_dropped(outside, version)),
            ),
        ),
        f"A burst of 10 at 9.9 s drops the follower at {dropped} ms, because the leader looks "
        "then; the same burst at 5 s is over before anybody looks.",
    )


def _names() -> Finding:
    names = [f.name.replace("_", ".") for f in fields(Settings)]
    name = next(n for n in names if n.startswith("replica.lag") and n.endswith(".ms"))
    first = next(v.name for v in runs.VERSIONS if _is_dropped(STUCK, v))
    dropped = runs.when(runs.play(STUCK, first), "isr_shrink")
    return Finding(
        (
            runs.situations("name", ("the setting", "replica.lag.max.ms", name)),
            runs.situations("new in 0.9", ("first release", "0.9.0", first)),
            runs.over("default 10 s", 10_000, lag_ms),
        ),
        f"The setting is {name}; {first} already drops a follower for its time alone, 5 messages "
        f"behind, at {dropped} ms.",
    )


def _always_behind() -> Finding:
    clocked = runs.releases("0.9.0")
    touches = [v.name for v in clocked if not _is_dropped(SAW_TOOTH, v)]
    return Finding(
        (
            runs.over(
                "touches the end now and then: stays",
                False,
                lambda v: _is_dropped(SAW_TOOTH, v),
                clocked,
            ),
            runs.over(
                "always one fetch behind: out", True, lambda v: _is_dropped(STEADY, v), clocked
            ),
        ),
        f"A follower that touches the end every 1.5 s stays with a limit of 2 s in {len(touches)} "
        f"of {len(clocked)} generations; one that never touches it is dropped in "
        f"{sum(_is_dropped(STEADY, v) for v in clocked)}.",
    )


CLAIMS = (
    Claim(
        19,
        THEME,
        "article 004, section 3.1",
        "Before 0.9 a follower leaves when it is more than replica.lag.max.messages behind (4000 "
        "by default), so any burst drops all followers.",
        "0.8.2 with a limit of 3: a burst of 10 for 200 ms, with and without a look of the leader.",
        _counting,
        BURST.format(before=9_900),
        "0.8.2",
    ),
    Claim(
        20,
        "code history",
        "article 004, section 3.2",
        "0.9 introduced replica.lag.max.ms, with a default of 10 s.",
        "The names of the settings, the defaults, and a stopped follower in each release.",
        _names,
        STUCK,
        "0.8.2",
    ),
    Claim(
        21,
        THEME,
        "article 004, section 3.2",
        "A follower leaves when its end offset has been behind the leader's all the time for more "
        "than the limit.",
        "A follower that touches the leader's end now and then, and one that is always one fetch "
        "behind (0.9.0 and later).",
        _always_behind,
        SAW_TOOTH,
        "2.5",
    ),
)
