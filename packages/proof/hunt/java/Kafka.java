package org.apache.kafka.controller;

import java.nio.ByteBuffer;
import java.util.*;
import java.util.function.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData.*;
import org.apache.kafka.common.message.CreatePartitionsRequestData.*;
import org.apache.kafka.common.message.CreateTopicsRequestData.*;
import org.apache.kafka.common.metadata.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.*;
import org.apache.kafka.metadata.*;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.server.common.*;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * The managers of Kafka's controller, wired as QuorumController wires them, and the image that brokers
 * would have. A request is handled as in QuorumController: its records are generated, written
 * (encoded and decoded, as a follower reads them) and replayed. There is no Raft and no thread.
 */
final class Kafka {
    static final String ELR = "eligible.leader.replicas.version";
    static final String MIN_ISR = "min.insync.replicas";
    static final String UNCLEAN = "unclean.leader.election.enable";
    static final long SESSION_MS = 9_000;
    private static final Object CONTEXT = Late.made("LogContext", "hunt");
    private static final Object SCHEMA = Late.call(kafka.server.KafkaRaftServer.class, "configSchema");
    private static final Class<?> PROVENANCE = Late.type("MetadataProvenance");
    private static final Class<?> HANDLER = Late.type("ClusterControlManager$BrokerShutdownHandler"
        + "|ClusterControlManager$BrokerUncleanShutdownHandler|BrokerUncleanShutdownHandler");
    private static final Map<String, VersionRange> SUPPORTED =
        Late.call(QuorumFeatures.class, "defaultFeatureMap|defaultSupportedFeatureMap", false);
    private static final ControllerRequestContext ASKED = Late.made(ControllerRequestContext.class,
        new RequestHeaderData().setRequestApiKey(ApiKeys.ALTER_PARTITION.id)
            .setRequestApiVersion(ApiKeys.ALTER_PARTITION.latestVersion()),
        KafkaPrincipal.ANONYMOUS, OptionalLong.empty(), (Consumer<Integer>) count -> { });
    private static final MetadataRecordSerde SERDE = MetadataRecordSerde.INSTANCE;
    private static final boolean HAS_TRACKER = Late.has(ClusterControlManager.class, "trackBrokerHeartbeat");
    private static final Object CHECKER = Late.constant("SupportedConfigChecker", "TRUE");

    /** A clock that only the schedule moves. */
    static final class Clock implements Time {
        long ms = 1_000_000;

        public long milliseconds() { return ms; }
        public long hiResClockMs() { return ms; }
        public long nanoseconds() { return ms * 1_000_000; }
        public void sleep(long more) { ms += more; }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { }
    }

    final Clock clock = new Clock();
    private List<ApiMessageAndVersion> log = new ArrayList<>();
    final List<MetadataImage> images = new ArrayList<>(); // after each batch of the log
    final List<Long> ends = new ArrayList<>();
    long offset;
    boolean isUnknown; // whether an answer was UNKNOWN_SERVER_ERROR
    FeatureControlManager features;
    ConfigurationControlManager configs;
    ClusterControlManager cluster;
    ReplicationControlManager replication;
    MetadataImage image = MetadataImage.EMPTY;
    final Reader broker = new Reader(1, 0); // a broker that never restarts
    private final List<Reader> readers = List.of(new Reader(2, 0), new Reader(2, 1), new Reader(5, 0));
    final Set<String> unlike = new TreeSet<>(); // the parts of an image that depend on how batches are grouped

    /** Reads the metadata log as a broker that starts or lags: as many batches in one delta. */
    final class Reader {
        private final int batches;
        private int read;
        private MetadataDelta delta;
        MetadataImage image = MetadataImage.EMPTY;

        Reader(int batches, int first) {
            this.batches = batches;
            read = first;
        }

        void read(List<ApiMessageAndVersion> records) {
            if (delta == null) delta = Late.made(MetadataDelta.class, image, CHECKER);
            for (ApiMessageAndVersion record : records) Late.replay(delta, record.message(), offset);
            if (++read % batches != 0) return;
            image = Late.call(delta, "apply", provenance());
            delta = null;
        }

        /** Begins anew with the image that a snapshot gave. */
        void load(MetadataImage snapshot) {
            image = snapshot;
            delta = null;
        }
    }

    private static final List<String> PARTS = List.of("features", "cluster", "topics", "configs", "clientQuotas",
        "producerIds", "acls", "scram");

    private void compare(Reader reader) {
        if (reader.delta != null || reader.image.equals(image)) return;
        for (String part : PARTS) {
            if (!Late.call(reader.image, part).equals(Late.call(image, part))) unlike.add(part);
        }
    }

    Kafka(int elr, int metadata, int minIsr) {
        build();
        MetadataVersion newest = Late.call(MetadataVersion.class, "latestProduction|latest");
        List<ApiMessageAndVersion> first = new ArrayList<>();
        first.add(feature(MetadataVersion.FEATURE_NAME, metadata > 0 ? metadata : newest.featureLevel()));
        if (elr > 0) {
            first.add(feature(ELR, 1));
            // as Formatter and ActivationRecordsGenerator do: the cluster has a min ISR of its own
            first.add(new ApiMessageAndVersion(new ConfigRecord().setResourceType((byte) 4)
                .setResourceName("").setName(MIN_ISR).setValue("" + minIsr), (short) 0));
        }
        write(first);
        cluster.activate();
    }

    static boolean hasWriter() { return Late.type("RecordListWriter") != null; }
    static boolean knowsBrokerEpochs() { return Late.type("AlterPartitionRequestData$BrokerState") != null; }
    static boolean knowsElr() { return SUPPORTED.containsKey(ELR); }

    private static ApiMessageAndVersion feature(String name, int level) {
        FeatureLevelRecord record = new FeatureLevelRecord().setName(name).setFeatureLevel((short) level);
        return new ApiMessageAndVersion(record, (short) 0);
    }

    /** Builds the managers, new and empty, as in a controller that starts. */
    private void build() {
        SnapshotRegistry registry = Late.made(SnapshotRegistry.class, CONTEXT);
        Object quorum = Late.made(QuorumFeatures.class, 0, Late.made("ApiVersions"), SUPPORTED, List.of(0));
        Map<String, Object> parts = new HashMap<>(Map.of("LogContext", CONTEXT,
            "SnapshotRegistry", registry, "QuorumFeatures", quorum, "KafkaConfigSchema", SCHEMA,
            "Time", clock, "setClusterId", "hunt", "setSessionTimeoutNs", SESSION_MS * 1_000_000,
            "ReplicaPlacer", new StripedReplicaPlacer(new Random(0))));
        features = Late.built(FeatureControlManager.class, parts);
        parts.put("FeatureControlManager", features);
        configs = Late.built(ConfigurationControlManager.class, parts);
        parts.put("ConfigurationControlManager", configs);
        // a registration is passed on to the manager of replicas, as QuorumController does
        if (HANDLER != null) parts.put(HANDLER.getSimpleName(), Late.proxy(HANDLER, (name, args) ->
            Late.call(replication, "handleBrokerShutdown|handleBrokerUncleanShutdown", args)));
        cluster = Late.built(ClusterControlManager.class, parts);
        parts.put("ClusterControlManager", cluster);
        replication = Late.built(ReplicationControlManager.class, parts);
    }

    // Records

    /** Replays records in the controller as they are, and in the image as decoded again. */
    void write(List<ApiMessageAndVersion> records) {
        if (records.isEmpty()) return;
        MetadataDelta delta = Late.made(MetadataDelta.class, image, CHECKER);
        for (ApiMessageAndVersion record : records) {
            ApiMessageAndVersion decoded = decoded(record);
            offset++;
            log.add(decoded);
            replay(record.message(), offset);
            Late.replay(delta, decoded.message(), offset);
        }
        applied(delta);
        List<ApiMessageAndVersion> batch = log.subList(log.size() - records.size(), log.size());
        broker.read(batch);
        for (Reader reader : readers) {
            reader.read(batch);
            compare(reader);
        }
    }

    private Object provenance() {
        return PROVENANCE == null ? null : Late.made(PROVENANCE, offset, 1, clock.ms, true);
    }

    private void applied(MetadataDelta delta) {
        image = Late.call(delta, "apply", provenance());
        images.add(image);
        ends.add(offset);
    }

    static ApiMessageAndVersion decoded(ApiMessageAndVersion record) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(SERDE.recordSize(record, cache));
        ByteBufferAccessor bytes = new ByteBufferAccessor(buffer);
        SERDE.write(record, cache, bytes);
        buffer.flip();
        return SERDE.read(bytes, buffer.remaining());
    }

    /** Replays a record in each manager with a `replay` for its type, as QuorumController does. */
    private void replay(ApiMessage record, long at) {
        for (Object target : List.of(features, configs, cluster, replication)) Late.replay(target, record, at);
    }

    /** Writes what a request brings about. An answer that brings about nothing may be an error. */
    <T> T done(ControllerResult<T> result) {
        if (result == null) return null;
        write(result.records());
        String text = result.records().isEmpty() ? String.valueOf(result.response()) : "";
        isUnknown |= text.contains("errorCode=-1,") || text.contains("error=UNKNOWN_SERVER_ERROR");
        return result.response();
    }

    // Requests

    long register(int broker, Uuid incarnation, long previous, List<Uuid> directories) {
        BrokerRegistrationRequestData data = new BrokerRegistrationRequestData().setBrokerId(broker)
            .setClusterId("hunt").setIncarnationId(incarnation);
        SUPPORTED.forEach((name, range) -> data.features().add(new BrokerRegistrationRequestData.Feature()
            .setName(name).setMinSupportedVersion(range.min()).setMaxSupportedVersion(range.max())));
        Late.call(data, "setLogDirs|", directories);
        Late.call(data, "setPreviousBrokerEpoch|", previous);
        ControllerResult<?> result = Late.call(cluster, "registerBroker", data, offset + 1,
            Late.call(features, "finalizedFeatures", Long.MAX_VALUE), (short) 4, true);
        return Late.<Long>call(done(result), "epoch");
    }

    /** A heartbeat. Returns whether the broker may stop. */
    boolean beat(int broker, long epoch, boolean wantsStop, List<Uuid> offline, List<Uuid> cordoned, long read) {
        Late.call(cluster, "trackBrokerHeartbeat|", broker, epoch);
        BrokerHeartbeatRequestData data = new BrokerHeartbeatRequestData().setBrokerId(broker)
            .setBrokerEpoch(epoch).setCurrentMetadataOffset(read).setWantShutDown(wantsStop);
        if (!offline.isEmpty()) Late.call(data, "setOfflineLogDirs|", offline);
        Late.call(data, "setCordonedLogDirs|", cordoned);
        OptionalLong at = Late.call(cluster, "registerBrokerRecordOffset|", broker);
        if (at != null && at.isEmpty()) throw new org.apache.kafka.common.errors.StaleBrokerEpochException("no such");
        Object reply = done(Late.call(replication, "processBrokerHeartbeat", data, at == null ? 0L : at.getAsLong()));
        if (Late.<Boolean>call(reply, "inControlledShutdown")) {
            Late.call(cluster.heartbeatManager(),
                "maybeUpdateControlledShutdownOffset|updateControlledShutdownOffset", broker, offset);
        }
        return Late.call(reply, "shouldShutDown");
    }

    /** The length of a session passes, without heartbeats of this broker only. */
    void expire(int broker) {
        clock.ms += SESSION_MS + 1_000;
        for (BrokerRegistration other : brokers().values()) {
            if (other.id() == broker || other.fenced()) continue;
            if (HAS_TRACKER) Late.call(cluster, "trackBrokerHeartbeat", other.id(), other.epoch());
            else Late.call(cluster.heartbeatManager(), "touch", other.id(), false, offset);
        }
        for (int i = 0; i < 12; i++) done(Late.call(replication, "maybeFenceOneStaleBroker"));
    }

    void unregister(int broker) { done(replication.unregisterBroker(broker)); }

    void create(String topic, List<List<Integer>> replicas, Map<String, String> settings) {
        CreatableTopic data = new CreatableTopic().setName(topic).setNumPartitions(-1).setReplicationFactor((short) -1);
        for (int p = 0; p < replicas.size(); p++) {
            data.assignments().add(new CreatableReplicaAssignment().setPartitionIndex(p).setBrokerIds(replicas.get(p)));
        }
        String in = "CreateTopicsRequestData$"; // the class of a setting was misspelt up to 3.9
        settings.forEach((name, value) -> Late.call(data.configs(), "add", message(
            in + "CreatableTopicConfig|" + in + "CreateableTopicConfig", "setName", name, "setValue", value)));
        CreateTopicsRequestData all = new CreateTopicsRequestData();
        all.topics().add(data);
        done(Late.call(replication, "createTopics", ASKED, all, Set.of(), false));
    }

    Uuid idOf(String topic) { return replication.getTopicId(topic); }

    void delete(Uuid topic) { done(Late.call(replication, "deleteTopics", ASKED, List.of(topic))); }

    void grow(String topic, int count, List<Integer> replicas) {
        done(Late.call(replication, "createPartitions", ASKED, List.of(new CreatePartitionsTopic().setName(topic)
            .setCount(count).setAssignments(List.of(new CreatePartitionsAssignment().setBrokerIds(replicas))))));
    }

    /** An empty list of replicas cancels a reassignment. Returns whether it was accepted. */
    boolean reassign(World.Slot slot, List<Integer> replicas) {
        AlterPartitionReassignmentsResponseData reply = done(replication.alterPartitionReassignments(new AlterPartitionReassignmentsRequestData().setTopics(List.of(
            new ReassignableTopic().setName("t" + slot.t).setPartitions(List.of(new ReassignablePartition()
                .setPartitionIndex(slot.p).setReplicas(replicas.isEmpty() ? null : replicas)))))));
        return reply.errorCode() == 0 && reply.responses().get(0).partitions().get(0).errorCode() == 0;
    }

    /** Requests this ISR as the leader, with these broker epochs. */
    void alter(Uuid topic, World.Slot slot, int[] isr, IntToLongFunction epochs) {
        var part = new AlterPartitionRequestData.PartitionData().setPartitionIndex(slot.p)
            .setLeaderEpoch(slot.state.leaderEpoch).setPartitionEpoch(slot.state.partitionEpoch);
        String state = "AlterPartitionRequestData$BrokerState";
        Late.call(part, "setNewIsrWithEpochs|setNewIsr", Arrays.stream(isr).mapToObj(id -> Late.type(state) == null ? id
            : message(state, "setBrokerId", id, "setBrokerEpoch", epochs.applyAsLong(id))).toList());
        alter(new AlterPartitionRequestData().setBrokerId(slot.state.leader)
            .setBrokerEpoch(epochs.applyAsLong(slot.state.leader)).setTopics(List.of(
                new AlterPartitionRequestData.TopicData().setTopicId(topic).setPartitions(List.of(part)))));
    }

    AlterPartitionResponseData alter(AlterPartitionRequestData data) {
        return done(replication.alterPartition(ASKED, data));
    }

    void elect(World.Slot slot, boolean unclean) {
        var topics = new ElectLeadersRequestData.TopicPartitionsCollection();
        topics.add(new ElectLeadersRequestData.TopicPartitions().setTopic("t" + slot.t).setPartitions(List.of(slot.p)));
        done(replication.electLeaders(new ElectLeadersRequestData().setElectionType((byte) (unclean ? 1 : 0))
            .setTopicPartitions(topics)));
    }

    void balance() { done(Late.call(replication, "maybeBalancePartitionLeaders")); }

    /** The timer of unclean elections, in releases that have one (since 3.9). */
    void electUncleanly() { done(Late.call(replication, "maybeElectUncleanLeaders|")); }

    /** Sets, or deletes if the value is empty, a setting of a topic or (no topic) of the cluster. */
    void configure(String topic, String name, String value) {
        var type = topic.isEmpty() ? ConfigResource.Type.BROKER : ConfigResource.Type.TOPIC;
        var change = Map.entry(value.isEmpty() ? OpType.DELETE : OpType.SET, value);
        done(Late.call(configs, "incrementalAlterConfigs",
            Map.of(new ConfigResource(type, topic), Map.of(name, change)), false, true));
    }

    void feature(String name, int level, boolean isUpgrade) {
        var type = isUpgrade ? FeatureUpdate.UpgradeType.UPGRADE : FeatureUpdate.UpgradeType.SAFE_DOWNGRADE;
        Object target = Late.has(configs, "updateFeatures") ? configs : features;
        done(Late.call(target, "updateFeatures", Map.of(name, (short) level), Map.of(name, type),
            Map.of(), false, 1));
    }

    void assign(int broker, long epoch, Map<Uuid, Map<Uuid, List<Integer>>> places) {
        String in = "AssignReplicasToDirsRequestData";
        var directories = places.entrySet().stream().map(place -> message(in + "$DirectoryData",
            "setId", place.getKey(), "setTopics", place.getValue().entrySet().stream().map(topic ->
                message(in + "$TopicData", "setTopicId", topic.getKey(), "setPartitions", topic.getValue().stream()
                    .map(at -> message(in + "$PartitionData", "setPartitionIndex", at)).toList())).toList())).toList();
        done(Late.call(replication, "handleAssignReplicasToDirs",
            message(in, "setBrokerId", broker, "setBrokerEpoch", epoch, "setDirectories", directories)));
    }

    /** A message of Kafka's protocol with these values, each after the name of its setter. */
    private static Object message(String type, Object... values) {
        Object made = Late.made(type);
        for (int i = 0; i < values.length; i += 2) Late.call(made, (String) values[i], values[i + 1]);
        return made;
    }

    // Another controller takes over

    /** A standby takes over that has read the log, or that loads a snapshot of the image. */
    void failOver(boolean fromSnapshot) {
        if (fromSnapshot) log = snapshot().stream().map(Kafka::decoded).collect(Collectors.toList());
        build();
        MetadataDelta delta = Late.made(MetadataDelta.class, MetadataImage.EMPTY, CHECKER);
        long at = 0;
        for (ApiMessageAndVersion record : log) {
            replay(record.message(), fromSnapshot ? offset : ++at);
            Late.replay(delta, record.message(), at);
        }
        applied(delta);
        for (Reader reader : readers) reader.load(image);
        cluster.activate();
    }

    List<ApiMessageAndVersion> snapshot() {
        Object writer = Late.made("RecordListWriter");
        Object options = Late.made("ImageWriterOptions$Builder", image);
        Late.call(options, "setMetadataVersion|", version());
        Late.call(image, "write", writer, Late.call(options, "build"));
        return Late.call(writer, "records");
    }

    MetadataVersion version() { return Late.call(features, "metadataVersionOrThrow|metadataVersion"); }
    boolean isElr() { return Boolean.TRUE.equals(Late.call(features, "isElrFeatureEnabled|")); }
    Map<Integer, BrokerRegistration> brokers() { return cluster.brokerRegistrations(); }

    /** The effective min ISR as a leader computes it, from the number of replicas of its own partition. */
    int minIsr(String topic, int replicas) {
        Object entry = Late.call(configs, "getTopicConfig|", topic, MIN_ISR);
        if (entry == null) {
            Map<?, ?> own = Late.call(configs, "getConfigs", new ConfigResource(ConfigResource.Type.TOPIC, topic));
            entry = Late.<Map<?, ?>>call(configs, "computeEffectiveTopicConfigs", own).get(MIN_ISR);
        }
        String value = entry instanceof String text ? text : Late.call(entry, "value");
        return Math.min(replicas, Integer.parseInt(value));
    }
}
