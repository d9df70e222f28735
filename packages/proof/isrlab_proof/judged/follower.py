"""The engine's follower, driven by a schedule, which answers its requests."""

from typing import Any

from isrlab.engine import broker as machine
from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.log import Log, Record
from isrlab.engine.model import Broker, Follower, Settings
from isrlab.engine.versions import KafkaVersion
from isrlab_proof.judged.leader import T0, Seen

FOLLOWER = 1
LEADERS = (2, 3)
REPLICAS = (FOLLOWER, *LEADERS)
FollowerRequest = m.Fetch | m.OffsetsForLeaderEpoch | m.ListOffsets
ANSWERS = {
    m.Fetch: m.FetchResponse,
    m.OffsetsForLeaderEpoch: m.EpochEndOffset,
    m.ListOffsets: m.ListOffsetsResponse,
}


class FollowerPlayer:
    """Broker 1 of the engine and the one request that it has in flight; the schedule answers it."""

    def __init__(self, version: KafkaVersion, **settings: object) -> None:
        chosen = Settings.of(version, **settings)
        self.broker, _ = machine.start(Broker(FOLLOWER, version, chosen, REPLICAS))
        self.question: FollowerRequest | None = None  # the request in flight
        self.retry: m.RetryRequest | None = None  # or the timer after which it sends another
        self.asked: list[Any] | None = None  # the request that this command answered
        self.has_halted = False

    def do(self, name: str, *words: Any) -> None:
        self.asked = None
        if not self.has_halted:
            getattr(self, name)(*words)

    # The commands

    def log(self, epochs: list[list[int]], high_watermark: int) -> None:
        """Begin with these records, as (epoch, count)."""
        records = [Record(f"a{epoch}", epoch) for epoch, count in epochs for _ in range(count)]
        log = Log().append(records, self.broker.version).with_high_watermark(high_watermark)
        self.broker = replace(self.broker, log=log.checkpoint())

    def follow(self, leader: int, epoch: int, partition_epoch: int) -> None:
        isr = (leader, FOLLOWER)
        self._step(m.LeaderAndIsr(leader, epoch, isr, partition_epoch, REPLICAS))

    def lead(self, epoch: int, partition_epoch: int, count: int) -> None:
        """Lead in `epoch`, and append `count` records that no follower copies."""
        isr = (FOLLOWER, *LEADERS)
        self._step(m.LeaderAndIsr(FOLLOWER, epoch, isr, partition_epoch, REPLICAS))
        self.question = self.retry = None
        self._step(m.Produce(0, tuple(f"b{epoch}" for _ in range(count)), 1))

    def fetched(self, base: int, records: list[list[Any]], high_watermark: int) -> None:
        made = tuple(Record(name, epoch) for name, epoch in records)
        self._answer(m.FetchResponse, base_offset=base, records=made, high_watermark=high_watermark)

    def diverges(self, base: int, epoch: int, end_offset: int) -> None:
        self._answer(m.FetchResponse, base_offset=base, diverging=(epoch, end_offset))

    def ends(self, epoch: int, end_offset: int) -> None:
        self._answer(m.EpochEndOffset, epoch=epoch, end_offset=end_offset)

    def range(self, start: int, end: int) -> None:
        """Answer that the fetch is out of range: the leader's log goes from `start` to `end`."""
        self._answer(m.FetchResponse, base_offset=0, error="OFFSET_OUT_OF_RANGE")
        asked = self.asked
        if isinstance(self.question, m.ListOffsets):
            self._answer(m.ListOffsetsResponse, log_start_offset=start, log_end_offset=end)
        self.asked = asked

    def error(self, name: str) -> None:
        if isinstance(self.asking(), m.OffsetsForLeaderEpoch):
            self._answer(m.EpochEndOffset, error=name)
        else:
            self._answer(m.FetchResponse, base_offset=0, error=name)

    def lost(self) -> None:
        """Break the connection before the answer."""
        question = self.asking()
        if question is not None and isinstance(self.broker.role, Follower):
            self.asked = said(question)
            self._step(m.Disconnected(self.broker.role.leader))

    def asking(self) -> FollowerRequest | None:
        """The request in flight, or else the one that it sends after its back-off."""
        if self.retry is not None:
            retry, self.retry = self.retry, None
            self._step(retry)
        return self.question

    def _answer(self, kind: Any, **words: Any) -> None:
        question = self.asking()
        if question is not None and kind is not ANSWERS[type(question)]:
            self.lost()  # the schedule answers another kind of request
        elif question is not None:
            self.asked = said(question)
            self._step(kind(request=question.request, **words))

    def _step(self, message: m.Message) -> None:
        before = self.broker.last_request
        self.broker, outputs = machine.step(self.broker, message, T0)
        self.has_halted |= any(isinstance(o, m.Halt) for o in outputs)
        sent = [o.message for o in outputs if isinstance(o, m.Send)]
        pauses = [o.message for o in outputs if isinstance(o, m.After)]
        self.question = next((x for x in sent if isinstance(x, FollowerRequest)), self.question)
        if self.broker.last_request == before:  # no new request: it retries later, or never
            self.retry = next((x for x in pauses if isinstance(x, m.RetryRequest)), self.retry)
        else:
            self.retry = None
        role = self.broker.role
        if not isinstance(role, Follower) or role.is_waiting or self.has_halted:
            self.question = self.retry = None

    # What is compared

    def seen(self) -> Seen:
        log = self.broker.log
        role = self.broker.role
        return {
            "start": log.log_start_offset,
            "log": " ".join(record.id for record in log.records),
            "hw": log.high_watermark,
            "epochs": [list(entry) for entry in log.epochs.entries],
            "asked": self.asked,
            "copies": isinstance(role, Follower) and not (role.is_waiting or self.has_halted),
        }


def said(question: FollowerRequest) -> list[Any]:
    """A request as a list: its kind, then the fields that are compared."""
    if isinstance(question, m.Fetch):
        return ["fetch", question.offset, question.leader_epoch, question.last_fetched_epoch]
    if isinstance(question, m.OffsetsForLeaderEpoch):
        return ["epoch", question.epoch, question.leader_epoch]
    return ["range"]
