"""Explanations of the scenario language's commands and of their words, from `explained.txt`."""

import re
from pathlib import Path
from typing import Any

from isrlab.engine.safety import PROPERTIES
from isrlab.engine.versions import PRESETS
from isrlab.world.commands import COMMANDS, SYNONYMS

KINDS = "(words)"  # in place of a command's name: kinds of words, such as BROKER


def explained() -> dict[str, dict[str, str]]:
    """By command: its effect (under ""), and the meanings that words have only with it."""
    texts, head = dict[str, dict[str, str]](), ""
    for line in Path(__file__).with_name("explained.txt").read_text(encoding="utf-8").splitlines():
        name, text = (part.strip() for part in line.split("|", 1))
        head = head if line.startswith(" ") else name
        texts.setdefault(head, {})[name if line.startswith(" ") else ""] = text
    return texts


def words() -> dict[str, dict[str, Any]]:
    """For each command: its usage, its effect, and the words that may follow, with meanings."""
    shown, texts = dict[str, dict[str, Any]](), explained()
    promises = {name: (check.__doc__ or "").splitlines()[0] for name, check in PROPERTIES.items()}
    for name in (*COMMANDS, *SYNONYMS):
        form, own = COMMANDS[SYNONYMS.get(name, name)], texts[SYNONYMS.get(name, name)]
        means = promises | texts[KINDS] | own
        kinds = [f"{kind}: {means[kind]}" for kind in re.findall(r"\b[A-Z]+\b", form.words)]
        follow = {word: means[word] for word in re.findall(r"\b[a-z][a-z_]+", form.words)}
        for option, _, kind in (word.partition("=") for word in form.options.split()):
            follow[f"{option}="] = f"{means[f'{option}=']} ({means.get(kind, kind)})"
        if name == "version":
            follow = {each.name: f"the rules of {each.releases}" for each in PRESETS.values()}
        does = " ".join([own[""], *(f"{each}." for each in dict.fromkeys(kinds))])
        shown[name] = {"usage": f"{name} {form.words}".strip(), "does": does, "follow": follow}
    return shown
