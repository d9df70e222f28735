"""The TRACE lines of a real leader, replayed through the engine's leader.

The lines show when each fetch came and which offset it asked for, when the log had grown, when the
leader checked its followers, and the controller's answers. The engine's leader gets only these
inputs, and must produce the same high watermarks in the same order, and the same ISR changes.

A fetch that moves the high watermark logs that first and its own position afterwards, and threads
may interleave, so only the order of the high watermarks is compared, not their place among fetches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from eras.faults import REPLICAS
from eras.kept import Recording
from isrlab.engine import broker as machine
from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.log import Log, Record
from isrlab.engine.model import Broker, Leader, Settings
from isrlab.engine.versions import KafkaVersion

Row = dict[str, Any]


@dataclass
class Leadership:
    """One broker that leads one partition in one epoch: Kafka's lines and the engine's results."""

    broker: int
    partition: int
    leader_epoch: int
    start_ms: int
    of_kafka: list[int] = field(default_factory=list)  # high watermarks, in order
    of_engine: list[int] = field(default_factory=list)
    isrs_of_kafka: list[set[int]] = field(default_factory=list)  # stored ones, in order
    isrs_of_engine: list[set[int]] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)  # shrinks that only one of them asks for
    fetches: int = 0


def agrees(each: Leadership) -> bool:
    same = each.of_kafka == each.of_engine and each.isrs_of_kafka == each.isrs_of_engine
    return same and not each.differences


def leaderships(
    recording: Recording, rows: list[Row], news_ms: int = 0, version: str | None = None
) -> list[Leadership]:
    """Every leadership of a recording, from its lines in order; by the rules of its release."""
    ended: list[Leadership] = []
    for broker in (1, 2, 3):
        own = [r for r in rows if _concerns(r, broker)]
        for partition, replicas in enumerate(REPLICAS):
            mine = [r for r in own if r["partition"] in (None, partition)]
            replay = Replay(version or recording.version, recording.lag_ms, replicas, news_ms)
            ended += replay.play(mine)
    return ended


def _concerns(row: Row, broker: int) -> bool:
    detail = row["detail"]
    if detail.get("said_by") == "controller":
        return row["kind"] in ("crash", "restart") or detail.get("sign") == "stop_asked"
    return row["broker"] == broker and detail["file"].startswith(f"broker-{broker}/")


class Replay:
    """Replays the lines of one broker about one partition, in order; `leaderships`: the results."""

    def __init__(
        self, version: str, lag_ms: int, replicas: tuple[int, ...], news_ms: int = 0
    ) -> None:
        self.version = KafkaVersion.of(version)
        self.lag_ms, self.replicas = lag_ms, replicas
        self.news_ms = news_ms  # how long after the controller's line a broker knows
        self.news: list[Row] = []  # lines of which the broker does not know yet
        self.leaderships: list[Leadership] = []
        self.machine: Broker | None = None
        self.order: Row | None = None  # the last LeaderAndIsr that it logged
        self.asked: list[m.AlterPartition] = []
        self.inactive: set[int] = set()
        self.epochs = dict.fromkeys(replicas, 0)  # of the brokers, as the metadata has them
        self.number = 0

    @property
    def now(self) -> Leadership:
        return self.leaderships[-1]

    @property
    def role(self) -> Leader | None:
        role = self.machine.role if self.machine else None
        return role if isinstance(role, Leader) else None

    # The lines, by kind

    def play(self, rows: list[Row]) -> list[Leadership]:
        for index, row in enumerate(rows):
            kind = row["kind"]
            while self.news and self.news[0]["ts_ms"] + self.news_ms <= row["ts_ms"]:
                self.hear_of(self.news.pop(0))
            if row["detail"].get("said_by") == "controller":
                self.news.append(row)
            elif kind == "leader":
                self.lead(row, rows[index + 1 :])
            elif kind in ("restart", "follower"):
                self.machine = None
            elif kind == "metadata" and row["isr"]:
                self.learn(row)
            elif self.role is not None and (act := getattr(self, f"on_{kind}", None)):
                act(row)
        return self.leaderships

    def hear_of(self, row: Row) -> None:
        """Learn that a broker was fenced, shut down or unfenced, as in KRaft from the metadata."""
        if row["replica"] in self.replicas:
            change = self.inactive.discard if row["kind"] == "restart" else self.inactive.add
            change(row["replica"])
            self.epochs[row["replica"]] = int(row["detail"].get("broker_epoch", 0))
            if self.machine:
                self.tell_who_lives(row["ts_ms"])

    def learn(self, row: Row) -> None:
        """Take an order of the controller, or in KRaft what it has stored in the leader's epoch."""
        self.order = row
        is_leader = row["detail"].get("leader") == str(row["broker"])
        if not is_leader:
            self.machine = None
        elif (
            self.role and self.version.kraft and row["partition_epoch"] > self.role.partition_epoch
        ):
            self.step(self.order_of(row), row["ts_ms"])
            self.on_isr_commit(row)  # the answer itself comes later, and is not logged

    def order_of(self, row: Row) -> m.LeaderAndIsr:
        known = self.order or {}
        epoch = row["leader_epoch"] if row["leader_epoch"] is not None else known["leader_epoch"]
        isr = tuple(row["isr"] or known["isr"])
        version = next(
            (r["partition_epoch"] for r in (row, known) if r.get("partition_epoch") is not None), 0
        )
        return m.LeaderAndIsr(row["broker"], epoch, isr, version, self.replicas)

    def lead(self, row: Row, after: list[Row]) -> None:
        order = self.order_of(row)
        own = next((r for r in after if r["kind"] == "position" and "ends" in r["detail"]), None)
        end, mark = row["log_end_offset"], row["high_watermark"]
        if end is None and own:
            end = own["log_end_offset"]
        self.leaderships.append(
            Leadership(row["broker"], row["partition"], order.leader_epoch, row["ts_ms"])
        )
        if self.machine is None:
            if mark is None:
                mark = self.mark_before(after)
            self.machine = self.made(row["broker"], end or 0, mark or 0)
            self.tell_who_lives(row["ts_ms"])
        self.grow(end or 0, row["ts_ms"])
        self.kafka_has(list(order.isr))
        self.step(order, row["ts_ms"])
        asked = self.machine.unanswered
        if asked is not None:  # its answer has also come: up to 3.5 a smaller ISR is a new epoch
            epochs = asked.leader_epoch, asked.partition_epoch + 1
            self.step(m.AlterPartitionResponse(asked.request, *epochs, asked.isr), row["ts_ms"])

    def mark_before(self, after: list[Row]) -> int:
        """The high watermark before the next line that shows it, for a step that logs none."""
        kinds = "high_watermark", "position"
        said = (r for r in after if r["kind"] in kinds and r["high_watermark"] is not None)
        first = next(said)
        return int(first["high_watermark"]) - (first["kind"] == "high_watermark")

    def made(self, broker: int, end: int, mark: int) -> Broker:
        settings = Settings.of(
            self.version, replica_lag_time_max_ms=self.lag_ms, min_insync_replicas=2
        )
        log = Log().append([Record(f"r{o}", 0) for o in range(end)], self.version)
        log = replace(log, checkpointed_high_watermark=mark)
        made, _ = machine.start(Broker(broker, self.version, settings, self.replicas, log))
        return made

    def tell_who_lives(self, now_ms: int) -> None:
        known = (m.BrokerInfo(i, self.epochs[i], i not in self.inactive) for i in self.replicas)
        self.step(m.UpdateMetadata(tuple(known)), now_ms)

    def on_position(self, row: Row) -> None:
        if row["replica"] == row["broker"]:
            self.grow(row["log_end_offset"], row["ts_ms"])
            return
        offset = row["log_end_offset"]
        if offset < 0:
            return
        self.now.fetches += 1
        self.grow(offset, row["ts_ms"])
        self.number += 1
        epoch = self.epochs[row["replica"]]
        fetch = m.Fetch(row["replica"], self.number, offset, broker_epoch=epoch, max_wait_ms=0)
        self.step(fetch, row["ts_ms"])

    def grow(self, end: int, now_ms: int) -> None:
        """Append clients' records up to this end, if the log is shorter."""
        assert self.machine is not None
        here = self.machine.log.log_end_offset
        if end > here:
            self.number += 1
            names = tuple(f"r{offset}" for offset in range(here, end))
            self.step(m.Produce(self.number, names, 1), now_ms)

    def on_high_watermark(self, row: Row) -> None:
        self.grow(row["high_watermark"], row["ts_ms"])
        self.now.of_kafka.append(row["high_watermark"])

    def on_isr_shrink(self, row: Row) -> None:
        """Let the engine check its followers; note a difference unless it asks for the same ISR."""
        before = len(self.asked)
        self.step(m.ExpireIsr(), row["ts_ms"])
        proposed = {frozenset(request.isr) for request in self.asked[before:]}
        if proposed != {frozenset(row["isr"])}:
            found = [sorted(isr) for isr in proposed]
            self.now.differences.append(f"{row['ts_ms']} shrinks to {row['isr']}, engine: {found}")

    def on_isr_commit(self, row: Row) -> None:
        """Give the engine the controller's answer, if it waits for one with this ISR."""
        assert self.machine is not None and self.role is not None
        self.kafka_has(row["isr"])
        asked = self.machine.unanswered
        if asked is not None and set(asked.isr) == set(row["isr"]):
            epochs = asked.leader_epoch, row["partition_epoch"]
            answer = m.AlterPartitionResponse(asked.request, *epochs, tuple(row["isr"]))
            self.step(answer, row["ts_ms"])

    def kafka_has(self, isr: list[int]) -> None:
        if set(isr) not in self.now.isrs_of_kafka[-1:]:
            self.now.isrs_of_kafka.append(set(isr))

    # The engine

    def step(self, message: m.Message, now_ms: int) -> None:
        assert self.machine is not None
        mark = self.machine.log.high_watermark
        was_leader = self.role is not None
        self.machine, outputs = machine.step(self.machine, message, now_ms)
        if self.machine.log.high_watermark != mark and (self.role or was_leader):
            self.now.of_engine.append(self.machine.log.high_watermark)
        if self.role and set(self.role.isr) not in self.now.isrs_of_engine[-1:]:
            self.now.isrs_of_engine.append(set(self.role.isr))
        for output in outputs:
            if isinstance(output, m.Send) and isinstance(output.message, m.AlterPartition):
                self.asked.append(output.message)
                if self.version.writes_zookeeper:
                    asked = output.message
                    answer = m.AlterPartitionResponse(
                        asked.request, asked.leader_epoch, asked.partition_epoch + 1, asked.isr
                    )
                    self.step(answer, now_ms)
