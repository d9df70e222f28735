import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/**
 * What no client of Python's can ask for. Ask bootstrap.controllers=HOST:PORT reassign t-0=1,2 u-1=cancel ..., all in one
 * request; feature NAME=LEVEL; config NAME=VALUE, of all brokers; elect t-0=unclean.
 * Prints the error of each, if any.
 */
class Ask {
    public static void main(String[] given) throws Exception {
        Map<String, String> wanted = new LinkedHashMap<>();
        for (String word : Arrays.asList(given).subList(2, given.length)) {
            int at = word.lastIndexOf('=');
            wanted.put(word.substring(0, at), word.substring(at + 1));
        }
        String[] where = given[0].split("=");
        try (Admin admin = Admin.create(Map.<String, Object>of(where[0], where[1]))) {
            if (given[1].equals("feature")) feature(admin, wanted);
            else if (given[1].equals("config")) config(admin, wanted);
            else if (given[1].equals("elect")) elect(admin, wanted);
            else reassign(admin, wanted);
        }
    }

    static void reassign(Admin admin, Map<String, String> wanted) throws Exception {
        Map<TopicPartition, Optional<NewPartitionReassignment>> all = new LinkedHashMap<>();
        wanted.forEach((name, ids) -> {
            all.put(place(name), ids.equals("cancel") ? Optional.empty() : Optional.of(
                new NewPartitionReassignment(Arrays.stream(ids.split(",")).map(Integer::valueOf).toList())));
        });
        for (var answer : admin.alterPartitionReassignments(all).values().entrySet())
            await(answer.getKey(), answer.getValue());
    }

    static void elect(Admin admin, Map<String, String> wanted) throws Exception {
        for (var one : wanted.entrySet()) {
            var kind = ElectionType.valueOf(one.getValue().toUpperCase(Locale.ROOT));
            for (var answer : admin.electLeaders(kind, Set.of(place(one.getKey()))).partitions().get().entrySet())
                answer.getValue().ifPresent(refused -> System.out.println(answer.getKey() + ": " + refused));
        }
    }

    static TopicPartition place(String name) {
        int at = name.lastIndexOf('-');
        return new TopicPartition(name.substring(0, at), Integer.parseInt(name.substring(at + 1)));
    }

    static void config(Admin admin, Map<String, String> wanted) throws Exception {
        List<AlterConfigOp> all = new ArrayList<>();
        wanted.forEach((name, value) -> all.add(new AlterConfigOp(
            new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        var brokers = new ConfigResource(ConfigResource.Type.BROKER, "");
        await(wanted, admin.incrementalAlterConfigs(Map.of(brokers, all)).values().get(brokers));
    }

    static void feature(Admin admin, Map<String, String> wanted) throws Exception {
        Map<String, FeatureUpdate> all = new LinkedHashMap<>();
        wanted.forEach((name, level) -> all.put(name, new FeatureUpdate(
            Short.parseShort(level), FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)));
        for (var answer : admin.updateFeatures(all, new UpdateFeaturesOptions()).values().entrySet())
            await(answer.getKey(), answer.getValue());
    }

    static void await(Object what, org.apache.kafka.common.KafkaFuture<Void> answer) throws Exception {
        try {
            answer.get();
        } catch (java.util.concurrent.ExecutionException refused) {
            System.out.println(what + ": " + refused.getCause());
        }
    }
}
