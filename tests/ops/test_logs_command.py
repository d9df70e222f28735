"""The command `logs`: verdict and exit status, filters, forms, and logs not to be trusted."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest
from click.testing import CliRunner

from isrlab.__main__ import main
from isrlab_ops.logs.incidents.facts import FACTS
from isrlab_ops.logs.incidents.look import look
from isrlab_ops.logs.incidents.quote import shortened
from isrlab_ops.logs.incidents.rules import RULES, TABLE
from isrlab_ops.logs.reader import read_local

RECORDED = Path(__file__).parents[2] / "data" / "recordings" / "incidents"
PAUSED = RECORDED / "e-282-follower-paused" / "logs"
KILLED = RECORDED / "b-412-follower-killed" / "logs"


@pytest.fixture(autouse=True)
def of_usual_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


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
    assert above[0].startswith(f"{title}  ")
    labels = [line[:8].strip() for line in above[1:10]]
    expected = ["What", "Since", "Who", "Now", "Then", "Done", "Read"]
    assert [label for label in labels if label in expected] == expected


def test_the_first_lines_say_what_is_at_risk_and_what_to_do():
    above = run(KILLED).output.split("\n\n")[0]
    text = " ".join(above.split())
    assert "16 of 16 partitions have lost a replica, none its leader." in text
    assert "2 of 3 copies left: acks=all works, one more loss stops it (min.insync.repl" in text
    assert "Start broker 2 again" in text and "--under-replicated-partitions prints nothing" in text
    assert "not over; the logs end 22.2 s later" in text
    assert "9 of 9 files, 4,737 lines, Kafka 4.1.2, stamps UTC, the last 2026-" in text
    asked = " ".join(run(KILLED, "--min-isr", 3).output.split())
    assert "16 partitions refuse acks=all writes now (min.insync.replicas=3)" in asked


def test_lost_records_are_counted_first_and_are_never_calm():
    result = run(RECORDED / "402-unclean" / "logs")
    text = " ".join(result.output.split())
    assert result.exit_code == 1
    assert text.startswith("RECORDS LOST Lost: 268 records of 6 partitions.")
    assert "orders-0: offsets 28..71 (44 records, appended 05:47:09.731 to 05:47:35.267)" in text


@pytest.mark.parametrize("name", ["431-acks-one", "../losses/422-writes-in-flight"])
def test_a_loss_that_depends_on_the_acks_is_called_possible_everywhere(name):
    result = run(RECORDED / name / "logs")
    text = " ".join(result.output.split())
    assert result.exit_code == 2 and text.startswith("LOSS POSSIBLE Perhaps lost: ")
    assert "If their producers use acks=1, they are lost" in text
    assert "Lost Perhaps " in text and "not if all their producers use acks=all." in text
    assert "Done when the owners of the topics know which acks their producers use." in text
    assert "RECORDS LOST" not in text and "Unsure" not in text


@pytest.mark.parametrize(
    ("name", "title"), [("e-282-follower-paused", "WRONG NOW"), ("a-412-follower-paused", "CALM")]
)
def test_a_min_isr_above_the_replicas_refuses_writes_before_3_7_and_is_capped_from_then_on(
    name, title, tmp_path
):
    """The topics' own setting is in the log; all three replicas of each partition are in sync."""
    copytree(RECORDED / name / "logs", tmp_path, dirs_exist_ok=True)
    for path in tmp_path.rglob("server.log*"):
        packed = path.read_bytes()
        data = gzip.decompress(packed) if path.suffix == ".gz" else packed
        stamp = re.match(rb"\[[^\]]+\]", data)[0]  # type: ignore[index]
        more = [b"%s INFO Processing override for entityPath: topics/%s with config: "
                b"Map(min.insync.replicas -> 4) (kafka.server.DynamicConfigManager)\n"
                % (stamp, topic) for topic in (b"orders", b"payments")]  # fmt: skip
        data = b"".join([*more, data])
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    result = run(tmp_path)
    assert result.output.startswith(f"{title}  ") and result.exit_code == (title != "CALM")
    refused = "acks=all writes are refused in 16 partitions with fewer replicas than min.insync"
    assert (refused in " ".join(result.output.split())) == (title != "CALM")


def test_every_rule_has_a_remedy_a_reason_and_words_for_its_facts():
    assert {*TABLE.fact} == {*FACTS}
    assert [rule.name for rule in RULES if rule.learn.partition(": ")[2] not in TABLE.why] == []
    assert all(rule.done for rule in RULES if rule.grave)
    words = dict.fromkeys(("who", "losers", "partitions", "isr"), "1")
    assert all(rule.then.format_map(words) for rule in RULES)


def test_a_full_disk_is_named_with_its_directory():
    text = " ".join(run(RECORDED / "352-disk-full" / "logs").output.split())
    assert "Log directory: /srv/kafka/broker-2/data." in text
    assert "du -xsh /srv/kafka/broker-2/data/*" in text
    assert "under-replicated for 705 ms so far" in text
    assert "Kafka does not take a failed log directory back by itself" in text


@pytest.mark.parametrize("width", [60, 100])
def test_lines_fit_the_terminal_and_keep_what_decides(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for name in ("b-412-follower-killed", "402-unclean"):
        result = run(RECORDED / name / "logs")
        assert max(map(len, result.output.splitlines())) <= width
    line = (
        "[RaftManager id=2] Cancelled in-flight FETCH request with correlation id 95 due to node 3 "
    )
    line += (
        "being disconnected (elapsed time since creation: 15433ms, elapsed time since send: 15433ms"
    )
    line += ", throttle time: 0ms, request timeout: 2000ms)"
    assert "elapsed time since creation: 15433ms" in shortened(line, 100)
    shrink = (
        "[Partition payments-5 broker=1] Shrinking ISR from 1,3,2 to 1,3. Leader: (highWatermark: "
    )
    assert "from 1,3,2 to 1,3" in shortened(shrink + "37, endOffset: 38). Out of sync: 2" * 3, 70)
    assert all(len(shortened(line, size)) <= size for size in range(30, 250))


def test_evidence_is_one_line_a_fact_unless_all_is_wanted():
    folded = run(PAUSED).output
    full = " ".join(run(PAUSED, "--evidence").output.split())
    assert folded.count("Shrinking ISR") == 2  # in the first lines, and below
    assert "Several leaders removed it (16 lines):" in folded
    assert full.count("Shrinking ISR from") >= 5 and "and 12 more lines" in full
    assert "(kafka.cluster.Partition)" in full


def test_colours_are_for_terminals_that_want_them(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = CliRunner().invoke(main, ["logs", str(KILLED)], color=True).output
    assert "\x1b[31m" in coloured and "\x1b" not in run(KILLED).output
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in CliRunner().invoke(main, ["logs", str(KILLED)], color=True).output


def test_an_incident_shows_the_lines_that_decide():
    output = run(PAUSED).output
    assert "Who     Broker 3; hit: 16 partitions" in output
    assert "/server.log.gz:" in output
    assert "Shrinking ISR from" in output


def test_the_same_answers_as_the_evaluator():
    found = json.loads(run(KILLED, "--json", "--min-isr", 2).output)
    findings = look(KILLED, min_isr=2)
    assert found["status"] == findings.status == 1
    assert [each["says"] for each in found["incidents"]] == [i.says for i in findings.incidents]
    assert len(found["under_replicated"]) == 16


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


@pytest.mark.parametrize(
    ("filters", "why"),
    [
        (("--topic", "ordres"), "no topic matches --topic 'ordres'; there are the topics orders"),
        (("--broker", 7), "no line names --broker 7; there are the brokers 1, 2, 3"),
        (("--broker", 0), "no line names --broker 0; "),
        (("--until", "2026-11-20"), "nothing is before --until 2026-11-20 00:00:00.000: these "),
        (("--since", "2026-11-22"), "nothing is after --since 2026-11-22 00:00:00.000: these logs"),
        (("--since", "2026-11-22", "--until", "2026-11-21T12:20"), "is after --until 2026-11-21"),
    ],
)
def test_filters_that_match_nothing_are_never_calm(filters, why):
    result = run(PAUSED, *filters)
    assert (result.exit_code, result.output.split()[:2]) == (2, ["NOT", "KNOWN"])
    assert why in " ".join(result.output.split())


def test_broker_0_is_a_broker_like_any_other(tmp_path):
    for number in (1, 2, 3):
        path = PAUSED / f"broker-{number}" / "server.log.gz"
        text = gzip.decompress(path.read_bytes()).decode()
        swapped = re.sub(r"(?<=[=,\[ ])3(?=[,\]:. ])(?! rack)", "0", text)
        (tmp_path / f"broker-{number % 3}").mkdir()
        (tmp_path / f"broker-{number % 3}" / "server.log").write_text(swapped)
    everything = json.loads(run(tmp_path, "--json").output)["incidents"]
    assert [each["who"] for each in everything] == [[0]]
    asked = {n: json.loads(run(tmp_path, "--json", "--broker", n).output) for n in (0, 1)}
    assert len(asked[0]["incidents"]) == 1 and len(asked[1]["incidents"]) == 0


def test_what_is_wrong_with_the_input(tmp_path):
    assert run(tmp_path / "nowhere").exit_code == 2
    assert run(PAUSED, "--since", "yesterday").exit_code == 2
    assert "'yesterday' is not a time; write 2026-11-20T10:38:00" in run(
        PAUSED, "--since", "yesterday"
    ).output  # fmt: skip
    (tmp_path / "server.log").write_text("what is this?\n" * 50)
    result = run(tmp_path)
    assert result.exit_code == 2
    assert result.output.startswith("NOT KNOWN")


def test_a_digit_of_another_script_is_no_digit(tmp_path):
    text = gzip.decompress((PAUSED / "broker-1" / "server.log.gz").read_bytes()).decode()
    (line,) = re.findall(r".*Shrinking ISR from 1,2,3 to 1,2\..*\n", text)[:1]
    (tmp_path / "server.log").write_text(text)
    whole = read_local(tmp_path)
    for strange in (line.replace("to 1,2.", "to 1,\u0662."), line.replace(":2", ":\u0662", 1)):
        (tmp_path / "server.log").write_text(text.replace(line, strange))
        logs = read_local(tmp_path)
        assert logs.events.num_rows < whole.events.num_rows
        assert logs.unread.num_rows > whole.unread.num_rows


@pytest.mark.parametrize("place", ["in the middle", "at the end", "no event"])
@pytest.mark.parametrize("year", ["1999", "2099"])
def test_a_stray_line_of_another_year_does_not_stretch_the_logs(tmp_path, place, year):
    text = gzip.decompress((PAUSED / "broker-1" / "server.log.gz").read_bytes()).decode()
    lines = text.splitlines(keepends=True)
    grown = next(line for line in lines if "Expanding ISR" in line or "ISR updated" in line)
    quiet = "-11-21 12:20:00,000] INFO Starting the log cleaner (kafka.log.LogCleaner)\n"
    stray = f"[{year}" + (quiet if place == "no event" else grown[5:])
    at = len(lines) // 2 if place == "in the middle" else len(lines)
    (tmp_path / "server.log").write_text("".join([*lines[:at], stray, *lines[at:]]))
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "server.log").write_text(text)
    findings, whole = look(tmp_path / "server.log"), look(tmp_path / "whole")
    assert findings.record.end_ms - findings.record.start_ms < 60_000
    assert len(findings.incidents) == len(whole.incidents)
    is_reported = {*findings.doubts} - {*whole.doubts}  # its time, or that no broker prints it
    assert is_reported or (year, place) == ("1999", "no event")


@pytest.mark.parametrize("how", ["-", "<(zcat {})"])
def test_what_comes_through_a_pipe_is_read_and_quoted(how):
    path = PAUSED / "broker-2" / "server.log.gz"
    command = f"{sys.executable} -m isrlab logs {how.format(path)}"
    text = gzip.decompress(path.read_bytes()) if how == "-" else b""
    done = subprocess.run(["bash", "-c", command], input=text, capture_output=True, check=False)
    assert done.stderr == b""
    shown = re.search(r"standard input:(\d+) [\d:.]+\s+(\S.*)", done.stdout.decode())
    assert shown
    line = gzip.decompress(path.read_bytes()).decode().splitlines()[int(shown[1]) - 1]
    assert "Shrinking ISR from" in line and "Shrinking ISR from" in shown[2]


def merged(folder: Path) -> str:
    """The lines of all logs in a folder, in order of time, as a collector stores them."""
    records: list[tuple[str, str]] = []
    for path in sorted(folder.rglob("*.log*")):
        for line in gzip.decompress(path.read_bytes()).decode().splitlines(keepends=True):
            if line.startswith("[20"):
                records.append((line[1:24], line))
            elif records:
                records[-1] = (records[-1][0], records[-1][1] + line)
    return "".join(line for _, line in sorted(records, key=lambda record: record[0]))


def test_brokers_that_restart_one_by_one_in_a_merged_file_do_not_all_stop_at_its_end(tmp_path):
    """The last of three is stopping. The two others run again, although a new controller logs once
    more that they are fenced."""
    (tmp_path / "kafka.log").write_text(merged(RECORDED / "d-392-rolling-restart" / "logs"))
    asked = json.loads(run(tmp_path, "--json", "--until", "2026-11-21T12:25:05").output)
    assert asked["status"] == 1
    assert [each["what"] for each in asked["incidents"] if each["end_ms"] is None] == ["stopped"]
    assert not any("all brokers were shut down cleanly" in caveat for caveat in asked["caveats"])


HOSTILE = [
    ("or\x1b]0;pwned\x07\u202eders", "=cmd()"),
    ("<script>alert(1)</script>", "<!-- stories -->"),
    ("$(reboot)", "'&\"x"),
]


@pytest.mark.parametrize("names", HOSTILE)
def test_names_cannot_command_a_terminal_a_shell_or_a_browser(tmp_path, names):
    text = gzip.decompress((PAUSED / "broker-1" / "server.log.gz").read_bytes()).decode()
    for name, hostile in zip(("orders", "payments"), names, strict=True):
        text = text.replace(name, hostile)
    (tmp_path / "server.log").write_text(text)
    page = tmp_path.parent / f"{tmp_path.name}.html"
    for form in (("--evidence", "--html", page), ("--json",)):
        output = run(tmp_path, *form).output
        assert not {"\x1b", "\u202e", "\x07"} & {*output}
    written = page.read_text(encoding="utf-8")
    assert not {"\x1b", "\u202e", "\x07"} & {*written}
    assert "<script" not in written and "<!--" not in written
    assert "://" not in written, "nothing comes from outside"


def test_a_name_that_a_shell_obeys_stands_in_no_command(tmp_path):
    throttled = RECORDED / "i-392-throttle-left-behind" / "logs"
    for path in throttled.rglob("*.gz"):
        text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        (tmp_path / path.parent.name).mkdir(exist_ok=True)
        target = tmp_path / path.parent.name / path.name.removesuffix(".gz")
        target.write_text(text.replace("orders", "$(reboot)"))
    checks = [
        c for i in json.loads(run(tmp_path, "--json").output)["incidents"] for c in i["checks"]
    ]
    assert checks and not any("reboot" in check for check in checks)
    plain = [
        c for i in json.loads(run(throttled, "--json").output)["incidents"] for c in i["checks"]
    ]
    assert any("--entity-name 'orders'" in check for check in plain)


def test_anonymous_names_are_the_same_everywhere_and_hide_all_of_them(tmp_path):
    folder = tmp_path / "kafka-prod-7.bank.example"
    folder.mkdir()
    for number in (1, 2, 3):
        text = gzip.decompress(
            (KILLED / f"broker-{number}" / "server.log.gz").read_bytes()
        ).decode()
        for name, secret in (("orders", "salaries"), ("payments", "mergers.eu"),
                             ("127.0.0.1", "10.77.3.9"), ("/srv/kafka", "/mnt/vault")):  # fmt: skip
            text = text.replace(name, secret)
        (folder / f"rack{number}").mkdir()
        (folder / f"rack{number}" / "server.log").write_text(text)
    page = tmp_path / "page.html"
    forms = ((), ("--evidence", "--html", page), ("--json",))
    told = [run(folder, "--anonymous", *form).output for form in forms]
    told.append(page.read_text(encoding="utf-8"))
    for output in told:
        for secret in ("salaries", "mergers", "10.77", "vault", "bank", "rack1", "rack2"):
            assert secret not in output
        assert re.search(r"topic-[12]-\d", output) or "partitions" not in output
    plain = json.loads(run(folder, "--json").output)["incidents"]
    hidden = json.loads(told[2])["incidents"]
    assert [each["start_ms"] for each in hidden] == [each["start_ms"] for each in plain]
    pairs = {(a[1], b[1]) for p, h in zip(plain, hidden, strict=True)
             for a, b in zip(p["partitions"], h["partitions"], strict=True)}  # fmt: skip
    assert pairs and pairs <= {("mergers.eu", "topic-1"), ("salaries", "topic-2")}
    texts = [(a["text"], b["text"]) for p, h in zip(plain, hidden, strict=True)
             for a, b in zip(p["evidence"], h["evidence"], strict=True)]  # fmt: skip
    assert any("host-1" in after for _, after in texts)
    assert all(
        re.findall(r"endOffset: \d+", a) == re.findall(r"endOffset: \d+", b) for a, b in texts
    )


def test_the_page_holds_the_answer_the_timeline_and_the_evidence(tmp_path):
    page = tmp_path / "incident.html"
    assert run(KILLED, "--html", page).exit_code == 1
    text = page.read_text(encoding="utf-8")
    assert "WRONG NOW" in text and text.count("<svg") == 1 + 3 + 1 and "Connection to" in text
    assert "default-src &#x27;none&#x27;" in text or "default-src 'none'" in text
    assert "<script" not in text and "src=" not in text and "url(" not in text
    assert run(KILLED, "--html", tmp_path / "no" / "folder.html").exit_code == 2


def test_help_has_examples():
    output = CliRunner().invoke(main, ["logs", "--help"]).output
    assert "kubectl logs" in output
    assert "exit status" in output


def test_a_line_that_no_kafka_prints_is_never_calm(tmp_path):
    """One digit is changed in one line of a recording whose answer is CALM."""
    copytree(PAUSED, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "broker-1" / "server.log.gz"
    text = gzip.decompress(path.read_bytes()).decode()
    number, line = next(
        (number, line) for number, line in enumerate(text.splitlines(), 1) if "Shrinking" in line
    )
    text = text.replace(line, line.replace(" to 1,2.", " to 1,1."))
    path.write_bytes(gzip.compress(text.encode()))
    place = f"broker-1/server.log.gz:{number}"
    result = run(tmp_path)
    assert result.exit_code == 2
    assert result.output.startswith("NOT KNOWN")
    assert f"{place}: no broker is twice in an ISR" in " ".join(result.output.split())
    assert f"  {place}  no broker is twice in an ISR" in result.output.splitlines()
    answer = json.loads(run(tmp_path, "--json").output)
    assert (answer["status"], answer["faults_by_rule"]) == (2, {"twice": 1})
    (fault,) = answer["faults"]
    assert (fault["file"], fault["line"]) == ("broker-1/server.log.gz", number)
