"""The text tables in this folder: formats, signs, no_news, impossible (.txt); each explains itself.

An entry is a line, and below it a fixed number of indented lines; `#` begins a comment.
"""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files

from isrlab.engine import versions
from isrlab.events import names
from isrlab_ops.logs.reader.fields import COLUMN, FIELDS, Values, unkept

Entry = tuple[str, list[str], str]  # its first line, the lines below it, its place
# A field: the number of its group, its name, and a function for its value in its column, or one
# for values of several columns; with neither, its text goes to `detail`.
Part = tuple[int, str, Callable[[str, str], object] | None, Callable[[str, str], Values] | None]
LEVELS = ("FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE")
MOST_BEFORE = 400  # characters that a layout may put before a message
# How Kafka's messages begin; the first is a bracketed context, such as [Broker id=1].
ANCHOR = re.compile(
    r"\[[A-Z]\w*(?: [A-Z]\w*)*[ :]+(?:\w+=|on [Bb]roker \d+\]|\d+\]|\S+-\d+ broker=)"
    r"|\[(?:ReplicaFetcherThread|ThrottledChannelReaper|ExpirationReaper|controller-ev)\S*\][,:] "
    r"|\[ZooKeeperClient "
    r"|Partition \[\S+,\d+\] on broker \d+|Broker \d+ (?:received|handling|ignoring|cached|sent)"
    r"|Controller \d+ epoch \d+ |Kafka (?:version|commitId|startTimeMs) ?:|Registered (?:`?kaf|si)"
    r"|(?:Created|Completed load of|Truncating|Loading|Recovering|Rolled new|Scheduling) log"
    r"|Loading producer state|Updated connection-accept-rate|Client environment:|zookeeper state ch"
    r"|Initiating client connection|Opening socket connection|Awaiting socket connections"
    r"|(?:Processing override|Terminating process|Uncaught exception in scheduled) "
)
FIELD = re.compile(r"\{([^{}]*)\}")
_HEAD = re.compile(
    r"(?P<kind>\w+) (?P<since>[\d.]+)-(?P<until>[\d.]*) (?P<level>[A-Z]+) (?P<rest>.+)"
)


@dataclass(frozen=True)
class Format:
    """One form of one line; `since` and `until` are the first and last release that print it."""

    kind: str  # of the event
    since: str
    until: str | None  # None: the newest releases print it
    level: str
    logger: str
    template: str
    example: str  # a message of this form, without time, level and logger
    fixed: dict[str, str]  # values that the form implies, for `detail`
    pattern: str
    fields: tuple[str, ...]  # in the order of the groups of the pattern
    landmark: str  # text that every such message contains

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The pattern, compiled when a line first needs it: there are many forms."""
        return re.compile(self.pattern, re.ASCII)  # its digits are 0 to 9

    @cached_property
    def parts(self) -> list[Part]:
        """The fields, last one first: values early in a line override nested ones behind them."""
        reads = [(n, name, FIELDS[name].read) for n, name in enumerate(self.fields)]
        kept = [each for each in reversed(reads) if each[2] is not unkept]
        return [(n, name, None if read else COLUMN.get(name), read) for n, name, read in kept]


def entries(name: str, text: str, below: int) -> list[Entry]:
    """The entries of a text table, each with `below` indented lines.

    Raises ValueError for an entry with more or fewer, with its place in the table.
    """
    read: list[Entry] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("  ") and read:
            read[-1][1].append(line.strip())
        elif line.strip() and not line.startswith("#"):
            read.append((line, [], f"{name}:{number}"))
    for first, indented, place in read:
        if len(indented) != below:
            raise ValueError(f"{place}: {first!r} has {len(indented)} indented lines, not {below}")
    return read


def format_of(entry: Entry) -> Format:
    """A format from its head, template and example.

    Raises ValueError, with the place in the table, for a head of another form, an unknown kind,
    release, level or field.
    """
    first, (template, example), place = entry
    head = _HEAD.fullmatch(first)
    if head is None:
        raise ValueError(f"{place}: {first!r} is not 'kind since-until LEVEL logger detail=...'")
    for word, known in ((head["kind"], names.KINDS), (head["level"], LEVELS)):
        if word not in known:
            raise ValueError(f"{place}: unknown {word!r}; known: {', '.join(known)}")
    logger, *details = shlex.split(head["rest"])
    since, last = head["since"], head["until"] or None
    try:
        if versions.release(last or since) < versions.release(since, rest=0):
            raise ValueError(f"{since} is newer than {last}")
        fixed = dict(detail.split("=", 1) for detail in details)
        pattern, fields, landmark = _compiled(template)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
    return Format(
        head["kind"], since, last, head["level"], logger, template, example, fixed,
        pattern, fields, landmark,
    )  # fmt: skip


def _compiled(template: str) -> tuple[str, tuple[str, ...], str]:
    """The pattern of a template: fixed text literally, a field by its own pattern."""
    pieces = FIELD.split(template)
    expression, fields = re.escape(pieces[0]), dict[str, None]()
    for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
        if "|" in name:
            expression += f"(?:{'|'.join(map(re.escape, name.split('|')))})"
        elif name not in FIELDS:
            raise ValueError(f"unknown field {name!r}; known: {', '.join(FIELDS)}")
        elif name == "controller":  # its prefix has the broker id
            expression += FIELDS[name].pattern
            fields["broker"] = None
        elif name in fields:
            expression += f"(?P={name})"
        else:
            expression += f"(?P<{name}>{FIELDS[name].pattern})"
            fields[name] = None
        expression += re.escape(text)
    # JSON may escape some characters, and contexts such as [Broker id=1] begin many messages.
    texts = (text for piece in pieces[0::2] for text in re.split(r"[=<>&'\"/\\]", piece))
    landmark = max(texts, key=lambda text: len(text) - 30 * text.startswith("["))
    return expression, tuple(fields), landmark


def _linear(expression: str) -> str:
    """An equivalent expression in linear time: the text before the first `.*` is searched for once,
    and not again from each of its other occurrences."""
    before, rest, after = expression.partition(".*")
    return rf"\A(?>.*?(?:{before})){rest}(?:{after})" if rest else expression


def _read(name: str, below: int) -> list[Entry]:
    return entries(name, files(__package__).joinpath(name).read_text("utf-8"), below)


FORMATS = tuple(format_of(e) for name in ("formats", "signs") for e in _read(f"{name}.txt", 2))
_NO_NEWS = [first for first, _, _ in _read("no_news.txt", below=0)]
NO_NEWS = re.compile("|".join(map(_linear, _NO_NEWS)))
NO_NEWS_TEXT = "|".join(_NO_NEWS)  # for RE2, which is linear anyway
_LAST_NAMES = frozenset(form.logger.rpartition(".")[2] for form in FORMATS)
IMPOSSIBLE = tuple(
    (re.compile(_linear(first)), why) for first, (why,), _ in _read("impossible.txt", below=1)
)


_CONTEXT = re.compile(r"\[[^\]]*\][,:]? ?")
_KEY = 4  # letters


def _begins(template: str) -> tuple[str, str]:
    """The first letters of a message of this template, and those after its context: "" if they are
    not fixed text."""
    has_any = template.startswith(("{any_prefix}", "{controller}"))
    context = None if has_any else _CONTEXT.match(template)
    if has_any:
        own, rest = "", template.partition("}")[2]
    elif context is None or re.search(
        r"\{(?!topic|partition|broker|replica|leader|fetcher|controller_epoch)", context[0]
    ):
        own, rest = template, ""
    else:
        own, rest = template, template[context.end() :]
    keys = [text.partition("{")[0][:_KEY] for text in (own, rest)]
    own, rest = (key if len(key) == _KEY else "" for key in keys)
    return own, rest


_BEGINS = [(form, *_begins(form.template)) for form in FORMATS]


def likely(message: str) -> tuple[Format, ...]:
    """The formats that may read a message, by its first letters, in the order of the table."""
    context = _CONTEXT.match(message)
    return _likely(message[:_KEY], message[context.end() :][:_KEY] if context else message[:_KEY])


@lru_cache(maxsize=4096)
def _likely(first: str, behind: str) -> tuple[Format, ...]:
    return tuple(f for f, own, rest in _BEGINS if own in ("", first) and rest in ("", behind))


def is_logger(name: str) -> bool:
    """Whether a class, named with or without its package, prints lines of the tables."""
    return name.rpartition(".")[2] in _LAST_NAMES
