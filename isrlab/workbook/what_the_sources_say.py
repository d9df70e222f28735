"""Tables and figures of the claims: what is claimed, what was run, what came out.

Text from scenarios and logs is escaped in HTML, and plain in figures.
"""

from __future__ import annotations

import html
from itertools import pairwise

import ipywidgets as widgets
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from isrlab.engine.choices import HighWatermarkSet
from isrlab.engine.versions import GENERATIONS, KafkaVersion, release
from isrlab.show import offsets
from isrlab.show.controls import pick
from isrlab.show.curves import Curve, Scale, plot_curves, plot_ticks
from isrlab.show.matrix import plot_matrix
from isrlab.show.style import INK, OUTCOMES, PALE, WHITE, broker_colour, panels
from isrlab.workbook.claims import CLAIMS, THEMES, Claim, measures, of_theme, recorded
from isrlab.workbook.claims.verdicts import Case, Kind, Statement
from isrlab.world import scenario

# The words are always printed, too
COLOURS = {
    Kind.RIGHT: OUTCOMES["safe"],
    Kind.SOME_VERSIONS: OUTCOMES["flapping"],
    Kind.PARTLY: OUTCOMES["lost"],
    Kind.WRONG: OUTCOMES["diverged"],
    Kind.NOTE: PALE,
}
OF_ARTICLES = 30  # claims; the others are about our own brokers
_CELL = "text-align:left;vertical-align:top;padding:4px 8px;white-space:normal"


# Tables


def table(theme: str) -> HTML:
    """The claims of one theme: claim, run, verdict. Raises ValueError for an unknown theme."""
    rows = [
        (
            str(claim.number),
            f"{html.escape(claim.sentence)}<br><small>{html.escape(claim.source)}</small>",
            html.escape(claim.run),
            verdict_html(claim),
        )
        for claim in of_theme(theme)
    ]
    head = (("row", 4), ("claim", 32), ("run", 20), ("verdict", 44))
    columns = "".join(f'<th style="{_CELL};width:{width}%">{name}</th>' for name, width in head)
    lines = ("".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) for cells in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return HTML(f'<table style="width:100%;font-size:90%"><tr>{columns}</tr>{body}</table>')


def verdict_html(claim: Claim) -> str:
    """The class as a coloured word, the verdict on each statement, the evidence."""
    words = "".join(f"<li>{html.escape(f'{s.says}: {s.word}')}</li>" for s in claim.statements)
    return (
        f'<span style="background:{COLOURS[claim.kind]};color:#222;padding:1px 6px">'
        f'{claim.kind.value}</span><ul style="margin:4px 0 4px 16px;padding:0">{words}</ul>'
        f"{html.escape(claim.evidence)}"
    )


def row(number: int) -> HTML:
    """One claim with every case, its scenario and what that prints."""
    return HTML(_page(CLAIMS[number]))


def _page(claim: Claim) -> str:
    cases = "\n\n".join(f"{s.says}: {s.printed}" for s in claim.statements if s.cases)
    page = (
        f"<p><b>Row {claim.number}</b> ({html.escape(claim.source)}): "
        f"{html.escape(claim.sentence)}</p>{verdict_html(claim)}"
        f"<p>What was measured where, beside what is claimed:</p>{_pre(cases)}"
    )
    if not claim.script:
        return page
    run = scenario.play(claim.script, version=claim.version)
    title = f"The run, in Kafka {html.escape(claim.version)}"
    return f"{page}<details><summary>{title}</summary>{_pre(run.rewritten)}</details>"


def _pre(text: str) -> str:
    style = "font-family:monospace;font-size:85%;line-height:1.25"
    return f'<pre style="{style}">{html.escape(text)}</pre>'


def picker(number: int = 5) -> widgets.VBox:
    """Choose a row and see its cases and its run."""
    choice = pick("row", [(f"{n}. {c.source}"[:90], n) for n, c in CLAIMS.items()], number)
    page = widgets.HTML(_page(CLAIMS[number]))

    def draw(change: dict[str, int]) -> None:
        page.value = _page(CLAIMS[change["new"]])

    choice.observe(draw, names="value")
    return widgets.VBox([choice, page])


# All rows at once


def of_kind(kind: Kind, last: int = len(CLAIMS)) -> list[int]:
    """The rows up to `last` whose verdict is of that class."""
    return [n for n, c in CLAIMS.items() if n <= last and c.kind == kind]


def finding() -> str:
    """How many of the articles' claims are right as they stand, in one sentence."""
    count = {kind: len(of_kind(kind, OF_ARTICLES)) for kind in Kind}
    return (
        f"Of {OF_ARTICLES} claims {count[Kind.RIGHT]} hold as they stand, "
        f"{count[Kind.SOME_VERSIONS]} in some releases, {count[Kind.PARTLY]} in part, "
        f"{count[Kind.WRONG]} not at all"
    )


def statements_finding() -> str:
    """The same for the single statements that the articles' claims were taken apart into."""
    claims = [claim for number, claim in CLAIMS.items() if number <= OF_ARTICLES]
    kinds = [s.kind for claim in claims for s in claim.statements]
    parts = (f"{kinds.count(kind)} {kind.value}" for kind in Kind)
    return f"Taken apart, they are {len(kinds)} statements: {', '.join(parts)}."


def plot_overview(*, ax: Axes | None = None) -> Axes:
    """Every row as a field in the colour of its verdict's class, theme by theme."""
    rows = {theme: [str(claim.number) for claim in of_theme(theme)] for theme in THEMES}
    places = range(max(len(numbers) for numbers in rows.values()))
    fields = {
        theme: {str(place): (numbers[place : place + 1] or [""])[0] for place in places}
        for theme, numbers in rows.items()
    }
    colours = {str(n): COLOURS[claim.kind] for n, claim in CLAIMS.items()}
    ax = plot_matrix(fields, finding(), colours={"": WHITE, **colours}, ax=ax)
    ax.set_xticks([])
    patches = [
        Patch(color=colour, label=f"{kind.value}: {len(of_kind(kind))}")
        for kind, colour in COLOURS.items()
    ]
    ax.legend(handles=patches, loc="lower right")
    return ax


def by_release() -> list[tuple[Claim, Statement]]:
    """The statements that hold in some releases and not in others."""
    return [
        (claim, s)
        for claim in CLAIMS.values()
        for s in claim.statements
        if s.kind == Kind.SOME_VERSIONS
    ]


def case_in(statement: Statement, version: KafkaVersion) -> Case | None:
    """The case that a generation's first release falls into, if the statement has one."""
    own = (*version.first, 0)
    cases = [case for case in statement.cases if release(case.where.split("-")[0], 0) <= own]
    end = release(statement.cases[-1].where.split("-")[-1])
    return cases[-1] if cases and own <= end else None


def plot_by_release(version: str, *, ax: Axes | None = None) -> Axes:
    """Where each statement that depends on the release holds; `version` is framed."""
    statements, chosen = by_release(), KafkaVersion.of(version)
    columns = [(v.releases.split("-")[0], v) for v in GENERATIONS]
    fields = {
        f"{claim.number}  {s.says}": {name: _mark(case_in(s, v)) for name, v in columns}
        for claim, s in statements
    }
    cases = [case_in(s, chosen) for _, s in statements]
    holds = [case.agrees for case in cases if case]
    title = f"In Kafka {version} {sum(holds)} of {len(holds)} statements hold (x: does not)"
    colours = {" ": WHITE, "": COLOURS[Kind.RIGHT], "x": COLOURS[Kind.WRONG]}
    ax = plot_matrix(fields, title, colours=colours, size=(0.4, 0.3), ax=ax)
    place = GENERATIONS.index(chosen)
    ax.add_patch(Rectangle((place, 0), 1, len(fields), fill=False, edgecolor=INK, lw=1.6))
    return ax


def _mark(case: Case | None) -> str:
    return " " if case is None else "" if case.agrees else "x"


# Single rows


def plot_removal(versions: tuple[str, ...], *, ax: Axes | None = None) -> Axes:
    """Row 2: how long a stopped follower stays in the ISR, by release."""
    trials = [CLAIMS[2].trial("stopped", version) for version in versions]
    ages = {t.release: [age / 1000 for age in measures.removal_ages(t)] for t in trials}
    limits = {t.release: t.version.replica_lag_time_max_ms / 1000 for t in trials}
    first, last = versions[0], versions[-1]
    return plot_ticks(
        {name: {"dropped": values} for name, values in ages.items()},
        f"A stopped follower stays up to {max(ages[first]):g} s in {first}, "
        f"{max(ages[last]):g} s in {last}",
        Scale("time since the follower last caught up (s)"),
        notes={name: f"at most {max(values):g} s" for name, values in ages.items()},
        ranges={name: (limits[name], max(values)) for name, values in ages.items()},
        ax=ax,
    )


def plot_clock_age(versions: tuple[str, ...]) -> Figure:
    """Row 3: the clock of a follower that is always one fetch behind a steady producer."""
    runs = {}
    for version in versions:
        seen = offsets.offsets_of(CLAIMS[3].trial("", version).run)
        away = [span.start_ms / 1000 for span in seen.isr if 2 not in span.isr]
        runs[f"Kafka {version}" + (f" (after {away[0]:.1f} s)" if away else "")] = seen
    return offsets.plot_clocks(runs, dict.fromkeys(runs, 1.0))


def plot_catching_up(version: str) -> Figure:
    """Rows 4 and 5: the high watermark that a returning follower has to reach, rule on and off."""
    with_rule = KafkaVersion.of(version)
    rules = {
        "ISR and replicas in time count": with_rule,
        "the ISR alone counts": with_rule.with_(high_watermark_set=HighWatermarkSet.ISR),
    }
    figure, grid = panels(1, 2, (11, 3.4), sharey=True)
    scales = Scale("records in the leader's log", low=2), Scale("offset")
    for ax, (name, rule) in zip(grid.flat, rules.items(), strict=True):
        trial = CLAIMS[4].trial("", rule)
        frames = trial.run.frames[trial.run.blocks[1].frames[0] :]
        sizes = [frame.disks[1].log_end_offset for frame in frames]
        grown = [
            f for f, (was, size) in zip(frames[1:], pairwise(sizes), strict=True) if size > was
        ]
        ends = [frame.disks[1].log_end_offset for frame in grown]
        marks = [frame.disks[1].high_watermark for frame in grown]
        acked = [measures.remote(frame, 2).log_end_offset for frame in grown]
        curves = {
            "leader's end offset": Curve(ends, ends, look=(broker_colour(1), "o")),
            "high watermark": Curve(ends, marks, look=(INK, ""), style="--"),
            "follower's end offset": Curve(ends, acked, look=(broker_colour(2), "s")),
        }
        joins = [row["log_end_offset"] for row in measures.events(trial, "isr_expand")]
        verdict = f"it joins at {joins[0]}" if joins else "it never joins"
        plot_curves(curves, f"{name}: {verdict}", scales, ax=ax)
    return figure


def plot_recorded_ages(*, ax: Axes | None = None) -> Axes:
    """Row 32: when real leaders dropped followers, over the range that the engine gives."""
    limit = recorded.LAG_MS / 1000
    ages = {
        f"Kafka {name}": [age / 1000 for age in recorded.recorded_ages(name)]
        for name in recorded.RELEASES
    }
    every = [age for values in ages.values() for age in values]
    inside = sum(limit < age <= 1.5 * limit for age in every)
    return plot_ticks(
        {name: {"dropped": values} for name, values in ages.items()},
        f"{inside} of {len(every)} followers were dropped within the engine's range",
        Scale("time since the dropped follower last caught up, s (grey: 1.0 to 1.5 lag times)"),
        ranges=dict.fromkeys(ages, (limit, 1.5 * limit)),
        ax=ax,
    )
