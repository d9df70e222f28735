"""One replica's log: its records, which of them are on disk, and its leader-epoch cache.

Theory of operation. A log is the records from `log_start_offset` up to, but not including,
`log_end_offset`. Each record has an identity besides its offset: the protocol compares only offsets
and epochs, so only the identity reveals that two replicas hold different records at one offset.

Two things make a restart interesting. Records reach the page cache when they are appended and the
disk when the operating system writes them back; `flushed_end_offset` is the end of what is there. A
killed process loses nothing of the page cache; a power failure loses all that is not on disk.
And the high watermark reaches the disk only as a checkpoint, a few seconds old.

Left out: segments and the offset index (`closeups/segment.py`), compaction, transactions; tiered
storage, which needs the epoch before a given one (previousEpoch). Up to 2.3 a log that was
truncated below its high watermark kept the old value until the next fetch; here, as from 2.4,
truncation lowers it.
"""

from __future__ import annotations

from collections.abc import Iterable

from isrlab.engine.choices import EpochEntry, Truncation
from isrlab.engine.frozen import Frozen, replace
from isrlab.engine.rules import UNKNOWN_EPOCH, UNKNOWN_OFFSET
from isrlab.engine.versions import KafkaVersion


class Record(Frozen):
    """One record: the name a reader gives it and the epoch of the leader that appended it."""

    id: str
    leader_epoch: int


class LeaderEpochCache(Frozen):
    """Where each leader epoch begins: (epoch, start offset) pairs, both ascending.

    Source: LeaderEpochFileCache, 0.11.0.2:59-165, 2.0.1:51-190, 3.7.1 (Java):60-340.
    """

    entries: tuple[tuple[int, int], ...] = ()

    @property
    def latest_epoch(self) -> int:
        return self.entries[-1][0] if self.entries else UNKNOWN_EPOCH

    def assign(self, epoch: int, start_offset: int, version: KafkaVersion) -> LeaderEpochCache:
        """Note that `epoch` begins at `start_offset`; 2.0.1+ drops entries that contradict it."""
        if version.epoch_entry == EpochEntry.NONE:
            return self
        last_epoch, last_start = self.entries[-1] if self.entries else (UNKNOWN_EPOCH, 0)
        if version.epoch_entry == EpochEntry.ON_APPEND:
            if epoch <= last_epoch or start_offset < last_start:
                return self
            return LeaderEpochCache((*self.entries, (epoch, start_offset)))
        if self.entries and epoch == last_epoch and start_offset >= last_start:
            return self
        kept = tuple((e, s) for e, s in self.entries if e < epoch and s < start_offset)
        return LeaderEpochCache((*kept, (epoch, start_offset)))

    def end_offset_for(
        self, epoch: int, log_end_offset: int, version: KafkaVersion
    ) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and where it ends; (-1, -1) if that is unknown.

        An epoch before the first ends where the first begins (2.0.1+); 0.11-1.1 give no epoch.
        """
        if not self.entries or epoch == UNKNOWN_EPOCH:
            return UNKNOWN_EPOCH, UNKNOWN_OFFSET
        one_round = version.truncation == Truncation.EPOCH_ONE_ROUND
        if epoch == self.latest_epoch:
            return UNKNOWN_EPOCH if one_round else epoch, log_end_offset
        later = [start for e, start in self.entries if e > epoch]
        earlier = [e for e, _ in self.entries if e <= epoch]
        if not later or (version.epoch_entry == EpochEntry.ON_APPEND and not earlier):
            return UNKNOWN_EPOCH, UNKNOWN_OFFSET
        if one_round:
            return UNKNOWN_EPOCH, later[0]
        return earlier[-1] if earlier else epoch, later[0]

    def truncate_from_end(self, end_offset: int) -> LeaderEpochCache:
        """The cache without epochs that begin at or beyond `end_offset`; ignored if negative."""
        if end_offset < 0:
            return self
        return LeaderEpochCache(tuple((e, s) for e, s in self.entries if s < end_offset))

    def truncate_from_start(self, start_offset: int) -> LeaderEpochCache:
        """The cache of a log that begins at `start_offset` (truncateFromStart)."""
        before = [e for e, s in self.entries if s <= start_offset]
        after = tuple((e, s) for e, s in self.entries if s > start_offset)
        return LeaderEpochCache((*((e, start_offset) for e in before[-1:]), *after))


class Log(Frozen):
    """A replica's log. End offsets and the high watermark are exclusive."""

    records: tuple[Record, ...] = ()
    log_start_offset: int = 0
    high_watermark: int = 0
    flushed_end_offset: int = 0
    checkpointed_high_watermark: int = 0
    epochs: LeaderEpochCache = LeaderEpochCache()

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.records)

    @property
    def _range(self) -> str:
        return f"({self.log_start_offset}..{self.log_end_offset})"

    def record_at(self, offset: int) -> Record | None:
        index = offset - self.log_start_offset
        return self.records[index] if 0 <= index < len(self.records) else None

    def read(self, offset: int, end_offset: int) -> tuple[Record, ...]:
        """The records of [offset, end_offset). Raises ValueError outside the log."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ValueError(f"offset {offset} is not within {self._range}")
        first = offset - self.log_start_offset
        return self.records[first : max(first, end_offset - self.log_start_offset)]

    def append(self, records: Iterable[Record], version: KafkaVersion) -> Log:
        """The log with `records` at its end; the first record of an epoch opens that epoch."""
        added, epochs = tuple(records), self.epochs
        for offset, record in enumerate(added, start=self.log_end_offset):
            if record.leader_epoch != epochs.latest_epoch:
                epochs = epochs.assign(record.leader_epoch, offset, version)
        return replace(self, records=self.records + added, epochs=epochs)

    def truncate_to(self, end_offset: int) -> Log:
        """The log without the records at or beyond `end_offset`; unchanged if it ends earlier.

        Below its start, the log is empty and begins at `end_offset`. Source: truncateTo, UL 3.7.1.
        """
        if end_offset >= self.log_end_offset:
            return self
        if end_offset < self.log_start_offset:
            return self.restart_at(end_offset)
        return replace(
            self,
            records=self.records[: end_offset - self.log_start_offset],
            high_watermark=min(self.high_watermark, end_offset),
            flushed_end_offset=min(self.flushed_end_offset, end_offset),
            epochs=self.epochs.truncate_from_end(end_offset),
        )

    def without_empty_epochs(self) -> Log:
        """The log without epochs that have no record here: the next leader may not know them."""
        return replace(self, epochs=self.epochs.truncate_from_end(self.log_end_offset))

    def restart_at(self, start_offset: int) -> Log:
        """An empty log that begins at `start_offset` (truncateFullyAndStartAt)."""
        return Log(
            log_start_offset=start_offset,
            high_watermark=start_offset,
            flushed_end_offset=start_offset,
            checkpointed_high_watermark=self.checkpointed_high_watermark,
        )

    def starting_at(self, start_offset: int) -> Log:
        """The log without records before `start_offset` (maybeIncrementLogStartOffset)."""
        if start_offset <= self.log_start_offset:
            return self
        return replace(
            self,
            records=self.records[start_offset - self.log_start_offset :],
            log_start_offset=start_offset,
            flushed_end_offset=max(self.flushed_end_offset, start_offset),
            epochs=self.epochs.truncate_from_start(start_offset),
        )

    def with_high_watermark(self, high_watermark: int) -> Log:
        if not self.log_start_offset <= high_watermark <= self.log_end_offset:
            raise ValueError(f"high watermark {high_watermark} is not within the log {self._range}")
        return replace(self, high_watermark=high_watermark)

    def flush(self) -> Log:
        return replace(self, flushed_end_offset=self.log_end_offset)

    def checkpoint(self) -> Log:
        """The log after its high watermark is written to replication-offset-checkpoint."""
        return replace(self, checkpointed_high_watermark=self.high_watermark)

    def after_power_loss(self) -> Log:
        """The log that the disk still holds: nothing beyond the last flush."""
        return self.truncate_to(self.flushed_end_offset)

    def load(self) -> Log:
        """The log as loaded at a start. Source: P 0.8.2.2:90-95; UL 3.7.1 (constructor)."""
        end = self.log_end_offset
        high_watermark = max(self.log_start_offset, min(self.checkpointed_high_watermark, end))
        epochs = self.epochs.truncate_from_end(end)
        return replace(self, high_watermark=high_watermark, epochs=epochs)
