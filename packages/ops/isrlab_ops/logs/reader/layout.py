"""Finds the layout of a file: the text before and after Kafka's messages.

Theory of operation. Operators choose any layout, and containers, collectors and terminals add more
around it. So no layout is listed here. A sample of lines is searched for beginnings of known
messages (`ANCHOR`). The text before one is split into stamps, level, brackets and words, which form
a *shape*; the most common shapes are the layout. The text after a message is found in the same way,
from messages with a known end. A JSON object is recognised by its braces, and its keys by their
values; the text under the message key may itself have a layout, as in docker's files.

Of two stamps in a line the inner one is the broker's, and the outer one the container's, which has
a zone. The words before them (pod, service, host) are the `source`, which distinguishes the brokers
in a shared file.

Left out: messages that a layout spreads over several lines, and XML.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from isrlab_ops.logs.reader.formats import ANCHOR, FORMATS, LEVELS, MOST_BEFORE, is_logger
from isrlab_ops.logs.reader.objects import Keys, json_moment, keys_of, read_object
from isrlab_ops.logs.reader.stamps import STAMP, StampedTime, moment

FEW = 0.02  # of the lines: rarer shapes are chance
MOST_SHAPES = 6
MOST_SHOWN = 4096  # characters of a line that are examined
ANSI = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_LEVEL = rf"(?:{'|'.join(LEVELS)}|WARNING)"
_WORD = r"[^\s\[\](){}\"'|=,]+"
_BRACKETS = {"[": r"\[[^\[\]]*\]", "(": r"\([^()]*\)"}
_LOGGER = r"(?P<logger>[A-Za-z_][\w.$]*)"
_TOKEN = re.compile(
    rf"(?P<stamp>{STAMP})|(?P<level>\b{_LEVEL}\b)|(?P<space>\s+)"
    rf"|(?P<bracket>(?![\[(]\s*(?:{STAMP}|{_LEVEL}\b))(?:{'|'.join(_BRACKETS.values())}))"
    rf"|(?P<word>{_WORD})|(?P<other>.)",
    re.DOTALL,
)
# The text that most layouts have after a message; other text is detected.
_TAIL = re.compile(rf" \({_LOGGER}\)(?:\s+\[[^\[\]]*\])?\Z")
# Forms with a fixed end, behind which the layout continues.
_ENDED = [form for form in FORMATS if not form.pattern.endswith((".*)", ".*?)"))]
# A line in the layout of Kafka's own configuration; all others are read more slowly.
_STOCK = re.compile(
    r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\] "
    rf"({'|'.join(LEVELS)}) (\S.*) \(([A-Za-z_][\w.$]*)\)",
    re.DOTALL | re.ASCII,
)
_NAME = re.compile(r"[A-Za-z]{2}")
_OBJECT = re.compile(r'\{\s*"')
_CONTINUES = re.compile(r"\s|\tat |Caused by|\.\.\. \d+ more|[\w.$]*(?:Exception|Error)\b|[)}]|$")


class Head(NamedTuple):
    """A line in parts. `ts_ms` is in UTC; if `is_local`, local time as if that were UTC."""

    ts_ms: int
    level: str
    message: str
    logger: str | None
    is_local: bool = False
    lacks: str = ""  # the part that the stamp lacks; there is no `ts_ms` then
    outer_ms: int | None = None  # UTC, of the container
    source: str = ""
    rest: tuple[str, ...] = ()  # lines that belong to it, such as a stack trace


class _Shape(NamedTuple):
    regex: re.Pattern[str]
    wrapper: re.Pattern[str] | None  # its part before the broker's own stamp
    words: str  # the shape, for a reader


def is_continued(line: str) -> bool:
    """Whether a line continues the previous one, because it has a head in no layout."""
    return _CONTINUES.match(line) is not None


def _shape(before: str) -> _Shape | None:
    """The shape of the text before a message; None if it has neither a time nor a level."""
    tokens = [(str(token.lastgroup), token[0]) for token in _TOKEN.finditer(before)]
    kinds = [kind for kind, _ in tokens]
    if "stamp" not in kinds and "level" not in kinds:
        return None
    own = max((n for n, kind in enumerate(kinds) if kind == "stamp"), default=0)
    level = next((n for n, kind in enumerate(kinds) if kind == "level"), None)
    pieces, words, stamps, has_logger = [], [], 0, False
    for n, (kind, text) in enumerate(tokens):
        if kind == "word" and not text.strip(".:-<>*#/"):
            kind = "other"  # a separator
        piece, word = _generic(kind, text), {"space": " ", "other": text}.get(kind, "..")
        if kind == "stamp":
            piece, word, stamps = f"(?P<stamp{stamps}>{STAMP})", "date", stamps + 1
        elif n == level:
            piece, word = f"(?P<level>{_LEVEL})", "LEVEL"
        elif kind == "word" and not has_logger and is_logger(re.sub(r":\d*$", "", text)):
            piece, word, has_logger = rf"{_LOGGER}(?::\d*)?", "logger", True
        elif kind in ("word", "bracket") and n < own and tokens[n + 1][1] != "=":
            piece = f"(?P<source{n}>{piece})"
        pieces.append(piece)
        words.append(f"{text[0]}..{text[-1]}" if kind == "bracket" else word)
    around = own - (own > 0 and tokens[own - 1][1] == "[")  # the bracket is the date's
    is_wrapped = {"word", "bracket", "stamp"} & {*kinds[:around]}
    wrapper = _compiled("".join(pieces[:around])) if is_wrapped else None
    return _Shape(_compiled("".join(pieces)), wrapper, "".join(words))


def _generic(kind: str, text: str) -> str:
    """The pattern for a token and all similar ones."""
    if kind == "bracket":
        return _BRACKETS[text[0]]
    patterns = {"space": r"\s+", "word": f"(?:{_WORD})", "level": f"(?:{_LEVEL})"}
    return patterns.get(kind) or (f"(?:{STAMP})" if kind == "stamp" else re.escape(text))


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL | re.ASCII)


def _before(line: str) -> str | None:
    """The text before a line's message, or None if that cannot be recognised."""
    if (anchor := ANCHOR.search(line, 0, MOST_BEFORE)) is not None:
        return line[: anchor.start()]
    for form in FORMATS:
        match = form.regex.search(line) if form.landmark in line else None
        if match and not is_continued(match[0]):  # an exception follows its message
            return line[: match.start()]
    return None


def _plain_before(line: str) -> str | None:
    """The text before an unknown message: up to its level, or its stamp."""
    end, tokens = 0, list(_TOKEN.finditer(line[:MOST_BEFORE]))
    for index, token in enumerate(tokens):
        if token.lastgroup in ("stamp", "level") and index < 12:
            end = token.end()
    rest = re.match(r"[\])]?:?\s*", line[end:])
    return line[: end + rest.end()] if end and rest else None


def _usual(shapes: Iterable[_Shape | None]) -> tuple[_Shape, ...]:
    """The shapes that are not chance, most common first."""
    counts = Counter(shape for shape in shapes if shape)
    least = FEW * sum(counts.values())
    return tuple(shape for shape, n in counts.most_common(MOST_SHAPES) if n >= least)


def _tails(lines: Iterable[str]) -> tuple[str, ...]:
    """The text after messages with a known end, as patterns, most common first."""
    counts: Counter[str] = Counter()
    for line in lines:
        ends = [(match.end(), form.logger) for form in _ENDED
                if form.landmark in line and (match := form.regex.search(line))]  # fmt: skip
        if ends:
            end, logger = max(ends)
            counts[_tail(line[end:].rstrip(), logger)] += 1
    usual = [t for t, n in counts.most_common(3) if t and n > FEW * sum(counts.values())]
    named = [tail for tail in usual if _LOGGER in tail]
    return tuple(rf"{tail}\s*\Z" for tail in named or usual)  # compiled if a line needs it


def _tail(text: str, logger: str) -> str:
    """The pattern of the text after a message of this logger."""
    name = re.search(rf"(?:[\w$]+\.)*{re.escape(logger.rpartition('.')[2])}(?::\d+)?", text)
    before, after = (text[: name.start()], text[name.end() :]) if name else (text, "")
    parts = ["".join(_generic(str(t.lastgroup), t[0]) for t in _TOKEN.finditer(part))
             for part in (before, after)]  # fmt: skip
    return rf"{_LOGGER}(?::\d+)?".join(parts) if name else parts[0]


@dataclass(frozen=True)
class Layout:
    """The layout of lines. `of` finds it; without shapes or keys no line has a head."""

    shapes: tuple[_Shape, ...] = ()
    tails: tuple[str, ...] = ()
    keys: Keys | None = None
    inner: Layout | None = None  # of the text under the key of the message
    around: tuple[_Shape, ...] = ()  # the text before the object
    other: Layout | None = None  # for the rest of a file with several layouts

    @staticmethod
    def of(lines: Sequence[str]) -> Layout:
        """The layout of a sample of lines."""
        lines = [ANSI.sub("", line) for line in lines if line.strip()]
        objects = [parsed for line in lines if (parsed := _object(line))]
        if 2 * len(objects) > len(lines):
            return Layout._of_objects(objects)
        lines = [line[:MOST_SHOWN] for line in lines if not is_continued(line)]
        before = [text for line in lines if (text := _before(line)) is not None]
        if not before:
            before = [text for line in lines if (text := _plain_before(line))]
        return Layout(_usual(map(_shape, before)), _tails(lines))

    @staticmethod
    def _of_objects(objects: Sequence[tuple[str, dict[str, object]]]) -> Layout:
        keys = keys_of([obj for _, obj in objects])
        texts = [str(obj.get(keys.message, "")).rstrip("\n") for _, obj in objects]
        inner = Layout.of(texts)
        around = _usual(_shape(before) for before, _ in objects)
        return Layout((), (), keys, inner if inner.keys or inner.shapes else None, around)

    def with_more(self, lines: Sequence[str]) -> Layout:
        """This layout, extended by one for the lines it cannot read."""
        return replace(Layout.of(lines), other=self if self.shapes or self.keys else None)

    @cached_property
    def name(self) -> str:
        """The layout in words, such as "date LEVEL message (logger)"; "stock" for Kafka's own."""
        names = []
        if self.keys:
            under = self.inner.name if self.inner else ", ".join(k for k in self.keys[1:] if k)
            names.append(f"JSON: {self.keys.message} ({under})")
        if self.shapes:
            tail = self.tails[0] if self.tails else "logger"
            end = " (logger)" if "logger" in tail and "logger" not in self.shapes[0].words else ""
            names.append(f"{self.shapes[0].words}message{end}")
        names += [self.other.name] if self.other else []
        return " or ".join(names).replace("[date] LEVEL message (logger)", "stock") or "unknown"

    def unwrapped(self, line: str) -> tuple[str, str]:
        """Source and text of a line without a head, with a container's wrapper removed."""
        line = ANSI.sub("", line)
        if self.keys and (parsed := _object(line)) and self.keys.message in parsed[1]:
            return self._around(parsed[0])[1], str(parsed[1][self.keys.message])
        for shape in self.shapes:
            if shape.wrapper and (match := shape.wrapper.match(line)):
                return _source(match.groupdict("")), line[match.end() :]
        return self.other.unwrapped(line) if self.other else ("", line)

    def head(self, line: str) -> Head | None:
        """The parts of a line; None for one without a head.

        Raises ValueError for a time that does not exist.
        """
        if "\x1b" in line:
            line = ANSI.sub("", line)
        if self._is_stock and (match := _STOCK.fullmatch(line)):
            stamp, level, text, logger = match.groups()
            at = moment(stamp)
            if at is not None and ("." in logger or is_logger(logger)):
                return Head(at.ms, level, text.rstrip(), logger, at.is_local)
        if self.keys and (parsed := _object(line)) and self.keys.message in parsed[1]:
            return self._of_object(*parsed, self.keys)
        for shape in self.shapes:
            if match := shape.regex.match(line):
                return self._of_plain(line, match, shape)
        return self.other.head(line) if self.other else None

    def _of_plain(self, line: str, match: re.Match[str], shape: _Shape) -> Head:
        text, parts = line[match.end() :].rstrip(), match.groupdict("")
        logger = parts.get("logger")
        if shape.words.endswith('"'):
            text = text.removesuffix('"').replace('\\"', '"')
        if behind := self._behind(text):
            text = text[: behind.start()].rstrip()
            logger = behind["logger"] if behind.lastgroup else logger
        level = parts.get("level", "").replace("WARNING", "WARN")
        source = _source(parts) if shape.wrapper else ""
        return _head(_moments(parts), level, text, logger, source)

    def _behind(self, text: str) -> re.Match[str] | None:
        usual = _TAIL.match(text, text.rfind(" (")) if text.endswith((")", "]")) else None
        if usual and ("." in usual["logger"] or is_logger(usual["logger"])):
            return usual
        return next(filter(None, (re.search(tail, text) for tail in self.tails)), None)

    @cached_property
    def _is_stock(self) -> bool:
        """Whether its first shape is that of Kafka's own configuration."""
        return not self.keys and bool(self.shapes) and self.shapes[0].words == "[date] LEVEL "

    @cached_property
    def has_loggers_behind(self) -> bool:
        """Whether its lines are those of Kafka's own layout: each ends with its logger."""
        return not self.keys and not self.other and self.name == "stock"

    def has_head(self, line: str) -> bool:
        return any(shape.regex.match(ANSI.sub("", line)) for shape in self.shapes)

    def has_logger_behind(self, line: str) -> bool:
        return self._behind(ANSI.sub("", line).rstrip()) is not None

    def _around(self, before: str) -> tuple[list[StampedTime], str]:
        for shape in self.around:
            if match := shape.regex.match(before):
                return _moments(match.groupdict("")), _source(match.groupdict(""))
        return [], _source({"source": before})

    def _of_object(self, before: str, obj: dict[str, object], keys: Keys) -> Head | None:
        text, *rest = str(obj[keys.message]).rstrip("\n").split("\n")
        stamps, source = self._around(before)
        own = json_moment(obj.get(keys.time))
        stamps += [own] if own else []
        others = (str(value) for key, value in obj.items() if key != keys.message)
        rest += [line for value in others for line in value.split("\n") if "Exception" in line]
        rest = list(dict.fromkeys(map(str.strip, rest)))  # one trace may occur alone and in another
        if self.inner:
            head = self.inner.head(text)
            if head is None:
                return None
            outer = [m.ms for m in stamps if not m.is_local and not m.lacks]
            if head.lacks and outer:
                head = head._replace(ts_ms=outer[-1], is_local=False, lacks="")
            more = (*head.rest, *rest)
            return head._replace(outer_ms=[*outer, None][0], source=source, rest=more)
        level = str(obj.get(keys.level, "")).upper().replace("WARNING", "WARN")
        logger = str(obj[keys.logger]) if keys.logger in obj else None
        return _head(stamps, level, text, logger, source)._replace(rest=tuple(rest))


def _object(line: str) -> tuple[str, dict[str, object]] | None:
    """The text before the JSON object in a line, and the object; None without one."""
    start = _OBJECT.search(line)
    obj = read_object(line[start.start() :]) if start else None
    return (line[: start.start()], obj) if start and obj is not None else None


def _moments(parts: Mapping[str, str]) -> list[StampedTime]:
    return [m for name, text in parts.items() if name[:5] == "stamp" and (m := moment(text))]


def _source(parts: Mapping[str, str]) -> str:
    """Pod, service or host: the surrounding words, except numbers and names of streams."""
    words = [text for name, text in parts.items() if name.startswith("source")]
    return " ".join(w for w in words if _NAME.search(w) and w not in ("stdout", "stderr"))


def _head(
    stamps: Sequence[StampedTime], level: str, message: str, logger: str | None, source: str
) -> Head:
    """The head. Its time is the inner stamp's, unless only an outer one has both date and year."""
    if len(stamps) == 1:
        ((ms, is_local, lacks),) = stamps
        return Head(ms, level, message, logger, is_local, lacks, None, source)
    whole = [each for each in stamps if not each.lacks]
    outer = [each.ms for each in stamps[:-1] if not each.lacks and not each.is_local]
    own = whole[-1] if whole else stamps[-1] if stamps else StampedTime(0, False, "time")
    outer_ms = outer[0] if outer and own is stamps[-1] else None
    return Head(own.ms, level, message, logger, own.is_local, own.lacks, outer_ms, source)


# Tried before any layout is searched for, so that each file is read independently of others.
STOCK = Layout.of(["[2026-11-20 10:00:00,000] INFO [Broker id=1] Handling (state.change.logger)"])
