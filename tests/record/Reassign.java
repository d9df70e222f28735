import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.TopicPartition;

/** Reassign CONTROLLER TOPIC IDS: what no client of Python's can ask for. Says the error, if any. */
class Reassign {
    public static void main(String[] given) throws Exception {
        List<Integer> ids = new ArrayList<>();
        for (String id : given[2].split(",")) ids.add(Integer.valueOf(id));
        var wanted = Optional.of(new NewPartitionReassignment(ids));
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.controllers", given[0]))) {
            admin.alterPartitionReassignments(Map.of(new TopicPartition(given[1], 0), wanted)).all().get();
        } catch (java.util.concurrent.ExecutionException refused) {
            System.out.println(refused.getCause());
        }
    }
}
