"""The glossary is in order, and each term is used where the glossary says that it is shown."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
ENTRY = re.compile(r"^### (.+)\n\n(.+)$", re.MULTILINE)
LINK = re.compile(r"\[[^]]+\]\((\w+)\.ipynb(?:#([^)]+))?\)")


def shown(name: str) -> str:
    """All text that a reader of a notebook sees."""
    texts = []
    for cell in nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells:
        texts.append(cell.source)
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            texts += [output.get("text", ""), *(data[k] for k in data if k.startswith("text/"))]
    return "\n".join(texts)


def is_used(name: str, text: str) -> bool:
    """Whether a word begins with the term, or is equal to it if it is an abbreviation."""
    flags = re.NOFLAG if name.isupper() else re.IGNORECASE
    return bool(re.search(rf"(?<!\w){re.escape(name)}" + r"\b" * name.isupper(), text, flags))


GLOSSARY = shown("23_glossary")
ENTRIES = [m.groups() for m in ENTRY.finditer(GLOSSARY)]


def test_terms_are_in_order_and_each_has_one_sentence():
    terms = [term.lower() for term, _ in ENTRIES]
    assert len(terms) == GLOSSARY.count("### ") > 40
    assert terms == sorted(set(terms))


@pytest.mark.parametrize(("term", "sentence"), ENTRIES, ids=lambda text: text[:20])
def test_a_term_is_used_in_the_section_where_it_is_shown(term, sentence):
    links = LINK.findall(sentence)
    assert links, "it is shown nowhere"
    names = [term, *re.findall(r"\*\*(.+?)\*\*", sentence)]
    for notebook, section in links:
        text = shown(notebook).replace("*", "")
        assert any(is_used(name, text) for name in names), f"{notebook} has none of {names}"
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        assert not section or section in [h.replace(" ", "-") for h in headings]


# Words that readers know, or meet in the first notebook
EVERYDAY = {
    "Acknowledged", "acks", "Batch", "Clean-shutdown marker", "Committed", "Controller",
    "Debugging consumer",
    "Effective minimum", "Fetch", "Flush", "Follower", "KRaft", "Leader", "Offset", "Quota",
    "Reassignment", "Release", "Replica", "Scenario", "Segment", "Stall", "Transaction",
    "ZooKeeper",
}  # fmt: skip
NO_PROSE = re.compile(r"\[[^\]]*\]\([^)]*\)|`[^`]*`|^#.*$|<[^>]+>|^    .*$", re.MULTILINE)
LINKED = [path for path in sorted(NOTEBOOKS.glob("*.ipynb")) if path.name[:2] not in ("00", "23")]


@pytest.mark.parametrize("path", LINKED, ids=lambda path: path.stem)
def test_a_notebook_links_the_terms_that_it_uses(path):
    cells = nbformat.read(path, as_version=4).cells
    text = "\n\n".join(cell.source for cell in cells[1:] if cell.cell_type == "markdown")
    prose = NO_PROSE.sub("", text)
    for term in {term for term, _ in ENTRIES} - EVERYDAY:
        flags = re.NOFLAG if term.isupper() or term[1:] != term[1:].lower() else re.IGNORECASE
        if re.search(rf"(?<![\w/.*`-]){re.escape(term)}(s|es)?(?![\w`])", prose, flags):
            assert f"](23_glossary.ipynb#{term.replace(' ', '-')})" in text, term
