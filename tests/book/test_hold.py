"""The sentences of the notebooks, over the ranges that they claim: the table, what is kept of its
runs, and a sample that is run here (`make hold` runs all)."""

from __future__ import annotations

import csv
import io

import pytest

from hold import claims, measured, results

CLAIMS = claims.read()
STORE = results.Store()
BY_NAME = {claim.name: claim for claim in CLAIMS}


def claim_of(measure: str, **more: object) -> claims.Claim:
    return claims.Claim("data_loss", "a sentence", measure, **more)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name[:60])
def test_its_notebook_says_it(claim):
    assert claims.plain(claim.quote) in claims.text_of(claim.notebook)


def test_what_is_drawn_is_drawn_ten_times_at_least():
    assert {claim.name for claim in CLAIMS if 0 < claim.seeds < 10} == set()


def test_no_sentence_breaks():
    verdicts = [results.judge(claim, STORE.known) for claim in CLAIMS]
    assert {v.claim.name: v.where() for v in verdicts if v.broken} == {}


def test_the_verdicts_are_those_of_the_results():
    text = (results.FOLDER / "verdicts.csv").read_text("utf-8")
    assert text == results.table(results.judge(claim, STORE.known) for claim in CLAIMS)
    rows = [*csv.DictReader(io.StringIO(text))]
    assert [row["says"] for row in rows] == [claim.says for claim in CLAIMS]


def test_a_sample_holds():
    run = list(measured.sample(CLAIMS))
    assert len(run) > len(CLAIMS) / 2
    assert [claim.name for claim, _, held in run if not held] == []


def test_a_sentence_that_claims_too_much_breaks_and_says_where():
    claim = claim_of("broken", holds="not x.__dict__", versions=["0.11", "2.1"])
    known = {c.key(claim): measured.measure("broken", c) for c in claims.cells(claim)}
    verdict = results.judge(claim, known)
    assert (verdict.word, [each.version for each in verdict.broken]) == (
        "breaks",
        ["0.11", "1.1", "2.0.0"],
    )
    assert verdict.where().startswith('0.11: {"joins too early": "lost"}')


def test_a_run_in_parts_is_kept_like_one_run(tmp_path):
    claim = claim_of("scanned", holds="x.index > 0", values={"interval": [1, 30, 500]},
                     versions=["3.7", "3.7"])  # fmt: skip
    kept = []
    for name, parts in (("whole", [3]), ("parts", [1, 1, 1])):
        folder = tmp_path / name
        folder.mkdir()
        for count in parts:
            store = results.Store(folder)
            missing = [c for c in claims.cells(claim) if c.key(claim) not in store.known]
            for cell in missing[:count]:
                store.add(cell.key(claim), measured.measure(claim.measure, cell))
        (folder / "running.jsonl").open("a").write('["half a li')
        results.Store(folder).fold([claim])
        kept.append((folder / "results.jsonl.xz").read_bytes())
    assert kept[0] == kept[1]
    assert results.Store(tmp_path / "whole").known == results.Store(tmp_path / "parts").known
    assert results.judge(claim, results.Store(tmp_path / "whole").known).word == "holds"


def test_the_interval_of_ten_is_from_the_second_to_the_ninth():
    assert results.median_interval([10, 9, 8, 7, 6, 5, 4, 3, 2, 1]) == (2, 9)
    assert results.median_interval(range(1, 7)) == (1, 6)
    with pytest.raises(ValueError, match="5 values are too few"):
        results.median_interval(range(5))


def test_with_seeds_one_thing_at_a_time_differs_from_the_base():
    claim = claim_of("random_losses", on_average="low > 0", versions=["4.0", "4.3"], seeds=10,
                     values={"repair": ["", "both", "x"]})  # fmt: skip
    settings = {(cell.version, cell.values["repair"]) for cell in claims.cells(claim)}
    assert settings == {("4.3", ""), ("4.3", "both"), ("4.3", "x"), ("4.0", ""), ("4.1", "")}
    assert len([*claims.cells(claim)]) == 50
