"""A second, deliberately dumb fleet: millisecond by millisecond, every partition in every fetch.

It shares only the description of the model with the kernel: the rules are written a second time,
the state is plain objects, and nothing is skipped or cached. It is the judge in
`test_fleet_kernel.py` and the slow half of the benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SAMPLE_MS = 10

# The columns of the preset matrix that have each form of a rule, written a second time
CHECKS_ONCE_PER_LAG_TIME = "AB"
COUNTS_FRESH_CLOCKS = "CDEFGHIJKLMNOP"
COUNTS_WHO_IS_AT_THE_END = "LMNOP"
HOLDS_UNDER_MIN_ISR = "NOP"
FORGETS_WHO_IS_DOWN = "MNOP"
SPARES_WHO_IS_AT_THE_END = "EFGHIJKLMNOP"
LOOKS_AT_EVERY_FETCH = "ABCDE"
PUSHES_HIGH_WATERMARK = "FG"
WRITES_ZOOKEEPER = "ABCDEFGH"
LOOKS_AFTER_ANSWER = "KLMNOP"
NEW_EPOCH_WHEN_REMOVED = "ABCDEFGHIJKL"
KEEPS_CLOCKS_IN_NEW_EPOCH = "B"
FORGETS_ENDS_IN_NEW_EPOCH = "A"
FORGETS_FETCHES_OF_OUTSIDERS = "L"
JOINS_FROM_START_OF_EPOCH = "EFGHIJKLMNOP"
FETCHES_WHEN_REMOVED = "LMNOP"
SENDS_AWAY_FORMER_EPOCH = "EFGHIJKLMNOP"


@dataclass
class Follower:
    """One follower of one partition, as seen by its leader and by itself."""

    end: int = 0  # its own log end
    seen: int = 0  # the log end the leader knows
    clock: int = 0  # when last caught up, by the version's rule
    today: int = 0  # when last caught up, by the rule of 0.10.2 and later
    fetched: int = 0  # when it last fetched
    counted: int = 0  # the last fetch that the clocks count, or the start of the leader's epoch
    leader_end: int = 0  # the leader's log end at that time
    announced: int = 0  # the leader's high watermark at the last fetch
    turn: int = 0
    thread: int = 0


@dataclass
class Partition:
    """One partition of the leader."""

    end: int = 0
    high_watermark: int = 0
    isr: set[int] = field(default_factory=set)
    wanted: set[int] | None = None  # ISR of the change in flight
    epoch: int = 0
    leader_epoch: int = 0
    epoch_start: int = 0  # log end when the leader's epoch began
    acks_all: bool = False
    followers: list[Follower] = field(default_factory=list)
    waiting: list[tuple[int, int, int]] = field(default_factory=list)  # sent, tried, offset
    held: list[tuple[int, int]] = field(default_factory=list)  # sent, records


@dataclass
class Thread:
    """One fetcher thread."""

    stalls: list[tuple[int, ...]]
    next_ms: int
    parked: bool = False
    news: bool = False  # a high watermark that the parked fetch has not seen
    down_until_ms: int = 0
    touched: bool = False  # something was appended for the parked fetch
    unsent: int = 0  # billionths of a byte that a shared link has yet to carry
    work: int = 0  # ms that the thread needs for this answer


ORDINARY = {
    "min_bytes": 1,
    "shared_links": (),
    "leader_stalls": [],
    "restarts": [],
    "acks_all": False,
    "timeout_ms": 30_000,
    "delivery_ms": 0,
    "backlog": 0,
    "empty": (),
}
NEVER_MS, LATE_MS = -(2**40), 2**40


class NaiveCell:
    """A leader and its followers, run one millisecond at a time.

    `thread_of[partition][slot]` names the thread; `arrivals` are (ms, partition, records).
    `ORDINARY` has the values of missing `settings`.
    """

    def __init__(self, column, settings, thread_of, stalls, arrivals, record_bytes):
        self.column, self.settings, self.record_bytes = column, ORDINARY | settings, record_bytes
        slots = len(thread_of[0])
        self.partitions = [
            Partition(isr=set(range(slots)), followers=[Follower(thread=t) for t in row])
            for row in thread_of
        ]
        self.threads = [Thread(rows, settings["latency_ms"]) for rows in stalls]
        self.read_by = [
            [p for p in self.partitions if any(f.thread == number for f in p.followers)]
            for number in range(len(stalls))
        ]
        self.arrivals: dict[int, list[tuple[int, int]]] = {}
        for ms, partition, records in arrivals:
            self.arrivals.setdefault(ms, []).append((partition, records))
        self.events, self.samples, self.turns, self.partition_fetches = [], [], 0, 0
        self.in_flight, self.waiting, self.answer_ms = [], [], None
        self.waited = []
        for partition in self.partitions:
            self.begin(partition)

    def begin(self, partition):
        """Give the backlog to all replicas except new ones."""
        partition.acks_all = self.settings["acks_all"]
        partition.end = partition.high_watermark = self.settings["backlog"]
        for slot, follower in enumerate(partition.followers):
            if follower.thread in self.settings["empty"]:
                partition.isr.discard(slot)
                follower.clock = follower.today = follower.fetched = NEVER_MS
                follower.counted = NEVER_MS
            else:
                follower.end = follower.seen = follower.announced = partition.end

    def run(self, until_ms, first_tick_ms):
        """Run the cell; returns its event rows, in the kernel's order of columns."""
        period = self.settings["lag_ms"] // (1 if self.column in CHECKS_ONCE_PER_LAG_TIME else 2)
        period = max(1, period)
        for now in range(until_ms):
            self.give_up(now)
            for rate, first, past in self.settings["shared_links"]:
                self.send_on(rate, self.threads[first:past], now)
            self.controller(now)
            for number in (thread for ms, thread, _ in self.settings["restarts"] if ms == now):
                self.restart(number, now)
            for partition, records in self.arrivals.get(now, []):
                self.produce(partition, records, now)
            for number, thread in enumerate(self.threads):
                self.turn_of_thread(number, thread, now)
            self.answer_news(now)
            if now >= first_tick_ms and (now - first_tick_ms) % period == 0:
                for partition in range(len(self.partitions)):
                    self.expire(partition, now)
            self.answer_news(now)
            if now % SAMPLE_MS == 0:
                self.look(now)
        return self.events

    def look(self, now):
        """Record the state of partition 0 at the end of this millisecond."""
        first = self.partitions[0]
        ends = (follower.seen for follower in first.followers)
        self.samples.append((now, first.end, first.high_watermark, bits(first.isr), *ends))

    def produce(self, index, records, now):
        """Append a batch, or refuse it if the ISR is too small for its producer."""
        partition = self.partitions[index]
        if partition.acks_all and 1 + len(partition.isr) < self.settings["min_isr"]:
            self.fail(now, 4, index, -1)
            if self.settings["delivery_ms"]:
                partition.held.append((now, records))
        else:
            self.append(index, records, now, now)

    def append(self, index, records, sent, now):
        partition = self.partitions[index]
        for follower in partition.followers:
            self.threads[follower.thread].touched = True
        partition.end += records
        if partition.acks_all:
            partition.waiting.append((sent, now, partition.end))
        self.look_at_high_watermark(index, now)

    def give_up(self, now):
        """Fail the produces that have waited too long."""
        for index, partition in enumerate(self.partitions):
            for produce in list(partition.waiting):
                if produce[1] + self.settings["timeout_ms"] <= now:
                    partition.waiting.remove(produce)
                    self.fail(now, 6, index, produce[2])
            for produce in list(partition.held):
                if produce[0] + self.settings["delivery_ms"] <= now:
                    partition.held.remove(produce)
                    self.fail(now, 7, index, -1)

    def fail(self, now, kind, index, end):
        self.events.append((now, kind, index, 0, 0, 0, -1, end, 0, 0, 0, 0, 0))

    def restart(self, number, now):
        """Take down the broker of a thread; the controller removes it from every ISR."""
        thread = self.threads[number]
        restarts = {row[:2]: row[2] for row in self.settings["restarts"]}
        thread.down_until_ms = restarts[now, number]
        if self.column not in FETCHES_WHEN_REMOVED and not thread.parked:
            back_ms = thread.down_until_ms + self.settings["latency_ms"]
            thread.next_ms = max(thread.next_ms, back_ms)
        for index, partition in enumerate(self.partitions):
            slots = {s for s, f in enumerate(partition.followers) if f.thread == number}
            if partition.wanted is not None:
                partition.wanted -= slots
            if slots & partition.isr:
                partition.epoch += 1
                self.emit(index, 3, partition.isr, partition.isr - slots, now)
                partition.isr -= slots
                if self.column in NEW_EPOCH_WHEN_REMOVED:
                    self.begin_epoch(partition, now)
            if slots:
                self.look_at_high_watermark(index, now)

    def begin_epoch(self, partition, now):
        """Begin a new epoch of the same leader. ISR members get new clocks; in A all, in B none."""
        partition.leader_epoch += 1
        partition.epoch_start = partition.end
        for slot, follower in enumerate(partition.followers):
            thread = self.threads[follower.thread]
            if thread.parked and self.column in SENDS_AWAY_FORMER_EPOCH:
                thread.next_ms = now
            if self.column in KEEPS_CLOCKS_IN_NEW_EPOCH:
                continue
            is_outside = slot not in partition.isr
            follower.leader_end, follower.counted, follower.clock = partition.end, now, now
            if self.column in FORGETS_ENDS_IN_NEW_EPOCH:
                follower.seen = -1
            elif is_outside:
                follower.clock = NEVER_MS
            if is_outside and self.column in FORGETS_FETCHES_OF_OUTSIDERS:
                follower.counted = NEVER_MS

    def is_busy(self, now):
        """Whether the leader is stalled, so that it reads nothing."""
        return any(start <= now < end for start, end in self.settings["leader_stalls"])

    def turn_of_thread(self, number, thread, now):
        """Answer a parked fetch if there is data or its wait is over, or receive a new fetch."""
        if self.is_busy(now):
            return
        mine = self.read_by[number]
        if thread.parked:
            if self.is_woken(number, mine) or now >= thread.next_ms:
                self.answer(number, thread, mine, now)
        elif now >= thread.next_ms:
            thread.news = thread.touched = False
            for index, partition in enumerate(self.partitions):
                for slot, follower in enumerate(partition.followers):
                    if follower.thread == number:
                        self.position(index, slot, now)
            if thread.news or self.any_data(mine, number):
                self.answer(number, thread, mine, now)
            else:
                thread.parked = True
                thread.next_ms = now + self.settings["wait_ms"]

    def answer_news(self, now):
        """Answer the parked fetches for which data or news has come in this ms."""
        for number, thread in enumerate(self.threads):
            mine = self.read_by[number]
            if thread.parked and self.is_woken(number, mine) and not self.is_busy(now):
                self.answer(number, thread, mine, now)

    def is_woken(self, number, mine):
        """Whether records were appended since the fetch was parked, or there is other news."""
        thread = self.threads[number]
        return thread.news or (thread.touched and self.any_data(mine, number))

    def any_data(self, mine, number):
        """Whether there are as many bytes as a fetch asks for."""
        most = max(1, self.settings["fetch_bytes"] // self.record_bytes)
        behind = [p.end - f.end for p in mine for f in p.followers if f.thread == number]
        found = sum(min(most, records) for records in behind) * self.record_bytes
        return found >= min(self.settings["min_bytes"], self.settings["response_bytes"])

    def position(self, index, slot, now):
        """Handle one partition of a fetch, as the leader."""
        self.partition_fetches += 1
        partition, follower = self.partitions[index], None
        follower = partition.followers[slot]
        offset, end = follower.end, partition.end
        today = self.caught_up(follower, follower.today, end, now)
        if self.column == "A":
            follower.clock = now
        elif self.column == "B":
            follower.clock = now if offset >= end else follower.clock
        else:
            follower.clock = self.caught_up(follower, follower.clock, end, now)
        follower.today, follower.leader_end = today, end
        follower.fetched = follower.counted = now
        moved, follower.seen = follower.seen != offset, offset
        if self.column in PUSHES_HIGH_WATERMARK and follower.announced < partition.high_watermark:
            self.threads[follower.thread].news = True
        follower.announced = partition.high_watermark
        may_join = slot not in partition.isr and partition.wanted is None
        if self.threads[follower.thread].down_until_ms > now:
            may_join = False
        start = partition.epoch_start if self.column in JOINS_FROM_START_OF_EPOCH else 0
        if may_join and offset >= max(partition.high_watermark, start):
            self.change(index, partition.isr | {slot}, 1, now)
        if moved or self.column in LOOKS_AT_EVERY_FETCH:
            self.look_at_high_watermark(index, now)

    @staticmethod
    def caught_up(follower, clock, end, now):
        """The lag clock after a fetch, by the rule of 0.10.2 and later."""
        if follower.end >= end:
            return now
        return max(clock, follower.counted) if follower.end >= follower.leader_end else clock

    def look_at_high_watermark(self, index, now):
        partition = self.partitions[index]
        least = partition.end
        for slot, follower in enumerate(partition.followers):
            member = slot in partition.isr | (partition.wanted or set())
            fresh = now - follower.clock <= self.settings["lag_ms"]
            counts = member or (fresh and self.column in COUNTS_FRESH_CLOCKS)
            if self.column in COUNTS_WHO_IS_AT_THE_END and follower.seen == partition.end:
                counts = True
            is_down = self.threads[follower.thread].down_until_ms > now
            if is_down and self.column in FORGETS_WHO_IS_DOWN:
                counts = member
            if counts:
                least = min(least, follower.seen)
        is_small = 1 + len(partition.isr) < self.settings["min_isr"]
        if least <= partition.high_watermark or (is_small and self.column in HOLDS_UNDER_MIN_ISR):
            return
        partition.high_watermark = least
        self.acknowledge(index, now)
        if self.column in PUSHES_HIGH_WATERMARK:
            for follower in partition.followers:
                self.threads[follower.thread].news = True

    def acknowledge(self, index, now):
        """Answer the produces that the high watermark has reached."""
        partition = self.partitions[index]
        while partition.waiting and partition.waiting[0][2] <= partition.high_watermark:
            sent, _, end = partition.waiting.pop(0)
            if 1 + len(partition.isr | (partition.wanted or set())) < self.settings["min_isr"]:
                self.fail(now, 5, index, end)
            else:
                self.waited.append(now - sent)

    def expire(self, index, now):
        partition = self.partitions[index]
        if partition.wanted is not None:
            return
        stay = {s for s in partition.isr if not self.is_out(partition, partition.followers[s], now)}
        if stay != partition.isr:
            self.change(index, stay, 0, now)
            if self.column not in LOOKS_AFTER_ANSWER:
                self.look_at_high_watermark(index, now)

    def is_out(self, partition, follower, now):
        late = now - follower.clock > self.settings["lag_ms"]
        if self.column == "A":
            behind = partition.end - follower.seen if follower.seen >= 0 else 0
            return late or behind > self.settings["lag_messages"]
        if self.column in SPARES_WHO_IS_AT_THE_END and follower.seen == partition.end:
            return False
        return late

    def change(self, index, isr, kind, now):
        partition = self.partitions[index]
        self.emit(index, kind, partition.isr, isr, now)
        if self.column in WRITES_ZOOKEEPER:
            self.commit(index, isr, now)
            return
        partition.wanted = isr
        self.waiting.append(index)
        self.send(now)

    def commit(self, index, isr, now):
        partition = self.partitions[index]
        before, partition.isr, partition.wanted = partition.isr, set(isr), None
        partition.epoch += 1
        self.emit(index, 2, before, partition.isr, now)
        while partition.held and 1 + len(partition.isr) >= self.settings["min_isr"]:
            sent, records = partition.held.pop(0)
            self.append(index, records, sent, now)

    def send(self, now):
        """Send the next ISR change, one request at a time."""
        if not self.in_flight and self.waiting:
            self.in_flight, self.waiting = self.waiting, []
            self.answer_ms = now + self.settings["commit_ms"]

    def controller(self, now):
        if self.in_flight and now >= self.answer_ms:
            answered, self.in_flight = self.in_flight, []
            for index in answered:
                self.commit(index, self.partitions[index].wanted, now)
                if self.column in LOOKS_AFTER_ANSWER:
                    self.look_at_high_watermark(index, now)
            self.send(now)

    def answer(self, number, thread, mine, now):
        """Fill a response, longest unserved partition first, and schedule the next fetch."""
        mine = [(f.turn, i, p, f) for i, p in enumerate(mine) for f in p.followers]
        sent = self.fill([row for row in mine if row[3].thread == number], now)
        thread.written, thread.touched = sent, False
        thread.work = -(-sent * 1000 // self.settings["bytes_per_s"][number])
        thread.parked = False
        links = self.settings["shared_links"]
        if sent and any(first <= number < past for _, first, past in links):
            thread.unsent, thread.next_ms = sent * 10**9, LATE_MS
        else:
            self.leave(thread, now)

    def leave(self, thread, now):
        """Send the answer; the next fetch arrives after it was received and written."""
        latency = self.settings["latency_ms"]
        thread.next_ms = work_until(now + latency, thread.work, thread.stalls) + latency

    def send_on(self, rate, threads, now):
        """Carry a millisecond's bytes over a link: equal shares, and what is left of them."""
        busy, left = [thread for thread in threads if thread.unsent], rate * 10**6
        while busy:
            share = left // len(busy)
            ended = [thread for thread in busy if thread.unsent <= share]
            busy = [thread for thread in busy if thread.unsent > share]
            for thread in ended:
                left, thread.unsent = left - thread.unsent, 0
                self.leave(thread, now)
            if not ended:
                for thread in busy:
                    thread.unsent -= share
                return

    def fill(self, mine, now):
        """Move log ends by a response to (turn, place, partition, follower) rows; its size."""
        limit, size = self.settings["response_bytes"], self.record_bytes
        mine = [row for row in mine if row[3].end < row[2].end]
        most = max(1, self.settings["fetch_bytes"] // size)
        wanted = sum(min(most, p.end - f.end) for _, _, p, f in mine)
        if wanted * size > limit:
            mine.sort(key=lambda row: row[:2])
        sent = 0
        for _, _, partition, follower in mine:
            room = max((limit - sent) // size, 1 if sent == 0 else 0)
            records = min(most, partition.end - follower.end, room)
            if records <= 0:
                break
            follower.end += records
            sent += records * size
            self.turns += 1
            follower.turn = self.turns
        return sent

    def emit(self, index, kind, before, after, now):
        partition = self.partitions[index]
        changed = [partition.followers[s] for s in before ^ after]
        masks = bits(before ^ after), bits(before), bits(after)
        ends = partition.high_watermark, partition.end
        epochs = partition.leader_epoch, partition.epoch
        lag = max([0, *(partition.end - f.seen for f in changed)])
        since_fetch = min([now, *(now - f.fetched for f in changed)])  # at most since the start
        since_all = min([now, *(now - f.today for f in changed)])
        row = (now, kind, index, *masks, *ends, *epochs, lag, since_fetch, since_all)
        self.events.append(row)


def work_until(start, work, stalls):
    """When the work is done; counts down a millisecond at a time, and ends outside full stalls.

    A stall is (begin, end, thousandths of speed left); without the third the speed is 0. At the end
    of a stall the remaining work is rounded up to whole milliseconds.
    """
    now, left = start, work * 1000
    while True:
        speeds = [rest[0] if rest else 0 for begin, end, *rest in stalls if begin <= now < end]
        speed = speeds[0] if speeds else 1000
        if left <= 0 and speed:
            return now
        left -= speed
        now += 1
        if any(end == now for _, end, *_ in stalls):
            left = -(-max(0, left) // 1000) * 1000


def bits(slots):
    """The set as a bit mask."""
    return sum(1 << slot for slot in slots)
