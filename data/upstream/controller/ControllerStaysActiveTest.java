package org.apache.kafka.controller;

import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.BrokerHeartbeatRequestData;
import org.apache.kafka.common.message.BrokerRegistrationRequestData;
import org.apache.kafka.common.message.CreateTopicsRequestData;
import org.apache.kafka.server.common.EligibleLeaderReplicasVersion;
import org.apache.kafka.server.common.MetadataVersion;

import org.junit.jupiter.api.Test;

import java.util.AbstractMap.SimpleImmutableEntry;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.ExecutionException;

import static org.apache.kafka.controller.ControllerRequestContextUtil.ANONYMOUS_CONTEXT;
import static org.junit.jupiter.api.Assertions.assertEquals;

/** Written for this report: bugs 1 and 2 on three whole controllers with Kafka's own mock Raft. */
public class ControllerStaysActiveTest {
    private static final int TRIES = 3;

    private interface Request {
        void ask(QuorumController active, int number) throws Exception;
    }

    private static void alterMinIsr(QuorumController active, String value) throws Exception {
        active.incrementalAlterConfigs(ANONYMOUS_CONTEXT, Map.of(
            new ConfigResource(ConfigResource.Type.TOPIC, "foo"), Map.of("min.insync.replicas",
                new SimpleImmutableEntry<>(OpType.SET, value))), false, false).get();
    }

    private static Uuid createFoo(QuorumController active, Integer... replicas) throws Exception {
        CreateTopicsRequestData.CreatableTopic foo = new CreateTopicsRequestData.CreatableTopic().
            setName("foo").setNumPartitions(-1).setReplicationFactor((short) -1);
        foo.assignments().add(new CreateTopicsRequestData.CreatableReplicaAssignment().
            setPartitionIndex(0).setBrokerIds(List.of(replicas)));
        CreateTopicsRequestData request = new CreateTopicsRequestData();
        request.topics().add(foo);
        return active.createTopics(ANONYMOUS_CONTEXT, request, Set.of("foo"), false).get().
            topics().find("foo").topicId();
    }

    private static BrokerHeartbeatRequestData heartbeat(long epoch) {
        return new BrokerHeartbeatRequestData().setBrokerId(1).setBrokerEpoch(epoch).
            setCurrentMetadataOffset(100000);
    }

    /** Asks some times whichever controller is active; none may resign because of it. */
    private static void asked(QuorumControllerTestEnv env, Request request) throws Exception {
        StringBuilder answers = new StringBuilder();
        int epoch = env.activeController(true).curClaimEpoch();
        for (int i = 0; i < TRIES; i++) {
            QuorumController active = env.activeController(true);
            try {
                request.ask(active, i);
            } catch (ExecutionException e) {
                answers.append(e.getCause()).append("; ");
            }
        }
        int now = env.activeController(true).curClaimEpoch();
        assertEquals("claimed in epochs " + epoch + " to " + epoch + ": ",
            "claimed in epochs " + epoch + " to " + now + ": " + answers);
    }

    @Test
    public void testUncleanRegistrationAfterTopicWithClearedElrIsDeleted() throws Throwable {
        try (
            MockRaftClientTestEnv clientEnv = new MockRaftClientTestEnv.Builder(3).build();
            QuorumControllerTestEnv env = new QuorumControllerTestEnv.Builder(clientEnv).
                setSessionTimeoutMillis(OptionalLong.of(1000)).build()
        ) {
            QuorumController active = env.activeController(true);
            Map<Integer, Long> epochs =
                QuorumControllerIntegrationTestUtils.registerBrokersAndUnfence(active, 2);
            Uuid foo = createFoo(active, 0, 1);
            alterMinIsr(active, "2");
            active.processBrokerHeartbeat(ANONYMOUS_CONTEXT,
                heartbeat(epochs.get(1)).setWantFence(true)).get();
            alterMinIsr(active, "1");
            active.deleteTopics(ANONYMOUS_CONTEXT, List.of(foo)).get();
            Thread.sleep(2500); // the session of broker 1 ends
            asked(env, (controller, number) -> controller.registerBroker(ANONYMOUS_CONTEXT,
                new BrokerRegistrationRequestData().setBrokerId(1).
                    setClusterId(controller.clusterId()).setIncarnationId(Uuid.randomUuid()).
                    setLogDirs(List.of(Uuid.fromString("TESTBROKER00001DIRAAAA"))).
                    setFeatures(QuorumControllerIntegrationTestUtils.brokerFeaturesPlusFeatureVersions(
                        MetadataVersion.MINIMUM_VERSION, MetadataVersion.latestTesting(),
                        Map.of(EligibleLeaderReplicasVersion.FEATURE_NAME,
                            EligibleLeaderReplicasVersion.ELRV_1.featureLevel())))).get());
        }
    }

    @Test
    public void testDirectoryFailsAfterTopicWithEmptyIsrIsDeleted() throws Throwable {
        try (
            MockRaftClientTestEnv clientEnv = new MockRaftClientTestEnv.Builder(3).build();
            QuorumControllerTestEnv env = new QuorumControllerTestEnv.Builder(clientEnv).build()
        ) {
            QuorumController active = env.activeController(true);
            Map<Integer, Long> epochs =
                QuorumControllerIntegrationTestUtils.registerBrokersAndUnfence(active, 2);
            Uuid foo = createFoo(active, 1);
            active.processBrokerHeartbeat(ANONYMOUS_CONTEXT,
                heartbeat(epochs.get(1)).setWantFence(true)).get();
            active.deleteTopics(ANONYMOUS_CONTEXT, List.of(foo)).get();
            asked(env, (controller, number) -> controller.processBrokerHeartbeat(ANONYMOUS_CONTEXT,
                heartbeat(epochs.get(1)).setOfflineLogDirs(
                    List.of(Uuid.fromString("TESTBROKER00001DIRAAAA")))).get());
        }
    }
}
