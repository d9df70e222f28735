"""Faults of a cluster, in the terms of Kafka's own system tests.

Each fault is a function of the cluster and its machines. A process that dies loses nothing it
wrote; a power failure loses what the operating system had not flushed. The controller notices a
dead, paused or unreachable broker when its session expires, not before.
"""

import dataclasses

from isrlab.engine import controller as controller_machine
from isrlab.engine import messages as m
from isrlab.engine import rules
from isrlab.engine.frozen import replace
from isrlab.engine.log import Log
from isrlab.world.cluster import Cluster
from isrlab.world.frames import Envelope, Fault


def clean_shutdown(cluster: Cluster, broker: int) -> None:
    """Let a broker move its leaderships, leave the ISRs, flush its logs and stop."""
    parts = cluster.topic.partitions[::-1]
    for each in parts:
        each.brokers[broker] = replace(each.brokers[broker], is_shutting_down=True)
        each.tell(broker, m.CONTROLLER, m.ControlledShutdown(broker))
    cluster.stabilize()
    for each in (each for each in parts if broker in each.brokers):  # else it has halted by now
        each.stop_process(broker, "clean_shutdown")
        each.disks[broker] = each.disks[broker].flush().checkpoint()
        each.clean.add(broker)
        each.reset_connections(broker)
        each.lose_session(broker, at_once=True)


def power_loss(cluster: Cluster, broker: int) -> None:
    """Cut a machine's power: unflushed records are gone, and no broker is notified.

    A controller dies with the brokers of its site and knows no broker when it returns.
    """
    if broker == m.CONTROLLER:
        _fail_over(cluster, ())
        return
    if broker in cluster.brokers:
        cluster.stop_process(broker, "power_loss")
        cluster.lose_session(broker)
    before = cluster.disks[broker].log_end_offset
    cluster.disks[broker] = cluster.disks[broker].after_power_loss()
    if cluster.disks[broker].log_end_offset < before:
        cluster.observer.disks_lost.add(broker)


def fail_directory(cluster: Cluster, broker: int) -> None:
    """Let the directory of a broker's replica fail. The broker lives on, with its others; at its
    next start the directory is repaired, with the log that it had, unless it was taken out.

    Left out: up to 0.11 the broker halts, and in KRaft up to 3.6 the controller is not told.
    Source: handleLogDirFailure, ReplicaManager.scala 3.7.1; offlineLogDirs of BrokerHeartbeat.
    """
    live = cluster.brokers[broker]
    cluster.failed[broker], cluster.disks[broker] = live.log, Log()
    cluster.brokers[broker] = replace(live, role=None, log=Log(), is_offline=True)
    cluster.mark(broker, "loses the directory of its replica")
    cluster.observer.note("failed", broker, replica=broker)
    cluster.reset_connections(broker)
    cluster.tell(broker, m.CONTROLLER, m.OfflineDirectory(broker))


def remove_directory(cluster: Cluster, broker: int) -> None:
    """Take the directory of a dead broker's replica out of log.dirs."""
    cluster.failed[broker], cluster.disks[broker] = None, Log()
    cluster.observer.disks_lost.add(broker)
    cluster.mark(broker, "no longer has the directory in log.dirs")


def start(cluster: Cluster, broker: int) -> None:
    """Start a broker on its disk; it registers with the controller."""
    is_moved = broker in cluster.failed and cluster.failed[broker] is None
    repaired = cluster.failed.pop(broker, None)
    was_clean = rules.proves_clean_shutdown(broker in cluster.clean, repaired is not None)
    cluster.disks[broker] = repaired or cluster.disks[broker]
    if not cluster.is_cut(broker, m.CONTROLLER):
        cluster.out_of_reach.pop(broker, None)
    cluster.start_process(broker)
    cluster.mark(broker, "starts")
    cluster.reset_connections(broker)
    process = cluster.epochs[broker]
    register = m.RegisterBroker(broker, process, was_clean, is_moved=is_moved)
    cluster.tell(broker, m.CONTROLLER, register)


def hard_bounce(cluster: Cluster, broker: int) -> None:
    """Kill a process and restart it before the controller can notice.

    A controller fails over; in KRaft that has no effect: the metadata log names the brokers.
    """
    if broker != m.CONTROLLER:
        cluster.kill(broker)
        start(cluster, broker)
    elif not cluster.version.kraft:
        known = cluster.controller.alive
        _fail_over(cluster, tuple(b for b in known if b.id not in cluster.out_of_reach))


def clean_bounce(cluster: Cluster, broker: int) -> None:
    clean_shutdown(cluster, broker)
    for each in reversed(cluster.topic.partitions):
        start(each, broker)


def pause(cluster: Cluster, broker: int, what: str = "process") -> None:
    """Pause the whole process (SIGSTOP), or only its fetcher, while its session continues."""
    cluster.paused[broker] = what
    cluster.mark(broker, f"{what} pauses")
    if what == "process":
        cluster.lose_session(broker)


def resume(cluster: Cluster, broker: int) -> None:
    """Continue a paused process or fetcher, which handles queued messages in order of arrival."""
    what = cluster.paused.pop(broker)
    cluster.mark(broker, f"{what} goes on")
    held = [e for e in cluster.held if e.target == broker]
    cluster.held = [e for e in cluster.held if e.target != broker]
    for envelope in held:
        cluster.post(replace(envelope, due_ms=cluster.now_ms))
    if what == "process":
        _return(cluster, broker)


def network_partition(cluster: Cluster, machine: int, other: int) -> None:
    """Let no message pass between two machines. `other` may be the controller."""
    cluster.cuts.add(frozenset((machine, other)))
    cluster.mark(machine, f"is cut off from {other or 'the controller'}")
    if m.CONTROLLER in (machine, other):
        cluster.lose_session(machine or other)


def refuse(cluster: Cluster, request: Envelope) -> None:
    """Let the controller fail to store an ISR change, and answer with a retriable error."""
    if not isinstance(request.message, m.AlterPartition):
        raise ValueError(f"the next message there is {type(request.message).__name__}; only an "
                         "AlterPartition can be refused")  # fmt: skip
    cluster.queue.remove(request)
    cluster.mark(m.CONTROLLER, "cannot store an ISR change")
    answer = m.AlterPartitionResponse(request.message.request, error="UNKNOWN_SERVER_ERROR")
    cluster.emit(m.CONTROLLER, (m.Send(request.source, answer),))


def heal(cluster: Cluster, machine: int, other: int) -> None:
    """Let messages pass again. Unanswered requests are sent again."""
    cluster.cuts.discard(frozenset((machine, other)))
    cluster.mark(machine, f"reaches {other or 'the controller'} again")
    if m.CONTROLLER in (machine, other):
        _return(cluster, machine or other)
    else:
        for broker in sorted((machine, other)):
            cluster.reset_connections(broker)


def degraded_network(cluster: Cluster, machine: int, other: int, latency_ms: int) -> None:
    """Let messages between two machines take this long, each way."""
    cluster.latencies[frozenset((machine, other))] = latency_ms


def flush(cluster: Cluster, broker: int) -> None:
    """Write the log's dirty pages back to disk, as the operating system does."""
    if (live := cluster.brokers.get(broker)) is not None:
        cluster.brokers[broker] = replace(live, log=live.log.flush())
    cluster.disks[broker] = cluster.disks[broker].flush()


def elect(cluster: Cluster, kind: str = "") -> None:
    """The controller now notices every broker that it cannot reach, as if its session had expired;
    then, if a `kind` is given ("preferred" or "unclean"), an operator asks for an election of this
    partition. A session is that of a broker: it ends for all partitions."""
    parts = cluster.topic.partitions[::-1]
    for broker in sorted({broker for each in parts for broker in each.out_of_reach}):
        for each in parts:
            each.lose_session(broker, at_once=True)
    if kind:
        cluster.tell(m.CONTROLLER, m.CONTROLLER, m.ElectLeaders(kind))


def reassign(cluster: Cluster, target: tuple[int, ...] | str) -> None:
    """Move the partition as an operator; "cancel" takes that back."""
    wanted = target if isinstance(target, tuple) else None
    add_brokers(cluster, wanted or ())
    cluster.tell(m.CONTROLLER, m.CONTROLLER, m.AlterPartitionReassignments(wanted))


def add_brokers(cluster: Cluster, brokers: tuple[int, ...]) -> None:
    """Each of these brokers that the cluster does not have yet joins it, with an empty disk."""
    for each in reversed(cluster.topic.partitions):
        for broker in (b for b in brokers if b not in each.disks):
            each.replicas = (*each.replicas, broker)
            each.disks[broker], each.epochs[broker] = Log(), 0
            start(each, broker)


def configure(cluster: Cluster, level: str, settings: dict[str, int]) -> None:
    """An operator sets min.insync.replicas of the "topic", or of the "cluster" for topics that have
    none of their own. The controller uses it from now on; a broker, once the news reaches it."""
    wanted = settings.get("min.insync.replicas", cluster.settings.min_insync_replicas)
    cluster.settings = dataclasses.replace(cluster.settings, min_insync_replicas=wanted)
    cluster.tell(m.CONTROLLER, m.CONTROLLER, m.IncrementalAlterConfigs(wanted, level == "cluster"))
    for waiting in list(cluster.queue):  # without a delay the news arrives immediately
        if isinstance(waiting.message, m.UpdateMetadata) and waiting.due_ms <= cluster.now_ms:
            cluster.deliver(waiting)


def recreate(cluster: Cluster, settings: dict[str, int]) -> None:
    """An operator deletes the topic, which had these settings, and creates it again without them,
    with the same replicas. Raises ValueError unless all brokers take part."""
    if cluster.paused or cluster.cuts or set(cluster.brokers) != set(cluster.replicas):
        raise ValueError("a broker of the topic is down, paused or cut off")
    cluster.stabilize()
    cluster.observer.committed.clear()
    cluster.observer.acknowledged.clear()
    deleted = m.RecreateTopic(settings.get("retention.ms"))
    cluster.tell(m.CONTROLLER, m.CONTROLLER, deleted)
    cluster.stabilize()


def _fail_over(cluster: Cluster, live: tuple[m.BrokerInfo, ...]) -> None:
    step = controller_machine.fail_over(cluster.controller, live)
    fault = Envelope(cluster.now_ms, m.CONTROLLER, m.CONTROLLER, Fault("fails over"))
    cluster.use_controller(step, fault)


def _return(cluster: Cluster, broker: int) -> None:
    """The controller reaches the broker again and repeats its orders; if the broker's session has
    expired, the broker registers again."""
    is_silent = broker not in cluster.brokers or cluster.paused.get(broker) == "process"
    if is_silent or cluster.is_cut(broker, m.CONTROLLER):
        return
    cluster.out_of_reach.pop(broker, None)
    if cluster.brokers[broker].is_offline:  # each heartbeat reports it
        cluster.tell(broker, m.CONTROLLER, m.OfflineDirectory(broker))
    if cluster.controller.is_alive(broker):
        cluster.emit(m.CONTROLLER, controller_machine.orders_for(cluster.controller, broker))
    else:
        again = m.RegisterBroker(broker, cluster.epochs[broker], is_known=True)
        cluster.tell(broker, m.CONTROLLER, again)
