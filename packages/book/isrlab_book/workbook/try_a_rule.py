"""Notebook 24: a rule is switched or rewritten, and judged before any release has it.

A rule is tried in one of two ways. A switch is a release with other choices (`KafkaVersion.with_`).
A rule of the reader's own replaces a function of `engine/rules.py` while a block runs (`own_rule`);
the engine, the scenarios and the search call the rules by their module, so all of them use it. The
compiled kernel of the fleet supports only some switches (`cost`).
"""

import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

from isrlab import fleet
from isrlab.engine import rules
from isrlab.engine.versions import KafkaVersion
from isrlab.events.measures import measures
from isrlab.events.wording import counted
from isrlab.installed import DATA, ROOT
from isrlab.show import controls
from isrlab.show.replicas import draw_beside, story_finding, visible
from isrlab.show.svg import Drawing
from isrlab.world import scenario
from isrlab.world.cluster import NotSettledError
from isrlab.world.script import ScriptError
from isrlab_proof import judged
from isrlab_proof.search.everything import SearchResult, budgets_of, try_all

RULES = DATA / "rules_to_try.toml"
TESTS = ROOT / "tests"  # of a checkout: a wheel has none
FLEET = fleet.FleetConfig(
    version="4.3", partitions=60, minutes=10, load="together", burst_records=60_000, burst_s=10,
    burst_every_s=150, burst_share=0.5, min_insync_replicas=2, replica_lag_time_max_ms=10_000,
)  # fmt: skip
COSTS = {
    "isr_shrink": "ISR shrinks", "isr_expand": "ISR expansions", "refused": "produces refused",
    "timed_out": "produces timed out", "p99_ms": "99th percentile of the wait of acks=all (ms)",
    "under_min_isr_minutes": "partition-minutes under min ISR",
}  # fmt: skip


class Proposal(NamedTuple):
    """A rule of data/rules_to_try.toml, where its fields are explained."""

    issue: str
    release: str
    choices: Mapping[str, Any]
    story: str
    asked: str
    of: str
    how: Mapping[str, Any] = MappingProxyType({})
    depth: int = 0
    repairs: Sequence[str] = ()
    kinds: Sequence[str] = ()

    @property
    def base(self) -> KafkaVersion:
        return KafkaVersion.of(self.release)

    @property
    def tried(self) -> KafkaVersion:
        """The release with the rule; its name shows the forms."""
        return self.base.with_(**self.choices)


LISTED = tomllib.loads(RULES.read_text("utf-8"))
PROPOSALS = {name: Proposal(**row) for name, row in LISTED["rules"].items()}


def proposal(name: str, release: str = "", budgets: str = "") -> Proposal:
    """A rule by its name, on another release or with other search budgets, if they are given.

    Raises ValueError for an unknown rule, with those known, and for a release that has the rule.
    """
    if name not in PROPOSALS:
        raise ValueError(f"no rule {name!r}; known: {', '.join(PROPOSALS)}")
    idea = PROPOSALS[name]
    promise, *usual = idea.asked.split()
    asked = " ".join([promise, *(budgets.split() or usual)])
    idea = idea._replace(release=release or idea.release, asked=asked)
    if all(getattr(idea.base, r) == getattr(idea.tried, r) for r in idea.choices):
        raise ValueError(f"Kafka {idea.release} has this rule already: try it on another release")
    return idea


@contextmanager
def own_rule(**functions: Callable[..., Any]) -> Iterator[None]:
    """Functions of `engine/rules.py` replaced, by name, while the block runs.

    Raises ValueError for a name that is no rule, or other arguments than the rule has.
    """
    known = dict(inspect.getmembers(rules, inspect.isfunction))
    for name, function in functions.items():
        if name not in known:
            raise ValueError(f"no rule {name!r}; known: {', '.join(known)}")
        wanted = list(inspect.signature(known[name]).parameters)
        if list(inspect.signature(function).parameters) != wanted:
            raise ValueError(f"{name} takes ({', '.join(wanted)})")
    with mock.patch.dict(vars(rules), functions):
        yield


# Known results: scenarios, Kafka's own tests, and Kafka's own classes


class Notice(NamedTuple):
    """The effect of rules on all known results; "" means no difference from Kafka."""

    scenarios: dict[str, tuple[str, list[str]]]  # how each ends, and what it prints
    cases: dict[str, str]  # of tests/cases; a wheel has none
    judged: dict[tuple[str, str], list[str]]  # random ones of Kafka's classes, by class and release


def known(version: KafkaVersion) -> Notice:
    """All results by these rules, or by the functions that `own_rule` puts in their place."""
    texts = {path.stem: path.read_text("utf-8") for path in scenario.LIBRARY.glob("*.txt")}
    ends = {name: _end(texts[name], version) for name in sorted(texts)}
    runs = {(kind, release): [_difference(run, version) for run in judged.read(kind, release)]
            for kind in judged.CLASSES for release in _near(kind, version)}  # fmt: skip
    return Notice(ends, _cases(version), runs)


def _end(text: str, version: KafkaVersion) -> tuple[str, list[str]]:
    try:
        run = scenario.play(text, version=version)
    except (ScriptError, NotSettledError) as error:
        return "impossible", str(error).splitlines()
    return run.outcome.word, run.printed.splitlines()


def _cases(version: KafkaVersion) -> dict[str, str]:
    if not (TESTS / "cases").is_dir():
        return {}
    sys.path.insert(0, str(TESTS))
    try:
        results: dict[str, str] = import_module("cases.bench").results(version)
    finally:
        sys.path.remove(str(TESTS))
    return results


def _near(kind: str, version: KafkaVersion) -> list[str]:
    """The newest stored release that is no newer than these rules, and the next one after it."""
    firsts = [(KafkaVersion.of(r).first, r) for r in judged.releases(kind)]
    older = [release for first, release in firsts if first <= version.first]
    return older[-1:] + [release for first, release in firsts if first > version.first][:1]


def _difference(run: judged.JudgedRun, version: KafkaVersion) -> str:
    try:
        step = next((step for step in run.beside(version) if step.differs), None)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        return f"it cannot be played: {error}"
    if step is None:
        return ""
    name, (kafka, ours) = next(iter(step.differs.items()))
    return f"after {' '.join(map(str, step.command))}: {name} is {kafka} in Kafka, {ours} here"


def changed(before: Notice, after: Notice) -> list[dict[str, str]]:
    """A row for each scenario that the rule changes: how it ends, and the first new line. Those
    that end differently come first."""
    rows = []
    for name, (end, lines) in before.scenarios.items():
        word, others = after.scenarios[name]
        if lines != others:
            new = next((line for line in others if line not in lines), "(a line less)")
            rows.append({"scenario": name, "ends": end, "with_the_rule": word,
                         "first_new_line": " ".join(new.split())})  # fmt: skip
    return sorted(rows, key=lambda row: row["ends"] == row["with_the_rule"])


def judged_rows(before: Notice, after: Notice) -> list[dict[str, Any]]:
    """How many cases of tests/cases, and of scenarios that Kafka's own classes played, differ from
    Kafka with the rule, of those that agree without it; and the first such step."""
    pairs: dict[str, list[tuple[str, str]]] = {"Kafka's unit tests": [], "Our own cases": []}
    for case, differs in before.cases.items():
        source = "Kafka's unit tests" if re.search(r" [A-Z]\d", case) else "Our own cases"
        other = after.cases[case]
        pairs[source].append((differs, f"{case}: {other}" if other else ""))
    for kind in judged.CLASSES:
        releases = [release for name, release in before.judged if name == kind]
        best = max(releases, key=lambda release: before.judged[kind, release].count(""))
        both = zip(before.judged[kind, best], after.judged[kind, best], strict=True)
        pairs[f"Kafka's {kind}, {best}"] = list(both)
    rows = []
    for source, results in pairs.items():
        alike = [there for here, there in results if not here]
        apart = [text for text in alike if text]
        rows.append({"judge": source, "played": len(alike), "differ_from_Kafka": len(apart),
                     "first": apart[0] if apart else ""})  # fmt: skip
    return rows


# The search of everything


def searched(idea: Proposal, versions: Mapping[str, KafkaVersion]) -> dict[str, SearchResult]:
    """The search that a proposal asks for, by each of these rules in turn. If it has a limit of
    depth, a break by one of them is the limit for those after it."""
    promise, *budgets = idea.asked.split()
    how, results = dict(idea.how), dict[str, SearchResult]()
    how |= {"most_depth": idea.depth} if idea.depth else {}
    for name, version in versions.items():
        partition = LISTED["partitions"][idea.of]
        results[name] = try_all(version, partition, budgets_of(budgets), promise, **how)
        if idea.depth and results[name].promise:
            how["most_depth"] = len(results[name].actions) + 1
    return results


def verdict(end: SearchResult) -> str:
    """The result of a search in words, with its range."""
    states = f"{end.end.progress.distinct:,} states"
    if end.promise:
        return f"broken by {len(end.actions)} actions, and by no fewer ({states})"
    most = "" if end.holds else f" of up to {end.end.progress.depth - 1} actions"
    return f"no scenario{most} within the budgets breaks it ({states})"


def verdicts(results: Mapping[str, SearchResult]) -> list[dict[str, Any]]:
    """A row for each search, with its speed."""
    return [{"rules": name, "verdict": verdict(each), "took_s": round(each.end.progress.seconds, 1),
             "states/s": round(each.end.rate)} for name, each in results.items()]  # fmt: skip


def in_steps(text: str) -> str:
    """A scenario in blocks, each with a picture: a command, and the controller's answers to it."""
    begins = r"\n(?!drop|advance|stabilize|check|partition|deliver .*controller)"
    return re.sub(begins, "\n----\n\n", text.strip()) + "\n----\n"


# The cost of a rule


def cost(before: KafkaVersion, after: KafkaVersion, story: str) -> tuple[str, list[dict[str, Any]]]:
    """ISR churn and waiting with and without the rule, in a small fleet if the kernel knows the
    rule, else in a scenario of one partition; the first value says which."""
    configs = [FLEET.with_(version=version, name=version.name) for version in (before, after)]
    if configs[0].rules() != configs[1].rules():
        how = f"A fleet of {FLEET.partitions} partitions, {FLEET.minutes:g} minutes"
        tables, span_ms = [fleet.simulate_local(c) for c in configs], (0, configs[0].duration_ms)
        copies, least = FLEET.replication_factor, FLEET.min_insync_replicas
    else:
        how = f"The scenario {story}: the kernel of the fleet does not know this rule"
        runs = [scenario.play(scenario.read(story), version=v) for v in (before, after)]
        tables, cluster = [run.events() for run in runs], runs[0].cluster
        copies, least = len(cluster.replicas), cluster.settings.min_insync_replicas
        span_ms = (0, cluster.now_ms)
    numbers = [measures(table, copies, least, span_ms) for table in tables]
    return how, [{"measure": what, "as_released": f"{numbers[0][name]:,.6g}",
                  "with_the_rule": f"{numbers[1][name]:,.6g}"}
                 for name, what in COSTS.items()]  # fmt: skip


# Results of the hunt on Kafka's classes


def hunted(idea: Proposal) -> list[dict[str, str]]:
    """Kinds of broken promises that `make hunt` found in Kafka's own controller: those that the
    releases with this rule brought, and those that the same edit of Kafka's sources silences."""
    kinds = tomllib.loads((DATA / "hunt" / "kinds.toml").read_text("utf-8"))
    return [
        {"broken_promise": kind["what"], "in_releases": ", ".join(kind["releases"]),
         "with_the_rule": "silenced" if kind.get("repair") in idea.repairs else "brought by it"}
        for name, kind in kinds.items()
        if kind.get("repair") in idea.repairs or name in idea.kinds
    ]  # fmt: skip


# The control, and the finding


def beside(idea: Proposal) -> Drawing:
    """A proposal's story where the rule first shows and at the end: as released, and with it."""
    text = scenario.read(idea.story)
    topics = [scenario.play(text, version=version).topic for version in (idea.base, idea.tried)]
    pairs = [[(run, [run.frames[block.frames[1] - 1] for block in run.blocks]) for run in runs]
             for runs in zip(*topics, strict=True)]  # fmt: skip
    apart = [[n for n, frames in enumerate(zip(ours[1], theirs[1], strict=True), 1)
              if len(set(map(visible, frames))) > 1] for ours, theirs in pairs]  # fmt: skip
    blocks, ((run, _), (other, ends)) = max(zip(apart, pairs, strict=True), key=lambda p: len(p[0]))
    return draw_beside(run, ends, f"With the rule: {story_finding(other)}",
                       blocks=sorted({*blocks[:1], len(ends)}), right="With the rule")  # fmt: skip


def control(rule: str) -> controls.LiveFigure:
    """A list of rules, and the story of the chosen rule."""
    pick = controls.pick("rule", [*PROPOSALS], rule)
    return controls.LiveFigure([pick], lambda name: beside(PROPOSALS[name]))


def finding(idea: Proposal, rows: Sequence[Any], results: Mapping[str, SearchResult]) -> str:
    """The summary for a vote on the proposal."""
    ends = [row for row in rows if row["ends"] != row["with_the_rule"]]
    before, after = (verdict(results[name]) for name in ("as released", "with the rule"))
    promise = idea.asked.split()[0].replace("_", " ")
    shows = f"{counted(len(rows), 'scenario')}; {len(ends)} of them ended differently"
    return (f"{idea.issue} on Kafka {idea.release} shows in {shows}. The promise “{promise}” with "
            f"the rule: {after}; as released: {before}.")  # fmt: skip
