"""The parts of a run: messages in flight, the state after each step, events, the outcome."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isrlab.engine.controller import Controller
from isrlab.engine.frozen import Frozen
from isrlab.engine.log import Log
from isrlab.engine.messages import Message
from isrlab.engine.model import Broker


class Fault(Frozen):
    """An operator's action on a machine, or a failure of it, in place of a message."""

    text: str


class Envelope(Frozen):
    """A message in flight. `incarnation` ties a timer to the process that set it."""

    due_ms: int
    source: int
    target: int
    message: Any  # a Message, or a Fault
    incarnation: int | None = None
    partition: int = 0  # its number in the topic

    @property
    def is_timer(self) -> bool:
        return self.source == self.target


class Frame(Frozen):
    """The whole cluster after one step, as figures and sliders show it."""

    place: int  # in the order of all frames and events
    now_ms: int
    source: int
    target: int
    message: Message | Fault
    brokers: dict[int, Broker]
    disks: dict[int, Log]  # of all brokers, including dead ones
    controller: Controller
    was_lost: bool = False


class Event(Frozen):
    """One thing that happened, with the columns of the events table."""

    place: int  # in the order of all frames and events
    ts_ms: int
    kind: str
    broker: int | None = None
    leader_epoch: int | None = None
    partition_epoch: int | None = None
    replica: int | None = None
    isr: tuple[int, ...] | None = None
    isr_before: tuple[int, ...] | None = None
    high_watermark: int | None = None
    log_end_offset: int | None = None
    detail: Mapping[str, str] = {}

    @property
    def is_stored_state(self) -> bool:
        """Whether the event comes from the controller, not a broker."""
        return self.detail.get("said_by") == "controller"

    @property
    def row(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__struct_fields__[1:]}


@dataclass(slots=True)
class Request:
    """A produce request as its client sees it."""

    broker: int
    ids: tuple[str, ...]
    acks: int
    sent_ms: int = 0
    error: str | None = None


OUTCOMES = "safe", "offline", "lost", "diverged"  # from good to bad


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state of the data at the end of a run."""

    lost: tuple[str, ...]  # committed records that the leader does not have
    lost_acknowledged: tuple[str, ...]  # acknowledged ones, at any acks
    diverged: tuple[tuple[int, int], ...]  # (follower, first offset) that differs from the leader
    has_leader: bool
    violations: dict[str, str]

    @property
    def word(self) -> str:
        """diverged, lost, offline or safe: the worst outcome for committed records."""
        end = "safe" if self.has_leader else "offline"
        return "diverged" if self.diverged else "lost" if self.lost else end
