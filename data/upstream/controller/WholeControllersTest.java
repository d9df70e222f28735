package org.apache.kafka.controller;

import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData;
import org.apache.kafka.common.message.BrokerHeartbeatRequestData;
import org.apache.kafka.common.message.BrokerRegistrationRequestData;
import org.apache.kafka.common.message.ControllerRegistrationRequestData;
import org.apache.kafka.common.message.CreateTopicsRequestData;
import org.apache.kafka.common.message.UpdateFeaturesRequestData;
import org.apache.kafka.common.message.UpdateFeaturesResponseData;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.EligibleLeaderReplicasVersion;
import org.apache.kafka.server.common.MetadataVersion;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

import java.util.AbstractMap.SimpleImmutableEntry;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.ExecutionException;

import static org.apache.kafka.controller.ControllerRequestContextUtil.ANONYMOUS_CONTEXT;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Written for this report: each bug on three whole controllers with Kafka's own mock Raft. */
public class WholeControllersTest {
    private static final int TRIES = 3;
    private static final long SESSION_MS = 1000;

    private MockRaftClientTestEnv rafts;
    private QuorumControllerTestEnv env;
    private QuorumController active;
    private Map<Integer, Long> epochs;
    private Uuid foo;

    private interface Request {
        void ask(QuorumController active) throws Exception;
    }

    @BeforeEach
    public void startControllersAndFourBrokers() throws Exception {
        rafts = new MockRaftClientTestEnv.Builder(3).build();
        env = new QuorumControllerTestEnv.Builder(rafts).
            setSessionTimeoutMillis(OptionalLong.of(SESSION_MS)).build();
        active = env.activeController(true);
        epochs = QuorumControllerIntegrationTestUtils.registerBrokersAndUnfence(active, 4);
    }

    @AfterEach
    public void stopControllers() throws Exception {
        env.close();
        rafts.close();
    }

    private void createFoo(Integer... replicas) throws Exception {
        CreateTopicsRequestData.CreatableTopic topic = new CreateTopicsRequestData.CreatableTopic().
            setName("foo").setNumPartitions(-1).setReplicationFactor((short) -1);
        topic.assignments().add(new CreateTopicsRequestData.CreatableReplicaAssignment().
            setPartitionIndex(0).setBrokerIds(List.of(replicas)));
        CreateTopicsRequestData request = new CreateTopicsRequestData();
        request.topics().add(topic);
        foo = active.createTopics(ANONYMOUS_CONTEXT, request, Set.of("foo"), false).get().
            topics().find("foo").topicId();
    }

    private void alterFoo(String name, String value) throws Exception {
        active.incrementalAlterConfigs(ANONYMOUS_CONTEXT, Map.of(
            new ConfigResource(ConfigResource.Type.TOPIC, "foo"),
            Map.of(name, new SimpleImmutableEntry<>(OpType.SET, value))), false, false).get();
    }

    private void deleteFoo() throws Exception {
        active.deleteTopics(ANONYMOUS_CONTEXT, List.of(foo)).get();
    }

    /** With null a reassignment is cancelled. */
    private void reassignFoo(List<Integer> replicas) throws Exception {
        active.alterPartitionReassignments(ANONYMOUS_CONTEXT,
            new AlterPartitionReassignmentsRequestData().setTopics(List.of(
                new AlterPartitionReassignmentsRequestData.ReassignableTopic().setName("foo").
                    setPartitions(List.of(
                        new AlterPartitionReassignmentsRequestData.ReassignablePartition().
                            setPartitionIndex(0).setReplicas(replicas)))))).get();
    }

    private PartitionRegistration partition() throws Exception {
        return active.appendReadEvent("partition", OptionalLong.empty(),
            () -> active.replicationControl().getPartition(foo, 0)).get();
    }

    private BrokerHeartbeatRequestData heartbeat(int broker) {
        return new BrokerHeartbeatRequestData().setBrokerId(broker).
            setBrokerEpoch(epochs.get(broker)).setCurrentMetadataOffset(100000);
    }

    private void fence(int... brokers) throws Exception {
        for (int broker : brokers) {
            active.processBrokerHeartbeat(ANONYMOUS_CONTEXT, heartbeat(broker).setWantFence(true)).get();
        }
    }

    private void unfence(int... brokers) throws Exception {
        for (int broker : brokers) {
            active.processBrokerHeartbeat(ANONYMOUS_CONTEXT, heartbeat(broker)).get();
        }
    }

    /** The other brokers continue their heartbeats. */
    private void untilTheSessionEnds(int broker) throws Exception {
        for (int i = 0; i < 10; i++) {
            for (int other : epochs.keySet()) {
                if (other != broker) unfence(other);
            }
            Thread.sleep(SESSION_MS / 4);
        }
    }

    private void registerUnclean(QuorumController controller, int broker) throws Exception {
        epochs.put(broker, controller.registerBroker(ANONYMOUS_CONTEXT, new BrokerRegistrationRequestData().
            setBrokerId(broker).setClusterId(controller.clusterId()).
            setIncarnationId(Uuid.randomUuid()).
            setLogDirs(List.of(Uuid.fromString("TESTBROKER0000" + broker + "DIRAAAA"))).
            setFeatures(QuorumControllerIntegrationTestUtils.brokerFeaturesPlusFeatureVersions(
                MetadataVersion.MINIMUM_VERSION, MetadataVersion.latestTesting(),
                Map.of(EligibleLeaderReplicasVersion.FEATURE_NAME,
                    EligibleLeaderReplicasVersion.ELRV_1.featureLevel())))).get().epoch());
    }

    /** Without this no feature can be altered. */
    private void registerControllers() throws Exception {
        for (QuorumController controller : env.controllers()) {
            ControllerRegistrationRequestData.FeatureCollection features =
                new ControllerRegistrationRequestData.FeatureCollection();
            QuorumFeatures.defaultSupportedFeatureMap(true).forEach((name, range) ->
                features.add(new ControllerRegistrationRequestData.Feature().setName(name).
                    setMinSupportedVersion(range.min()).setMaxSupportedVersion(range.max())));
            active.registerController(ANONYMOUS_CONTEXT, new ControllerRegistrationRequestData().
                setControllerId(controller.nodeId()).setIncarnationId(Uuid.randomUuid()).
                setFeatures(features)).get();
        }
    }

    private void switchElr(int level, FeatureUpdate.UpgradeType type) throws Exception {
        registerControllers();
        UpdateFeaturesRequestData request = new UpdateFeaturesRequestData();
        request.featureUpdates().add(new UpdateFeaturesRequestData.FeatureUpdateKey().
            setFeature(EligibleLeaderReplicasVersion.FEATURE_NAME).setMaxVersionLevel((short) level).
            setUpgradeType(type.code()));
        UpdateFeaturesResponseData answer = active.updateFeatures(ANONYMOUS_CONTEXT, request).get();
        assertEquals(0, answer.errorCode(), answer.toString());
    }

    /** Sends a request to the active controller several times; no controller may resign because of it. */
    private void asked(Request request) throws Exception {
        StringBuilder answers = new StringBuilder();
        int epoch = env.activeController(true).curClaimEpoch();
        for (int i = 0; i < TRIES; i++) {
            try {
                request.ask(env.activeController(true));
            } catch (ExecutionException e) {
                answers.append(e.getCause()).append("; ");
            }
        }
        int now = env.activeController(true).curClaimEpoch();
        assertEquals("claimed in epochs " + epoch + " to " + epoch + ": ",
            "claimed in epochs " + epoch + " to " + now + ": " + answers);
    }

    /** 1. A broker returns uncleanly after a topic whose ELR was cleared is deleted. */
    @Test
    public void testUncleanRegistrationAfterTopicWithClearedElrIsDeleted() throws Exception {
        createFoo(0, 1);
        alterFoo("min.insync.replicas", "2");
        fence(1);
        alterFoo("min.insync.replicas", "1");
        deleteFoo();
        untilTheSessionEnds(1);
        asked(controller -> registerUnclean(controller, 1));
    }

    /** 2. A directory fails after a topic without a member in its ISR is deleted. */
    @Test
    public void testDirectoryFailsAfterTopicWithEmptyIsrIsDeleted() throws Exception {
        createFoo(1);
        fence(1);
        deleteFoo();
        asked(controller -> controller.processBrokerHeartbeat(ANONYMOUS_CONTEXT,
            heartbeat(1).setOfflineLogDirs(List.of(Uuid.fromString("TESTBROKER00001DIRAAAA")))).get());
    }

    /** 3. A reassignment is reversed; every replica is in the ISR. */
    @Test
    public void testReassignmentThatIsTurnedBackEnds() throws Exception {
        createFoo(0, 1, 2);
        reassignFoo(List.of(3, 1, 2));
        reassignFoo(List.of(0, 1, 2));
        assertArrayEquals(new int[] {0, 1, 2}, partition().replicas, partition().toString());
    }

    /** 4. min.insync.replicas is altered while both replicas are down; both return. */
    @Test
    public void testMinIsrIsAlteredWhileNoReplicaIsUp() throws Exception {
        createFoo(0, 1);
        alterFoo("min.insync.replicas", "2");
        fence(0, 1);
        alterFoo("min.insync.replicas", "1");
        unfence(0, 1);
        assertTrue(partition().leader >= 0, partition().toString());
    }

    /** 5. A reassignment is cancelled while the only replica with the records is down. */
    @Test
    public void testUncleanElectionOfCancelledReassignmentIsMarked() throws Exception {
        createFoo(2);
        alterFoo("unclean.leader.election.enable", "true");
        fence(2);
        reassignFoo(List.of(1));
        reassignFoo(List.of(0));
        reassignFoo(null);
        assertEquals(LeaderRecoveryState.RECOVERING, partition().leaderRecoveryState,
            partition().toString());
    }

    /** 6. The last known leader was removed; the broker of the only replica returns uncleanly. */
    @Test
    public void testLastKnownLeaderIsNoReplica() throws Exception {
        createFoo(1);
        alterFoo("unclean.leader.election.enable", "true");
        reassignFoo(List.of(2));
        fence(1);
        reassignFoo(null);
        untilTheSessionEnds(1);
        asked(controller -> registerUnclean(controller, 1));
    }

    /** 7. ELR is switched off, as the documentation allows, while both replicas are down. */
    @Test
    public void testElrIsSwitchedOffWhileNoReplicaIsUp() throws Exception {
        createFoo(0, 1);
        alterFoo("min.insync.replicas", "2");
        fence(0, 1);
        switchElr(0, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE);
        reassignFoo(List.of(1));
        unfence(0, 1);
        assertTrue(partition().leader >= 0, partition().toString());
    }

    /** 8. ELR is switched on while the only replica is down, whose broker then starts uncleanly. */
    @Test
    public void testElrIsSwitchedOnWhileNoReplicaIsUp() throws Exception {
        createFoo(1);
        switchElr(0, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE);
        fence(1);
        switchElr(1, FeatureUpdate.UpgradeType.UPGRADE);
        untilTheSessionEnds(1);
        registerUnclean(active, 1);
        unfence(1);
        assertTrue(partition().leader >= 0, partition().toString());
    }
}
