"""A row of the events table as an object: what a log line, record or simulation reports.

`leader` is the leader of the partition according to this row: the row names it (`replica` of a row
"leader" or "follower", else `detail.leader`), or it is the reporting broker, because only a leader
asks for an ISR and logs that one is stored. -1: there is none; None: the row does not show it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from isrlab.events.names import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa  # which a page in a browser does not have

REQUESTS = ("isr_shrink", "isr_expand")  # a leader asks for them before they are stored
OF_LEADERS = (*REQUESTS, "isr_commit")  # of all brokers, only a leader logs these kinds
METADATA_LOG = "metadata log"  # the value of `detail.said_by` for the source that is never wrong
BROKER_ID = re.compile(r"-?\d{1,10}")
BrokerIds: TypeAlias = tuple[int, ...]


class Key(NamedTuple):
    """A partition of a run."""

    run: str
    topic: str
    partition: int


class Statement(msgspec.Struct, eq=False, gc=False):
    """One row. None: the row does not show the value. Rows are compared by identity.

    The first fields are the columns of the table; `ts_ms` may be moved to a common clock, while
    `printed_ms` stays. `said_by` is empty if `broker` reports about itself. `text` is the line, and
    `above` the message of the line that it continues.
    """

    run: str
    ts_ms: int
    broker: int | None
    topic: str | None
    partition: int | None
    leader_epoch: int | None
    partition_epoch: int | None
    kind: str
    replica: int | None
    isr: BrokerIds | None
    isr_before: BrokerIds | None
    high_watermark: int | None
    log_end_offset: int | None
    detail: dict[str, str]
    said_by: str = ""
    file: str = ""
    line: int = 0
    leader: int | None = None
    printed_ms: int = 0
    text: str = ""
    above: str = ""

    @property
    def key(self) -> Key:
        """The partition; of a row that names none, the key of no partition."""
        return Key(self.run, self.topic, self.partition)  # type: ignore[arg-type]

    @property
    def is_own(self) -> bool:
        """Whether `broker` itself reports the row, not a controller or the metadata log."""
        return not self.said_by

    @property
    def is_exact(self) -> bool:
        """Whether the row comes from the metadata log."""
        return self.said_by == METADATA_LOG

    @property
    def is_request(self) -> bool:
        return self.kind in REQUESTS

    @property
    def is_leaders(self) -> bool:
        """Whether the leader itself reports the row."""
        return not self.said_by and self.broker is not None and self.broker == self.leader

    @property
    def members(self) -> frozenset[int] | None:
        return None if self.isr is None else frozenset(self.isr)

    @property
    def place(self) -> tuple[int, str, int]:
        """The sort key of rows on one clock."""
        return self.ts_ms, self.file, self.line

    def ids(self, name: str) -> BrokerIds:
        """The brokers that `detail` lists under a name; text that cannot be an id is left out."""
        return broker_ids(self.detail.get(name, ""))


Events: TypeAlias = "pa.Table | Sequence[Statement]"


@lru_cache(maxsize=65_536)
def broker_ids(text: str) -> BrokerIds:
    """Ids of brokers, as "1,2" lists them; text that cannot be an id is left out."""
    return tuple(int(each) for each in text.split(",") if each.isdigit() and len(each) < 11)


def statement(**columns: object) -> Statement:
    """A row with these columns; all others are None."""
    return _statement(*map(columns.get, COLUMNS))


def _statement(*values: object) -> Statement:
    row = Statement(*values)  # type: ignore[arg-type]
    detail = row.detail = dict(row.detail or ())
    row.isr = None if row.isr is None else tuple(row.isr)
    row.isr_before = None if row.isr_before is None else tuple(row.isr_before)
    row.said_by, row.file = detail.get("said_by", ""), detail.get("file", "")
    row.line, row.printed_ms = int(detail.get("line", 0)), row.ts_ms
    row.leader = leader_of(row)
    return row


def leader_of(row: Statement) -> int | None:
    """The leader of the partition according to this row; -1 for none, None if not shown."""
    if row.kind in ("leader", "follower"):
        return row.replica
    if row.kind == "offline":
        return -1
    if BROKER_ID.fullmatch(row.detail.get("leader", "")):
        return int(row.detail["leader"])
    return row.broker if not row.said_by and row.kind in OF_LEADERS else None


def statements(events: Events, *kinds: str) -> list[Statement]:
    """The rows of these kinds (without `kinds` all) in a table or list, in its order."""
    if isinstance(events, Sequence):
        return [row for row in events if not kinds or row.kind in kinds]
    if kinds:
        import pyarrow as pa
        import pyarrow.compute as pc

        events = events.filter(pc.is_in(events["kind"], pa.array(kinds)))
    columns = [events[name].to_pylist() for name in COLUMNS]
    return [_statement(*values) for values in zip(*columns, strict=True)]


def table_of(rows: Sequence[Statement]) -> pa.Table:
    """Rows as an Arrow table of the schema."""
    import pyarrow as pa

    from isrlab.events.schema import SCHEMA

    columns = {name: [getattr(row, name) for row in rows] for name in COLUMNS}
    return pa.table(columns, schema=SCHEMA)
