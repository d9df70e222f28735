"""Random pairs of logs: a follower with a history, and leaders with other histories.

The leaders are the engine's, so that most answers make sense; some are errors, are lost, or have
values that no leader would send.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from isrlab.engine import broker as machine
from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.log import Log, Record
from isrlab.engine.model import Broker, Settings
from isrlab.engine.reading import answer
from isrlab.engine.versions import KafkaVersion
from isrlab_proof.judged.follower import LEADERS, REPLICAS, FollowerPlayer
from isrlab_proof.judged.stored import CommandWords

ERRORS = (
    "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "UNKNOWN_SERVER_ERROR",
    "UNKNOWN_TOPIC_OR_PARTITION", "KAFKA_STORAGE_ERROR",
)  # fmt: skip
STEPS = 40


def settings(seed: int, version: KafkaVersion) -> dict[str, Any]:
    return {"unclean_leader_election_enable": seed % 3 > 0}


def commands(draw: random.Random, player: FollowerPlayer) -> Iterator[CommandWords]:
    epoch, stored = 0, 0
    errors = ERRORS if player.broker.version.fences_stale_leader_epoch else ERRORS[2:]
    failures, wild = draw.choice((0, 0.1, 0.3)), draw.choice((0, 0, 0.2, 0.2))
    if draw.random() < 0.8:
        past = []
        for _ in range(draw.randrange(1, 4)):
            past.append([epoch, draw.randrange(1, 5)])
            epoch += draw.choice((1, 1, 2))
        yield ["log", past, draw.randrange(sum(count for _, count in past) + 1)]
    leader: Broker | None = None
    for _ in range(STEPS):
        if leader is None or draw.random() < 0.12:
            epoch, stored = epoch + draw.choice((1, 1, 1, 2)), stored + 1
            if draw.random() < 0.2:
                yield ["lead", epoch, stored, draw.randrange(4)]
                epoch, stored = epoch + 1, stored + 1
            before = leader.id if leader else draw.choice(LEADERS)
            if leader is None or draw.random() < 0.8:
                leader = _leader(draw, player.broker, draw.choice(LEADERS), epoch)
            else:
                leader = _leading(replace(leader, id=before), epoch)
            yield ["follow", leader.id, epoch, stored]
        elif draw.random() < failures:
            yield draw.choice((["error", draw.choice(errors)], ["lost"]))
        else:
            if draw.random() < 0.15:
                leader, _ = machine.step(leader, m.Produce(0, (f"c{epoch}",), 1), 0)
            yield _said(draw, player, leader, draw.random() < wild)


def _leader(draw: random.Random, follower: Broker, number: int, epoch: int) -> Broker:
    """A leader whose log equals the follower's up to an offset, and then has other records."""
    log = follower.log
    kept = log.records[: draw.randrange(len(log.records) + 1)] if log.log_start_offset == 0 else ()
    last = kept[-1].leader_epoch if kept else 0
    own = sorted(draw.choices(range(last, epoch + 1), k=draw.randrange(6)))
    records = (*kept, *(Record(f"c{e}", e) for e in own))
    other = Log().append(records, follower.version)
    other = other.with_high_watermark(draw.randrange(len(records) + 1))
    settings = Settings.of(follower.version)
    return _leading(Broker(number, follower.version, settings, REPLICAS, log=other), epoch)


def _leading(leader: Broker, epoch: int) -> Broker:
    order = m.LeaderAndIsr(leader.id, epoch, (leader.id,), epoch, REPLICAS)
    high_watermark = leader.log.high_watermark
    leader, _ = machine.step(leader, order, 0)
    return replace(leader, log=leader.log.with_high_watermark(high_watermark))


def _said(
    draw: random.Random, player: FollowerPlayer, leader: Broker, is_wild: bool
) -> CommandWords:
    """The leader's answer to the follower's request, as a command."""
    question, log = player.asking(), leader.log
    if isinstance(question, m.OffsetsForLeaderEpoch):
        _, (sent,) = machine.step(leader, question, 0)
        end = sent.message
        if is_wild:
            named = draw.randrange(-1, question.epoch + 2) if end.epoch >= 0 else -1  # none in 1.1
            # No leader says in a second round that the end is unknown; Kafka would keep its log
            unknown = 0 if player.asked and player.asked[0] == "epoch" else -1
            return ["ends", named, draw.choice((unknown, draw.randrange(12)))]
        return ["ends", end.epoch, end.end_offset] if not end.error else ["error", end.error]
    if not isinstance(question, m.Fetch):
        return ["lost"]
    if is_wild and question.last_fetched_epoch >= 0 and draw.random() < 0.5:
        named = draw.randrange(question.last_fetched_epoch + 2)
        return ["diverges", question.offset, named, draw.randrange(12)]
    if is_wild:
        later = question.offset + draw.randrange(4)
        # Up to 2.3 a follower that restarts at its leader's start keeps its high watermark until
        # the next answer; the engine moves it, so no schedule contains this
        start = draw.choice((0, 0, later if leader.version.first >= (2, 4) else 0))
        return ["range", start, start + draw.randrange(8)]
    found = answer(leader, question)
    if found.error == "OFFSET_OUT_OF_RANGE":
        return ["range", log.log_start_offset, log.log_end_offset]
    if found.error:
        return ["error", found.error]
    if found.diverging:
        return ["diverges", question.offset, *found.diverging]
    some = found.records[: draw.choice((1, 1, 2, 9))]
    records = [[record.id, record.leader_epoch] for record in some]
    start = player.broker.log.log_start_offset  # a leader whose log began there is not behind it
    return ["fetched", question.offset, records, max(start, found.high_watermark)]
