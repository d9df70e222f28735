"""Reads one log file: its events, its unread lines, and facts about the file.

Theory of operation. The file comes in blocks of some megabytes. Only lines with a word of the
formats are examined (hits.py). Kafka's own layout is tried first; if it does not fit, the layout is
detected in the first block, and again in later blocks that it does not fit (at most five).
"""

import os
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import chain, islice
from typing import TypeAlias

from isrlab.events.names import COLUMNS
from isrlab.events.statements import BrokerIds, Statement, leader_of
from isrlab_ops.logs.reader.files import CONTROL, HOLE_BYTES, READ_BYTES, ReadBlock, Source, blocks
from isrlab_ops.logs.reader.formats import ANCHOR
from isrlab_ops.logs.reader.hits import searched
from isrlab_ops.logs.reader.layout import Head, is_continued
from isrlab_ops.logs.reader.lines import (
    IMPOSSIBLE_LINE,
    MOST_LINES_BACK,
    OF_ITSELF,
    OPERATOR,
    PERHAPS,
    WANTED_TEXT,
    Event,
    LineReader,
    Unread,
    expanded,
)  # fmt: skip
from isrlab_ops.logs.reader.packed import DamagedFileError
from isrlab_ops.logs.reader.printed import printed_in
from isrlab_ops.logs.reader.truncations import CutPlace, ReadRow, effective, void_in
from isrlab_ops.logs.reader.zones import Evidence, Zones, evidence

UNREAD_KEPT = 200  # rows per file and reason that are kept individually
SHOWN_CHARACTERS = 300  # of an unread line
SAMPLE = 200  # lines to detect a layout from, and as many with relevant words
FITS = 0.9  # of Kafka's lines in a sample: a layout that reads a smaller share does not fit
MOST_LAYOUTS = 5  # detected in one file
LEAST_HEADS = 0.5  # of Kafka's lines: with fewer the file counts as unreadable
OF_ISR = ("isr_shrink", "isr_expand", "isr_commit", "leader")
WARN_AND_ABOVE = ("WARN", "ERROR", "FATAL")
NOT_KAFKA = "no line of a Kafka broker in it"
FORGED = "it stands within the message of another line"
_ANY = re.compile(f"{WANTED_TEXT}|{PERHAPS}")
_DIRECTION = re.compile("[\u202a-\u202e\u2066-\u2069]")  # characters that reverse text
Ended: TypeAlias = tuple[int, int, bool]  # a line, its time, and whether that is local


class LogFile:
    """One file, and the findings of `read`. `brokers` are those its lines name, by source; under
    "" all of them. `zones` is the evidence for the zone of its stamps."""

    def __init__(self, source: Source, order: int, reader: LineReader) -> None:
        self.source, self.order, self.reader = source, order, reader
        self.folder = os.path.dirname(source.name)
        self.lines, self.end, self.damage = 0, 0, ""
        self.zones: list[Evidence] = []
        self.brokers: dict[str, set[int]] = defaultdict(set)
        self._first: Ended | None = None  # its first line with a time
        self._last: Ended | None = None
        self._rows: list[ReadRow] = []
        self._void: list[tuple[int, CutPlace]] = []  # truncations without effect, and their lines
        self._unread: dict[str, list[dict]] = defaultdict(list)  # by reason
        self._before: list[str] = []  # the last lines of the previous block
        self._layouts = 0
        self._loggers: set[tuple[str, str | None]] = set()  # with the levels of their lines
        self._printed: list[tuple[str, str]] = []  # settings, near the beginning

    def read(self, step: Callable[[int], None] = lambda size: None) -> None:
        """Continue to read the file; `step` is called with the number of bytes read."""
        block, self.damage = None, ""
        try:
            for block, numbers in searched(
                blocks(self.source.path, self.end, self.lines + 1, self.source.end)
            ):
                self._fit(block, numbers)
                if self.end < READ_BYTES:
                    self._printed += printed_in(block.data)
                if not self._first:
                    self._first = self._timed(block, range(min(block.size, MOST_LINES_BACK)))
                self._read_block(block, numbers)
                self.lines, self.end = block.first + block.size - 1, block.end
                self._before = _last_lines(block)
                step(len(block.data))
        except (DamagedFileError, OSError) as error:
            why = "broken off" if isinstance(error, DamagedFileError) else "not read"
            self.damage = f"{why}: {error}"
            self._keep_unread(self.lines + 1, self.damage)
        if block is not None:
            self._last = self._timed(block, _from_the_end(block)) or self._last

    @property
    def status(self) -> str:
        """Whether it was read, and understood."""
        heads, total = self.reader.heads, self.reader.heads + self.reader.headless
        if self.lines and not total and not self.damage:
            return NOT_KAFKA
        if heads < LEAST_HEADS * total and not self.damage:
            return f"not understood: {heads:,} of {total:,} lines of Kafka have a known head"
        return self.damage or "read"

    def _fit(self, block: ReadBlock, numbers: list[int]) -> None:
        """Detect the layout of a file, unless the one to try first fits; and again for a block in
        which too many lines have no head."""
        chosen = sorted({*range(min(block.size, SAMPLE)), *numbers[:SAMPLE]})
        lines = [text for n in chosen if (text := _text(block.line(n))) and not is_continued(text)]
        heads = [self._quiet_head(line) for line in lines]
        of_kafka = [head for head, line in zip(heads, lines, strict=True) if ANCHOR.search(line)]
        self._loggers |= {(head.level, head.logger) for head in heads if head}
        if block.first == 1:
            good = _begin(of_kafka)
            if good < FITS * len(of_kafka) or None in heads:
                self.reader.find_layout(lines)
                good = _begin(map(self._quiet_head, filter(ANCHOR.search, lines)))
            # In a quiet file no other lines show that it is understood.
            self.reader.heads += good
            self.reader.headless += len(of_kafka) - good
        elif of_kafka.count(None) > (1 - FITS) * len(of_kafka) and self._layouts < MOST_LAYOUTS:
            strange = [line for head, line in zip(heads, lines, strict=True) if head is None]
            self.reader.layout = self.reader.layout.with_more(strange)
            self._layouts += 1

    def _quiet_head(self, line: str) -> Head | None:
        try:
            return self.reader.head_of(line)
        except ValueError:
            return None

    def _timed(self, block: ReadBlock, numbers: Iterable[int]) -> Ended | None:
        """The first of these lines that has a time."""
        heads = ((n, self.reader.time_of(_text(block.line(n)))) for n in numbers)
        timed = ((block.first + n, head.ts_ms, head.is_local) for n, head in heads if head)
        return next(timed, None)

    def _read_block(self, block: ReadBlock, numbers: list[int]) -> None:
        for n in numbers:
            number, line = block.first + n, self._line(block, n)
            if line is None:
                continue
            if place := void_in(line):
                self._void.append((number, place))
            for item in self.reader.read(line, self._lines_before(block, n)):
                if isinstance(item, dict) and item["kind"] in OF_ISR and self._is_forged(block, n):
                    item = Unread(f"{IMPOSSIBLE_LINE}: {FORGED}")
                if isinstance(item, Unread):
                    self._keep_unread(number, item.reason, item.text or line)
                    continue
                self._rows += [self._told(number, event, line) for event in expanded(item)]

    def _is_forged(self, block: ReadBlock, n: int) -> bool:
        """Whether a line belongs to a message with line breaks, whose first line has a head and no
        logger behind it, and whose last line has a logger and no head."""
        layout = self.reader.layout
        if not (layout.has_loggers_behind and layout.has_logger_behind(_text(block.line(n)))):
            return False  # other layouts have heads like Kafka's own, and no loggers
        for line in islice(self._lines_before(block, n), MOST_LINES_BACK):
            if layout.has_logger_behind(line):
                break
            if layout.has_head(line):
                return True
        for line in (_text(block.line(i)) for i in range(n + 1, min(block.size, n + 20))):
            if layout.has_head(line):
                return False
            if layout.has_logger_behind(line):
                return True
        return False

    def _lines_before(self, block: ReadBlock, n: int) -> Iterator[str]:
        """The preceding lines, the nearest one first."""
        yield from (_text(block.line(i)) for i in range(n - 1, -1, -1))
        yield from self._before

    def _line(self, block: ReadBlock, n: int) -> str | None:
        """A line as text, or None if it is not text; its defects are noted."""
        number, data, is_cut = block.first + n, block.line(n), n in block.cut
        if block.is_plain and not is_cut:
            return data.decode("utf-8")
        text = data.lstrip(b"\0")
        if len(text) < len(data) and b"\0" not in text:  # a machine stopped while writing
            count = len(data) - len(text)
            zeros = f"{count:,} zero bytes{' or more' * (count >= HOLE_BYTES)}"
            self._keep_unread(number, "a hole of zero bytes", zeros)
            data = text
        if is_cut:
            why = "longer than 65,536 bytes; only its beginning was read"
            self._keep_unread(number, why, _text(data))
        try:
            line = data.decode("utf-8")
        except UnicodeDecodeError:
            if not is_cut:
                is_ours = _ANY.search(_text(data)) is not None
                why = f"bytes that are not {'UTF-8' if is_ours else 'text'}"
                self._keep_unread(number, why, _text(data))
                return None
            line = data.decode("utf-8", "ignore")
        is_text = len(data.translate(None, CONTROL)) == len(data)
        if not is_text and _ANY.search(line) is None:
            self._keep_unread(number, "bytes that are not text", _text(data))
            return None
        return line

    def _told(self, number: int, event: Event, line: str) -> ReadRow:
        """An event as a row, with the facts about its line."""
        head, detail, broker = self.reader.head, event["detail"], event.get("broker")
        assert head is not None
        self._loggers.add((head.level, head.logger))
        if broker is not None:
            self.brokers[""].add(broker)
            self.brokers[head.source].add(broker)
        zone = self._zone_of(number, head, detail) if head.is_local else None
        if zone and (not self.zones or self.zones[-1].ahead_ms != zone.ahead_ms):
            self.zones.append(zone)
        of_whom = f"{event.get('topic')} {event.get('partition')} {event.get('replica')} "
        words = zlib.crc32((of_whom + head.message).encode())
        event["detail"] = {"file": self.source.name, "line": str(number), **detail}
        row = Statement(*map(event.get, COLUMNS))  # type: ignore[arg-type]
        row.isr, row.isr_before = _ids(row.isr), _ids(row.isr_before)
        row.said_by = detail.get("said_by", "")
        row.file, row.line, row.printed_ms = self.source.name, number, row.ts_ms
        row.text, row.above = line, "" if head.message in line else head.message
        return ReadRow(row, words, head.source, head.is_local)

    def _zone_of(self, line: int, head: Head, detail: dict[str, str]) -> Evidence | None:
        if "start_ms" in detail:
            return evidence(line, head.ts_ms, int(detail["start_ms"]), "startTimeMs")
        if head.outer_ms is None:
            return None
        return evidence(line, head.ts_ms, head.outer_ms, "its container")

    def _keep_unread(self, line: int, reason: str, text: str = "", lines: int = 1) -> None:
        """Note an unread line; for each reason the first ones are kept, the rest counted."""
        rows = self._unread[reason]
        if len(rows) > UNREAD_KEPT:
            rows[-1]["lines"] += lines
            return
        shown = "(and more like these)" if len(rows) == UNREAD_KEPT else text[:SHOWN_CHARACTERS]
        rows.append({"line": line, "reason": reason, "text": shown, "lines": lines})

    def unread_rows(self) -> Iterator[dict]:
        """The rows of its unread lines."""
        for row in chain(*self._unread.values()):
            text = _DIRECTION.sub(lambda m: f"\\u{ord(m[0]):04x}", row["text"])
            yield {"file": self.source.name, **row, "text": text}

    def warnings(self, zones: Zones) -> Iterator[tuple[int, str, int, str]]:
        """Time, file, number and text of the lines of WARN and above among its last ones."""
        for back, text in enumerate(self._before):
            is_loud = any(level in text.upper() for level in WARN_AND_ABOVE)  # quicker than a head
            head, line = is_loud and self._quiet_head(text), self.lines - back
            if head and head.level in WARN_AND_ABOVE and not head.lacks:
                ahead_ms = zones.ahead_ms(self.source.name, [line], [head.ts_ms])[0]
                yield head.ts_ms - head.is_local * ahead_ms, self.source.name, line, text

    def file_row(self, zones: Zones, of_folder: set[int]) -> dict:
        """Its row in the table of files."""
        said_by = {each.row.said_by for each in self._rows}
        is_brokers = self.status != NOT_KAFKA and said_by != {OPERATOR}  # else it proves nothing
        brokers = self.brokers[""] or (of_folder if len(of_folder) == 1 and is_brokers else set())
        name, ends = self.source.name, (self._first or self._last, self._last or self._first)
        ends = ends if is_brokers else (None, None)
        has_local = any(end is not None and end[2] for end in ends)
        first, last = (
            end and end[1] - end[2] * zones.ahead_ms(name, [end[0]], [end[1]])[0] for end in ends
        )
        parts = {_part(*each) for each in self._loggers} if is_brokers else set()
        return {
            "file": name, "bytes": self.source.size_bytes, "lines": self.lines,
            "status": self.status, "layout": self.reader.layout.name,
            "zone": zones.name(name, has_local), "first_ms": first, "last_ms": last,
            "heads": self.reader.heads, "headless": self.reader.headless,
            "parts": " ".join(sorted(parts - {""})),
            "brokers": ",".join(map(str, sorted(brokers))), "printed": self._printed,
        }  # fmt: skip

    def told(self, run: str, zones: Zones, of_folder: set[int]) -> Iterator[ReadRow]:
        """Its rows, with times in UTC and the broker filled in where a line does not name it."""
        rows = effective(self._rows, self._void)
        places = [each.row.line for each in rows], [each.row.ts_ms for each in rows]
        moment, repeated = 0, Counter[int]()
        known: dict[str, int | None] = {}  # the broker of a source, if its lines name only one
        for source in {each.source for each in rows}:
            names = self.brokers[""], self.brokers[source], of_folder
            known[source] = next((min(each) for each in names if len(each) == 1), None)
        for each, ahead_ms in zip(rows, zones.ahead_ms(self.source.name, *places), strict=True):
            if each.row.ts_ms != moment:
                moment, repeated = each.row.ts_ms, Counter()
            repeated[each.same] += 1
            row = copy(each.row)
            row.run = run
            if each.is_local:
                row.ts_ms = row.printed_ms = row.ts_ms - ahead_ms
            if row.broker is None and known[each.source] is not None:
                row.broker = known[each.source]
            if row.replica is None and row.kind in OF_ITSELF:
                row.replica = row.broker
            row.leader = leader_of(row)
            yield each._replace(row=row, same=each.same << 20 | repeated[each.same])


def _part(level: str, logger: str | None) -> str:
    """The kind of broker log that a line belongs to; "" for WARN and above, which prove no other
    level."""
    if level in WARN_AND_ABOVE:
        return ""
    match (logger or "").split("."):
        case ["state", *_]:
            return "state-change"
        case ["kafka", "controller", *_] | ["org", "apache", "kafka", "controller", *_]:
            return "controller"
    return "server"


def _ids(brokers: Sequence[int] | None) -> BrokerIds | None:
    return None if brokers is None else tuple(brokers)


def _begin(heads: Iterable[Head | None]) -> int:
    """How many heads are those of messages that begin like Kafka's."""
    return sum(1 for head in heads if head and not head.lacks and ANCHOR.match(head.message))


def _text(data: bytes) -> str:
    """Bytes as text, without leading NULs (a hole); other NULs and undecodable bytes as \\xNN."""
    return data.lstrip(b"\0").decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def _last_lines(block: ReadBlock) -> list[str]:
    """The last lines of a block, the last one first."""
    return [_text(block.line(n)) for n in _from_the_end(block)]


def _from_the_end(block: ReadBlock) -> range:
    return range(block.size - 1, max(-1, block.size - 1 - MOST_LINES_BACK), -1)
