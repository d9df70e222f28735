"""What a run of a cluster is made of: messages on their way, the state after each step, the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from isrlab.engine.controller import Controller
from isrlab.engine.log import Log
from isrlab.engine.messages import Message
from isrlab.engine.model import Broker


@dataclass(frozen=True, slots=True, order=True)
class Envelope:
    """A message on its way. `incarnation` ties a timer to the process that set it."""

    due_ms: int
    sequence: int
    source: int = field(compare=False)
    target: int = field(compare=False)
    message: Message = field(compare=False)
    incarnation: int | None = field(compare=False, default=None)

    @property
    def is_timer(self) -> bool:
        return self.source == self.target


@dataclass(frozen=True, slots=True)
class Fault:
    """What a person or an accident did to a machine, in place of a message."""

    text: str


@dataclass(frozen=True, slots=True)
class Frame:
    """The whole cluster after one step: what a figure draws and a slider moves through."""

    now_ms: int
    source: int
    target: int
    message: Message
    brokers: dict[int, Broker]
    disks: dict[int, Log]  # of all brokers, dead ones too
    controller: Controller
    was_lost: bool = False


@dataclass(slots=True)
class Request:
    """A produce request as its client sees it."""

    broker: int
    ids: tuple[str, ...]
    acks: int
    sent_ms: int = 0
    error: str | None = None
    is_answered: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the data at the end of a run."""

    lost: tuple[str, ...]  # committed records that the leader does not have
    lost_acknowledged: tuple[str, ...]  # acknowledged ones, of whatever acks
    diverged: tuple[tuple[int, int], ...]  # (follower, first offset) that differs from the leader
    has_leader: bool
    violations: dict[str, str]

    @property
    def word(self) -> str:
        """diverged, lost, offline or safe: the worst of what happened to committed records."""
        if self.diverged:
            return "diverged"
        if self.lost:
            return "lost"
        return "safe" if self.has_leader else "offline"
