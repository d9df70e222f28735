"""A follower on its own: the test plays its leader. And two brokers that talk until they agree."""

from __future__ import annotations

from collections import deque

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
        return getattr(self, f"_see_{name}")()

    def _see_leo(self) -> int:
        return self.broker.log.log_end_offset

    def _see_start(self) -> int:
        return self.broker.log.log_start_offset

    def _see_hw(self) -> int:
        return self.broker.log.high_watermark

    def _see_epochs(self) -> tuple[tuple[int, int], ...]:
        return self.broker.log.epochs.entries

    def _see_epoch(self) -> int:
        return self.broker.leader_epoch

    def _see_partition_epoch(self) -> int:
        return self.role.partition_epoch

    def _see_leader(self) -> int:
        return self.role.leader

    def _see_is_waiting(self) -> bool:
        return self.role.is_waiting

    def _see_asks(self) -> object:
        """What went out now: (kind, offset or epoch it names), or None."""
        sent = [o.message for o in self.outputs if isinstance(o, m.Send)]
        if not sent:
            return None
        about = {m.Fetch: "offset", m.OffsetsForLeaderEpoch: "epoch", m.ListOffsets: "replica"}
        return type(sent[-1]).__name__, getattr(sent[-1], about[type(sent[-1])])

    def _see_last_fetched_epoch(self) -> int:
        fetch = next(o.message for o in self.outputs if isinstance(o, m.Send))
        return fetch.last_fetched_epoch  # type: ignore[attr-defined]

    def _see_halts(self) -> bool:
        return any(isinstance(o, m.Halt) for o in self.outputs)

    def _see_backs_off_ms(self) -> int | None:
        pauses = [o.delay_ms for o in self.outputs if isinstance(o, m.After)]
        return pauses[-1] if pauses and self._see_asks() is None else None


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
