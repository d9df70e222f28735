package org.apache.kafka.controller;

import java.nio.ByteBuffer;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.requests.*;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.metadata.*;

/**
 * A broker: whether it runs, with which epoch and directories. At level two it has Kafka's partitions, logs and
 * manager of ISR changes; each message that it sends, and each batch of the metadata log, waits until the
 * schedule delivers it. The loop of the fetcher, the transport of requests, and the work of ReplicaManager
 * between them are written here.
 */
final class Node {
    /** A replica: when the broker dies, its log remains and its partition does not. */
    static final class Part {
        final Uuid topic;
        final Object log;
        Object partition;
        int leader = -1;
        int epoch = -1;
        long saved; // the high watermark on disk
        long shown; // and as it was at the last check
        Fetch fetch;

        Part(Uuid topic, Object log) {
            this.topic = topic;
            this.log = log;
        }
    }

    /** A fetch that its leader has answered. */
    record Fetch(int epoch, long offset, ByteBuffer bytes, Object diverging, long highWatermark) { }

    /** An acks=all request that waits for followers. */
    record Wait(int slot, Part part, long end, int epoch) { }

    private static final boolean IS_REPAIRED = Boolean.getBoolean("repaired");
    final World w;
    final int id;
    boolean up;
    boolean stopping;
    long epoch = -1;
    long epochBefore = -1; // of its previous incarnation
    private int incarnation;
    boolean[] dirDown;
    final boolean[] cordoned;
    final boolean[] gone; // taken out of log.dirs
    private final long[] proofs; // the broker epoch in the clean-shutdown file of each directory; -1 without a file
    private final int[] disks; // how many disks each directory has had
    // level two
    final Part[] parts;
    final Queue<Runnable> later = new ArrayDeque<>();
    final List<Wait> waits = new ArrayList<>();
    Object cache;
    Object manager;
    int at; // how many batches of the metadata log it has read
    private MetadataImage image;
    AlterPartitionRequestData asked; // its ISR change, in flight
    AlterPartitionResponseData answer; // and the controller's answer
    private RequestCompletionHandler handler;

    Node(World world, int id, int dirs) {
        w = world;
        this.id = id;
        dirDown = new boolean[dirs];
        cordoned = new boolean[dirs];
        gone = new boolean[dirs];
        proofs = new long[dirs];
        disks = new int[dirs];
        Arrays.fill(proofs, -1);
        parts = new Part[w.slots.length];
    }

    boolean isAsking() { return asked != null && answer == null; }
    boolean isFetching(int slot) { return parts[slot] != null && parts[slot].fetch != null; }

    // The life of a broker

    void start(boolean withFailed) {
        if (up) return;
        boolean[] down = withFailed ? dirDown.clone() : new boolean[dirDown.length];
        List<Uuid> online = directories(down, false);
        if (online.isEmpty()) return;
        epochBefore = epoch;
        epoch = w.kafka.register(id, new Uuid(id, ++incarnation), proof(down), online);
        up = true;
        stopping = false;
        Arrays.fill(proofs, -1);
        dirDown = down;
        if (w.isWhole) {
            cache = Real.cache(id);
            manager = Real.manager(this);
            image = MetadataImage.EMPTY;
            at = w.kafka.images.size() - 1;
            news();
        }
        w.refresh();
        for (World.Slot slot : w.live) {
            if (!w.isWhole) slot.drop(id);
            slot.excused[id] |= slot.wiped[id] && !w.kafka.isElr();
        }
    }

    /** The epoch before a clean shutdown, as LogManager.readBrokerEpochFromCleanShutdownFiles finds it: the files of
     * all directories in log.dirs agree, and none of these directories has failed. */
    private long proof(boolean[] down) {
        long[] there = IntStream.range(0, down.length).filter(d -> !gone[d]).mapToLong(d -> down[d] ? -1 : proofs[d])
            .distinct().toArray();
        return there.length == 1 ? there[0] : -1;
    }

    List<Uuid> directories(boolean[] state, boolean wanted) {
        return IntStream.range(0, state.length).filter(d -> !gone[d] && state[d] == wanted).mapToObj(this::directory)
            .toList();
    }

    private Uuid directory(int number) { return new Uuid(1_000 + id, 1_000 + number + 10 * disks[number]); }

    void beat() {
        if (!up) return;
        boolean mayStop = w.kafka.beat(id, epoch, stopping, directories(dirDown, true), directories(cordoned, true),
            w.isWhole ? w.kafka.ends.get(at - 1) : w.kafka.offset);
        if (stopping && mayStop) end(true);
    }

    void stop() {
        stopping = up;
        beat();
    }

    void end(boolean isClean) {
        up = stopping = false;
        for (int d = 0; d < proofs.length; d++) proofs[d] = isClean && !gone[d] && !dirDown[d] ? epoch : -1;
        for (Part part : parts) {
            if (part == null) continue;
            if (isClean) save(part);
            part.partition = null;
            part.fetch = null;
            part.leader = -1;
        }
        asked = null;
        answer = null;
        later.clear();
        waits.clear();
    }

    /** The machine loses power: what was not flushed is gone (at level one, the whole log). */
    void losePower() {
        if (!up) return;
        end(false);
        for (World.Slot slot : w.slots) {
            boolean isLess = w.isWhole ? cutToDisk(parts[slot.s]) : slot.has[id] > 0;
            if (!isLess || slot.state == null) continue;
            slot.cut[id] = true;
            slot.has[id] = 0;
            slot.wiped[id] = true;
        }
    }

    /** Drops records that are not on disk. True if there were any. */
    private static boolean cutToDisk(Part part) {
        if (part == null) return false;
        long kept = Late.<Long>call(part.log, "recoveryPoint");
        boolean isLess = kept < Real.end(part.log);
        Late.call(part.log, "truncateTo", kept);
        return isLess;
    }

    void failDir(int number) {
        if (!up || number >= dirDown.length || gone[number]) return;
        assign();
        w.refresh();
        dirDown[number] = true;
        if (directories(dirDown, false).isEmpty()) end(false);
        else beat();
    }

    /** A failed disk is taken out of log.dirs while the broker is down: its replicas begin anew in the other one. */
    void takeOut(int number) {
        if (up || dirDown.length < 2 || gone[1 - number] || !dirDown[number]) return;
        gone[number] = true;
        for (World.Slot slot : w.slots) {
            if (slot.place[id] != number) continue;
            slot.place[id] = 1 - number;
            slot.has[id] = 0;
            slot.wiped[id] = true;
        }
    }

    /** A new, empty disk takes the place of the one that was taken out. */
    void putIn(int number) {
        if (up || number >= gone.length || !gone[number]) return;
        gone[number] = dirDown[number] = false;
        proofs[number] = -1;
        disks[number]++;
    }

    void cordon(int number) {
        if (number >= cordoned.length) return;
        cordoned[number] = !cordoned[number];
        beat();
    }

    /** The broker reports in which directory each of its replicas is. */
    void assign() {
        if (!up || !w.hasDirectories() || dirDown.length < 2) return;
        Map<Uuid, Map<Uuid, List<Integer>>> places = w.live.stream().filter(x -> x.isReplica(id))
            .collect(Collectors.groupingBy(x -> directory(x.place[id]),
                Collectors.groupingBy(x -> w.ids[x.t], Collectors.mapping(x -> x.p, Collectors.toList()))));
        if (!places.isEmpty()) w.kafka.assign(id, epoch, places);
    }

    void move(World.Slot slot, int number) {
        if (!up || number >= dirDown.length || dirDown[slot.place[id]] || dirDown[number] || gone[number]) return;
        slot.place[id] = number;
        assign();
    }

    /** For a reader: the broker, the leader it knows, its log end and high watermark, its ISR if it leads. */
    String shown(int slot) {
        Part part = parts[slot];
        if (part == null) return "";
        return String.format("%n        %d: leader=%d epoch=%d end=%d hw=%d%s%s%s", id, part.leader, part.epoch,
            Real.end(part.log), Real.highWatermark(part.log), leads(slot) ? " isr="
                + Late.call(Late.call(part.partition, "partitionState"), "isr") : "", asked != null ? " asks" : "",
            hasNews() ? " behind" : "");
    }

    void save() {
        for (Part part : parts) if (part != null && up) save(part);
    }

    private static void save(Part part) {
        Late.call(part.log, "flush", false);
        part.saved = Real.highWatermark(part.log);
    }

    // The metadata log

    boolean hasNews() { return up && at < w.kafka.images.size(); }

    /** Applies the next batch as ReplicaManager.applyDelta does: drops, leads or follows partitions. */
    void news() {
        if (!hasNews()) return;
        MetadataImage was = image;
        image = w.kafka.images.get(at++);
        Late.call(cache, "setImage", image);
        for (int s = 0; s < parts.length; s++) {
            String name = "t" + s / World.PARTS;
            PartitionRegistration before = registration(was, name, s);
            PartitionRegistration now = registration(image, name, s);
            if (now == null || !World.holds(now.replicas, id)) {
                parts[s] = null;
            } else if (!now.equals(before)) {
                order(s, image.topics().getTopic(name).id(), now);
            }
            if (parts[s] != null) Real.configure(parts[s].log, minIsr(name));
        }
    }

    private static PartitionRegistration registration(MetadataImage image, String name, int s) {
        var topic = image.topics().getTopic(name);
        return topic == null ? null : topic.partitions().get(s % World.PARTS);
    }

    private int minIsr(String topic) {
        for (String name : List.of(topic, "")) {
            var type = name.isEmpty() ? ConfigResource.Type.BROKER : ConfigResource.Type.TOPIC;
            String found = image.configs().configProperties(new ConfigResource(type, name)).getProperty(Kafka.MIN_ISR);
            if (found != null) return Integer.parseInt(found);
        }
        return 1;
    }

    private void order(int s, Uuid topic, PartitionRegistration now) {
        TopicPartition place = new TopicPartition("t" + s / World.PARTS, s % World.PARTS);
        Part part = parts[s];
        boolean isNew = part == null || !part.topic.equals(topic);
        if (isNew) parts[s] = part = new Part(topic, Real.log(id, place, topic));
        if (part.partition == null) {
            part.partition = Real.partition(this, place, topic);
            Late.call(part.partition, "setLog", part.log, false);
            Late.call(part.log, "updateHighWatermark", Math.min(part.saved, Real.end(part.log)));
        }
        if (!IS_REPAIRED || now.leader != id || !isKnown(part.partition, now)) {
            Real.order(part.partition, place, now, isNew, now.leader == id, topic);
        }
        if (part.epoch != now.leaderEpoch || part.leader != now.leader) part.fetch = null;
        part.leader = now.leader;
        part.epoch = now.leaderEpoch;
    }

    /** The smallest repair of the race, before the only call of makeLeader (in Scala, so its source cannot be
     * edited): a leader that receives the epochs that it already has keeps its state. */
    private static boolean isKnown(Object partition, PartitionRegistration now) {
        return Late.<Boolean>call(partition, "isLeader")
            && Late.<Integer>call(partition, "getLeaderEpoch") == now.leaderEpoch
            && Late.<Integer>call(partition, "getPartitionEpoch") == now.partitionEpoch;
    }

    // ISR changes: one request in flight, as NodeToControllerChannelManager sends it

    void send(Object builder, Object callback) {
        AbstractRequest request = ((AbstractRequest.Builder<?>) builder).build();
        asked = ((AlterPartitionRequest) request).data();
        answer = null;
        handler = (RequestCompletionHandler) callback;
    }

    void asks() {
        if (!isAsking()) return;
        try {
            answer = w.kafka.alter(asked);
        } catch (ApiException e) {
            answer = new AlterPartitionResponseData().setErrorCode(Errors.forException(e).code());
        }
    }

    void answered() {
        if (answer == null) return;
        var body = new AlterPartitionResponse(answer);
        var header = new RequestHeader(ApiKeys.ALTER_PARTITION, ApiKeys.ALTER_PARTITION.latestVersion(), "hunt", 0);
        asked = null;
        answer = null;
        handler.onComplete(new ClientResponse(header, null, "controller", 0, 0, false, null, null, body));
    }

    void lose() { answer = null; }

    /** Runs what was put off: requesting ISR changes again. */
    void putOff() {
        for (int i = later.size(); i > 0; i--) later.remove().run();
    }

    /** The broker's periodic check for replicas to remove from the ISR. */
    void check() {
        for (Part part : parts) {
            if (part != null && part.partition != null) Late.call(part.partition, "maybeShrinkIsr");
        }
    }

    // Records

    boolean leads(int slot) {
        return parts[slot] != null && parts[slot].partition != null && parts[slot].leader == id;
    }

    boolean follows(int slot) {
        return up && parts[slot] != null && parts[slot].leader > 0 && parts[slot].leader != id;
    }

    void produce(int slot) {
        if (!leads(slot)) return;
        Part part = parts[slot];
        Real.append(part.partition, "m" + w.step);
        waits.add(new Wait(slot, part, Real.end(part.log), part.epoch));
    }

    /** Answers the requests that need not wait any longer, as DelayedProduce does. */
    void acknowledge() {
        waits.removeIf(wait -> {
            if (parts[wait.slot] != wait.part) return true;
            scala.Tuple2<?, ?> done = Late.call(wait.part.partition, "checkEnoughReplicasReachOffset", wait.end);
            if (done._2() == Errors.NONE && !(Boolean) done._1()) return false;
            World.Slot slot = w.slots[wait.slot];
            boolean counts = done._2() == Errors.NONE && !slot.unclean && wait.part.topic.equals(w.ids[slot.t]);
            if (counts) slot.acks.add(new long[] {wait.end - 1, wait.epoch});
            return true;
        });
    }

    void fetch(int slot) {
        if (!follows(slot)) return;
        Part part = parts[slot];
        Node leader = w.nodes[part.leader];
        Part theirs = leader.parts[slot];
        if (!leader.up || theirs == null || theirs.partition == null || !theirs.topic.equals(part.topic)) return;
        long end = Real.end(part.log);
        Object read = Real.fetch(theirs.partition, this, part.topic, end, part.epoch, Real.lastEpoch(part.log));
        Object diverging = Real.opened(Late.field(read, "divergingEpoch", null));
        part.fetch = new Fetch(part.epoch, end, Real.bytes(read), diverging, Late.field(read, "highWatermark", 0L));
    }

    void fetched(int slot) {
        if (!isFetching(slot)) return;
        Part part = parts[slot];
        Fetch fetch = part.fetch;
        part.fetch = null;
        if (fetch.diverging instanceof FetchResponseData.EpochEndOffset at) {
            Real.cut(part.log, at.epoch(), at.endOffset());
        } else if (fetch.offset == Real.end(part.log)) {
            Real.copy(part.partition, part.log, fetch.bytes, part.epoch, fetch.highWatermark);
        }
    }
}
