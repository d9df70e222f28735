"""Tables and figures of the claims: what is said, what was run, what came out.

Text from scenarios and logs is escaped in HTML, and plain in figures.
"""

from __future__ import annotations

import html
from itertools import groupby

import ipywidgets as widgets
import matplotlib.pyplot as plt
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from isrlab.engine.versions import KafkaVersion
from isrlab.show.style import INK, bare, plain
from isrlab.workbook.claims import CLAIMS, THEMES, Claim, Finding, Kind, of_theme, runs
from isrlab.workbook.claims.model import By, Case, Statement

# Light to dark, so that they differ without colour; the words are always printed, too
COLOURS = {
    Kind.RIGHT: "#BFE3D0",
    Kind.SOME_VERSIONS: "#FFE9A8",
    Kind.PARTLY: "#F6C28B",
    Kind.WRONG: "#D97B6C",
    Kind.NOTE: "#DDDDDD",
}
_CELL = "text-align:left;vertical-align:top;padding:4px 8px;white-space:normal"


# Tables


def table(theme: str) -> HTML:
    """The claims of one theme: claim, run, verdict. Raises ValueError for an unknown theme."""
    rows = "".join(_row(claim) for claim in of_theme(theme))
    head = "".join(
        f'<th style="{_CELL};width:{width}">{name}</th>'
        for name, width in (("row", "4%"), ("claim", "32%"), ("run", "20%"), ("verdict", "44%"))
    )
    return HTML(
        f'<table style="width:100%;font-size:90%"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _row(claim: Claim) -> str:
    said = f"{html.escape(claim.sentence)}<br><small>{html.escape(claim.source)}</small>"
    cells = (str(claim.number), said, html.escape(claim.run), verdict_html(claim.verdict))
    return "<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>"


def verdict_html(finding: Finding) -> str:
    """The class as a coloured word, the verdict on each statement, the evidence."""
    colour = COLOURS[finding.kind]
    chip = (
        f'<span style="background:{colour};color:#222;padding:1px 6px">{finding.kind.value}</span>'
    )
    words = "".join(f"<li>{html.escape(_sentence(s))}</li>" for s in finding.statements)
    return (
        f'{chip}<ul style="margin:4px 0 4px 16px;padding:0">{words}</ul>'
        f"{html.escape(finding.evidence)}"
    )


def _sentence(statement: Statement) -> str:
    return f"{statement.says}: {statement.word}"


def row(number: int) -> HTML:
    """One claim with every case, its scenario and what that prints."""
    return HTML(_row_html(CLAIMS[number]))


def _row_html(claim: Claim) -> str:
    cases = "".join(_cases_html(s) for s in claim.verdict.statements if s.cases)
    return (
        f"<p><b>Row {claim.number}</b> ({html.escape(claim.source)}): "
        f"{html.escape(claim.sentence)}</p>{verdict_html(claim.verdict)}{cases}{_run_html(claim)}"
    )


def _cases_html(statement: Statement) -> str:
    lines = "".join(
        f'<tr style="background:{COLOURS[Kind.RIGHT if agrees else Kind.WRONG]};color:#222">'
        + "".join(f'<td style="{_CELL}">{html.escape(text)}</td>' for text in texts)
        + "</tr>"
        for agrees, *texts in _grouped(statement)
    )
    head = "".join(f'<th style="{_CELL}">{name}</th>' for name in ("", "told", "shown"))
    return (
        f"<p><i>{html.escape(statement.says)}</i></p>"
        f'<table style="font-size:90%"><tr>{head}</tr>{lines}</table>'
    )


def _grouped(statement: Statement) -> list[tuple[bool, str, str, str]]:
    """Cases that say the same, releases in a row as one."""
    found = []
    for (told, shown), group in groupby(statement.cases, key=lambda c: (str(c.told), str(c.shown))):
        cases = list(group)
        where = cases[0].where
        if statement.by == By.VERSION and len(cases) > 1:
            where = f"{where.split('-')[0]}-{cases[-1].where.split('-')[-1]}"
        elif len(cases) > 1:
            where = ", ".join(c.where for c in cases)
        agrees = cases[0].agrees or statement.by == By.QUESTION
        found.append((agrees, where, told, shown))
    return found


def _run_html(claim: Claim) -> str:
    if not claim.script:
        return ""
    run = runs.play(claim.script, claim.version)
    text = "\n\n".join("\n".join([*b.source, "----", b.printed]) for b in run.blocks)
    lines = text.splitlines()
    shown = lines if len(lines) <= 90 else [*lines[:40], "...", *lines[-40:]]
    return (
        f"<details><summary>The run, in Kafka {html.escape(claim.version)}</summary>"
        f'<pre style="font-family:monospace;font-size:85%;line-height:1.25">'
        f"{html.escape(chr(10).join(shown))}</pre></details>"
    )


def picker(number: int = 5) -> widgets.VBox:
    """Choose a row and see its cases and its run."""
    options = [(f"{n}. {c.source}"[:90], n) for n, c in CLAIMS.items()]
    choice = widgets.Dropdown(
        options=options, value=number, description="row", layout=widgets.Layout(width="620px")
    )
    page = widgets.HTML()

    def draw(chosen: int) -> None:
        page.value = _row_html(CLAIMS[chosen])

    choice.observe(lambda change: draw(change["new"]), names="value")
    draw(number)
    return widgets.VBox([choice, page])


# All rows at once


def plot_overview(*, ax: Axes | None = None) -> Axes:
    """Every row as a field in the colour of its verdict's class, theme by theme."""
    ax = ax or plt.subplots(figsize=(10, 0.42 * len(THEMES) + 1.6))[1]
    for y, theme in enumerate(THEMES):
        for x, claim in enumerate(of_theme(theme)):
            ax.add_patch(
                Rectangle(
                    (x, y), 1, 1, facecolor=COLOURS[claim.verdict.kind], edgecolor="white", lw=2
                )
            )
            ax.text(x + 0.5, y + 0.5, str(claim.number), ha="center", va="center", color=INK)
    ax.set_xlim(0, max(len(of_theme(theme)) for theme in THEMES))
    ax.set_ylim(len(THEMES), 0)
    ax.set_yticks([y + 0.5 for y in range(len(THEMES))], [plain(t) for t in THEMES])
    ax.set_xticks([])
    ax.tick_params(length=0)
    bare(ax)
    patches = [Patch(color=colour, label=_legend(kind)) for kind, colour in COLOURS.items()]
    ax.legend(handles=patches, loc="lower right", frameon=False, fontsize=9)
    ax.set_title(plain(finding()), loc="left", fontsize=11)
    return ax


def _legend(kind: Kind) -> str:
    return f"{kind.value}: {len(of_kind(kind))}"


def of_kind(kind: Kind, last: int = 34) -> list[int]:
    """The rows up to `last` whose verdict is of that class."""
    return [n for n, c in CLAIMS.items() if n <= last and c.verdict.kind == kind]


def finding() -> str:
    """How many of the articles' claims are right as they stand, in one sentence."""
    told = 30
    count = {kind: len(of_kind(kind, told)) for kind in Kind}
    return (
        f"Of {told} claims {count[Kind.RIGHT]} hold as they stand, {count[Kind.SOME_VERSIONS]} in "
        f"some releases, {count[Kind.PARTLY]} in part, {count[Kind.WRONG]} not at all"
    )


def statements_finding() -> str:
    """The same for the single statements that the articles' claims were taken apart into."""
    kinds = [s.kind for n in range(1, 31) for s in CLAIMS[n].verdict.statements]
    parts = (f"{kinds.count(kind)} {kind.value}" for kind in Kind)
    return f"Taken apart, they are {len(kinds)} statements: {', '.join(parts)}."


def by_release() -> list[tuple[Claim, Statement]]:
    """The statements that hold in some releases and not in others."""
    return [
        (claim, s)
        for claim in CLAIMS.values()
        for s in claim.verdict.statements
        if s.by == By.VERSION and s.kind == Kind.SOME_VERSIONS
    ]


def case_in(statement: Statement, version: KafkaVersion) -> Case | None:
    """The case that a release falls into, if the statement has one."""
    release = _numbers(version.releases.split("-")[0])
    known = [c for c in statement.cases if _numbers(c.where.split("-")[0]) <= release]
    end = _numbers(statement.cases[-1].where.split("-")[-1])
    return known[-1] if known and release <= end else None


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def plot_by_release(version: str, *, ax: Axes | None = None) -> Axes:
    """Where each statement that depends on the release holds; `version` is framed."""
    rows, chosen = by_release(), KafkaVersion.of(version)
    ax = ax or plt.subplots(figsize=(11.5, 0.34 * len(rows) + 1.6))[1]
    for y, (_, statement) in enumerate(rows):
        for x, release in enumerate(runs.VERSIONS):
            case = case_in(statement, release)
            if case:
                colour = COLOURS[Kind.RIGHT if case.agrees else Kind.WRONG]
                ax.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor="white", lw=1.5))
                if not case.agrees:
                    ax.text(x + 0.5, y + 0.5, "x", ha="center", va="center", fontsize=8, color=INK)
    frame = runs.VERSIONS.index(chosen)
    ax.add_patch(Rectangle((frame, 0), 1, len(rows), fill=False, edgecolor=INK, lw=1.6))
    ax.set_xlim(0, len(runs.VERSIONS))
    ax.set_ylim(len(rows), 0)
    names = [v.releases.split("-")[0] for v in runs.VERSIONS]
    ax.set_xticks([x + 0.5 for x in range(len(names))], names, fontsize=8)
    ax.xaxis.tick_top()
    labels = [plain(f"{c.number}  {s.says}") for c, s in rows]
    ax.set_yticks([y + 0.5 for y in range(len(rows))], labels, fontsize=8)
    ax.tick_params(length=0)
    bare(ax)
    cases = [case_in(s, chosen) for _, s in rows]
    known = [c.agrees for c in cases if c]
    ax.set_title(
        plain(f"In Kafka {version} {sum(known)} of {len(known)} statements hold (x: does not)"),
        loc="left",
        fontsize=11,
        pad=12,
    )
    return ax
