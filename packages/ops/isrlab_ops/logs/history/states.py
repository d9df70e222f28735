"""The successive ISRs of one partition, reconstructed from all log lines about it.

Theory of operation. Logs report one change several times: the leader asks (`isr_shrink`,
`isr_expand`), the change is stored (`isr_commit`, from the leader, the controller or the metadata
log), other brokers learn of it (`leader`, `follower`, `metadata`). And they omit some: up to 2.3 a
leader does not print the commit, since 2.8 it does not announce an expansion, and no leader reports
that the controller removed a dead broker. Three steps turn that into one sequence:

1. *Outcomes of requests* (`_outcomes`). A leader's request is stored if its commit
   follows, or if the leader's next request starts from it; it is not stored if it was refused or
   repeated. Otherwise it is open, or counts as stored if its broker never prints commits.
2. *States.* All lines about one version (zkVersion, partition epoch) describe one state, stored at
   the time of the first of them, but not before it was requested. Lines without a version are
   ordered by leader epoch and time.
3. *Steps* (`_Walk`). Versions count the changes, so a state is the direct successor of the
   previous one if its version is one more; without versions, if the leader asked for it from there,
   or if its leader epoch is one more. Everything else is a gap: nothing is known from the last
   moment at which the old state is known to hold until the new one is stored. Open requests fill a
   gap of exactly their number.

So a change that was announced but not stored does not count, a late line changes nothing, and a
missing line makes a gap or, without versions, may leave no trace.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from isrlab.events.statements import OF_LEADERS, BrokerIds, Statement

# Between a request and its commit: the tolerated clock skew, and the longest wait for the answer.
EARLY_MS, ANSWER_MS = 2_000, 60_000
# Errors that mean: the stored state is newer than the leader's.
STALE = ("BADVERSION", "INVALID_UPDATE_VERSION", "FENCED_LEADER_EPOCH", "NEW_LEADER_ELECTED")
NEWER = "a newer state is known to exist, and no line names its ISR"
MISSING = "lines about changes in between are missing"
OPEN = "a leader asked for another ISR, and no line says what came of it"
UNLIKE = "lines contradict each other about the ISR"


@dataclass(slots=True)
class StoredState:
    """A stored state; `isr` is None if lines show that it exists, but not its ISR."""

    ts_ms: int
    isr: BrokerIds | None
    row: Statement  # the first line about it
    version: int | None = None
    leader_epoch: int | None = None
    leader: int | None = None
    before: BrokerIds | None = None  # the ISR from which its leader asked for it
    request: Statement | None = None  # the line by which its leader asked for it
    is_leaders: bool = False  # rather than the controller's
    is_open: bool = False  # requested, and no line shows the outcome
    replicas: BrokerIds | None = None
    seen_ms: int = 0  # when the leader last confirms it


@dataclass(slots=True)
class PlacedState:
    """A row: a state and the ISR before it (None: unknown), or why nothing is known from
    `ts_ms`."""

    ts_ms: int
    state: StoredState | None
    before: BrokerIds | None = None
    why: str = ""


def stored(rows: Sequence[Statement], printing: Collection[int | None]) -> list[PlacedState]:
    """The states of one partition in order, each later than the previous one, and the gaps between.

    Only a metadata log may have several states at one moment.

    `rows`: all events of the partition, on one clock; `printing`: brokers that print stored states.
    """
    walk = _Walk()
    for state in _in_order(_states(rows, printing)):
        walk.step(state)
    walk.end()
    return walk.placed


def _same(first: Iterable[int] | None, second: Iterable[int] | None) -> bool:
    return first is not None and second is not None and set(first) == set(second)


# Outcomes of requests


def _outcomes(
    rows: Sequence[Statement], printing: Collection[int | None]
) -> tuple[dict[int, str], dict[int, Statement]]:
    """By index in `rows`: the outcome of each request, and the request that each commit answers."""
    streams: dict[int | None, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        if row.kind in (*OF_LEADERS, "isr_rejected", "leader") and row.is_own:
            streams[row.broker].append(place)
    outcomes: dict[int, str] = {}
    answered: dict[int, Statement] = {}
    for broker, places in streams.items():
        for place, after in zip(places, [*places[1:], None], strict=True):
            if rows[place].is_request:
                row, answer = rows[place], None if after is None else rows[after]
                outcomes[place] = _outcome(row, answer, broker in printing)
                if outcomes[place] == "committed" and after is not None:
                    answered[after] = row
    return outcomes, answered


def _outcome(row: Statement, answer: Statement | None, prints_commits: bool) -> str:
    """The outcome of a request: committed, stored, refused, repeated or open. A "leader"
    line (`answer`) proves nothing: a controller may have changed the ISR first."""
    if answer is not None and answer.kind == "isr_rejected":
        is_other = answer.detail.get("asked", "").startswith("PendingExpandIsr")  # unannounced
        return "open" if row.kind == "isr_shrink" and is_other else "refused"
    if answer is not None and answer.kind == "isr_commit":
        return "committed" if _same(answer.isr, row.isr) else "open"
    if answer is not None and _same(answer.isr_before, row.isr):
        return "stored"
    if answer is not None and _same(answer.isr_before, row.isr_before):
        return "repeated"
    return "open" if prints_commits else "stored"


# States


def _states(rows: Sequence[Statement], printing: Collection[int | None]) -> list[StoredState]:
    """The stored states, unordered: one for each version, and those without a known version."""
    outcomes, answered = _outcomes(rows, printing)
    terms: dict[int | None, int] = {}  # the leader epoch that each broker reports for itself
    versions: dict[int, list[StoredState]] = defaultdict(list)
    loose, again = list[StoredState](), list[StoredState]()
    for place, row in enumerate(rows):
        outcome = outcomes.get(place, "")
        if row.is_own and row.kind in ("leader", "follower") and row.leader_epoch is not None:
            terms[row.broker] = row.leader_epoch
        if outcome in ("committed", "refused"):
            continue
        state = _state(row, outcome, answered.get(place))
        if state.leader_epoch is None and row.is_own and row.kind in OF_LEADERS:
            state.leader_epoch = terms.get(row.broker)
        if outcome == "repeated":  # or stored, and its members rejoined without a line
            again.append(state)
        elif state.version is not None:
            versions[state.version].append(state)
        elif state.isr is not None or state.leader_epoch is not None or state.is_open:
            loose.append(state)
    numbered = [_of_version(states) for states in versions.values()]
    answers: dict[frozenset[int], list[StoredState]] = defaultdict(list)
    for state in sorted(numbered, key=lambda state: state.ts_ms):
        answers[frozenset(state.isr or ())].append(state)
    loose = [s for s in loose if not _is_answered(s, answers[frozenset(s.isr or ())])]
    for state in again:
        _is_answered(state, answers[frozenset(state.isr or ())])
    epochs = {s.leader_epoch for s in (*numbered, *loose) if s.isr is not None}
    return numbered + [s for s in loose if s.isr is not None or s.leader_epoch not in epochs]


def _state(row: Statement, outcome: str, request: Statement | None) -> StoredState:
    """The stored state that one row describes."""
    kind, detail = row.kind, row.detail
    version, own = row.partition_epoch, row.is_own
    if kind == "isr_rejected":
        is_stale = own and detail.get("error") in STALE
        version = version + 1 if is_stale and version is not None else None
        return StoredState(row.ts_ms, None, row, version)
    return StoredState(
        row.ts_ms, row.isr, row, version, row.leader_epoch, row.leader,
        before=row.isr_before if request is None else request.isr_before,
        request=row if outcome else request,
        is_leaders=outcome != "" or (kind == "isr_commit" and own)
        or detail.get("asked_by") == "leader",
        is_open=outcome == "open",
        replicas=row.ids("replicas") or None,
    )  # fmt: skip


def _of_version(states: list[StoredState]) -> StoredState:
    """One state from all rows about one version; its ISR is None if they disagree."""
    exact = [s for s in states if s.row.is_exact]
    naming = [s for s in exact or states if s.isr is not None]
    first = min(naming or states, key=lambda state: state.ts_ms)
    asked = [s.request for s in states if s.request is not None]
    told_ms = min(state.ts_ms for state in exact or states)
    ts_ms = told_ms if exact else max([told_ms, *(row.ts_ms for row in asked)])
    agree = all(_same(state.isr, first.isr) for state in naming)
    own_ms = [s.ts_ms for s in states if s.row.is_own and s.row.broker == s.leader]

    def known(name: str) -> Any:
        return next((v for s in states if (v := getattr(s, name)) is not None), None)

    return replace(
        first,
        ts_ms=ts_ms,
        isr=first.isr if agree else None,
        request=asked[0] if asked else None,
        is_leaders=any(state.is_leaders for state in states),
        seen_ms=max(own_ms, default=0),
        **{name: known(name) for name in ("leader_epoch", "leader", "before", "replicas")},
    )


def _is_answered(request: StoredState, answers: list[StoredState]) -> bool:
    """Attach a request to the next of `answers`, the numbered states with the requested ISR by
    time, unless that has a request. True if attached: then it is not a state of its own."""
    if request.request is None:
        return False
    place = bisect_left(answers, request.ts_ms - EARLY_MS, key=lambda state: state.ts_ms)
    state = answers[place] if place < len(answers) else None
    if state is None or state.request or state.ts_ms > request.ts_ms + ANSWER_MS:
        return False
    if state.leader not in (None, request.leader):  # another broker led by then
        return False
    state.request, state.before, state.is_leaders = request.request, request.before, True
    state.leader = request.leader if state.leader is None else state.leader
    if not state.row.is_exact:  # the requesting broker's time is exact; others learned of it later
        state.ts_ms = max(state.ts_ms if request.is_open else 0, request.ts_ms)
    return True


def _in_order(states: list[StoredState]) -> list[StoredState]:
    """Sorted by version; states without one are placed among them."""
    numbered = sorted((s for s in states if s.version is not None), key=lambda s: s.version or 0)
    for before, state in pairwise(numbered):
        if state.ts_ms <= before.ts_ms:
            state.ts_ms = before.ts_ms + (not state.row.is_exact)
    for state in sorted((s for s in states if s.version is None), key=lambda s: s.ts_ms):
        place = _place(numbered, state)
        is_stale = any(each.ts_ms < state.ts_ms for each in numbered[place:])
        if not (state.is_open and is_stale):  # a former leader that has not learned of the change
            numbered.insert(place, state)
    return numbered


def _place(states: list[StoredState], state: StoredState) -> int:
    """The index at which a state without a version belongs: by leader epoch, then by time."""
    epoch = state.leader_epoch
    first, last = 0, len(states)
    if states and states[-1].leader_epoch == epoch and states[-1].ts_ms <= state.ts_ms:
        return last  # the usual case
    for place, each in enumerate(states):
        if epoch is not None and each.leader_epoch is not None:
            if each.leader_epoch < epoch:
                first = place + 1
            elif each.leader_epoch > epoch:
                last = min(last, place)
    later = (n for n in range(first, last) if states[n].ts_ms > state.ts_ms)
    return next(later, max(first, last))


# Steps


@dataclass(slots=True)
class _Walk:
    placed: list[PlacedState] = field(default_factory=list)
    now: StoredState | None = None
    seen_ms: int = 0  # `now` is known to hold until then
    open: list[StoredState] = field(default_factory=list)  # requests since

    def step(self, state: StoredState) -> None:
        """Take in the next state."""
        if state.is_open:
            self._ask(state)
            return
        relation = "first" if self.now is None else _relation(self.now, state)
        if relation == "same":
            self._confirm(state)
        elif relation == "next":
            self._add(state)
        elif relation != "old":
            self._leap(state, UNLIKE if relation == "unlike" else MISSING)

    def end(self) -> None:
        if self.open:
            self._lose(self.open[0].ts_ms, OPEN)

    def _ask(self, state: StoredState) -> None:
        """Take in a request with an unknown outcome: it shows at least the state before it."""
        now = self.now
        if now and now.request and _same(now.isr, state.isr) and now.leader == state.leader:
            return  # repeated by a slow leader, which has not learned that it is stored
        if self.now is None or not _same(self.now.isr, state.before):
            last = self.open[-1] if self.open else None
            if last is not None and _same(last.isr, state.before):
                self.open.append(state)
                return
            was = replace(state, isr=state.before, before=None, is_open=False, request=None)
            self._leap(was, MISSING)
        self.seen_ms = max(self.seen_ms, state.ts_ms)
        self.open = [state]

    def _confirm(self, state: StoredState) -> None:
        """Take in the known state, reported again: the requested changes were not stored."""
        assert self.now is not None
        for name in ("version", "leader_epoch", "leader", "replicas"):
            if getattr(self.now, name) is None:
                setattr(self.now, name, getattr(state, name))
        if state.row.broker == self.now.leader or not state.row.is_own:
            self.seen_ms = max(self.seen_ms, state.ts_ms)
            self.open = [each for each in self.open if each.ts_ms > state.ts_ms]

    def _add(self, state: StoredState) -> None:
        """Take in a direct successor of the known state."""
        now = self.now
        assert now is not None
        if state.version is None and now.version is not None:
            state.version = now.version + 1
        if state.leader_epoch is None:
            state.leader_epoch = now.leader_epoch
        if state.leader is None and state.leader_epoch == now.leader_epoch:
            state.leader = now.leader
        self._put(state, now.isr)

    def _leap(self, state: StoredState, why: str) -> None:
        """Take in a state that is no successor; fill the gap with open requests, or leave it."""
        now = self.now
        if self.open and now and len(self.open) == _step(now, state) - 1:
            for request in self.open[:]:
                self._put(replace(request, version=None, is_open=False), request.before)
            self._put(state, self.now.isr if self.now else None)
            return
        if now is not None:
            seen_ms = min(self.seen_ms, state.ts_ms - 1)
            self._lose(seen_ms, why if state.isr is not None else NEWER)
        if state.before is not None and state.request is not None and state.isr is not None:
            from_ms = min(state.request.ts_ms, state.ts_ms - 1)
            was = replace(state, ts_ms=from_ms, isr=state.before, version=None, request=None)
            if not self.placed or from_ms > self.placed[-1].ts_ms:
                self._put(replace(was, is_leaders=False), None)
                self._put(state, state.before)
                return
        self._put(state, None)

    def _put(self, state: StoredState, before: BrokerIds | None) -> None:
        if self.placed:
            state.ts_ms = max(state.ts_ms, self.placed[-1].ts_ms + (not state.row.is_exact))
        if state.isr is not None:
            self.placed.append(PlacedState(state.ts_ms, state, before))
        self.now, self.seen_ms, self.open = state, max(state.ts_ms, state.seen_ms), []

    def _lose(self, from_ms: int, why: str) -> None:
        """Note that nothing is known from this moment on."""
        if self.placed and self.placed[-1].state is not None:
            self.placed.append(PlacedState(max(from_ms, self.placed[-1].ts_ms + 1), None, why=why))


def _step(now: StoredState, state: StoredState) -> int:
    """By how many versions a state is newer; 0 if one of them has no version."""
    return state.version - now.version if state.version and now.version is not None else 0


def _relation(now: StoredState, state: StoredState) -> str:
    """How a state relates to the known one: old, same, next, unlike (they contradict), or a gap."""
    is_same = _same(now.isr, state.isr)
    if state.version is not None and now.version is not None:
        step = state.version - now.version
        if step == 0:
            return "same" if is_same or state.isr is None else "unlike" if now.isr else "gap"
        if step == 1 and state.isr is not None:
            is_from_there = now.isr and (state.before is None or _same(now.isr, state.before))
            return "next" if is_from_there else "gap" if now.isr is None else "unlike"
        return "old" if step < 0 else "gap"
    if state.isr is None and now.version is None and not now.is_leaders:
        return "old"  # a leader that had missed the controller's change was refused
    if state.before is not None:
        return "next" if _same(now.isr, state.before) else "gap"
    if state.version is not None and state.is_leaders:  # since 2.8 no line announces an expansion
        is_in_a_row = now.leader == state.leader and now.isr is not None and not is_same
        return "next" if is_in_a_row else "gap"
    if state.leader_epoch == 0 and now.version:
        return "old"  # its creation
    if state.leader_epoch is None or now.leader_epoch is None:
        return "same" if is_same else "gap"
    step = state.leader_epoch - now.leader_epoch
    if step <= 0:
        return "same" if step == 0 and is_same else "old"
    return "next" if step == 1 and state.isr is not None and now.isr is not None else "gap"
