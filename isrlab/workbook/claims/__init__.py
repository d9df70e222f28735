"""What the sources say, put to the test: each claim with the run that decides it.

Rows 1 to 30 are statements of five articles about Kafka's replication, 31 to 34 what two recorded
clusters have to say about this package. They are text, in `data/claims`; `reading` says how.
"""

from pathlib import Path

from isrlab.workbook.claims.reading import THEMES, Claim, ClaimError

LIBRARY = Path(__file__).resolve().parents[3] / "data" / "claims"
ARTICLES = {  # number: title
    line[:3]: line[4:]
    for line in (LIBRARY / "articles.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
}
CLAIMS = {claim.number: claim for claim in map(Claim, sorted(LIBRARY.glob("[0-9]*.txt")))}


def of_theme(theme: str) -> list[Claim]:
    """The claims about one subject. Raises ValueError with the known subjects."""
    if theme not in THEMES:
        raise ValueError(f"no theme {theme!r}; known: {', '.join(THEMES)}")
    return [claim for claim in CLAIMS.values() if claim.theme == theme]


__all__ = ["ARTICLES", "CLAIMS", "LIBRARY", "THEMES", "Claim", "ClaimError", "of_theme"]
