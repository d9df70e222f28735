"""The kinds of incidents, from rules.toml."""

from collections.abc import Collection
from importlib.resources import files
from typing import Literal

import msgspec

KEYS = {"unseen": "not", "instead": "or"}  # in the table


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=KEYS):
    """An entry of the table; see the head of rules.toml."""

    says: str
    name: str = ""
    seen: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    blames: Literal["party", "nobody"] = "nobody"
    instead: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    then: str = ""
    done: str = ""
    learn: str = ""
    several: str = ""
    grave: bool = False
    guess: bool = False

    def fits(self, facts: Collection[str]) -> bool:
        return all(f in facts for f in self.seen) and not any(f in facts for f in self.unseen)


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`fact`: each fact in words; `why`: explanations, by the words behind the notebook's name."""

    rule: dict[str, Rule]
    note: dict[str, Rule]
    fact: dict[str, str]
    why: dict[str, str]


TABLE = msgspec.toml.decode(files(__package__).joinpath("rules.toml").read_bytes(), type=Table)
RULES, NOTES = (
    tuple(msgspec.structs.replace(rule, name=name) for name, rule in table.items())
    for table in (TABLE.rule, TABLE.note)
)
