package org.apache.kafka.controller;

import java.io.File;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiFunction;
import org.apache.kafka.common.*;
import scala.Function0;
import scala.Option;

/** The objects of a broker, built as each release needs it. The next schedule reuses the logs. */
final class Real {
    static final long LAG_MS = 8_000;
    static final int BYTES = 1 << 16;
    private static final String KAFKA = "org.apache.kafka.";
    private static final String INTERNALS = KAFKA + "storage.internals.log.";
    private static final File FOLDER = folder();
    private static final Map<String, Object> LOGS = new HashMap<>();
    private static final Map<Integer, Object> CONFIGS = new HashMap<>();
    private static final Object SCHEDULER = proxy((name, args) -> null, KAFKA + "server.util.Scheduler");
    private static final Object STATS = Late.made(Late.type(KAFKA + "storage.log.metrics.BrokerTopicStats",
        "kafka.server.BrokerTopicStats"), false, Optional.empty());
    private static final Object PURGATORY = Late.made(
        Late.type(KAFKA + "server.purgatory.DelayedOperationPurgatory", "kafka.server.DelayedOperationPurgatory"),
        "hunt", proxy((name, args) -> name.equals("size") ? (Object) 0 : null,
            KAFKA + "server.util.timer.Timer", "kafka.utils.timer.Timer"), 0, 1_000, false, false);
    private static final Object CHECKPOINTS = checkpoints();
    private static final Object ISOLATION = constant("LOG_END", KAFKA + "server.storage.log.FetchIsolation",
        INTERNALS + "FetchIsolation");
    private static final Class<?> PARAMS = Late.type(KAFKA + "server.storage.log.FetchParams",
        INTERNALS + "FetchParams", "kafka.server.FetchParams");
    private static final Class<?> ASKED = Late.type(KAFKA + "common.requests.FetchRequest$PartitionData");
    private static final Class<?> RECORDS = Late.type(KAFKA + "common.record.internal.MemoryRecords",
        KAFKA + "common.record.MemoryRecords");
    private static final Object GUARD = Late.found(INTERNALS + "VerificationGuard") instanceof Class<?>
        ? Late.constant(INTERNALS + "VerificationGuard", "SENTINEL") : "none";
    private static final Object CLIENT = constant("CLIENT", INTERNALS + "AppendOrigin");
    private static final Object LOCAL = local();

    private Real() { }

    private static File folder() {
        File memory = new File("/dev/shm");
        File folder = new File(memory.isDirectory() ? memory : new File(System.getProperty("java.io.tmpdir")),
            "hunt-" + ProcessHandle.current().pid());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> removed(folder)));
        return folder;
    }

    private static void removed(File file) {
        for (File inner : Objects.requireNonNullElse(file.listFiles(), new File[0])) removed(inner);
        file.delete();
    }

    static Object proxy(BiFunction<String, Object[], Object> body, String... names) {
        Class<?> kind = Late.type(names);
        return Proxy.newProxyInstance(kind.getClassLoader(), new Class<?>[] {kind},
            (self, method, args) -> switch (method.getName()) {
                case "hashCode" -> System.identityHashCode(self);
                case "equals" -> self == args[0];
                case "toString" -> "hunt";
                default -> body.apply(method.getName(), args);
            });
    }

    private static Object constant(String field, String... names) {
        return Late.constant(Late.type(names).getName(), field);
    }

    private static Object checkpoints() {
        String[] names = {KAFKA + "storage.internals.checkpoint.OffsetCheckpoints",
            "kafka.server.checkpoints.OffsetCheckpoints"};
        boolean isJava = Late.type(names).getMethods()[0].getReturnType() == Optional.class;
        return proxy((name, args) -> isJava ? Optional.empty() : Option.empty(), names);
    }

    private static Object local() {
        Class<?> kind = Late.type(KAFKA + "server.common.RequestLocal", "kafka.server.RequestLocal");
        return Late.call(kind, Late.has(kind, "noCaching") ? "noCaching" : "NoCaching");
    }

    /** The value in an Option of Scala or Java, or null if it is empty. */
    static Object opened(Object option) {
        if (option instanceof Optional<?> java) return java.orElse(null);
        if (option instanceof OptionalInt java) return java.isPresent() ? (Object) java.getAsInt() : null;
        if (option instanceof OptionalLong java) return java.isPresent() ? (Object) java.getAsLong() : null;
        return option instanceof Option<?> scala ? (scala.isEmpty() ? null : scala.get()) : option;
    }

    // Logs

    private static Object config(int minIsr) {
        return CONFIGS.computeIfAbsent(minIsr, min -> Late.made(Late.type(INTERNALS + "LogConfig"),
            Map.of(Kafka.MIN_ISR, "" + min, "segment.index.bytes", "4096")));
    }

    /** A broker's log of a partition, emptied. */
    static Object log(int broker, int slot, TopicPartition at, Uuid topic) {
        Object log = LOGS.computeIfAbsent(broker + "/" + at, key -> {
            File folder = new File(FOLDER, key);
            folder.mkdirs();
            // the class that Partition takes: 4.0 has two of this name
            Class<?> kind = Arrays.stream(Late.type("kafka.cluster.Partition").getMethods())
                .filter(m -> m.getName().equals("setLog")).findFirst().orElseThrow().getParameterTypes()[0];
            return Late.call(kind, Late.has(kind, "create") ? "create" : "apply", folder, config(1), 0L, 0L,
                SCHEDULER, STATS, new Kafka.Clock(), 60_000,
                Late.made(Late.type(INTERNALS + "ProducerStateManagerConfig"), 60_000, false), 60_000,
                Late.made(Late.type(INTERNALS + "LogDirFailureChannel"), 1), true, Option.empty(),
                Option.empty(), Optional.empty(), true, new ConcurrentHashMap<>(), false, listener());
        });
        boolean isJava = log.getClass().getName().startsWith(KAFKA);
        Late.call(log, "truncateTo", 0L);
        Late.call(log, "updateHighWatermark", 0L);
        Late.set(log, isJava ? "topicId" : "_topicId", isJava ? Optional.of(topic) : Option.apply(topic));
        return log;
    }

    private static Object listener() {
        Object kind = Late.found(INTERNALS + "LogOffsetsListener");
        return Late.constant(kind instanceof Class<?> ? INTERNALS + "LogOffsetsListener"
            : "kafka.log.LogOffsetsListener", "NO_OP_OFFSETS_LISTENER");
    }

    static void configure(Object log, int minIsr) {
        Object config = config(minIsr);
        if (Late.call(log, "config") != config) Late.call(log, "updateConfig", config);
    }

    static long end(Object log) { return Late.<Long>call(log, "logEndOffset"); }

    static long highWatermark(Object log) { return Late.<Long>call(log, "highWatermark"); }

    /** Whether this log has the record with this offset and leader epoch, which identify it. */
    static boolean has(Object log, long offset, int epoch) {
        if (end(log) <= offset) return false;
        Object cache = opened(Late.call(log, "leaderEpochCache"));
        return Objects.equals(opened(Late.call(cache, "epochForOffset", offset)), epoch);
    }

    static Optional<Integer> lastEpoch(Object log) {
        return Optional.ofNullable((Integer) opened(Late.call(log, "latestEpoch")));
    }

    /** Truncates to the epoch's end, here or at the leader, as AbstractFetcherThread.getOffsetTruncationState. */
    static void cut(Object log, int epoch, long leadersEnd) {
        Object own = opened(Late.call(log, "endOffsetForEpoch", epoch));
        long end = own == null ? leadersEnd : Math.min(leadersEnd, Late.<Long>call(own, "offset"));
        Late.call(log, "truncateTo", Math.min(end, end(log)));
    }

    // Partitions

    static Object partition(Node node, TopicPartition at, Uuid topic) {
        Object operations = Late.made(Late.type("kafka.cluster.DelayedOperations"), Option.apply(topic), at,
            PURGATORY, PURGATORY, PURGATORY, PURGATORY);
        Class<?> logs = Arrays.stream(Late.type("kafka.cluster.Partition").getConstructors()[0].getParameterTypes())
            .filter(kind -> kind.getSimpleName().equals("LogManager")).findFirst().orElseThrow();
        return Late.made(Late.type("kafka.cluster.Partition"), at, LAG_MS, node.w.kafka.version(), node.id,
            (Function0<Object>) () -> node.epoch, node.w.kafka.clock, proxy((name, args) -> null,
                KAFKA + "server.partition.AlterPartitionListener", "kafka.cluster.AlterPartitionListener"),
            operations, node.cache, Late.blank(logs), node.manager, Option.apply(topic));
    }

    static Object cache(int node) {
        Object kind = Late.found(KAFKA + "server.common.KRaftVersion");
        Object version = kind instanceof Class<?> c ? c.getEnumConstants()[0] : null;
        return Late.made(Late.type(KAFKA + "metadata.KRaftMetadataCache", "kafka.server.metadata.KRaftMetadataCache"),
            node, (java.util.function.Supplier<Object>) () -> version);
    }

    static Object manager(Node node) {
        Object channel = proxy((name, args) -> {
            if (name.equals("sendRequest")) node.send(args[0], args[1]);
            return null;
        }, KAFKA + "server.common.NodeToControllerChannelManager", KAFKA + "server.NodeToControllerChannelManager",
            "kafka.server.BrokerToControllerChannelManager");
        Object scheduler = proxy((name, args) -> {
            node.later.add((Runnable) args[1]);
            return null;
        }, KAFKA + "server.util.Scheduler", "kafka.utils.Scheduler");
        return Late.made(Late.type(KAFKA + "server.partition.DefaultAlterPartitionManager",
            KAFKA + "server.DefaultAlterPartitionManager", "kafka.server.DefaultAlterPartitionManager"), channel,
            scheduler, node.w.kafka.clock, node.id, (Function0<Object>) () -> node.epoch,
            (Function0<Object>) node.w.kafka::version, (java.util.function.Supplier<Object>) () -> node.epoch,
            (java.util.function.LongSupplier) () -> node.epoch);
    }

    /** Applies the metadata of a partition at its broker, which then leads or follows. */
    static void order(Object partition, TopicPartition at, Object state, boolean isNew, boolean leads, Uuid topic) {
        if (Late.has(state, "toLeaderAndIsrPartitionState")) {
            state = Late.call(state, "toLeaderAndIsrPartitionState", at, isNew);
        }
        Late.call(partition, leads ? "makeLeader" : "makeFollower", state, isNew, CHECKPOINTS,
            Option.apply(topic), Option.empty());
    }

    static void append(Object partition, String value) {
        Object record = Late.made(Late.type(KAFKA + "common.record.internal.SimpleRecord",
            KAFKA + "common.record.SimpleRecord"), (Object) value.getBytes());
        Class<?> none = Late.type(KAFKA + "common.compress.Compression", KAFKA + "common.record.CompressionType");
        Object list = java.lang.reflect.Array.newInstance(record.getClass(), 1);
        java.lang.reflect.Array.set(list, 0, record);
        Object records = Late.call(RECORDS, "withRecords", Late.constant(none.getName(), "NONE"), list);
        Late.call(partition, "appendRecordsToLeader", records, CLIENT, -1, LOCAL, GUARD, (short) 0);
    }

    /** The leader's answer to the fetch of a replica: Kafka's LogReadInfo. */
    static Object fetch(Object partition, Node from, Uuid topic, long offset, int epoch, Optional<Integer> last) {
        Object params = Late.made(PARAMS, (short) 15, from.id, from.epoch, 0L, 1, BYTES, ISOLATION,
            Optional.empty(), false);
        Object asked = Late.made(ASKED, topic, offset, 0L, BYTES, Optional.of(epoch), last);
        return Late.call(partition, "fetchRecords", params, asked, from.w.kafka.clock.ms, BYTES, true, true);
    }

    /** The end of the log in the answer to a consumer's ListOffsets; -1 for an error (not available yet). */
    static long told(Object partition) {
        try {
            Object found = opened(Late.call(partition, "fetchOffsetForTimestamp", -1L,
                Option.apply(IsolationLevel.READ_UNCOMMITTED), Optional.empty(), true, Option.empty()));
            if (Late.has(found, "timestampAndOffsetOpt")) found = opened(Late.call(found, "timestampAndOffsetOpt"));
            return Late.field(found, "offset", -1L);
        } catch (org.apache.kafka.common.errors.ApiException e) {
            return -1;
        }
    }

    /** The records of a fetch answer, copied from the leader's log. */
    static ByteBuffer bytes(Object read) {
        Object records = Late.field(Late.field(read, "fetchedData", null), "records", null);
        ByteBuffer buffer = ByteBuffer.allocate(Late.<Integer>call(records, "sizeInBytes"));
        if (Late.has(records, "readInto")) Late.call(records, "readInto", buffer, 0);
        else buffer.put(Late.<ByteBuffer>call(records, "buffer")).flip();
        return buffer;
    }

    static void copy(Object partition, Object log, ByteBuffer bytes, int epoch, long highWatermark) {
        Object records = Late.call(RECORDS, "readableRecords", bytes);
        Late.call(partition, "appendRecordsToFollowerOrFutureReplica", records, false, epoch);
        String name = Late.has(log, "maybeUpdateHighWatermark") ? "maybeUpdateHighWatermark" : "updateHighWatermark";
        Late.call(log, name, highWatermark);
    }
}
