"""Each notebook is read in the minutes that data/minutes.toml allows, and its head says how many.

`pytest tests/book/test_minutes.py --rewrite` corrects the minutes in the heads, on the first page
and in the data file, where a number may only fall. The exercises have minutes of their own.
"""

from __future__ import annotations

import html
import math
import re
import tomllib
from pathlib import Path

import nbformat
import pytest

from isrlab.report import notebooks

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "packages/book/isrlab_book/page/templates/first_page.html.j2"
BUDGET = ROOT / "data" / "minutes.toml"
PATHS = {p.stem: p for p in sorted((ROOT / "notebooks").glob("[0-9]*_*.ipynb"))}
START = PATHS.pop("00_start_here")
KINDS = tomllib.loads(BUDGET.read_text(encoding="utf-8"))
MOST = {name: most for kind in KINDS.values() for name, most in kind["most"].items()}
PROSE, OUTPUT = 180, 300  # words a minute
FIGURE_S, LINE_S, PREDICTION_S = 36, 3, 30
EXERCISE_MIN = 6
HEAD = re.compile(r"^\*(\d+) minutes to read(.*)\.\*$", re.MULTILINE)
LISTED = re.compile(r"\]\((\d\d_\w+)\.ipynb\), (\d+) minutes")
IN_ALL = re.compile(r"(?<=notebooks, )\d+(?= minutes)")
FOLDED = re.compile(r"(?s)<details[^>]*><summary>(?!Answer<|The rule<)(.*?)</summary>.*?</details>")
MARKUP = re.compile(r"(?sm)<(style|script|svg)\b.*?</\1>|<[^>]*>|\]\([^)]*\)|^\d+\. ")


def words(text: str) -> int:
    """Words that are read: no markup, no addresses, and of what is folded its summary."""
    text = FOLDED.sub(r"\1", text)
    return len(re.findall(r"\S*\w\S*", html.unescape(MARKUP.sub(" ", text))))


class Read:
    """What there is to read in a notebook: of folded text only the answers, and no exercise."""

    def __init__(self, path: Path) -> None:
        self.prose = self.output = self.figures = self.lines = self.predictions = 0
        self.exercises, in_exercises = 0, False
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                for part in re.split(r"(?m)^(?=## )", cell.source):
                    if part.startswith("## "):
                        in_exercises = part.startswith("## Exercises")
                    if not in_exercises:
                        self.prose += words(part)
                        self.predictions += part.count("**Predict.**")
            elif in_exercises:
                self.exercises += cell.source.startswith("%%exercise") or "marked(" in cell.source
            else:
                hidden = cell.metadata.get("jupyter", {}).get("source_hidden")
                if not hidden and "parameters" not in notebooks.tags(cell):  # pages fold these
                    self.lines += sum(bool(line.strip()) for line in cell.source.splitlines())
                self.add(cell)

    def add(self, cell: nbformat.NotebookNode) -> None:
        """Count the outputs of a cell; a control counts as a figure, whatever it says."""
        for output in cell.outputs:
            data = output.get("data", {})
            is_control = "nbval-ignore-output" in notebooks.tags(cell)
            if is_control or data.keys() & {"image/png", "image/svg+xml"}:
                self.figures += 1
            else:
                text = next((data[k] for k in ("text/html", "text/markdown") if k in data), "")
                self.output += words(output.get("text") or text or data.get("text/plain", ""))

    @property
    def minutes(self) -> float:
        seconds = FIGURE_S * self.figures + LINE_S * self.lines + PREDICTION_S * self.predictions
        return self.prose / PROSE + self.output / OUTPUT + seconds / 60

    def __str__(self) -> str:
        return (
            f"{self.minutes:.1f} minutes: {self.prose} words, {self.output} of output, "
            f"{self.figures} figures, {self.lines} lines, {self.predictions} predictions; "
            f"{self.exercises} exercises"
        )


READ = {name: Read(path) for name, path in PATHS.items()}
SHOWN = {name: math.ceil(read.minutes) for name, read in READ.items()}


def replaced(path: Path, pattern: re.Pattern[str], new, request) -> str:
    """The text of a file, after --rewrite with what the pattern matches corrected."""
    text = path.read_text(encoding="utf-8")
    if request.config.getoption("--rewrite"):
        text = pattern.sub(new, text)
        path.write_text(text, encoding="utf-8")
    return text


def test_every_notebook_has_a_budget():
    assert MOST.keys() == PATHS.keys()


@pytest.mark.parametrize("name", PATHS)
def test_is_read_in_its_minutes(name, request):
    line = re.compile(rf"(?m)^{name} = (\d+)$")
    (kind,) = (kind for kind in KINDS.values() if name in kind["most"])
    least = max(kind["aim"], SHOWN[name])
    text = replaced(BUDGET, line, lambda m: f"{name} = {min(int(m[1]), least)}", request)
    most = int(line.search(text)[1])
    assert READ[name].minutes <= most, READ[name]
    assert kind["aim"] <= most
    assert most == kind["aim"] or READ[name].minutes > kind["aim"], (
        "no exception is needed any more"
    )


@pytest.mark.parametrize("name", PATHS)
def test_its_head_says_so(name, request):
    stored = re.compile(r"(?<=\*)\d+(?= minutes to read)")
    replaced(PATHS[name], stored, str(SHOWN[name]), request)
    first = nbformat.read(PATHS[name], as_version=4).cells[0].source
    assert [int(said) for said, _ in HEAD.findall(first)] == [SHOWN[name]], READ[name]


def test_an_hour_is_an_hour(request):
    learn = KINDS["learn"]
    total = sum(READ[name].minutes for name in learn["most"])
    exercises = EXERCISE_MIN * sum(READ[name].exercises for name in learn["most"])
    assert total <= learn["in_all"]
    assert total + exercises <= learn["with_exercises"]
    page = replaced(PAGE, IN_ALL, str(math.ceil(total)), request)
    assert IN_ALL.findall(page) == [str(math.ceil(total))]


def test_the_path_states_todays_rule_alone():
    """Outside what is folded there is no number of a release or an issue."""
    number = re.compile(
        r"(?i)(KAFKA|KIP)-\d|\b(since|up to|from|until|in|before|Kafka|running) \d\.\d+(?! s)"
    )
    for name in KINDS["learn"]["most"]:
        cells = nbformat.read(PATHS[name], as_version=4).cells
        prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        found = number.search(MARKUP.sub(" ", FOLDED.sub(r"\1", prose)))
        assert found is None, (name, found)


def test_the_first_notebook_lists_the_path_with_its_minutes(request):
    def line(match: re.Match[str]) -> str:
        return f"]({match[1]}.ipynb), {SHOWN[match[1]]} minutes"

    text = replaced(START, LISTED, line, request)
    listed = {name: int(minutes) for name, minutes in LISTED.findall(text)}
    assert [name for name in listed if name in KINDS["learn"]["most"]] == [*KINDS["learn"]["most"]]
    assert listed == {name: SHOWN[name] for name in listed}


if __name__ == "__main__":
    for each in READ:
        print(f"{each:<28} {READ[each]}")
