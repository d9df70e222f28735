"""How likely a promise is to break after each step of a scenario, and which step decided it.

Theory of operation. After each step, `count` random continuations start, of up to `length` steps
drawn from the possible ones by the weights of a mix. The curve shows the share of continuations in
which the promise breaks; it is 1 once the story itself has broken it. Each continuation is seeded
by the seed, the step and its own number, so the rows do not depend on how the work is divided.

Limit: the share holds only for its mix of faults, so a curve carries its mix.
"""

import math
import random
from collections import ChainMap
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from isrlab.engine.safety import PROPERTIES
from isrlab.world.actions import KINDS, enabled, play_line
from isrlab.world.cluster import NotSettledError
from isrlab.world.exploring import Exploration
from isrlab.world.script import Run

# Clean shutdowns, unclean elections, power failures and reassignments occur only in a mix that
# names them.
MIX = {
    "deliver": 6.0, "settle": 2.0, "wait": 2.0, "produce": 1.0, "lose": 1.0,
    "kill": 1.0, "start": 2.0, "bounce": 1.0, "failover": 1.0, "expire": 2.0,
}  # fmt: skip
LONG_WAITS = "advance 10s", "advance 45s"  # too slow for continuations


class StoryStep(NamedTuple):
    """A line of a scenario; after it, `broken` of `tries` continuations break the promise."""

    number: int  # 0: the start, before the first line
    line: str
    caption: str
    broken: int
    tries: int
    is_over: bool = False  # the story itself has broken the promise

    @property
    def share(self) -> float:
        return self.broken / self.tries

    @property
    def text(self) -> str:
        """The line, and its effect."""
        return f"{self.line}: {self.caption}" if self.caption else self.line

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval (Wilson's) of the share."""
        if self.is_over:
            return 1.0, 1.0
        z, n = 1.96, self.tries
        middle = (self.share + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(self.share * (1 - self.share) / n + (z / n / 2) ** 2)
        return max(0.0, middle - half), min(1.0, middle + half)


class Decision(NamedTuple):
    """A curve, and how it was computed."""

    version: str
    promise: str
    mix: Mapping[str, float]
    length: int
    seed: int
    steps: tuple[StoryStep, ...]

    @property
    def jump(self) -> StoryStep | None:
        """The step with the largest rise of risk among those whose interval lies above that of the
        previous step; the break itself counts only if no other step does."""
        clear = [(a, b) for a, b in pairwise(self.steps) if b.interval[0] > a.interval[1]]
        clear = [(a, b) for a, b in clear if not b.is_over] or clear
        return max(clear, key=lambda pair: pair[1].share - pair[0].share)[1] if clear else None

    @property
    def sentence(self) -> str:
        """A sentence that names the step that decided, or says that no step did."""
        jump, highest = self.jump, max(step.share for step in self.steps)
        if jump is None:
            most = f"at most {highest:.0%}" if highest else "none"
            return f"{self.version}: no step decides; {most} of the continuations break the promise"
        risk = f"the risk goes from {self.steps[jump.number - 1].share:.0%} to {jump.share:.0%}"
        where = f"step {jump.number} of {len(self.steps) - 1}, {jump.line}"
        return f"{self.version}: decided by {where}: {risk}"

    @property
    def table(self) -> str:
        """A row for each step (the share of continuations, its interval, the step), and the mix."""
        bands = ("{:4.0%} to {:4.0%}".format(*step.interval) for step in self.steps)
        rows = zip(self.steps, bands, strict=True)
        lines = [f"{s.number:>3}  {s.share:4.0%}  {band}  {s.text}" for s, band in rows]
        return "\n".join([*lines, self.sentence, self.how])

    @property
    def how(self) -> str:
        """The number and length of the continuations, their mix and their seed, in words."""
        weights = ", ".join(f"{kind} {weight:g}" for kind, weight in self.mix.items() if weight)
        each = f"{self.steps[0].tries:,} continuations of {self.length} steps after each step"
        return f"{each}, drawn by these weights: {weights} (seed {self.seed})"


def mix_of(text: str) -> dict[str, float]:
    """`MIX` with other weights, such as "power=1 lose=0". Raises ValueError."""
    mix = dict(MIX)
    for word in text.split():
        kind, _, weight = word.partition("=")
        if kind not in KINDS or not weight.replace(".", "", 1).isdigit():
            raise ValueError(f"{word!r} is not a weight such as kill=2; known: {', '.join(KINDS)}")
        mix[kind] = float(weight)
    return mix


def decided(
    text: str,
    version: str | None = None,
    promise: str = "committed_records_survive",
    mix: Mapping[str, float] = MIX,
    *,
    count: int = 200,
    length: int = 12,
    seed: int = 1,
    jobs: int = 1,
) -> Decision:
    """The curve of a scenario. Raises ValueError for one that cannot be played."""
    if promise not in PROPERTIES:
        raise ValueError(f"no promise {promise!r}; known: {', '.join(PROPERTIES)}")
    story = Exploration(text, (version,) if version else ())
    name, path = story.versions[0], story.path(story.current)
    for step in path:
        if problem := story.problem(name, step):
            raise ValueError(f"{story.tree[step].line}: {problem}")
    places = [step for step in path if promise not in story.run(name, step).violations]
    broken_after = partial(_broken_after, (text, version), promise, mix, (count, length, seed))
    if jobs == 1:
        broken = broken_after(places)
    else:
        from concurrent.futures import ProcessPoolExecutor  # not in a browser
        from multiprocessing import get_context

        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            shares = [places[i :: 2 * jobs] for i in range(2 * jobs)]
            broken = dict(ChainMap(*pool.map(broken_after, shares)))
    return decision_of(story, name, (promise, mix, length, seed), broken, count)


def decision_of(
    story: Exploration,
    version: str,
    how: tuple[str, Mapping[str, float], int, int],
    broken: Mapping[int, int],
    count: int,
) -> Decision:
    """The curve. After each step `broken` of `count` continuations break the promise; if a step is
    missing in `broken`, the story itself has broken it by then."""
    steps = tuple(
        StoryStep(
            place,
            story.tree[step].line or "the start",
            story.tree[step].captions.get(version, ""),
            broken.get(step, count),
            count,
            step not in broken,
        )
        for place, step in enumerate(story.path(story.current))
    )
    return Decision(version, *how, steps)


def _broken_after(
    script: tuple[str, str | None],
    promise: str,
    mix: Mapping[str, float],
    chances: tuple[int, int, int],
    places: Sequence[int],
) -> dict[int, int]:
    """For each of these steps, how many continuations break the promise."""
    count, length, seed = chances
    text, version = script
    story = Exploration(text, (version,) if version else ())
    runs = {place: story.run(story.versions[0], place) for place in places}
    return {place: sum(breaks(run, promise, mix, length, (seed, place, n)) for n in range(count))
            for place, run in runs.items()}  # fmt: skip


def breaks(
    run: Run, promise: str, mix: Mapping[str, float], length: int, seed: tuple[int, int, int]
) -> bool:
    """Whether one random continuation breaks the promise."""
    run, chance = deepcopy(run), random.Random("{} {} {}".format(*seed))
    for part in run.topic:
        part.cluster.observer.ask_only(promise)
    kinds = [kind for kind, weight in mix.items() if weight]
    for _ in range(length):
        lines: dict[str, list[str]] = {}
        for action in enabled(run, kinds):
            if action.line not in LONG_WAITS:
                lines.setdefault(action.kind, []).append(action.line)
        if not lines:
            return False
        (kind,) = chance.choices(list(lines), [mix[kind] for kind in lines])
        try:
            play_line(run, chance.choice(lines[kind]))
        except NotSettledError:
            return False
        if promise in run.violations:
            return True
    return False
