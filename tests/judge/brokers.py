"""Random lives of brokers, elections, and ISR changes right and wrong, for a controller."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from isrlab.engine.model import NO_LEADER
from isrlab.engine.versions import KafkaVersion
from isrlab.judged.controller import BROKERS, ControllerPlayer
from isrlab.judged.stored import Command

STEPS = 60
OFTEN = {"alter": 8, "expire": 3, "register": 4, "shut_down": 1.5, "elect": 1.5, "reassign": 2}


def settings(seed: int, version: KafkaVersion) -> dict[str, Any]:
    chosen = {"min_insync_replicas": 1 + seed % 3}
    chosen["unclean_leader_election_enable"] = seed % 4 == 0
    if version.eligible_leader_replicas and seed % 2:
        chosen["has_elr"] = False
    return chosen


def commands(draw: random.Random, player: ControllerPlayer) -> Iterator[Command]:
    process = 0
    weights = [weight * draw.choice((0.3, 1, 3)) for weight in OFTEN.values()]
    wrong = draw.choice((0, 0.1, 0.4))
    for _ in range(STEPS):
        alive = [info.id for info in player.controller.alive]
        dead = [number for number in BROKERS if number not in alive]
        name = draw.choices(list(OFTEN), weights)[0]
        if name == "register" and (dead or draw.random() < 0.3):
            process += 1
            broker = draw.choice(dead or alive)
            yield ["register", broker, process, draw.random() < 0.7]
        elif name == "expire" and alive:
            yield ["expire", draw.choice(alive)]
        elif name == "shut_down" and player.controller.available:
            yield ["shut_down", draw.choice(player.controller.available)]
        elif name == "elect":
            yield ["elect", draw.choice(("preferred", "unclean"))]
        elif name == "reassign":
            yield ["reassign", _target(draw, player)]
        elif player.controller.leader != NO_LEADER:
            yield _alter(draw, player, wrong)


def _target(draw: random.Random, player: ControllerPlayer) -> list[int] | None:
    """Other replicas, or the same in another order; None cancels."""
    if draw.random() < (0.3 if player.controller.state.adding else 0.05):
        return None
    return draw.sample(BROKERS, draw.choice((1, 2, 3, 3, 3, 4)))


def _alter(draw: random.Random, player: ControllerPlayer, wrong: float) -> Command:
    """What a leader asks; with a chance of `wrong` for each thing that may be wrong with it."""
    controller = player.controller
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
