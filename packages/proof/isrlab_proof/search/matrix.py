"""Which release breaks which promise, and in how few actions: searched once, and stored.

Theory of operation. `data/searched/questions.toml` has the questions, one for each row of a matrix.
The columns are releases, and releases with repairs that no release has. If a release breaks a
promise, it is searched again with single rules switched. `python -m isrlab_proof.search.matrix`
runs the searches that `answers.csv` lacks, one after another, and writes each answer when it comes,
so an interrupted run can be continued. A question that has changed is searched again.
"""

import csv
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from isrlab.engine.versions import KafkaVersion
from isrlab.installed import DATA
from isrlab_proof.search.everything import budgets_of, line_of, try_all

FOLDER = DATA / "searched"
ANSWERS = FOLDER / "answers.csv"


class MatrixRow(NamedTuple):
    """A row of `questions.toml`, where its fields are explained."""

    about: str
    promise: str
    budgets: str
    of: str
    brokers: int = 0
    prompt: bool = False
    levels: int = 0

    @property
    def asked(self) -> str:
        """All that the answer depends on, except the rules."""
        words = [f"{self.promise}, {self.budgets}", *line_of(self.of).splitlines()]
        words += [f"{self.brokers} brokers"] if self.brokers else []
        words += ["prompt controller"] if self.prompt else []
        words += [f"up to {self.levels - 1} actions"] if self.levels else []
        return "; ".join(words)


class MatrixAnswer(NamedTuple):
    """A line of `answers.csv`."""

    question: str
    rules: str  # a column
    asked: str
    actions: int  # in the shortest break; 0: there is none
    ended: str  # why the search ended (`SearchEnd`)
    states: int
    transitions: int
    depth: int  # actions in the longest schedules that were tried
    seconds: float
    schedule: str  # a shortest break
    is_played: bool  # whether it also breaks the promise in the clocked world

    @property
    def field(self) -> str:
        """The number of actions of the shortest break, "none", or "> N" if none has up to N."""
        none = "none" if self.ended == "all" else f"> {self.depth}"
        return str(self.actions) if self.actions else none


_READ = tomllib.loads((FOLDER / "questions.toml").read_text("utf-8"))
QUESTIONS = {name: MatrixRow(**row) for name, row in _READ["questions"].items()}
RELEASES = {name: KafkaVersion.of(name) for name in _READ["releases"]}


def _with_rules(kind: str) -> dict[str, KafkaVersion]:
    """Columns whose names begin with a release, each with some of its rules switched by hand."""
    rules = _READ[kind].items()
    return {name: KafkaVersion.of(base_of(name)).with_(**choices) for name, choices in rules}


def base_of(rules: str) -> str:
    """The release of a column."""
    return rules.split()[0].rstrip(":")


COLUMNS = RELEASES | _with_rules("repaired")
SWITCHED = _with_rules("switched")  # searched if their release breaks a promise


def ask(question: str, rules: str, workers: int = 1) -> MatrixAnswer:
    """Search for one field of the matrix."""
    row = QUESTIONS[question]
    how: dict[str, Any] = {"brokers": row.brokers, "prompt": row.prompt, "workers": workers}
    how |= {"most_depth": row.levels} if row.levels else {}
    budgets = budgets_of(row.budgets.split())
    result = try_all((COLUMNS | SWITCHED)[rules], row.of, budgets, row.promise, **how)
    at, ended = result.end.progress, result.end.ended
    return MatrixAnswer(
        question, rules, row.asked, len(result.actions), ended, at.distinct, at.transitions,
        at.depth - 1, round(at.seconds, 1), "; ".join(result.actions), result.text is not None,
    )  # fmt: skip


def stored(path: Path = ANSWERS) -> dict[tuple[str, str], MatrixAnswer]:
    """The stored answers to current questions, by question and rules, in matrix order."""
    known = {}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            for line in list(csv.reader(file))[1:]:
                answer = msgspec.convert(line, MatrixAnswer, strict=False)
                known[answer.question, answer.rules] = answer
    wanted = [(question, rules) for question in QUESTIONS for rules in COLUMNS | SWITCHED]
    return {key: known[key] for key in wanted
            if key in known and known[key].asked == QUESTIONS[key[0]].asked}  # fmt: skip


def keep(answer: MatrixAnswer, path: Path = ANSWERS) -> None:
    """Add an answer to the file."""
    answers = stored(path) | {(answer.question, answer.rules): answer}
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([MatrixAnswer._fields, *answers.values()])
    part.replace(path)


def main(names: list[str]) -> None:
    """Search for missing answers to the questions whose names begin with `names` (none: all)."""
    for question in (q for q in QUESTIONS if not names or q.startswith(tuple(names))):
        for rules in COLUMNS | SWITCHED:
            answers = stored()
            if rules in SWITCHED and not answers[question, base_of(rules)].actions:
                continue
            if (question, rules) not in answers:
                answer = ask(question, rules)
                keep(answer)
                print(f"{question}, {rules}: {answer.field} "
                      f"({answer.states:,} states, {answer.seconds:g} s)", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
