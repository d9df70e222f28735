"""A link that fetcher threads share: the answers on it have equal shares of its rate.

Theory of operation. A link has a rate and a range of threads: all that read from a leader, or those
of one follower. In each millisecond the rate is divided equally among the answers on the link;
what an ending answer does not need is divided among the others. So a thread without an answer
takes no share, and the link is never idle while there is anything to send. (Connections that take
turns in small pieces behave in this way; notebook 14 compares real brokers.) An answer leaves its
link at the end of the millisecond in which its last byte is sent, and then travels like any other.

Shares change only when an answer begins or ends, so the kernel jumps from one such time to the
next. The rest of an answer is counted in billionths of a byte; each share is rounded down.

A thread may stop waiting for its answer (it hears of another leader or epoch, or its process ends).
The leader does not know this and sends the rest, unless the thread gets another answer.

Left out: a follower's link for all its leaders together, because cells are independent; and several
links in a row, any of which could be the bottleneck.
"""

from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.compiled import compiled

BILLIONTHS = 10**9  # of a byte
PER_MS = BILLIONTHS // 1000


@compiled
def begin(state: s.State, now_ms: int, number: int, sent_bytes: int) -> None:
    """Begin to send `sent_bytes`, at least 1, to a thread in this millisecond."""
    thread = state.threads[number]
    advance(state, now_ms, thread.link)
    thread.unsent, thread.is_sent_to = sent_bytes * BILLIONTHS, s.SENT_TO
    plan(state, thread.link)


@compiled
def advance(state: s.State, now_ms: int, place: int) -> None:
    """Count the bytes sent up to `now_ms`, which must not be after the link's `next_ms`."""
    link = state.shared_links[place]
    whole_ms = now_ms - link.counted_ms - (link.next_ms == now_ms)
    link.counted_ms = now_ms
    if link.busy == 0:
        return
    share = whole_ms * (link.bytes_per_s * PER_MS // link.busy)
    for number in range(link.first, link.past):
        if state.threads[number].is_sent_to:
            state.threads[number].unsent -= share
    if link.next_ms == now_ms:
        _send_last(state, place)


@compiled
def _send_last(state: s.State, place: int) -> None:
    """Count a millisecond in which answers end; the others share what those leave."""
    link = state.shared_links[place]
    left, busy, has_ended = link.bytes_per_s * PER_MS, link.busy, True
    while has_ended and busy > 0:
        share, has_ended = left // busy, False
        for number in range(link.first, link.past):
            thread = state.threads[number]
            if thread.is_sent_to and 0 < thread.unsent <= share:
                left, busy, has_ended = left - thread.unsent, busy - 1, True
                thread.unsent = 0
    for number in range(link.first, link.past):
        if state.threads[number].unsent > 0:
            state.threads[number].unsent -= left // busy


@compiled
def plan(state: s.State, place: int) -> None:
    """Count the answers on a link, and find when the next of them ends."""
    link, least = state.shared_links[place], s.ZERO
    link.busy, link.next_ms = 0, s.NEVER_MS
    for number in range(link.first, link.past):
        thread = state.threads[number]
        if thread.is_sent_to:
            least = thread.unsent if link.busy == 0 else min(least, thread.unsent)
            link.busy += 1
    if link.busy > 0:
        share = link.bytes_per_s * PER_MS // link.busy
        link.next_ms = link.counted_ms + (least - 1) // share + 1
    state.scalars[s.NEXT_SENT_MS] = s.NEVER_MS
    for other in range(len(state.shared_links)):
        next_ms = state.shared_links[other].next_ms
        state.scalars[s.NEXT_SENT_MS] = min(state.scalars[s.NEXT_SENT_MS], next_ms)
