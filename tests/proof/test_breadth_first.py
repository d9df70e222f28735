"""The search of everything finds exactly the states, depths and breaks that are known elsewhere.

The sizes are those that TLC, the checker of TLA+, prints for five public specifications. A larger
one: `python tests/proof/test_breadth_first.py Kip320 3 2 2 2 [WORKERS]`.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from cases.reference_systems import MODULES, Reference
from isrlab_proof.search import breadth_first
from isrlab_proof.search.breadth_first import BreadthFirst, Extent, SearchEnd
from isrlab_proof.search.tables import Tables

HOLDS = None
# By module, in the order of MODULES: states, depth, and where each promise is broken first
TABLE: dict[tuple[int, ...], list[tuple[int, int, int | None, int | None]]] = {
    (2, 1, 1, 0): [*[(39, 9, HOLDS, HOLDS)] * 4, (37, 9, HOLDS, HOLDS)],
    (2, 1, 1, 1): [
        (353, 12, 9, 10),
        *[(341, 12, HOLDS, HOLDS)] * 2,
        (337, 12, HOLDS, HOLDS),
        (277, 12, HOLDS, HOLDS),
    ],
    (2, 1, 1, 2): [
        (2_149, 15, 9, 10),
        *[(1_995, 14, HOLDS, HOLDS)] * 2,
        (1_895, 14, HOLDS, HOLDS),
        (1_365, 14, HOLDS, HOLDS),
    ],
    (2, 2, 2, 1): [
        (1_251, 16, 9, 10),
        *[(1_177, 15, HOLDS, HOLDS)] * 2,
        (1_165, 15, HOLDS, HOLDS),
        (957, 15, HOLDS, HOLDS),
    ],
    (2, 2, 2, 2): [
        (10_131, 20, 9, 10),
        (9_045, 18, 12, 12),
        (9_027, 18, HOLDS, HOLDS),
        (8_429, 18, HOLDS, HOLDS),
        (5_973, 18, HOLDS, HOLDS),
    ],
    (3, 1, 1, 0): [*[(280, 13, HOLDS, HOLDS)] * 4, (271, 13, HOLDS, HOLDS)],
    (3, 1, 1, 1): [
        (10_681, 17, 9, 9),
        *[(9_841, 18, HOLDS, 12)] * 2,
        (9_661, 18, HOLDS, HOLDS),
        (6_787, 18, HOLDS, HOLDS),
    ],
    (3, 1, 1, 2): [
        (225_196, 22, 9, 9),
        (192_952, 22, 11, 11),
        (192_592, 22, 11, 11),
        (175_453, 23, 12, 13),
        (97_531, 22, HOLDS, HOLDS),
    ],
}
ROWS = [
    (module, sizes, row)
    for sizes, rows in TABLE.items()
    for module, row in zip(MODULES, rows, strict=True)
]


def search(module: str, sizes: tuple[int, ...], **how: object) -> SearchEnd:
    searching = BreadthFirst(partial(Reference, module, *sizes), stops=False, **how)
    try:
        return searching.run()
    finally:
        searching.close()


def verdict(end: SearchEnd) -> tuple[int, int, int | None, int | None]:
    at = end.progress
    weak, strong = (at.broken.get(name, (HOLDS,))[0] for name in Reference.promises)
    return at.distinct, at.depth, weak, strong


@pytest.mark.parametrize(("module", "sizes", "row"), ROWS)
def test_states_depths_and_breaks_are_those_of_tlc(module, sizes, row) -> None:
    end = search(module, sizes)
    assert (*verdict(end), end.ended) == (*row, "all")


def test_without_numba_the_same_is_found() -> None:
    code = f"import sys; sys.path[:], sys.modules['numba'] = {sys.path}, None\n"
    code += "from test_breadth_first import *; print(verdict(search(MODULES[0], (2, 1, 1, 1))))"
    out = subprocess.check_output([sys.executable, "-W", "error", "-c", code], text=True)
    assert out.strip() == str(verdict(search(MODULES[0], (2, 1, 1, 1))))


def test_two_workers_find_the_same() -> None:
    ends = [search(MODULES[0], (3, 1, 1, 1), workers=n, round=700) for n in (1, 2)]
    ours, theirs = (
        (*verdict(e), e.progress.transitions, e.progress.broken, e.schedules) for e in ends
    )
    assert ours == theirs


def test_a_schedule_is_as_short_as_it_says_and_leads_to_the_break() -> None:
    tables = Tables(Reference(MODULES[0], 2, 1, 1, 1))
    end = search(MODULES[0], (2, 1, 1, 1))
    for bit, (name, actions) in enumerate(sorted(end.schedules.items(), reverse=True)):
        assert len(actions) == end.progress.broken[name][0] - 1
        states = [tables.system.first]
        for action in actions:
            states = [t for s in states for a, t in tables.successors(s) if a == action]
        assert any(tables.broken(tables.row(state))[0] >> bit & 1 for state in states)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_search_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path, workers) -> None:
    whole = search(MODULES[1], (3, 1, 1, 1))
    how = {"make": partial(Reference, MODULES[1], 3, 1, 1, 1), "stops": False}
    first = BreadthFirst(**how, workers=3 - workers, round=300, most_bytes=0)
    stops = 0
    end = first.run()
    while end.ended == "memory":  # after each round
        stops += 1
        first.save(tmp_path, "3 1 1 1")
        first.close()
        first = BreadthFirst(**how, workers=workers, round=300, most_bytes=0)
        first.load(tmp_path, "3 1 1 1")
        first.most_bytes = 0 if stops < 12 else float("inf")
        end = first.run()
    first.close()
    assert stops == 12
    ours, theirs = ((*verdict(e), e.progress.transitions, e.schedules) for e in (whole, end))
    assert ours == theirs
    with pytest.raises(ValueError, match="holds another search: 3 1 1 1"):
        BreadthFirst(**how).load(tmp_path, "another")


def test_a_search_that_is_killed_has_saved_itself(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(breadth_first, "SAVE_EVERY_S", 0)
    saved = []

    def save(search: BreadthFirst) -> None:
        search.save(tmp_path)
        saved.append(search.at.distinct)
        if len(saved) == 5:
            raise RuntimeError("killed")

    how = {"make": partial(Reference, MODULES[1], 3, 1, 1, 1), "stops": False, "round": 300}
    with pytest.raises(RuntimeError, match="killed"):
        BreadthFirst(**how, kept=save).run()
    again = BreadthFirst(**how)
    again.load(tmp_path)
    assert again.at.distinct == saved[-1]
    assert verdict(again.run()) == verdict(search(MODULES[1], (3, 1, 1, 1)))


def test_what_is_saved_can_call_nothing(tmp_path: Path) -> None:
    (tmp_path / "level.pickle").write_bytes(b"cbuiltins\nprint\n(S'hello'\ntR.")
    with pytest.raises(Exception, match=r"builtins\.print is not expected"):
        BreadthFirst(partial(Reference, MODULES[0], 2, 1, 1, 0)).load(tmp_path)


def test_the_chance_of_a_collision_is_said() -> None:
    end = SearchEnd(Extent(distinct=10_000_000), "all", {}, {})
    assert end.collision_chance == pytest.approx(2.7e-6, rel=0.01)


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    end = search(name, tuple(map(int, numbers[:4])), workers=int((*numbers, 1)[4]))
    at = end.progress
    print(verdict(end), f"{at.transitions:,} transitions, {at.seconds:.1f} s, {end.rate:,.0f}/s, "
          f"{at.memory / 1e6:,.0f} MB, {at.memory / at.distinct:.0f} bytes a state")  # fmt: skip
