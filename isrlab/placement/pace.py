"""How long followers need to catch up: after a restart, and under the throttle of a reassignment.

Theory of operation. What a follower lacks shrinks by the *spare* rate: what it may fetch less what
is produced meanwhile. With a constant load, which takes a share `s` of the fetch rate, a broker
that was down for `d` needs `d * s / (1 - s)` more, and the next broker must not go down before
`d / (1 - s)` after the first. Both grow without limit as `s` comes near 1.
"""

from __future__ import annotations

import math


def catch_up_s(share: float, down_s: float, backlog_s: float = 0.0) -> float:
    """Seconds until a follower has caught up; infinite if it never does.

    `share`: produced bytes by bytes that it can fetch; `down_s`: how long it was away, in seconds;
    `backlog_s`: what else it lacks, in seconds of fetching at full speed.
    """
    return (share * down_s + backlog_s) / (1 - share) if share < 1 else math.inf


def safe_restart_every_s(share: float, down_s: float) -> float:
    """From one broker's restart to the next, so that the first has caught up, in seconds."""
    return down_s + catch_up_s(share, down_s)


def copied_s(throttle: float, size: float, produced: float, in_sync: int, newcomers: int) -> float:
    """Seconds until so many newcomers have copied `size` bytes each; infinite if they never do.

    `produced` bytes/s go into each partition. A leader's throttle carries them for its newcomers,
    and counts them for the `in_sync` followers of throttled partitions; a follower has no such.
    """
    spare = throttle - produced * (in_sync + newcomers)
    return size * newcomers / spare if spare > 0 else math.inf if newcomers else 0.0
