package org.apache.kafka.controller;

import java.util.*;
import java.util.function.*;
import java.util.stream.*;

/** The actions of a schedule, each with its text, its weight, its draw of numbers, and its effect. */
enum Op {
    CLUSTER("cluster brokers=% two-dirs=% elr=% min=% metadata=%", 0, null, null),
    WHOLE("whole brokers=% two-dirs=% elr=% min=% metadata=%", 0, null, null),
    CREATE("create t% min=% unclean=% *", 6, Draw::create, World::create),
    DELETE("delete t%", 2, Draw::topic, World::delete),
    GROW("grow t% *", 1, Draw::grow, World::grow),
    WRITE("write t%-%", 14, Draw::partition, (w, n) -> w.there(n).write()),
    JOIN("join t%-% %", 14, Draw::join, (w, n) -> w.there(n).join(n[2])),
    LATE_JOIN("late-join t%-% %", 3, Draw::join, (w, n) -> w.there(n).lateJoin(n[2])),
    SHRINK("shrink t%-% %", 6, Draw::shrink, (w, n) -> w.there(n).shrink(n[2])),
    EXPIRE("expire %", 10, Draw::registered, (w, n) -> w.kafka.expire(n[0])),
    KILL("kill %", 6, Draw::up, (w, n) -> w.nodes[n[0]].end(false)),
    POWER("power %", 3, Draw::up, (w, n) -> w.nodes[n[0]].losePower()),
    STOP("stop %", 3, Draw::up, (w, n) -> w.nodes[n[0]].stop()),
    START("start % failed-dirs=%", 12, Draw::start, (w, n) -> w.nodes[n[0]].start(n[1] == 1)),
    BEAT("beat %", 14, Draw::up, (w, n) -> w.nodes[n[0]].beat()),
    REASSIGN("reassign t%-% *", 14, Draw::reassign, World::reassign),
    CANCEL("cancel t%-%", 3, Draw::reassigning, (w, n) -> w.reassign(n)),
    PREFERRED("elect t%-% preferred", 2, Draw::partition, (w, n) -> w.kafka.elect(w.there(n), false)),
    UNCLEAN("elect t%-% unclean", 2, Draw::partition, (w, n) -> w.kafka.elect(w.there(n), true)),
    BALANCE("balance", 1, Draw::nothing, (w, n) -> w.kafka.balance()),
    TIMER("unclean-timer", 1, Draw::nothing, (w, n) -> w.kafka.electUncleanly()),
    TOPIC_MIN("config t% min=%", 4, Draw::topicMin, (w, n) -> w.configure(n, Kafka.MIN_ISR)),
    CLUSTER_MIN("config cluster min=%", 2, Draw::clusterMin, (w, n) -> w.kafka.configure("", Kafka.MIN_ISR, "" + n[0])),
    TOPIC_UNCLEAN("config t% unclean=%", 2, Draw::topicUnclean, (w, n) -> w.configure(n, Kafka.UNCLEAN)),
    ELR("feature elr=%", 1, Draw::elr, World::elr),
    FAIL("fail-dir %:%", 3, Draw::dir, (w, n) -> w.nodes[n[0]].failDir(n[1])),
    TAKE_OUT("take-out %:%", 6, Draw::takeOut, (w, n) -> w.nodes[n[0]].takeOut(n[1])),
    PUT_IN("put-in %:%", 3, Draw::putIn, (w, n) -> w.nodes[n[0]].putIn(n[1])),
    CORDON("cordon %:%", 1, Draw::dir, (w, n) -> w.nodes[n[0]].cordon(n[1])),
    ASSIGN("assign-dirs %", 3, Draw::up, (w, n) -> w.nodes[n[0]].assign()),
    MOVE("move-dir t%-% %:%", 2, Draw::move, (w, n) -> w.nodes[n[2]].move(w.there(n), n[3])),
    UNREGISTER("unregister %", 2, Draw::unregister, (w, n) -> w.kafka.unregister(n[0])),
    FAIL_OVER("new-controller snapshot=%", 2, Draw::failOver, World::failOver),
    PRODUCE("produce t%-% %", 12, Draw::leading, (w, n) -> w.nodes[n[2]].produce(w.slot(n).s)),
    FETCH("fetch t%-% %", 30, Draw::following, (w, n) -> w.nodes[n[2]].fetch(w.slot(n).s)),
    FETCHED("fetched t%-% %", 30, Draw::fetching, (w, n) -> w.nodes[n[2]].fetched(w.slot(n).s)),
    NEWS("news %", 30, Draw::behind, (w, n) -> w.nodes[n[0]].news()),
    ASKS("controller-hears %", 12, Draw::asking, (w, n) -> w.nodes[n[0]].asks()),
    ANSWERED("answer %", 12, Draw::answered, (w, n) -> w.nodes[n[0]].answered()),
    LOSE("lose-answer %", 1, Draw::answered, (w, n) -> w.nodes[n[0]].lose()),
    PASS("time-passes", 8, Draw::nothing, World::pass),
    CHECK("check-isr %", 10, Draw::up, (w, n) -> w.nodes[n[0]].check()),
    SAVE("save %", 2, Draw::up, (w, n) -> w.nodes[n[0]].save()),
    SETTLE("settle", 0, Draw::nothing, World::settle);

    final String template;
    final int weight;
    final Function<Draw, int[]> draw;
    final BiConsumer<World, int[]> run;

    Op(String template, int weight, Function<Draw, int[]> draw, BiConsumer<World, int[]> run) {
        this.template = template;
        this.weight = weight;
        this.draw = draw;
        this.run = run;
    }

    boolean isOfBrokers() { return compareTo(PRODUCE) >= 0 && this != SETTLE; }

    /** Whether level two leaves it out, because its brokers do it by themselves or cannot do it. */
    boolean isOfControllerOnly() {
        return EnumSet.of(WRITE, JOIN, LATE_JOIN, SHRINK, FAIL, TAKE_OUT, PUT_IN, CORDON, ASSIGN, MOVE, FAIL_OVER).contains(this);
    }

    /** An action with its numbers; a list comes last, with 0 between the partitions of a topic. */
    record Act(Op op, int... n) {
        List<Act> with(int at, int value) {
            int[] other = n.clone();
            other[at] = value;
            return List.of(new Act(op, other));
        }

        List<Act> kept(IntStream places) { return List.of(new Act(op, places.map(i -> n[i]).toArray())); }

        @Override
        public String toString() {
            String text = op.template;
            int at = 0;
            for (; text.contains("%"); at++) text = text.replaceFirst("%", "" + n[at]);
            return text.replace("*", Arrays.stream(n).skip(at).mapToObj(x -> x == 0 ? "/" : "" + x)
                .collect(Collectors.joining(",")).replace(",/,", "/"));
        }
    }

    static Act parse(String text) {
        for (Op op : values()) {
            String pattern = op.template.replace("%", "(-?[0-9]+)").replace("*", "([0-9,/]+)");
            var found = java.util.regex.Pattern.compile(pattern).matcher(text.strip());
            if (!found.matches()) continue;
            return new Act(op, IntStream.rangeClosed(1, found.groupCount()).mapToObj(found::group)
                .flatMap(group -> Arrays.stream(group.replace("/", ",0,").split(",")))
                .mapToInt(Integer::parseInt).toArray());
        }
        throw new IllegalArgumentException("no action is written like: " + text);
    }
}
