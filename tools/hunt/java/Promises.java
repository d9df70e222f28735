package org.apache.kafka.controller;

import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.*;

/** The checks of the promises. */
final class Promises {
    private static final int[] NONE = {};
    private static final String OURS = Late.class.getPackageName();
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
        for (StackTraceElement at : e.getStackTrace()) {
            String kind = at.getClassName();
            boolean isTheirs = (kind.startsWith("org.apache.kafka.") || kind.startsWith("kafka.")) && !kind.startsWith(OURS + ".Late")
                && !kind.startsWith(OURS + ".Real") && !kind.startsWith(OURS + ".Node") && !kind.startsWith(OURS + ".World") && !kind.startsWith(OURS + ".Kafka");
            if (isTheirs) return kind.substring(kind.lastIndexOf('.') + 1) + "." + at.getMethodName();
        }
        return "?";
    }

    static boolean isReplay(Throwable e) {
        for (StackTraceElement at : e.getStackTrace()) {
            if (at.getClassName().equals(Kafka.class.getName()) && at.getMethodName().equals("write")) return true;
        }
        return false;
    }

    void check() {
        for (int s = 0; s < w.slots.length; s++) {
            World.Slot slot = w.slots[s];
            if (slot.state != null) partition(slot, s);
            slot.previous = slot.state;
        }
        indices();
    }

    private static int[] elr(PartitionRegistration state) { return Late.field(state, "elr", NONE); }

    /** The last known leader may be elected while ELR is on. */
    private int[] lastKnown(PartitionRegistration state) {
        return w.kafka.isElr() ? Late.field(state, "lastKnownElr", NONE) : NONE;
    }

    private void partition(World.Slot slot, int s) {
        PartitionRegistration state = slot.state;
        int[] elr = elr(state);
        if (state.leader >= 0) leader(slot);
        else if (canLead(state, elr)) w.broken(Promise.LEADER_COMES, "");
        else if (state.isr.length + elr.length + lastKnown(state).length == 0) {
            w.broken(Promise.ONE_ELIGIBLE, w.kafka.isElr() ? "" : "while ELR is off");
        }
        for (int b : state.isr) {
            if (!World.holds(state.replicas, b)) w.broken(Promise.ISR_OF_REPLICAS, "");
            if (World.holds(elr, b)) w.broken(Promise.ISR_OR_ELR, "");
            if (!w.kafka.brokers().containsKey(b)) w.broken(Promise.ELR_REGISTERED, "ISR");
            else if (!w.kafka.cluster.isActive(b) && (state.isr.length > 1 || w.kafka.isElr())) {
                w.broken(Promise.ISR_ACTIVE, "");
            }
            if (isStale(slot, b)) w.broken(Promise.ISR_HAS_ALL, "");
        }
        for (int b : elr) {
            if (!World.holds(state.replicas, b)) w.broken(Promise.ELR_OF_REPLICAS, "");
            if (!w.kafka.brokers().containsKey(b)) w.broken(Promise.ELR_REGISTERED, "ELR");
            else if (isStale(slot, b)) w.broken(Promise.ELR_HAS_ALL, "");
        }
        minIsr(state, elr, s);
        epochs(slot.previous, state);
        Object image = w.kafka.image.topics().getPartition(w.ids[s / World.PARTS], s % World.PARTS);
        if (!state.equals(image)) {
            w.broken(Promise.IMAGE_AGREES, differing(state, (PartitionRegistration) image));
        }
    }

    /** Whether a replica lacks acknowledged records; after a power failure, once its broker runs again. */
    private boolean isStale(World.Slot slot, int b) {
        boolean isNoticed = w.brokers[b].up || !slot.wiped[b];
        return slot.has[b] < slot.acked && isNoticed && !slot.excused[b];
    }

    private void leader(World.Slot slot) {
        PartitionRegistration state = slot.state;
        int leader = state.leader;
        if (!World.holds(state.isr, leader)) w.broken(Promise.LEADER_OF_ISR, "");
        if (!w.kafka.cluster.isActive(leader) || !isOnline(state, leader)) {
            w.broken(Promise.LEADER_ACTIVE, "");
        }
        boolean isSame = slot.previous != null && slot.previous.leader == leader;
        if (isSame && slot.previous.leaderEpoch == state.leaderEpoch) return;
        if (!w.brokers[leader].up && slot.wiped[leader]) return; // its loss is not known before it starts again
        boolean isUnclean = state.leaderRecoveryState.value() == 1;
        slot.unclean |= isUnclean;
        if (slot.has[leader] < slot.acked && !isUnclean && !slot.excused[leader]) {
            w.broken(Promise.LEADER_HAS_ALL, "");
        }
        w.forget(slot, leader);
        slot.acked = Math.min(slot.acked, slot.has[leader]);
        for (int b = 1; b <= w.count; b++) slot.has[b] = Math.min(slot.has[b], slot.acked);
    }

    private boolean isOnline(PartitionRegistration state, int b) {
        if (!w.hasDirectories()) return true;
        Uuid[] directories = Late.field(state, "directories", null);
        for (int i = 0; i < state.replicas.length; i++) {
            if (state.replicas[i] != b) continue;
            return Late.<Boolean>call(w.kafka.cluster, "hasOnlineDir", b, directories[i]);
        }
        return true;
    }

    private boolean canLead(PartitionRegistration state, int[] elr) {
        for (int b : state.isr.length > 0 ? state.isr : elr) {
            boolean isReplica = World.holds(state.replicas, b);
            if (isReplica && w.kafka.cluster.isActive(b) && isOnline(state, b)) return true;
        }
        return false;
    }

    /** Checks that the timer of unclean elections (since 3.9) left no partition that could have a leader. */
    void afterTimer() {
        for (int s = 0; s < w.slots.length; s++) {
            PartitionRegistration state = w.slots[s].state;
            if (state == null || state.leader >= 0) continue;
            if (!w.isUncleanAllowed[s / World.PARTS]) continue;
            for (int b : state.replicas) {
                if (w.kafka.cluster.isActive(b) && isOnline(state, b)) w.broken(Promise.UNCLEAN_COMES, "");
            }
        }
    }

    private void minIsr(PartitionRegistration state, int[] elr, int s) {
        if (!w.kafka.isElr()) return;
        String topic = "t" + s / World.PARTS;
        boolean isRepaired = Late.has(w.kafka.replication, "minIsrOfPartition");
        int theirs = Late.call(w.kafka.replication,
            isRepaired ? "minIsrOfPartition" : "getTopicEffectiveMinIsr", topic, state.replicas.length);
        int own = w.kafka.minIsr(topic, state.replicas.length);
        if (theirs != own) w.broken(Promise.MIN_ISR_AGREED, "");
        if (elr.length > 0 && state.isr.length >= theirs) w.broken(Promise.ELR_UNDER_MIN, "");
    }

    private void epochs(PartitionRegistration was, PartitionRegistration now) {
        if (was == null || was == now) return;
        boolean isBack = now.leaderEpoch < was.leaderEpoch || now.partitionEpoch < was.partitionEpoch;
        boolean isSilent = now.leader != was.leader && now.leaderEpoch == was.leaderEpoch;
        if (isBack || isSilent) w.broken(Promise.EPOCHS_RISE, isBack ? "back" : "no new leader epoch");
    }

    // The indices that the managers keep in addition to the partitions

    private void indices() {
        for (int b = -1; b <= w.count; b++) {
            if (b == 0) continue;
            int isr = 0;
            int elr = 0;
            for (int s = 0; s < w.slots.length; s++) {
                PartitionRegistration state = w.slots[s].state;
                if (state == null) continue;
                boolean isIn = b < 0 ? state.leader < 0 : World.holds(state.isr, b);
                if (isIn) isr |= 1 << s;
                if (b > 0 && World.holds(elr(state), b)) elr |= 1 << s;
            }
            var brokersToIsrs = w.kafka.replication.brokersToIsrs();
            Iterator<?> it = b < 0 ? brokersToIsrs.partitionsWithNoLeader()
                : brokersToIsrs.partitionsWithBrokerInIsr(b);
            if (mask(it) != isr) w.broken(Promise.ISR_INDEX, b < 0 ? "without leader" : "");
            if (b < 0 || !Late.has(w.kafka.replication, "brokersToElrs")) continue;
            Object index = Late.call(w.kafka.replication, "brokersToElrs");
            if (mask(Late.call(index, "partitionsWithBrokerInElr", b)) != elr) {
                w.broken(Promise.ELR_INDEX, "");
            }
        }
        smaller();
        brokersAgree();
    }

    private int mask(Iterator<?> it) {
        int mask = 0;
        while (it.hasNext()) {
            Object at = it.next();
            int t = Arrays.asList(w.ids).indexOf(Late.<Uuid>call(at, "topicId"));
            int bit = t < 0 ? 1 << 30 : 1 << (t * World.PARTS + Late.<Integer>call(at, "partitionId"));
            mask |= bit;
        }
        return mask;
    }

    private void smaller() {
        Map<Uuid, int[]> moving = Late.field(w.kafka.replication, "reassigningTopics", Map.of());
        int count = 0;
        int unbalanced = 0;
        Map<Uuid, Integer> placed = new HashMap<>();
        for (int s = 0; s < w.slots.length; s++) {
            PartitionRegistration state = w.slots[s].state;
            if (state == null) continue;
            boolean isMoving = state.addingReplicas.length + state.removingReplicas.length > 0;
            int[] kept = moving.getOrDefault(w.ids[s / World.PARTS], NONE);
            if (isMoving != World.holds(kept, s % World.PARTS)) w.broken(Promise.REASSIGNING_INDEX, "");
            if (isMoving) count++;
            if (state.leader != state.replicas[0]) unbalanced |= 1 << s;
            Uuid[] directories = Late.field(state, "directories", new Uuid[0]);
            for (Uuid id : directories) {
                if (id.getMostSignificantBits() != 0) placed.merge(id, 1 << s, (x, y) -> x | y);
            }
        }
        int all = 0;
        for (int[] kept : moving.values()) all += kept.length;
        if (all != count) w.broken(Promise.REASSIGNING_INDEX, "");
        Iterable<?> imbalanced = Late.field(w.kafka.replication, "imbalancedPartitions", null);
        if (imbalanced != null && mask(imbalanced.iterator()) != unbalanced) {
            w.broken(Promise.IMBALANCE_INDEX, "");
        }
        Map<Uuid, Iterable<?>> index = Late.field(w.kafka.replication, "directoriesToPartitions", null);
        if (index == null) return;
        index.forEach((id, parts) -> {
            if (mask(parts.iterator()) != placed.getOrDefault(id, 0)) w.broken(Promise.DIRECTORY_INDEX, "");
        });
        if (!index.keySet().containsAll(placed.keySet())) w.broken(Promise.DIRECTORY_INDEX, "missing");
    }

    private void brokersAgree() {
        for (BrokerRegistration broker : w.kafka.brokers().values()) {
            if (!broker.equals(w.kafka.image.cluster().broker(broker.id()))) {
                w.broken(Promise.IMAGE_AGREES, "broker");
            }
        }
    }

    /** A new controller has the partitions and brokers of its predecessor. */
    void reloaded(Map<Integer, BrokerRegistration> before) {
        for (int s = 0; s < w.slots.length; s++) {
            PartitionRegistration was = w.slots[s].state;
            if (was == null) continue;
            PartitionRegistration now = w.kafka.replication.getPartition(w.ids[s / World.PARTS], s % World.PARTS);
            if (!was.equals(now)) w.broken(Promise.RELOADED, "partition " + differing(was, now));
        }
        before.forEach((id, was) -> {
            if (!was.equals(w.kafka.brokers().get(id))) w.broken(Promise.RELOADED, "broker");
        });
    }

    private static String differing(PartitionRegistration was, PartitionRegistration now) {
        if (now == null) return "gone";
        StringBuilder names = new StringBuilder();
        for (var field : PartitionRegistration.class.getFields()) {
            Object a = Late.field(was, field.getName(), null);
            Object b = Late.field(now, field.getName(), null);
            if (!Objects.deepEquals(a, b)) names.append(field.getName()).append(' ');
        }
        return names.toString().strip();
    }

    // Level two: what brokers do

    /** Checks a rise of the high watermark, unless several actions ran since the last check. */
    void broker(Node node, boolean isOne) {
        for (int s = 0; s < node.parts.length; s++) {
            Node.Part part = node.parts[s];
            if (part == null || part.partition == null) continue;
            if (part.leader == node.id && part.topic.equals(w.ids[s / World.PARTS])) told(w.slots[s], part);
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
        if (now < slot.told) w.broken(Promise.END_RISES, "");
        slot.told = now;
        slot.toldIn = part.epoch;
    }

    /** The promises for the time when all messages have arrived and all replicas have fetched. */
    void quiet() {
        for (int s = 0; s < w.slots.length; s++) {
            PartitionRegistration state = w.slots[s].state;
            if (state == null || state.leader < 0) continue;
            Node.Part leads = w.nodes[state.leader].parts[s];
            long end = leads == null || leads.partition == null ? 0 : Real.told(leads.partition);
            if (!w.slots[s].acks.stream().allMatch(ack -> ack[0] < end && World.hasAck(leads, ack))) w.broken(Promise.ACKED_READABLE, "");
            boolean isWhole = state.isr.length == state.replicas.length;
            for (int b : state.isr) {
                Node node = w.nodes[b];
                if (isWhole && node.parts[s] != null && Real.end(node.parts[s].log) != Real.end(leads.log)) {
                    w.broken(Promise.LOGS_AGREE, "");
                }
            }
            if (isWhole && !w.nodes[state.leader].waits.isEmpty()) w.broken(Promise.PRODUCE_ANSWERED, "");
        }
    }

    void settled() {
        for (World.Slot slot : w.slots) {
            PartitionRegistration state = slot.state;
            if (state == null) continue;
            boolean isMoving = state.addingReplicas.length + state.removingReplicas.length > 0;
            if (state.leader < 0) {
                if (canLead(state, elr(state))) w.broken(Promise.ALL_RECOVERS, "no leader");
            } else if (state.isr.length < state.replicas.length) {
                w.broken(Promise.ALL_RECOVERS, "replicas out of sync");
            } else if (isMoving) {
                w.broken(Promise.REASSIGNMENT_ENDS, "");
            }
        }
    }
}
