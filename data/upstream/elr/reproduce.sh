#!/usr/bin/env bash
# Variant A with Kafka's own tools only: three brokers, one kill -9, acknowledged records are gone.
#
#   ./reproduce.sh 4.3.1
#   ELR=0 ./reproduce.sh 4.3.1        the control, without eligible leader replicas
#
# ../cluster.sh says what else is needed.
set -euo pipefail
brokers=3 ports=${PORTS:-190}
# shellcheck source=../cluster.sh
. "$(dirname "$0")/../cluster.sh"
size=20000 count=${COUNT:-2000}
reassign() { tool org.apache.kafka.tools.reassign.ReassignPartitionsCommand --bootstrap-server "$bootstrap" "$@"; }
partition() { topics --describe --topic t | grep 'Partition: 1' || echo '  (no answer)'; }
end() { offsets t:1 | cut -d: -f3; }

echo "in $work: Kafka $kafka, eligible.leader.replicas.version ${ELR:-of the release}"
for n in 99 1 2 3; do
    configure $n "$work/data-$n" auto.leader.rebalance.enable=false
    format $n && start $n
done
until_created t --replica-assignment 1:2:3,1:2:3 --config min.insync.replicas=2
until_shown 'Isr: [123],[123],[123]' 120
for n in $(seq "$count"); do printf "%0${size}d\n" "$n"; done |
    tool org.apache.kafka.tools.ConsoleProducer --bootstrap-server "$bootstrap" --topic t \
        --request-required-acks all > /dev/null
written=$(end)
echo "1. $count records are written with acks=all, $written of them to t-1; all brokers are healthy"
partition

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
start 1
sleep 15
for _ in $(seq 30); do
    now=$(end) && [ -n "$now" ] && break
    sleep 2
done
echo "5. broker 1 is back"
partition
lost=$((written - ${now:-0}))
echo "   t-1 ends at offset ${now:-?}: $lost of $written acknowledged records are lost"
grep -h 'using ELR' "$work/99.log" || true
grep -h 'Truncating t-1 .*below high watermark' "$work/1.log" || true
