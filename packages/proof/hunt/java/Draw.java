package org.apache.kafka.controller;

import java.util.*;
import java.util.function.*;
import java.util.stream.IntStream;

/** Draws the numbers of actions that fit the present state; null if an action makes no sense now. */
final class Draw extends Random {
    World w; // the state of the schedule that is drawn

    Draw(long seed) { super(seed); }

    boolean chance(double p) { return nextDouble() < p; }
    int from(int... values) { return values[nextInt(values.length)]; }
    int[] nothing() { return new int[0]; }
    private int[] number(int bound) { return new int[] {nextInt(bound)}; }

    private static int[] joined(int[]... parts) {
        return Arrays.stream(parts).flatMapToInt(Arrays::stream).toArray();
    }

    /** These numbers and those that belong to them, or null if there are none. */
    private static int[] with(int[] first, Function<int[], int[]> more) {
        int[] rest = first == null ? null : more.apply(first);
        return rest == null ? null : joined(first, rest);
    }

    // A broker that fits

    private int[] broker(IntPredicate fits) {
        int[] ids = IntStream.rangeClosed(1, w.count).filter(fits).toArray();
        return ids.length == 0 ? null : new int[] {from(ids)};
    }

    int[] up() { return broker(b -> w.nodes[b].up); }
    int[] start() { return with(broker(b -> !w.nodes[b].up), b -> number(2)); }
    int[] registered() { return broker(b -> w.isUnfenced(b) && (!w.nodes[b].up || chance(0.5))); }
    int[] unregister() { return broker(b -> w.kafka.brokers().containsKey(b) && (!w.nodes[b].up || chance(0.1))); }
    int[] takeOut() { return with(broker(b -> !w.nodes[b].up), b -> place(w.nodes[b[0]].dirDown)); }
    int[] putIn() { return with(broker(b -> !w.nodes[b].up), b -> place(w.nodes[b[0]].gone)); }

    /** The number of a directory that is in this state. */
    private int[] place(boolean[] state) {
        int[] fits = IntStream.range(0, state.length).filter(d -> state[d]).toArray();
        return fits.length == 0 ? null : new int[] {from(fits)};
    }

    int[] dir() { return with(up(), b -> w.hasDirectories() ? number(w.nodes[b[0]].dirDown.length) : null); }

    /** As many brokers, in any order. */
    private int[] replicas(int size) {
        List<Integer> ids = new ArrayList<>(IntStream.rangeClosed(1, w.count).boxed().toList());
        Collections.shuffle(ids, this);
        return ids.stream().limit(size).mapToInt(x -> x).toArray();
    }

    // A topic, or a partition of one, which exists

    int[] create() {
        int t = w.isWhole && chance(0.95) ? 0 : nextInt(World.TOPICS);
        if (w.ids[t] != null) return null;
        int size = Math.min(w.count, from(1, 2, 2, 3, 3, 3));
        int parts = w.isWhole && chance(0.8) ? 1 : from(1, 1, 2);
        int[] n = {t, from(0, 1, 2, 2, 2, 3), from(0, 0, 0, 1)};
        for (int p = 0; p < parts; p++) n = joined(n, new int[Math.min(p, 1)], replicas(size));
        return n;
    }

    int[] topic() {
        int t = nextInt(World.TOPICS);
        return w.ids[t] == null ? null : new int[] {t};
    }

    int[] grow() {
        return with(topic(), t -> {
            var first = w.slots[t[0] * World.PARTS].state;
            return first == null ? null : replicas(first.replicas.length);
        });
    }

    int[] partition() {
        if (w.live.isEmpty()) return null;
        World.Slot slot = w.live.get(nextInt(w.live.size()));
        return new int[] {slot.t, slot.p};
    }

    int[] reassigning() { return with(partition(), at -> w.slot(at).isMoving() ? nothing() : null); }

    /** The replicas before the last reassignment, random ones, or the present ones with one changed. */
    int[] reassign() {
        return with(partition(), at -> {
            int[] now = w.slot(at).state.replicas.clone();
            int[] was = w.slot(at).before;
            if (was != null && chance(0.4)) return was;
            if (chance(0.4)) return replicas(Math.min(w.count, 1 + nextInt(3)));
            if (chance(0.5)) return Arrays.copyOf(now, Math.max(1, now.length - 1));
            int[] more = broker(x -> !World.holds(now, x));
            if (more == null) return replicas(now.length);
            if (chance(0.3)) return joined(now, more);
            now[nextInt(now.length)] = more[0];
            return now;
        });
    }

    // A partition, and a broker that fits it

    private int[] replica(BiPredicate<World.Slot, Integer> fits) {
        return with(partition(), at -> broker(b -> fits.test(w.slot(at), b)));
    }

    /** A replica that is not in the ISR and whose broker is up. */
    int[] join() { return replica((slot, b) -> w.nodes[b].up && slot.isReplica(b) && !slot.isInSync(b)); }

    int[] shrink() { return replica((slot, b) -> slot.isInSync(b) && b != slot.state.leader); }

    int[] move() {
        return with(replica((slot, b) -> w.hasDirectories() && w.nodes[b].up
            && w.nodes[b].dirDown.length > 1 && slot.isReplica(b)), x -> number(2));
    }

    // Settings, features and controllers

    int[] topicMin() { return with(topic(), t -> number(4)); }
    int[] clusterMin() { return new int[] {1 + nextInt(3)}; }
    int[] topicUnclean() { return with(topic(), t -> number(2)); }
    int[] elr() { return Kafka.knowsElr() ? number(2) : null; }
    int[] failOver() { return Kafka.hasWriter() ? number(2) : new int[1]; }

    // Level two

    int[] leading() { return replica((slot, b) -> w.nodes[b].leads(slot.s)); }
    int[] following() { return replica((slot, b) -> w.nodes[b].follows(slot.s)); }
    int[] fetching() { return replica((slot, b) -> w.nodes[b].isFetching(slot.s)); }
    int[] behind() { return broker(b -> w.nodes[b].hasNews()); }
    int[] asking() { return broker(b -> w.nodes[b].isAsking()); }
    int[] answered() { return broker(b -> w.nodes[b].answer != null); }
}
