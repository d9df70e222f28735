"""The claims on one page: the sources, the verdicts by release, and the runs behind them.

Text from scenarios and logs is escaped in HTML, and plain in figures.
"""

import json
import re
from html import escape

import yaml
from IPython.display import HTML, Markdown
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from isrlab.engine.versions import GENERATIONS, KafkaVersion, release
from isrlab.installed import DATA, NOTEBOOKS
from isrlab.show.matrix import plot_matrix
from isrlab.show.style import INK, OUTCOMES, PALE, WHITE
from isrlab_book.workbook.claims.reading import CLAIMS, THEMES, Claim
from isrlab_book.workbook.claims.verdicts import Assertion, Kind

ARTICLES = {
    article["english"]: article
    for article in yaml.safe_load((DATA / "articles.yaml").read_text("utf-8"))
}
OWN = "our own brokers"  # the theme whose judge is not the engine
STATEMENTS = [s for claim in CLAIMS.values() if claim.theme != OWN for s in claim.statements]
# Colours are never the only sign: the words are also printed
COLOURS = {
    Kind.RIGHT: OUTCOMES["safe"],
    Kind.SOME_VERSIONS: OUTCOMES["flapping"],
    Kind.PARTLY: OUTCOMES["lost"],
    Kind.WRONG: OUTCOMES["diverged"],
    Kind.NOTE: PALE,
}
LONGEST_VERDICT = 40  # characters; a longer verdict is shown only when the claim is opened
_PRE = "font-family:monospace;font-size:85%;line-height:1.25"
_OTHERS = re.compile(r"# Where `.+?`:.*(\n#.*)*\n\n")  # comments on other releases


def articles() -> Markdown:
    """The articles: title, author, date, address, and the release whose code they describe."""
    lines = []
    for name, article in ARTICLES.items():
        title = f"[{name}]({article['address']})" if article["address"] else name
        lines.append(
            f"- **{title}** (“{article['title']}”), {article['author']}, {article['date']}; "
            f"describes Kafka {article['kafka']}"
        )
    return Markdown("\n".join(lines))


def claims() -> HTML:
    """A line for each claim, by theme; it opens to show the claim's runs."""
    parts = []
    for theme in THEMES:
        lines = "".join(claim_html(claim) for claim in CLAIMS.values() if claim.theme == theme)
        parts.append(f"<h4>{escape(theme[0].upper() + theme[1:])}</h4>{lines}")
    return HTML("".join(parts))


def claim_html(claim: Claim) -> str:
    """One claim: number, sentence, source and verdict; inside, each statement, case and run."""
    word = claim.statements[0].word
    is_short = len(claim.statements) == 1 and len(word) <= LONGEST_VERDICT
    look = f"background:{COLOURS[claim.kind]};color:{INK};padding:1px 6px;white-space:nowrap"
    pill = f'<span style="{look}">{escape(word if is_short else claim.kind.value)}</span>'
    links = [f'<a href="{file}">{title}</a>' for file, title in notebooks_about(claim)]
    shown = "".join(f" · shown in {link}" for link in links)
    printed = "\n\n".join(f"{s.says}: {s.printed}" for s in claim.statements)
    parts = f"<p>{escape(claim.run)} {escape(claim.evidence)}</p>{_pre(printed)}"
    if "" in claim.scripts:
        own = _OTHERS.sub("", claim.trial("", claim.version).run.rewritten)
        text = re.sub(r" *#>.*", "", own)
        parts += f"<p>The run, in Kafka {claim.version}:</p>{_pre(text)}"
    return (
        f'<details style="margin:4px 0"><summary><b>{claim.number}.</b> {escape(claim.sentence)} '
        f"{pill}<br><small>{cited(claim.source)}{shown}</small></summary>{parts}</details>"
    )


def cited(source: str) -> str:
    """A source in HTML, with links to its articles."""
    links = {
        name: f'<a href="{article["address"]}">{name}</a>' if article["address"] else name
        for name, article in ARTICLES.items()
    }
    return re.sub("|".join(links), lambda match: links[match[0]], escape(source))


def notebooks_about(claim: Claim) -> list[tuple[str, str]]:
    """File name and title of the notebooks that show what a claim is about."""
    paths = [p for name in claim.shown for p in NOTEBOOKS.glob(f"[0-9]*_{name}.ipynb")]
    heads = ["".join(json.loads(p.read_text("utf-8"))["cells"][0]["source"]) for p in paths]
    titles = [head.splitlines()[0].lstrip("# ").partition(":")[0] for head in heads]
    return [(path.name, escape(title)) for path, title in zip(paths, titles, strict=True)]


def _pre(text: str) -> str:
    return f'<pre style="{_PRE}">{escape(text)}</pre>'


def finding() -> str:
    """A summary of the verdicts on all claims."""
    kinds = [statement.kind for statement in STATEMENTS]
    right, at_times, partly, wrong, noted = (kinds.count(kind) for kind in Kind)
    return (
        f"Of {len(kinds)} statements in the five articles {right} hold wherever they were tried, "
        f"{at_times} only in some releases, {partly} only in some situations, {wrong} nowhere; "
        f"{noted} no run can decide"
    )


def by_release() -> dict[str, dict[KafkaVersion, bool | None]]:
    """The releases in which each release-dependent statement holds."""
    return {
        f"{claim.number}  {s.says}": {version: _holds(s, version) for version in GENERATIONS}
        for claim in CLAIMS.values()
        for s in claim.statements
        if s.kind == Kind.SOME_VERSIONS
    }


def _holds(statement: Assertion, version: KafkaVersion) -> bool | None:
    """Whether the statement holds for a generation's first release; None if no case covers it."""
    own, last = (*version.first, 0), release(statement.cases[-1].where.split("-")[-1])
    begun = [c for c in statement.cases if release(c.where.split("-")[0], 0) <= own <= last]
    return begun[-1].agrees if begun else None


def plot_by_release(version: str) -> Axes:
    """Where each statement that depends on the release holds; `version` is framed."""
    rows, chosen = by_release(), KafkaVersion.of(version)
    heads = {v: version if v == chosen else v.releases.split("-")[0] for v in GENERATIONS}
    marks = {None: " ", True: "✓", False: "x"}
    fields = {
        name: {heads[v]: marks[holds] for v, holds in row.items()} for name, row in rows.items()
    }
    holds = [bool(row[chosen]) for row in rows.values() if row[chosen] is not None]
    count = f"{sum(holds)} of the {len(holds)} statements about it that depend on the release"
    title = f"Kafka {version}: {count} hold (✓)"
    colours = {" ": WHITE, "✓": COLOURS[Kind.RIGHT], "x": COLOURS[Kind.WRONG]}
    ax = plot_matrix(fields, title, colours=colours, size=(0.26, 0.3), is_upright=True)
    frame = (GENERATIONS.index(chosen), 0), 1, len(rows)
    ax.add_patch(Rectangle(*frame, fill=False, edgecolor=INK, lw=1.6))
    return ax
