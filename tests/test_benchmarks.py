"""Each benchmark runs, with its smallest size, and prints its figures."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def _folder(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


def test_engine(capsys):
    import bench_engine

    bench_engine.main(0.001)
    rates = [line.split()[-1] for line in capsys.readouterr().out.splitlines()[1:]]
    assert len(rates) == len(bench_engine.PRESETS) and "0" not in rates


def test_all_models_of_a_cell_give_the_rows_of_the_kernel(monkeypatch, capsys):
    import bench_fleet

    loads = [
        (name, config.with_(partitions=60, minutes=0.1), share, models)
        for name, config, share, models in bench_fleet.LOADS
        if models
    ]
    assert len(loads) == 3, "SimPy is installed for the tests"
    monkeypatch.setattr(bench_fleet, "LOADS", loads)
    monkeypatch.setattr(bench_fleet, "ROUNDS", 1)
    bench_fleet.compare()
    _, explained, _, *rows = capsys.readouterr().out.strip().splitlines()
    assert "(else !)" in explained and not any("!" in row for row in rows)


def test_fleet_as_it_grows(monkeypatch):
    import bench_fleet

    monkeypatch.setattr(bench_fleet, "GROWING_S", 0.001)
    monkeypatch.setattr(bench_fleet, "GROWING_MINUTES", 1)
    figures = bench_fleet.part_grow(60)
    assert figures["seconds"] > 0 and figures["events"] > 0


def test_logs(monkeypatch, capsys):
    import bench_logs

    monkeypatch.setattr(sys, "argv", ["bench_logs.py", "1"])
    bench_logs.main()
    assert capsys.readouterr().out.count("times the processor") == 2


def test_search(capsys):
    import bench_search as bench

    bench.measure("Kip320", partial(bench.Reference, bench.KIP320, 2, 1, 1, 1), 1)
    system = partial(bench.system_of, "2.4", "partition replicas=1,2", {"produces": 1})
    bench.measure("engine", system, 1)
    assert len(capsys.readouterr().out.splitlines()) == 2
