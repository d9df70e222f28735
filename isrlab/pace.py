"""How long followers need to catch up: after a restart, and under the throttle of a reassignment.

Theory of operation. A follower's backlog shrinks at the *spare* rate: the rate at which it may
fetch minus the rate of produces. With a constant load, which takes a share `s` of the fetch rate, a
broker that was down for `d` needs `d * s / (1 - s)` to catch up, and the next broker must not go
down earlier than `d / (1 - s)` after the first. Both grow without limit as `s` approaches 1.
"""

import math

USABLE = 0.9  # the share of a throttle that real brokers use, give or take (data/recordings/advice)


def catch_up_s(share: float, down_s: float, backlog_s: float = 0.0) -> float:
    """Seconds until a follower has caught up; infinite if it never does.

    `share`: bytes produced / bytes that it can fetch; `down_s`: how long it was down, in seconds;
    `backlog_s`: any further backlog, in seconds of fetching at full speed.
    """
    return (share * down_s + backlog_s) / (1 - share) if share < 1 else math.inf


def safe_restart_every_s(share: float, down_s: float) -> float:
    """The interval between restarts, in seconds, that lets each broker catch up before the next."""
    return down_s + catch_up_s(share, down_s)


def copied_s(throttle: float, size: float, produced: float, in_sync: int, newcomers: int) -> float:
    """Seconds until `newcomers` replicas have copied `size` bytes each; infinite if they never do.

    `throttle`: bytes/s of a broker; `produced`: bytes/s into each partition. A leader's throttle
    also carries these to newcomers and `in_sync` followers; for a follower, `in_sync` is 0.
    """
    spare = USABLE * throttle - produced * (in_sync + newcomers)
    return size * newcomers / spare if spare > 0 else math.inf if newcomers else 0.0
