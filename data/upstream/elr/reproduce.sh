#!/usr/bin/env bash
# Variant A with Kafka's own tools only: three brokers, one kill -9, acknowledged records are gone.
#
#   ./reproduce.sh /opt/kafka_2.13-4.3.1     an unpacked Kafka
#   ./reproduce.sh 4.3.1                     Kafka's jars from Maven
#   ELR=0 ./reproduce.sh ...                 the control, without eligible leader replicas
#
# Needs Java 17, and Maven for the second form. Ports 19091 to 19093 and 19099 of this machine; a
# folder of its own, which is left for its logs. Ends what it has started.
set -euo pipefail
kafka=${1:?the folder of an unpacked Kafka, or a release}
work=$(mktemp -d)
bootstrap=127.0.0.1:19091,127.0.0.1:19092,127.0.0.1:19093
size=20000 count=${COUNT:-2000}
declare -A pids=()
trap 'kill -9 "${pids[@]}" 2> /dev/null || true' EXIT

resolve() {  # artifact version: prints the class path, with a logger
    mkdir "$work/$1"
    cat > "$work/$1/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>report</groupId><artifactId>elr</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>$1</artifactId><version>$2</version></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version></dependency>
</dependencies></project>
POM
    (cd "$work/$1" && mvn -q -B -Dstyle.color=never dependency:build-classpath -Dmdep.outputFile=path.txt > /dev/null)
    cat "$work/$1/path.txt"
}

if [ -d "$kafka" ]; then path=$kafka/libs/'*' tools=$kafka/libs/'*'
else
    case $kafka in 4.2.2) of=4.2.1 ;; 4.4.0) of=4.3.1 ;; *) of=$kafka ;; esac  # tools not on Maven
    path=$(resolve kafka_2.13 "$kafka") tools=$(resolve kafka-tools "$of")
fi
cat > "$work/log4j2.properties" <<LOG
appender.out.type=Console
appender.out.name=OUT
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.out.ref=OUT
LOG

# What bin/kafka-topics.sh and its neighbours start, with the same options.
tool() {
    local class=$1
    shift
    case $class in kafka.*) local with=$path ;; *) local with=$tools ;; esac
    java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$with" "$class" "$@" 2> /dev/null
}
topics() { tool org.apache.kafka.tools.TopicCommand --bootstrap-server $bootstrap "$@"; }
reassign() { tool org.apache.kafka.tools.reassign.ReassignPartitionsCommand --bootstrap-server $bootstrap "$@"; }
offsets() { tool org.apache.kafka.tools.GetOffsetShell --bootstrap-server $bootstrap --topic t; }

configure() {  # node role listener
    cat > "$work/$1.properties" <<PROPERTIES
process.roles=$2
node.id=$1
controller.quorum.voters=99@127.0.0.1:19099
controller.listener.names=CONTROLLER
listeners=$3
log.dirs=$work/data-$1
offsets.topic.replication.factor=1
auto.leader.rebalance.enable=false
log.cleaner.dedupe.buffer.size=2097152
PROPERTIES
    tool kafka.tools.StorageTool format --cluster-id c2Nob29sb2Zicm9rZW5lbA \
        --config "$work/$1.properties" ${ELR:+--feature "eligible.leader.replicas.version=$ELR"} > /dev/null
}
start() {
    java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        -Dlog4j2.configurationFile="$work/log4j2.properties" \
        -cp "$path" kafka.Kafka "$work/$1.properties" >> "$work/$1.log" 2>&1 &
    pids[$1]=$!
}
partition() { topics --describe --topic t | grep 'Partition: 1' || echo '  (no answer)'; }
until_isr() {  # so many members
    for _ in $(seq 120); do
        [ "$(partition | grep -o 'Isr: [0-9,]*' | head -1 | tr -cd , | wc -c)" = $(($1 - 1)) ] && return
        sleep 1
    done
    echo "no ISR of $1 after two minutes"
    partition
    exit 1
}

echo "in $work, eligible.leader.replicas.version ${ELR:-of the release}"
configure 99 controller CONTROLLER://127.0.0.1:19099
for n in 1 2 3; do configure $n broker PLAINTEXT://127.0.0.1:1909$n; done
for n in 99 1 2 3; do start $n; done
for _ in $(seq 60); do
    topics --create --topic t --replica-assignment 1:2:3,1:2:3 --config min.insync.replicas=2 && break
    sleep 2
done
until_isr 3
for n in $(seq "$count"); do printf "%0${size}d\n" "$n"; done |
    tool org.apache.kafka.tools.ConsoleProducer --bootstrap-server $bootstrap --topic t \
        --request-required-acks all > /dev/null
echo "1. $count records written with acks=all; all brokers are healthy"
partition
written=$(offsets | grep t:1: | cut -d: -f3)
echo "   t-1 ends at offset $written"

move() { echo "{\"version\":1,\"partitions\":[{\"topic\":\"t\",\"partition\":1,\"replicas\":[$1]}]}" > "$work/move.json"; }
move 1
reassign --reassignment-json-file "$work/move.json" --execute > "$work/down.txt"
sleep 3
echo "2. t-1 was moved to broker 1 alone"
partition
move 1,2,3
reassign --reassignment-json-file "$work/move.json" --execute --throttle 20000 > "$work/up.txt"
sleep 2
echo "3. t-1 is moved back to brokers 1, 2, 3, with a throttle of 20 kB/s"
partition
kill -9 "${pids[1]}"
for _ in $(seq 20); do
    partition | grep -q 'Leader: 1' || break
    sleep 1
done
echo "4. broker 1 is killed, the only failure"
partition
offsets || true
start 1
sleep 15
for _ in $(seq 30); do
    now=$(offsets | grep t:1: | cut -d: -f3) && [ -n "$now" ] && break
    sleep 2
done
echo "5. broker 1 is back"
partition
lost=$((written - ${now:-0}))
echo "   t-1 ends at offset ${now:-?}: $lost of $written acknowledged records are lost"
grep -h 'using ELR' "$work/99.log" || true
grep -h 'Truncating t-1 .*below high watermark' "$work/1.log" || true
