package org.apache.kafka.controller;

import java.nio.ByteBuffer;
import java.util.*;
import java.util.AbstractMap.SimpleImmutableEntry;
import java.util.function.Supplier;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.*;
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
    private static final String STATE = AlterPartitionRequestData.class.getName() + "$BrokerState";
    private static final Object CONTEXT = Late.made(Late.type("org.apache.kafka.common.utils.LogContext",
        "org.apache.kafka.common.utils.internals.LogContext"), "hunt");
    private static final Object SCHEMA =
        Late.call(Late.type("kafka.server.KafkaRaftServer"), "configSchema");
    private static final Map<String, VersionRange> SUPPORTED = supported();
    private static final ControllerRequestContext ASKED = asked();
    private static final MetadataRecordSerde SERDE = MetadataRecordSerde.INSTANCE;
    private static final Object CHECKER =
        Late.constant("org.apache.kafka.metadata.SupportedConfigChecker", "TRUE");

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
    final List<ApiMessageAndVersion> log = new ArrayList<>();
    final List<MetadataImage> images = new ArrayList<>(); // after each batch of the log
    final List<Long> ends = new ArrayList<>();
    final Random random;
    long offset;
    FeatureControlManager features;
    ConfigurationControlManager configs;
    ClusterControlManager cluster;
    ReplicationControlManager replication;
    MetadataImage image = MetadataImage.EMPTY;

    Kafka(Random random, int elr, int metadata, int minIsr) {
        this.random = random;
        build();
        short level = metadata > 0 ? (short) metadata
            : Late.<MetadataVersion>call(MetadataVersion.class, latest()).featureLevel();
        List<ApiMessageAndVersion> first = new ArrayList<>();
        first.add(feature(MetadataVersion.FEATURE_NAME, level));
        if (elr > 0) {
            first.add(feature(ELR, (short) 1));
            // as Formatter and ActivationRecordsGenerator do: the cluster has a min ISR of its own
            first.add(new ApiMessageAndVersion(new ConfigRecord().setResourceType((byte) 4)
                .setResourceName("").setName(MIN_ISR).setValue("" + minIsr), (short) 0));
        }
        write(first);
        cluster.activate();
    }

    private static String latest() {
        return Late.has(MetadataVersion.class, "latestProduction") ? "latestProduction" : "latest";
    }

    static boolean hasWriter() {
        return Late.found("org.apache.kafka.image.writer.RecordListWriter") instanceof Class;
    }

    static boolean knowsElr() { return SUPPORTED.containsKey(ELR); }

    private static ApiMessageAndVersion feature(String name, short level) {
        FeatureLevelRecord record = new FeatureLevelRecord().setName(name).setFeatureLevel(level);
        return new ApiMessageAndVersion(record, (short) 0);
    }

    private static Map<String, VersionRange> supported() {
        boolean isOld = Late.has(QuorumFeatures.class, "defaultFeatureMap");
        return Late.call(QuorumFeatures.class, isOld ? "defaultFeatureMap" : "defaultSupportedFeatureMap",
            false);
    }

    private static ControllerRequestContext asked() {
        RequestHeaderData header = new RequestHeaderData().setRequestApiKey(ApiKeys.ALTER_PARTITION.id)
            .setRequestApiVersion(ApiKeys.ALTER_PARTITION.latestVersion());
        return Late.made(ControllerRequestContext.class, header, KafkaPrincipal.ANONYMOUS,
            OptionalLong.empty(), (java.util.function.Consumer<Integer>) count -> { });
    }

    /** Builds the managers, new and empty, as in a controller that starts. */
    private void build() {
        SnapshotRegistry registry = Late.made(SnapshotRegistry.class, CONTEXT);
        QuorumFeatures quorum = Late.made(QuorumFeatures.class, 0, apiVersions(), SUPPORTED, List.of(0));
        Map<String, Object> parts = new HashMap<>(Map.of("LogContext", CONTEXT,
            "SnapshotRegistry", registry, "QuorumFeatures", quorum, "KafkaConfigSchema", SCHEMA,
            "Time", clock, "setClusterId", "hunt", "setSessionTimeoutNs", SESSION_MS * 1_000_000,
            "ReplicaPlacer", new StripedReplicaPlacer(random)));
        features = Late.built(FeatureControlManager.class, parts);
        parts.put("FeatureControlManager", features);
        configs = Late.built(ConfigurationControlManager.class, parts);
        parts.put("ConfigurationControlManager", configs);
        for (Class<?> kind : ClusterControlManager.class.getDeclaredClasses()) {
            if (kind.isInterface()) parts.put(kind.getSimpleName(), handler(kind));
        }
        Object older = Late.found("org.apache.kafka.controller.BrokerUncleanShutdownHandler");
        if (older instanceof Class<?> kind) parts.put(kind.getSimpleName(), handler(kind));
        cluster = Late.built(ClusterControlManager.class, parts);
        parts.put("ClusterControlManager", cluster);
        replication = Late.built(ReplicationControlManager.class, parts);
    }

    private static Object apiVersions() {
        return Late.made(Late.type("org.apache.kafka.clients.ApiVersions"));
    }

    /** Passes a broker's registration on to the manager of replicas, as QuorumController does. */
    private Object handler(Class<?> kind) {
        return java.lang.reflect.Proxy.newProxyInstance(kind.getClassLoader(), new Class<?>[] {kind},
            (proxy, method, args) -> {
                String name = List.of("handleBrokerShutdown", "handleBrokerUncleanShutdown").stream()
                    .filter(x -> Late.has(replication, x)).findFirst().orElseThrow();
                return Late.call(replication, name, args);
            });
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
    }

    private void applied(MetadataDelta delta) {
        Object kind = Late.found("org.apache.kafka.image.MetadataProvenance");
        image = kind instanceof Class<?> c
            ? Late.call(delta, "apply", Late.made(c, offset, 1, clock.ms, true)) : Late.call(delta, "apply");
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

    <T> T done(ControllerResult<T> result) {
        write(result.records());
        return result.response();
    }

    // Requests

    long register(int broker, Uuid incarnation, long previous, List<Uuid> directories) {
        BrokerRegistrationRequestData data = new BrokerRegistrationRequestData().setBrokerId(broker)
            .setClusterId("hunt").setIncarnationId(incarnation);
        SUPPORTED.forEach((name, range) -> data.features().add(new BrokerRegistrationRequestData.Feature()
            .setName(name).setMinSupportedVersion(range.min()).setMaxSupportedVersion(range.max())));
        if (Late.has(data, "setLogDirs")) Late.call(data, "setLogDirs", directories);
        if (Late.has(data, "setPreviousBrokerEpoch")) Late.call(data, "setPreviousBrokerEpoch", previous);
        ControllerResult<?> result = Late.call(cluster, "registerBroker", data, offset + 1,
            Late.call(features, "finalizedFeatures", Long.MAX_VALUE), (short) 4, true);
        return Late.<Long>call(done(result), "epoch");
    }

    /** A heartbeat, and its answer: {fenced, stopping, may stop}. */
    boolean[] beat(int broker, long epoch, boolean wantsStop, List<Uuid> offline, List<Uuid> cordoned, long read) {
        if (Late.has(cluster, "trackBrokerHeartbeat")) {
            Late.<Boolean>call(cluster, "trackBrokerHeartbeat", broker, epoch);
        }
        BrokerHeartbeatRequestData data = new BrokerHeartbeatRequestData().setBrokerId(broker)
            .setBrokerEpoch(epoch).setCurrentMetadataOffset(read).setWantShutDown(wantsStop);
        if (!offline.isEmpty()) Late.call(data, "setOfflineLogDirs", offline);
        if (Late.has(data, "setCordonedLogDirs")) Late.call(data, "setCordonedLogDirs", cordoned);
        OptionalLong at = Late.has(cluster, "registerBrokerRecordOffset")
            ? Late.call(cluster, "registerBrokerRecordOffset", broker) : OptionalLong.of(0);
        if (at.isEmpty()) throw new org.apache.kafka.common.errors.StaleBrokerEpochException("no such");
        Object reply = done(Late.call(replication, "processBrokerHeartbeat", data, at.getAsLong()));
        boolean stopping = Late.call(reply, "inControlledShutdown");
        if (stopping) {
            String name = Late.has(cluster.heartbeatManager(), "maybeUpdateControlledShutdownOffset")
                ? "maybeUpdateControlledShutdownOffset" : "updateControlledShutdownOffset";
            Late.call(cluster.heartbeatManager(), name, broker, offset);
        }
        return new boolean[] {Late.call(reply, "isFenced"), stopping, Late.call(reply, "shouldShutDown")};
    }

    /** The length of a session passes, without heartbeats of this broker only. True if it was unfenced. */
    boolean expire(int broker) {
        clock.ms += SESSION_MS + 1_000;
        for (BrokerRegistration other : brokers().values()) {
            if (other.id() == broker || other.fenced()) continue;
            if (Late.has(cluster, "trackBrokerHeartbeat")) {
                Late.<Boolean>call(cluster, "trackBrokerHeartbeat", other.id(), other.epoch());
            } else {
                Late.call(cluster.heartbeatManager(), "touch", other.id(), false, offset);
            }
        }
        boolean was = brokers().containsKey(broker) && !brokers().get(broker).fenced();
        for (int i = 0; i < 12; i++) done(Late.call(replication, "maybeFenceOneStaleBroker"));
        return was;
    }

    void unregister(int broker) { done(replication.unregisterBroker(broker)); }

    short create(String topic, List<List<Integer>> replicas, Map<String, String> settings) {
        CreateTopicsRequestData.CreatableTopic data = new CreateTopicsRequestData.CreatableTopic()
            .setName(topic).setNumPartitions(-1).setReplicationFactor((short) -1);
        for (int p = 0; p < replicas.size(); p++) {
            data.assignments().add(new CreateTopicsRequestData.CreatableReplicaAssignment()
                .setPartitionIndex(p).setBrokerIds(replicas.get(p)));
        }
        String in = CreateTopicsRequestData.class.getName();
        settings.forEach((name, value) -> { // the class was misspelt up to 3.9
            Object config = Late.made(Late.type(in + "$CreatableTopicConfig", in + "$CreateableTopicConfig"));
            Late.call(config, "setName", name);
            Late.call(config, "setValue", value);
            Late.call(data.configs(), "add", config);
        });
        CreateTopicsRequestData all = new CreateTopicsRequestData();
        all.topics().add(data);
        org.apache.kafka.common.message.CreateTopicsResponseData answer =
            done(Late.call(replication, "createTopics", ASKED, all, Set.of(), false));
        return answer.topics().find(topic).errorCode();
    }

    Uuid idOf(String topic) { return replication.getTopicId(topic); }

    short delete(Uuid topic) {
        Map<Uuid, org.apache.kafka.common.requests.ApiError> answer =
            done(Late.call(replication, "deleteTopics", ASKED, List.of(topic)));
        return answer.get(topic).error().code();
    }

    short grow(String topic, int count, List<Integer> replicas) {
        var data = new CreatePartitionsRequestData.CreatePartitionsTopic().setName(topic).setCount(count)
            .setAssignments(List.of(
                new CreatePartitionsRequestData.CreatePartitionsAssignment().setBrokerIds(replicas)));
        List<org.apache.kafka.common.message.CreatePartitionsResponseData.CreatePartitionsTopicResult>
            answer = done(Late.call(replication, "createPartitions", ASKED, List.of(data)));
        return answer.get(0).errorCode();
    }

    /** An empty list of replicas cancels a reassignment. */
    short reassign(String topic, int partition, List<Integer> replicas) {
        var part = new AlterPartitionReassignmentsRequestData.ReassignablePartition()
            .setPartitionIndex(partition).setReplicas(replicas.isEmpty() ? null : replicas);
        var data = new AlterPartitionReassignmentsRequestData().setTopics(List.of(
            new AlterPartitionReassignmentsRequestData.ReassignableTopic().setName(topic)
                .setPartitions(List.of(part))));
        return done(replication.alterPartitionReassignments(data)).responses().get(0).partitions().get(0)
            .errorCode();
    }

    /** Requests this ISR, as the leader of this state, with these broker epochs. */
    short alter(Uuid topic, int partition, PartitionRegistration state, long[] epochs, int[] isr) {
        var part = new AlterPartitionRequestData.PartitionData().setPartitionIndex(partition)
            .setLeaderEpoch(state.leaderEpoch).setPartitionEpoch(state.partitionEpoch);
        if (Late.has(part, "setNewIsrWithEpochs")) {
            Late.call(part, "setNewIsrWithEpochs", Arrays.stream(isr).mapToObj(id -> message(STATE,
                "setBrokerId", id, "setBrokerEpoch", epochs[id])).toList());
        } else {
            Late.call(part, "setNewIsr", Arrays.stream(isr).boxed().toList());
        }
        var data = new AlterPartitionRequestData().setBrokerId(state.leader)
            .setBrokerEpoch(epochs[state.leader]).setTopics(List.of(
                new AlterPartitionRequestData.TopicData().setTopicId(topic).setPartitions(List.of(part))));
        return alter(data).topics().get(0).partitions().get(0).errorCode();
    }

    AlterPartitionResponseData alter(AlterPartitionRequestData data) {
        return done(replication.alterPartition(ASKED, data));
    }

    short elect(String topic, int partition, boolean unclean) {
        var topics = new ElectLeadersRequestData.TopicPartitionsCollection();
        topics.add(new ElectLeadersRequestData.TopicPartitions().setTopic(topic)
            .setPartitions(List.of(partition)));
        var data = new ElectLeadersRequestData().setElectionType((byte) (unclean ? 1 : 0))
            .setTopicPartitions(topics);
        return done(replication.electLeaders(data)).replicaElectionResults().get(0).partitionResult().get(0)
            .errorCode();
    }

    void balance() {
        done(Late.<ControllerResult<Boolean>>call(replication, "maybeBalancePartitionLeaders"));
    }

    /** The timer of unclean elections, in releases that have one (since 3.9). */
    void electUncleanly() {
        if (!Late.has(replication, "maybeElectUncleanLeaders")) return;
        done(Late.<ControllerResult<Boolean>>call(replication, "maybeElectUncleanLeaders"));
    }

    /** Sets, or deletes if the value is empty, a setting of a topic or (no topic) of the cluster. */
    short configure(String topic, String name, String value) {
        var type = topic.isEmpty() ? ConfigResource.Type.BROKER : ConfigResource.Type.TOPIC;
        ConfigResource resource = new ConfigResource(type, topic);
        OpType what = value.isEmpty() ? OpType.DELETE : OpType.SET;
        Map<String, Map.Entry<OpType, String>> change = new LinkedHashMap<>();
        change.put(name, new SimpleImmutableEntry<>(what, value));
        Map<ConfigResource, org.apache.kafka.common.requests.ApiError> answer =
            done(Late.call(configs, "incrementalAlterConfigs", Map.of(resource, change), false, true));
        return answer.get(resource).error().code();
    }

    void feature(String name, int level, boolean isUpgrade) {
        var type = isUpgrade ? FeatureUpdate.UpgradeType.UPGRADE : FeatureUpdate.UpgradeType.SAFE_DOWNGRADE;
        Object target = Late.has(configs, "updateFeatures") ? configs : features;
        done(Late.call(target, "updateFeatures", Map.of(name, (short) level), Map.of(name, type),
            Map.of(), false, 1));
    }

    void assign(int broker, long epoch, Map<Uuid, Map<Uuid, List<Integer>>> places) {
        String in = "org.apache.kafka.common.message.AssignReplicasToDirsRequestData";
        List<Object> directories = new ArrayList<>();
        places.forEach((place, topics) -> {
            List<Object> moved = new ArrayList<>();
            topics.forEach((topic, numbers) -> moved.add(message(in + "$TopicData", "setTopicId", topic, "setPartitions",
                numbers.stream().map(number -> message(in + "$PartitionData", "setPartitionIndex", number)).toList())));
            directories.add(message(in + "$DirectoryData", "setId", place, "setTopics", moved));
        });
        done(Late.<ControllerResult<?>>call(replication, "handleAssignReplicasToDirs",
            message(in, "setBrokerId", broker, "setBrokerEpoch", epoch, "setDirectories", directories)));
    }

    /** A message of Kafka's protocol with these values, each after the name of its setter. */
    private static Object message(String type, Object... values) {
        Object made = Late.made(Late.type(type));
        for (int i = 0; i < values.length; i += 2) Late.call(made, (String) values[i], values[i + 1]);
        return made;
    }

    // Another controller takes over

    /** A standby takes over that has read the log, or that loads a snapshot of the image. */
    void failOver(boolean fromSnapshot) {
        List<ApiMessageAndVersion> records = fromSnapshot ? snapshot() : new ArrayList<>(log);
        build();
        if (fromSnapshot) {
            log.clear();
            records.forEach(record -> log.add(decoded(record)));
        }
        MetadataDelta delta = Late.made(MetadataDelta.class, MetadataImage.EMPTY, CHECKER);
        long at = 0;
        for (ApiMessageAndVersion record : log) {
            replay(record.message(), fromSnapshot ? offset : ++at);
            Late.replay(delta, record.message(), at);
        }
        applied(delta);
        cluster.activate();
    }

    List<ApiMessageAndVersion> snapshot() {
        Object writer = Late.made(Late.type("org.apache.kafka.image.writer.RecordListWriter"));
        Class<?> kind = Late.type("org.apache.kafka.image.writer.ImageWriterOptions$Builder");
        Object options = Late.can(kind, image) ? Late.made(kind, image) : Late.made(kind, version());
        if (Late.has(options, "setMetadataVersion")) Late.call(options, "setMetadataVersion", version());
        Late.call(image, "write", writer, Late.call(options, "build"));
        return Late.call(writer, "records");
    }

    MetadataVersion version() {
        boolean isNew = Late.has(features, "metadataVersionOrThrow");
        return Late.call(features, isNew ? "metadataVersionOrThrow" : "metadataVersion");
    }

    boolean isElr() {
        return Late.has(features, "isElrFeatureEnabled") && Late.<Boolean>call(features, "isElrFeatureEnabled");
    }

    Map<Integer, BrokerRegistration> brokers() { return cluster.brokerRegistrations(); }

    /** The effective min ISR as a leader computes it, from the number of replicas of its own partition. */
    int minIsr(String topic, int replicas) {
        return Math.min(replicas, Integer.parseInt(setting(topic, MIN_ISR)));
    }

    String setting(String topic, String name) {
        Object entry;
        if (Late.has(configs, "getTopicConfig")) {
            entry = Late.call(configs, "getTopicConfig", topic, name);
        } else {
            Map<String, String> own = Late.call(configs, "getConfigs", new ConfigResource(ConfigResource.Type.TOPIC, topic));
            entry = Late.<Map<String, ?>>call(configs, "computeEffectiveTopicConfigs", own).get(name);
        }
        return entry instanceof String text ? text : Late.call(entry, "value");
    }
}
