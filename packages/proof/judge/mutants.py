"""`python -m judge.mutants`, in packages/proof: wrong rules, and whether stored steps notice them.

Each rule of rules.py and kraft.py that a judged class needs is made wrong in one place at a time: a
condition is dropped, reversed, or moved by one; a value is another one, or one more or less. Only
places that the release evaluates are changed. Each field of a release also gets its other forms. A
variant is noticed if the engine with it differs from Kafka in a stored step. mutants.csv in
data/judged has the numbers, and survivors.csv what was not noticed; its columns `same` (the release
cannot show the variant) and `why` are written by hand. Stored are the runs that notice the most.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from copy import deepcopy
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import click
import pandas as pd

from isrlab.engine import choices, kraft, rules
from isrlab.engine.choices import Form
from isrlab.engine.versions import RULES, KafkaVersion
from isrlab_proof import judged
from isrlab_proof.judged import JudgedRun
from judge import jars

STEPS = 2_000  # kept of each release, or more where a variant needs it
SCORES, SURVIVORS = judged.FOLDER / "mutants.csv", judged.FOLDER / "survivors.csv"
LEFT_OUT = {"isr_check_period_ms", "announces_isr_change"}  # timers, which no schedule has
# The rules that each class depends on. Not listed: defaults of the fleet and of clients, rules of
# ZooKeeper's controllers, the task that checks the ISR, and a proposed rule that no release has
RULES_OF = {
    "partition": (
        "lag_clock", "clock_reset", "shrink_rule", "expand_rule", "eligibility",
        "high_watermark_set", "high_watermark_held_under_min_isr", "high_watermark_after_shrink",
        "high_watermark_only_if_follower_moved", "isr_write", "after_isr_error",
        "order_frees_isr_request", "ignores_known_order", "epoch_entry", "pushes_high_watermark",
        "refuses_former_incarnation", "failed_fetch_resets_follower", "accepts_any_acks",
        "not_leader_error",
    ),
    "follower": (
        "truncation", "follow_again", "epoch_entry", "cleans_epochs_at_log_end",
        "fences_stale_leader_epoch", "halts_on_log_end_past_leader",
    ),
    "controller": (
        "epoch_bump_on_isr_shrink", "eligible_leader_replicas", "kraft_elects_uncleanly",
        "reassignment", "elr_of_replicas_only", "min_isr_of_own_partition",
        "handles_shutdown_again",
    ),
}  # fmt: skip
OTHERS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,), ast.And: (ast.Or,), ast.Or: (ast.And,),
}  # fmt: skip


class Variant(NamedTuple):
    """A rule with one change, such as "a < b -> a <= b", or in another form ("form -> no")."""

    rule: str
    change: str
    version: KafkaVersion
    module: ModuleType = rules
    source: str = ""  # of the changed function

    def is_noticed(self, runs: Iterable[JudgedRun]) -> bool:
        made: dict[str, Any] = {}
        exec(f"from __future__ import annotations\n{self.source}", vars(self.module), made)
        with mock.patch.dict(vars(self.module), made):
            try:
                return not all(run.agrees(self.version) for run in runs)
            except Exception:  # an engine that fails
                return True


def variants(version: KafkaVersion, kinds: Iterable[str]) -> Iterator[Variant]:
    """The wrong rules of a release that runs of these classes should notice."""
    for field in sorted({rule for kind in kinds for rule in RULES_OF[kind]}):
        value = getattr(version, field)
        every = {*type(value)} if isinstance(value, Form) else {False, True}
        for other in sorted(every - {value}):
            switched = version.with_(**{field: other})
            yield Variant(field, f"form -> {switched.form(field)}", switched)
    modules = (rules, kraft) if version.eligible_leader_replicas else (rules,)
    for module in modules:
        for name, rule in inspect.getmembers(module, inspect.isfunction):
            if rule.__module__ != module.__name__ or name in LEFT_OUT:
                continue
            tree = ast.parse(inspect.getsource(rule))
            (function,) = tree.body
            assert isinstance(function, ast.FunctionDef)
            evaluated, right = Evaluated(version), ast.unparse(tree)
            for node in evaluated.of(function.body):
                for other in evaluated.wrong(node, rule.__annotations__["return"]):
                    source = ast.unparse(deepcopy(tree, {id(node): other}))
                    if source != right:
                        yield Variant(name, _short(node, other), version, module, source)


def _short(*nodes: ast.AST) -> str:
    texts = (ast.unparse(ast.fix_missing_locations(node)) for node in nodes)
    return " -> ".join(text.partition(":\n")[0] for text in texts)


class Evaluated:
    """The statements and expressions of a function that a release evaluates."""

    def __init__(self, version: KafkaVersion) -> None:
        self.known = vars(choices) | {rule: getattr(version, rule) for rule in RULES}
        self.known |= {"version": version, "has_elr": version.eligible_leader_replicas}
        self.known["is_held_under_min_isr"] = version.high_watermark_held_under_min_isr

    def of(self, body: list[ast.stmt]) -> Iterator[ast.AST]:
        for statement in body:
            yield from self._within(statement)
            if isinstance(statement, ast.Assign) and self._value(statement.value) is not None:
                self.known[ast.unparse(statement.targets[0])] = self._value(statement.value)
            taken = self._taken(statement)
            if taken and isinstance(taken[-1], ast.Return):
                return

    def _taken(self, node: ast.AST) -> list[Any] | None:
        """What follows a test that this release always answers in the same way."""
        if not isinstance(node, ast.If | ast.IfExp) or (is_so := self._value(node.test)) is None:
            return None
        taken: Any = node.body if is_so else node.orelse
        return taken if isinstance(taken, list) else [taken]

    def _within(self, node: ast.AST) -> Iterator[ast.AST]:
        if self._value(node) is not None:
            return
        taken = self._taken(node)
        if taken is None:
            yield node
            taken = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.If):
            yield from self.of(taken)
        else:
            for child in taken:
                yield from self._within(child)

    def _open(self, values: list[ast.expr]) -> list[ast.expr]:
        return [value for value in values if self._value(value) is None]

    def _value(self, node: ast.AST) -> object:
        """What an expression is in this release, or None if that depends on more than its rules."""
        if isinstance(node, ast.BoolOp):
            decides = isinstance(node.op, ast.Or)
            if any(v is not None and bool(v) is decides for v in map(self._value, node.values)):
                return decides
        try:
            return eval(ast.unparse(node), {}, self.known)
        except Exception:
            return None

    def wrong(self, node: ast.AST, kind: type) -> Iterator[ast.AST]:
        """Wrong versions of one expression or statement of a function that returns this kind."""
        match node:
            case ast.Compare(left, [is_so], [right]):
                others = OTHERS.get(type(is_so), ())
                yield from (ast.Compare(left, [other()], [right]) for other in others)
            case ast.BoolOp(word, values) if len(self._open(values)) > 1:
                values = self._open(values)
                yield ast.BoolOp(OTHERS[type(word)][0](), values)
                yield from (ast.BoolOp(word, [v for v in values if v is not out]) for out in values)
            case ast.UnaryOp(ast.Not(), value):
                yield value
            case ast.BinOp(left, ast.Add() | ast.Sub() | ast.BitAnd(), right):
                yield from (left, right)
            case ast.Call(ast.Name("min" | "max"), values) if len(values) > 1:
                yield from values
            case ast.IfExp(_, yes, no):
                yield from (yes, no)
            case ast.If(_, yes, no):
                yield from (ast.If(ast.Constant(is_so), yes, no) for is_so in (True, False))
            case ast.Return(ast.expr() as value) if kind is int:
                one = ast.Constant(1)
                yield from (ast.Return(ast.BinOp(value, by(), one)) for by in (ast.Add, ast.Sub))
            case ast.Return(ast.expr()) if kind == "bool":
                yield from (ast.Return(ast.Constant(is_so)) for is_so in (True, False))


def survivors(wrong: Iterable[Variant], runs: list[JudgedRun]) -> list[Variant]:
    """The variants that these runs do not notice."""
    return [variant for variant in wrong if not variant.is_noticed(runs)]


def choose(runs: list[JudgedRun], version: KafkaVersion) -> list[JudgedRun]:
    """The first runs, up to `STEPS` steps, and each later one that notices another variant."""
    left, chosen, steps = list(variants(version, [runs[0].kind])), [], 0
    for run in runs:
        still = survivors(left, [run])
        if steps < STEPS or still != left:
            chosen.append(run)
            steps += len(run.schedule)
        left = still
    return chosen


def measured(release: str) -> tuple[list[Variant], list[Variant]]:
    """All variants of the rules that a stored run needs, and those that none notices."""
    kinds = [kind for kind in judged.CLASSES if release in judged.releases(kind)]
    runs = [run for kind in kinds for run in judged.read(kind, release)]
    every = list(variants(KafkaVersion.of(release), kinds))
    broken = [variant._replace(source=f"def {variant.rule}(*_): raise ValueError")
              for variant in {v.rule: v for v in every if v.source}.values()]  # fmt: skip
    idle = {variant.rule for variant in survivors(broken, runs)}
    every = [variant for variant in every if variant.rule not in idle]
    return every, survivors(every, runs)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("releases", nargs=-1)
def main(releases: tuple[str, ...]) -> None:
    """Measure these releases, or all with stored steps, and store both tables."""
    scores = pd.read_csv(SCORES, index_col="release")
    told = pd.read_csv(SURVIVORS, keep_default_na=False, index_col=["rule", "change"])
    left: dict[Any, set[str]] = {key: {*names.split()} for key, names in told["releases"].items()}
    for release in releases or jars.EVERY:
        every, missed = measured(release)
        noticed = {variant.rule for variant in every if variant not in missed}
        keys = [(v.rule, v.change if v.rule in noticed else "any") for v in missed]
        for key in {*left, *keys}:
            left.setdefault(key, set()).discard(release)
            left[key] |= {release} if key in keys else set()
        same = sum(bool(told["same"].get(key)) for key in keys)
        rules_ = len({variant.rule for variant in every})
        scores.loc[release] = [rules_, len(every), len(every) - len(missed), same]
        print(release, *scores.loc[release], flush=True)
    scores.loc[[r for r in jars.EVERY if r in scores.index]].to_csv(SCORES)
    index = pd.MultiIndex.from_tuples([key for key in sorted(left) if left[key]])
    told = told.reindex(index.set_names(told.index.names), fill_value="")
    told["releases"] = [" ".join(sorted(left[key], key=jars.numbers)) for key in index]
    told.to_csv(SURVIVORS)


if __name__ == "__main__":
    main()
