"""The lines of evidence, shortened to the relevant parts.

A line is not trusted: control characters are escaped, never sent to a terminal.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from isrlab.events.statements import Statement
from isrlab.events.wording import printable
from isrlab_ops.logs.incidents.find import Incident
from isrlab_ops.logs.incidents.find import IncidentLine as Place
from isrlab_ops.logs.reader.layout import LEVELS, is_continued
from isrlab_ops.logs.reader.stamps import STAMP

_HEAD = re.compile(
    rf"(?:^\[pod/[\w./-]+\])?\W*(?:{STAMP})\W*(?:(?:{'|'.join(LEVELS)}|WARNING)\b\W?\s*)?"
)
_LOGGER = re.compile(r"\s+\([A-Za-z_][\w.$]*\)$")
_KEY = re.compile(  # the relevant parts, wherever in a line they are
    r"elapsed time since (?:creation|send): \d+ ?ms|request timeout: \d+ ?ms"
    r"|not heard from server in \d+ ?ms|No space left on device|Too many open files"
    r"|OutOfMemoryError: [\w ]{1,40}|Connection refused|\bin dir(?:ectory)? \S{1,80}"
    r"|from \d[\d,]{0,60} to \d[\d,]{0,60}|lastCaughtUpTimeMs: -?\d+|Cached zkVersion"
    r"|offset(?:=| )\d+|\bisr=\[[\d, ]{0,60}\]|highWatermark: \d+, endOffset: \d+"
)
_DIR = re.compile(
    r"(?:in dir|log directory|in directory|dir=|for dir) ?(/[^\s,\])]{1,200}?)[.,]?[\s,\])]"
)
MOST = 2_000  # characters of a line that are shown in full


class Raw(str):
    """Text exactly as in a log."""


class Quote(NamedTuple):
    """A line of the logs, and the message that it continues, if any."""

    text: Raw
    head: str

    @property
    def folder(self) -> str:
        """The log directory that it names, "" without one."""
        match = _DIR.search(f"{self.text} ") or _DIR.search(f"{self.head} ")
        return match[1] if match else ""


def quotes_of(incidents: Iterable[Incident], rows: Iterable[Statement]) -> dict[Place, Quote]:
    """The lines of the evidence, as the rows have them."""
    places: dict[tuple[str, int], list[Place]] = defaultdict(list)
    for place in (place for incident in incidents for place in incident.evidence):
        places[place.file, place.line].append(place)
    held = ((place, r) for r in rows if r.text for place in places.get((r.file, r.line), ()))
    return {place: Quote(Raw(row.text.strip()), row.above) for place, row in held}


def message(text: str) -> Raw:
    """A line without its time, level and logger, which are shown separately."""
    text = _LOGGER.sub("", _HEAD.sub("", text, count=1) if not is_continued(text) else text)
    return Raw(printable(text))


def shortened(text: str, width: int) -> str:
    """A line within `width` characters: its beginning, and the relevant parts of the rest."""
    if len(text) <= width:
        return text
    keys: list[re.Match[str]] = []
    shown = width // 2  # at least this much of the beginning stays
    for key in _KEY.finditer(text):
        length = sum(len(each[0]) + 3 for each in keys) + len(key[0]) + 3
        if key.end() > shown and length <= width - shown:
            keys.append(key)
    while keys and keys[0].end() <= width - len(_behind(keys[1:])):
        keys.pop(0)  # already visible in the beginning
    rest = _behind(keys)
    cut = width - len(rest)
    cut = min([key.start() for key in keys[:1] if key.start() < cut], default=cut)
    return f"{text[:cut].rstrip()}{rest}"


def _behind(keys: list[re.Match[str]]) -> str:
    """The text after the beginning of a shortened line."""
    return "".join(f" … {key[0]}" for key in keys) or "…"


def whole(text: str) -> str:
    """A line in full, or the beginning and end of a very long one."""
    text = printable(text)
    return text if len(text) <= MOST else f"{text[: MOST // 2]} … {text[-MOST // 2 :]}"
