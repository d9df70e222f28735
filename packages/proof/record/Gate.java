import java.io.File;
import java.lang.instrument.Instrumentation;
import java.nio.file.Files;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;
import org.apache.kafka.metadata.PartitionRegistration;
import static net.bytebuddy.matcher.ElementMatchers.*;

/**
 * An agent for one broker, -javaagent:gate.jar=FILE: while FILE exists, the broker applies no news of
 * the metadata log. All else of it goes on. With FILE,repaired it is given the least repair of the
 * race, too: a leader that is told of the leader epoch and partition epoch that it has changes nothing.
 * With FILE,slow nothing is held back: while FILE exists, each append to a log takes as many ms longer
 * as it says, as on a disk that is too slow; who wants to write waits, and with it a request handler.
 */
public class Gate {
    public static void premain(String given, Instrumentation jvm) {
        String[] parts = given.split(",");
        System.setProperty("isrlab.gate", parts[0]);
        if (parts.length > 1 && parts[1].equals("slow")) {
            new AgentBuilder.Default().type(nameEndsWith(".FileRecords"))
                .transform((type, a, b, c, d) -> type.visit(Advice.to(Slow.class).on(named("append"))))
                .installOn(jvm);
            return;
        }
        AgentBuilder agent = new AgentBuilder.Default()
            .type(named("kafka.server.metadata.BrokerMetadataPublisher"))
            .transform((type, a, b, c, d) -> type.visit(Advice.to(Wait.class).on(named("onMetadataUpdate"))));
        if (parts.length > 1)
            agent = agent.type(named("kafka.cluster.Partition"))
                .transform((type, a, b, c, d) -> type.visit(Advice.to(Keep.class).on(named("makeLeader"))));
        agent.installOn(jvm);
    }

    public static class Wait {
        @Advice.OnMethodEnter
        public static void enter() throws InterruptedException {
            File gate = new File(System.getProperty("isrlab.gate"));
            while (gate.exists()) Thread.sleep(20);
        }
    }

    public static class Slow {
        @Advice.OnMethodEnter
        public static void enter() throws Exception {
            File gate = new File(System.getProperty("isrlab.gate"));
            if (gate.exists()) Thread.sleep(Long.parseLong(Files.readString(gate.toPath()).trim()));
        }
    }

    public static class Keep {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        public static boolean enter(
            @Advice.Argument(0) PartitionRegistration news,
            @Advice.FieldValue("leaderEpoch") int leaderEpoch,
            @Advice.FieldValue("partitionEpoch") int partitionEpoch
        ) {
            return news.leaderEpoch == leaderEpoch && news.partitionEpoch == partitionEpoch;
        }
    }
}
