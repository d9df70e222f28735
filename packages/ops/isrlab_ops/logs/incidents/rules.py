"""Reads rules.txt, and chooses the rule that names an incident."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from importlib.resources import files

from isrlab_ops.logs.incidents.facts import FACTS

BLAMED = ("party", "nobody")


@dataclass
class Rule:
    """A row of the table; see the head of rules.txt."""

    name: str
    is_note: bool
    seen: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    says: str = ""
    blames: str = "nobody"
    instead: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    learn: str = ""
    is_grave: bool = False

    def fits(self, facts: Collection[str]) -> bool:
        return all(f in facts for f in self.seen) and not any(f in facts for f in self.unseen)


def parse(text: str) -> list[Rule]:
    """The rules of a table. Raises ValueError, with the line, for an unknown word or fact."""
    rules: list[Rule] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        word, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if word in ("rule", "note") and not line.startswith(" "):
            rules.append(Rule(rest, word == "note"))
        elif word in ("seen", "not"):
            unknown = sorted(set(rest.split()) - set(FACTS))
            if unknown:
                known = ", ".join(FACTS)
                raise ValueError(f"rules.txt:{number}: unknown fact {unknown[0]!r}; known: {known}")
            setattr(rules[-1], "seen" if word == "seen" else "unseen", rest.split())
        elif word in ("or", "check"):
            getattr(rules[-1], "instead" if word == "or" else "checks").append(rest)
        elif word == "grave" and not rest:
            rules[-1].is_grave = True
        elif word in ("says", "learn") or (word == "blames" and rest in BLAMED):
            setattr(rules[-1], word, rest)
        else:
            raise ValueError(f"rules.txt:{number}: {line.strip()!r} is not a line of a rule")
    return rules


_ALL = parse(files(__package__).joinpath("rules.txt").read_text("utf-8"))
RULES: tuple[Rule, ...] = tuple(rule for rule in _ALL if not rule.is_note)
NOTES: tuple[Rule, ...] = tuple(rule for rule in _ALL if rule.is_note)


def chosen(facts: Collection[str]) -> Rule:
    """The first rule that applies; the last one always does."""
    return next(rule for rule in RULES if rule.fits(facts))
