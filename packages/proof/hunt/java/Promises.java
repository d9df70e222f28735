package org.apache.kafka.controller;

import java.util.*;
import java.util.function.Predicate;
import java.util.stream.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.*;

/** The checks of the promises. */
final class Promises {
    private static final int[] NONE = {};
    private static final String THEIRS = "(org\\.apache\\.)?kafka\\..*";
    private static final String OURS = Late.class.getPackageName() + "\\.(Hunt|Op|Late|Real|Node|World|Kafka)\\b.*";
    private final World w;

    Promises(World world) { w = world; }

    /** An error and its origin, without numbers, so that all schedules with it name it alike. */
    static String named(Throwable e) {
        String text = Objects.toString(e.getMessage(), "").replaceAll("\\b[\\w-]{22}\\b", "ID")
            .replaceAll("[0-9]+", "N").replaceAll("\\s+", " ");
        return e.getClass().getSimpleName() + ": " + text.substring(0, Math.min(90, text.length()))
            + " in " + frame(e);
    }

    private static String frame(Throwable e) {
        return Arrays.stream(e.getStackTrace())
            .filter(at -> at.getClassName().matches(THEIRS) && !at.getClassName().matches(OURS)).findFirst()
            .map(at -> at.getClassName().replaceFirst(".*\\.", "") + "." + at.getMethodName()).orElse("?");
    }

    static boolean isReplay(Throwable e) {
        return Arrays.stream(e.getStackTrace()).anyMatch(at ->
            at.getClassName().equals(Kafka.class.getName()) && at.getMethodName().equals("write"));
    }

    void check() {
        for (World.Slot slot : w.live) {
            partition(slot);
            slot.previous = slot.state;
        }
        for (String part : w.kafka.unlike) w.broken(Promise.SAME_IMAGE, part);
        indices();
    }

    /** The last known leader may be elected while ELR is on; always, if a repair added this method. */
    private boolean knowsLastLeader(PartitionRegistration state) {
        boolean isElected = w.kafka.isElr() || Late.has(PartitionChangeBuilder.class, "electsLastKnownWhileOff");
        return isElected && Arrays.stream(Late.field(state, "lastKnownElr", NONE)).anyMatch(b -> b >= 0);
    }

    private void partition(World.Slot slot) {
        PartitionRegistration state = slot.state;
        int[] elr = slot.elr;
        if (state.leader >= 0) leader(slot);
        else if (canLead(slot)) w.broken(Promise.LEADER_COMES, "");
        else if (state.isr.length + elr.length == 0 && !knowsLastLeader(state)) {
            w.broken(Promise.ONE_ELIGIBLE, w.kafka.isElr() ? "" : "while ELR is off");
        }
        boolean isElr = w.kafka.isElr();
        if (state.leader >= 0 || isElr && !Arrays.equals(state.isr, slot.kept)) slot.kept = null;
        else if (!isElr) slot.kept = state.isr;
        boolean isActive = state.isr.length > 1 || isElr && slot.kept == null; // each member has to be
        for (int b : state.isr) {
            if (!World.holds(state.replicas, b)) w.broken(Promise.ISR_OF_REPLICAS, "");
            if (World.holds(elr, b)) w.broken(Promise.ISR_OR_ELR, "");
            if (!w.kafka.brokers().containsKey(b)) {
                if (isActive) w.broken(Promise.ELR_REGISTERED, "ISR");
            } else if (isActive && !w.kafka.cluster.isActive(b)) w.broken(Promise.ISR_ACTIVE, "");
            if (isStale(slot, b)) w.broken(Promise.ISR_HAS_ALL, "");
        }
        for (int b : elr) {
            if (!World.holds(state.replicas, b)) w.broken(Promise.ELR_OF_REPLICAS, "");
            if (!w.kafka.brokers().containsKey(b)) w.broken(Promise.ELR_REGISTERED, "ELR");
            else if (isStale(slot, b)) w.broken(Promise.ELR_HAS_ALL, "");
        }
        minIsr(slot, elr);
        epochs(slot.previous, state);
        Object image = w.kafka.image.topics().getPartition(w.ids[slot.t], slot.p);
        if (!state.equals(image)) {
            w.broken(Promise.IMAGE_AGREES, differing(state, (PartitionRegistration) image));
        }
        PartitionRegistration known = w.kafka.broker.image.topics().getPartition(w.ids[slot.t], slot.p);
        String unlike = differing(state, known);
        if (unlike.matches(".*(gone|Epoch|leader\\b|isr).*")) w.broken(Promise.EPOCHS_AGREE, unlike);
    }

    /** Whether a replica lacks acknowledged records; after a power failure, once its broker runs again. */
    private boolean isStale(World.Slot slot, int b) {
        boolean isNoticed = b >= 0 && (w.nodes[b].up || !slot.wiped[b]); // 4.0.2 puts -1 in an ISR
        return isNoticed && slot.has[b] < slot.acked && !slot.excused[b];
    }

    private void leader(World.Slot slot) {
        PartitionRegistration state = slot.state;
        int leader = state.leader;
        if (!World.holds(state.isr, leader)) w.broken(Promise.LEADER_OF_ISR, "");
        if (!works(slot, leader)) w.broken(Promise.LEADER_ACTIVE, "");
        boolean isSame = slot.previous != null && slot.previous.leader == leader;
        if (isSame && slot.previous.leaderEpoch == state.leaderEpoch) return;
        boolean isUnclean = state.leaderRecoveryState.value() == 1;
        slot.unclean |= isUnclean;
        if (!w.nodes[leader].up && slot.wiped[leader]) return; // its loss is not known before it starts again
        if (slot.has[leader] < slot.acked && !isUnclean && !slot.excused[leader]) {
            w.broken(Promise.LEADER_HAS_ALL, "");
        }
        slot.forget(leader);
        slot.acked = Math.min(slot.acked, slot.has[leader]);
        for (int b = 1; b <= w.count; b++) slot.has[b] = Math.min(slot.has[b], slot.acked);
    }

    private boolean isOnline(World.Slot slot, int b) {
        int[] replicas = slot.state.replicas;
        int at = IntStream.range(0, replicas.length).filter(i -> replicas[i] == b).findFirst().orElse(-1);
        return !w.hasDirectories() || at < 0
            || Late.<Boolean>call(w.kafka.cluster, "hasOnlineDir", b, slot.directories.get(at));
    }

    private boolean canLead(World.Slot slot) {
        int[] eligible = slot.state.isr.length > 0 ? slot.state.isr : slot.elr;
        return Arrays.stream(eligible).anyMatch(b -> slot.isReplica(b) && works(slot, b));
    }

    private boolean works(World.Slot slot, int b) {
        return w.kafka.cluster.isActive(b) && isOnline(slot, b);
    }

    /** Checks that the timer of unclean elections (since 3.9) left no partition that could have a leader. */
    void afterTimer() {
        for (World.Slot slot : w.live) {
            if (slot.state.leader >= 0 || !w.isUncleanAllowed[slot.t]) continue;
            boolean isAlive = Arrays.stream(slot.state.replicas).anyMatch(b -> works(slot, b));
            if (isAlive) w.broken(Promise.UNCLEAN_COMES, "");
        }
    }

    private void minIsr(World.Slot slot, int[] elr) {
        if (!w.kafka.isElr()) return;
        String topic = "t" + slot.t;
        int replicas = slot.state.replicas.length;
        int theirs = Late.call(w.kafka.replication, "minIsrOfPartition|getTopicEffectiveMinIsr", topic, replicas);
        if (theirs != w.kafka.minIsr(topic, replicas)) w.broken(Promise.MIN_ISR_AGREED, "");
        if (elr.length > 0 && slot.state.isr.length >= theirs) w.broken(Promise.ELR_UNDER_MIN, "");
    }

    private void epochs(PartitionRegistration was, PartitionRegistration now) {
        if (was == null || was == now) return;
        boolean isBack = now.leaderEpoch < was.leaderEpoch || now.partitionEpoch < was.partitionEpoch;
        boolean isSilent = now.leader != was.leader && now.leaderEpoch == was.leaderEpoch;
        if (isBack || isSilent) w.broken(Promise.EPOCHS_RISE, isBack ? "back" : "no new leader epoch");
    }

    // The indices that the managers keep in addition to the partitions

    private void indices() {
        var isrs = w.kafka.replication.brokersToIsrs();
        Object elrs = Late.call(w.kafka.replication, "brokersToElrs|");
        same(isrs.partitionsWithNoLeader(), x -> x.state.leader < 0, Promise.ISR_INDEX, "without leader");
        for (int b = 1; b <= w.count; b++) {
            int id = b;
            same(isrs.partitionsWithBrokerInIsr(b), x -> x.isInSync(id), Promise.ISR_INDEX, "");
            if (elrs == null) continue;
            same(Late.call(elrs, "partitionsWithBrokerInElr", b), x -> World.holds(x.elr, id), Promise.ELR_INDEX, "");
        }
        Map<Uuid, int[]> moving = Late.field(w.kafka.replication, "reassigningTopics", Map.of());
        long all = moving.values().stream().mapToInt(parts -> parts.length).sum();
        boolean isSame = all == w.live.stream().filter(World.Slot::isMoving).count() && w.live.stream().allMatch(x ->
            x.isMoving() == World.holds(moving.getOrDefault(w.ids[x.t], NONE), x.p));
        if (!isSame) w.broken(Promise.REASSIGNING_INDEX, "");
        Iterable<?> unbalanced = Late.field(w.kafka.replication, "imbalancedPartitions", null);
        if (unbalanced != null) {
            same(unbalanced.iterator(), x -> x.state.leader != x.state.replicas[0], Promise.IMBALANCE_INDEX, "");
        }
        Map<Uuid, Iterable<?>> index = Late.field(w.kafka.replication, "directoriesToPartitions", null);
        if (index != null) directories(index);
        for (BrokerRegistration broker : w.kafka.brokers().values()) {
            if (!broker.equals(w.kafka.image.cluster().broker(broker.id()))) w.broken(Promise.IMAGE_AGREES, "broker");
        }
    }

    private void directories(Map<Uuid, Iterable<?>> index) {
        index.forEach((id, at) -> same(at.iterator(), x -> x.directories.contains(id), Promise.DIRECTORY_INDEX, ""));
        boolean isComplete = w.live.stream().flatMap(x -> x.directories.stream())
            .allMatch(id -> id.getMostSignificantBits() == 0 || index.containsKey(id));
        if (!isComplete) w.broken(Promise.DIRECTORY_INDEX, "missing");
    }

    /** Checks that an index has the partitions that it should have, and no other. */
    private void same(Iterator<?> index, Predicate<World.Slot> should, Promise promise, String what) {
        int wanted = 0;
        int there = 0;
        for (World.Slot slot : w.live) if (should.test(slot)) wanted |= 1 << slot.s;
        while (index.hasNext()) {
            Object at = index.next();
            int t = Arrays.asList(w.ids).indexOf(Late.<Uuid>call(at, "topicId"));
            there |= t < 0 ? 1 << 30 : 1 << (t * World.PARTS + Late.<Integer>call(at, "partitionId"));
        }
        if (wanted != there) w.broken(promise, what);
    }

    /** A new controller has the partitions and brokers of its predecessor. */
    void reloaded(Map<Integer, BrokerRegistration> before) {
        for (World.Slot slot : w.live) {
            PartitionRegistration now = w.kafka.replication.getPartition(w.ids[slot.t], slot.p);
            if (!slot.state.equals(now)) w.broken(Promise.RELOADED, "partition " + differing(slot.state, now));
        }
        before.forEach((id, was) -> {
            if (!was.equals(w.kafka.brokers().get(id))) w.broken(Promise.RELOADED, "broker");
        });
    }

    private static String differing(PartitionRegistration was, PartitionRegistration now) {
        if (now == null) return "gone";
        return Arrays.stream(PartitionRegistration.class.getFields()).map(java.lang.reflect.Field::getName)
            .filter(name -> !Objects.deepEquals(Late.field(was, name, null), Late.field(now, name, null)))
            .collect(Collectors.joining(" "));
    }

    // Level two: what brokers do

    /** Checks a rise of the high watermark, unless several actions ran since the last check. */
    void broker(Node node, boolean isOne) {
        for (World.Slot slot : w.slots) {
            Node.Part part = node.parts[slot.s];
            if (part == null || part.partition == null) continue;
            if (part.leader == node.id && part.topic.equals(w.ids[slot.t])) told(slot, part);
            long now = Real.highWatermark(part.log);
            boolean isLess = part.leader == node.id && Late.<Boolean>call(part.partition, "isUnderMinIsr");
            if (isOne && now > part.shown && isLess) w.broken(Promise.HW_OF_MIN_ISR, "");
            part.shown = now;
        }
    }

    /** Checks the end reported to consumers, except by a deposed leader, which may report an old one. */
    private void told(World.Slot slot, Node.Part part) {
        long now = slot.unclean || part.epoch < slot.toldIn ? -1 : Real.told(part.partition);
        if (now < 0) return;
        var stored = w.kafka.replication.getPartition(w.ids[slot.t], slot.p);
        if (now < slot.told && stored.leaderRecoveryState.value() == 0) w.broken(Promise.END_RISES, "");
        slot.told = now;
        slot.toldIn = part.epoch;
    }

    /** The promises for the time when all messages have arrived and all replicas have fetched. */
    void quiet() {
        for (World.Slot slot : w.live) {
            PartitionRegistration state = slot.state;
            if (state.leader < 0) continue;
            Node.Part leads = w.nodes[state.leader].parts[slot.s];
            long end = leads == null || leads.partition == null ? 0 : Real.told(leads.partition);
            boolean isReadable = slot.acks.stream().allMatch(ack -> ack[0] < end && slot.isAt(state.leader, ack));
            if (!isReadable) w.broken(Promise.ACKED_READABLE, "");
            if (state.isr.length < state.replicas.length) continue;
            for (int b : state.isr) {
                Node.Part part = w.nodes[b].parts[slot.s];
                if (part != null && Real.end(part.log) != Real.end(leads.log)) w.broken(Promise.LOGS_AGREE, "");
            }
            if (!w.nodes[state.leader].waits.isEmpty()) w.broken(Promise.PRODUCE_ANSWERED, "");
        }
    }

    void settled() {
        for (World.Slot slot : w.live) {
            if (slot.state.leader < 0) {
                if (canLead(slot)) w.broken(Promise.ALL_RECOVERS, "no leader");
            } else if (slot.state.isr.length < slot.state.replicas.length) {
                w.broken(Promise.ALL_RECOVERS, "replicas out of sync");
            } else if (slot.isMoving()) {
                w.broken(Promise.REASSIGNMENT_ENDS, "");
            }
        }
    }
}
