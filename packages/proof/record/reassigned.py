"""The losses after a reassignment (data/upstream/elr) on real brokers, ten tries each.

python -m record.reassigned 4.3.1 --elr 0        in the folder packages/proof

Two clusters. On one, brokers 1, 2, 3: topics of two partitions, the second of which is moved from
[1, 2, 3] to [1] and back, before broker 1 is killed while brokers 2 and 3 still copy.

    A            the schedule
    A-topic      min.insync.replicas of the topic is set again before the failure, to the same value
    A-changed    it is set to another value, and back
    A-together   both partitions are moved in one request, there and back
    B            both are moved there in one request, and back one after the other
    A-cluster    min.insync.replicas of the cluster is set again before the failure
    A-feature    eligible.leader.replicas.version=0 is set before the failure

On the other, brokers 1 to 4: brokers 2 and 3 are killed, broker 4 last.

    C            [1, 2, 3] is moved to [4, 2, 3] and back to [1, 2, 3]
    G            [4, 3] to [2, 1], cancelled when broker 1 is in sync; then [4, 3] to [4, 1]
    C-topic, G-topic   min.insync.replicas of the topic is set again before the last failure
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import click
from confluent_kafka.admin import ResourceType

from isrlab_ops.recordings.reassigned import ClusterRun
from record.cluster import Cluster
from record.many import FREE, SLOW, Group, Many, report

MIN_ISR, ELR = "min.insync.replicas", "eligible.leader.replicas.version"
THROTTLED = "follower.replication.throttled.replicas"
RECORDS = 30
COPY_S = 4  # how long the followers copy before the failure


def grown(many: Many, *names: str, tries: int) -> None:
    """Play variants A and B: down to one replica, back to three, then the only full copy fails."""
    groups = {name: Group(name, (1, 2, 3), tries, partitions=2) for name in names}
    every = list(groups.values())
    both = [groups[name] for name in ("A-together", "B") if name in groups]
    single = [group for group in every if group not in both]
    begin(many, every)
    many.throttle(SLOW)
    many.reassign({"1": "1"}, single)
    if both:
        many.reassign({"0": "1", "1": "1"}, both)
    many.until(every, lambda s: s.replicas == (1,), "one replica")
    time.sleep(2)
    many.look("one replica", every)
    many.reassign({"1": "1,2,3"}, single)
    for group in both:
        if group.name == "B":
            many.reassign({"0": "1,2,3"}, [group])
            many.reassign({"1": "1,2,3"}, [group])
        else:
            many.reassign({"0": "1,2,3", "1": "1,2,3"}, [group])
    help_with(many, every)
    time.sleep(COPY_S)
    many.look("copying", every)
    many.cluster.kill(1)
    many.until(every, lambda s: s.leader != 1, "broker 1 leads no more", 40)
    many.look("broker 1 is dead", every)
    end(many, every, 1)


def drained(many: Many, *names: str, tries: int) -> None:
    """Play variants C and G, with two brokers dead and the last copy on broker 4."""
    every = [Group(name, (1, 2, 3) if name[0] == "C" else (4, 3), tries) for name in names]
    drain, cancel = ([g for g in every if g.name[0] == letter] for letter in "CG")
    begin(many, every)
    many.cluster.kill(3, 2)
    many.until(every, lambda s: len(s.isr) == 1, "only the leader is in sync")
    many.look("brokers 2 and 3 are dead", every)
    many.reassign({"0": "4,2,3"}, drain)
    many.reassign({"0": "2,1"}, cancel)
    many.until(drain, lambda s: 4 in s.isr, "broker 4 is in sync", 40)
    many.until(cancel, lambda s: 1 in s.isr, "broker 1 is in sync", 40)
    time.sleep(2)
    many.look("moved", every)
    many.throttle(SLOW)
    many.reassign({"0": "cancel"}, cancel)
    many.until(cancel, lambda s: set(s.replicas) == {3, 4}, "cancelled", 30)
    time.sleep(2)
    many.look("cancelled", cancel)
    many.reassign({"0": "1,2,3"}, drain)
    many.reassign({"0": "4,1"}, cancel)
    help_with(many, every)
    time.sleep(COPY_S)
    many.look("copying", every)
    many.cluster.kill(4)
    many.until(every, lambda s: 4 not in s.isr or s.leader == -1, "broker 4 is fenced", 40)
    many.look("broker 4 is dead", every)
    end(many, every, *({2, 3, 4} - set(many.cluster.live())))


def begin(many: Many, groups: Sequence[Group]) -> None:
    many.create(*groups)
    many.until(groups, lambda s: s.leader > 0, "each partition has its leader")
    many.produce(groups, RECORDS)
    many.look("healthy", groups)


def help_with(many: Many, groups: Sequence[Group]) -> None:
    """Apply each group's measure against the loss, before the failure."""
    for group in groups:
        if group.name.endswith("-topic"):
            many.configure(ResourceType.TOPIC, group.topics, MIN_ISR, str(group.min_isr))
        elif group.name.endswith("-changed"):
            for value in (3, group.min_isr):
                many.configure(ResourceType.TOPIC, group.topics, MIN_ISR, str(value))
        elif group.name.endswith("-cluster"):
            asked = f"{MIN_ISR}={group.min_isr}"
            many.note(f"{asked} of the cluster: {many.cluster.ask('config', asked)}")
        elif group.name.endswith("-feature"):
            many.note(f"{ELR}=0: {many.cluster.ask('feature', f'{ELR}=0')}")
        elif group.name.endswith("-undone"):
            many.reassign({str(group.watched): "cancel"}, [group])
        elif group.name.endswith("-finished"):
            many.configure(ResourceType.TOPIC, group.topics, THROTTLED, "")
            many.until([group], lambda s: len(s.isr) > 1, "a new replica is in sync", 30)
            time.sleep(3)
        elif group.name.endswith("-started"):
            for number in tuple(many.cluster.paused):
                many.cluster.resume(number)
            many.cluster.start(*({2, 3} - {*many.cluster.live()}))
            many.until([group], lambda s: len(s.isr) > 1, "another replica is in sync", 60)


def end(many: Many, groups: Sequence[Group], *numbers: int) -> None:
    """Bring all brokers back, and let them copy as fast as they can."""
    many.throttle(FREE)
    many.cluster.start(*numbers)
    many.throttle(FREE)
    many.until(groups, lambda s: s.leader > 0 and set(s.isr) == set(s.replicas),
               "in sync again", 60)  # fmt: skip
    many.look("all are back", groups)
    many.finish(groups)


def session(release: str, elr: int, tries: int, which: str, is_brief: bool) -> ClusterRun:
    """Play all variants of one cluster; `is_brief`: without A-cluster and A-feature."""
    brokers = (1, 2, 3) if which == "A" else (1, 2, 3, 4)
    settings = {MIN_ISR: "2", "replica.fetch.response.max.bytes": "1000000"}
    features = {} if elr else {ELR: 0}  # by default as the release formats a cluster
    with Cluster(release, brokers, settings, features=features) as cluster:
        cluster.start(*brokers)
        many = Many(cluster)
        if which == "A" and elr:
            grown(many, "A", "A-topic", "A-changed", "A-together", "B", tries=tries)
            for name in () if is_brief else ("A-cluster", "A-feature"):
                grown(many, name, tries=tries)
        elif which == "A":
            grown(many, "A", "A-together", "B", tries=tries)
        else:
            drained(many, *(("C", "C-topic", "G", "G-topic") if elr else "CG"), tries=tries)
        return many.run(settings, elr)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("release")
@click.option("--elr", default=1, show_default=True, help="0: without eligible leader replicas.")
@click.option("--tries", default=10, show_default=True)
@click.option("--only", type=click.Choice(["A", "C"]), help="The cluster of A, or that of C and G.")
@click.option("--brief", is_flag=True, help="Without A-cluster and A-feature.")
@click.option("--store", is_flag=True, help="Store the recording in data/recordings/eligible.")
def main(release: str, elr: int, tries: int, only: str | None, brief: bool, store: bool) -> None:
    """Play the variants on real brokers of a release, such as 4.3.1."""
    for which in [only] if only else ["A", "C"]:
        made = session(release, elr, tries, which, brief)
        report(made, f"{release}-elr{elr}-{which}", is_stored=store)


if __name__ == "__main__":
    main()
