"""Each benchmark runs, with its smallest size, and prints its figures."""

import sys
from functools import partial
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _folder(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))


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
    bench.measure("engine", partial(bench.system_of, "2.4", bench.LINE, {"produces": 1}), 1)
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_process_of_its_own_does_not_count_what_its_parent_had():
    from alone import alone, peak_mb

    held = b"x" * 400_000_000
    assert alone(peak_mb) < len(held) / 1e6 < peak_mb()
