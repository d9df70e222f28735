"""The commands of the scenario language: the syntax of each, and the function that runs it.

`COMMANDS` has the syntax: words in capitals are those of `_PLAIN` and `_BROKERS`, others are
literal; `A|B` is a choice, `[A]` is optional, `A..` repeats. A wrong line raises a ScriptError that
says what would be valid.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

from isrlab.engine import messages as m
from isrlab.engine import safety
from isrlab.engine.model import Follower, Leader, Settings
from isrlab.engine.versions import KafkaVersion
from isrlab.world import faults, words
from isrlab.world.cluster import Cluster
from isrlab.world.frames import Envelope, Frame
from isrlab.world.script import Command, Run

MOST_STEADY_RECORDS = 10_000  # of a steady producer: frames keep every state, here 1.4 GB
_QUIET = ("restart", "crash", "metadata", "notify")
_ISR_NEWS = ("isr_shrink", "isr_expand", "isr_commit", "isr_rejected", "notify", "leader")
_UNITS_MS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


# The partitions of a topic that a command applies to
ONE, ANY = "one, which must be named", "all, or those that are named"
EVERY, TOPIC = "all, because it affects a machine", "all together"
FETCHER = "as EVERY; if it affects only the fetcher, as ANY"


class Usage(NamedTuple):
    """The syntax of a command, and the function that runs it: its arguments are the run, the values
    of the words and, if the command has options, a dict of those that are given."""

    does: Callable[..., None]
    words: str = ""
    options: str = ""
    scope: str = EVERY


def obey(run: Run, command: Command) -> None:
    """Run a command, and print what happened."""
    name, *rest = command.words
    form = COMMANDS.get(SYNONYMS.get(name, name))
    if form is None:
        raise command.fail(f"unknown command {name!r}; known: {', '.join(COMMANDS)}")
    if run.world is None and name not in ("version", "partition", "trace"):
        raise command.fail("a script begins with a 'partition' line (and may name a 'version')")
    printed = {part.name: len(part.lines) for part in run.topic}
    try:
        parts, rest = _addressed(run, form, rest)
        given = dict(w.split("=", 1) for w in rest if "=" in w)
        for part in reversed(parts):  # see world/cluster.py
            options = _read_options(part, form, given)
            values = _read_words(part, form, [word for word in rest if "=" not in word])
            form.does(part, *values, *([options] if form.options else []))
    except ValueError as error:
        usage = " ".join(word for word in (name, form.words, form.options) if word)
        raise command.fail(f"{error}\n  usage: {usage}") from None
    for part in run.topic:
        print_news(part)
        named = f"{part.name}  " if run.others else ""
        run.page += [f"{named}{line}" for line in part.lines[printed.get(part.name, 0) :]]


def _addressed(run: Run, form: Usage, rest: list[str]) -> tuple[list[Run], list[str]]:
    """The partitions that a command applies to, and its other words."""
    named = re.fullmatch(r"p\d+(,p\d+)*", rest[0]) if rest else None
    if named is None or form.scope == TOPIC:
        if form.scope == ONE and len(run.topic) > 1:
            raise ValueError(f"which partition? {', '.join(part.name for part in run.topic)}")
        return [run] if form.scope == TOPIC else run.topic, rest
    parts = [run.of(name) for name in dict.fromkeys(rest[0].split(","))]
    paused = {str(b): what for part in parts for b, what in part.cluster.paused.items()}
    is_of_fetcher = "fetcher" in (rest[-1], paused.get(rest[-1]))
    if form.scope == EVERY or (form.scope == FETCHER and not is_of_fetcher):
        raise ValueError(f"{rest[0]!r} is a partition; this command affects all of a machine's")
    return parts, rest[1:]


def print_news(run: Run) -> None:
    """Print the notable events since the last command."""
    entries = run.world.observer.entries if run.world else []
    news, run.next_entry = entries[run.next_entry :], len(entries)
    for entry in news:
        if isinstance(entry, Frame):
            if run.trace == "on" and entry.source != entry.target:
                run.lines.append(words.message_line(entry))
        elif not entry.is_stored_state or "replicas" in entry.detail:
            is_loud = entry.kind not in _QUIET or entry.detail.get("by", "").startswith("halt")
            if entry.kind in _ISR_NEWS if run.trace == "isr" else is_loud:
                run.lines.append(words.event_line(entry))


# Reading a line


def _read_words(run: Run, form: Usage, given: Sequence[str]) -> list[Any]:
    values, slots = [], form.words.split()
    while slots and (given or not slots[0].startswith("[")):
        slot = slots[0].strip("[].")
        if not given:
            brokers = words.ids(sorted(run.cluster.replicas)) if run.world else "none"
            raise ValueError(_QUESTIONS.get(slot, f"which broker? brokers: {brokers}"))
        values.append(_read(run, slot, given[0]))
        given = given[1:]
        if ".." not in slots[0] or not given:
            slots = slots[1:]
    if given:
        raise ValueError(f"{given[0]!r} is an extra word")
    return values


def _read(run: Run, slot: str, word: str) -> Any:
    choices = slot.split("|")
    kind = next((choice for choice in choices if choice in (*_PLAIN, *_BROKERS, "LINK")), None)
    if word in choices and word != kind:
        return m.CONTROLLER if word == "controller" else word
    if kind is None:
        raise ValueError(f"{word!r} is not {' or '.join(choices)}")
    try:
        return _read_kind(run, kind, word)
    except ValueError as error:
        others = [f"'{choice}'" for choice in choices if choice != kind]
        raise ValueError(" or ".join([str(error), *others])) from None


def _read_kind(run: Run, kind: str, word: str) -> Any:
    if kind in _PLAIN:
        pattern, value_of, problem = _PLAIN[kind]
        match = re.fullmatch(pattern, word)
        value = value_of(*match.groups()) if match else None
        if value is None:
            raise ValueError(problem.format(word))
        return value
    if kind == "LINK":
        if word.count(">") != 1:
            raise ValueError(_QUESTIONS[kind])
        return tuple(_read(run, _MACHINE, end) for end in word.split(">"))
    if not word.isdecimal() or int(word) not in run.cluster.replicas:
        raise ValueError(f"no broker {word!r}; brokers: {words.ids(sorted(run.cluster.replicas))}")
    state, opposite, members = _BROKERS[kind]
    known = sorted(members(run.cluster))
    if int(word) not in known:
        raise ValueError(f"broker {word} is {opposite}; {state}: {words.ids(known) or 'none'}")
    return int(word)


def _read_options(run: Run, form: Usage, given: dict[str, str]) -> dict[str, Any]:
    known = dict(option.split("=", 1) for option in form.options.split())
    for name in (name for name in given if name not in known):
        raise ValueError(f"unknown option {name!r}; known: {', '.join(known) or 'none'}")
    return {name: _read(run, known[name], text) for name, text in given.items()}


def _time_ms(number: str, unit: str) -> int:
    return int(number) * _UNITS_MS[unit]


def _ids(word: str) -> tuple[int, ...] | None:
    numbers = tuple(int(part or 0) for part in word.split(","))
    return numbers if all(numbers) and len(set(numbers)) == len(numbers) else None


_PLAIN: dict[str, tuple[str, Callable[..., Any], str]] = {
    # pattern, the value of its groups (None: also wrong), and the error for other words
    "TIME": (r"(\d+)(ms|s|m|h|)", _time_ms, "{!r} is not a duration; for example: 500ms, 10s, 2m"),
    "COUNT": (r"0*([1-9]\d{,4})", int, "{!r} is not a count between 1 and 99999"),
    "NUMBER": (r"(\d{1,18})", int, "{!r} is not a whole number of at most 18 digits"),
    "IDS": (r"([\d,]+)", _ids, "{!r} is not a list of distinct broker ids such as 1,2,3"),
    "ACKS": (r"all|(-1|\d+)", lambda acks: int(acks or m.ACKS_ALL), "acks={} is none of 0, 1, all"),
    "NAME": (r"(.*)", str, ""),
    "VERSION": (r"(.*)", KafkaVersion.of, ""),
}
_BROKERS: dict[str, tuple[str, str, Callable[[Cluster], Iterable[int]]]] = {
    # the required state, the refused state, and the brokers in it
    "BROKER": ("of the partition", "not", lambda c: c.replicas),
    "LIVE": ("alive", "dead", lambda c: c.brokers),
    "DEAD": ("dead", "alive", lambda c: set(c.replicas) - set(c.brokers)),
    "PAUSED": ("paused", "not paused", lambda c: c.paused),
}
_MACHINE, _ONE_OF_TWO = "BROKER|controller", "controller|BROKER"
_QUESTIONS = {  # where a word is missing
    _ONE_OF_TWO: "between which two? for example: 1 2, or: 1 controller",
    "IDS|cancel": "to which brokers? for example: 2,3,4 (the first is preferred), or: cancel",
    "LINK": "on which link? for example: 1>2, or: 2>controller",
    "TIME": "how long? for example: 10s",
    "VERSION": "which version? for example: 2.5",
    "on|off|isr": "all messages (on), what changes (off), or only of the ISR (isr)?",
}


# The commands


def _version(run: Run, version: KafkaVersion) -> None:
    if run.world is not None:
        raise ValueError("the version must come before the 'partition' line")
    run.version = version


def _partition(run: Run, *rest: Any) -> None:
    """Add a partition. The first, p0, sets the topic's settings; others must follow directly."""
    *name, options = rest
    expected = f"p{len(run.topic)}" if run.world else "p0"
    if (name or ["p0"]) != [expected]:
        raise ValueError(f"the partition exists already; the next one is {expected}")
    if any(len(each.frames) - 1 != each.first_frame for each in run.topic if each.world):
        raise ValueError("the partitions of a topic must come before all other commands")
    part = run.another() if run.world else run
    if part is not run and not set(options) <= {"leader", "replicas", "isr"}:
        raise ValueError("the settings of a topic belong in the line of its first partition")
    replicas = options.pop("replicas", (1, 2, 3))
    isr, (leader, *_) = options.pop("isr", None), options.pop("leader", replicas)
    for number in (leader, *(isr or ())):
        if number not in replicas:
            raise ValueError(f"{number} is not one of replicas={words.ids(replicas)}")
    if leader not in (isr or replicas):
        raise ValueError(f"the leader {leader} is not in isr={words.ids(isr or ())}")
    version = run.forced_version or run.version or KafkaVersion.of("3.7")
    settings = {"latency_ms": options.pop("latency", 0)}
    settings["log_start_offset"] = options.pop("start", 0)
    for key, value in options.items():
        settings[key.replace(".", "_")] = {"true": True, "false": False}.get(value, value)
    if run.world:
        faults.add_brokers(run.world, replicas)
    part.world = Cluster(version, replicas, leader, isr, beside=run.world, **settings)
    for each in run.topic:
        each.next_entry, each.first_frame = len(each.cluster.observer.entries), len(each.frames) - 1


def _produce(run: Run, broker: int, *rest: Any) -> None:
    """Produce once or, with `every=100ms for=30s`, repeatedly while time passes."""
    *given, options = rest
    acks = options.get("acks", run.cluster.version.producer_acks)
    count = options.get("count", 0 if given else 1)
    if not {"every", "for"} & set(options):
        names = (*given, *_new_names(run, count))
        used = {name for request in run.cluster.requests for name in request.ids}
        for name in names:
            if name in used:
                raise ValueError(f"record {name!r} exists already; record names are unique")
            used.add(name)
        run.next_record += len(given)
        run.cluster.produce(broker, names, acks)
        return
    if given or not {"every", "for"} <= set(options):
        raise ValueError("a steady producer takes no record names: produce 1 every=100ms for=30s")
    every_ms = max(1, options["every"])
    rounds = options["for"] // every_ms
    if rounds * count > MOST_STEADY_RECORDS:
        raise ValueError(f"{rounds * count} records; at most {MOST_STEADY_RECORDS}")
    for _ in range(rounds):
        run.cluster.produce(broker, _new_names(run, count), acks)
        run.cluster.advance(every_ms)


def _new_names(run: Run, count: int) -> tuple[str, ...]:
    first = run.next_record
    run.next_record += count
    return tuple(f"m{number}" for number in range(first, first + count))


def _consume(run: Run, number: int) -> None:
    """Print what a consumer may read from this broker: everything below its high watermark."""
    broker = run.cluster.brokers[number]
    text = broker.version.not_leader_error
    if isinstance(broker.role, Leader):
        end = broker.log.high_watermark
        readable = words.names(broker.log.read(broker.log.log_start_offset, end))
        text = f"reads up to offset {end} (exclusive): {readable}".rstrip()
    run.lines.append(f"            client    {text}")


def _fetch(run: Run, number: int) -> None:
    """One round of a follower: its answer arrives, and its next fetch reaches the leader."""
    role = run.cluster.brokers[number].role
    if not isinstance(role, Follower):
        raise ValueError(f"broker {number} is not a follower")
    for _ in range(10):
        requests = run.cluster.on_link(number, role.leader)
        waiting = requests or run.cluster.on_link(role.leader, number)
        if waiting:
            run.cluster.deliver(waiting[0])
        if not waiting or (requests and isinstance(requests[0].message, m.Fetch)):
            return


def _on_link(
    act: Callable[[Cluster, Envelope], None], run: Run, link: tuple[int, int], count: int | str = 1
) -> None:
    """Apply `act` to the next messages on a link: a number, "all", or "any" (at most one)."""
    waiting = run.cluster.on_link(*link)
    most = (
        len(waiting) if count == "all" else min(1, len(waiting)) if count == "any" else int(count)
    )
    if len(waiting) < most:
        links = " ".join(links_with_messages(run.cluster)) or "none"
        raise ValueError(f"{len(waiting)} messages are in flight there; links: {links}")
    for envelope in waiting[:most]:
        act(run.cluster, envelope)


def links_with_messages(cluster: Cluster) -> dict[str, Envelope]:
    """By link between machines, such as "1>controller": the first message in flight on it."""
    own = (e for e in reversed(cluster.queue) if e.partition == cluster.number)
    waiting = [e for e in own if not e.is_timer and e.source != m.CLIENT]
    firsts = {words.link(e.source, e.target): e for e in waiting}
    return {link: firsts[link] for link in sorted(firsts)}


def _on(act: Callable[..., None]) -> Callable[..., None]:
    return lambda run, *values: act(run.cluster, *values)


def _between(fault: Callable[..., None], run: Run, *machines: int) -> None:
    if machines[0] == machines[1]:
        raise ValueError("the two machines must differ")
    fault(run.cluster, *machines)


def _status(run: Run) -> None:
    print_news(run)
    run.lines += words.status(run.cluster)


def _check(run: Run, *asked: str) -> None:
    """Print which of these properties are broken now (default: all properties)."""
    for name in asked or safety.PROPERTIES:
        wrong = safety.PROPERTIES[name](run.cluster.observer.view())
        run.lines.append(f"  {name}: {wrong or 'holds'}")


def _trace(run: Run, what: str) -> None:
    run.trace = what


_SETTINGS = "leader=IDS replicas=IDS isr=IDS latency=TIME start=NUMBER"
for setting in fields(Settings):
    kind = "TIME" if setting.name.endswith("_ms") else "NUMBER"
    kind = "true|false" if setting.type == "bool" else kind
    _SETTINGS += f" {setting.name.replace('_', '.')}={kind}"
_TWO = f"{_ONE_OF_TWO} {_ONE_OF_TWO}"
COMMANDS: dict[str, Usage] = {
    "version": Usage(_version, "VERSION", scope=TOPIC),
    "partition": Usage(_partition, "[NAME]", _SETTINGS, TOPIC),
    "produce": Usage(_produce, "BROKER [NAME..]", "count=COUNT acks=ACKS every=TIME for=TIME", ONE),
    "consume": Usage(_consume, "LIVE", scope=ONE),
    "fetch": Usage(_fetch, "LIVE", scope=ONE),
    "deliver": Usage(partial(_on_link, Cluster.deliver), "LINK [COUNT|all|any]", scope=ONE),
    "drop": Usage(partial(_on_link, Cluster.drop), "LINK [COUNT|all|any]", scope=ONE),
    "refuse": Usage(partial(_on_link, faults.refuse), "LINK [COUNT|all|any]", scope=ONE),
    "stabilize": Usage(_on(Cluster.stabilize), scope=TOPIC),
    "advance": Usage(_on(Cluster.advance), "TIME", scope=TOPIC),
    "pause": Usage(_on(faults.pause), "LIVE [process|fetcher]", scope=FETCHER),
    "resume": Usage(_on(faults.resume), "PAUSED", scope=FETCHER),
    "kill": Usage(_on(Cluster.kill), "LIVE"),
    "power_loss": Usage(_on(faults.power_loss), _MACHINE),
    "clean_shutdown": Usage(_on(faults.clean_shutdown), "LIVE", scope=TOPIC),
    "hard_bounce": Usage(_on(faults.hard_bounce), "LIVE|controller"),
    "clean_bounce": Usage(_on(faults.clean_bounce), "LIVE", scope=TOPIC),
    "start": Usage(_on(faults.start), "DEAD"),
    "fail_directory": Usage(_on(faults.fail_directory), "LIVE"),
    "remove_directory": Usage(_on(faults.remove_directory), "DEAD"),
    "cut": Usage(partial(_between, faults.network_partition), _TWO),
    "heal": Usage(partial(_between, faults.heal), _TWO),
    "degraded_network": Usage(partial(_between, faults.degraded_network), f"{_TWO} TIME"),
    "flush": Usage(_on(faults.flush), "BROKER"),
    "elect": Usage(_on(faults.elect), "[preferred|unclean]", scope=ANY),
    "reassign": Usage(_on(faults.reassign), "IDS|cancel", scope=ANY),
    "configure": Usage(_on(faults.configure), "topic|cluster", "min.insync.replicas=NUMBER"),
    "recreate": Usage(_on(faults.recreate), "", "retention.ms=TIME"),
    "status": Usage(_status, scope=ANY),
    "check": Usage(_check, f"[{'|'.join(safety.PROPERTIES)}..]", scope=ANY),
    "trace": Usage(_trace, "on|off|isr"),
}
SYNONYMS = {"hard_shutdown": "kill", "network_partition": "cut"}
