"""What the sources say, put to the test: each claim with the run that decides it.

Rows 1 to 30 are statements of five articles about Kafka's replication, 31 to 34 what two recorded
clusters have to say about this package. `CLAIMS` holds them by number, `THEMES` their subjects.
"""

from isrlab.workbook.claims import (
    counting,
    durability,
    history,
    loss,
    membership,
    recorded,
    spreading,
    visibility,
    watermark,
)
from isrlab.workbook.claims.model import Claim, Finding, Kind

_MODULES = (
    visibility, membership, counting, watermark, loss, durability, spreading, history, recorded,
)  # fmt: skip

THEMES: tuple[str, ...] = tuple(module.THEME for module in _MODULES if module is not counting)
CLAIMS: dict[int, Claim] = {
    claim.number: claim
    for claim in sorted((c for m in _MODULES for c in m.CLAIMS), key=lambda c: c.number)
}


def of_theme(theme: str) -> list[Claim]:
    """The claims about one subject. Raises ValueError with the known subjects."""
    if theme not in THEMES:
        raise ValueError(f"no theme {theme!r}; known: {', '.join(THEMES)}")
    return [claim for claim in CLAIMS.values() if claim.theme == theme]


__all__ = ["CLAIMS", "THEMES", "Claim", "Finding", "Kind", "of_theme"]
