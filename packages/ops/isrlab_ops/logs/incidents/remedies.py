"""Reads remedies.txt: what to do about an incident, and the facts in words."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files


@dataclass
class Remedy:
    """`then`: what to do; `done`: when that is done ("": no partition is under-replicated)."""

    then: str = ""
    done: str = ""


class Remedies:
    """`of`: remedies by rule; `facts`: the words for each fact; `why`: explanations by topic."""

    def __init__(self, text: str) -> None:
        self.of: dict[str, Remedy] = {}
        self.facts: dict[str, str] = {}
        self.why: dict[str, str] = {}
        name = ""
        for number, line in enumerate(text.splitlines(), start=1):
            word, _, rest = line.strip().partition(" ")
            key, _, sentence = rest.partition(": ")
            if not word or line.startswith("#"):
                continue
            if word == "remedy":
                name = rest
                self.of[name] = Remedy()
            elif word in ("then", "done") and name:
                setattr(self.of[name], word, rest.strip())
            elif word in ("fact", "why") and sentence:
                (self.facts if word == "fact" else self.why)[key] = sentence
            else:
                raise ValueError(f"remedies.txt:{number}: {line.strip()!r} is not part of a remedy")

    def sentence(self, learn: str) -> str:
        """The explanation that `learn` of a rule names, "" without one."""
        return self.why.get(learn.partition(": ")[2], "")

    def shows(self, fact: str) -> str:
        """A fact in words."""
        return self.facts.get(fact, fact.replace("_", " "))


REMEDIES = Remedies(files(__package__).joinpath("remedies.txt").read_text("utf-8"))
