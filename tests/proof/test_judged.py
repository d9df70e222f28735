"""Recorded states of Kafka's own classes (isrlab_proof.judged), played by the engine without Java.

These verdicts also have power: some run notices each rule that is switched by hand, and each
release that is played by its neighbours' rules, except those in UNNOTICED.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pandas as pd
import pytest

from isrlab.engine.versions import KafkaVersion
from isrlab_proof import judged
from judge import jars, mutants, power, watch

PLACES = [(kind, release) for kind in judged.CLASSES for release in judged.releases(kind)]
RELEASES = judged.releases("partition")

SCENARIOS = Path(__file__).parents[2] / "data" / "scenarios"

# What no run of any class notices, and why, by release: a rule, one form of it, or a neighbour.
# (power.py lists the rules that are tested on no class.)
OLD = "0.10.2.2 0.11.0.3 1.1.1 2.4.1 2.6.3"
ASKING = "2.7.2 2.8.2 3.0.2 3.1.2 3.2.3"
NEW = "3.3.2 3.5.2 3.6.2 3.9.2 4.1.2"
WITHOUT_ELR = "3.3.2 3.5.2 3.6.2 3.9.2"
UNNOTICED = {
    # No step shows these: acks other than 1 and all, the name of a request
    "accepts_any_acks": f"{OLD} {ASKING} {NEW}",
    "isr_write=zookeeper": OLD,
    "isr_write=alter partition": "2.7.2 2.8.2 3.0.2 3.1.2",
    "isr_write=alter isr": "3.2.3",
    "3.2.0": "3.1.2",
    # Forms that differ in text only (test_every_choice_matters.py), or only in KRaft
    "epoch_entry=on epoch bump": f"2.4.1 2.6.3 {ASKING}",
    "epoch_entry=on becoming leader": NEW,
    "high_watermark_set=maximal isr or fresh clock": f"{OLD} 3.3.2 3.5.2",
    "high_watermark_set=maximal isr or caught up": f"{OLD} {ASKING}",
    "high_watermark_set=maximal isr or caught up and eligible": f"{OLD} {ASKING}",
    # Answers name no epoch yet, and every epoch has records
    "truncation=epoch iterative": "1.1.1",
    "2.0.0": "1.1.1",
    "cleans_epochs_at_log_end": "1.1.1",
    # A written change is never pending, and a requested one is not stored immediately
    "high_watermark_after_shrink=never": OLD,
    "high_watermark_after_shrink=on commit": OLD,
    "high_watermark_after_shrink=immediately": "2.7.2 2.8.2 3.0.2",
    "after_isr_error": OLD,
    "order_frees_isr_request": OLD,
    # Before KRaft an order with a known epoch is always ignored
    "ignores_known_order": f"{OLD} {ASKING}",
    # KRaft does not check whether a reassignment may be replaced
    "reassignment=replaceable": "3.9.2 4.1.2",
    "elr_of_replicas_only": WITHOUT_ELR,
    "min_isr_of_own_partition": WITHOUT_ELR,
    "handles_shutdown_again": "3.6.2",  # it elects no broker uncleanly
    # Rare, because every shrink is followed by a check of the high watermark
    "high_watermark_only_if_follower_moved": f"{OLD} 2.7.2 3.2.3 {NEW}",
}


@pytest.mark.parametrize(("kind", "release"), PLACES)
def test_the_engine_shows_what_kafka_showed(kind, release) -> None:
    runs = judged.read(kind, release)
    assert sum(len(run.schedule) for run in runs) >= power.STEPS
    version = KafkaVersion.of(release)
    assert [i for i, run in enumerate(runs) if not run.agrees(version)] == []


@pytest.mark.parametrize("release", RELEASES)
def test_another_rule_is_noticed(release) -> None:
    version = KafkaVersion.of(release)
    kinds = [kind for kind, judged_release in PLACES if judged_release == release]
    runs = [run for kind in kinds for run in judged.read(kind, release)]
    others = power.switched(version, kinds) | power.neighbours(version, kinds)
    listed = {key for key, releases in UNNOTICED.items() if release in releases.split()}
    expected = {name for name in others if {name, name.partition("=")[0]} & listed}
    assert set(power.unnoticed(runs, others)) == expected
    assert expected | {n.partition("=")[0] for n in expected} >= listed


def test_wrong_variants_of_the_rules_are_noticed() -> None:
    """`python -m judge.mutants` stores the tables; the join rule is measured again."""
    scores, left = (pd.read_csv(path).fillna("") for path in (mutants.SCORES, mutants.SURVIVORS))
    assert [*scores["release"]] == [r for r in jars.EVERY if jars.numbers(r) >= mutants.FIRST]
    assert (scores["noticed"] / (scores["variants"] - scores["same"])).min() >= 0.95
    assert all(left["why"])
    version, runs = KafkaVersion.of("3.9.2"), judged.read("partition", "3.9.2")
    join = [v for v in mutants.variants(version) if v.rule == "can_join_isr"]
    assert "follower_end_offset < high_watermark -> follower_end_offset <= high_watermark" in {
        v.change for v in join
    }
    assert mutants.survivors(join, runs, version) == []


def test_there_are_enough_releases_and_not_too_many_bytes() -> None:
    wanted = {"0.10.2.2", "2.4.1", "2.8.2", "3.6.2", "3.9.2", "4.1.2"}
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
