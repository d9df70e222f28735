"""A leader on its own: the test plays its followers, its clients, the controller and the clock."""

from __future__ import annotations

from collections.abc import Callable

from isrlab.engine import broker as machine
from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.isr import is_pending, maybe_expand_isr, pending
from isrlab.engine.log import Log, Record
from isrlab.engine.model import Broker, CommittedIsr, Leader, Settings
from isrlab.engine.reading import examine_fetch
from isrlab.engine.rules import UNKNOWN_EPOCH
from isrlab.engine.versions import PRESETS, KafkaVersion

T0 = 1_000_000
LEADER = 1


def log_of(version: KafkaVersion, *epochs: tuple[int, int]) -> Log:
    """A log by runs of records: (epoch, count). A name tells epoch and offset."""
    log = Log()
    for epoch, count in epochs:
        end = log.log_end_offset
        names = [Record(f"{epoch}:{o}", epoch) for o in range(end, end + count)]
        log = log.append(names, version)
    return log


class LeaderBench:
    """Broker 1 leads epoch 5 from t0, with `leo` records of epoch 4, as most of Kafka's tests do.

    A ZooKeeper-era ISR write succeeds at once unless `cas_fails`; a request to the controller
    waits for `answer`. Times that are seen are relative to t0; a clock of 0 is None.
    """

    def __init__(
        self,
        column: str,
        leo: int = 0,
        replicas: tuple[int, ...] = (1, 2),
        isr: tuple[int, ...] | None = None,
        log: tuple[tuple[int, int], ...] | None = None,
        hw: int = 0,
        epoch: int = 5,
        rules: dict[str, object] | None = None,
        **settings: object,
    ) -> None:
        self.version = PRESETS[column].with_(**rules) if rules else PRESETS[column]
        settings = {"replica_lag_time_max_ms": 30_000} | settings
        disk = log_of(self.version, *(log or ((4, leo),)))
        disk = replace(disk, checkpointed_high_watermark=hw)
        chosen = Settings.of(self.version, **settings)
        self.broker: Broker
        self.broker, _ = machine.start(Broker(LEADER, self.version, chosen, replicas, disk))
        self.now_ms = T0
        self.cas_fails = False
        self.requests: list[m.AlterPartition] = []
        self.notices = 0
        self.answers: list[m.ProduceResponse] = []
        self.responses: list[m.FetchResponse] = []
        self.sent: list[object] = []
        self.next_request = 100
        self.brokers({})
        self.order(epoch, 1, isr or replicas, replicas)

    # What may be done

    def order(
        self,
        epoch: int,
        partition_epoch: int,
        isr: tuple[int, ...],
        replicas: tuple[int, ...] | None = None,
        leader: int = LEADER,
    ) -> None:
        replicas = replicas or self.broker.replicas
        self.step(m.LeaderAndIsr(leader, epoch, isr, partition_epoch, replicas))

    def brokers(self, odd: dict[int, tuple[int, bool]]) -> None:
        """The metadata: all brokers live in epoch 0, but for `odd`: id -> (epoch, is active)."""
        known = [m.BrokerInfo(i, *odd.get(i, (0, True))) for i in range(1, 6)]
        self.step(m.UpdateMetadata(tuple(known)))

    def fetch(
        self,
        replica: int,
        offset: int,
        last_epoch: int = UNKNOWN_EPOCH,
        epoch: int = UNKNOWN_EPOCH,
        broker_epoch: int = UNKNOWN_EPOCH,
    ) -> None:
        self.next_request += 1
        self.responses = []
        fetch = m.Fetch(replica, self.next_request, offset, epoch, last_epoch, broker_epoch)
        self.fetched = fetch
        self.step(fetch)

    def append(self, count: int, acks: int = 1) -> None:
        self.next_request += 1
        end = self.broker.log.log_end_offset
        names = tuple(f"r{o}" for o in range(end, end + count))
        self.step(m.Produce(self.next_request, names, acks))

    def wait(self, duration_ms: int) -> None:
        self.now_ms += duration_ms

    def at(self, time_ms: int) -> None:
        self.now_ms = T0 + time_ms

    def check(self) -> None:
        """The isr-expiration task runs."""
        self.step(m.ExpireIsr())

    def tick(self) -> None:
        """The isr-change-propagation task runs."""
        self.step(m.PropagateIsrChanges())

    def expire_fetch(self) -> None:
        self.step(m.ExpireFetch(self.fetched.replica, self.fetched.request))

    def expire_produce(self) -> None:
        self.step(m.ExpireProduce(self.next_request))

    def answer(self, error: str | None = None) -> None:
        """The controller answers the ISR change that is on its way."""
        asked = self.requests[-1]
        if error:
            self.step(m.AlterPartitionResponse(asked.request, error=error))
            return
        epoch, version = asked.leader_epoch, asked.partition_epoch + 1
        self.step(m.AlterPartitionResponse(asked.request, epoch, version, asked.isr))

    def zookeeper(self, works: bool) -> None:
        self.cas_fails = not works

    def log_starts_at(self, offset: int) -> None:
        """Older records are deleted."""
        log = self.broker.log
        cut = replace(
            log,
            records=log.records[offset - log.log_start_offset :],
            log_start_offset=offset,
            high_watermark=max(offset, log.high_watermark),
        )
        self.broker = replace(self.broker, log=cut)

    def try_expand(self, replica: int) -> None:
        """The ISR test alone, on what the leader knows of the replica now."""
        remote = self.role.remote(replica)
        assert remote is not None
        self.broker, outputs = maybe_expand_isr(self.broker, remote, self.now_ms)
        assert not outputs

    def look(self) -> None:
        """Nothing happens."""

    def step(self, message: object) -> None:
        self.broker, outputs = machine.step(self.broker, message, self.now_ms)
        for output in outputs:
            if isinstance(output, m.Send):
                self._receive(output.message)

    def _receive(self, message: object) -> None:
        self.sent.append(message)
        if isinstance(message, m.ProduceResponse):
            self.answers.append(message)
        elif isinstance(message, m.FetchResponse):
            self.responses.append(message)
        elif isinstance(message, m.IsrChangeNotification):
            self.notices += 1
        elif isinstance(message, m.AlterPartition):
            self.requests.append(message)
            if self.version.writes_zookeeper:
                self.answer("BADVERSION" if self.cas_fails else None)

    # What may be seen

    @property
    def role(self) -> Leader:
        assert isinstance(self.broker.role, Leader)
        return self.broker.role

    def see(self, name: str) -> object:
        """One fact: "hw", or of a follower "2.leo"."""
        number, _, of_follower = name.partition(".")
        if not of_follower:
            return FACTS[name](self)
        remote = self.role.remote(int(number))
        assert remote is not None
        value = getattr(remote, OF_FOLLOWER[of_follower])
        if not of_follower.endswith(("caught_up", "fetched")):
            return value
        return value - T0 if value else None


def _pending(bench: LeaderBench) -> tuple[int, ...] | None:
    """The ISR that is asked for and not answered."""
    is_asked = is_pending(bench.broker)
    return tuple(sorted(pending(bench.broker).proposed_isr)) if is_asked else None


def _response(bench: LeaderBench) -> object:
    """The answer to the last fetch: an error, a diverging epoch, its records, or None yet."""
    if not bench.responses:
        return None
    answer = bench.responses[-1]
    return answer.error or answer.diverging or len(answer.records)


def _verdict(bench: LeaderBench) -> object:
    """How the last fetch would be answered: an error, a diverging epoch, or "read"."""
    error, diverging = examine_fetch(bench.broker, bench.fetched)
    return error or diverging or "read"


def _end_of_epoch(bench: LeaderBench) -> tuple[int, int]:
    """Where the leader's own epoch ends."""
    log, epoch = bench.broker.log, bench.broker.leader_epoch
    return log.epochs.end_offset_for(epoch, log.log_end_offset, bench.version)


FACTS: dict[str, Callable[[LeaderBench], object]] = {
    "leo": lambda b: b.broker.log.log_end_offset,
    "hw": lambda b: b.broker.log.high_watermark,
    "epochs": lambda b: b.broker.log.epochs.entries,
    "end_of_epoch": _end_of_epoch,
    "isr": lambda b: tuple(sorted(b.role.isr)),
    "maximal": lambda b: tuple(sorted(b.role.maximal_isr)),
    "pending": _pending,
    "asked": lambda b: tuple(sorted(b.requests[-1].isr)) if b.requests else None,
    "asked_epochs": lambda b: dict(
        zip(b.requests[-1].isr, b.requests[-1].broker_epochs, strict=True)
    ),
    "requests": lambda b: len(b.requests),
    "partition_epoch": lambda b: b.role.partition_epoch,
    "epoch": lambda b: b.broker.leader_epoch,
    "is_committed": lambda b: isinstance(b.role.isr_state, CommittedIsr),
    "notices": lambda b: b.notices,
    "produced": lambda b: [answer.error for answer in b.answers],  # None is success
    "response": _response,
    "response_hw": lambda b: b.responses[-1].high_watermark if b.responses else None,
    "verdict": _verdict,
}
OF_FOLLOWER = {
    "leo": "log_end_offset",
    "caught_up": "last_caught_up_time_ms",
    "fetched": "last_fetch_time_ms",
    "end_then": "last_fetch_leader_end_offset",
    "broker_epoch": "broker_epoch",
}
