package org.apache.kafka.controller;

import java.io.*;
import java.util.*;
import java.util.stream.*;

/** Runs random schedules and shortens those that break a promise; or replays schedules. */
public final class Hunt {
    private static final boolean IS_PATIENT = Boolean.getBoolean("patient"); // also shows longer ones
    private static final int MOST_CUTS = IS_PATIENT ? 60 : 6;
    private final Map<String, List<String>> shapes = new HashMap<>();
    private final Map<String, Integer> hits = new HashMap<>();
    private long steps;
    private long schedules;
    private final Op level;

    private Hunt(Op level) { this.level = level; }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("replay")) {
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line; (line = lines.readLine()) != null; ) replay(line, args.length > 1);
        } else {
            new Hunt(args.length > 4 ? Op.WHOLE : Op.CLUSTER)
                .hunt(Long.parseLong(args[1]), Double.parseDouble(args[2]), Long.parseLong(args[3]));
        }
    }

    private static void replay(String line, boolean isLoud) {
        List<Op.Act> acts = Arrays.stream(line.split(";")).map(Op::parse).toList();
        World world = new World(acts.get(0));
        int shown = 0;
        for (Op.Act act : acts) {
            if (act != acts.get(0)) world.run(act);
            if (isLoud) System.out.println("  " + act + "  " + shown(world));
            for (; isLoud && shown < world.breaks.size(); shown++) {
                System.out.println("    BROKEN " + world.breaks.get(shown).key());
            }
            if (world.isOver) break;
        }
        String keys = world.breaks.stream().map(World.Break::key).collect(Collectors.joining("\t"));
        System.out.println("replayed\t" + keys);
    }

    private void hunt(long seed, double seconds, long most) {
        long start = now();
        long end = start + (long) (seconds * 1e9);
        long shown = start;
        while (now() < end && schedules < most) {
            schedule(new Random(seed * 1_000_003 + schedules++), start);
            if (now() - shown < 2_000_000_000L) continue;
            shown = now();
            progress(start);
        }
        progress(start);
    }

    private void progress(long start) {
        System.out.println("progress\t" + schedules + "\t" + steps + "\t" + seconds(start));
    }

    /** The processor time of this thread, as the machine may have other work. */
    private static long now() {
        return java.lang.management.ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    private static double seconds(long start) { return (now() - start) / 1e9; }

    /** Runs one schedule with some kinds of actions only, so that rare actions occur together. */
    private void schedule(Random random, long start) {
        boolean isWhole = level == Op.WHOLE;
        int count = isWhole ? Draw.from(random, 2, 3, 3, 3, 4) : Draw.from(random, 2, 3, 3, 4, 4, 5);
        int elr = Draw.chance(random, 0.85) ? 1 : 0;
        int dirs = isWhole || Draw.chance(random, 0.5) ? 0 : random.nextInt(1 << count);
        List<Op.Act> acts = new ArrayList<>();
        acts.add(new Op.Act(level, new int[] {count, dirs, elr, Draw.from(random, 1, 1, 2), -1}));
        World world = new World(acts.get(0));
        List<Op> pool = pool(random, level);
        int length = isWhole ? 60 + random.nextInt(200) : 15 + random.nextInt(40);
        Map<List<Object>, Double> shares = new HashMap<>(); // the share of each drawn action that is kept
        for (int i = 0; i < length && !world.isOver; i++) {
            Op op = i == 0 ? Op.CREATE : pool.get(random.nextInt(pool.size()));
            int[] n = op.draw.apply(world, random);
            if (n == null) continue;
            if (isWhole && !Draw.chance(random, shares.computeIfAbsent(List.of(op, n.length == 0 ? 0 : n[n.length - 1]),
                x -> Draw.chance(random, op == Op.NEWS ? 0.5 : 0.25) ? 0.08 : 1))) continue;
            acts.add(new Op.Act(op, n));
            world.run(acts.get(acts.size() - 1));
        }
        if (!world.isOver) {
            acts.add(new Op.Act(Op.SETTLE, new int[0]));
            world.run(acts.get(acts.size() - 1));
        }
        steps += world.looks;
        for (World.Break broken : world.breaks) found(broken, acts, start, random);
    }

    private static List<Op> pool(Random random, Op level) {
        List<Op> pool = new ArrayList<>();
        double share = level == Op.WHOLE && Draw.chance(random, 0.5) ? 0.15 : 0.4 + 0.6 * random.nextDouble();
        for (Op op : Op.values()) {
            if (level == Op.WHOLE ? op.isOfControllerOnly() : op.isOfBrokers()) continue;
            boolean isBasic = op == Op.CREATE || op == Op.BEAT || op == Op.START || op.isOfBrokers();
            if (!isBasic && !Draw.chance(random, share)) continue;
            int weight = Draw.chance(random, 0.2) ? op.weight * 3 : op.weight;
            if (level == Op.WHOLE && !op.isOfBrokers()) weight = (weight + 3) / 4;
            for (int i = 0; i < weight; i++) pool.add(op);
        }
        return pool;
    }

    private void found(World.Break broken, List<Op.Act> acts, long start, Random random) {
        String key = broken.key();
        int hit = hits.merge(key, 1, Integer::sum);
        if (hit > MOST_CUTS && !Draw.chance(random, MOST_CUTS / 4.0 / hit)) return;
        List<Op.Act> cut = cut(acts.subList(0, Math.min(acts.size(), broken.step() + 1)), key);
        String shape = cut.stream().skip(1).map(a -> a.op().name()).sorted().collect(Collectors.joining(" "));
        List<String> known = shapes.computeIfAbsent(key, x -> new ArrayList<>());
        for (String other : known) if (IS_PATIENT ? other.equals(shape) : isWithin(other, shape)) return;
        known.add(shape);
        System.out.println(String.join("\t", "break", key, first(cut), "" + schedules, "" + steps,
            String.format("%.1f", seconds(start)),
            cut.stream().map(Op.Act::toString).collect(Collectors.joining("; "))));
        System.out.flush();
    }

    /** Whether each action of the first shape is among those of the second. */
    private static boolean isWithin(String first, String second) {
        List<String> rest = new ArrayList<>(List.of(second.split(" ")));
        for (String word : first.split(" ")) if (!rest.remove(word)) return false;
        return true;
    }

    /** The first promise that the shortest schedule breaks: the root. */
    private static String first(List<Op.Act> acts) { return ran(acts).breaks.get(0).key(); }

    private static World ran(List<Op.Act> acts) {
        World world = new World(acts.get(0));
        for (int i = 1; i < acts.size() && !world.isOver; i++) world.run(acts.get(i));
        return world;
    }

    private static boolean breaks(List<Op.Act> acts, String key) {
        try {
            return ran(acts).breaks.stream().anyMatch(b -> b.key().equals(key));
        } catch (RuntimeException e) {
            return false;
        }
    }

    /** Removes actions, then simplifies those that are left, while the same promise is broken. */
    static List<Op.Act> cut(List<Op.Act> acts, String key) {
        List<Op.Act> now = new ArrayList<>(acts);
        for (int size = Math.max(1, now.size() / 2); size >= 1; size /= 2) {
            for (int at = now.size() - size; at >= 1; at--) {
                if (at + size > now.size()) continue;
                List<Op.Act> less = new ArrayList<>(now);
                less.subList(at, at + size).clear();
                if (breaks(less, key)) now = less;
            }
        }
        for (int i = 0; i < now.size(); i++) {
            for (Op.Act simpler : simpler(now.get(i))) {
                List<Op.Act> less = new ArrayList<>(now);
                if (simpler == null) less.remove(i);
                else less.set(i, simpler);
                if (!breaks(less, key)) continue;
                now = less;
                i = -1; // from the first action again
                break;
            }
        }
        return now;
    }

    private static List<Op.Act> simpler(Op.Act act) {
        List<Op.Act> found = new ArrayList<>();
        int[] n = act.n();
        if (act.op() == Op.CLUSTER || act.op() == Op.WHOLE) {
            if (n[0] > 1) found.add(with(act, 0, n[0] - 1));
            if (n[1] > 0) for (int b = 0; b < n[0]; b++) if ((n[1] >> b & 1) == 1) found.add(with(act, 1, n[1] & ~(1 << b)));
            if (n[2] == 1) found.add(with(act, 2, 0));
            if (n[3] > 1) found.add(with(act, 3, 1));
            return found;
        }
        found.add(null);
        if (act.op() == Op.POWER) found.add(new Op.Act(Op.KILL, n));
        int from = act.op() == Op.CREATE ? 3 : act.op() == Op.REASSIGN ? 2 : n.length;
        if (act.op() == Op.CREATE && n[2] > 0) found.add(with(act, 2, 0));
        for (int i = n.length - 1; i >= from; i--) {
            if (n[i] == 0) found.add(new Op.Act(act.op(), Arrays.copyOf(n, i)));
        }
        boolean isOneList = n.length - from > 1 && Arrays.stream(n).skip(from).noneMatch(x -> x == 0);
        for (int i = from; isOneList && i < n.length; i++) {
            int out = i;
            int[] less = IntStream.range(0, n.length).filter(x -> x != out).map(x -> n[x]).toArray();
            found.add(new Op.Act(act.op(), less));
        }
        return found;
    }

    private static Op.Act with(Op.Act act, int at, int value) {
        int[] n = act.n().clone();
        n[at] = value;
        return new Op.Act(act.op(), n);
    }

    /** The partitions, for a reader. */
    private static String shown(World world) {
        StringBuilder text = new StringBuilder();
        for (World.Slot slot : world.live) {
            var p = slot.state;
            text.append(String.format("[t%d-%d leader=%d epoch=%d isr=%s elr=%s replicas=%s +%s -%s acked=%d has=%s] ",
                slot.t, slot.p, p.leader, p.leaderEpoch, Arrays.toString(p.isr), Arrays.toString(slot.elr),
                Arrays.toString(p.replicas), Arrays.toString(p.addingReplicas), Arrays.toString(p.removingReplicas),
                slot.acked, Arrays.toString(slot.has)));
            for (int b = 1; world.nodes != null && b <= world.count; b++) text.append(world.nodes[b].shown(slot.s));
        }
        return text.toString();
    }
}
