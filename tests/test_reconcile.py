"""What broker logs prove: small logs that were read wrongly once, and nine recorded incidents."""

from __future__ import annotations

from cases.logs import isrs, prove, story, under_replicated_ms

P = "[Partition t-0 broker={}] "
C = "(kafka.cluster.Partition)"


def shrink(broker, before, isr):
    """The line of a leader of 2.8 that asks for a smaller ISR."""
    gone = next(r for r in before.split(",") if r not in isr.split(","))
    ends = f"Leader: (highWatermark: 90, endOffset: 95). Out of sync replicas: (brokerId: {gone}, "
    return f"INFO {P.format(broker)}Shrinking ISR from {before} to {isr}. {ends}endOffset: 90). {C}"


def commit(broker, isr, version):
    """The line of a leader of 2.8 that has stored an ISR."""
    return f"INFO {P.format(broker)}ISR updated to {isr} and version updated to [{version}] {C}"


def controllers(isr, version, leader_asked=True):
    """The DEBUG line of a controller of 2.8 that has stored what a leader asked for."""
    text = f"ISR for partition t-0 updated to [{isr}] and zkVersion updated to [{version}]"
    return f"DEBUG [Controller id=9] {text} (kafka.controller.KafkaController)"


def leads(broker, isr, epoch, role="Leader"):
    """The line of a broker of 2.8 that becomes leader."""
    tail = f"ISR [{isr}] addingReplicas [] removingReplicas []. Previous leader epoch was -1."
    text = f"Leader t-0 starts at leader epoch {epoch} from offset 0 with high watermark 0 {tail}"
    return f"INFO [Broker id={broker}] {text} (state.change.logger)"


def test_L1_a_shrink_without_a_return_is_under_replicated_to_the_end(tmp_path):
    logs = {
        "server.log": f"""
            08:00:00,000 {shrink(1, "1,2,3", "1,2")}
            08:00:00,020 {commit(1, "1,2", 5)}
            08:04:00,020 INFO [KafkaServer id=1] started (kafka.server.KafkaServer)
        """
    }
    evidence = prove(tmp_path, logs)
    assert isrs(evidence)[-2:] == ["1,2,3", "1,2"]
    assert under_replicated_ms(evidence) == 240_000


def test_L2_the_controller_that_stores_it_earlier_does_not_win_over_who_asked(tmp_path):
    logs = {
        "b1/server.log": f"""
            08:00:00,000 {shrink(1, "1,2,3", "1,2")}
            08:00:00,020 {commit(1, "1,2", 1)}
            08:00:09,020 {commit(1, "1,2,3", 2)}
        """,
        "b1/state-change.log": f"07:00:00,000 {leads(1, '1,2,3', 0)}",
        "b9/controller.log": f"""
            08:00:00,010 {controllers("1,2", 1)}
            08:00:09,010 {controllers("1,2,3", 2)}
        """,
    }
    assert story(prove(tmp_path, logs)) == [
        (25_200.0, ([1, 2, 3], "controller", 1)),
        (28_800.01, ([1, 2], "leader", 1)),
        (28_809.01, ([1, 2, 3], "leader", 1)),
    ]


def test_L6_versions_outrank_clocks(tmp_path):
    """The new leader's clock is 15 s behind."""
    logs = {
        "b1/server.log": f"""
            08:00:00,000 {commit(1, "1,2,3", 5)}
            08:10:00,000 {shrink(1, "1,2,3", "1,2")}
            08:10:00,010 {commit(1, "1,2", 6)}
        """,
        "b2/server.log": f"""
            08:09:55,000 {commit(2, "2,1,3", 7)}
        """,
    }
    evidence = prove(tmp_path, logs)
    assert isrs(evidence)[-3:] == ["1,2,3", "1,2", "1,2,3"]
    behind = {row["broker"]: row for row in evidence.clocks.to_pylist()}[2]
    assert behind["ahead_ms"] <= -5_000
    assert behind["is_bound"]
