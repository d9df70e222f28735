"""One line of a recording is altered: if the judge finds it, the answer is never CALM.

`python tests/ops/test_reconcile_altered.py 5 > data/recordings/incidents/altered.csv` counts, for
five alterations of each kind in each recording, how many were tried, found by the judge, and heard:
the answer is no longer CALM.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
import sys
from collections import Counter
from datetime import datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner

from isrlab.__main__ import main
from isrlab.events.statements import statements
from isrlab_ops.logs.history.verdict import JUDGED
from isrlab_ops.logs.incidents.look import CALM, Findings, look
from isrlab_ops.logs.reader import read_local

RECORDINGS = Path(__file__).parents[2] / "data" / "recordings"
CALM_ONES = {  # recordings whose unaltered answer is CALM
    "kafka-3.9": RECORDINGS / "kafka-3.9",
    **{
        name: RECORDINGS / "incidents" / name / "logs"
        for name in (
            "e-282-follower-paused", "g-01022-follower-flapping", "s-0822-follower-paused",
            "k-412-quiet-control",
        )
    },
}  # fmt: skip
NUMBERS = {
    "offset": r"(?:[oO]ffset|[wW]atermark):? (\d+)",
    # The epoch that the line states, not the previous one, or one that explains a skipped line
    "epoch": r"(?:(?<!previous )(?<!with )leader epoch|leaderEpoch)(?: was|[=:])? ?(\d+)",
    "version": r"(?:version(?: updated)? to|zkVersion|partition ?[eE]poch)(?:[=:]| is)? ?\[?(\d+)",
    "member": r"(?:ISR updated to|ISR from|isr[=:]|ISR)\W{0,2}(\d+)(?=,\s?\d)",
    "minute": r"^\[\d{4}-\d\d-\d\d \d\d:(\d\d)",
    "broker": r"(?:broker=|on broker |Broker id=|replicaId=)(\d+)",
    "partition": r"(?:\w-|\[\w+,)(\d+)(?=[\] :]| starts)",
}
PLACES = ("exchanged", "doubled", "moved", "dropped")
IDS = ("member", "broker", "partition")
FAR = 60  # lines


def texts_of(path: Path) -> list[str]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        return file.readlines()


def altered(texts: list[str], place: int, kind: str, chance: random.Random) -> list[str] | None:
    """The lines of a file with one alteration of the line at `place`, or None if impossible."""
    text = texts[place]
    if kind in NUMBERS:
        numbers = [*re.finditer(NUMBERS[kind], text)]
        if not numbers:
            return None
        first, last = chance.choice(numbers).span(1)
        other = int(text[first:last]) + chance.choice([1, 2] if kind in IDS else [-1, 1, 40])
        other = f"{other % 60:02}" if kind == "minute" else other
        return [*texts[:place], f"{text[:first]}{other}{text[last:]}", *texts[place + 1 :]]
    if kind == "dropped":
        return texts[:place] + texts[place + 1 :]
    far = place + chance.choice([-1, 1]) * chance.randrange(FAR, 4 * FAR)
    if not 0 <= far < len(texts):
        return None
    rest = texts[:place] + texts[place + 1 :]
    if kind == "doubled":
        return [*texts[:far], text, *texts[far:]]
    if kind == "moved":
        return [*rest[:far], text, *rest[far:]]
    exchanged = texts.copy()
    exchanged[place], exchanged[far] = texts[far], text
    return exchanged


@cache
def places_of(folder: Path) -> list[tuple[str, int]]:
    """The file and the index of each line that the judge reads."""
    rows = statements(read_local(folder).events, *JUDGED)
    return [(row.file, row.line - 1) for row in rows if not row.is_exact and row.topic]


def alterations(folder: Path, kind: str, count: int, seed: int):
    """`count` folders, each with the recording and one alteration."""
    chance = random.Random(f"{seed} {folder.relative_to(RECORDINGS)} {kind}")
    places, made = places_of(folder), 0
    for file, place in chance.sample(places, len(places)):
        path = folder / file
        lines = altered(texts_of(path), place, kind, chance) if ".log" in file else None
        if lines is None:
            continue
        with TemporaryDirectory() as copy:
            shutil.copytree(folder, copy, dirs_exist_ok=True)
            data = "".join(lines).encode()
            (Path(copy) / file).write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
            yield copy
        made += 1
        if made == count:
            return


def tried(name: str, kind: str, count: int, seed: int = 1) -> tuple[Counter[str], list[Findings]]:
    """How many were tried, found and answered, and those found but answered CALM."""
    counts, wrong = Counter[str](), []
    for folder in alterations(CALM_ONES[name], kind, count, seed):
        findings = look(folder)
        is_heard = findings.status != CALM
        counts.update({"tried": 1, "found": bool(findings.faults), "heard": is_heard})
        if findings.faults and not is_heard:
            wrong.append(findings)
    return counts, wrong


@pytest.mark.parametrize("name", sorted(CALM_ONES))
def test_it_is_calm_as_it_was_recorded(name):
    findings = look(CALM_ONES[name])
    assert (findings.status, findings.faults) == (CALM, ())


@pytest.mark.parametrize("late_s", [1, 4])
@pytest.mark.parametrize("name", sorted(CALM_ONES))
def test_late_lines_of_a_busy_broker_break_no_rule(name, late_s, tmp_path):
    """log4j takes a line's time before it waits for the appender: every 40th line of
    server.log, which many threads write, stands below those of the next seconds."""
    shutil.copytree(CALM_ONES[name], tmp_path, dirs_exist_ok=True)
    for path in (each for each in tmp_path.rglob("server.log*") if each.is_file()):
        places, first = [], 0.0
        for number, text in enumerate(texts := texts_of(path)):
            if stamp := re.match(r"\[(\d{4}-[^,]+),(\d{3})\]", text):
                first = datetime.fromisoformat(stamp[1]).timestamp() + int(stamp[2]) / 1000
                is_alone = number + 1 == len(texts) or texts[number + 1].startswith("[")
                places.append((first + late_s * (number % 40 == 0 and is_alone), number))
            else:
                places.append((first, number))
        data = "".join(texts[number] for _, number in sorted(places)).encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    findings = look(tmp_path)
    assert [*findings.faults] == []
    assert findings.status == CALM
    assert not any(clock.ahead_ms for clock in findings.history.clocks)


@pytest.mark.parametrize("kind", [*NUMBERS, *PLACES])
def test_no_altered_line_that_is_found_is_calm(kind, request):
    count = 8 if request.config.getoption("--fuzz") else 1
    total = Counter[str]()
    for name in CALM_ONES:
        counts, wrong = tried(name, kind, count)
        assert wrong == []
        total += counts
    print(kind, dict(total))
    assert total["tried"] >= count
    if kind in ("epoch", "member"):  # which several lines or rules check in every release
        assert total["found"] >= 0.9 * total["tried"]


def test_what_is_found_stands_in_every_form_of_the_answer():
    """One altered version; text, JSON, CSV and the exit status all report it."""
    (name,) = (name for name in CALM_ONES if name.startswith("kafka"))
    for folder in alterations(CALM_ONES[name], "version", 1, 3):
        runs = {form: CliRunner().invoke(main, ["logs", folder, *form.split()])
                for form in ("", "--json")}  # fmt: skip
        assert {run.exit_code for run in runs.values()} == {2}
        fault = json.loads(runs["--json"].output)["faults"][0]
        text = runs[""].output
        assert text.startswith("NOT KNOWN")
        assert f"{fault['file']}:{fault['line']}" in text
        assert fault["says"] in text


if __name__ == "__main__":
    print("kind,tried,found,heard")
    for kind in (*NUMBERS, *PLACES):
        total = Counter[str]()
        for name in CALM_ONES:
            total += tried(name, kind, int(sys.argv[1]))[0]
        print(kind, total["tried"], total["found"], total["heard"], sep=",", flush=True)
