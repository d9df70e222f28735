"""A leader on its own: the test plays its followers, its clients, the controller and the clock."""

from __future__ import annotations

from isrlab.engine import broker as machine
from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.isr import is_pending, maybe_expand_isr, pending
from isrlab.engine.log import LeaderEpochCache, Log, Record
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
            epochs=log.epochs.truncate_from_start(offset),
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
        if of_follower:
            return self._see_follower(int(number), of_follower)
        return getattr(self, f"_see_{name}")()

    def _see_follower(self, number: int, name: str) -> object:
        remote = self.role.remote(number)
        assert remote is not None
        facts = {
            "leo": remote.log_end_offset,
            "caught_up": remote.last_caught_up_time_ms,
            "fetched": remote.last_fetch_time_ms,
            "end_then": remote.last_fetch_leader_end_offset,
            "broker_epoch": remote.broker_epoch,
        }
        value = facts[name]
        if name in ("caught_up", "fetched"):
            return value - T0 if value else None
        return value

    def _see_leo(self) -> int:
        return self.broker.log.log_end_offset

    def _see_hw(self) -> int:
        return self.broker.log.high_watermark

    def _see_isr(self) -> tuple[int, ...]:
        return tuple(sorted(self.role.isr))

    def _see_maximal(self) -> tuple[int, ...]:
        return tuple(sorted(self.role.maximal_isr))

    def _see_pending(self) -> tuple[int, ...] | None:
        """The ISR that is asked for and not answered."""
        if not is_pending(self.broker):
            return None
        out = getattr(pending(self.broker), "leaving", ())
        return tuple(i for i in sorted(self.role.maximal_isr) if i not in out)

    def _see_asked(self) -> tuple[int, ...] | None:
        """The ISR of the last request, whether it was answered or not."""
        return tuple(sorted(self.requests[-1].isr)) if self.requests else None

    def _see_asked_epochs(self) -> dict[int, int]:
        return dict(zip(self.requests[-1].isr, self.requests[-1].broker_epochs, strict=True))

    def _see_requests(self) -> int:
        return len(self.requests)

    def _see_partition_epoch(self) -> int:
        return self.role.partition_epoch

    def _see_epoch(self) -> int:
        return self.broker.leader_epoch

    def _see_is_committed(self) -> bool:
        return isinstance(self.role.isr_state, CommittedIsr)

    def _see_notices(self) -> int:
        return self.notices

    def _see_produced(self) -> list[str | None]:
        """The answers to clients so far: an error's name, or None for success."""
        return [a.error for a in self.answers]

    def _see_response(self) -> object:
        """The answer to the last fetch: an error, a diverging epoch, its records, or None yet."""
        if not self.responses:
            return None
        answer = self.responses[-1]
        return answer.error or answer.diverging or len(answer.records)

    def _see_response_hw(self) -> int | None:
        return self.responses[-1].high_watermark if self.responses else None

    def _see_verdict(self) -> object:
        """How the last fetch would be answered: an error, a diverging epoch, or "read"."""
        error, diverging = examine_fetch(self.broker, self.fetched)
        return error or diverging or "read"

    def _see_epochs(self) -> tuple[tuple[int, int], ...]:
        return self.broker.log.epochs.entries

    def _see_end_of_epoch(self) -> tuple[int, int]:
        """Where the leader's own epoch ends."""
        cache: LeaderEpochCache = self.broker.log.epochs
        end = self.broker.log.log_end_offset
        return cache.end_offset_for(self.broker.leader_epoch, end, self.version)
