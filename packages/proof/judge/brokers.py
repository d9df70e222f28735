"""Random lives of brokers, elections, and ISR changes right and wrong, for a controller."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from isrlab.engine.model import NO_LEADER
from isrlab.engine.partition import Controller
from isrlab.engine.versions import KafkaVersion
from isrlab_proof.judged.controller import BROKERS, ControllerPlayer
from isrlab_proof.judged.stored import CommandWords

STEPS = 60
OFTEN = {
    "alter": 8, "expire": 2, "register": 3, "beat": 2, "shut_down": 2, "elect": 1.5, "tick": 1,
    "reassign": 2, "fail_over": 0.5,
}  # fmt: skip
ASSIGNED = ([1, 2, 3], [1, 2, 3], [2, 3], [3], [4, 3, 2, 1])  # replicas of a partition


def settings(seed: int, version: KafkaVersion) -> dict[str, Any]:
    chosen = {"min_insync_replicas": 1 + seed % 3, "unclean_leader_election_enable": seed % 4 < 2}
    if version.eligible_leader_replicas and seed % 2:
        chosen["has_elr"] = False
    elif version.eligible_leader_replicas:
        draw = random.Random(seed)
        chosen["partitions"] = draw.choices(ASSIGNED, k=draw.choice((1, 2, 2, 3)))
    return chosen


def commands(draw: random.Random, player: ControllerPlayer) -> Iterator[CommandWords]:
    process, is_configured, leaving = 0, False, set[int]()
    has_elr = player.controller.version.eligible_leader_replicas
    often = OFTEN | ({"configure": 0.7} if has_elr else {})
    weights = [weight * draw.choice((0.3, 1, 3)) for weight in often.values()]
    wrong = draw.choice((0, 0.1, 0.4))
    for _ in range(STEPS):
        alive = [info.id for info in player.controller.alive]
        dead = [number for number in BROKERS if number not in alive]
        name = draw.choices(list(often), weights)[0]
        parts = _partitions(draw, player)
        controller = player.controllers[parts[0]]
        words = parts if len(player.controllers) > 1 else []
        if name == "register" and (dead or draw.random() < 0.3):
            process += 1
            twice = sorted({*controller.left_in_index} & {*controller.state.elr})  # difference AC
            broker = draw.choice(twice or dead or alive)
            leaving -= {broker}
            was_clean = draw.random() < (0.4 if is_configured else 0.7) and not twice
            was_clean |= is_configured and len(player.controllers) > 1
            yield ["register", broker, process, was_clean]
        elif name == "expire" and alive:
            yield ["expire", draw.choice(alive)]
        elif name == "shut_down" and alive:
            leaving.add(broker := draw.choice(alive))
            yield ["shut_down", broker]
        elif name == "beat" and {*dead} - leaving:
            yield ["beat", draw.choice(sorted({*dead} - leaving))]
        elif name == "tick":
            is_there = player.controller.version.kraft_elects_uncleanly
            yield ["tick", draw.choice(("unclean", "balance")) if is_there else "balance"]
        elif name == "fail_over":
            yield ["fail_over"]
        elif name == "elect":
            yield ["elect", draw.choice(("preferred", "unclean")), *words]
        elif name == "reassign":
            yield ["reassign", _target(draw, controller), *words]
        elif name == "configure":
            is_configured = True  # from now on Kafka's index of ELR members is wrong, and the
            # engine's is only for one partition: entries of others become partition 0's
            yield ["configure", draw.choice((0, 1, 2, 2, 3))]
        elif name == "alter" and controller.leader != NO_LEADER:
            yield [*_alter(draw, controller, wrong), *words[:1]]


def _partitions(draw: random.Random, player: ControllerPlayer) -> list[int]:
    """The numbers of the partitions in one request: one, or all in a random order."""
    numbers = range(len(player.controllers))
    return draw.sample(numbers, draw.choice((1, 1, 1, len(numbers))))


def _target(draw: random.Random, controller: Controller) -> list[int] | None:
    """Random replicas to reassign to, perhaps the same as before; None cancels."""
    if draw.random() < (0.3 if controller.state.adding else 0.05):
        return None
    return draw.sample(BROKERS, draw.choice((1, 2, 3, 3, 3, 4)))


def _alter(draw: random.Random, controller: Controller, wrong: float) -> CommandWords:
    """A leader's ISR change; the higher `wrong`, from 0 to 1, the more of its values are wrong."""
    leader = controller.leader
    known = {info.id: info.broker_epoch for info in controller.alive}

    def off(value: int) -> int:
        return value + draw.choice((-1, 1)) if draw.random() < wrong / 3 else value

    broker = leader
    if draw.random() < wrong / 3:
        broker = draw.choice([number for number in BROKERS if number in known])
    some = [n for n in controller.replicas if n != leader and draw.random() < 0.7]
    if draw.random() >= wrong:
        some = [n for n in some if n in controller.available]
    members = sorted({leader, *some})
    if draw.random() < wrong / 3:
        members = sorted({*some, draw.choice(BROKERS)})
    if not controller.version.eligibility >= 2 or draw.random() < 0.3:
        epochs = [[number, -1] for number in members]
    else:
        epochs = [[number, max(0, off(known.get(number, 0)))] for number in members]
    numbers = [max(0, off(controller.leader_epoch)), max(0, off(controller.partition_epoch))]
    is_recovering = controller.state.is_recovering and draw.random() < 0.3
    return ["alter", broker, numbers, epochs, is_recovering or draw.random() < wrong / 6]
