# Sourced by the scripts beside it: a KRaft controller (node 99) and brokers on this machine, driven with
# Kafka's own tools. Set `ports` (the first digits of all ports) and `brokers` (how many) before.
#
#   ./reproduce.sh /opt/kafka_2.13-4.3.1     an unpacked Kafka
#   ./reproduce.sh 4.3.1                     Kafka's jars from Maven
#
# Needs Java 17, and Maven for the second form. A folder of its own, which is left for its logs. Ends what
# it has started.
kafka=${1:?the folder of an unpacked Kafka, or a release}
work=$(mktemp -d)
bootstrap=$(for n in $(seq "$brokers"); do printf '127.0.0.1:%s9%s,' "$ports" "$n"; done)
bootstrap=${bootstrap%,}
declare -A pids=()
trap 'kill -9 "${pids[@]}" 2> /dev/null || true' EXIT

resolve() {  # artifact version: prints the class path, with a logger
    mkdir -p "$work/$1-$2"
    cat > "$work/$1-$2/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>report</groupId><artifactId>report</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>$1</artifactId><version>$2</version></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version></dependency>
</dependencies></project>
POM
    (cd "$work/$1-$2" && mvn -q -B -Dstyle.color=never dependency:build-classpath -Dmdep.outputFile=path.txt > /dev/null)
    cat "$work/$1-$2/path.txt"
}

if [ -d "$kafka" ]; then path=$kafka/libs/'*' tools=$kafka/libs/'*' core=$kafka/libs/'*'
else
    case $kafka in 4.2.2) of=4.2.1 ;; 4.4.0) of=4.3.1 ;; *) of=$kafka ;; esac  # tools not on Maven
    path=$(resolve kafka_2.13 "$kafka") tools=$(resolve kafka-tools "$of") core=$(resolve kafka_2.13 "$of")
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
    local class=$1 with=$tools
    shift
    case $class in kafka.admin.*) with=$core ;; kafka.*) with=$path ;; esac
    java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$with" "$class" "$@" 2> /dev/null
}
topics() { tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$bootstrap" "$@"; }
configs() { tool kafka.admin.ConfigCommand --bootstrap-server "$bootstrap" "$@"; }
features() { tool org.apache.kafka.tools.FeatureCommand --bootstrap-server "$bootstrap" "$@"; }
offsets() { tool org.apache.kafka.tools.GetOffsetShell --bootstrap-server "$bootstrap" --topic-partitions "$@"; }
produce() {  # topic count: records with acks=all
    local package=org.apache.kafka.tools
    case $(basename "$kafka") in 3.* | *-3.*) package=kafka.tools ;; esac
    for n in $(seq "$2"); do printf 'record %d\n' "$n"; done |
        tool $package.ConsoleProducer --bootstrap-server "$bootstrap" --topic "$1" \
            --request-required-acks all > /dev/null
}
partition() { topics --describe --topic "${1:-t}" | grep 'Partition: 0' || echo '  (no answer)'; }

configure() {  # node, its folders of logs, more settings
    local role=broker listener=PLAINTEXT://127.0.0.1:${ports}9$1
    [ "$1" = 99 ] && role=controller listener=CONTROLLER://127.0.0.1:${ports}99
    cat > "$work/$1.properties" <<PROPERTIES
process.roles=$role
node.id=$1
controller.quorum.voters=99@127.0.0.1:${ports}99
controller.listener.names=CONTROLLER
listeners=$listener
log.dirs=$2
metadata.log.dir=$work/metadata-$1
offsets.topic.replication.factor=1
log.cleaner.dedupe.buffer.size=2097152
PROPERTIES
    printf '%s\n' "${@:3}" >> "$work/$1.properties"
}
format() {
    tool kafka.tools.StorageTool format --ignore-formatted --cluster-id c2Nob29sb2Zicm9rZW5lbA \
        --config "$work/$1.properties" ${ELR:+--feature "eligible.leader.replicas.version=$ELR"} > /dev/null
}
start() {
    java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        -Dlog4j2.configurationFile="$work/log4j2.properties" \
        -cp "$path" kafka.Kafka "$work/$1.properties" >> "$work/$1.log" 2>&1 &
    pids[$1]=$!
}
stop() {  # a clean shutdown
    kill "${pids[$1]}"
    while kill -0 "${pids[$1]}" 2> /dev/null; do sleep 1; done
}
until_shown() {  # pattern, of the description of a partition, within so many looks
    for _ in $(seq "$2"); do
        partition "${3:-t}" > "$work/now.txt"
        grep -qE "$1" "$work/now.txt" && break
        sleep 1
    done
    cat "$work/now.txt"
}
until_created() {  # topic and its settings, as for kafka-topics --create
    for _ in $(seq 60); do
        topics --create --topic "$@" > /dev/null && return
        sleep 2
    done
    echo "topic $1 was not created within two minutes; the logs are in $work" >&2
    exit 1
}
