package org.apache.kafka.controller;

import java.io.File;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.*;
import org.apache.kafka.common.*;
import scala.Function0;
import scala.Option;

/** The objects of a broker, built as each release needs it. The next schedule reuses the logs. */
final class Real {
    static final long LAG_MS = 8_000;
    static final int BYTES = 1 << 16;
    private static final File FOLDER = folder();
    private static final Map<String, Object> LOGS = new HashMap<>();
    private static final Map<Integer, Object> CONFIGS = new HashMap<>();
    private static final Object SCHEDULER = Late.proxy("Scheduler", (name, args) -> null);
    private static final Object STATS = Late.made("BrokerTopicStats", false, Optional.empty());
    private static final Object PURGATORY = Late.made("DelayedOperationPurgatory", "hunt",
        Late.proxy("timer.Timer", (name, args) -> name.equals("size") ? (Object) 0 : null), 0, 1_000, false, false);
    private static final boolean HAS_OPTIONAL =
        Late.type("OffsetCheckpoints").getMethods()[0].getReturnType() == Optional.class;
    private static final Object CHECKPOINTS =
        Late.proxy("OffsetCheckpoints", (name, args) -> HAS_OPTIONAL ? Optional.empty() : Option.empty());
    private static final Object ISOLATION = Late.constant("FetchIsolation", "LOG_END");
    private static final Object GUARD = Late.constant("VerificationGuard", "SENTINEL");
    private static final Object CLIENT = Late.constant("AppendOrigin", "CLIENT");
    private static final Object LOCAL = Late.call(Late.type("RequestLocal"), "noCaching|NoCaching");
    private static final Class<?> PARTITION = kafka.cluster.Partition.class;

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

    /** The value in an Option of Scala or Java, or null if it is empty. */
    static Object opened(Object option) {
        if (option instanceof Optional<?> java) return java.orElse(null);
        if (option instanceof OptionalInt java) return java.isPresent() ? (Object) java.getAsInt() : null;
        if (option instanceof OptionalLong java) return java.isPresent() ? (Object) java.getAsLong() : null;
        return option instanceof Option<?> scala ? (scala.isEmpty() ? null : scala.get()) : option;
    }

    // Logs

    private static Object config(int minIsr) {
        return CONFIGS.computeIfAbsent(minIsr, min -> Late.made("LogConfig",
            Map.of(Kafka.MIN_ISR, "" + min, "segment.index.bytes", "4096")));
    }

    /** A broker's log of a partition, emptied. */
    static Object log(int broker, TopicPartition at, Uuid topic) {
        Object log = LOGS.computeIfAbsent(broker + "/" + at, key -> {
            File folder = new File(FOLDER, key);
            folder.mkdirs();
            // the class that Partition takes: 4.0 has two of this name
            Class<?> kind = Arrays.stream(PARTITION.getMethods())
                .filter(m -> m.getName().equals("setLog")).findFirst().orElseThrow().getParameterTypes()[0];
            return Late.call(kind, "create|apply", folder, config(1), 0L, 0L, SCHEDULER, STATS, new Kafka.Clock(),
                60_000, Late.made("ProducerStateManagerConfig", 60_000, false), 60_000,
                Late.made("LogDirFailureChannel", 1), true, Option.empty(), Option.empty(), Optional.empty(), true,
                new ConcurrentHashMap<>(), false, Late.constant("LogOffsetsListener", "NO_OP_OFFSETS_LISTENER"));
        });
        boolean isJava = log.getClass().getName().startsWith("org.");
        Late.call(log, "truncateTo", 0L);
        Late.call(log, "updateHighWatermark", 0L);
        Late.set(log, isJava ? "topicId" : "_topicId", isJava ? Optional.of(topic) : Option.apply(topic));
        return log;
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
        Object operations = Late.made(kafka.cluster.DelayedOperations.class, Option.apply(topic), at,
            PURGATORY, PURGATORY, PURGATORY, PURGATORY);
        Class<?> logs = Arrays.stream(PARTITION.getConstructors()[0].getParameterTypes())
            .filter(kind -> kind.getSimpleName().equals("LogManager")).findFirst().orElseThrow();
        return Late.made(PARTITION, at, LAG_MS, node.w.kafka.version(), node.id, (Function0<Object>) () -> node.epoch,
            node.w.kafka.clock, Late.proxy("AlterPartitionListener", (name, args) -> null), operations, node.cache,
            Late.blank(logs), node.manager, Option.apply(topic));
    }

    static Object cache(int node) {
        Class<?> kind = Late.type("KRaftVersion");
        Object version = kind == null ? null : kind.getEnumConstants()[0];
        return Late.made("KRaftMetadataCache", node, (Supplier<Object>) () -> version);
    }

    static Object manager(Node node) {
        Object channel = Late.proxy("NodeToControllerChannelManager|BrokerToControllerChannelManager", (name, args) -> {
            if (name.equals("sendRequest")) node.send(args[0], args[1]);
            return null;
        });
        Object scheduler = Late.proxy("Scheduler", (name, args) -> {
            node.later.add((Runnable) args[1]);
            return null;
        });
        return Late.made("DefaultAlterPartitionManager", channel, scheduler, node.w.kafka.clock, node.id,
            (Function0<Object>) () -> node.epoch, (Function0<Object>) node.w.kafka::version,
            (Supplier<Object>) () -> node.epoch, (LongSupplier) () -> node.epoch);
    }

    /** Applies the metadata of a partition at its broker, which then leads or follows. */
    static void order(Object partition, TopicPartition at, Object state, boolean isNew, boolean leads, Uuid topic) {
        Object older = Late.call(state, "toLeaderAndIsrPartitionState|", at, isNew);
        Late.call(partition, leads ? "makeLeader" : "makeFollower", older == null ? state : older, isNew, CHECKPOINTS,
            Option.apply(topic), Option.empty());
    }

    static void append(Object partition, String value) {
        Object record = Late.made("SimpleRecord", (Object) value.getBytes());
        Object list = java.lang.reflect.Array.newInstance(record.getClass(), 1);
        java.lang.reflect.Array.set(list, 0, record);
        Object records = Late.call("MemoryRecords", "withRecords",
            Late.constant("Compression|CompressionType", "NONE"), list);
        Late.call(partition, "appendRecordsToLeader", records, CLIENT, -1, LOCAL, GUARD, (short) 0);
    }

    /** The leader's answer to the fetch of a replica: Kafka's LogReadInfo. */
    static Object fetch(Object partition, Node from, Uuid topic, long offset, int epoch, Optional<Integer> last) {
        Object params = Late.made("FetchParams", (short) 15, from.id, from.epoch, 0L, 1, BYTES, ISOLATION,
            Optional.empty(), false);
        Object asked = Late.made("FetchRequest$PartitionData", topic, offset, 0L, BYTES, Optional.of(epoch), last);
        return Late.call(partition, "fetchRecords", params, asked, from.w.kafka.clock.ms, BYTES, true, true);
    }

    /** The end of the log in the answer to a consumer's ListOffsets; -1 for an error (not available yet). */
    static long told(Object partition) {
        try {
            Object found = opened(Late.call(partition, "fetchOffsetForTimestamp", -1L,
                Option.apply(IsolationLevel.READ_UNCOMMITTED), Optional.empty(), true, Option.empty()));
            Object newer = opened(Late.call(found, "timestampAndOffsetOpt|"));
            return Late.field(newer == null ? found : newer, "offset", -1L);
        } catch (org.apache.kafka.common.errors.ApiException e) {
            return -1;
        }
    }

    /** The records of a fetch answer, copied from the leader's log. */
    static ByteBuffer bytes(Object read) {
        Object records = Late.field(Late.field(read, "fetchedData", null), "records", null);
        ByteBuffer buffer = ByteBuffer.allocate(Late.<Integer>call(records, "sizeInBytes"));
        ByteBuffer inMemory = Late.call(records, "readInto|buffer", buffer, 0);
        return inMemory == null ? buffer : buffer.put(inMemory).flip();
    }

    static void copy(Object partition, Object log, ByteBuffer bytes, int epoch, long highWatermark) {
        Object records = Late.call("MemoryRecords", "readableRecords", bytes);
        Late.call(partition, "appendRecordsToFollowerOrFutureReplica", records, false, epoch);
        Late.call(log, "maybeUpdateHighWatermark|updateHighWatermark", highWatermark);
    }
}
