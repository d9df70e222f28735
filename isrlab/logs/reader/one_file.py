"""Reads one log file: its events, the lines that could not be read, and what is known of it.

Theory of operation. The file comes in blocks of some megabytes. RE2 searches all lines of a block
for the words of the formats, at some hundred megabytes a second, and only the lines that have one
are looked at in Python. The layout is found from the first block, and again from any that it does
not fit; files of a folder mostly share it.

Rows become columns soon: there may be millions.
"""

from __future__ import annotations

import os
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from isrlab.logs.reader.files import CONTROL, HOLE_BYTES, ReadBlock, Source, blocks, is_utf8
from isrlab.logs.reader.formats import ANCHOR, NO_NEWS_TEXT
from isrlab.logs.reader.layout import Head, is_continued
from isrlab.logs.reader.lines import (
    IMPOSSIBLE_LINE,
    MOST_LINES_BACK,
    OF_ITSELF,
    PERHAPS,
    WANTED,
    WANTED_TEXT,
    Event,
    LineReader,
    Unread,
    expanded,
)  # fmt: skip
from isrlab.logs.reader.packed import DamagedFileError
from isrlab.logs.reader.rows import OF_LINES, OF_ONE_FILE, Rows
from isrlab.logs.reader.zones import Evidence, Zones, evidence

UNREAD_KEPT = 200  # rows per file and reason that are kept one by one
SHOWN_CHARACTERS = 300  # of an unread line
SAMPLE = 200  # lines from which a layout is found, and as many that hold words of interest
FITS = 0.9  # of the lines of Kafka in a sample: a layout that reads fewer is not the file's
MOST_LAYOUTS = 5  # that are looked for in one file
LEAST_HEADS = 0.5  # of the lines of Kafka: with fewer the file is not understood
NEAR_LINES = 100  # within which a log answers its fetcher
# The log's answer to a fetcher that has decided to truncate it, in front of it or behind.
NO_EFFECT = re.compile(
    r"\[\w+ partition=([^\s,]+)-(\d{1,9}), .*\] Truncating to (\d{1,18}) has no effect"
    r"|Truncating ([^\s,]+)-(\d{1,9}) to (\d{1,18}) has no effect"
)
OF_ISR = ("isr_shrink", "isr_expand", "isr_commit", "leader")
FORGED = "it stands within the message of another line"
_ANY = re.compile(f"{WANTED_TEXT}|{PERHAPS}")
_DIRECTION = re.compile("[\u202a-\u202e\u2066-\u2069]")  # characters that turn a text around


def hits(block: ReadBlock) -> np.ndarray:
    """Which lines of a block must be looked at: int64[line], in order."""
    count = block.size
    buffers = [None, pa.py_buffer(block.ends), pa.py_buffer(block.data)]
    lines = pa.Array.from_buffers(pa.binary(), count, buffers)
    any_ = pc.indices_nonzero(pc.match_substring_regex(lines, f"{WANTED}|{PERHAPS}"))
    lines = lines.take(any_)  # mostly few
    is_news = pc.invert(pc.match_substring_regex(lines, NO_NEWS_TEXT))
    is_wanted = pc.or_(is_news, pc.match_substring_regex(lines, WANTED))
    found = pc.filter(any_, is_wanted).to_numpy().astype(np.int64)
    more = {*block.cut}
    if not block.is_utf8:
        more |= {n for n in range(block.size) if not is_utf8(block.line(n))}
    return np.union1d(found, sorted(more)).astype(np.int64) if more else found


def searched(coming: Iterator[ReadBlock]) -> Iterator[tuple[ReadBlock, np.ndarray]]:
    """The blocks, each with its hits: the next block is searched in a thread while one is read."""
    with ThreadPoolExecutor(max_workers=1) as ahead:
        block = next(coming, None)
        search = ahead.submit(hits, block) if block else None
        while block and search:
            found, after = search.result(), None
            damage: Exception | None = None
            try:
                after = next(coming, None)
            except (DamagedFileError, OSError) as error:
                damage = error
            search = ahead.submit(hits, after) if after else None
            yield block, found
            if damage:
                raise damage
            block = after


class LogFile:
    """One file, and what `read` finds in it. `brokers` are those that its lines name, by source;
    under "" all of them. `zones` is what it says of the zone of its stamps."""

    def __init__(self, source: Source, order: int, reader: LineReader) -> None:
        self.source, self.order, self.reader = source, order, reader
        self.folder = os.path.dirname(source.name)
        self.lines, self.end, self.status = 0, 0, "read"
        self.zones: list[Evidence] = []
        self.brokers: dict[str, set[int]] = defaultdict(set)
        self._ends: list[tuple[int, int, bool]] = []  # of its first and last line with a time
        self._rows = Rows(OF_ONE_FILE)
        self._unread: dict[str, list[dict]] = defaultdict(list)  # by reason
        self._held: dict[tuple, list[Event]] = {}
        self._moment, self._repeated = 0, Counter[int]()
        self._before: list[str] = []  # the last lines of the block before
        self._layouts = 0
        self._loggers: set[tuple[str, str | None]] = set()  # with the levels of their lines

    def read(self) -> None:
        """Read the file from where the last time ended."""
        block, self.status = None, "read"
        try:
            for block, found in searched(
                blocks(self.source.path, self.end, self.lines + 1, self.source.end)
            ):
                self._fit(block, found)
                if not self._ends:
                    self._see_end(block, range(min(block.size, MOST_LINES_BACK)))
                self._read_block(block, found)
                self.lines, self.end = block.first + block.size - 1, block.end
                self._before = [_text(block.line(n)) for n in _from_the_end(block)]
        except (DamagedFileError, OSError) as error:
            why = "broken off" if isinstance(error, DamagedFileError) else "not read"
            self.status = f"{why}: {error}"
            self._keep_unread(self.lines + 1, self.status)
        for row in chain(*self._held.values()):
            self._rows.add(row)
        self._held = {}
        if block is not None:
            self._see_end(block, _from_the_end(block))
        self._judge()
        self._rows.pack()

    def _judge(self) -> None:
        """Say so if the file is not understood."""
        heads, headless = self.reader.heads, self.reader.headless
        if self.status == "read" and self.lines and not heads + headless:
            self.status = "no line of a Kafka broker in it"
        elif self.status == "read" and heads < LEAST_HEADS * (heads + headless):
            known = f"{heads:,} of {heads + headless:,} lines of Kafka have a known head"
            self.status = f"not understood: {known}"

    def _fit(self, block: ReadBlock, found: np.ndarray) -> None:
        """Find the layout of a file, unless that of the file before also reads it; and that of a
        block with lines that have no head in it."""
        chosen = np.union1d(np.arange(min(block.size, SAMPLE)), found[:SAMPLE]).astype(int)
        lines = [text for n in chosen if (text := _text(block.line(n))) and not is_continued(text)]
        heads = [self._quiet_head(line) for line in lines]
        of_kafka = [head for head, line in zip(heads, lines, strict=True) if ANCHOR.search(line)]
        self._loggers |= {(head.level, head.logger) for head in heads if head}
        if block.first == 1:
            good = _begin(of_kafka)
            if good < FITS * len(of_kafka) or None in heads:
                self.reader.find_layout(lines)
                good = _begin(map(self._quiet_head, filter(ANCHOR.search, lines)))
            # A quiet file has no other lines that show that it is understood.
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

    def _see_end(self, block: ReadBlock, numbers: Iterable[int]) -> None:
        """Note the first of these lines that has a time."""
        for n in numbers:
            if head := self.reader.time_of(_text(block.line(n))):
                self._ends.append((block.first + n, head.ts_ms, head.is_local))
                return

    def _read_block(self, block: ReadBlock, found: np.ndarray) -> None:
        for n in found.tolist():
            number, line = block.first + n, self._line(block, n)
            if line is None:
                continue
            if "has no effect" in line:
                self._forget(line, number)
            for item in self.reader.read(line, self._lines_before(block, n)):
                if isinstance(item, dict) and item["kind"] in OF_ISR and self._is_forged(block, n):
                    item = Unread(f"{IMPOSSIBLE_LINE}: {FORGED}")
                if isinstance(item, Unread):
                    self._keep_unread(number, item.reason, item.text or line)
                    continue
                for event in expanded(item):
                    row = self._row(number, event)
                    for ready in self._that_happened(row) if row["kind"] == "truncate" else (row,):
                        self._rows.add(ready)

    def _is_forged(self, block: ReadBlock, n: int) -> bool:
        """A message with line breaks in it may look like lines of its own. Its first line has a
        head and no logger behind it, its last line a logger and no head."""
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
        """The last one first."""
        yield from (_text(block.line(i)) for i in range(n - 1, -1, -1))
        yield from self._before

    def _line(self, block: ReadBlock, n: int) -> str | None:
        """A line as text, None if it is none; what is wrong with it is kept."""
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

    def _row(self, number: int, event: Event) -> Event:
        """An event with what is known of its line."""
        head, ts_ms, broker = self.reader.head, event["ts_ms"], event.get("broker")
        assert head is not None
        self._loggers.add((head.level, head.logger))
        if broker is not None:
            self.brokers[""].add(broker)
            self.brokers[head.source].add(broker)
        detail = event["detail"]
        said = self._zone_of(number, head, detail) if head.is_local else None
        if said and (not self.zones or self.zones[-1].ahead_ms != said.ahead_ms):
            self.zones.append(said)
        if ts_ms != self._moment:
            self._moment, self._repeated = ts_ms, Counter()
        of_whom = f"{event.get('topic')} {event.get('partition')} {event.get('replica')} "
        words = zlib.crc32((of_whom + head.message).encode())
        self._repeated[words] += 1
        event["detail"] = {"file": self.source.name, "line": str(number), **detail}
        event["line"], event["same"] = number, words << 20 | self._repeated[words]
        event["source"], event["is_local"] = head.source, head.is_local
        return event

    def _zone_of(self, line: int, head: Head, detail: dict[str, str]) -> Evidence | None:
        if "start_ms" in detail:
            return evidence(line, head.ts_ms, int(detail["start_ms"]), "startTimeMs")
        if head.outer_ms is None:
            return None
        return evidence(line, head.ts_ms, head.outer_ms, "its container")

    def _forget(self, line: str, number: int) -> None:
        """A truncation that is held back had no effect."""
        if void := NO_EFFECT.search(line):
            topic, partition, end = (void[1] or void[4], void[2] or void[5], void[3] or void[6])
            near = self._held.get((topic, int(partition), int(end)), [])
            near[:] = [each for each in near if each["line"] < number - NEAR_LINES]

    def _that_happened(self, row: Event) -> list[Event]:
        """Hold a truncation back until the log says that it had no effect, or the next one comes.

        Those that can no longer be taken back. A fetcher decides (one line), a log obeys (another).
        """
        place = tuple(row.get(name) for name in ("topic", "partition", "log_end_offset"))
        rows, step = self._held.setdefault(place, []), row["detail"].get("step")
        done = rows[:] if any(each["detail"].get("step") == step for each in rows) else []
        rows[: len(done)] = []
        rows.append(row)
        return done

    def _keep_unread(self, line: int, reason: str, text: str = "") -> None:
        """Note a line; of one reason the first lines, and one row that counts the rest."""
        rows = self._unread[reason]
        if len(rows) > UNREAD_KEPT:
            rows[-1]["lines"] += 1
            return
        shown = _DIRECTION.sub(lambda m: f"\\u{ord(m[0]):04x}", text[:SHOWN_CHARACTERS])
        shown = "(and more like these)" if len(rows) == UNREAD_KEPT else shown
        rows.append({"line": line, "reason": reason, "text": shown, "lines": 1})

    def unread_rows(self) -> Iterator[dict]:
        """Its lines that could not be read."""
        return ({"file": self.source.name, **row} for row in chain(*self._unread.values()))

    def row(self, zones: Zones, of_folder: set[int]) -> dict:
        """Its row of the table of files."""
        brokers = self.brokers[""] or (of_folder if len(of_folder) == 1 else set())
        name, has_local = self.source.name, any(is_local for *_, is_local in self._ends)
        ends = [
            local_ms - is_local * zones.ahead_ms(name, [n], [local_ms])[0]
            for n, local_ms, is_local in self._ends
        ]
        first, last = (ends[0], ends[-1]) if ends else (None, None)
        return {
            "file": name, "bytes": self.source.size_bytes, "lines": self.lines,
            "status": self.status, "layout": self.reader.layout.name,
            "zone": zones.name(name, has_local), "first_ms": first, "last_ms": last,
            "heads": self.reader.heads, "headless": self.reader.headless,
            "parts": " ".join(sorted({_part(*each) for each in self._loggers} - {""})),
            "brokers": ",".join(map(str, sorted(brokers))),
        }  # fmt: skip

    def table(self, run: str, zones: Zones, of_folder: set[int]) -> pa.Table:
        """Its events, with the columns of `OF_LINES`."""
        table, count = self._rows.table, len(self._rows.table)
        line, ts_ms, is_local = (table[n].to_numpy() for n in ("line", "ts_ms", "is_local"))
        ahead_ms = is_local * np.array(
            zones.ahead_ms(self.source.name, line.tolist(), ts_ms.tolist()), np.int64
        )
        only = {}  # the broker of a source, if its lines name but one
        for source in pc.unique(table["source"]).to_pylist():
            places = self.brokers[""], self.brokers[source], of_folder
            only[source] = next((min(names) for names in places if len(names) == 1), None)
        names = [only[source] for source in table["source"].to_pylist()]
        broker = pc.coalesce(table["broker"], pa.array(names, pa.int32()))
        is_own = pc.is_in(table["kind"], pa.array(OF_ITSELF))
        own = pc.if_else(is_own, broker, pa.scalar(None, pa.int32()))
        columns = {name: table[name] for name in table.column_names}
        columns |= {
            "run": pa.array([run] * count, pa.string()), "ts_ms": pa.array(ts_ms - ahead_ms),
            "broker": broker, "replica": pc.coalesce(table["replica"], own),
            "order": pa.array(np.full(count, self.order)),
            "folder": pa.array([self.folder] * count, pa.string()),
        }  # fmt: skip
        return pa.table({name: columns[name] for name in OF_LINES.names}).cast(OF_LINES)


def _part(level: str, logger: str | None) -> str:
    """To which of a broker's logs a line belongs; "" for one of WARN and above, which does not
    show that the others are there."""
    if level in ("WARN", "ERROR", "FATAL"):
        return ""
    match (logger or "").split("."):
        case ["state", *_]:
            return "state-change"
        case ["kafka", "controller", *_] | ["org", "apache", "kafka", "controller", *_]:
            return "controller"
    return "server"


def _begin(heads: Iterable[Head | None]) -> int:
    """How many have a message that begins as those of Kafka do."""
    return sum(1 for head in heads if head and not head.lacks and ANCHOR.match(head.message))


def _text(data: bytes) -> str:
    """Bytes, without a hole before them, as text that can be printed, strange ones as \\xNN."""
    return data.lstrip(b"\0").decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def _from_the_end(block: ReadBlock) -> range:
    return range(block.size - 1, max(-1, block.size - 1 - MOST_LINES_BACK), -1)
