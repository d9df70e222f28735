package org.apache.kafka.controller;

import java.util.*;
import java.util.function.*;

/** The actions of a schedule, each with its text, its weight, its draw of numbers, and its effect. */
enum Op {
    CLUSTER("cluster brokers=% two-dirs=% elr=% min=% metadata=%", 0, null, null),
    WHOLE("whole brokers=% two-dirs=% elr=% min=% metadata=%", 0, null, null),
    CREATE("create t% min=% unclean=% *", 6, Draw::create, World::create),
    DELETE("delete t%", 2, Draw::topic, World::delete),
    GROW("grow t% *", 1, Draw::grow, World::grow),
    WRITE("write t%-%", 14, Draw::partition, World::write),
    JOIN("join t%-% %", 14, Draw::join, World::join),
    SHRINK("shrink t%-% %", 6, Draw::shrink, World::shrink),
    EXPIRE("expire %", 10, Draw::registered, World::expire),
    KILL("kill %", 6, Draw::up, World::kill), POWER("power %", 3, Draw::up, World::power),
    STOP("stop %", 3, Draw::up, World::stop),
    START("start % failed-dirs=%", 12, Draw::start, World::start),
    BEAT("beat %", 14, Draw::up, World::beat),
    REASSIGN("reassign t%-% *", 14, Draw::reassign, World::reassign),
    CANCEL("cancel t%-%", 3, Draw::reassigning, World::cancel),
    PREFERRED("elect t%-% preferred", 2, Draw::partition, (w, n) -> w.elect(n, false)),
    UNCLEAN("elect t%-% unclean", 2, Draw::partition, (w, n) -> w.elect(n, true)),
    BALANCE("balance", 1, Draw::nothing, (w, n) -> w.kafka.balance()),
    TIMER("unclean-timer", 1, Draw::nothing, (w, n) -> w.kafka.electUncleanly()),
    TOPIC_MIN("config t% min=%", 4, Draw::topicMin, World::topicMin),
    CLUSTER_MIN("config cluster min=%", 2, Draw::clusterMin, World::clusterMin),
    TOPIC_UNCLEAN("config t% unclean=%", 2, Draw::topicUnclean, World::topicUnclean),
    ELR("feature elr=%", 1, Draw::elr, World::elr),
    FAIL("fail-dir %:%", 3, Draw::dir, World::failDir),
    CORDON("cordon %:%", 1, Draw::dir, World::cordon),
    ASSIGN("assign-dirs %", 3, Draw::up, World::assign),
    MOVE("move-dir t%-% %:%", 2, Draw::move, World::move),
    UNREGISTER("unregister %", 2, Draw::unregister, World::unregister),
    FAIL_OVER("new-controller snapshot=%", 2, Draw::failOver, World::failOver),
    PRODUCE("produce t%-% %", 12, Draw::leading, World::produce),
    FETCH("fetch t%-% %", 30, Draw::following, World::fetch),
    FETCHED("fetched t%-% %", 30, Draw::fetching, World::fetched),
    NEWS("news %", 30, Draw::behind, World::news),
    ASKS("controller-hears %", 12, Draw::asking, (w, n) -> w.nodes[n[0]].asks()),
    ANSWERED("answer %", 12, Draw::answered, (w, n) -> w.nodes[n[0]].answered()),
    LOSE("lose-answer %", 1, Draw::answered, (w, n) -> w.nodes[n[0]].lose()),
    PASS("time-passes", 8, Draw::nothing, World::pass),
    CHECK("check-isr %", 10, Draw::up, World::check),
    SAVE("save %", 2, Draw::up, World::save),
    SETTLE("settle", 0, Draw::nothing, World::settle);

    final String template;
    final int weight;
    final BiFunction<World, Random, int[]> draw;
    final BiConsumer<World, int[]> run;

    Op(String template, int weight, BiFunction<World, Random, int[]> draw,
       BiConsumer<World, int[]> run) {
        this.template = template;
        this.weight = weight;
        this.draw = draw;
        this.run = run;
    }

    boolean isOfBrokers() { return compareTo(PRODUCE) >= 0 && this != SETTLE; }

    /** Whether level two leaves it out, because its brokers do it by themselves or cannot do it. */
    boolean isOfControllerOnly() {
        return EnumSet.of(WRITE, JOIN, SHRINK, FAIL, CORDON, ASSIGN, MOVE, FAIL_OVER).contains(this);
    }

    /** An action with its numbers; a list comes last, with 0 between the partitions of a topic. */
    record Act(Op op, int[] n) {
        @Override
        public String toString() {
            StringBuilder text = new StringBuilder();
            int at = 0;
            for (char c : op.template.toCharArray()) {
                if (c == '%') text.append(n[at++]);
                else if (c == '*') text.append(list(at));
                else text.append(c);
            }
            return text.toString();
        }

        private String list(int from) {
            StringBuilder text = new StringBuilder();
            for (int i = from; i < n.length; i++) {
                if (n[i] == 0) text.append('/');
                else text.append(i > from && n[i - 1] != 0 ? "," : "").append(n[i]);
            }
            return text.toString();
        }
    }

    static Act parse(String text) {
        for (Op op : values()) {
            String pattern = op.template.replaceAll("[%]", "(-?[0-9]+)").replace("*", "([0-9,/]+)");
            var matcher = java.util.regex.Pattern.compile(pattern).matcher(text.strip());
            if (!matcher.matches()) continue;
            List<Integer> n = new ArrayList<>();
            for (int i = 1; i <= matcher.groupCount(); i++) {
                String[] lists = matcher.group(i).split("/");
                for (int j = 0; j < lists.length; j++) {
                    if (j > 0) n.add(0);
                    for (String word : lists[j].split(",")) n.add(Integer.parseInt(word));
                }
            }
            return new Act(op, n.stream().mapToInt(x -> x).toArray());
        }
        throw new IllegalArgumentException("no action is written like: " + text);
    }
}
