"""min.insync.replicas is raised while the leader reads no metadata, on real brokers: ten topics.

python -m record.raised 4.3.1          in the folder packages/proof; --open is the control

An agent (Gate.java) holds back the metadata log at broker 1, the leader; nothing else of Kafka is
changed.

1. All replicas have m0. The gate is closed, and min.insync.replicas is raised from 1 to 2.
2. Brokers 2 and 3 are paused, and m1 is written. The ISR becomes 1: broker 1 evicts the others
   and gets the controller's answer or, with --fenced, the controller fences them, and broker 1
   reads that change together with the new minimum when the gate is opened.
3. Broker 1 is killed, and brokers 2 and 3 resume. They are in the ELR, without m1.
"""

from __future__ import annotations

import time

import click
from confluent_kafka.admin import ResourceType

from record import config
from record.cluster import Cluster
from record.many import Group, Many, report
from record.reassigned import ELR

SETTINGS = {"replica.lag.time.max.ms": "6000", "broker.session.timeout.ms": "40000"}
FENCED = {"replica.lag.time.max.ms": "90000", "broker.session.timeout.ms": "9000"}


def play(many: Many, group: Group, *, is_gated: bool, is_fenced: bool) -> None:
    cluster, every = many.cluster, [group]
    gate = cluster.folder / "gate"
    many.create(group)
    many.until(every, lambda s: len(s.isr) == 3, "all are in sync")
    time.sleep(6)  # until every broker knows of it
    many.produce(every, 1)
    if is_gated:
        gate.touch()
        many.note("the gate is closed")
    if is_fenced:  # the agent holds back the change that comes first: the others form the next one
        many.configure(ResourceType.TOPIC, group.topics, "retention.ms", "86400000")
        time.sleep(2)
    many.configure(ResourceType.TOPIC, group.topics, "min.insync.replicas", "2")
    time.sleep(2)
    cluster.pause(2)
    cluster.pause(3)
    producers = many.send(every, 1, 10)
    many.until(every, lambda s: s.isr == (1,), "the ISR is 1", 40)
    if is_fenced:
        gate.unlink(missing_ok=True)
        many.note("the gate is open")
    for producer in producers:
        producer.flush(2)
    count = sum("00001" in names for names in many.acknowledged.values())
    many.note(f"acknowledged in {count} of {len(group.topics)}: m1")
    many.look("before the failure", every)
    cluster.kill(1)
    gate.unlink(missing_ok=True)
    cluster.resume(2)
    cluster.resume(3)
    many.until(every, lambda s: s.leader not in (1, -1), "broker 1 leads no more", 90)
    many.look("broker 1 is dead", every)
    cluster.start(1)
    many.until(every, lambda s: len(s.isr) == 3, "all are in sync again", 60)
    many.look("all are back", every)
    many.finish(every)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("release")
@click.option("--tries", default=10, show_default=True)
@click.option("--open", "is_open", is_flag=True, help="Never close the gate.")
@click.option("--fenced", is_flag=True, help="The controller fences the followers.")
@click.option("--elr", default=1, show_default=True, help="0: without eligible leader replicas.")
@click.option("--store", is_flag=True, help="Keep it in data/recordings/eligible.")
def main(
    release: str, tries: int, is_open: bool, fenced: bool, elr: int, store: bool
) -> None:  # fmt: skip
    """Raise min.insync.replicas while the leader reads no metadata, on a release such as 4.3.1."""
    name = "raised" + "-fenced" * fenced + "-open" * is_open
    settings, java = FENCED if fenced else SETTINGS, dict[int, list[str]]()
    features = {} if elr else {ELR: 0}  # by default as the release formats a cluster
    with Cluster(release, (1, 2, 3), settings, java=java, features=features) as cluster:
        java[1] = [f"-javaagent:{config.agent(release)}={cluster.folder / 'gate'}"]
        cluster.start(1, 2, 3)
        many = Many(cluster, is_apart=True)
        group = Group(name, (1, 2, 3), tries, min_isr=1)
        play(many, group, is_gated=not is_open, is_fenced=fenced)
        made = many.run(settings, elr)
    report(made, f"{release}-elr{elr}-{name}", is_stored=store)


if __name__ == "__main__":
    main()
