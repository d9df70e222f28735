package org.apache.kafka.controller;

import java.util.*;
import java.util.stream.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.metadata.*;

/**
 * The real controller, and a ghost, which tracks the brokers that run and how many of the acknowledged
 * records each replica has on disk. Brokers learn of each change immediately (level one).
 */
final class World {
    static final int TOPICS = 2;
    static final int PARTS = 3;

    /** A partition: its state as the controller stored it, and its part of the ghost. */
    final class Slot {
        final int s; // its number, and the topic and partition to which that belongs
        final int t;
        final int p;
        PartitionRegistration state;
        int[] elr; // of this state, and the directories of its replicas; empty in releases without them
        List<Uuid> directories;
        PartitionRegistration previous;
        int[] kept; // its ISR without a leader from before ELR was switched on, until that ISR changes
        long acked;
        final long[] has = new long[count + 1];
        final boolean[] wiped = new boolean[count + 1]; // lost its log with the power, and has not been in sync since
        final boolean[] excused = new boolean[count + 1]; // by design: without ELR the last of an ISR may be empty
        final int[] place = new int[count + 1];
        int[] before; // its replicas before the last reassignment
        boolean unclean; // after an unclean election nothing is promised about this partition's records
        long told; // level two: the last log end that a leader reported to a consumer, and its leader epoch
        int toldIn = -1;
        final boolean[] cut = new boolean[count + 1]; // lost records with the power, and has not reached `told` since
        final List<long[]> acks = new ArrayList<>(); // level two: offset and epoch of each acknowledged record

        Slot(int s) {
            this.s = s;
            t = s / PARTS;
            p = s % PARTS;
        }

        boolean isMoving() { return state.addingReplicas.length + state.removingReplicas.length > 0; }
        boolean isReplica(int b) { return holds(state.replicas, b); }
        boolean isInSync(int b) { return holds(state.isr, b); }
        private boolean works(int b) { return nodes[b].up && !nodes[b].dirDown[place[b]]; }
        private boolean isLed() { return state.leader >= 0 && works(state.leader); }
        private void alter(IntStream isr) { kafka.alter(ids[t], this, isr.toArray(), b -> nodes[b].epoch); }

        /** Writes an acknowledged record, if the whole ISR works and is large enough for the leader. */
        void write() {
            if (!isLed() || state.isr.length < kafka.minIsr("t" + t, state.replicas.length)) return;
            if (!Arrays.stream(state.isr).allMatch(this::works)) return;
            acked = Math.max(acked, has[state.leader]) + 1;
            for (int b : state.isr) has[b] = acked;
        }

        /** A replica catches up, and its leader asks to add it to the ISR. */
        void join(int b) {
            if (!isLed() || !works(b) || !isReplica(b)) return;
            has[b] = has[state.leader];
            wiped[b] = excused[b] = false;
            if (!isInSync(b)) alter(IntStream.concat(Arrays.stream(state.isr), IntStream.of(b)));
        }

        /** The leader asks to add a replica as it was before its broker restarted. */
        void lateJoin(int b) {
            boolean isLate = isLed() && works(b) && isReplica(b) && !isInSync(b) && nodes[b].epochBefore >= 0;
            if (!isLate || !Kafka.knowsBrokerEpochs()) return;
            kafka.alter(ids[t], this, IntStream.concat(Arrays.stream(state.isr), IntStream.of(b)).toArray(),
                x -> x == b ? nodes[b].epochBefore : nodes[x].epoch);
            if (holds(kafka.replication.getPartition(ids[t], p).isr, b)) broken(Promise.ISR_OF_INCARNATION, "");
        }

        void shrink(int b) {
            if (isLed() && b != state.leader && isInSync(b)) alter(Arrays.stream(state.isr).filter(x -> x != b));
        }

        /** At level one a broker that runs deletes its log of a partition that it has lost. */
        void drop(int b) {
            if (!nodes[b].up || isReplica(b)) return;
            has[b] = 0;
            wiped[b] = false;
            place[b] = nodes[b].epoch % 2 == 0 ? 0 : nodes[b].dirDown.length - 1;
            if (nodes[b].gone[place[b]]) place[b] = 1 - place[b];
        }

        // Level two: the ghost's numbers are read from the logs

        boolean isAt(int b, long[] ack) {
            Node.Part part = nodes[b].parts[s];
            return part != null && Real.has(part.log, ack[0], (int) ack[1]);
        }

        private void measure() {
            acked = acks.size();
            for (int b = 1; b <= count; b++) {
                int id = b;
                has[b] = acks.stream().filter(ack -> isAt(id, ack)).count();
                if (!nodes[b].up || !isInSync(b)) continue; // what it lost is not forgotten
                if (endAt(b) >= told) cut[b] = false;
                if (has[b] == acked) wiped[b] = excused[b] = false;
            }
        }

        private long endAt(int b) { return nodes[b].parts[s] == null ? -1 : Real.end(nodes[b].parts[s].log); }

        /** Forgets the records that a new leader lacks, so that they are reported once; all after an unclean
         * election: the leader may only now learn that it was removed in between, and begin with an empty log. */
        void forget(int leader) {
            if (!isWhole) return;
            acks.removeIf(ack -> unclean || !isAt(leader, ack));
            if (!cut[leader] || kafka.isElr()) return;
            told = Math.min(told, Math.max(0, endAt(leader)));
            toldIn = state.leaderEpoch; // what a deposed leader still reports does not count
        }

        /** For a reader; at level two with what each broker has of it. */
        String shown() {
            String form = "[t%d-%d leader=%d epoch=%d isr=%s elr=%s replicas=%s +%s -%s acked=%d has=%s] ";
            String text = String.format(form, t, p, state.leader, state.leaderEpoch, Arrays.toString(state.isr),
                Arrays.toString(elr), Arrays.toString(state.replicas), Arrays.toString(state.addingReplicas),
                Arrays.toString(state.removingReplicas), acked, Arrays.toString(has));
            for (int b = 1; isWhole && b <= count; b++) text += nodes[b].shown(s);
            return text;
        }
    }

    /** A promise that did not hold: in which respect, and after how many actions. */
    record Break(Promise promise, String what, int step) {
        String key() { return promise + " " + what; }
    }

    final int count;
    final boolean isWhole; // level two
    final Node[] nodes; // the brokers by their numbers, from 1 on
    final Kafka kafka;
    final Uuid[] ids = new Uuid[TOPICS];
    final Slot[] slots = new Slot[TOPICS * PARTS];
    List<Slot> live = new ArrayList<>(); // the partitions that exist
    final boolean[] isUncleanAllowed = new boolean[TOPICS];
    final List<Break> breaks = new ArrayList<>();
    private final Promises promises = new Promises(this);
    int step;
    long looks; // how often the promises were checked, counting actions that wrote nothing
    boolean isOver;

    World(Op.Act cluster) {
        int[] n = cluster.n();
        count = n[0];
        isWhole = cluster.op() == Op.WHOLE;
        nodes = new Node[count + 1];
        kafka = new Kafka(Kafka.knowsElr() ? n[2] : 0, n[4], n[3]);
        for (int s = 0; s < slots.length; s++) slots[s] = new Slot(s);
        for (int b = 1; b <= count; b++) {
            nodes[b] = new Node(this, b, (n[1] >> (b - 1) & 1) + 1);
            nodes[b].start(false);
            nodes[b].beat();
        }
        for (int b = 1; b <= count; b++) while (isWhole && nodes[b].hasNews()) nodes[b].news();
    }

    /** Runs an action and checks the promises. An error in replay stops a controller and the schedule. */
    void run(Op.Act act) {
        step++;
        long before = kafka.offset;
        kafka.isUnknown = false;
        try {
            act.op().run.accept(this, act.n());
        } catch (ApiException e) {
            kafka.clock.ms++;
        } catch (RuntimeException | Error e) {
            broken(Promises.isReplay(e) ? Promise.REPLAYED : Promise.ANSWERED, Promises.named(e));
            isOver |= Promises.isReplay(e);
        }
        if (kafka.isUnknown) broken(Promise.ANSWERED, "UNKNOWN_SERVER_ERROR for " + act.op().name().toLowerCase());
        if (isOver) return;
        if (isWhole) whole(act.op() != Op.SETTLE);
        if (kafka.offset != before || act.op() == Op.FAIL_OVER || isWhole) look();
        else looks++; // nothing was written, so nothing can have broken
        if (act.op() == Op.TIMER) promises.afterTimer();
    }

    void broken(Promise promise, String what) {
        boolean isKnown = breaks.stream().anyMatch(x -> x.promise == promise && x.what.equals(what));
        if (!isKnown) breaks.add(new Break(promise, what, step));
    }

    private void look() {
        looks++;
        refresh();
        promises.check();
    }

    /** Reads the stored states, and lets brokers delete the logs of replicas that they lost. */
    void refresh() {
        live = new ArrayList<>();
        for (Slot slot : slots) {
            PartitionRegistration last = slot.state;
            slot.state = ids[slot.t] == null ? null : kafka.replication.getPartition(ids[slot.t], slot.p);
            if (slot.state == null) continue;
            live.add(slot);
            if (slot.state != last) {
                slot.elr = Late.field(slot.state, "elr", new int[0]);
                slot.directories = Arrays.asList(Late.field(slot.state, "directories", new Uuid[0]));
            }
            if (isWhole) slot.measure();
            else if (slot.state != last) for (int b = 1; b <= count; b++) slot.drop(b);
        }
    }

    // Level two

    private void whole(boolean isOne) {
        for (int b = 1; b <= count; b++) nodes[b].acknowledge();
        for (int b = 1; b <= count; b++) promises.broker(nodes[b], isOne);
    }

    /** Time passes: replicas that do not fetch fall behind, put-off requests are sent, no session expires. */
    void pass(int... none) {
        kafka.expire(0);
        for (int b = 1; b <= count; b++) nodes[b].putOff();
    }

    /** Every message arrives and every replica fetches, for twelve rounds. */
    private void quiet() {
        for (int round = 0; round < 12; round++) {
            if (round % 3 == 2) pass();
            for (int b = 1; b <= count; b++) {
                Node node = nodes[b];
                while (node.hasNews()) node.news();
                node.beat();
                for (int s = 0; s < slots.length; s++) {
                    node.fetch(s);
                    node.fetched(s);
                }
                if (round % 3 == 2) node.check();
                node.asks();
                node.answered();
                whole(false);
                look();
            }
        }
        promises.quiet();
    }

    static boolean holds(int[] ids, int id) {
        for (int x : ids) if (x == id) return true;
        return false;
    }

    Slot slot(int... at) { return slots[at[0] * PARTS + at[1]]; }

    /** A partition that exists. */
    Slot there(int... at) {
        if (slot(at).state != null) return slot(at);
        throw new org.apache.kafka.common.errors.UnknownTopicOrPartitionException();
    }

    boolean hasDirectories() {
        return Boolean.TRUE.equals(Late.call(kafka.version(), "isDirectoryAssignmentSupported|"));
    }

    boolean isUnfenced(int b) {
        BrokerRegistration registration = kafka.brokers().get(b);
        return registration != null && !registration.fenced();
    }

    // Topics

    void create(int... n) {
        if (ids[n[0]] != null) return;
        List<List<Integer>> replicas = new ArrayList<>(List.of(new ArrayList<>()));
        for (int i = 3; i < n.length; i++) {
            if (n[i] == 0) replicas.add(new ArrayList<>());
            else replicas.get(replicas.size() - 1).add(n[i]);
        }
        Map<String, String> settings = new HashMap<>();
        if (n[1] > 0) settings.put(Kafka.MIN_ISR, "" + n[1]);
        if (n[2] > 0) settings.put(Kafka.UNCLEAN, "true");
        isUncleanAllowed[n[0]] = n[2] > 0;
        kafka.create("t" + n[0], replicas, settings);
        ids[n[0]] = kafka.idOf("t" + n[0]);
        for (int p = 0; p < PARTS; p++) slots[n[0] * PARTS + p] = new Slot(n[0] * PARTS + p);
    }

    void delete(int... n) {
        if (ids[n[0]] == null) return;
        kafka.delete(ids[n[0]]);
        ids[n[0]] = kafka.idOf("t" + n[0]);
    }

    void grow(int... n) {
        int parts = (int) live.stream().filter(x -> x.t == n[0]).count();
        if (parts == 0 || parts == PARTS) return;
        slots[n[0] * PARTS + parts] = new Slot(n[0] * PARTS + parts);
        kafka.grow("t" + n[0], parts + 1, ids(n, 1));
    }

    private static List<Integer> ids(int[] n, int from) { return Arrays.stream(n).skip(from).boxed().toList(); }

    /** An empty list of replicas cancels a reassignment. */
    void reassign(int... n) {
        Slot slot = there(n);
        if (n.length > 2) slot.before = slot.state.replicas.clone();
        if (!kafka.reassign(slot, ids(n, 2)) || n.length == 2) return;
        PartitionRegistration now = kafka.replication.getPartition(ids[slot.t], slot.p);
        Set<Integer> kept = Arrays.stream(now.replicas).filter(b -> !holds(now.removingReplicas, b))
            .boxed().collect(Collectors.toSet());
        if (!kept.equals(new HashSet<>(ids(n, 2)))) broken(Promise.STORED_AS_ASKED, "");
    }

    void configure(int[] n, String name) {
        if (ids[n[0]] == null) return;
        boolean isUnclean = name.equals(Kafka.UNCLEAN);
        if (isUnclean) isUncleanAllowed[n[0]] = n[1] == 1;
        kafka.configure("t" + n[0], name, n[1] == 0 ? "" : isUnclean ? "true" : "" + n[1]);
    }

    void elr(int... n) { if (Kafka.knowsElr()) kafka.feature(Kafka.ELR, n[0], n[0] == 1); }

    void failOver(int... n) {
        Map<Integer, BrokerRegistration> before = new HashMap<>(kafka.brokers());
        try {
            kafka.failOver(n[0] == 1 && Kafka.hasWriter());
            promises.reloaded(before);
        } catch (RuntimeException e) {
            broken(Promise.RELOADED, Promises.named(e));
            isOver = true;
        }
    }

    /** All brokers come back and all replicas catch up: then nothing may remain to be done. */
    void settle(int... none) {
        for (int b = 1; b <= count; b++) {
            Node node = nodes[b];
            var known = kafka.brokers().get(b);
            boolean isKnown = node.up && known != null && !node.stopping && known.epoch() == node.epoch
                && node.directories(node.dirDown, true).isEmpty();
            if (!isKnown) {
                node.end(false);
                kafka.expire(b);
                look();
                node.start(false);
                look();
            }
            Arrays.fill(node.cordoned, false);
            for (int i = 0; i < 2; i++) {
                node.beat();
                look();
            }
            node.assign();
        }
        if (isWhole) quiet();
        for (int round = 0; round < 3 && !isWhole; round++) {
            for (Slot slot : slots) {
                look();
                if (slot.state == null || !slot.isLed()) continue;
                for (int b : slot.state.replicas) slot.has[b] = slot.has[slot.state.leader];
                Arrays.fill(slot.wiped, false);
                slot.alter(Arrays.stream(slot.state.replicas));
            }
        }
        look();
        promises.settled();
    }
}
