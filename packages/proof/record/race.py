"""The race of data/upstream/race on real brokers: ten topics, one cluster.

python -m record.race 4.3.1            in packages/proof; --open and --repaired are the controls

An agent (Gate.java) delays records of the metadata log at broker 1, and signals pause the
controller; nothing else of Kafka is changed. Broker 2 asks for at least 150 kB, so that a small
record does not complete its fetch.

1. Broker 2 is paused, m0 is written, broker 1 removes broker 2 from the ISR and gets the answer.
   The gate is closed: broker 1 does not read that change from the metadata log.
2. The controller is paused. Broker 2 returns, copies m0 and is at the high watermark: broker 1 asks
   for the ISR 1,2,3, and gets no answer yet. m1 is written and broker 3 copies it; it is not
   acknowledged, because broker 2 does not have it yet.
3. The gate is opened: broker 1 reads the ISR 1,3 with the partition epoch that it already has.
4. The controller resumes, and stores 1,2,3. Broker 1 is killed before broker 2 has m1.
"""

from __future__ import annotations

import time

import click

from record import config
from record.cluster import Cluster
from record.many import Group, Many, report

SETTINGS = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "15000",
            "broker.session.timeout.ms": "60000"}  # fmt: skip
SECOND = {"replica.fetch.min.bytes": "150000", "replica.fetch.wait.max.ms": "60000",
          "replica.lag.time.max.ms": "60000", "replica.socket.timeout.ms": "90000"}  # fmt: skip


def play(many: Many, group: Group, *, is_gated: bool) -> None:
    cluster, every = many.cluster, [group]
    gate = cluster.folder / "gate"
    many.create(group)
    many.until(every, lambda s: len(s.isr) == 3, "all are in sync")
    time.sleep(6)  # until every broker knows of it
    cluster.pause(2)
    (producer,) = many.send(every, 0, 200_000)
    if is_gated:
        gate.touch()
        many.note("the gate is closed")
    many.until(every, lambda s: set(s.isr) == {1, 3}, "the ISR is 1,3")
    producer.flush(20)
    acknowledged(many, "m0")
    time.sleep(10)
    cluster.pause(config.CONTROLLER)
    cluster.resume(2)
    copied(many, group)
    time.sleep(1)  # until broker 2 fetches at the high watermark
    many.send(every, 1, 10)[0].flush(2)
    acknowledged(many, "m1, before the gate is opened")
    gate.unlink(missing_ok=True)
    many.note("the gate is open")
    producer.flush(10)
    acknowledged(many, "m1, after the gate is opened")
    cluster.resume(config.CONTROLLER)
    many.until(every, lambda s: set(s.isr) == {1, 2, 3}, "the ISR is 1,2,3", 5)
    many.look("before the failure", every)
    cluster.kill(1)
    many.until(every, lambda s: s.leader not in (1, -1), "broker 1 leads no more", 90)
    many.look("broker 1 is dead", every)
    cluster.start(1)
    many.until(every, lambda s: len(s.isr) == 3, "all are in sync again", 60)
    many.look("all are back", every)
    many.finish(every)


def acknowledged(many: Many, text: str) -> None:
    number = "00000" if text == "m0" else "00001"
    count = sum(number in names for names in many.acknowledged.values())
    many.note(f"acknowledged in {count} of {len(many.acknowledged)}: {text}")


def copied(many: Many, group: Group) -> None:
    """Wait until broker 2 has m0 of each topic."""
    many.cluster.until(
        lambda: all(many.cluster.disk(2, topic, 0).records for topic in group.topics),
        "broker 2 has m0",
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("release")
@click.option("--tries", default=10, show_default=True)
@click.option("--open", "is_open", is_flag=True, help="Never close the gate.")
@click.option("--repaired", is_flag=True, help="With the least repair (4.3 and later).")
@click.option("--store", is_flag=True, help="Keep it in data/recordings/eligible.")
def main(release: str, tries: int, is_open: bool, repaired: bool, store: bool) -> None:
    """Play the race on real brokers of a release, such as 4.3.1."""
    name = "race" + "-open" * is_open + "-repaired" * repaired
    java: dict[int, list[str]] = {}
    with Cluster(release, (1, 2, 3), SETTINGS, own={2: SECOND}, java=java) as cluster:
        what = f"{cluster.folder / 'gate'}" + ",repaired" * repaired
        java[1] = [f"-javaagent:{config.agent(release)}={what}"]
        cluster.start(1, 2, 3)
        many = Many(cluster)
        play(many, Group(name, (1, 2, 3), tries), is_gated=not is_open)
        made = many.run(SETTINGS)
    report(made, f"{release}-{name}", is_stored=store)


if __name__ == "__main__":
    main()
