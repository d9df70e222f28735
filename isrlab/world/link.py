"""A schedule, its versions and a step as the fragment of a link, and back.

Theory of operation. What stands behind `#` never leaves the browser. It is a letter that names the
form, then the text, deflated beside a dictionary of the words that schedules are made of, in
base64url. A link stays valid: `_WORDS` never changes, a new form gets another letter. A link is
untrusted: at most `MOST_TEXT` characters of it are read, and they are text to be played or refused.
"""

from __future__ import annotations

import binascii
import re
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import NamedTuple

MOST_LINK, MOST_TEXT = 4_000, 20_000  # characters: of a fragment, of the schedule in it
_FORM = re.compile(r"s[\w-]*", re.ASCII)
_NOT_IN_A_LINK = ("version ", "status", "check", "trace")
# What is likeliest stands last: the distance to it is shorter.
_WORDS = b"""\
configure topic min.insync.replicas=refuse clean_bounce consume flush drop \
reassign cancel power_loss clean_shutdown degraded_network 1 2 23s
 every=500ms for=8s count=0.8.2 0.9.0 0.10.0 1.1 2.0 2.1 2.4 2.5 2.7 2.8 3.0 3.3 3.5 3.6 \
 replica.fetch.wait.max.ms=5000 replica.lag.time.max.ms=10000 latency=100ms
partition p1 leader=1 replicas=1,2 isr=1
produce p1 1 m1 acks=all
reassign p1 1,2,3
fetch 2
cut 1 controller
heal 1 controller
hard_bounce controller
hard_bounce 2
elect unclean
elect preferred
pause p1 2 fetcher
resume 2
advance 600ms
advance 200ms
advance 4800ms
deliver 1>3 any
deliver 2>1 any
deliver 1>controller any
deliver controller>2 all
deliver controller>1 any
deliver controller>3 all
produce 1 acks=1
stabilize
advance 10s
start 2
stabilize
start 1
stabilize
advance 5s
kill 2
elect
stabilize
kill 1
elect
stabilize
pause 3 fetcher
pause 2 fetcher
produce 1 m2 acks=all
stabilize
0.10.2,0.11 4.1 3.7 4.3
partition leader=1 replicas=1,2,3 min.insync.replicas=2 unclean.leader.election.enable=false
produce 1 m1 acks=all
stabilize
"""


class Linked(NamedTuple):
    """What a link says."""

    text: str  # of a scenario, its `version` line first
    versions: tuple[str, ...]
    at: int | None  # the step to stand at; default: the last


def fragment(text: str, versions: Sequence[str] = (), at: int | None = None) -> str:
    """The fragment, without `#`, that opens a scenario's commands, by the rules of these versions.

    The default version is the scenario's own. Comments, and what a scenario prints, are left out.
    """
    lines, is_printed = list[str](), False
    for line in text.splitlines():
        is_printed = bool(line.strip()) and (is_printed or line.strip() == "----")
        if not is_printed:
            lines.append(" ".join(line.split("#")[0].split()))
    lines = [line for line in lines if line]
    own = [line.split()[1] for line in lines if line.startswith("version ")]
    head = ",".join(versions or own or ("3.7",)) + ("" if at is None else f" {at}")
    lines = [
        line for line in lines if not line.startswith(("version ", "status", "check", "trace"))
    ]
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zdict=_WORDS)
    squeezed = squeezer.compress("\n".join([head, *lines]).encode()) + squeezer.flush()
    return "s" + urlsafe_b64encode(squeezed).decode().rstrip("=")


def read(link: str) -> Linked:
    """What a fragment says. Raises ValueError for what is none, or is too long."""
    if len(link) > MOST_LINK:
        raise ValueError(f"the link has {len(link):,} characters; at most {MOST_LINK:,} are read")
    if not _FORM.fullmatch(link):
        raise ValueError("this link is not one of a schedule")
    try:
        packed = urlsafe_b64decode(link[1:] + "=" * (-(len(link) - 1) % 4))
        reader = zlib.decompressobj(-15, zdict=_WORDS)
        plain = reader.decompress(packed, MOST_TEXT + 1)
        head, _, lines = plain.decode().partition("\n")
    except (binascii.Error, zlib.error, UnicodeDecodeError, ValueError):
        raise ValueError("the link is damaged: it is no schedule") from None
    if not reader.eof and len(plain) <= MOST_TEXT:
        raise ValueError("the link is damaged: its end is missing")
    if len(plain) > MOST_TEXT:
        raise ValueError(f"the schedule of the link is longer than {MOST_TEXT:,} characters")
    names, _, step = head.partition(" ")
    versions = tuple(names.split(",")[:2])
    at = int(step) if step.isdecimal() and len(step) < 5 else None
    return Linked(f"version {versions[0]}\n{lines}\n", versions, at)
