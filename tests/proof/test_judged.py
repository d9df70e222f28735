"""Recorded states of Kafka's own classes (isrlab_proof.judged), played by the engine without Java.

These verdicts also have power: they notice nearly every wrong variant of a rule, and every other
form of it that a release can show.
"""

from __future__ import annotations

import struct
from itertools import takewhile
from pathlib import Path

import pandas as pd
import pytest

from isrlab.engine.versions import KafkaVersion
from isrlab_proof import judged
from judge import jars, mutants, watch

PLACES = [(kind, release) for kind in judged.CLASSES for release in judged.releases(kind)]
RELEASES = judged.releases("partition")
SCENARIOS = Path(__file__).parents[2] / "data" / "scenarios"


@pytest.mark.parametrize(("kind", "release"), PLACES)
def test_the_engine_shows_what_kafka_showed(kind, release) -> None:
    runs = judged.read(kind, release)
    assert sum(len(run.schedule) for run in runs) >= mutants.STEPS
    version = KafkaVersion.of(release)
    assert [i for i, run in enumerate(runs) if not run.agrees(version)] == []


@pytest.mark.parametrize("release", RELEASES)
def test_another_form_of_a_rule_is_noticed(release) -> None:
    """Or it is listed among the survivors, with a reason."""
    kinds = [kind for kind, judged_release in PLACES if judged_release == release]
    runs = [run for kind in kinds for run in judged.read(kind, release)]
    left = pd.read_csv(mutants.SURVIVORS)
    left = left[[release in releases.split() for releases in left["releases"]]]
    listed = {*zip(left["rule"], left["change"], strict=True)}
    forms = [*takewhile(lambda v: not v.source, mutants.variants(KafkaVersion.of(release), kinds))]
    others = [v for v in forms if listed.isdisjoint({(v.rule, v.change), (v.rule, "any")})]
    assert len(others) > len(forms) / 2
    for v in others:
        likely_first = sorted(runs, key=lambda run: v.rule not in mutants.RULES_OF[run.kind])
        assert v.is_noticed(likely_first), v


def test_wrong_variants_of_the_rules_are_noticed() -> None:
    """`python -m judge.mutants` stores the tables; some rules are measured again."""
    scores, left = (pd.read_csv(path).fillna("") for path in (mutants.SCORES, mutants.SURVIVORS))
    assert [*scores["release"]] == [*jars.EVERY]
    assert (scores["noticed"] / (scores["variants"] - scores["same"])).min() >= 0.95
    assert all(left["why"])
    version, runs = KafkaVersion.of("3.9.2"), judged.read("partition", "3.9.2")
    every = list(mutants.variants(version, ["partition"]))
    join = [v for v in every if v.rule in {"can_join_isr", "expand_rule", "high_watermark_set"}]
    assert "follower_end_offset < high_watermark -> follower_end_offset <= high_watermark" in {
        v.change for v in join
    }
    assert {"form -> high watermark", "form -> isr"} < {v.change for v in join}
    assert mutants.survivors(join, runs) == []


def test_there_are_enough_releases_and_not_too_many_bytes() -> None:
    wanted = {"0.10.2.2", "2.4.1", "2.8.2", "3.6.2", "3.9.2", "4.1.2", "4.2.2", "4.3.1", "4.4.0"}
    assert wanted < set(RELEASES)
    assert sum(path.stat().st_size for path in judged.FOLDER.rglob("*")) < 2_000_000


def test_differences_that_were_found_can_be_played() -> None:
    """Each has a scenario, or the reason why it has none."""
    for letter, difference in judged.found().items():
        assert difference["class"] in judged.CLASSES, letter
        assert ("scenario" in difference) is not ("why" in difference), letter
        assert difference["is_mended"] or "why" in difference, letter
        scenario = difference.get("scenario")
        assert scenario is None or (SCENARIOS / f"{scenario}.txt").exists()


def test_the_readme_says_how_much_was_compared() -> None:
    figures = judged.figures()
    steps, releases = figures.steps.sum(), figures.release.unique()
    ends = f"{RELEASES[0]} to {judged.releases('controller')[-1]}"
    line = f"{steps:,} stored steps of {len(releases)} releases, {ends}"
    assert line in " ".join((Path(__file__).parents[2] / "README.md").read_text().split())


def test_the_constants_of_a_class_file_are_read() -> None:
    texts = ("Shrinking ISR from \x01 to \x01", "Code")
    packed = [b"\x01" + struct.pack(">H", len(text)) + text.encode() for text in texts]
    long = b"\x05" + bytes(8)  # a long takes two slots
    data = bytes(8) + struct.pack(">H", 5) + packed[0] + long + packed[1]
    assert list(watch.constants(data)) == ["Shrinking ISR from {} to {}", "Code"]
    assert [text for text in watch.constants(data) if watch.is_sentence(text)] == [
        "Shrinking ISR from {} to {}"
    ]


def test_what_is_no_published_release_is_named() -> None:
    with pytest.raises(ValueError, match=r"'3\.9' is not one release of Kafka"):
        jars.numbers("3.9")
    said = "Could not resolve: org.apache.kafka:kafka_2.13:jar:3.9.9 was not found in https://x"
    assert jars._reason("3.9.9", said).endswith("kafka_2.13:jar:3.9.9; is 3.9.9 published?")
    assert "could not fetch the jars of Kafka 3.9.9: [ERROR] off" in jars._reason(
        "3.9.9", "[INFO]\n[ERROR] offline"
    )
