"""Random scenarios: of all the lines that make sense now, one is chosen by two numbers.

What was played is a scenario text, so a failure is one, too. What the controller sends is not
dropped: a real one repeats it until it arrives.
"""

from __future__ import annotations

from collections.abc import Iterable

from isrlab.cluster import Cluster
from isrlab.commands import COMMANDS, print_news
from isrlab.engine.messages import CLIENT
from isrlab.script import Command, Run
from isrlab.trace import address

WAITS = ("100ms", "600ms", "6s", "20s", "50s")


class Player:
    """A cluster and the lines it has played so far; `powers` are faults beyond the usual ones."""

    def __init__(self, version: str, partition: str, powers: Iterable[str] = ()) -> None:
        self.run = Run([])
        self.powers = frozenset(powers)
        self.lines: list[str] = []
        for line in (f"version {version}", partition):
            self.play(line)

    @property
    def cluster(self) -> Cluster:
        return self.run.cluster

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def play(self, line: str) -> None:
        self.lines.append(line)
        command = Command(len(self.lines), line)
        COMMANDS[command.words[0]](self.run, command)
        print_news(self.run)

    def choose(self, kind: int, which: int) -> None:
        """Play one of the lines that make sense now."""
        offers = [lines for lines in self.offers() if lines]
        lines = offers[kind % len(offers)]
        self.play(lines[which % len(lines)])

    def offers(self) -> list[list[str]]:
        """The lines that make sense now, by kind; a kind that is there twice comes more often."""
        cluster = self.cluster
        live = sorted(cluster.brokers)
        leaders = [b for b in live if b == cluster.controller.leader] or live
        produce = [f"produce {b} acks={acks}" for acks in ("1", "all") for b in leaders]
        waits = [f"advance {duration}" for duration in WAITS]
        return [
            produce,
            produce,
            ["stabilize"],
            ["stabilize"],
            waits,
            waits,
            ["elect"],
            ["elect preferred"],
            *self._offers_of_links(),
            *self._offers_of_brokers(live),
            [f"power_loss {b}" for b in live if "power" in self.powers],
            ["elect unclean"] if "unclean" in self.powers else [],
            ["hard_bounce controller"] if "controller" in self.powers else [],
        ]

    def _offers_of_links(self) -> list[list[str]]:
        cluster = self.cluster
        waiting = {
            f"{address(e.source)}>{address(e.target)}"
            for e in cluster.queue
            if not e.is_timer and e.source != CLIENT
        }
        machines = [*cluster.replicas, 0]
        pairs = [(a, b) for a in cluster.replicas for b in machines if a != b and (a < b or b == 0)]
        names = {p: f"{p[0]} {address(p[1])}" for p in pairs}
        cut = [p for p in pairs if cluster.is_cut(*p)]
        deliver = [f"deliver {link}" for link in sorted(waiting)]
        return [
            deliver,
            deliver,
            deliver,
            [f"drop {link}" for link in sorted(waiting) if not link.startswith("controller")],
            [f"cut {names[p]}" for p in pairs if p not in cut],
            [f"heal {names[p]}" for p in cut],
            [f"heal {names[p]}" for p in cut],
        ]

    def _offers_of_brokers(self, live: list[int]) -> list[list[str]]:
        cluster = self.cluster
        dead = [b for b in cluster.replicas if b not in cluster.brokers]
        running = [b for b in live if b not in cluster.paused]
        faults = ("kill", "clean_shutdown", "hard_bounce", "clean_bounce")
        start = [f"start {b}" for b in dead]
        resume = [f"resume {b}" for b in sorted(cluster.paused)]
        return [
            [f"{fault} {b}" for fault in faults for b in live],
            [f"kill {b}" for b in live],
            start,
            start,
            [f"pause {b} {what}" for what in ("process", "fetcher") for b in running],
            resume,
            resume,
            [f"flush {b}" for b in cluster.replicas if "power" in self.powers],
        ]

    def repair(self) -> None:
        """Heal every link, resume and start every broker, and let 40 seconds pass."""
        for pair in sorted(self.cluster.cuts, key=sorted):
            one, other = sorted(pair)
            self.play(f"heal {other} {address(one)}")
        for broker in sorted(self.cluster.paused):
            self.play(f"resume {broker}")
        for broker in self.cluster.replicas:
            if broker not in self.cluster.brokers:
                self.play(f"start {broker}")
        self.play("advance 40s")
        self.play("stabilize")
