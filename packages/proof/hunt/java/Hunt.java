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
    private final long start = now();
    private final boolean isWhole;
    private long steps;
    private long schedules;

    private Hunt(boolean isWhole) { this.isWhole = isWhole; }

    public static void main(String[] args) {
        if (args[0].equals("replay")) {
            new BufferedReader(new InputStreamReader(System.in)).lines().forEach(x -> replay(x, args.length > 1));
        } else {
            new Hunt(args.length > 4)
                .hunt(Long.parseLong(args[1]), Double.parseDouble(args[2]), Long.parseLong(args[3]));
        }
    }

    private static void replay(String line, boolean isLoud) {
        List<Op.Act> acts = Arrays.stream(line.split(";")).map(Op::parse).toList();
        World world = new World(acts.get(0));
        for (Op.Act act : acts) {
            int shown = world.breaks.size();
            if (act != acts.get(0)) world.run(act);
            if (isLoud) {
                System.out.println("  " + act + "  " + joined("", world.live, World.Slot::shown));
                world.breaks.stream().skip(shown).forEach(x -> System.out.println("    BROKEN " + x.key()));
            }
            if (world.isOver) break;
        }
        System.out.println("replayed\t" + joined("\t", world.breaks, World.Break::key));
    }

    private static <T> String joined(String between, List<T> all, java.util.function.Function<T, String> text) {
        return all.stream().map(text).collect(Collectors.joining(between));
    }

    private void hunt(long seed, double seconds, long most) {
        long shown = start;
        while (seconds() < seconds && schedules < most) {
            schedule(new Draw(seed * 1_000_003 + schedules++));
            if (now() - shown < 2_000_000_000L) continue;
            shown = now();
            progress();
        }
        progress();
    }

    private void progress() { System.out.println("progress\t" + schedules + "\t" + steps + "\t" + seconds()); }

    /** The processor time of this thread, as the machine may have other work. */
    private static long now() {
        return java.lang.management.ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    private double seconds() { return (now() - start) / 1e9; }

    /** Runs one schedule with some kinds of actions only, so that rare actions occur together. */
    private void schedule(Draw draw) {
        int count = isWhole ? draw.from(2, 3, 3, 3, 4) : draw.from(2, 3, 3, 4, 4, 5);
        int elr = draw.chance(0.85) ? 1 : 0;
        int dirs = isWhole || draw.chance(0.5) ? 0 : draw.nextInt(1 << count);
        List<Op.Act> acts = new ArrayList<>();
        acts.add(new Op.Act(isWhole ? Op.WHOLE : Op.CLUSTER, count, dirs, elr, draw.from(1, 1, 2), -1));
        World world = draw.w = new World(acts.get(0));
        List<Op> pool = pool(draw);
        int length = isWhole ? 60 + draw.nextInt(200) : 15 + draw.nextInt(40);
        Map<List<Object>, Double> shares = new HashMap<>(); // the share of each drawn action that is kept
        for (int i = 0; i <= length && !world.isOver; i++) {
            Op op = i == 0 ? Op.CREATE : i == length ? Op.SETTLE : pool.get(draw.nextInt(pool.size()));
            int[] n = op.draw.apply(draw);
            if (n == null) continue;
            List<Object> what = List.of(op, n.length == 0 ? 0 : n[n.length - 1]);
            if (isWhole && i < length && !draw.chance(shares.computeIfAbsent(what,
                x -> draw.chance(op == Op.NEWS ? 0.5 : 0.25) ? 0.08 : 1))) continue;
            acts.add(new Op.Act(op, n));
            world.run(acts.get(acts.size() - 1));
        }
        steps += world.looks;
        for (World.Break broken : world.breaks) found(broken, acts, draw);
    }

    private List<Op> pool(Draw draw) {
        List<Op> pool = new ArrayList<>();
        double share = isWhole && draw.chance(0.5) ? 0.15 : 0.4 + 0.6 * draw.nextDouble();
        for (Op op : Op.values()) {
            if (isWhole ? op.isOfControllerOnly() : op.isOfBrokers()) continue;
            boolean isBasic = op == Op.CREATE || op == Op.BEAT || op == Op.START || op.isOfBrokers();
            if (!isBasic && !draw.chance(share)) continue;
            int weight = draw.chance(0.2) ? op.weight * 3 : op.weight;
            if (isWhole && !op.isOfBrokers()) weight = (weight + 3) / 4;
            pool.addAll(Collections.nCopies(weight, op));
        }
        return pool;
    }

    private void found(World.Break broken, List<Op.Act> acts, Draw draw) {
        String key = broken.key();
        int hit = hits.merge(key, 1, Integer::sum);
        if (hit > MOST_CUTS && !draw.chance(MOST_CUTS / 4.0 / hit)) return;
        List<Op.Act> cut = cut(acts.subList(0, Math.min(acts.size(), broken.step() + 1)), key);
        String shape = cut.stream().skip(1).map(a -> a.op().name()).sorted().collect(Collectors.joining(" "));
        List<String> known = shapes.computeIfAbsent(key, x -> new ArrayList<>());
        if (known.stream().anyMatch(other -> IS_PATIENT ? other.equals(shape) : isWithin(other, shape))) return;
        known.add(shape);
        String root = ran(cut).breaks.get(0).key(); // the first promise that the shortest schedule breaks
        System.out.println(String.join("\t", "break", key, root, "" + schedules, "" + steps,
            String.format("%.1f", seconds()), joined("; ", cut, Op.Act::toString)));
        System.out.flush();
    }

    /** Whether each action of the first shape is among those of the second. */
    private static boolean isWithin(String first, String second) {
        List<String> rest = new ArrayList<>(List.of(second.split(" ")));
        return Arrays.stream(first.split(" ")).allMatch(rest::remove);
    }

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
    private static List<Op.Act> cut(List<Op.Act> acts, String key) {
        List<Op.Act> now = acts;
        for (int size = Math.max(1, now.size() / 2); size >= 1; size /= 2) {
            for (int at = now.size() - size; at >= 1; at--) {
                if (at + size > now.size()) continue;
                List<Op.Act> less = replaced(now, at, size, List.of());
                if (breaks(less, key)) now = less;
            }
        }
        for (int i = 0; i < now.size(); i++) {
            for (List<Op.Act> simpler : simpler(now.get(i))) {
                List<Op.Act> less = replaced(now, i, 1, simpler);
                if (!breaks(less, key)) continue;
                now = less;
                i = -1; // from the first action again
                break;
            }
        }
        return now;
    }

    private static List<Op.Act> replaced(List<Op.Act> acts, int at, int size, List<Op.Act> others) {
        List<Op.Act> all = new ArrayList<>(acts.subList(0, at));
        all.addAll(others);
        all.addAll(acts.subList(at + size, acts.size()));
        return all;
    }

    /** What may stand in place of an action: nothing, or the action with simpler numbers. */
    private static List<List<Op.Act>> simpler(Op.Act act) {
        List<List<Op.Act>> all = new ArrayList<>();
        int[] n = act.n();
        if (act.op() == Op.CLUSTER || act.op() == Op.WHOLE) {
            if (n[0] > 1) all.add(act.with(0, n[0] - 1));
            for (int b = 0; b < n[0]; b++) if ((n[1] >> b & 1) == 1) all.add(act.with(1, n[1] & ~(1 << b)));
            if (n[2] == 1) all.add(act.with(2, 0));
            if (n[3] > 1) all.add(act.with(3, 1));
            return all;
        }
        all.add(List.of());
        if (act.op() == Op.POWER) all.add(List.of(new Op.Act(Op.KILL, n)));
        if (act.op() == Op.CREATE && n[2] > 0) all.add(act.with(2, 0));
        int from = act.op() == Op.CREATE ? 3 : act.op() == Op.REASSIGN ? 2 : n.length;
        boolean isOneList = Arrays.stream(n).skip(from).noneMatch(x -> x == 0);
        for (int i = n.length - 1; i >= from; i--) if (n[i] == 0) all.add(act.kept(IntStream.range(0, i)));
        for (int i = from; isOneList && n.length - from > 1 && i < n.length; i++) {
            int out = i;
            all.add(act.kept(IntStream.range(0, n.length).filter(x -> x != out)));
        }
        return all;
    }
}
