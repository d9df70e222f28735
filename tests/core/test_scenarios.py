"""Every scenario prints the output in its file; `pytest --rewrite` updates it.

In every generation it breaks the promises that data/broken_promises.txt names, and no other.
"""

from __future__ import annotations

from itertools import groupby, product
from pathlib import Path

import pytest

from isrlab.engine import safety
from isrlab.engine.model import Leader
from isrlab.engine.versions import PRESETS
from isrlab.events import SCHEMA, exact
from isrlab.show import replicas
from isrlab.world import scenario, words
from isrlab.world.cluster import START_MS
from isrlab.world.script import MOST_CAPTION, Block

DATA = Path(__file__).parents[2] / "data"
SCENARIOS = sorted((DATA / "scenarios").glob("*.txt"))
DIFFERING: set[str] = set()  # scenarios whose output differs in their own version
MANY = 8  # if more differ, a rule is wrong

BROKEN = [line.split() for line in (DATA / "broken_promises.txt").read_text().splitlines()[2:]]


def broken(name: str, column: str) -> set[str]:
    """The properties that data/broken_promises.txt says a scenario breaks in a column."""
    rows = [row[1:] for row in BROKEN if row[0] == name]
    return {row[0] for row in rows for part in row[1:] if part[0] <= column <= part[-1]}


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: p.stem)
def test_scenario_prints_what_it_says(path: Path, request: pytest.FixtureRequest) -> None:
    """It also prints the same a second time, with the same frames and events."""
    DIFFERING.add(path.stem)
    run = scenario.play(path.read_text())
    for block in run.blocks if not request.config.getoption("--rewrite") else ():
        assert block.printed.rstrip() == block.expected.rstrip()  # stops at the first difference
    again = scenario.play(path.read_text())
    assert run.printed == again.printed
    assert run.frames == again.frames
    assert run.cluster.events == again.cluster.events
    if request.config.getoption("--rewrite"):
        path.write_text(run.rewritten)
    DIFFERING.remove(path.stem)


@pytest.mark.parametrize(
    ("path", "column"), [*product(SCENARIOS, PRESETS)], ids=lambda part: getattr(part, "stem", part)
)
def test_a_scenario_in_every_generation(path: Path, column: str) -> None:
    """It breaks what the file says; captions, titles and events are those of what happens.

    A scenario that differs in its own version, and fails above, is skipped in the other versions.
    If many differ, all are skipped: a wrong rule shows within two minutes, not within an hour.
    """
    if path.stem in DIFFERING or len(DIFFERING) > MANY:
        pytest.skip("scenarios differ in their own versions")
    run = scenario.play(path.read_text(), version=PRESETS[column])
    assert set(run.violations) == broken(path.stem, column)
    for block in run.blocks:
        is_true_caption(run, block)
    for part in run.topic:
        is_true_title(part)
    has_the_stored_isr(run, PRESETS[column].name)


def is_true_caption(run: scenario.Run, block: Block) -> None:
    """A written caption stands only where the block prints what the file stores; otherwise the
    events give the sentence."""
    is_stored = block.printed.rstrip() == block.expected.rstrip()
    is_written = bool(block.comment) and len(block.comment) <= MOST_CAPTION and is_stored
    shown, summary = words.caption(run, block), words.summary(run, block)
    others = [text.partition("`: ")[2] for text in block.comments if text.startswith("Where `")]
    assert shown == block.comment if is_written else shown in (summary, *others)
    assert all(0 < len(text) <= MOST_CAPTION for text in (summary, *others))


def is_true_title(part: scenario.Run) -> None:
    """The picture's title is of the partition's own records, and of the last moment."""
    title, outcome = replicas.story_finding(part), part.cluster.observer.outcome
    live = part.frames[-1].brokers.values()
    assert ("diverge" in title) == bool(outcome.diverged)
    assert outcome.diverged or ("lost" in title) == bool(outcome.lost_acknowledged)
    assert ("was committed" in title or "were committed" in title) <= bool(outcome.lost)
    assert "no broker leads" not in title or not any(isinstance(b.role, Leader) for b in live)


def has_the_stored_isr(run: scenario.Run, version: str) -> None:
    """The ISRs in its events are those of its frames; `events` also refuses unknown details."""
    events = run.events()
    assert events.schema == SCHEMA
    ((key, spans),) = exact.isr_spans(events).items()
    assert key == (version, "t", 0)
    groups = groupby(spans, key=lambda span: {*span.isr})  # several spans, if its replicas change
    first = [next(same) for _, same in groups]
    stored = ((f.now_ms - START_MS, f.controller.isr) for f in run.frames)
    (_, begun), *later = (next(same) for _, same in groupby(stored, key=lambda state: {*state[1]}))
    assert [(s.start_ms - START_MS, s.isr) for s in first] == [(0, begun), *later]


def test_captions_of_scripts_that_store_nothing() -> None:
    """They are shown in the script's own version only."""
    text = "# History.\n\n# m1 is\n# lost.\nversion 0.10.2\npartition\nproduce 1\nadvance 2s"
    for version, caption in {None: "m1 is lost.", "0.10.2": "m1 is lost.", "3.7": None}.items():
        run = scenario.play(text, version=version)
        (block,) = run.blocks
        assert words.caption(run, block) == (caption or words.summary(run, block))
    assert words.summary(run, block) == (
        "Record m1 is acknowledged; the high watermark goes 0 → 1; every live replica knows HW 1."
    )
    assert run.at("M1 is") is run.frames[-1]
    with pytest.raises(ValueError, match="no block has 'history'"):
        run.at("history")


@pytest.mark.parametrize(
    ("name", "version", "place", "sentence"),
    [
        ("loss_three_replicas", "0.10.2", 1, "Broker 1 dies; broker 2 leads epoch 1; broker 3 "
         "truncates m2; the ISR is now 2,3; the high watermark falls 2 → 1."),
        ("loss_three_replicas", "0.11", 1, "Broker 1 dies; broker 2 leads epoch 1; the ISR is now "
         "2,3; the high watermark falls 2 → 1."),
        ("loss_three_replicas", "0.10.2", 3, "Broker 1 starts; broker 2 starts, truncates m2; "
         "broker 1 halts: log truncation is not allowed; the ISR is now 3,2."),
        ("three_replicas", "2.5", 1, "The fetcher of broker 103 pauses; the fetcher of broker 102 "
         "pauses; records m6 m7 are acknowledged."),
        ("three_replicas", "2.5", 3, "Record m8 is refused (REQUEST_TIMED_OUT); the ISR is now "
         "101,102; the high watermark goes 5 → 8."),
    ],
)  # fmt: skip
def test_what_happened_in_one_sentence(name: str, version: str, place: int, sentence: str) -> None:
    run = scenario.play(scenario.read(name), version=version)
    assert words.summary(run, run.blocks[place]) == sentence


def test_broken_promises_are_of_scenarios_and_properties() -> None:
    assert {row[0] for row in BROKEN} <= {path.stem for path in SCENARIOS}
    assert {row[1] for row in BROKEN} <= set(safety.PROPERTIES)


def test_rewriting_is_stable() -> None:
    text = "# why\npartition replicas=1,2\nstatus\n----\nwrong\n\nproduce 1 a acks=1\n----\n"
    rewritten = scenario.play(text).rewritten
    again = scenario.play(rewritten)
    assert [b.printed for b in again.blocks] == [b.expected for b in again.blocks]
    assert again.rewritten == rewritten
    assert "# why" in rewritten


@pytest.mark.parametrize(
    ("script", "line", "words"),
    [
        ("frobnicate 1", 1, ("frobnicate", "produce", "stabilize")),
        ("partition replicas=1,2\n\nkill 7", 3, ("'7'", "1,2")),
        ("partition replicas=1,1", 1, ("1,1", "1,2,3")),
        ("partition replicas=1,2 leader=3", 1, ("3", "replicas=1,2")),
        ("partition replicas=1,2 isr=2 leader=1", 1, ("1", "isr=2")),
        ("partition min.isr=1", 1, ("min.isr", "min.insync.replicas")),
        ("partition min.insync.replicas=0", 1, ("min.insync.replicas=0", "at least 1")),
        ("partition min.insync.replicas=1s", 1, ("'1s'", "number", "min.insync.replicas=NUMBER")),
        ("partition unclean.leader.election.enable=yes", 1, ("yes", "true or false")),
        ("version 7.1\npartition", 1, ("7.1", "0.10.2", "3.9")),
        ("version 3.10\npartition", 1, ("3.10", "3.9")),
        ("kill 1", 1, ("'partition' line",)),
        ("partition\npartition", 2, ("already",)),
        ("partition\nproduce 1 m1\nproduce 1 m1", 3, ("'m1'",)),
        ("partition\nproduce 1 acks=most", 2, ("most", "all")),
        ("partition\nproduce 1 count=0", 2, ("'0'", "between 1")),
        ("partition\nproduce 1 colour=red", 2, ("colour", "acks")),
        ("partition\nadvance soon", 2, ("soon", "10s")),
        ("partition\nadvance 0x10", 2, ("0x10", "10s")),
        ("partition\nkill 1\nkill 1", 3, ("dead", "2,3")),
        ("partition\nkill LIVE", 2, ("'LIVE'", "1,2,3")),
        ("partition\nproduce 1 every=1s for=3h", 2, ("10800", "at most 10000")),
        ("partition\nstart 1", 2, ("alive",)),
        ("partition\nresume 1", 2, ("not paused", "none")),
        ("partition\npause 1 disk", 2, ("disk", "fetcher")),
        ("partition\nfetch 1", 2, ("not a follower",)),
        ("partition\ndeliver 1>2", 2, ("0 messages", "none")),
        ("partition\ndeliver 1", 2, ("which link",)),
        ("partition\ncut 1", 2, ("which two",)),
        ("partition\ncut 1 1", 2, ("differ",)),
        ("partition\nelect 2", 2, ("preferred", "'2'")),
        ("partition\ncheck nothing", 2, ("nothing", "logs_agree")),
        ("partition\nproduce 1 'm1", 2, ("quotation",)),
        ("partition\nkill 1 2", 2, ("'2'", "extra word", "usage: kill")),
        ("partition\nstatus now=1", 2, ("'now'", "none", "usage: status")),
        ("partition\npower_loss 7", 2, ("'7'", "1,2,3", "'controller'")),
    ],
)
def test_wrong_script_names_its_line_and_the_words(
    script: str, line: int, words: tuple[str, ...]
) -> None:
    with pytest.raises(scenario.ScriptError) as caught:
        scenario.play(script)
    assert caught.value.line == line
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("text", ["# only a comment\n", "----\n"])
def test_empty_script_says_what_could_be_in_it(text: str) -> None:
    with pytest.raises(scenario.ScriptError, match="known: version, partition"):
        scenario.play(text)
