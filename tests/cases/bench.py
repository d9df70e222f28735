"""A single leader, follower or controller; the test plays all other machines and the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from cases.table import Case, play, read
from isrlab.engine import broker as machine
from isrlab.engine import controller as controller_machine
from isrlab.engine import kraft
from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.isr import is_pending, maybe_expand_isr, pending
from isrlab.engine.log import Log, Record
from isrlab.engine.model import NO_LEADER, Broker, Settings
from isrlab.engine.partition import Controller, PartitionState
from isrlab.engine.rules import UNKNOWN_EPOCH
from isrlab.engine.versions import PRESETS, KafkaVersion

T0 = 1_000_000
LEADER, FOLLOWER = 1, 2


def log_of(version: KafkaVersion, *epochs: tuple[int, int]) -> Log:
    """A log, given as (epoch, count) for each run of records named "epoch:offset"."""
    log = Log()
    for epoch, count in epochs:
        end = log.log_end_offset
        names = [Record(f"{epoch}:{o}", epoch) for o in range(end, end + count)]
        log = log.append(names, version)
    return log


class Bench:
    """A broker that has started with a given log and high watermark; `outputs`: its last step's."""

    FACTS: ClassVar[dict[str, Callable[[Any], object]]] = {
        "leo": lambda b: b.broker.log.log_end_offset,
        "start": lambda b: b.broker.log.log_start_offset,
        "hw": lambda b: b.broker.log.high_watermark,
        "epochs": lambda b: b.broker.log.epochs.entries,
        "epoch": lambda b: b.broker.leader_epoch,
        "partition_epoch": lambda b: b.role.partition_epoch,
        "backs_off_ms": lambda b: b.backs_off_ms(),
    }

    def __init__(
        self, number: int, column: str, replicas: tuple[int, ...], disk: Log, **settings: object
    ) -> None:
        self.version = PRESETS[column]
        chosen = Settings.of(self.version, **settings)
        self.broker: Broker
        self.broker, _ = machine.start(Broker(number, self.version, chosen, replicas, disk))
        self.now_ms = T0
        self.outputs: tuple[m.Output, ...] = ()

    @property
    def role(self) -> Any:
        return self.broker.role

    def backs_off_ms(self) -> int | None:
        """How long the leader waits before a retry; None if it sent something or does not wait."""
        pauses = [output.delay_ms for output in self.outputs if isinstance(output, m.After)]
        return pauses[-1] if pauses and not self.sent else None

    @property
    def sent(self) -> list[m.Message]:
        return [output.message for output in self.outputs if isinstance(output, m.Send)]

    def look(self) -> None:
        """Do nothing."""

    def step(self, message: object) -> None:
        self.broker, self.outputs = machine.step(self.broker, message, self.now_ms)

    def see(self, name: str) -> object:
        return self.FACTS[name](self)


class LeaderBench(Bench):
    """Broker 1 leads epoch 5 from t0, with `leo` records of epoch 4, as most of Kafka's tests do.

    A ZooKeeper-era ISR write succeeds unless `cas_fails`; a request to the controller
    waits for `answer`. `see` gives times relative to t0, and None for a clock of 0.
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
        **settings: object,
    ) -> None:
        disk = log_of(PRESETS[column], *(log or ((4, leo),)))
        disk = replace(disk, checkpointed_high_watermark=hw)
        settings = {"replica_lag_time_max_ms": 30_000} | settings
        super().__init__(LEADER, column, replicas, disk, **settings)
        self.cas_fails = False
        self.requests: list[m.AlterPartition] = []
        self.notices = 0
        self.answers: list[m.ProduceResponse] = []
        self.responses: list[m.FetchResponse | m.EpochEndOffset] = []
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
        """Metadata: all brokers are active in epoch 0, except `odd`: id -> (epoch, is active)."""
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

    def ask_epoch(self, epoch: int, leader_epoch: int = UNKNOWN_EPOCH) -> None:
        self.responses = []
        self.step(m.OffsetsForLeaderEpoch(FOLLOWER, 1, epoch, leader_epoch))

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
        """Run the isr-expiration task."""
        self.step(m.ExpireIsr())

    def tick(self) -> None:
        """Run the isr-change-propagation task."""
        self.step(m.PropagateIsrChanges())

    def expire_fetch(self) -> None:
        self.step(m.ExpireFetch(self.fetched.replica, self.fetched.request))

    def expire_produce(self) -> None:
        self.step(m.ExpireProduce(self.next_request))

    def answer(self, error: str | None = None) -> None:
        """Deliver the controller's answer to the ISR change in flight."""
        asked = self.requests[-1]
        if error:
            self.step(m.AlterPartitionResponse(asked.request, error=error))
            return
        epoch, version = asked.leader_epoch, asked.partition_epoch + 1
        self.step(m.AlterPartitionResponse(asked.request, epoch, version, asked.isr))

    def lose_controller(self) -> None:
        """Fail the whole request for the ISR change."""
        self.step(m.Disconnected(m.CONTROLLER))

    def resend(self) -> None:
        """End the back-off after the controller was lost."""
        self.step(m.RetryAlterPartition())

    def zookeeper(self, works: bool) -> None:
        self.cas_fails = not works

    def log_starts_at(self, offset: int) -> None:
        """Delete the records before an offset."""
        log = self.broker.log
        cut = replace(
            log,
            records=log.records[offset - log.log_start_offset :],
            log_start_offset=offset,
            high_watermark=max(offset, log.high_watermark),
        )
        self.broker = replace(self.broker, log=cut)

    def try_expand(self, replica: int) -> None:
        """Test only whether the replica joins the ISR, by the leader's current knowledge of it."""
        self.broker, outputs = maybe_expand_isr(self.broker, self.role.remote(replica), self.now_ms)
        assert not outputs

    def step(self, message: object) -> None:
        super().step(message)
        for sent in self.sent:
            if isinstance(sent, m.ProduceResponse):
                self.answers.append(sent)
            elif isinstance(sent, m.FetchResponse | m.EpochEndOffset):
                self.responses.append(sent)
            elif isinstance(sent, m.IsrChangeNotification):
                self.notices += 1
            elif isinstance(sent, m.AlterPartition):
                self.requests.append(sent)
                if self.version.writes_zookeeper:
                    self.answer("BADVERSION" if self.cas_fails else None)

    # What may be seen

    def see(self, name: str) -> object:
        """The value of a fact: "hw", or for a follower "2.leo"."""
        number, _, of_follower = name.partition(".")
        if not of_follower:
            return super().see(name)
        value = getattr(self.role.remote(int(number)), OF_FOLLOWER[of_follower])
        if not of_follower.endswith(("caught_up", "fetched")):
            return value
        return value - T0 if value else None

    def response(self) -> object:
        """The last answer: an error, a diverging epoch, an epoch's end, a record count, or None."""
        if not self.responses:
            return None
        answer = self.responses[-1]
        if isinstance(answer, m.EpochEndOffset):
            return answer.error or (answer.epoch, answer.end_offset)
        return answer.error or answer.diverging or len(answer.records)

    FACTS = Bench.FACTS | {
        "isr": lambda b: tuple(sorted(b.role.isr)),
        "maximal": lambda b: tuple(sorted(b.role.maximal_isr)),
        "pending": lambda b: (
            tuple(sorted(pending(b.broker).proposed_isr)) if is_pending(b.broker) else None
        ),
        "asked": lambda b: tuple(sorted(b.requests[-1].isr)) if b.requests else None,
        "asked_epochs": lambda b: dict(
            zip(b.requests[-1].isr, b.requests[-1].broker_epochs, strict=True)
        ),
        "requests": lambda b: len(b.requests),
        "notices": lambda b: b.notices,
        "produced": lambda b: [answer.error for answer in b.answers],  # None is success
        "response": response,
        "response_hw": lambda b: b.responses[-1].high_watermark if b.responses else None,
    }


OF_FOLLOWER = {
    "leo": "log_end_offset",
    "caught_up": "last_caught_up_time_ms",
    "fetched": "last_fetch_time_ms",
    "end_then": "last_fetch_leader_end_offset",
    "broker_epoch": "broker_epoch",
}


class FollowerBench(Bench):
    """Broker 2, which follows broker 1 in `epoch` and starts with the given log."""

    def __init__(
        self,
        column: str,
        log: tuple[tuple[int, int], ...] = (),
        hw: int = 0,
        epoch: int = 9,
        **settings: object,
    ) -> None:
        disk = replace(log_of(PRESETS[column], *log), checkpointed_high_watermark=hw)
        super().__init__(FOLLOWER, column, (1, 2), disk, **settings)
        self.order(epoch)

    # What may be done

    def order(self, epoch: int, leader: int = 1, partition_epoch: int = 1) -> None:
        self.step(m.LeaderAndIsr(leader, epoch, (1, 2), partition_epoch, (1, 2)))

    def data(self, count: int, hw: int, epoch: int = 9) -> None:
        end = self.broker.log.log_end_offset
        records = tuple(Record(f"{epoch}:{end + i}", epoch) for i in range(count))
        self.step(m.FetchResponse(self.request, end, records, hw))

    def fetch_fails(self, error: str) -> None:
        self.step(m.FetchResponse(self.request, self.broker.log.log_end_offset, error=error))

    def diverging(self, epoch: int, end_offset: int) -> None:
        end = self.broker.log.log_end_offset
        self.step(m.FetchResponse(self.request, end, diverging=(epoch, end_offset)))

    def epoch_ends(self, epoch: int, end_offset: int) -> None:
        self.step(m.EpochEndOffset(self.request, epoch, end_offset))

    def epoch_fails(self, error: str) -> None:
        self.step(m.EpochEndOffset(self.request, error=error))

    def offsets(self, start: int, end: int) -> None:
        self.step(m.ListOffsetsResponse(self.request, start, end))

    def retry(self) -> None:
        self.step(m.RetryRequest(self.request))

    def late_data(self) -> None:
        """Deliver an answer to an older request."""
        self.step(m.FetchResponse(self.request - 1, 0, (Record("late", 0),), 1))

    def disconnect(self, peer: int = 1) -> None:
        self.step(m.Disconnected(peer))

    # What may be seen

    @property
    def request(self) -> int:
        return self.role.request

    def asks(self) -> object:
        """The last request of this step, as (kind, its offset or epoch), or None."""
        if not self.sent:
            return None
        about = {m.Fetch: "offset", m.OffsetsForLeaderEpoch: "epoch", m.ListOffsets: "replica"}
        message = self.sent[-1]
        return type(message).__name__, getattr(message, about[type(message)])

    FACTS = Bench.FACTS | {
        "leader": lambda b: b.role.leader,
        "is_waiting": lambda b: b.role.is_waiting,
        "asks": asks,
        "last_fetched_epoch": lambda b: b.sent[0].last_fetched_epoch,
        "halts": lambda b: any(isinstance(output, m.Halt) for output in b.outputs),
    }


ANSWERS = m.AlterPartitionResponse | m.ElectLeadersResponse


class ControllerBench:
    """One partition in leader epoch 100 and partition epoch 200; live brokers have epoch 7."""

    def __init__(
        self,
        column: str,
        replicas: tuple[int, ...] = (2, 1, 3),
        isr: tuple[int, ...] | None = None,
        leader: int = 1,
        alive: tuple[int, ...] | None = None,
        unclean: bool = False,
        min_isr: int = 2,
        **state: object,
    ) -> None:
        version = PRESETS[column]
        settings = Settings.of(
            version, unclean_leader_election_enable=unclean, min_insync_replicas=min_isr
        )
        live = (m.BrokerInfo(i, 7) for i in sorted(replicas if alive is None else alive))
        stored = PartitionState(replicas, leader, replicas if isr is None else isr, 100, 200)
        self.before = self.after = Controller(
            version, settings, replace(stored, **state), tuple(live)
        )
        self.sent: list[m.Send] = []

    # What may be done

    def tell(self, kind: str, *fields: object) -> None:
        message = getattr(m, kind)(*fields)
        after, outputs = controller_machine.step(self.after, message, 0)
        self._become(after)
        self.sent = [output for output in outputs if isinstance(output, m.Send)]
        assert {o.message for o in self.sent if isinstance(o.message, m.LeaderAndIsr)} <= {
            after.order
        }
        for answer in self.answers:
            assert answer.to == getattr(message, "broker", m.CLIENT)
            assert after == self.before or not answer.message.error

    def change(self, isr: tuple[int, ...], doubtful: tuple[int, ...] = ()) -> None:
        """Let KRaft change the ISR to a target; the disks of `doubtful` may have lost data."""
        self._become(kraft.change(self.after, "preferred", doubtful, isr=isr))
        assert (self.after is self.before) is (self.after.state == self.before.state)

    def _become(self, after: Controller) -> None:
        self.before, self.after = self.after, after
        before, state = self.before.state, after.state
        has_changed = replace(state, partition_epoch=before.partition_epoch) != before
        assert state.partition_epoch - before.partition_epoch == has_changed

    def wants(
        self,
        isr: tuple[int, ...],
        broker_epochs: tuple[int, ...] | None = None,
        is_recovering: bool = False,
    ) -> None:
        """Let the leader ask for this ISR."""
        state, epochs = self.after.state, broker_epochs or tuple(7 for _ in isr)
        numbers = state.leader_epoch, state.partition_epoch
        self.tell("AlterPartition", state.leader, 5, *numbers, isr, epochs, is_recovering)

    def fence(self, *brokers: int) -> None:
        for broker in brokers:
            self.tell("SessionExpired", broker, 7)

    def unfence(self, *brokers: int) -> None:
        for broker in brokers:
            self.tell("RegisterBroker", broker, 7)

    # What may be seen

    @property
    def answers(self) -> list[m.Send]:
        return [output for output in self.sent if isinstance(output.message, ANSWERS)]

    def see(self, name: str) -> object:
        if name == "bumps":
            return self.after.leader_epoch - self.before.leader_epoch
        if name == "is_unclean":
            return self.after.leader not in (NO_LEADER, *self.before.isr)
        if name == "error":
            return self.answers[-1].message.error
        if name == "answer":
            answer = self.answers[-1].message
            return answer.leader_epoch, answer.partition_epoch, answer.isr
        if name in ("orders", "told"):
            kind = m.LeaderAndIsr if name == "orders" else m.UpdateMetadata
            return sorted(output.to for output in self.sent if isinstance(output.message, kind))
        if name == "told_inactive":
            known = next(o.message for o in self.sent if isinstance(o.message, m.UpdateMetadata))
            return [broker.id for broker in known.brokers if not broker.is_active]
        return getattr(self.after.state, name)


# The bench that plays each file of cases
BENCHES: dict[str, Callable[..., Any]] = {
    "leader": LeaderBench, "isr": LeaderBench, "kafka_leader": LeaderBench,
    "follower": FollowerBench, "kafka_truncation": FollowerBench,
    "controller": ControllerBench, "elr": ControllerBench,
}  # fmt: skip


def results(version: KafkaVersion) -> dict[str, str]:
    """By case: the first step whose facts differ under these rules, or ""; for notebook 24."""
    newest: dict[tuple[str, str], tuple[str, Case]] = {}
    for file in BENCHES:
        for case in read(file):
            columns = sorted(letter for letter in case.columns if letter <= version.column)
            if columns and columns[-1] >= newest.get((file, case.id), ("",))[0]:
                newest[file, case.id] = columns[-1], case
    usual, PRESETS[version.column] = PRESETS[version.column], version
    seen = {}
    try:
        for (file, name), (_, case) in newest.items():
            try:
                play(BENCHES[file](version.column, **case.setup), case.steps)
                seen[f"{file} {name}"] = ""
            except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
                seen[f"{file} {name}"] = str(error) or "it cannot be played"
    finally:
        PRESETS[version.column] = usual
    return seen
