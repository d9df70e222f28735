"""Tables and figures of the claims: what is claimed, what was run, what came out.

Text from scenarios and logs is escaped in HTML, and plain in figures.
"""

from __future__ import annotations

import re
from html import escape

import ipywidgets as widgets
import numpy as np
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from isrlab.brokerlogs.recordings import LAG_TIME_MS, RUNS
from isrlab.engine.choices import HighWatermarkSet
from isrlab.engine.versions import GENERATIONS, KafkaVersion, release
from isrlab.show.controls import pick
from isrlab.show.curves import Curve, Scale, plot_curves, plot_ticks
from isrlab.show.matrix import plot_matrix
from isrlab.show.offsets import offsets_of, plot_clocks
from isrlab.show.style import INK, OUTCOMES, PALE, WHITE, broker_colour, panels
from isrlab.workbook.claims import measures, recorded
from isrlab.workbook.claims.reading import ARTICLES, CLAIMS, THEMES, Claim, of_theme
from isrlab.workbook.claims.verdicts import Kind, Statement

# The words are always printed, too
COLOURS = {
    Kind.RIGHT: OUTCOMES["safe"],
    Kind.SOME_VERSIONS: OUTCOMES["flapping"],
    Kind.PARTLY: OUTCOMES["lost"],
    Kind.WRONG: OUTCOMES["diverged"],
    Kind.NOTE: PALE,
}
OF_ARTICLES = [claim for claim in CLAIMS.values() if claim.theme != "our own brokers"]
_CELL = "text-align:left;vertical-align:top;padding:4px 8px;white-space:normal"


# Tables


def cited(source: str) -> str:
    """A source with the titles of its articles beside their numbers."""
    titles = {number: f"{number} “{title.split(' (')[0]}”" for number, title in ARTICLES.items()}
    return re.sub("|".join(titles), lambda match: titles[match[0]], source)


def table(theme: str) -> HTML:
    """The claims of one theme: claim, run, verdict. Raises ValueError for an unknown theme."""
    head = (("row", 4), ("claim", 32), ("run", 20), ("verdict", 44))
    body = "".join(f'<th style="{_CELL};width:{width}%">{name}</th>' for name, width in head)
    for claim in of_theme(theme):
        words = f"{escape(claim.sentence)}<br><small>{escape(cited(claim.source))}</small>"
        cells = (str(claim.number), words, escape(claim.run), verdict_html(claim))
        body += "</tr><tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells)
    return HTML(f'<table style="width:100%;font-size:90%"><tr>{body}</tr></table>')


def verdict_html(claim: Claim) -> str:
    """The class as a coloured word, the verdict on each statement, the evidence."""
    words = "".join(f"<li>{escape(f'{s.says}: {s.word}')}</li>" for s in claim.statements)
    return (
        f'<span style="background:{COLOURS[claim.kind]};color:#222;padding:1px 6px">'
        f'{claim.kind.value}</span><ul style="margin:4px 0 4px 16px;padding:0">{words}</ul>'
        f"{escape(claim.evidence)}"
    )


def row(number: int) -> HTML:
    """One claim with every case, its scenario and what that prints."""
    claim = CLAIMS[number]
    cases = "\n\n".join(f"{s.says}: {s.printed}" for s in claim.statements if s.cases)
    page = (
        f"<p><b>Row {number}</b> ({escape(cited(claim.source))}): {escape(claim.sentence)}</p>"
        f"{verdict_html(claim)}<p>What was measured where, beside what is claimed:</p>{_pre(cases)}"
    )
    if "" not in claim.scripts:
        return HTML(page)
    text, title = claim.trial("", claim.version).run.rewritten, f"The run, in Kafka {claim.version}"
    return HTML(f"{page}<details><summary>{escape(title)}</summary>{_pre(text)}</details>")


def _pre(text: str) -> str:
    style = "font-family:monospace;font-size:85%;line-height:1.25"
    return f'<pre style="{style}">{escape(text)}</pre>'


def picker(number: int = 5) -> widgets.VBox:
    """Choose a row and see its cases and its run."""
    choice = pick("row", [(f"{n}. {c.sentence}"[:90], n) for n, c in CLAIMS.items()], number)
    page = widgets.HTML(row(number).data)
    choice.observe(lambda change: setattr(page, "value", row(change["new"]).data), names="value")
    return widgets.VBox([choice, page])


# All rows at once


def finding() -> str:
    """How many of the articles' claims are right as they stand, in one sentence."""
    kinds = [claim.kind for claim in OF_ARTICLES]
    right, at_times, partly, wrong, _ = (kinds.count(kind) for kind in Kind)
    return (
        f"Of {len(kinds)} claims {right} hold as they stand, {at_times} in some releases, "
        f"{partly} in part, {wrong} not at all"
    )


def statements_finding() -> str:
    """The same for the single statements that the articles' claims were taken apart into."""
    kinds = [s.kind for claim in OF_ARTICLES for s in claim.statements]
    parts = (f"{kinds.count(kind)} {kind.value}" for kind in Kind)
    return f"Taken apart, they are {len(kinds)} statements: {', '.join(parts)}."


def plot_overview() -> Axes:
    """Every row as a field in the colour of its verdict's class, theme by theme."""
    places = [str(n) for n in range(max(len(of_theme(theme)) for theme in THEMES))]
    fields = {theme: dict.fromkeys(places, ("", "")) for theme in THEMES}
    for theme, row_fields in fields.items():
        numbers = [(str(claim.number), claim.kind.value) for claim in of_theme(theme)]
        row_fields.update(zip(places, numbers, strict=False))
    kinds = [claim.kind for claim in CLAIMS.values()]
    colours = {"": WHITE, **{kind.value: colour for kind, colour in COLOURS.items()}}
    legend = {kind.value: f"{kind.value}: {kinds.count(kind)}" for kind in Kind}
    ax = plot_matrix(fields, finding(), colours=colours, legend=legend)
    ax.set_xticks([])
    return ax


def by_release() -> dict[str, dict[KafkaVersion, bool | None]]:
    """Where each statement holds that does in some releases and not in others."""
    return {
        f"{claim.number}  {s.says}": {version: _holds(s, version) for version in GENERATIONS}
        for claim in CLAIMS.values()
        for s in claim.statements
        if s.kind == Kind.SOME_VERSIONS
    }


def _holds(statement: Statement, version: KafkaVersion) -> bool | None:
    """In the case that a generation's first release falls into; None if there is no such case."""
    own, last = (*version.first, 0), release(statement.cases[-1].where.split("-")[-1])
    begun = [c for c in statement.cases if release(c.where.split("-")[0], 0) <= own <= last]
    return begun[-1].agrees if begun else None


def plot_by_release(version: str) -> Axes:
    """Where each statement that depends on the release holds; `version` is framed."""
    rows, chosen = by_release(), KafkaVersion.of(version)
    marks = {None: " ", True: "", False: "x"}
    fields = {
        name: {v.releases.split("-")[0]: marks[holds] for v, holds in row.items()}
        for name, row in rows.items()
    }
    holds = [row[chosen] for row in rows.values() if row[chosen] is not None]
    title = f"In Kafka {version} {sum(map(bool, holds))} of {len(holds)} statements hold"
    colours = {" ": WHITE, "": COLOURS[Kind.RIGHT], "x": COLOURS[Kind.WRONG]}
    ax = plot_matrix(fields, f"{title} (x: does not)", colours=colours, size=(0.4, 0.3))
    frame = (GENERATIONS.index(chosen), 0), 1, len(rows)
    ax.add_patch(Rectangle(*frame, fill=False, edgecolor=INK, lw=1.6))
    return ax


# Single rows


def plot_removal(versions: tuple[str, ...]) -> Axes:
    """Row 2: how long a stopped follower stays in the ISR, by release."""
    trials = {version: CLAIMS[2].trial("stopped", version) for version in versions}
    ages = {name: np.divide(measures.removal_ages(t), 1000) for name, t in trials.items()}
    most, (first, *_, last) = {name: max(values) for name, values in ages.items()}, versions
    title = (
        f"A stopped follower stays up to {most[first]:g} s in {first}, {most[last]:g} s in {last}"
    )
    limits = {name: t.version.replica_lag_time_max_ms / 1000 for name, t in trials.items()}
    return plot_ticks(
        {name: {"dropped": values} for name, values in ages.items()}, title,
        Scale("time since the follower last caught up (s)"),
        notes={name: f"at most {age:g} s" for name, age in most.items()},
        ranges={name: (limits[name], age) for name, age in most.items()},
    )  # fmt: skip


def plot_clock_age(versions: tuple[str, ...]) -> Figure:
    """Row 3: the clock of a follower that is always one fetch behind a steady producer."""
    runs = {}
    for version in versions:
        offsets = offsets_of(CLAIMS[3].trial("", version).run)
        away = [span.start_ms / 1000 for span in offsets.isr if 2 not in span.isr]
        runs[f"Kafka {version}" + (f" (after {away[0]:.1f} s)" if away else "")] = offsets
    return plot_clocks(runs, dict.fromkeys(runs, 1.0))


def plot_catching_up(version: str) -> Figure:
    """Rows 4 and 5: the high watermark that a returning follower has to reach, rule on and off."""
    with_rule = KafkaVersion.of(version)
    rules = {
        "ISR and replicas in time count": with_rule,
        "the ISR alone counts": with_rule.with_(high_watermark_set=HighWatermarkSet.ISR),
    }
    figure, grid = panels(1, 2, (11, 3.4), sharey=True)
    scales = Scale("records in the leader's log", low=3), Scale("offset")
    for ax, (name, rule) in zip(grid.flat, rules.items(), strict=True):
        run = CLAIMS[4].trial("", rule).run
        offsets = offsets_of(run)
        grown = np.flatnonzero(np.diff(offsets.log_end_offset) > 0) + 1
        sizes = offsets.log_end_offset, offsets.high_watermark, offsets.ends[2]
        ends, marks, confirmed = (np.asarray(values)[grown] for values in sizes)
        curves = {
            "leader's end offset": Curve(ends, ends, look=(broker_colour(1), "o")),
            "high watermark": Curve(ends, marks, look=(INK, ""), style="--"),
            "follower's end offset": Curve(ends, confirmed, look=(broker_colour(2), "s")),
        }
        joins = [e.log_end_offset for e in run.cluster.events if e.kind == "isr_expand"]
        verdict = f"it joins at {joins[0]}" if joins else "it never joins"
        plot_curves(curves, f"{name}: {verdict}", scales, ax=ax)
    return figure


def plot_recorded_ages() -> Axes:
    """Row 32: when real leaders dropped followers, over the range that the engine gives."""
    limit = LAG_TIME_MS / 1000
    trials = {f"Kafka {name}": CLAIMS[32].trial("", name) for name in RUNS}
    ages = {name: np.divide(recorded.recorded_ages(t), 1000) for name, t in trials.items()}
    inside = [limit < age <= 1.5 * limit for values in ages.values() for age in values]
    return plot_ticks(
        {name: {"dropped": values} for name, values in ages.items()},
        f"{sum(inside)} of {len(inside)} followers were dropped within the engine's range",
        Scale("time since the dropped follower last caught up, s (grey: 1.0 to 1.5 lag times)"),
        ranges=dict.fromkeys(ages, (limit, 1.5 * limit)),
    )
