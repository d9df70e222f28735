"""The settings that a process prints when it starts, near the beginning of a log."""

import re

NAMES = (b"broker.id", b"node.id", b"advertised.listeners", b"listeners", b"min.insync.replicas")
_PAIRS = [re.compile(re.escape(name) + rb"(?= = ([^\s\"\\]+))") for name in NAMES]  # found fast
_NAME = re.compile(rb"\b(" + b"|".join(map(re.escape, NAMES)) + rb")\Z")
_CREATED = re.compile(
    rb"Created log for partition ([A-Za-z0-9._-]{1,249})-\d+ in \S+ with properties \{"
    rb"[^}]*?min\.insync\.replicas=(\d{1,4})"
)


def printed_in(data: bytes) -> list[tuple[str, str]]:
    """Names and values, in order; min.insync.replicas of a topic under "topic NAME"."""
    pairs = []
    for at, value in sorted({(m.start(1), m[1]) for p in _PAIRS for m in p.finditer(data)}):
        if name := _NAME.search(data, max(0, at - 27), at - 3):
            pairs.append((name[1].decode(), value.decode("ascii", "replace")))
    return pairs + [(f"topic {t.decode()}", n.decode()) for t, n in _CREATED.findall(data)]
