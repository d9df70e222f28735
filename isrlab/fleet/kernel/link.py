"""A link that fetcher threads share: those that are being sent an answer have equal shares.

Theory of operation. A link has a rate and a range of threads: all that read from a leader, or those
of one follower. A thread that is sent nothing takes nothing: its share goes to the others at once,
and the link never rests while there is something to send. In each millisecond the rate is divided
equally among the answers on the link; what an answer that ends does not need is divided among the
others. (Connections do so that take turns in small pieces, beside real brokers in notebook 14.) An
answer leaves its link at the end of the millisecond in which its last byte is sent, and then
travels like any other.

Shares change only when an answer begins or ends, so the kernel jumps from one to the next. What is
left of an answer is counted in billionths of a byte; a share of a millisecond is rounded down.

An answer that nobody waits for any more (its thread was told of another leader or epoch, or its
process ended) is sent to its end, unless its thread gets another one: a leader does not know.

Left out: a link of one follower for what it reads from all its leaders, since cells do not touch
each other; and links in a row, each of which could be the narrowest.
"""

from __future__ import annotations

from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.compiled import compiled

BILLIONTHS = 10**9  # of a byte
PER_MS = BILLIONTHS // 1000


@compiled
def begin(state: s.State, now_ms: int, number: int, sent_bytes: int) -> None:
    """Send so much to a thread, at least one byte, from this millisecond on."""
    thread = state.threads[number]
    advance(state, now_ms, thread.link)
    thread.unsent, thread.is_sent_to = sent_bytes * BILLIONTHS, s.SENT_TO
    plan(state, thread.link)


@compiled
def advance(state: s.State, now_ms: int, place: int) -> None:
    """Send what the link carries until `now_ms`, which is not after its next end of an answer."""
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
    """A millisecond in which answers end, and the others have what these leave."""
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
