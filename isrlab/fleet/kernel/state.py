"""The tables of the fleet kernel: the input, the state and the output of a cell.

A *cell* is one leader broker, the partitions it leads, and the fetcher threads of other brokers
that read from it. Cells are independent: all else from outside (load, stalls, the phase of the
expiry task) is an input array. A *slot* is the place of a
follower in a partition's replica list (0 is the first follower); sets of followers are bit masks
over slots, and the leader is always in its own ISR, so it has no bit. A *thread* is one of the
`num.replica.fetchers` fetcher threads by which one follower broker reads from the leader.

The tuples hold numpy arrays and numbers only, so numba compiles functions that take them.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Bits = NDArray[np.uint64]

# Kinds of row in `State.events`: a leader's request for a smaller or larger ISR; a stored ISR; the
# removal of members by the controller; then the ways in which a produce with acks=all can fail.
SHRINK, EXPAND, COMMIT, REMOVAL, REFUSED, TOO_FEW, TIMED_OUT, GIVEN_UP = range(8)
NOT_PENDING, PENDING = range(2)  # an ISR change
NOT_PARKED, PARKED = range(2)  # a fetch
NOT_SENT_TO, SENT_TO, UNWANTED = range(3)  # a thread; unwanted: it no longer awaits the answer
NO_LINK = -1  # answers leave immediately
ZERO: int = cast("int", np.int64(0))  # to initialise variables: a literal has another type,
# for which the functions that take it would be compiled again
NEVER_MS = 2**62
NOBODY = 0  # no row of `State.produces`: rows of lists begin at `CHUNK`
UNLIMITED_BYTES_PER_S = 0  # receiving and writing take no time

# Columns of `State.events`. CHANGED is the mask of the followers that leave or join the ISR, and
# PARTITION_EPOCH belongs to the committed ISR. For the followers in CHANGED, LAG_RECORDS is the
# largest lag that the leader knows, SINCE_FETCH_MS the time since the most recent of their fetches,
# and SINCE_CAUGHT_UP_MS the time since one of them was last caught up, by today's lag clock.
TS_MS, KIND, PARTITION, CHANGED, ISR_BEFORE, ISR_AFTER, HIGH_WATERMARK, LOG_END_OFFSET = range(8)
LEADER_EPOCH, PARTITION_EPOCH, LAG_RECORDS, SINCE_FETCH_MS, SINCE_CAUGHT_UP_MS = range(8, 13)
EVENT_COLUMNS = 13

# Places in `State.scalars`. No thread is due before NEXT_THREAD_MS, no answer of the controller
# before NEXT_ANSWER_MS, no restart before NEXT_RESTART_MS; no answer leaves its link before
# NEXT_SENT_MS.
EVENT_COUNT, COVERED, TURN, NEXT_ARRIVAL, NEXT_TICK_MS, BATCH_SENT_MS, BATCH_DUE_MS = range(7)
QUEUE_HEAD, QUEUE_COUNT, NEXT_RESTART, LEADER_STALL, NEXT_SENT_MS = range(7, 12)
CHUNKS_USED, FREE_CHUNK, NEXT_THREAD_MS, NEXT_ANSWER_MS, NEXT_RESTART_MS = range(12, 17)
SCALARS = 17

# Columns of `State.produces`. TRIED_MS is the time of the latest attempt, REQUIRED the offset that
# the high watermark must reach (for a held produce, its number of records). A list is a chain of
# chunks of rows, so that its rows are adjacent in memory.
SENT_MS, TRIED_MS, REQUIRED = range(3)
PRODUCE_COLUMNS = 3
CHUNK = 16  # rows
FREE_EVENTS = 4_096  # beyond what one millisecond can write

WORD = 64  # bits of a word of `State.active`
GROUP = 16  # threads that share an entry of `State.group_ms`

# Latencies are counted exactly below 16 ms, then in eighths of a doubling, up to 24 days.
EXACT_MS = 16
STEPS = 8
BUCKETS = EXACT_MS + STEPS * 27
HOUR_MS = 3_600_000
LONG_AGO_MS = -(2**40)
NOT_SLOW = np.zeros((0, 3), dtype=np.int64)


class Rules(NamedTuple):
    """The choices of one Kafka version as numbers, and the settings the rules compare with."""

    lag_clock: int
    shrink_rule: int
    expand_rule: int
    expand_waits_under_min_isr: bool  # KAFKA-19996, which is only proposed
    eligibility: int
    high_watermark_set: int
    high_watermark_held_under_min_isr: bool
    high_watermark_after_shrink: int
    high_watermark_only_if_follower_moved: bool
    pushes_high_watermark: bool  # a new one answers fetches immediately
    removal_raises_leader_epoch: bool
    shrink_raises_leader_epoch: bool  # a shrink that the leader requests
    clock_reset: int  # of the followers' lag clocks, in a new leader epoch
    fences_stale_leader_epoch: bool  # a new leader epoch answers parked fetches
    fetches_after_removal: bool  # in KRaft no StopReplica stops a broker's fetchers first
    waits_for_controller: bool  # ISR changes are requests to the controller (since 2.7)
    replica_lag_time_max_ms: int
    replica_lag_max_messages: int
    isr_check_period_ms: int
    min_isr: int  # the ISR size that acks=all demands
    isr_commit_ms: int  # from an AlterPartition request to its answer
    request_timeout_ms: int  # how long a produce waits for its followers
    delivery_timeout_ms: int  # how long a producer retries after a refusal, 0 for no retries


class Links(NamedTuple):
    """How records travel to followers."""

    fetch_latency_ms: int  # one way, at least 1
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_min_bytes: int  # a fetch that finds less is parked


class Arrivals(NamedTuple):
    """Produced batches in order of time, then partition."""

    ts_ms: Ints  # int64[batches]
    partition: NDArray[np.int32]  # int32[batches]
    records: NDArray[np.int32]  # int32[batches], at least 1


def _row(*columns: str) -> np.dtype[np.void]:
    return np.dtype([(name, np.int64) for names in columns for name in names.split()])


PARTITION_ROW = _row(  # what a leader knows of a partition
    "log_end_offset high_watermark record_bytes",
    "isr maximal_isr",  # masks over slots: committed; united with the change in flight
    "pending pending_isr due_ms",  # `PENDING` while one is in flight; its ISR; when it is answered
    "partition_epoch leader_epoch epoch_start",  # log end offset when the leader epoch began
    "acks_all",  # 1 if its producers wait for the ISR
    "is_held_back",  # 1 while the leader knows no end above the high watermark for a member
    "waiting waiting_last",  # first and last of its produces that wait for the high watermark
    "held held_last",  # first and last of its produces that were refused and are retried
    "queued",  # an entry of the ring of all partitions with a change in flight
)
FOLLOWER_ROW = _row(  # of one partition; rows of one thread are adjacent
    "seen_end thread",  # its log end as the leader knows it, -1: unknown; which thread reads it
    "end",  # its log end with the answer in flight
    "last_caught_up_ms had_all_ms",  # when it was caught up, by the version's lag clock; by today's
    "last_fetch_ms last_fetch_leader_end",  # its last fetch; the leader's log end at that time
    "counted_fetch_ms",  # its last fetch as lag clocks count it; a new epoch may reset it
    "sent_high_watermark",  # as of its last fetch (2.4 and 2.5 compare with it)
    "turn",  # ascends with each service: the lowest is served next
    "partition slot",
)
THREAD_ROW = _row(
    "fetch_ms next_ms",  # when its last fetch arrived; when the next does, or the parked one is due
    "left_ms",  # when the next fetch leaves, or left, its broker (never, while `SENT_TO`)
    "is_parked",  # `PARKED` if the leader holds the thread's fetch
    "ready_bytes",  # available for its parked fetch; updated if fetch_min_bytes > 1
    "down_until_ms",  # until then its broker restarts, and may not be in an ISR
    "partitions",  # how many it reads
    "words_from words_to",  # its words of `State.active`: first, one past the last
    "bytes_per_s",  # what it can receive and write, 0 for no limit
    "link",  # its row of `State.shared_links`, or `NO_LINK`
    "is_sent_to unsent",  # `SENT_TO` while its answer is on the link; billionths of a byte left
    "write_ms",  # how long it will take to receive and write that answer
    "stall_from stall_to",  # its rows in `State.stalls`: first, one past the last
    "slow_from slow_to",  # and in `State.slow`
)


LINK_ROW = _row(  # shared by threads (link.py)
    "bytes_per_s first past",  # its rate; its threads: first, one past the last
    "counted_ms next_ms",  # up to when sent bytes are counted; when the next answer ends
    "busy",  # the number of answers on it
)


class State(NamedTuple):
    """The state of a cell, from which a run continues with the next window of arrivals."""

    partitions: NDArray[np.void]  # PARTITION_ROW[partitions]
    followers: NDArray[np.void]  # FOLLOWER_ROW[words * WORD], each thread begins a new word
    follower_at: NDArray[np.int32]  # int32[partitions, slots], the row of each follower
    threads: NDArray[np.void]  # THREAD_ROW[threads]
    shared_links: NDArray[np.void]  # LINK_ROW[links]
    group_ms: Ints  # int64[groups]: no thread of a group is due earlier
    active: Bits  # uint64[words], followers that a fetch must look at
    produces: Ints  # int64[chunks * CHUNK, PRODUCE_COLUMNS], lists of unfinished produces
    next_chunk: Ints  # int64[chunks]: the next one in its list, or among the free ones
    events: Ints  # int64[rows, EVENT_COLUMNS], allocated by `with_room`
    latencies: Ints  # int64[hours, BUCKETS]: produces with acks=all, by latency
    scratch: Ints  # int64[partitions], followers that a response may hold
    scalars: Ints  # int64[SCALARS]
    stalls: Ints  # int64[stalls, 3]: start, end (exclusive) ms, speed left in thousandths
    slow: Ints  # int64[n, 3]: start, end (exclusive) ms in which messages take longer; ms one way
    leader_stalls: Ints  # int64[n, 2]: start, end (exclusive) ms in which nothing is read
    restarts: Ints  # int64[n, 3]: ms, thread, ms of the end; ascending
    rules: Rules
    links: Links


class Setup(NamedTuple):
    """The settings of a cell."""

    rules: Rules
    links: Links
    thread_of: Ints  # int64[partitions, slots], number of the thread that reads for a follower
    bytes_per_s: Ints  # int64[threads], what a thread can receive and write, 0 for no limit
    stalls: list[Ints]  # int64[n, 3] for each thread, as in `State`, ascending
    record_bytes: int | Ints  # of all partitions, or int64[partitions]
    first_tick_ms: int
    leader_stalls: Ints = np.zeros((0, 2), np.int64)
    shared_links: Sequence[tuple[int, int, int]] = ()  # bytes/s, first thread, one past the last
    latencies: Sequence[Ints] = ()  # int64[n, 3] for each thread, as in `State.slow`
    restarts: Ints = np.zeros((0, 3), np.int64)
    acks_all: bool | NDArray[np.bool_] = False  # bool[partitions]: producers wait for the ISR
    backlog_records: int = 0  # in every log at the start
    empty_threads: tuple[int, ...] = ()  # those that read for replicas with an empty log
    duration_ms: int = 0  # of the run, for the hours of `latencies`


def new_state(setup: Setup) -> State:
    """A cell at time 0: all replicas in sync, every thread's first fetch in flight.

    But the replicas of `empty_threads` lack the backlog, and are not in the ISR.
    """
    partitions, followers, follower_at = _replicas(setup)
    scalars = np.zeros(SCALARS, dtype=np.int64)
    threads = _threads(setup)
    scalars[NEXT_TICK_MS] = setup.first_tick_ms
    scalars[[BATCH_SENT_MS, BATCH_DUE_MS]] = -1
    scalars[CHUNKS_USED] = 1
    scalars[[NEXT_ANSWER_MS, NEXT_SENT_MS]] = NEVER_MS
    scalars[NEXT_RESTART_MS] = setup.restarts[0, 0] if len(setup.restarts) else NEVER_MS
    active = np.zeros(len(followers) // WORD, dtype=np.uint64)
    for row in follower_at[np.isin(setup.thread_of, setup.empty_threads)].tolist():
        active[row // WORD] |= np.uint64(1 << row % WORD)
    state = State(
        partitions,
        followers,
        follower_at,
        threads,
        _shared_links(setup),
        np.zeros(-(-len(setup.stalls) // GROUP), dtype=np.int64),
        active,
        produces=np.zeros((CHUNK, PRODUCE_COLUMNS), dtype=np.int64),
        next_chunk=np.zeros(1, dtype=np.int64),
        events=np.zeros((0, EVENT_COLUMNS), dtype=np.int64),
        latencies=np.zeros((setup.duration_ms // HOUR_MS + 1, BUCKETS), dtype=np.int64),
        scratch=np.zeros(len(partitions), dtype=np.int64),
        scalars=scalars,
        stalls=np.concatenate(setup.stalls).astype(np.int64),
        slow=np.concatenate([NOT_SLOW, *setup.latencies]).astype(np.int64),
        leader_stalls=setup.leader_stalls,
        restarts=setup.restarts,
        rules=setup.rules,
        links=setup.links,
    )
    return with_room(state)


def most_rows(chunks: int, partitions: int, slots: int) -> int:
    """How many events can be written before `kernel/clock.py` checks for room again.

    For each partition in one millisecond: the controller's answer stores an ISR, restarts remove
    each follower, and each fetch and the expiry task can request an ISR and store it. Every
    unfinished produce can fail. A produce that arrives can be refused, and fail later.
    """
    return 3 * partitions * (slots + 1) + chunks * CHUNK + 2


def with_room(state: State, chunks: int = 1) -> State:
    """The state with room for the next run in its tables; its events must have been taken.

    There is room for `chunks` more chunks, and for one more for each partition, whose held produces
    may begin to wait.
    """
    partitions, slots = state.follower_at.shape
    needed = int(state.scalars[CHUNKS_USED]) + partitions + chunks
    if needed <= len(state.next_chunk):
        return state
    size = 4 * needed
    produces = np.zeros((size * CHUNK, PRODUCE_COLUMNS), dtype=np.int64)
    produces[: len(state.produces)] = state.produces
    next_chunk = np.zeros(size, dtype=np.int64)
    next_chunk[: len(state.next_chunk)] = state.next_chunk
    rows = FREE_EVENTS + most_rows(size, partitions, slots)
    events = np.zeros((rows, EVENT_COLUMNS), dtype=np.int64)
    return state._replace(produces=produces, next_chunk=next_chunk, events=events)


def taken(state: State) -> Ints:
    """Take out and return the events written so far, int64[n, EVENT_COLUMNS]."""
    count = state.scalars[EVENT_COUNT]
    assert count <= len(state.events), "more events in a millisecond than `most_rows` allows"
    state.scalars[EVENT_COUNT] = 0
    return state.events[:count].copy()


def _words(setup: Setup) -> tuple[Ints, Ints, Ints]:
    """Of each thread: its partitions, its first word in `State.active`, and one past its last."""
    partitions = np.bincount(setup.thread_of.ravel(), minlength=len(setup.stalls))
    words = -(-partitions // WORD)
    ends = np.cumsum(words)
    return partitions, ends - words, ends


def _replicas(setup: Setup) -> tuple[NDArray[np.void], NDArray[np.void], NDArray[np.int32]]:
    """PARTITION_ROW[partitions], FOLLOWER_ROW[rows] at time 0, and the row of each follower."""
    count, slots = setup.thread_of.shape
    is_full = ~np.isin(setup.thread_of, setup.empty_threads)
    partitions = np.zeros(count, dtype=PARTITION_ROW)
    partitions["isr"] = partitions["maximal_isr"] = is_full @ (1 << np.arange(slots))
    partitions["log_end_offset"] = partitions["high_watermark"] = setup.backlog_records
    partitions["record_bytes"] = setup.record_bytes
    partitions["acks_all"] = setup.acks_all
    rows = np.zeros((count, slots), dtype=FOLLOWER_ROW)
    rows["thread"], rows["slot"] = setup.thread_of, np.arange(slots)
    rows["partition"] = np.arange(count)[:, None]
    rows["end"] = rows["seen_end"] = is_full * setup.backlog_records
    rows["sent_high_watermark"] = is_full * setup.backlog_records
    for clock in ("last_caught_up_ms", "had_all_ms", "last_fetch_ms", "counted_fetch_ms"):
        rows[clock][~is_full] = LONG_AGO_MS
    sizes, words_from, words_to = _words(setup)
    followers = np.zeros(int(words_to.max(initial=0)) * WORD, dtype=FOLLOWER_ROW)
    by_thread = np.argsort(setup.thread_of, axis=None, kind="stable")
    rows_from = words_from * WORD - np.cumsum(sizes) + sizes
    follower_at = np.zeros((count, slots), dtype=np.int32)
    follower_at.flat[by_thread] = np.repeat(rows_from, sizes) + np.arange(count * slots)
    followers[follower_at] = rows
    return partitions, followers, follower_at


def _threads(setup: Setup) -> NDArray[np.void]:
    """THREAD_ROW[threads] at time 0."""
    threads = np.zeros(len(setup.stalls), dtype=THREAD_ROW)
    threads["next_ms"] = setup.links.fetch_latency_ms
    threads["partitions"], threads["words_from"], threads["words_to"] = _words(setup)
    threads["bytes_per_s"] = setup.bytes_per_s
    threads["link"] = NO_LINK
    for place, (_, first, past) in enumerate(setup.shared_links):
        threads["link"][first:past] = place
    for name, pieces in (("stall", setup.stalls), ("slow", setup.latencies)):
        if len(pieces):
            ends = np.cumsum([len(rows) for rows in pieces])
            threads[f"{name}_to"] = ends
            threads[f"{name}_from"][1:] = ends[:-1]
    return threads


def _shared_links(setup: Setup) -> NDArray[np.void]:
    """LINK_ROW[links] at time 0."""
    links = np.zeros(len(setup.shared_links), dtype=LINK_ROW)
    for place, row in enumerate(setup.shared_links):
        links[["bytes_per_s", "first", "past"]][place] = row
    links["next_ms"] = NEVER_MS
    return links
