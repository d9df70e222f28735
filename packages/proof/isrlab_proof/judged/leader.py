"""The engine's leader, driven by the commands of a schedule."""

from typing import Any

from isrlab.engine import broker as machine
from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.isr import is_pending
from isrlab.engine.log import Record
from isrlab.engine.model import Broker, Leader, Settings
from isrlab.engine.versions import KafkaVersion

T0 = 1_000_000
LEADER = 1
REPLICAS = (1, 2, 3, 4)
Seen = dict[str, Any]  # the visible values of a machine, by name


class LeaderPlayer:
    """Broker 1 of the engine and its messages; the schedule plays all other machines."""

    def __init__(self, version: KafkaVersion, **settings: object) -> None:
        chosen = Settings.of(version, **settings)
        self.broker, _ = machine.start(Broker(LEADER, version, chosen, REPLICAS))
        self.now_ms = T0
        self.request = self.asked = 0
        self.is_up = True
        self.answers: dict[int, str | None] = {}  # request of an acks=all produce -> error
        self.waiting: set[int] = set()  # acks=all produces
        self.newest: dict[int, int] = {}  # replica -> request number of its last fetch
        self.parked: dict[int, object] = {}  # replica -> the result of a fetch that had to wait
        self.response: object = None

    def do(self, name: str, *words: Any) -> None:
        self.response = None
        getattr(self, name)(*words)

    # The commands

    def order(self, epoch: int, partition_epoch: int, isr: list[int], leader: int = 1) -> None:
        self._step(m.LeaderAndIsr(leader, epoch, tuple(isr), partition_epoch, REPLICAS))

    def brokers(self, *known: list[Any]) -> None:
        self._step(m.UpdateMetadata(tuple(m.BrokerInfo(*each) for each in known)))

    def append(self, count: int) -> None:
        for _ in range(count):
            self._produce(1)

    def produce(self) -> None:
        self._produce(m.ACKS_ALL)

    def copy(self, count: int, high_watermark: int, epoch: int) -> None:
        """Append records as a follower that copies them from the leader of `epoch`."""
        records = tuple(Record(f"c{epoch}", epoch) for _ in range(count))
        log = self.broker.log.append(records, self.broker.version)
        self.broker = replace(self.broker, log=log.with_high_watermark(high_watermark))

    def fetch(self, replica: int, offset: int, last: int, epoch: int, broker_epoch: int) -> None:
        self.request += 1
        self.newest[replica], self.response = self.request, "waits"
        self._step(m.Fetch(replica, self.request, offset, epoch, last, broker_epoch))
        self.parked.pop(replica, None)
        if self.response == "waits":
            self.parked[replica], self.response = self.response, None

    def wait(self, duration_ms: int) -> None:
        self.now_ms += duration_ms

    def check(self) -> None:
        self._step(m.ExpireIsr())

    def zookeeper(self, is_up: bool) -> None:
        """Up to 2.6: whether the leader's writes to ZooKeeper succeed."""
        self.is_up = is_up

    def answer(self, error: str | None = None) -> None:
        asked = self.broker.unanswered
        if asked is None:
            return
        reply = m.AlterPartitionResponse(asked.request, error=error)
        if not error:
            version = asked.partition_epoch + 1
            reply = m.AlterPartitionResponse(asked.request, asked.leader_epoch, version, asked.isr)
        self._step(reply)

    def _produce(self, acks: int) -> None:
        self.request += 1
        if acks == m.ACKS_ALL and isinstance(self.broker.role, Leader):
            self.waiting.add(self.request)
        self._step(m.Produce(self.request, (f"{self.request}",), acks))

    def _step(self, message: m.Message) -> None:
        self.broker, outputs = machine.step(self.broker, message, self.now_ms)
        for output in outputs:
            if isinstance(output, m.Send):
                self._on_sent(message, output.to, output.message)

    def _on_sent(self, message: m.Message, to: int, sent: Any) -> None:
        """Note an answer: to `message`, or to a request that waited."""
        if isinstance(sent, m.AlterPartition):
            self.asked += 1
            if self.broker.version.writes_zookeeper:
                self.answer(None if self.is_up else "BADVERSION")
        elif isinstance(sent, m.ProduceResponse):
            if sent.request in self.waiting:
                self.answers[sent.request] = sent.error
            if isinstance(message, m.Produce) and sent.request == message.request:
                self.response = sent.error
        elif isinstance(sent, m.FetchResponse) and sent.request == self.newest[to]:
            diverging = list(sent.diverging) if sent.diverging else None
            got = sent.error or diverging or len(sent.records)
            if isinstance(message, m.Fetch) and sent.request == message.request:
                self.response = got
            else:
                self.parked[to] = got

    # What is compared

    def seen(self) -> Seen:
        broker, log = self.broker, self.broker.log
        shown = {
            "leo": log.log_end_offset, "hw": log.high_watermark, "response": self.response or 0,
            "epochs": [list(entry) for entry in log.epochs.entries],
            **answered({k: v for k, v in self.answers.items() if v != "NOT_ENOUGH_REPLICAS"}),
            **{f"fetch of {replica}": got for replica, got in self.parked.items()},
        }  # fmt: skip
        role = broker.role
        if not isinstance(role, Leader):
            return shown
        shown |= {
            "epoch": role.leader_epoch, "partition_epoch": role.partition_epoch,
            "isr": sorted(role.isr), "maximal": sorted(role.maximal_isr),
            "is_pending": is_pending(broker), "asked": self.asked,
        }  # fmt: skip
        for r in role.remotes:
            follower = {
                "leo": r.log_end_offset, "end_then": r.last_fetch_leader_end_offset,
                "caught_up": since(r.last_caught_up_time_ms),
                "fetched": since(r.last_fetch_time_ms), "broker_epoch": r.broker_epoch,
            }  # fmt: skip
            shown |= flat(r.id, follower)
        return shown


def since(time_ms: int) -> int | None:
    return time_ms - T0 if time_ms else None


def flat(number: int, follower: Seen) -> Seen:
    return {f"{number}.{name}": value for name, value in follower.items()}


def answered(produces: dict[int, str | None]) -> Seen:
    return {f"produce {number}": error or "acknowledged" for number, error in produces.items()}
