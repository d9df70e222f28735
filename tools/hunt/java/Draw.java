package org.apache.kafka.controller;

import java.util.*;
import java.util.function.IntPredicate;

/** Draws the numbers of actions that fit the present state; null if an action makes no sense now. */
final class Draw {
    private Draw() { }

    static boolean chance(Random r, double p) { return r.nextDouble() < p; }
    static int from(Random r, int... values) { return values[r.nextInt(values.length)]; }
    static int[] nothing(World w, Random r) { return new int[0]; }

    private static int[] broker(World w, Random r, IntPredicate fits) {
        int[] ids = java.util.stream.IntStream.rangeClosed(1, w.count).filter(fits).toArray();
        return ids.length == 0 ? null : new int[] {from(r, ids)};
    }

    static int[] up(World w, Random r) { return broker(w, r, b -> w.brokers[b].up); }

    static int[] registered(World w, Random r) {
        return broker(w, r, b -> w.isUnfenced(b) && (!w.brokers[b].up || chance(r, 0.5)));
    }

    static int[] start(World w, Random r) {
        int[] b = broker(w, r, x -> !w.brokers[x].up);
        return b == null ? null : new int[] {b[0], r.nextInt(2)};
    }

    static int[] unregister(World w, Random r) {
        return broker(w, r, b -> w.kafka.brokers().containsKey(b) && (!w.brokers[b].up || chance(r, 0.1)));
    }

    static int[] dir(World w, Random r) {
        int[] b = up(w, r);
        return b == null || !w.hasDirectories() ? null
            : new int[] {b[0], r.nextInt(w.brokers[b[0]].dirDown.length)};
    }

    private static int[] replicas(World w, Random r, int size) {
        List<Integer> ids = new ArrayList<>();
        for (int b = 1; b <= w.count; b++) ids.add(b);
        java.util.Collections.shuffle(ids, r);
        return ids.stream().limit(size).mapToInt(x -> x).toArray();
    }

    static int[] create(World w, Random r) {
        int t = w.nodes != null && chance(r, 0.95) ? 0 : r.nextInt(World.TOPICS);
        if (w.ids[t] != null) return null;
        int size = Math.min(w.count, from(r, 1, 2, 2, 3, 3, 3));
        int parts = w.nodes != null && chance(r, 0.8) ? 1 : from(r, 1, 1, 2);
        int[] n = {t, from(r, 0, 1, 2, 2, 2, 3), from(r, 0, 0, 0, 1)};
        for (int p = 0; p < parts; p++) n = joined(n, p > 0 ? new int[] {0} : new int[0], replicas(w, r, size));
        return n;
    }

    private static int[] joined(int[]... parts) {
        return Arrays.stream(parts).flatMapToInt(Arrays::stream).toArray();
    }

    static int[] topic(World w, Random r) {
        int t = r.nextInt(World.TOPICS);
        return w.ids[t] == null ? null : new int[] {t};
    }

    static int[] partition(World w, Random r) {
        int[] there = java.util.stream.IntStream.range(0, w.slots.length)
            .filter(s -> w.slots[s].state != null).toArray();
        if (there.length == 0) return null;
        int slot = from(r, there);
        return new int[] {slot / World.PARTS, slot % World.PARTS};
    }

    static int[] reassigning(World w, Random r) {
        int[] at = partition(w, r);
        if (at == null) return null;
        var state = w.slot(at).state;
        return state.addingReplicas.length + state.removingReplicas.length == 0 ? null : at;
    }

    // Level two

    private static int[] replica(World w, Random r, java.util.function.BiPredicate<Node, Integer> fits) {
        int[] at = partition(w, r);
        int[] b = at == null ? null : broker(w, r, x -> fits.test(w.nodes[x], at[0] * World.PARTS + at[1]));
        return b == null ? null : joined(at, b);
    }

    static int[] leading(World w, Random r) { return replica(w, r, Node::leads); }

    static int[] following(World w, Random r) {
        return replica(w, r, (n, s) -> n.isUp() && n.parts[s] != null && n.parts[s].leader > 0 && !n.leads(s));
    }

    static int[] fetching(World w, Random r) {
        return replica(w, r, (n, s) -> n.parts[s] != null && n.parts[s].fetch != null);
    }

    static int[] behind(World w, Random r) { return broker(w, r, b -> w.nodes[b].hasNews()); }
    static int[] asking(World w, Random r) {
        return broker(w, r, b -> w.nodes[b].asked != null && w.nodes[b].answer == null);
    }
    static int[] answered(World w, Random r) { return broker(w, r, b -> w.nodes[b].answer != null); }

    static int[] grow(World w, Random r) {
        int[] t = topic(w, r);
        if (t == null) return null;
        var first = w.slots[t[0] * World.PARTS].state;
        return first == null ? null : joined(t, replicas(w, r, first.replicas.length));
    }

    /** A replica that is not in the ISR and whose broker is up. */
    static int[] join(World w, Random r) {
        int[] at = partition(w, r);
        if (at == null) return null;
        int[] b = broker(w, r, x -> w.brokers[x].up && World.holds(w.slot(at).state.replicas, x)
            && !World.holds(w.slot(at).state.isr, x));
        return b == null ? null : joined(at, b);
    }

    static int[] shrink(World w, Random r) {
        int[] at = partition(w, r);
        if (at == null) return null;
        var state = w.slot(at).state;
        int[] b = broker(w, r, x -> World.holds(state.isr, x) && x != state.leader);
        return b == null ? null : joined(at, b);
    }

    /** The replicas before the last reassignment, random ones, or the present ones with one changed. */
    static int[] reassign(World w, Random r) {
        int[] at = partition(w, r);
        if (at == null) return null;
        var state = w.slot(at).state;
        int[] was = w.slot(at).before;
        if (was != null && chance(r, 0.4)) return joined(at, was);
        if (chance(r, 0.4)) return joined(at, replicas(w, r, Math.min(w.count, 1 + r.nextInt(3))));
        int[] now = state.replicas.clone();
        if (chance(r, 0.5)) return joined(at, Arrays.copyOf(now, Math.max(1, now.length - 1)));
        int[] more = broker(w, r, x -> !World.holds(state.replicas, x));
        if (more == null) return joined(at, replicas(w, r, now.length));
        if (chance(r, 0.3)) return joined(at, now, more);
        now[r.nextInt(now.length)] = more[0];
        return joined(at, now);
    }

    static int[] topicMin(World w, Random r) {
        int[] t = topic(w, r);
        return t == null ? null : joined(t, new int[] {r.nextInt(4)});
    }

    static int[] clusterMin(World w, Random r) { return new int[] {1 + r.nextInt(3)}; }

    static int[] topicUnclean(World w, Random r) {
        int[] t = topic(w, r);
        return t == null ? null : joined(t, new int[] {r.nextInt(2)});
    }

    static int[] elr(World w, Random r) {
        return Kafka.knowsElr() ? new int[] {r.nextInt(2)} : null;
    }

    static int[] move(World w, Random r) {
        int[] at = partition(w, r);
        if (at == null || !w.hasDirectories()) return null;
        int[] b = broker(w, r, x -> w.brokers[x].up && w.brokers[x].dirDown.length > 1
            && World.holds(w.slot(at).state.replicas, x));
        return b == null ? null : joined(at, b, new int[] {r.nextInt(2)});
    }

    static int[] failOver(World w, Random r) {
        return new int[] {Kafka.hasWriter() ? r.nextInt(2) : 0};
    }
}
