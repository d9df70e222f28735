"""The commands of the scenario language: each reads its words and does one thing to the cluster.

A word that cannot be right ends in a ScriptError that says which words could be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from isrlab.engine import safety
from isrlab.engine.messages import ACKS_ALL, CLIENT, CONTROLLER, Fetch
from isrlab.engine.model import Follower, Leader, Settings
from isrlab.engine.versions import KafkaVersion
from isrlab.world import faults, words
from isrlab.world.cluster import Cluster
from isrlab.world.frames import Envelope, Event, Frame
from isrlab.world.script import Command, Run

MOST_RECORDS = 100_000
_QUIET = ("restart", "crash", "metadata", "notify")
_ISR_NEWS = ("isr_shrink", "isr_expand", "isr_commit", "isr_rejected", "notify", "leader")
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def print_news(run: Run) -> None:
    """What happened since the last command, as far as it is worth a line."""
    if run.world is None:
        return
    for entry in run.world.observer.since(run.told):
        if isinstance(entry, Frame):
            if run.is_tracing and entry.source != entry.target:
                run.lines.append(words.message_line(entry))
        elif not entry.is_stored_state:
            is_wanted = entry.kind in _ISR_NEWS if run.shows_isr_only else _is_news(entry)
            if is_wanted:
                run.lines.append(words.event_line(entry))
        run.told = entry.place + 1


def _is_news(event: Event) -> bool:
    return event.kind not in _QUIET or words.is_halt(event)


# What commands take


def _broker(run: Run, command: Command, word: str, allow_controller: bool = False) -> int:
    if allow_controller and word == "controller":
        return CONTROLLER
    known = sorted(run.cluster.replicas)
    if not word.isdigit() or int(word) not in known:
        also = " or 'controller'" if allow_controller else ""
        raise command.fail(f"no broker {word!r}; brokers: {words.ids(known)}{also}")
    return int(word)


def _one_broker(run: Run, command: Command) -> int:
    if not command.arguments:
        raise command.fail(f"which broker? brokers: {words.ids(sorted(run.cluster.replicas))}")
    return _broker(run, command, command.arguments[0])


def _live_broker(run: Run, command: Command) -> int:
    broker = _one_broker(run, command)
    if broker not in run.cluster.brokers:
        alive = words.ids(sorted(run.cluster.brokers)) or "none"
        raise command.fail(f"broker {broker} is dead; alive: {alive}")
    return broker


def _two_machines(run: Run, command: Command) -> tuple[int, int]:
    if len(command.arguments) < 2:
        raise command.fail("between which two? for example: cut 1 2, or: cut 1 controller")
    one, other = (_broker(run, command, w, True) for w in command.arguments[:2])
    if one == other:
        raise command.fail("the two must differ")
    return one, other


def _duration_ms(command: Command, word: str) -> int:
    number = word.rstrip("msh")
    unit = word[len(number) :] or "ms"
    if not number.isdigit() or unit not in _UNITS:
        raise command.fail(f"{word!r} is no duration; for example: 500ms, 10s, 2m")
    return int(number) * _UNITS[unit]


def _count(command: Command, word: str, most: int) -> int:
    if not word.isdigit() or not 1 <= int(word) <= most:
        raise command.fail(f"{word!r} is no count between 1 and {most}")
    return int(word)


def _known_options(command: Command, *known: str) -> dict[str, str]:
    for name in command.options:
        if name not in known:
            raise command.fail(f"unknown option {name!r}; known: {', '.join(known) or 'none'}")
    return command.options


# The commands


def _version(run: Run, command: Command) -> None:
    if run.world is not None:
        raise command.fail("the version must stand before the 'partition' line")
    if len(command.arguments) != 1:
        raise command.fail("which version? for example: version 2.5")
    run.version = KafkaVersion.of(command.arguments[0])


def _partition(run: Run, command: Command) -> None:
    if run.world is not None:
        raise command.fail("there is a partition already")
    settings = {f.name.replace("_", "."): f for f in fields(Settings)}
    own = ("leader", "replicas", "isr", "latency", "start")
    options = _known_options(command, *own, *settings)
    version = run.forced_version or run.version or KafkaVersion.of("3.7")
    replicas = _ids(command, options.get("replicas", "1,2,3"))
    isr = _ids(command, options["isr"]) if "isr" in options else None
    leader = _ids(command, options.get("leader", str(replicas[0])))[0]
    for number in (leader, *(isr or ())):
        if number not in replicas:
            raise command.fail(f"{number} is not one of replicas={words.ids(replicas)}")
    if leader not in (isr or replicas):
        raise command.fail(f"the leader {leader} is not in isr={words.ids(isr or ())}")
    changes = {
        settings[name].name: _setting(command, name, value)
        for name, value in options.items()
        if name in settings
    }
    latency = _duration_ms(command, options.get("latency", "0ms"))
    first = _count(command, options["start"], 2**62) if "start" in options else 0
    run.world = Cluster(version, replicas, leader, isr, latency, log_start_offset=first, **changes)
    run.told = len(run.world.frames) + len(run.world.events)
    run.first_frame = len(run.world.frames) - 1


def _ids(command: Command, text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(w.isdigit() and int(w) > 0 for w in words) or len(set(words)) != len(words):
        raise command.fail(f"{text!r} is no list of different broker ids such as 1,2,3")
    return tuple(int(w) for w in words)


def _setting(command: Command, name: str, text: str) -> int | bool:
    if text in ("true", "false"):
        return text == "true"
    if name == "unclean.leader.election.enable":
        raise command.fail(f"{name} is true or false, not {text!r}")
    return _duration_ms(command, text)


def _produce(run: Run, command: Command) -> None:
    options = _known_options(command, "count", "acks", "every", "for")
    broker = _one_broker(run, command)
    if "every" in options or "for" in options:
        _produce_steadily(run, command, broker)
        return
    given = tuple(command.arguments[1:])
    if "count" in options:
        number = _count(command, options["count"], MOST_RECORDS)
        given += tuple(f"m{run.next_record + i}" for i in range(number))
    if not given:
        given = (f"m{run.next_record}",)
    _new_names(run, command, given)
    run.next_record += len(given)
    run.cluster.produce(broker, given, _acks(run, command, options.get("acks")))


def _produce_steadily(run: Run, command: Command, broker: int) -> None:
    """`every=100ms for=30s`: the same produce again and again, while time passes."""
    options = command.options
    if command.arguments[1:] or not {"every", "for"} <= set(options):
        raise command.fail("a steady producer names no records: produce 1 every=100ms for=30s")
    every_ms = max(1, _duration_ms(command, options["every"]))
    number = _count(command, options.get("count", "1"), MOST_RECORDS)
    rounds = _duration_ms(command, options["for"]) // every_ms
    acks = _acks(run, command, options.get("acks"))
    if rounds * number > MOST_RECORDS:
        raise command.fail(f"{rounds * number} records; at most {MOST_RECORDS}")
    for _ in range(rounds):
        ids = tuple(f"m{run.next_record + i}" for i in range(number))
        run.next_record += number
        run.cluster.produce(broker, ids, acks)
        run.cluster.advance(every_ms)


def _new_names(run: Run, command: Command, given: tuple[str, ...]) -> None:
    used = {name for request in run.cluster.requests for name in request.ids}
    again = next((n for i, n in enumerate(given) if n in used or n in given[:i]), None)
    if again:
        raise command.fail(f"there is a record {again!r} already; a name stands for one record")


def _acks(run: Run, command: Command, text: str | None) -> int:
    if text is None:
        return run.cluster.version.producer_acks
    if text in ("all", "-1"):
        return ACKS_ALL
    if not text.isdigit():
        raise command.fail(f"acks={text} is none of 0, 1, all")
    return int(text)


def _consume(run: Run, command: Command) -> None:
    """What a consumer may read from this broker: everything below its high watermark."""
    broker = run.cluster.brokers[_live_broker(run, command)]
    if not isinstance(broker.role, Leader):
        run.lines.append(f"            client    {broker.version.not_leader_error}")
        return
    end = broker.log.high_watermark
    readable = words.names(broker.log.read(broker.log.log_start_offset, end))
    line = f"            client    reads up to offset {end} (exclusive): {readable}"
    run.lines.append(line.rstrip())


def _fetch(run: Run, command: Command) -> None:
    """One round of a follower: its answer arrives, and its next fetch reaches the leader."""
    number = _live_broker(run, command)
    role = run.cluster.brokers[number].role
    if not isinstance(role, Follower):
        raise command.fail(f"broker {number} is not a follower")
    leader = role.leader
    for _ in range(10):
        answers = run.cluster.on_link(leader, number)
        requests = run.cluster.on_link(number, leader)
        is_fetch = bool(requests) and isinstance(requests[0].message, Fetch)
        if not answers and not requests:
            return
        run.cluster.deliver((requests or answers)[0])
        if is_fetch:
            return


def _messages(run: Run, command: Command) -> list[Envelope]:
    """The next messages on a link `1>2`, as many as asked for."""
    link = command.arguments[0] if command.arguments else ""
    if link.count(">") != 1:
        raise command.fail("on which link? for example: deliver 1>2, or: drop 2>controller 2")
    source, target = (_broker(run, command, w, True) for w in link.split(">"))
    waiting = run.cluster.on_link(source, target)
    if command.arguments[1:] == ["all"]:
        return waiting
    most = _count(command, command.arguments[1], 1000) if len(command.arguments) > 1 else 1
    if len(waiting) < most:
        raise command.fail(f"{len(waiting)} messages are on their way on {link}; {_on_way(run)}")
    return waiting[:most]


def _on_way(run: Run) -> str:
    links = sorted(
        {
            f"{words.address(e.source)}>{words.address(e.target)}"
            for e in run.cluster.queue
            if not e.is_timer and e.source != CLIENT
        }
    )
    return f"links with messages: {' '.join(links) or 'none'}"


def _deliver(run: Run, command: Command) -> None:
    for envelope in _messages(run, command):
        run.cluster.deliver(envelope)


def _drop(run: Run, command: Command) -> None:
    for envelope in _messages(run, command):
        run.cluster.drop(envelope)


def _stabilize(run: Run, command: Command) -> None:
    run.cluster.stabilize()


def _advance(run: Run, command: Command) -> None:
    if len(command.arguments) != 1:
        raise command.fail("how long? for example: advance 10s")
    run.cluster.advance(_duration_ms(command, command.arguments[0]))


def _pause(run: Run, command: Command) -> None:
    what = command.arguments[1] if len(command.arguments) > 1 else "process"
    if what not in ("process", "fetcher"):
        raise command.fail(f"pause the 'process' or its 'fetcher', not {what!r}")
    faults.pause(run.cluster, _live_broker(run, command), what)


def _resume(run: Run, command: Command) -> None:
    broker = _live_broker(run, command)
    if broker not in run.cluster.paused:
        paused = words.ids(sorted(run.cluster.paused)) or "none"
        raise command.fail(f"broker {broker} is not paused; paused: {paused}")
    faults.resume(run.cluster, broker)


def _on_live(fault: Callable[[Cluster, int], None]) -> Callable[[Run, Command], None]:
    return lambda run, command: fault(run.cluster, _live_broker(run, command))


def _hard_bounce(run: Run, command: Command) -> None:
    if command.arguments == ["controller"]:
        faults.controller_bounce(run.cluster)
    else:
        faults.hard_bounce(run.cluster, _live_broker(run, command))


def _power_loss(run: Run, command: Command) -> None:
    if command.arguments == ["controller"]:
        faults.controller_power_loss(run.cluster)
    else:
        faults.power_loss(run.cluster, _one_broker(run, command))


def _flush(run: Run, command: Command) -> None:
    faults.flush(run.cluster, _one_broker(run, command))


def _start(run: Run, command: Command) -> None:
    broker = _one_broker(run, command)
    if broker in run.cluster.brokers:
        raise command.fail(f"broker {broker} is alive already")
    faults.start(run.cluster, broker)


def _cut(run: Run, command: Command) -> None:
    faults.network_partition(run.cluster, *_two_machines(run, command))


def _heal(run: Run, command: Command) -> None:
    faults.heal(run.cluster, *_two_machines(run, command))


def _degrade(run: Run, command: Command) -> None:
    one, other = _two_machines(run, command)
    if len(command.arguments) != 3:
        raise command.fail("how slow? for example: degraded_network 1 2 50ms")
    latency = _duration_ms(command, command.arguments[2])
    faults.degraded_network(run.cluster, one, other, latency)


def _elect(run: Run, command: Command) -> None:
    kind = command.arguments[0] if command.arguments else ""
    if kind not in ("", "preferred", "unclean"):
        raise command.fail(f"elect, elect preferred, or elect unclean; not {kind!r}")
    faults.notice(run.cluster)
    if kind:
        faults.elect(run.cluster, kind)


def _status(run: Run, command: Command) -> None:
    print_news(run)
    run.lines += words.status(run.cluster)


def _check(run: Run, command: Command) -> None:
    """Name what is broken now; without arguments, every property."""
    asked = command.arguments or list(safety.PROPERTIES)
    for name in asked:
        if name not in safety.PROPERTIES:
            raise command.fail(f"no property {name!r}; known: {', '.join(safety.PROPERTIES)}")
        wrong = safety.PROPERTIES[name](run.cluster.observer.view())
        run.lines.append(f"  {name}: {wrong or 'holds'}")


def _trace(run: Run, command: Command) -> None:
    """Show every message (on), what changes (off), or of that only what concerns the ISR (isr)."""
    if command.arguments not in (["on"], ["off"], ["isr"]):
        raise command.fail("trace on, trace off, or trace isr")
    run.is_tracing = command.arguments == ["on"]
    run.shows_isr_only = command.arguments == ["isr"]


COMMANDS: dict[str, Callable[[Run, Command], None]] = {
    "version": _version,
    "partition": _partition,
    "produce": _produce,
    "consume": _consume,
    "fetch": _fetch,
    "deliver": _deliver,
    "drop": _drop,
    "stabilize": _stabilize,
    "advance": _advance,
    "pause": _pause,
    "resume": _resume,
    "kill": _on_live(faults.hard_shutdown),
    "power_loss": _power_loss,
    "clean_shutdown": _on_live(faults.clean_shutdown),
    "hard_bounce": _hard_bounce,
    "clean_bounce": _on_live(faults.clean_bounce),
    "start": _start,
    "cut": _cut,
    "heal": _heal,
    "degraded_network": _degrade,
    "flush": _flush,
    "elect": _elect,
    "status": _status,
    "check": _check,
    "trace": _trace,
}
SYNONYMS = {"hard_shutdown": "kill", "network_partition": "cut"}
