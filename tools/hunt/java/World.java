package org.apache.kafka.controller;

import java.util.*;
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

    static final class Broker {
        boolean up;
        boolean stopping;
        boolean wasClean;
        long epoch = -1;
        int incarnation;
        boolean[] dirDown;
        boolean[] cordoned;
    }

    /** A partition: its state as the controller stored it, and its part of the ghost. */
    static final class Slot {
        PartitionRegistration state;
        PartitionRegistration previous;
        long acked;
        final long[] has;
        final boolean[] wiped; // lost its log in a power failure, and has not been in sync since
        final boolean[] excused; // its loss is by design: without ELR the last member of an ISR may come back empty
        final int[] place;
        int[] before; // its replicas before the last reassignment
        boolean unclean; // after an unclean election nothing is promised about this partition's records
        long told; // level two: the last log end that a leader reported to a consumer, and its leader epoch
        int toldIn = -1;
        final boolean[] cut; // lost records in a power failure, and has not reached `told` since
        final List<long[]> acks = new ArrayList<>(); // level two: offset and epoch of each acknowledged record

        Slot(int size) {
            has = new long[size];
            wiped = new boolean[size];
            excused = new boolean[size];
            place = new int[size];
            cut = new boolean[size];
        }
    }

    /** A promise that did not hold: in which respect, and after how many actions. */
    record Break(Promise promise, String what, int step) {
        String key() { return promise + " " + what; }
    }

    final int count;
    final Broker[] brokers;
    final Node[] nodes; // level two: the brokers themselves, else null
    final Kafka kafka;
    final Uuid[] ids = new Uuid[TOPICS];
    final Slot[] slots = new Slot[TOPICS * PARTS];
    final boolean[] isUncleanAllowed = new boolean[TOPICS];
    final List<Break> breaks = new ArrayList<>();
    private final Promises promises = new Promises(this);
    private final long[] epochs;
    int step;
    long looks; // how often the promises were checked, counting actions that wrote nothing
    boolean isOver;

    World(Op.Act cluster, Random random) {
        int[] n = cluster.n();
        count = n[0];
        brokers = new Broker[count + 1];
        epochs = new long[count + 1];
        kafka = new Kafka(random, Kafka.knowsElr() ? n[2] : 0, n[4], n[3]);
        for (int s = 0; s < slots.length; s++) slots[s] = new Slot(count + 1);
        nodes = cluster.op() == Op.WHOLE ? new Node[count + 1] : null;
        for (int b = 1; nodes != null && b <= count; b++) nodes[b] = new Node(this, b);
        for (int b = 1; b <= count; b++) {
            brokers[b] = new Broker();
            int dirs = (n[1] >> (b - 1) & 1) + 1;
            brokers[b].dirDown = new boolean[dirs];
            brokers[b].cordoned = new boolean[dirs];
            start(new int[] {b, 0});
            beat(new int[] {b});
        }
        for (int b = 1; nodes != null && b <= count; b++) while (nodes[b].hasNews()) nodes[b].news();
    }

    /** Runs an action and checks the promises. An error in replay stops a controller and the schedule. */
    void run(Op.Act act) {
        step++;
        long before = kafka.offset;
        try {
            act.op().run.accept(this, act.n());
        } catch (ApiException e) {
            kafka.clock.ms++;
        } catch (RuntimeException | Error e) {
            broken(Promises.isReplay(e) ? Promise.REPLAYED : Promise.ANSWERED, Promises.named(e));
            isOver |= Promises.isReplay(e);
        }
        if (isOver) return;
        if (nodes != null) whole(act.op() != Op.SETTLE);
        if (kafka.offset != before || act.op() == Op.FAIL_OVER || nodes != null) look();
        else looks++; // nothing was written, so nothing can have broken
        if (act.op() == Op.TIMER) promises.afterTimer();
    }

    void broken(Promise promise, String what) {
        for (Break known : breaks) {
            if (known.promise == promise && known.what.equals(what)) return;
        }
        breaks.add(new Break(promise, what, step));
    }

    void answered(short code, Op op) {
        if (code == -1) broken(Promise.ANSWERED, "UNKNOWN_SERVER_ERROR for " + op.name().toLowerCase());
    }

    private void look() {
        looks++;
        refresh();
        promises.check();
    }

    /** Reads the stored states, and lets brokers delete the logs of replicas that they lost. */
    void refresh() {
        for (int s = 0; s < slots.length; s++) {
            Slot slot = slots[s];
            PartitionRegistration last = slot.state;
            Uuid id = ids[s / PARTS];
            slot.state = id == null ? null : kafka.replication.getPartition(id, s % PARTS);
            if (slot.state == null) continue;
            if (nodes != null) measure(slot, s);
            if (slot.state == last || nodes != null) continue;
            for (int b = 1; b <= count; b++) dropped(slot, b);
        }
    }

    // Level two: the ghost's numbers are read from the logs

    static boolean hasAck(Node.Part part, long[] ack) {
        return part != null && Real.has(part.log, ack[0], (int) ack[1]);
    }

    private void measure(Slot slot, int s) {
        slot.acked = slot.acks.size();
        for (int b = 1; b <= count; b++) {
            Node.Part part = nodes[b].parts[s];
            slot.has[b] = slot.acks.stream().filter(ack -> hasAck(part, ack)).count();
            boolean isMember = brokers[b].up && holds(slot.state.isr, b);
            if (isMember && part != null && Real.end(part.log) >= slot.told) slot.cut[b] = false;
            if (!isMember || slot.has[b] < slot.acked) continue; // what it lost is not forgotten
            slot.wiped[b] = slot.excused[b] = false;
        }
    }

    /** Forgets the records that a new leader lacks, so that they are reported once; all after an unclean
     * election: the leader may only now learn that it was removed in between, and begin with an empty log. */
    void forget(Slot slot, int leader) {
        if (nodes == null) return;
        Node.Part part = nodes[leader].parts[Arrays.asList(slots).indexOf(slot)];
        slot.acks.removeIf(ack -> slot.unclean || !hasAck(part, ack));
        if (slot.cut[leader] && !kafka.isElr()) slot.told = Math.min(slot.told, part == null ? 0 : Real.end(part.log));
    }

    private void whole(boolean isOne) {
        for (int b = 1; b <= count; b++) if (nodes[b].isUp()) nodes[b].acknowledge();
        for (int b = 1; b <= count; b++) promises.broker(nodes[b], isOne);
    }

    void produce(int[] n) { nodes[n[2]].produce(n[0] * PARTS + n[1]); }
    void fetch(int[] n) { nodes[n[2]].fetch(n[0] * PARTS + n[1]); }
    void fetched(int[] n) { nodes[n[2]].fetched(n[0] * PARTS + n[1]); }
    void news(int[] n) { if (nodes[n[0]].hasNews()) nodes[n[0]].news(); }
    void check(int[] n) { if (nodes[n[0]].isUp()) nodes[n[0]].check(); }

    /** Time passes: replicas that do not fetch fall behind, put-off requests are sent, no session expires. */
    void pass(int[] n) {
        kafka.expire(0);
        for (int b = 1; b <= count; b++) if (nodes[b].isUp()) nodes[b].putOff();
    }

    void save(int[] n) {
        for (Node.Part part : nodes[n[0]].parts) if (part != null && nodes[n[0]].isUp()) Node.save(part);
    }

    /** Every message arrives and every replica fetches, for twelve rounds. */
    private void quiet() {
        for (int round = 0; round < 12; round++) {
            if (round % 3 == 2) pass(new int[0]);
            for (int b = 1; b <= count; b++) {
                Node node = nodes[b];
                while (node.hasNews()) node.news();
                beat(new int[] {b});
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

    private void dropped(Slot slot, int b) {
        if (!brokers[b].up || holds(slot.state.replicas, b)) return;
        slot.has[b] = 0;
        slot.wiped[b] = false;
        slot.place[b] = brokers[b].epoch % 2 == 0 ? 0 : brokers[b].dirDown.length - 1;
    }

    static boolean holds(int[] ids, int id) {
        for (int x : ids) if (x == id) return true;
        return false;
    }

    Slot slot(int[] at) { return slots[at[0] * PARTS + at[1]]; }

    private PartitionRegistration state(int[] at) {
        PartitionRegistration state = slot(at).state;
        if (state == null) throw new org.apache.kafka.common.errors.UnknownTopicOrPartitionException();
        return state;
    }

    boolean hasDirectories() {
        return Late.has(kafka.version(), "isDirectoryAssignmentSupported")
            && Late.<Boolean>call(kafka.version(), "isDirectoryAssignmentSupported");
    }

    boolean isUnfenced(int b) {
        BrokerRegistration registration = kafka.brokers().get(b);
        return registration != null && !registration.fenced();
    }

    private boolean works(Slot slot, int b) {
        return brokers[b].up && !brokers[b].dirDown[slot.place[b]];
    }

    private boolean leads(int[] at) {
        PartitionRegistration state = state(at);
        return state.leader >= 0 && works(slot(at), state.leader);
    }

    // Brokers

    void start(int[] n) {
        Broker broker = brokers[n[0]];
        if (broker.up) return;
        boolean[] down = n[1] == 1 ? broker.dirDown.clone() : new boolean[broker.dirDown.length];
        List<Uuid> online = new ArrayList<>();
        for (int d = 0; d < down.length; d++) if (!down[d]) online.add(directory(n[0], d));
        if (online.isEmpty()) return;
        long epoch = kafka.register(n[0], new Uuid(n[0], ++broker.incarnation),
            broker.wasClean ? broker.epoch : -1, online);
        broker.epoch = epochs[n[0]] = epoch;
        broker.up = true;
        broker.wasClean = false;
        broker.stopping = false;
        broker.dirDown = down;
        if (nodes != null) nodes[n[0]].start(epoch);
        refresh();
        for (Slot slot : slots) {
            if (slot.state == null) continue;
            if (nodes == null) dropped(slot, n[0]);
            if (slot.wiped[n[0]] && !kafka.isElr()) slot.excused[n[0]] = true;
        }
    }

    static Uuid directory(int broker, int number) {
        return new Uuid(1_000 + broker, 1_000 + number);
    }

    void beat(int[] n) {
        Broker broker = brokers[n[0]];
        if (!broker.up) return;
        boolean[] reply = kafka.beat(n[0], broker.epoch, broker.stopping, listed(n[0], broker.dirDown),
            listed(n[0], broker.cordoned), nodes == null ? kafka.offset : kafka.ends.get(nodes[n[0]].at - 1));
        if (!broker.stopping || !reply[2]) return;
        if (nodes != null) nodes[n[0]].stop(true);
        broker.up = broker.stopping = false;
        broker.wasClean = true;
    }

    private static List<Uuid> listed(int b, boolean[] which) {
        List<Uuid> found = new ArrayList<>();
        for (int d = 0; d < which.length; d++) if (which[d]) found.add(directory(b, d));
        return found;
    }

    void stop(int[] n) {
        brokers[n[0]].stopping = brokers[n[0]].up;
        beat(n);
    }

    void kill(int[] n) {
        brokers[n[0]].up = brokers[n[0]].stopping = false;
        brokers[n[0]].wasClean = false;
        if (nodes != null) nodes[n[0]].stop(false);
    }

    /** The machine loses power: what was not flushed is gone (at level one, the whole log). */
    void power(int[] n) {
        if (!brokers[n[0]].up) return;
        kill(n);
        for (int s = 0; s < slots.length; s++) {
            Slot slot = slots[s];
            if (nodes != null && !nodes[n[0]].losePower(s)) continue;
            if (slot.state == null || nodes == null && slot.has[n[0]] == 0) continue;
            slot.cut[n[0]] = true;
            slot.has[n[0]] = 0;
            slot.wiped[n[0]] = true;
        }
    }

    void expire(int[] n) { kafka.expire(n[0]); }
    void unregister(int[] n) { kafka.unregister(n[0]); }

    void failDir(int[] n) {
        Broker broker = brokers[n[0]];
        if (!broker.up || n[1] >= broker.dirDown.length) return;
        assign(n);
        refresh();
        broker.dirDown[n[1]] = true;
        for (boolean down : broker.dirDown) {
            if (down) continue;
            beat(n);
            return;
        }
        kill(n);
    }

    void cordon(int[] n) {
        Broker broker = brokers[n[0]];
        if (n[1] >= broker.cordoned.length) return;
        broker.cordoned[n[1]] = !broker.cordoned[n[1]];
        beat(n);
    }

    /** The broker reports in which directory each of its replicas is. */
    void assign(int[] n) {
        Broker broker = brokers[n[0]];
        if (!broker.up || !hasDirectories() || broker.dirDown.length < 2) return;
        Map<Uuid, Map<Uuid, List<Integer>>> places = new HashMap<>();
        for (int s = 0; s < slots.length; s++) {
            Slot slot = slots[s];
            if (slot.state == null || !holds(slot.state.replicas, n[0])) continue;
            places.computeIfAbsent(directory(n[0], slot.place[n[0]]), x -> new HashMap<>())
                .computeIfAbsent(ids[s / PARTS], x -> new ArrayList<>()).add(s % PARTS);
        }
        if (!places.isEmpty()) kafka.assign(n[0], broker.epoch, places);
    }

    void move(int[] n) {
        Slot slot = slot(n);
        state(n);
        Broker broker = brokers[n[2]];
        if (!broker.up || n[3] >= broker.dirDown.length || broker.dirDown[slot.place[n[2]]]) return;
        if (broker.dirDown[n[3]]) return;
        slot.place[n[2]] = n[3];
        assign(new int[] {n[2]});
    }

    // Topics

    void create(int[] n) {
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
        answered(kafka.create("t" + n[0], replicas, settings), Op.CREATE);
        ids[n[0]] = kafka.idOf("t" + n[0]);
        for (int p = 0; p < PARTS; p++) slots[n[0] * PARTS + p] = new Slot(count + 1);
    }

    void delete(int[] n) {
        if (ids[n[0]] == null) return;
        answered(kafka.delete(ids[n[0]]), Op.DELETE);
        ids[n[0]] = kafka.idOf("t" + n[0]);
    }

    void grow(int[] n) {
        int parts = 0;
        while (parts < PARTS && slots[n[0] * PARTS + parts].state != null) parts++;
        if (parts == 0 || parts == PARTS) return;
        slots[n[0] * PARTS + parts] = new Slot(count + 1);
        List<Integer> replicas = Arrays.stream(n).skip(1).boxed().toList();
        answered(kafka.grow("t" + n[0], parts + 1, replicas), Op.GROW);
    }

    /** Writes an acknowledged record, if the whole ISR works and is large enough for the leader. */
    void write(int[] n) {
        if (!leads(n)) return;
        Slot slot = slot(n);
        PartitionRegistration state = state(n);
        if (state.isr.length < kafka.minIsr("t" + n[0], state.replicas.length)) return;
        for (int b : state.isr) if (!works(slot, b)) return;
        long end = Math.max(slot.acked, slot.has[state.leader]) + 1;
        for (int b : state.isr) slot.has[b] = end;
        slot.acked = end;
    }

    /** A replica catches up, and its leader asks to add it to the ISR. */
    void join(int[] n) {
        if (!leads(n) || !works(slot(n), n[2]) || !holds(state(n).replicas, n[2])) return;
        Slot slot = slot(n);
        slot.has[n[2]] = slot.has[slot.state.leader];
        slot.wiped[n[2]] = slot.excused[n[2]] = false;
        if (holds(slot.state.isr, n[2])) return;
        int[] isr = Arrays.copyOf(slot.state.isr, slot.state.isr.length + 1);
        isr[isr.length - 1] = n[2];
        answered(kafka.alter(ids[n[0]], n[1], slot.state, epochs, isr), Op.JOIN);
    }

    void shrink(int[] n) {
        if (!leads(n) || n[2] == state(n).leader || !holds(state(n).isr, n[2])) return;
        int[] isr = Arrays.stream(state(n).isr).filter(b -> b != n[2]).toArray();
        answered(kafka.alter(ids[n[0]], n[1], state(n), epochs, isr), Op.SHRINK);
    }

    void reassign(int[] n) {
        slot(n).before = state(n).replicas.clone();
        List<Integer> replicas = Arrays.stream(n).skip(2).boxed().toList();
        answered(kafka.reassign("t" + n[0], n[1], replicas), Op.REASSIGN);
    }

    void cancel(int[] n) {
        state(n);
        answered(kafka.reassign("t" + n[0], n[1], List.of()), Op.CANCEL);
    }

    void elect(int[] n, boolean unclean) {
        state(n);
        answered(kafka.elect("t" + n[0], n[1], unclean), unclean ? Op.UNCLEAN : Op.PREFERRED);
    }

    void topicMin(int[] n) {
        if (ids[n[0]] == null) return;
        String value = n[1] == 0 ? "" : "" + n[1];
        answered(kafka.configure("t" + n[0], Kafka.MIN_ISR, value), Op.TOPIC_MIN);
    }

    void clusterMin(int[] n) {
        answered(kafka.configure("", Kafka.MIN_ISR, "" + n[0]), Op.CLUSTER_MIN);
    }

    void topicUnclean(int[] n) {
        if (ids[n[0]] == null) return;
        isUncleanAllowed[n[0]] = n[1] == 1;
        answered(kafka.configure("t" + n[0], Kafka.UNCLEAN, n[1] == 1 ? "true" : ""), Op.TOPIC_UNCLEAN);
    }

    void elr(int[] n) { if (Kafka.knowsElr()) kafka.feature(Kafka.ELR, n[0], n[0] == 1); }

    void failOver(int[] n) {
        Map<Integer, BrokerRegistration> before = new HashMap<>(kafka.brokers());
        try {
            kafka.failOver(n[0] == 1 && Kafka.hasWriter());
        } catch (RuntimeException e) {
            broken(Promise.RELOADED, Promises.named(e));
            isOver = true;
            return;
        }
        promises.reloaded(before);
    }

    /** All brokers come back and all replicas catch up: then nothing may remain to be done. */
    void settle(int[] n) {
        for (int b = 1; b <= count; b++) {
            Broker broker = brokers[b];
            boolean isKnown = broker.up && kafka.brokers().containsKey(b) && !broker.stopping
                && kafka.brokers().get(b).epoch() == broker.epoch && listed(b, broker.dirDown).isEmpty();
            if (!isKnown) {
                kill(new int[] {b});
                kafka.expire(b);
                look();
                start(new int[] {b, 0});
                look();
            }
            Arrays.fill(broker.cordoned, false);
            beat(new int[] {b});
            look();
            beat(new int[] {b});
            look();
            assign(new int[] {b});
        }
        if (nodes != null) quiet();
        for (int round = 0; round < 3 && nodes == null; round++) {
            for (int s = 0; s < slots.length; s++) {
                look();
                if (slots[s].state != null) catchUp(new int[] {s / PARTS, s % PARTS});
            }
        }
        look();
        promises.settled();
    }

    private void catchUp(int[] at) {
        if (!leads(at)) return;
        Slot slot = slot(at);
        for (int b : slot.state.replicas) slot.has[b] = slot.has[slot.state.leader];
        Arrays.fill(slot.wiped, false);
        kafka.alter(ids[at[0]], at[1], slot.state, epochs, slot.state.replicas);
    }
}
