package org.apache.kafka.controller;

import java.util.*;
import java.util.function.*;
import java.util.stream.IntStream;

/** Draws the numbers of actions that fit the present state; null if an action makes no sense now. */
final class Draw {
    private Draw() { }

    static boolean chance(Random r, double p) { return r.nextDouble() < p; }
    static int from(Random r, int... values) { return values[r.nextInt(values.length)]; }
    static int[] nothing(World w, Random r) { return new int[0]; }

    private static int[] joined(int[]... parts) {
        return Arrays.stream(parts).flatMapToInt(Arrays::stream).toArray();
    }

    /** These numbers and those that belong to them, or null if there are none. */
    private static int[] with(int[] first, Function<int[], int[]> more) {
        int[] rest = first == null ? null : more.apply(first);
        return rest == null ? null : joined(first, rest);
    }

    private static int[] number(Random r, int bound) { return new int[] {r.nextInt(bound)}; }

    private static int[] one(Random r, IntStream fitting) {
        int[] ids = fitting.toArray();
        return ids.length == 0 ? null : new int[] {from(r, ids)};
    }

    private static int[] broker(World w, Random r, IntPredicate fits) {
        return one(r, IntStream.rangeClosed(1, w.count).filter(fits));
    }

    static int[] up(World w, Random r) { return broker(w, r, b -> w.brokers[b].up); }

    static int[] registered(World w, Random r) {
        return broker(w, r, b -> w.isUnfenced(b) && (!w.brokers[b].up || chance(r, 0.5)));
    }

    static int[] start(World w, Random r) {
        return with(broker(w, r, b -> !w.brokers[b].up), b -> number(r, 2));
    }

    static int[] unregister(World w, Random r) {
        return broker(w, r, b -> w.kafka.brokers().containsKey(b) && (!w.brokers[b].up || chance(r, 0.1)));
    }

    static int[] dir(World w, Random r) {
        return with(up(w, r), b -> w.hasDirectories() ? number(r, w.brokers[b[0]].dirDown.length) : null);
    }

    private static int[] replicas(World w, Random r, int size) {
        List<Integer> ids = new ArrayList<>(IntStream.rangeClosed(1, w.count).boxed().toList());
        Collections.shuffle(ids, r);
        return ids.stream().limit(size).mapToInt(x -> x).toArray();
    }

    static int[] create(World w, Random r) {
        int t = w.nodes != null && chance(r, 0.95) ? 0 : r.nextInt(World.TOPICS);
        if (w.ids[t] != null) return null;
        int size = Math.min(w.count, from(r, 1, 2, 2, 3, 3, 3));
        int parts = w.nodes != null && chance(r, 0.8) ? 1 : from(r, 1, 1, 2);
        int[] n = {t, from(r, 0, 1, 2, 2, 2, 3), from(r, 0, 0, 0, 1)};
        for (int p = 0; p < parts; p++) n = joined(n, new int[Math.min(p, 1)], replicas(w, r, size));
        return n;
    }

    static int[] topic(World w, Random r) {
        int[] t = number(r, World.TOPICS);
        return w.ids[t[0]] == null ? null : t;
    }

    static int[] partition(World w, Random r) {
        int[] slot = one(r, w.live.stream().mapToInt(x -> x.s));
        return slot == null ? null : new int[] {slot[0] / World.PARTS, slot[0] % World.PARTS};
    }

    static int[] reassigning(World w, Random r) {
        int[] at = partition(w, r);
        return at == null || !w.slot(at).isMoving() ? null : at;
    }

    static int[] grow(World w, Random r) {
        return with(topic(w, r), t -> {
            var first = w.slots[t[0] * World.PARTS].state;
            return first == null ? null : replicas(w, r, first.replicas.length);
        });
    }

    /** A broker for one of the partitions. */
    private static int[] replica(World w, Random r, BiPredicate<World.Slot, Integer> fits) {
        return with(partition(w, r), at -> broker(w, r, b -> fits.test(w.slot(at), b)));
    }

    /** A replica that is not in the ISR and whose broker is up. */
    static int[] join(World w, Random r) {
        return replica(w, r, (slot, b) -> w.brokers[b].up && World.holds(slot.state.replicas, b)
            && !World.holds(slot.state.isr, b));
    }

    static int[] shrink(World w, Random r) {
        return replica(w, r, (slot, b) -> World.holds(slot.state.isr, b) && b != slot.state.leader);
    }

    /** The replicas before the last reassignment, random ones, or the present ones with one changed. */
    static int[] reassign(World w, Random r) {
        return with(partition(w, r), at -> {
            int[] now = w.slot(at).state.replicas.clone();
            int[] was = w.slot(at).before;
            if (was != null && chance(r, 0.4)) return was;
            if (chance(r, 0.4)) return replicas(w, r, Math.min(w.count, 1 + r.nextInt(3)));
            if (chance(r, 0.5)) return Arrays.copyOf(now, Math.max(1, now.length - 1));
            int[] more = broker(w, r, x -> !World.holds(now, x));
            if (more == null) return replicas(w, r, now.length);
            if (chance(r, 0.3)) return joined(now, more);
            now[r.nextInt(now.length)] = more[0];
            return now;
        });
    }

    static int[] topicMin(World w, Random r) { return with(topic(w, r), t -> number(r, 4)); }

    static int[] clusterMin(World w, Random r) { return new int[] {1 + r.nextInt(3)}; }

    static int[] topicUnclean(World w, Random r) { return with(topic(w, r), t -> number(r, 2)); }

    static int[] elr(World w, Random r) { return Kafka.knowsElr() ? number(r, 2) : null; }

    static int[] move(World w, Random r) {
        return with(replica(w, r, (slot, b) -> w.hasDirectories() && w.brokers[b].up
            && w.brokers[b].dirDown.length > 1 && World.holds(slot.state.replicas, b)), x -> number(r, 2));
    }

    static int[] failOver(World w, Random r) { return Kafka.hasWriter() ? number(r, 2) : new int[1]; }

    // Level two

    static int[] leading(World w, Random r) { return replica(w, r, (slot, b) -> w.nodes[b].leads(slot.s)); }

    static int[] following(World w, Random r) {
        return replica(w, r, (slot, b) -> w.nodes[b].follows(slot.s));
    }

    static int[] fetching(World w, Random r) {
        return replica(w, r, (slot, b) -> w.nodes[b].parts[slot.s] != null && w.nodes[b].parts[slot.s].fetch != null);
    }

    static int[] behind(World w, Random r) { return broker(w, r, b -> w.nodes[b].hasNews()); }

    static int[] asking(World w, Random r) {
        return broker(w, r, b -> w.nodes[b].asked != null && w.nodes[b].answer == null);
    }

    static int[] answered(World w, Random r) { return broker(w, r, b -> w.nodes[b].answer != null); }
}
