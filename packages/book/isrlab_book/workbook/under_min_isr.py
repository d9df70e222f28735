"""Under min ISR: which changes of min.insync.replicas clear the eligible leader replicas, and a
failover and failback of a cluster in two sites, without its controllers.
"""

from isrlab.world import scenario

ALONE = """
partition leader=1 replicas=1,2,3 min.insync.replicas=2
produce 1 m1 acks=all
stabilize
advance 6s
cut 1 2
cut 1 3
produce 1 m2 acks=all
advance 50s
{change}
advance 1s
power_loss 1
elect
heal 1 2
heal 1 3
start 1
stabilize
advance 5s
"""
CHANGES = {  # of a topic whose minimum is 2 and whose ISR is broker 1
    "nothing": "",
    "the topic's value is set again": "configure topic min.insync.replicas=2",
    "the topic's value is raised to 3": "configure topic min.insync.replicas=3",
    "the topic's value is lowered to 1": "configure topic min.insync.replicas=1",
    "the cluster's value is set again": "configure cluster min.insync.replicas=2",
}
# Brokers 1 and 2 are in site A, brokers 3 and 4 in site B.
STRETCHED = """
# Two brokers in each site, and a minimum of three: each acknowledged record is in both sites.
partition leader=1 replicas=1,2,3,4 min.insync.replicas={least}
produce 1 m1 acks=all
stabilize
----

# Site A loses power. Broker 3 leads, and refuses m2.
power_loss 1
power_loss 2
elect
advance 1s
produce 3 m2 acks=all
advance 1s
----

# The operator lowers the minimum to 2: site B alone accepts m3.
configure topic min.insync.replicas=2
produce 3 m3 acks=all
advance 1s
----

# Failback: site A is back and has caught up, the minimum is raised again, broker 1 leads.
start 1
start 2
stabilize
advance 5s
configure topic min.insync.replicas={least}
elect preferred
stabilize
----
"""


def changes(version: str) -> list[dict[str, str]]:
    """The effect of each change while a leader is alone in the ISR and its followers are eligible,
    and of a loss of its power afterwards."""
    rows = []
    for name, change in CHANGES.items():
        text = ALONE.format(change=change)
        before = scenario.play(text.partition("power_loss")[0], version=version).cluster
        elr = ", ".join(map(str, before.controller.state.elr)) or "none"
        rows.append({
            "change": name, "elr afterwards": elr,
            "then the leader loses power": scenario.play(text, version=version).outcome.word,
        })  # fmt: skip
    return rows


def finding(version: str) -> str:
    """Which changes lose a record."""
    rows = changes(version)
    lost = [row["change"] for row in rows if row["then the leader loses power"] == "lost"]
    return (
        f"In {version}, {len(lost)} of {len(rows)} changes under min ISR lose an acknowledged "
        f"record if the leader then loses power ({'; '.join(lost)})."
    )
