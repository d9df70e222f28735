"""The claims: their files store what is computed, and errors name the place in a file."""

import re

import pytest

from isrlab.engine import rules
from isrlab.installed import NOTEBOOKS
from isrlab_book.workbook import what_the_sources_say as show
from isrlab_book.workbook.claims.reading import CLAIMS, LIBRARY, Claim, ClaimError
from isrlab_book.workbook.claims.verdicts import Assertion, ClaimedCase, Kind, kind_of, spans

RIGHT, SOME, PARTLY, WRONG, NOTE = Kind
IDLE = LIBRARY / "08_idle_follower.yaml"
of_every_claim = pytest.mark.parametrize("claim", CLAIMS.values(), ids=lambda c: str(c.number))


# The files


@of_every_claim
def test_every_case_in_every_version_is_as_the_file_says(claim, request):
    new, old = claim.rewritten, claim.path.read_text()
    if request.config.getoption("--rewrite"):
        claim.path.write_text(new)
    elif new != old:
        pairs = zip(new.splitlines(), old.splitlines(), strict=False)
        number, now, expected = next((n, *p) for n, p in enumerate(pairs, start=1) if p[0] != p[1])
        where = f"{claim.path.name} line {number}"
        pytest.fail(f"{where}\nexpected: {expected}\nnow:      {now}", pytrace=False)


def test_every_row_is_there_once():
    assert list(CLAIMS) == list(range(1, 35))


@of_every_claim
def test_a_claim_is_computed_but_for_what_no_run_can_decide(claim):
    assert any(s.cases for s in claim.statements)
    assert all(bool(s.cases) != bool(s.citation) for s in claim.statements)
    assert claim.evidence.endswith((".", ".)"))
    assert "" not in claim.scripts or claim.trial("", claim.version).run.blocks


def changed(path, folder, old, new):
    """The path of a changed copy of a claim's file."""
    text = path.read_text()
    assert old in text
    copy = folder / path.name
    copy.write_text(text.replace(old, new, 1))
    return copy


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("08_idle_follower", "claimed: yes", "claimed: no"),
        ("04_who_counts", "claimed: 5", "claimed: 6"),
        ("02_lag_limits", "from 2.5: 30000", "from 2.4: 30000"),
        ("14_old_leader_returns", ", truncated to 1, fate", ", its broker stops, fate"),
        ("25_announcing_a_change", "5000 to 7500", "5000 to 7400"),
        ("34_growing_isr", "Kafka 4.1, 0", "Kafka 4.1, 1"),
    ],
)
def test_a_claim_with_another_expected_value_fails(name, old, new, tmp_path):
    copy = changed(LIBRARY / f"{name}.yaml", tmp_path, old, new)
    assert Claim(copy).rewritten != copy.read_text()


def test_a_verdict_turns_with_the_rule(monkeypatch):
    monkeypatch.setattr(rules, "can_join_isr", lambda _, end, mark, start: end > mark)
    assert Claim(LIBRARY / "07_joining_offset.yaml").statements[0].word == "right"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("lag clock and membership", "clocks", "theme: unknown theme 'clocks'; known: .* high"),
        ("theme: ", "topic: ", "the head: unknown 'topic'; known: claim, theme"),
        ("source: ", "# ", "the head: no 'source'; needed: claim, theme"),
        ("source: ", "source: : ", "no YAML: .*\n.*line [34]"),
        ("claim_idle_follower", "idle", "script: no scenario 'idle'; known: .*claim_idle_follower"),
        ("_follower", "_follower, acks=9 -> acks=1", "'acks=9 -> acks=1' changes nothing"),
        ("measure: ", "record: ITS\n  measurer: ", "a statement: unknown 'measurer'; known: says"),
        ("  measure: ", "  # ", "dropped by its clock alone, .*no 'measure'; needed"),
        ("measure: time(", "measure: tiem(", "alone: .* 'tiem' is not defined; known: .* time"),
        ('("isr_shrink")', "()", "alone: time.*: .* missing 1 required .* argument: 'kind'"),
        ("isr_shrink", "isr_grow", "alone: .* no 'isr_grow'; known: isr_shrink"),
        ('shrink") <', 'shrink", lag=1) <', "alone: .* no 'lag'; known: run, ts_ms"),
        ('shrink") <', 'shrink", script="x") <', "alone: .* no scenario 'x'; .* file: none"),
        ('shrink") <', 'shrink", lag_clock="SLOW") <', "alone: .* lag_clock has no form 'SLOW'"),
        (") <", ") ) <", "alone: time.*: unmatched"),
        ("time(", "time.__class__(", "alone: time.*: a measure has no Attribute"),
        ("claimed: yes", "claimed: yes; later no", "alone: 'later no' is not a change such as"),
        ("claimed: yes", "claimed: yes\n  releases: from 7.3", "alone: unknown Kafka .* '7.3'"),
        ("claimed: yes", "cases: [[a, yes]]", "alone: a case is .situation, claimed, measure."),
        ("  gives: |", "  gives: >", "gives: each statement, and the evidence, ends"),
    ],
)
def test_a_wrong_file_says_where_and_what_would_be_right(old, new, problem, tmp_path):
    copy = changed(IDLE, tmp_path, old, new)
    with pytest.raises(ClaimError, match=problem):
        assert Claim(copy).rewritten


# Verdicts follow from cases


def statement(*agrees):
    names = ("0.8.2", "0.9.0-0.10.1", "0.10.2")
    pairs = zip(names, agrees, strict=False)
    return Assertion("it", [ClaimedCase(name, True, lambda so=so: so) for name, so in pairs])


def test_what_is_right_in_several_spans_or_nowhere():
    assert statement(True, False, True).word == "right up to 0.8.2 and from 0.10.2 on only"
    assert spans([("0.11-1.0", True), ("1.1", False)]) == "in 0.11-1.0"  # not "up to"
    assert spans([("0.8.2", False)]) == "nowhere"


def test_kind_of_several_statements():
    right, wrong, both = statement(True), statement(False), statement(True, False)
    noted = Assertion("x", citation="y")
    kinds = [kind_of(all_) for all_ in ((right, noted), (right, both), (right, wrong), (noted,))]
    assert kinds == [RIGHT, SOME, PARTLY, NOTE]


# The page


@pytest.mark.slow  # alone; after the others it shows what they computed
def test_the_page_has_every_claim_of_the_articles_with_its_run_inside():
    page = show.claims().data
    assert page.count("<details") == len(CLAIMS)
    assert "dropped by its clock alone: right up to 2.0.1 only" in page  # of claim 8
    assert "15000ms  1         asks for isr=1 instead of 1,2" in page


def test_text_is_escaped(tmp_path):
    copy = changed(IDLE, tmp_path, "says: dropped", "says: <script>")
    page = show.claim_html(Claim(changed(copy, tmp_path, "evidence: ", "evidence: <u> ")))
    assert "<script>" not in page and "<u>" not in page


@of_every_claim
def test_a_source_names_its_articles_by_title_and_links_them(claim):
    names = [name for name in show.ARTICLES if name in claim.source]
    is_of_none = claim.theme == show.OWN or claim.source.startswith("all five articles")
    assert bool(names) != is_of_none
    links = [show.ARTICLES[name]["address"] for name in names]
    assert show.cited(claim.source).count("<a href=") == sum(map(bool, links))


def test_articles_are_five_and_each_is_a_source():
    sources = " ".join(claim.source for claim in CLAIMS.values())
    assert len(show.ARTICLES) == 5 and all(name in sources for name in show.ARTICLES)
    assert all(show.articles().data.count(a["title"]) == 1 for a in show.ARTICLES.values())


def test_a_notebook_that_cites_an_article_links_it():
    for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        text = path.read_text("utf-8")
        assert not re.search("article 00[0-4]", text), path.name
        for name, article in show.ARTICLES.items():
            link = f"[*{name}*]({article['address']})" if article["address"] else f"*{name}*"
            assert text.count(f"*{name}*") == text.count(link), f"{path.name}: {link}"
            if article["title"] in text:
                assert link in text or "describes Kafka" in text, f"{path.name}: {link}"


def test_the_finding_counts_every_statement_of_the_articles_once():
    numbers = [int(word) for word in re.findall(r"\d+", show.finding())]
    assert numbers[0] == sum(numbers[1:]) == len(show.STATEMENTS)


def test_releases_are_columns_of_one_figure():
    row = show.by_release()[
        "29  the quoted code of LogSegment.read"
    ]  # cases finer than generations
    held = [version.name for version, holds in row.items() if holds]
    assert held == ["0.10.2", "0.11", "1.1", "2.0.0", "2.0", "2.1", "2.2"]
    ax = show.plot_by_release("2.3")
    assert ax.get_title(loc="left").startswith("Kafka 2.3: 10 of the 17 statements")
    assert "2.3" in [label.get_text() for label in ax.get_xticklabels()]  # the framed column
