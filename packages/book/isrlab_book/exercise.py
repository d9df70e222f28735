"""Exercises that the machine marks: a reader's lines are played, and each goal is checked.

A file of `data/exercises` has sections, each begun by its name in brackets:

    [ask]       what to do, in a sentence or two
    [given]     lines of a scenario that are played before the reader's
    [then]      lines that are played after them
    [fleet]     instead of `given`: settings of a small fleet; the reader's lines are also settings
    [limits]    `commands 6`: at most so many; `only kill start`: no other command (or setting)
    [fewest]    how many commands the shortest known answer has, if fewer than the solution
    [goals]     `VERSION: GOAL`, a line each, GOAL being one of
                    safe, lost, diverged, offline    the outcome, as `Outcome.word` says it
                    lost m2 m3, kept m2              records that the last leader lacks, or has
                    broken NAME, held NAME           a property of engine/safety.py
                    prints TEXT, hides TEXT          the run and a last `status` print it, or do not
                    NAME <= 2 (or == or >=)          one of the numbers of `measures`
    [hint]      as often as there are hints
    [solution]  an answer that a test plays: it meets all goals

All but `ask`, `goals`, `hint` and `solution` may be missing. The goals of a fleet are numbers.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from isrlab.events.measures import measures
from isrlab.events.statements import statement
from isrlab.installed import DATA
from isrlab.world import scenario, words
from isrlab.world.script import Run, ScriptError

LIBRARY = DATA / "exercises"
SECTIONS = "ask", "given", "then", "fleet", "limits", "fewest", "goals", "hint", "solution"
_AMOUNTS = {"<=": "at most", "==": "exactly", ">=": "at least"}


class Exercise(NamedTuple):
    name: str
    sections: Mapping[str, str]
    limits: Mapping[str, list[str]]
    goals: list[tuple[str, str]]  # version, goal
    hints: list[str]

    @property
    def is_fleet(self) -> bool:
        return bool(self.sections["fleet"])

    @property
    def fewest(self) -> int:
        """How many commands (or settings) the shortest known answer has."""
        return int(self.sections["fewest"] or len(commands(self.sections["solution"])))

    @property
    def task(self) -> str:
        """What is asked, and the lines that are played before and after the reader's."""
        parts = [self.sections["ask"]]
        for head, name in (("Given:", "given"), ("Given:", "fleet"), ("Afterwards:", "then")):
            if lines := self.sections[name].splitlines():
                parts.append("\n".join([head, *(f"    {line}" for line in lines)]))
        return "\n".join(parts)


class Mark(NamedTuple):
    """One goal or limit, and whether the answer meets it."""

    version: str  # empty for a limit
    is_met: bool
    text: str


def marked(is_right: bool, happened: str, asked: str) -> str:
    """The line that a notebook prints after checking numbers itself."""
    return f"✓ {happened}: solved" if is_right else f"✗ {happened}; {asked}"


class ExerciseRun:
    """The result of an answer in one version: a run, or the numbers of a fleet."""

    def __init__(self, exercise: Exercise, answer: str, version: str) -> None:
        self._run: Run | None = None
        if exercise.is_fleet:
            self.measures = _run_fleet(f"{exercise.sections['fleet']}\n{answer}", version)
        else:
            self._run = _play(exercise, answer, version)

    @cached_property
    def measures(self) -> dict[str, float]:
        """The numbers of a scenario's run; for a fleet, `__init__` has set them."""
        cluster = self.run.cluster
        copies, least = len(cluster.replicas), cluster.settings.min_insync_replicas
        rows = [statement(**row) for row in self.run.rows()]
        return measures(rows, copies, least, (words.START_MS, cluster.now_ms))

    @property
    def run(self) -> Run:
        if self._run is None:
            raise ValueError("the goals of a fleet must be numbers")
        return self._run

    @cached_property
    def printed(self) -> str:
        """What the run and a last `status` printed; for a fleet, its numbers other than 0."""
        if self._run is None:
            numbers = self.measures.items()
            return "\n".join(f"  {name} {number:,.6g}" for name, number in numbers if number)
        return self.run.printed + "\n".join(words.status(self.run.cluster))


def names() -> list[str]:
    """The exercises of `data/exercises`."""
    return sorted(path.stem for path in LIBRARY.glob("*.txt"))


def read(name: str) -> Exercise:
    """An exercise of `data/exercises`. Raises ValueError, with the known names."""
    if name not in names():
        raise ValueError(f"no exercise {name!r}; known: {', '.join(names())}")
    return parse(name, (LIBRARY / f"{name}.txt").read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Exercise:
    """The exercise in the text of a file. Raises ValueError for an unknown section or goal."""
    parts = re.findall(r"^\[(\w+)\]\n(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)
    if unknown := [head for head, _ in parts if head not in SECTIONS]:
        raise ValueError(f"no section {unknown[0]!r}; known: {', '.join(SECTIONS)}")
    sections = dict.fromkeys(SECTIONS, "") | {head: body.strip("\n") for head, body in parts}
    pairs = [line.partition(":")[::2] for line in sections["goals"].splitlines()]
    goals = [(version, goal.strip()) for version, goal in pairs]
    for _, goal in goals:
        _form_of(goal)
    limits = {line.split()[0]: line.split()[1:] for line in sections["limits"].splitlines()}
    hints = [body.strip("\n") for head, body in parts if head == "hint"]
    return Exercise(name, sections, limits, goals, hints)


def mark(exercise: Exercise, answer: str) -> tuple[list[Mark], dict[str, ExerciseRun]]:
    """The marks of an answer, for limits and goals; and what was played, by version.

    Raises ValueError for an answer that cannot be played, with the line of the answer.
    """
    marks = list(_limits(exercise, answer))
    played = {version: ExerciseRun(exercise, answer, version) for version, _ in exercise.goals}
    for version, goal in exercise.goals:
        judge, values = _form_of(goal)
        is_met, happened, asked = judge(played[version], *values)
        end = "as asked" if is_met else f"but {asked}"
        marks.append(Mark(version, is_met, f"{version}: {happened}, {end}"))
    return marks, played


def score(exercise: Exercise, answer: str) -> str:
    """A sentence on an answer's length and the shortest that is known; empty for a fleet."""
    if exercise.is_fleet:
        return ""
    count, known = len(commands(answer)), exercise.fewest
    best = ", as few as are known" if count == known else ""
    beside = best or f"; the shortest answer that is known has {known}"
    return f"{count} command{'s' * (count != 1)}{beside}."


def commands(answer: str) -> list[list[str]]:
    """The words of each command of an answer."""
    return [words for line in answer.splitlines() if (words := line.split("#")[0].split())]


def _limits(exercise: Exercise, answer: str) -> Iterator[Mark]:
    given = commands(answer)
    for most in map(int, exercise.limits.get("commands", ())):
        count = f"{len(given)} command{'s' * (len(given) != 1)}"
        yield Mark("", len(given) <= most, f"{count}, at most {most}")
    last = None if exercise.is_fleet else 1
    used = [word.partition("=")[0] for line in given for word in line[:last]]
    only = exercise.limits.get("only", used)
    for name in dict.fromkeys(name for name in used if name not in only):
        yield Mark("", False, f"{name} is not to be used here, only {', '.join(only)}")


def _play(exercise: Exercise, answer: str, version: str) -> Run:
    """Run the reader's lines between `given` and `then`; an empty line ends the reader's block."""
    given, then = exercise.sections["given"], exercise.sections["then"]
    try:
        return scenario.play(f"{given}\n{answer}\n\n{then}", version=version)
    except ScriptError as error:
        own = error.line - given.count("\n") - 1
        raise ValueError(str(error).replace(f"line {error.line}:", f"line {own}:", 1)) from None


def _run_fleet(text: str, version: str) -> dict[str, float]:
    from isrlab import fleet  # takes a second to import

    given = " ".join(line.split("#")[0] for line in text.splitlines())
    config = fleet.FleetConfig(version=version).with_(**fleet.settings(given))
    copies, least = config.replication_factor, config.min_insync_replicas
    return measures(fleet.simulate_local(config), copies, least, (0, config.duration_ms))


# Goals: each function takes what was played; returns (is it met, what is so, what should be)

GoalResult = tuple[bool, str, str]


def _outcome(played: ExerciseRun, asked: str) -> GoalResult:
    end = played.run.outcome.word
    return end == asked, f"the end is {end}", f"should be {asked}"


def _records(played: ExerciseRun, asked: str, names: str) -> GoalResult:
    cluster, should = played.run.cluster, f"{names} should be {asked}"
    promised = cluster.observer.committed.keys() | cluster.observer.acknowledged.keys()
    if strange := [name for name in names.split() if name not in promised]:
        return False, f"{' '.join(strange)} was never promised", should
    if (leader := cluster.observer.view().leader) is None:
        return False, "no broker leads at the end", should
    held = {record.id for record in leader.log.records}
    other = [name for name in names.split() if (name in held) != (asked == "kept")]
    opposite = "lost" if asked == "kept" else "kept"
    happened = f"{' '.join(other)} is {opposite}" if other else f"{names} is {asked}"
    return not other, happened, f"should be {asked}"


def _property(played: ExerciseRun, asked: str, name: str) -> GoalResult:
    how = played.run.violations.get(name)
    happened = f"{name} is broken ({how})" if how else f"{name} holds"
    should = "be broken" if asked == "broken" else "hold"
    return bool(how) == (asked == "broken"), happened, f"should {should}"


def _prints(played: ExerciseRun, asked: str, text: str) -> GoalResult:
    is_there = " ".join(text.split()) in " ".join(played.printed.split())
    happened = f"{'prints' if is_there else 'does not print'} “{text}”"
    return is_there == (asked == "prints"), happened, f"should{' not' * (asked == 'hides')}"


def _number(played: ExerciseRun, name: str, sign: str, limit: str) -> GoalResult:
    if name not in played.measures:
        raise ValueError(f"no number {name!r}; known: {', '.join(played.measures)}")
    number, wanted = played.measures[name], float(limit)
    is_met = {"<=": number <= wanted, "==": number == wanted, ">=": number >= wanted}[sign]
    return is_met, f"{name} is {number:,.6g}", f"should be {_AMOUNTS[sign]} {wanted:,.6g}"


_FORMS: dict[str, Callable[..., GoalResult]] = {
    r"(safe|lost|diverged|offline)": _outcome,
    r"(lost|kept) (.+)": _records,
    r"(broken|held) (\w+)": _property,
    r"(prints|hides) (.+)": _prints,
    r"(\w+) (<=|==|>=) ([\d.]+)": _number,
}


def _form_of(goal: str) -> tuple[Callable[..., GoalResult], tuple[str, ...]]:
    for pattern, judge in _FORMS.items():
        if match := re.fullmatch(pattern, goal):
            return judge, match.groups()
    raise ValueError(f"no goal {goal!r}; the forms: {', '.join(_FORMS)}")
