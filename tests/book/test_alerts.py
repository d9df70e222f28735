"""The alert rules of notebook 13 in promtool: on stories, recordings, and real brokers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from isrlab_book.workbook.your_cluster import alerts, rules
from isrlab_ops.check import live, quorum
from isrlab_ops.logs.history.history import history_of
from isrlab_ops.logs.history.record import Record
from isrlab_ops.logs.reader import read_local
from isrlab_ops.logs.recordings import folder
from judge import jars

RELEASE, STEP_MS = "4.1.2", 15_000
EXPORTER = "io.prometheus.jmx", "jmx_prometheus_javaagent", "1.0.1", ""
ERRORS = 'kafka_network_requestmetrics_errors_total{request="Produce",error="%s"}'
REFUSED = ERRORS % "NOT_ENOUGH_REPLICAS"
UNCLEAN = "kafka_controller_controllerstats_uncleanleaderelections_total"
FROM_ELR = "kafka_controller_controllerstats_electionfromeligibleleaderreplicas_total"
UNDER, MINIMUM, OFFLINE, ACTIVE = (f"kafka_{name}" for name in (
    "server_replicamanager_underreplicatedpartitions",
    "server_replicamanager_underminisrpartitioncount",
    "controller_kafkacontroller_offlinepartitionscount",
    "controller_kafkacontroller_activecontrollercount"))  # fmt: skip
HEALTHY = {UNDER: "0x600", MINIMUM: "0x600", OFFLINE: "0x600", ACTIVE: "1x600", UNCLEAN: "0x600",
           FROM_ELR: "0x600", ERRORS % "NONE": "1+1x600"}  # fmt: skip
NAMES = re.findall(r"alert: (\w+)", (rules.ALERTS / "rules.yml").read_text())
STORIES = [  # a series, scraped every 15 s; the minutes at which its rule fires, and does not
    ("KafkaProduceRefused", REFUSED, "_x7 35x40", [2, 6.5], [1.5, 7, 9]),  # the first ones
    ("KafkaProduceRefused", REFUSED, "1x39 2x40", [1, 10, 14], [6, 9.5, 15]),  # and more
    ("KafkaProduceRefused", REFUSED, "9x39 stale _x3 2x40", [11, 15], [9, 10.5, 17]),  # a restart
    ("KafkaUncleanElection", UNCLEAN, "0x7 stale _x7 1x40", [4, 8], [1, 3, 10]),
    ("KafkaElectionFromElr", FROM_ELR, "0x7 3x40", [2, 6], [1, 8]),
    ("KafkaUnderReplicated", UNDER, "0x7 6x15 0x40", [], [2, 4, 6, 9]),  # a restart of 4 minutes
    ("KafkaUnderReplicated", UNDER, "0x7 6x40 0x40", [7, 12], [4, 6, 13]),
    ("KafkaPartitionOffline", OFFLINE, "0x7 1x4 0x9", [2, 3], [1, 4]),
    ("KafkaUnderMinIsr", MINIMUM, "0x7 1x4 0x9", [2, 3], [1, 4]),
    ("KafkaNoController", ACTIVE, "1x7 0x40", [4], [1, 2.5]),
    ("KafkaNoController", ACTIVE, "1x7 0x2 1x40", [], [2, 3, 5]),  # a failover
    ("KafkaMetricsMissing", UNDER + '{pod="2"}', "0x279 stale _x320", [77, 129], [69, 72, 131]),
]  # fmt: skip


@pytest.fixture(scope="module")
def promtool() -> str:
    return shutil.which("promtool") or pytest.skip("no promtool: on Debian, the package prometheus")


def check(
    tmp_path: Path, series: Mapping[str, str], fires: Mapping[float, Iterable[str]], without=""
) -> None:
    """Let promtool confirm which alerts fire at each time (in s), and no other of `NAMES`."""
    text = rules.as_yaml(300).partition("---\n")[2].replace(without or "\0", "")
    (tmp_path / "rules.yml").write_text(text)
    asked = [
        {"eval_time": f"{round(at_s)}s", "alertname": name,
         "exp_alerts": [{"exp_labels": {"severity": "page"}}] * (name in names)}
        for at_s, names in fires.items() for name in NAMES
    ]  # fmt: skip
    given = [{"series": name, "values": values} for name, values in series.items()]
    story = {"interval": "15s", "input_series": given, "alert_rule_test": asked}
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "15s", "tests": [story]}
    (tmp_path / "test.yml").write_text(json.dumps(tests))
    done = subprocess.run(["promtool", "test", "rules", "test.yml"], cwd=tmp_path,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert not done.returncode, done.stdout[:2000] + done.stderr[:2000]


def test_prometheus_reads_the_printed_rules(promtool, tmp_path):
    (tmp_path / "rules.yml").write_text(rules.as_yaml(315).partition("---\n")[2])
    subprocess.run([promtool, "check", "rules", tmp_path / "rules.yml"], check=True)
    assert "for: 315s" in (tmp_path / "rules.yml").read_text()
    assert {rule.alert for rule in rules.RULES if rule.pages} <= {*NAMES}


@pytest.mark.parametrize(("alert", "metric", "values", "on", "off"), STORIES)
def test_a_rule_fires_when_it_should(promtool, tmp_path, alert, metric, values, on, off):
    fires = {60 * m: [alert] for m in on} | {60 * m: [] for m in off}
    check(tmp_path, {**HEALTHY, metric: values}, fires)


def test_increase_alone_never_sees_the_first_refusals(promtool, tmp_path):
    text = (rules.ALERTS / "rules.yml").read_text()
    (began,) = re.findall(r" or\n +\(kafka_network[^)]+\)", text)
    check(tmp_path, {**HEALTHY, REFUSED: "_x7 35x40"}, {60 * m: [] for m in range(12)}, began)


@pytest.mark.parametrize("name", [*HEALTHY])
def test_a_metric_that_does_not_exist_is_reported(promtool, tmp_path, name):
    missing = ["KafkaMetricsMissing"] * (name != FROM_ELR)  # which is new in 4.1
    check(tmp_path, {k: v for k, v in HEALTHY.items() if k != name}, {120: [], 420: missing})


def test_every_recording_has_a_fault_but_a_planned_restart_and_an_undisturbed_cluster():
    paths = folder("3.9").parent.glob("incidents/*/truth.json")
    did = {path.parent.name: json.loads(path.read_text())["actions"] for path in paths}
    calm = {name for name in did if not any(rules.FAULT.search(a["what"]) for a in did[name])}
    assert calm == {"d-392-rolling-restart", "k-412-quiet-control"}


@pytest.mark.parametrize("name", ["incidents/241-power-failure", "incidents/332-controller-paused",
                                  "incidents/402-unclean", "kafka-3.9", "moved-282", "moved-392",
                                  "incidents/g-01022-follower-flapping"])  # fmt: skip
def test_a_recording_fires_in_promtool_what_the_table_says(promtool, tmp_path, name):
    """Each counter of refusals is there from the broker's first refusal on."""
    logs = read_local(folder("3.9").parent / name)
    record = Record(history_of(logs.events, logs.files).rows)
    base, held = record.start_ms // STEP_MS * STEP_MS, alerts.conditions(record, 2)
    times = range(base, record.end_ms + 360_000, STEP_MS)

    def counted(when: Iterable[int], first: str) -> str:
        return " ".join(str(sum(ms <= t for ms in when) or first) for t in times)

    series, refusals = dict(HEALTHY), dict[str, list[int]]()
    gauges = {UNDER: alerts.UNDER_REPLICATED, MINIMUM: alerts.UNDER_MIN_ISR,
              OFFLINE: alerts.OFFLINE}  # fmt: skip
    for metric, condition in gauges.items():
        is_held = (any(a <= t < b for a, b in held[condition]) for t in times)
        series[metric] = " ".join(str(int(each)) for each in is_held)
    for row in record.rows["produce_error"]:
        if "NOT_ENOUGH" in (error := row.detail.get("error", "")):
            own = ERRORS.replace("{", f'{{instance="{row.broker}",') % error
            refusals.setdefault(own, []).append(row.ts_ms)
    series |= {metric: counted(when, "_") for metric, when in refusals.items()}
    unclean = [row for row in record.rows["leader"] if row.detail.get("unclean")]
    unclean += record.said_of("unclean_election")
    series[UNCLEAN] = counted([row.ts_ms for row in unclean], "0")
    firing = {
        rule.alert: alerts.firings(held[rule.condition], 300_000 * rule.waits, STEP_MS)
        for rule in rules.RULES if rule.pages
    }  # fmt: skip
    edges = {ms for spans in firing.values() for span in spans for ms in span}
    asked = sorted({t for edge in edges for t in (edge - STEP_MS, edge) if t in times})
    assert asked
    check(tmp_path, series, {
        (t - base) / 1000: [n for n, spans in firing.items() if any(a <= t < b for a, b in spans)]
        for t in asked
    })  # fmt: skip


def test_real_brokers_fire_every_rule(promtool, tmp_path):
    """The printed exporter on two brokers: all is well; broker 2 is shut down and produces are
    refused; broker 1 is killed; broker 2 is back, elected from the ELR of t and uncleanly for u.
    Each state lasts for 28 scrapes; a node that is not scraped is stale."""
    cluster = pytest.importorskip("record.cluster", exc_type=ImportError)
    path = tmp_path / "exporter.yml"
    path.write_text(rules.as_yaml(300).partition("---\n")[0])
    try:
        jars.classpath(RELEASE, jars.broker)
        (agent,) = jars.classpath("exporter", lambda _: [EXPORTER])
    except jars.NoJarsError as error:
        pytest.skip(str(error))
    settings = {"broker.session.timeout.ms": 3_000, "broker.heartbeat.interval.ms": 500}
    features = {"eligible.leader.replicas.version": 1} if RELEASE > "4" else {}
    nodes = cluster.Cluster(RELEASE, (1, 2), settings, features=features)
    port = {number: nodes.base + 50 + number for number in (1, 2, 100)}
    nodes._java = {n: [f"-javaagent:{agent}=127.0.0.1:{port[n]}:{path}"] for n in port}
    seen: list[dict[str, str]] = []

    def scrape() -> None:
        seen.append({})
        for number in (*nodes.live(), 100):
            with urllib.request.urlopen(f"http://127.0.0.1:{port[number]}/metrics") as page:
                text = page.read().decode()
            for name, labels, value in re.findall(r"(?m)^(kafka\w+)(?:{(.+)})? (\S+)$", text):
                if name in {each.split("{")[0] for each in HEALTHY}:
                    seen[-1][f'{name}{{instance="{number}",{labels}}}'] = f"{float(value):g}x27"

    with nodes:
        nodes.start(1, 2)
        nodes.create("t", (1, 2), settings={"min.insync.replicas": 2})
        nodes.create("u", (1, 2), settings={"unclean.leader.election.enable": "true"})
        assert nodes.produce("t", "m1") + nodes.produce("u", "m1") == ["ok"] * 2
        scrape()
        voters = live.of_cluster(f"127.0.0.1:{nodes.base + 1}").quorum
        assert voters == quorum.of_voters([100], leader=100)
        nodes.shut_down(2)
        assert nodes.produce("t", "m2", "m3") == ["NOT_ENOUGH_REPLICAS"] * 2
        scrape()
        nodes.kill(1)
        nodes.until(lambda: nodes.stored("u").leader < 0 > nodes.stored("t").leader, "no leader")
        scrape()
        nodes.start(2)
        nodes.until(lambda: nodes.stored("u").leader == nodes.stored("t").leader == 2, "2 leads")
        scrape()
    series = {name: " ".join(moment.get(name, "stale _x27") for moment in seen)
              for name in sorted(set().union(*seen))}  # fmt: skip
    low = ["KafkaUnderMinIsr"]
    check(tmp_path, series, {
        60: [], 405: [], 435: [*low, "KafkaProduceRefused"], 780: [*low, "KafkaUnderReplicated"],
        900: ["KafkaPartitionOffline"], 1600: [*low, "KafkaUnderReplicated"],
        1290: [*low, "KafkaUncleanElection", "KafkaElectionFromElr"],
    })  # fmt: skip
