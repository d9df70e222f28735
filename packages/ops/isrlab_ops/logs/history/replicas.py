"""The replicas of a partition over time, as log lines show them.

They are those of the last line that names them all (an assignment), else the brokers that were in
the ISR or had a log so far: there may be more. A broker that deletes its log is no replica.
"""

import re
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from isrlab.events.statements import Statement

ANEW_MS = 10_000  # a topic created this long after its last line is a new topic
TOPIC_ID = re.compile(r"[\w-]{22}")


class KnownReplicas:
    """The replicas of a partition, updated row by row."""

    def __init__(self, rows: Sequence[Statement]) -> None:
        self.seen: set[int] = set()
        self.assigned: set[int] = set()  # empty: no line has named them all
        self.gone: set[int] = set()  # brokers that deleted their log
        self._news, newest = deque[Statement](), -1
        for row in rows:  # lines about an older version are late
            epoch = newest if row.partition_epoch is None else row.partition_epoch
            is_late, newest = epoch < newest, max(newest, epoch)
            is_host = row.kind in ("hosted", "unhosted") and row.replica is not None
            if is_host or (row.detail.get("replicas") and not is_late):
                self._news.append(row)

    @property
    def now(self) -> set[int]:
        return (self.assigned or self.seen) - self.gone

    def next_ms(self) -> int | None:
        return self._news[0].ts_ms if self._news else None

    def advance(self, ms: int) -> None:
        """Take in the rows up to a moment."""
        while self._news and self._news[0].ts_ms <= ms:
            row = self._news.popleft()
            if row.kind == "hosted" and row.replica is not None:
                self.seen.add(row.replica)
                self.gone.discard(row.replica)
            elif row.kind == "unhosted" and row.replica is not None:
                self.gone.add(row.replica)
            else:
                self.assigned = set(row.ids("replicas"))
                if not row.detail.get("adding"):  # nothing must catch up first
                    self.assigned -= set(row.ids("removing"))


class Incarnation(NamedTuple):
    """The rows of one of several topics that had the same name, and the row that shows the end of
    the previous one (None: no row does)."""

    rows: list[Statement]
    after: Statement | None = None


def topic_id(row: Statement) -> str | None:
    """The id that a row names: by itself, or as "Some(...)"."""
    match = TOPIC_ID.search(row.detail.get("topic_id", ""))
    return match[0] if match else None


def incarnations_of_topic(rows: Sequence[Statement]) -> list[Incarnation]:
    """Each topic that had this name, one after the other.

    Each has an id of its own, which lines name from 2.8 on. Without a metadata log a topic
    counts as deleted when all members of its last ISR delete their logs.
    """
    incarnations = [Incarnation([])]
    ids: list[str | None] = [None]  # of each of them, as far as it is known
    last_ms: dict[int | None, int] = {}  # when each broker last logged a version above 0
    isr, gone, is_over = {-1}, set[int | None](), False
    heard = set[int | None]()  # the brokers that have heard of the current topic
    for row in rows:
        if row.kind == "unhosted":
            gone.add(row.replica)
        elif row.kind == "hosted":
            gone.discard(row.replica)
        elif row.kind in ("isr_commit", "leader", "metadata") and row.isr:
            isr = set(row.isr)
        epochs = (row.partition_epoch, row.leader_epoch)
        known = [epoch for epoch in epochs if epoch is not None]
        # A controller that starts logs the creation of each partition again: ignore that.
        is_new = row.is_own or row.detail.get("from_state") == "NewPartition"
        is_first = bool(known) and not any(known) and row.kind == "leader" and is_new
        spoke_ms, named = last_ms.get(row.broker), topic_id(row) or ids[-1]
        is_anew = is_first and spoke_ms is not None and row.ts_ms > spoke_ms + ANEW_MS
        is_anew |= ids[-1] not in (None, named)
        if named in ids[:-1] or (is_over and (not known or any(known))):
            continue  # late news
        if row.is_request and ids[1:] and row.broker not in heard:
            continue  # of a leader that paused meanwhile
        is_over = row.kind == "deleted" or (row.kind == "unhosted" and not isr - gone)
        if is_over or is_anew:
            incarnations.append(Incarnation([], row if is_over else None))
            ids.append(None)
            last_ms, gone, heard = {}, set(), set()
        if row.is_own and row.kind in ("hosted", "leader", "follower", "metadata"):
            heard.add(row.broker)
        if any(known):
            last_ms[row.broker] = row.ts_ms
        if not is_over:
            incarnations[-1].rows.append(row)
            ids[-1] = named
    return incarnations
