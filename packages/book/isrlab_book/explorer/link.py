"""A scenario, its versions and a step as the fragment of a link, and back.

Theory of operation. The fragment, the part after `#`, never leaves the browser. It is a letter for
the form, then the text, deflated with a dictionary of scenarios' common words, in base64url. Links
stay valid: `_WORDS` never changes, and a new form gets another letter. A link is untrusted: at most
`MOST_TEXT` characters are read, as text to play or refuse.
"""

import binascii
import re
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

MOST_LINK, MOST_TEXT = 4_000, 20_000  # characters of a fragment, and of its scenario
_FORM = re.compile(r"s[\w-]*", re.ASCII)
_NOT_IN_A_LINK = ("version ", "status", "check", "trace")
_WORDS = Path(__file__).with_name("link_words.txt").read_bytes()


class PlayLink(NamedTuple):
    """The content of a link."""

    text: str  # a scenario with its `version` line first
    versions: tuple[str, ...]
    at: int | None  # the step to show; default: the last


def fragment(text: str, versions: Sequence[str] = (), at: int | None = None) -> str:
    """The fragment, without `#`, of a link that plays a scenario by the rules of these versions.

    Default: the scenario's own version. Comments, output, status, check and trace are left out.
    """
    lines, is_printed = list[str](), False
    for line in text.splitlines():
        is_printed = bool(line.strip()) and (is_printed or line.strip() == "----")
        if not is_printed:
            lines.append(" ".join(line.split("#")[0].split()))
    lines = [line for line in lines if line]
    own = [line.split()[1] for line in lines if line.startswith("version ")]
    head = ",".join(versions or own or ("3.7",)) + ("" if at is None else f" {at}")
    lines = [line for line in lines if not line.startswith(_NOT_IN_A_LINK)]
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zdict=_WORDS)
    squeezed = squeezer.compress("\n".join([head, *lines]).encode()) + squeezer.flush()
    return "s" + urlsafe_b64encode(squeezed).decode().rstrip("=")


def read(link: str) -> PlayLink:
    """The content of a fragment. Raises ValueError for one that is invalid or too long."""
    if len(link) > MOST_LINK:
        raise ValueError(f"the link has {len(link):,} characters; at most {MOST_LINK:,} are read")
    if not _FORM.fullmatch(link):
        raise ValueError("this is not a link to a scenario")
    try:
        packed = urlsafe_b64decode(link[1:] + "=" * (-(len(link) - 1) % 4))
        reader = zlib.decompressobj(-15, zdict=_WORDS)
        plain = reader.decompress(packed, MOST_TEXT + 1)
        head, _, lines = plain.decode().partition("\n")
    except (binascii.Error, zlib.error, UnicodeDecodeError, ValueError):
        raise ValueError("the link is damaged: it is not a scenario") from None
    if not reader.eof and len(plain) <= MOST_TEXT:
        raise ValueError("the link is damaged: its end is missing")
    if len(plain) > MOST_TEXT:
        raise ValueError(f"the scenario of the link is longer than {MOST_TEXT:,} characters")
    names, _, step = head.partition(" ")
    versions = tuple(names.split(",")[:2])
    at = int(step) if step.isdecimal() and len(step) < 5 else None
    return PlayLink(f"version {versions[0]}\n{lines}\n", versions, at)
