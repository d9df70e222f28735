"""Stable stand-ins for the names of hosts, topics, clients, addresses and paths.

In isrlab's own sentences the known names are replaced. In a log line every word is replaced unless
it is a number or a word of Kafka's own lines, which also hides unexpected names. Offsets, times,
epochs and broker ids stay. A name has the same stand-in everywhere, whatever is shown: stand-ins
are assigned in order of topics, brokers and lines of all the evidence.
"""

import re
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from isrlab_ops.logs.incidents.quote import Raw

TABLES = ("formats.txt", "signs.txt", "no_news.txt", "impossible.txt")
_PACKAGES = re.compile(r"(?:org\.(?:apache|I0Itec)|kafka|java|javax|jdk|sun|scala|state)\.[\w.$]*")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_IPV4 = r"(?:\d{1,3}\.){3}\d{1,3}"
_IPV6 = (
    r"\[?(?:(?:[0-9a-fA-F]{1,4}:){4,7}[0-9a-fA-F]{1,4}|[0-9a-fA-F:]*::[0-9a-fA-F:]*)(?:%\w+)?\]?"
)
_ADDRESS = re.compile(rf"(?:[\w.-]*/)?(?<![\d.])(?:{_IPV4}|{_IPV6})(?![\d.])")
_PATH = re.compile(r"(?<![\w.])(?:/[\w.@%+~=-]+){1,40}/?")
_HOST = re.compile(r"[A-Za-z0-9][\w.-]*[A-Za-z][\w.-]*(?=:\d{2,5}\b)")
_TOKEN = re.compile(r"[^\s\[\](){}=,;:'\"<>|#]+")
_NAMED = re.compile(
    r"(client|clientId|client\.id|group|groupId|user|principal|User)([=: ]+)([^\s,\])}]+)", re.I
)
_OF_TOPIC = re.compile(r"(.+)-(\d+(?:,\d+)*)")
_FILE = re.compile(r"\.(?:log|out|gz|bz2|xz|zip|zst)(?:[.-][\d-]+)?$")
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d$")
_PLAIN = re.compile(r"broker-\d+|metadata|logs|\d{20}|standard input|__cluster_metadata-0")
_LOG_FILE = re.compile(
    r"(?:(server|controller|state-change)\b[\w-]*?)?((?:\.(?:log|gz|bz2|xz|zip|zst|\d[\d-]*))*)"
)


class Names:
    """Stand-ins for names; `topics`, `hosts` and `paths` are known beforehand."""

    def __init__(self, topics: Iterable[str], hosts: Iterable[str], paths: Iterable[str]) -> None:
        self._names: dict[str, str] = {}
        self._made: set[str] = set()
        self._counts: dict[str, int] = {}
        self._topics = set(topics)
        for topic in sorted(self._topics):
            self._names[topic] = topic if topic.startswith("__") else self._new("topic")
        for host in hosts:
            self._named("host", host)
        self._paths = sorted({*paths}, key=lambda path: (-len(path), path))
        for path in sorted(self._paths):
            self._names[path] = "/".join(map(self._part, path.split("/")))
        strange = [name for name in self._topics if not re.fullmatch(r"[\w.-]+", name)]
        longest = sorted(strange, key=len, reverse=True)
        self._strange = re.compile("|".join(map(re.escape, longest))) if longest else None

    def known(self, text: str) -> str:
        """One of isrlab's own sentences, anonymous."""
        if self._strange:
            text = self._strange.sub(lambda m: self._names[m[0]], text)
        for path in self._paths:
            text = text.replace(path, self._names[path]) if path in text else text
        text = self._addresses(text)
        text = _PATH.sub(lambda m: self._named("dir", m[0].rstrip("/.")), text)
        return _TOKEN.sub(lambda m: self._token(m[0]) or m[0], text)

    def line(self, text: str) -> str:
        """A log line, anonymous."""
        if self._strange:
            text = self._strange.sub(lambda m: self._names[m[0]], text)
        text = _NAMED.sub(lambda m: m[1] + m[2] + self._client(m[3]), self._addresses(text))
        text = _PATH.sub(lambda m: self._named("dir", m[0].rstrip("/")), text)
        return _TOKEN.sub(lambda m: self._token(m[0]) or self._word(m[0]), text)

    def of(self, value: Any) -> Any:
        """A copy with anonymous text, also in lists, tables and records; a `Raw` is a log line."""
        if isinstance(value, str):
            return Raw(self.line(value)) if isinstance(value, Raw) else self.known(value)
        if isinstance(value, dict):
            return {key: self.of(each) for key, each in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.of, value))
        if isinstance(value, tuple | list):
            return type(value)(map(self.of, value))
        if is_dataclass(value) and not isinstance(value, type):
            return type(value)(**{f.name: self.of(getattr(value, f.name)) for f in fields(value)})
        return value

    def _addresses(self, text: str) -> str:
        text = _ADDRESS.sub(lambda m: self._named("host", m[0].rpartition("/")[2]), text)
        return _HOST.sub(lambda m: self._host(m[0]), text)

    def _host(self, name: str) -> str:
        is_ours = name in self._made or _is_usual(name) or _STAMP.match(name)
        return name if is_ours or _FILE.search(name) else self._named("host", name)

    def _client(self, name: str) -> str:
        is_number = re.fullmatch(r"-?\d+", name) is not None
        return name if is_number or name in self._made else self._named("client", name)

    def _token(self, token: str) -> str | None:
        """The stand-in of a known name, which a partition or a period may follow."""
        bare = token.rstrip(".")
        if bare in self._names:
            return self._names[bare] + token[len(bare) :]
        match = _OF_TOPIC.fullmatch(bare)
        if match and match[1] in self._topics:
            return f"{self._names[match[1]]}-{match[2]}{token[len(bare) :]}"
        return token if bare in self._made else None

    def _word(self, token: str) -> str:
        """A word of a line, kept if it is a number or a word of Kafka's, else its stand-in."""
        match = _OF_TOPIC.fullmatch(token)
        if match and match[1] in self._made:
            return token
        return token if _is_usual(token) else self._named("name", token)

    def _part(self, part: str) -> str:
        """The stand-in of a part of a log's path: a folder is often named after its host."""
        if _PLAIN.fullmatch(part) or _is_log_file(part):
            return part
        stem, point, end = part.partition(".")
        kept = f".{end}" if point and _is_log_file(f"server.{end}") else ""
        return self._named("file" if kept else "folder", stem if kept else part) + kept

    def _named(self, kind: str, name: str) -> str:
        if name not in self._names:
            self._names[name] = self._new(kind)
        return self._names[name]

    def _new(self, kind: str) -> str:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._made.add(f"{kind}-{self._counts[kind]}")
        return f"{kind}-{self._counts[kind]}"


def _is_log_file(name: str) -> bool:
    match = _LOG_FILE.fullmatch(name)
    return match is not None and match[1] is not None


def _is_usual(token: str) -> bool:
    """Whether all its words occur in Kafka's own lines."""
    if _PACKAGES.fullmatch(token) or re.fullmatch(r"[A-Za-z]?", token):
        return True
    words = [word.lower() for word in _WORD.findall(token)]
    return token.isascii() and _vocabulary().issuperset(words)


@cache
def _vocabulary() -> frozenset[str]:
    """The words in the reader's tables, including comments and examples."""
    texts = [files("isrlab_ops.logs.reader").joinpath(name).read_text("utf-8") for name in TABLES]
    words = {word.lower() for text in texts for word in _WORD.findall(text)}
    return frozenset(words | {"ms", "true", "false", "null", "none", "fenced"})
