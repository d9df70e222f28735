"""The kinds of incidents (rules.toml), and the choice of the one that names an incident."""

from __future__ import annotations

from collections.abc import Collection
from importlib.resources import files
from typing import Literal

import msgspec

from isrlab_ops.logs.incidents.facts import FACTS

KEYS = {"unseen": "not", "instead": "or", "checks": "check", "is_grave": "grave"}  # in the table


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=KEYS):
    """An entry of the table; see the head of rules.toml."""

    says: str
    name: str = ""
    seen: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    blames: Literal["party", "nobody"] = "nobody"
    instead: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    then: str = ""
    done: str = ""
    learn: str = ""
    is_grave: bool = False

    def fits(self, facts: Collection[str]) -> bool:
        return all(f in facts for f in self.seen) and not any(f in facts for f in self.unseen)


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`fact`: each fact in words; `why`: explanations, by the words behind the notebook's name."""

    rule: dict[str, Rule]
    note: dict[str, Rule]
    fact: dict[str, str]
    why: dict[str, str]

    def __post_init__(self) -> None:
        for table in (self.rule, self.note):
            for name, rule in table.items():
                if unknown := {*rule.seen, *rule.unseen} - {*FACTS}:
                    raise ValueError(f"{name}: no fact {min(unknown)!r}; {', '.join(FACTS)}")
                table[name] = msgspec.structs.replace(rule, name=name)


_TEXT = files(__package__).joinpath("rules.toml").read_text("utf-8")
TABLE = msgspec.toml.decode(_TEXT, type=Table)
RULES, NOTES = tuple(TABLE.rule.values()), tuple(TABLE.note.values())


def chosen(facts: Collection[str]) -> Rule:
    """The first rule that applies; the last one always does."""
    return next(rule for rule in RULES if rule.fits(facts))
