"""The command `logs`: verdict and exit status, filters, forms, and what nobody should trust."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from isrlab.__main__ import main
from isrlab.incidents.look import look

RECORDED = Path(__file__).parent.parent / "data" / "recordings" / "incidents"
PAUSED = RECORDED / "e-282-follower-paused" / "logs"
KILLED = RECORDED / "b-412-follower-killed" / "logs"


def run(*arguments: object):
    return CliRunner().invoke(main, ["logs", *map(str, arguments)])


@pytest.mark.parametrize(
    ("name", "title", "status"),
    [("e-282-follower-paused", "CALM", 0), ("b-412-follower-killed", "WRONG NOW", 1)],
)
def test_verdict_and_status(name, title, status):
    result = run(RECORDED / name / "logs")
    assert result.exit_code == status
    above = result.output.split("\n\n")[0].splitlines()
    assert above[0] == title
    assert len(above) <= 11


def test_an_incident_shows_the_lines_that_decide():
    output = run(PAUSED).output
    assert "to blame: broker 3" in output
    assert "/server.log.gz:" in output
    assert "Shrinking ISR from" in output


def test_the_same_answers_as_the_evaluator():
    found = json.loads(run(KILLED, "--json", "--min-isr", 2).output)
    findings = look(KILLED, min_isr=2)
    assert found["status"] == findings.status == 1
    assert [each["says"] for each in found["incidents"]] == [i.says for i in findings.incidents]
    assert len(found["under_replicated"]) == 16


def test_csv_has_a_row_for_each_incident():
    rows = list(csv.DictReader(io.StringIO(run(PAUSED, "--csv").output)))
    assert [(row["what"], row["blamed"]) for row in rows] == [("follower_stalled", "3")]


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (("--topic", "orders"), 1),
        (("--topic", "ord*"), 1),
        (("--topic", "nothing"), 0),
        (("--broker", 3), 1),
        (("--broker", 1), 0),
        (("--since", "2026-11-21T12:20:40"), 0),
        (("--until", "2026-11-21T12:20:00"), 0),
        (("--since", "2026-11-21", "--until", "2026-11-22"), 1),
    ],
)
def test_filters(filters, count):
    assert len(json.loads(run(PAUSED, "--json", *filters).output)["incidents"]) == count


def test_what_is_wrong_with_the_input(tmp_path):
    assert run(tmp_path / "nowhere").exit_code == 2
    assert run(PAUSED, "--since", "yesterday").exit_code == 2
    assert "'yesterday' is no time; write 2026-11-20T10:38:00" in run(
        PAUSED, "--since", "yesterday"
    ).output  # fmt: skip
    (tmp_path / "server.log").write_text("what is this?\n" * 50)
    result = run(tmp_path)
    assert result.exit_code == 2
    assert result.output.startswith("NOT KNOWN")


def test_names_cannot_command_the_terminal(tmp_path):
    text = gzip.decompress((PAUSED / "broker-1" / "server.log.gz").read_bytes()).decode()
    for name in ("orders", "=cmd"):
        evil = text.replace("orders", "or\x1b]0;pwned\x07\u202eders") if name == "orders" else text
        (tmp_path / "server.log").write_text(evil)
        for form in ((), ("--csv",), ("--json",)):
            output = run(tmp_path, *form).output
            assert "\x1b]0" not in output
            assert "\u202e" not in output


def test_help_has_examples():
    output = CliRunner().invoke(main, ["logs", "--help"]).output
    assert "kubectl logs" in output
    assert "exit status" in output
