"""A follower on its own: the test plays its leader. And two brokers that talk until they agree."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from cases.leader_bench import T0, log_of
from isrlab.engine import broker as machine
from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.log import Log, Record
from isrlab.engine.model import Broker, Follower, Settings
from isrlab.engine.versions import PRESETS

FOLLOWER = 2


class FollowerBench:
    """Broker 2 follows broker 1 in epoch `epoch`, with the log it is given."""

    def __init__(
        self,
        column: str,
        log: tuple[tuple[int, int], ...] = (),
        hw: int = 0,
        epoch: int = 9,
        **settings: object,
    ) -> None:
        self.version = PRESETS[column]
        disk = replace(log_of(self.version, *log), checkpointed_high_watermark=hw)
        chosen = Settings.of(self.version, **settings)
        self.broker: Broker
        self.broker, _ = machine.start(Broker(FOLLOWER, self.version, chosen, (1, 2), disk))
        self.outputs: tuple[object, ...] = ()
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
        """An answer to an older request."""
        self.step(m.FetchResponse(self.request - 1, 0, (Record("late", 0),), 1))

    def disconnect(self, peer: int = 1) -> None:
        self.step(m.Disconnected(peer))

    def look(self) -> None:
        """Nothing happens."""

    def step(self, message: object) -> None:
        self.broker, self.outputs = machine.step(self.broker, message, T0)

    # What may be seen

    @property
    def role(self) -> Follower:
        assert isinstance(self.broker.role, Follower)
        return self.broker.role

    @property
    def request(self) -> int:
        return self.role.request

    def see(self, name: str) -> object:
        return FACTS[name](self)

    @property
    def sent(self) -> list[m.Message]:
        return [output.message for output in self.outputs if isinstance(output, m.Send)]


def _asks(bench: FollowerBench) -> object:
    """What went out now: (kind, offset or epoch it names), or None."""
    if not bench.sent:
        return None
    about = {m.Fetch: "offset", m.OffsetsForLeaderEpoch: "epoch", m.ListOffsets: "replica"}
    message = bench.sent[-1]
    return type(message).__name__, getattr(message, about[type(message)])


def _backs_off_ms(bench: FollowerBench) -> int | None:
    pauses = [output.delay_ms for output in bench.outputs if isinstance(output, m.After)]
    return pauses[-1] if pauses and not bench.sent else None


FACTS: dict[str, Callable[[FollowerBench], object]] = {
    "leo": lambda b: b.broker.log.log_end_offset,
    "start": lambda b: b.broker.log.log_start_offset,
    "hw": lambda b: b.broker.log.high_watermark,
    "epochs": lambda b: b.broker.log.epochs.entries,
    "epoch": lambda b: b.broker.leader_epoch,
    "partition_epoch": lambda b: b.role.partition_epoch,
    "leader": lambda b: b.role.leader,
    "is_waiting": lambda b: b.role.is_waiting,
    "asks": _asks,
    "last_fetched_epoch": lambda b: b.sent[0].last_fetched_epoch,
    "halts": lambda b: any(isinstance(output, m.Halt) for output in b.outputs),
    "backs_off_ms": _backs_off_ms,
}


class PairBench:
    """Broker 1 leads, broker 2 follows; what they send each other is delivered at once, in turn.

    A parked fetch expires when nothing else is on its way, so the two always end up idle.
    """

    def __init__(
        self,
        column: str,
        leader: Log,
        follower: Log,
        leader_epoch: int,
        epoch: int | None = None,
        most: int = 100,
    ) -> None:
        version, chosen = PRESETS[column], Settings.of(PRESETS[column])
        self.brokers = {
            i: machine.start(Broker(i, version, chosen, (1, 2), log))[0]
            for i, log in ((1, leader), (2, follower))
        }
        self.most = most
        self.delivered: list[tuple[int, object]] = []
        self.truncations = 0
        self.order(1, leader_epoch)
        self.order(2, leader_epoch if epoch is None else epoch)

    def order(self, broker: int, epoch: int) -> None:
        # ISR of the leader alone: the follower's progress is all that moves
        self.give(broker, m.LeaderAndIsr(1, epoch, (1,), epoch, (1, 2)))

    def give(self, target: int, message: object) -> None:
        queue = deque([(target, message)])
        while queue and len(self.delivered) < self.most:
            number, what = queue.popleft()
            before = self.brokers[number].log.log_end_offset
            self.brokers[number], outputs = machine.step(self.brokers[number], what, T0)
            self.truncations += self.brokers[number].log.log_end_offset < before
            self.delivered.append((number, what))
            queue.extend((o.to, o.message) for o in outputs if isinstance(o, m.Send) and o.to > 0)

    def run(self) -> None:
        """Let parked fetches expire until they bring nothing new."""
        for _ in range(5):
            parked = self.brokers[1].role.parked  # type: ignore[union-attr]
            for waiting in parked:
                self.give(1, m.ExpireFetch(waiting.fetch.replica, waiting.fetch.request))

    @property
    def logs(self) -> tuple[Log, Log]:
        return self.brokers[1].log, self.brokers[2].log

    @property
    def are_equal(self) -> bool:
        one, other = self.logs
        return one.records == other.records and one.high_watermark == other.high_watermark
