#!/usr/bin/env bash
# The disk of a partition's only replica fails, and is taken out of log.dirs. The broker starts, makes the replica
# anew, and reports its directory after it was unfenced: nobody is elected.
#
#   ./reproduce.sh 4.3.1
#   DISK=back ./reproduce.sh 4.3.1                 the control: the disk is repaired and stays
#   RATE=1000 PARTITIONS=4600 ./reproduce.sh 4.3.1  no slow connection, but three requests: 2,250 replicas in each
#
# The report is a request on a new connection, the heartbeat uses an old one: RATE, the connections that the controller
# accepts in a second, stands for a slow link. ../cluster.sh says what else is needed.
set -euo pipefail
brokers=1 ports=${PORTS:-314} partitions=${PARTITIONS:-1}
# shellcheck source=../cluster.sh
. "$(dirname "$0")/../cluster.sh"
look() {  # how many partitions of t have no leader
    topics --describe --topic t > "$work/now.txt" || true
    none=$(grep -cE 'Leader: (none|-1)' "$work/now.txt" || true)
    [ "$(grep -c 'Partition: ' "$work/now.txt")" = "$partitions" ] || none="unknown, as nobody answered"
}
until_none() { for _ in $(seq 60); do look && [ "$none" = "$1" ] && return; sleep 2; done; }

echo "in $work: Kafka $kafka, disk ${DISK:-taken out}"
configure 99 "$work/logs-99" "max.connection.creation.rate=${RATE:-1}" quota.window.num=2
configure 1 "$work/a"
for n in 99 1; do format $n && start $n; done
until_created t --replication-factor 1 --partitions "$partitions"
until_none 0
stop 1
configure 1 "$work/a,$work/b"
format 1
start 1
until_none 0
echo "1. $partitions partition(s) on the first of two disks; without a leader: $none"
mv "$work/a" "$work/a.kept" && touch "$work/a"
until_none "$partitions"
echo "2. this disk fails; without a leader: $none"
stop 1
if [ "${DISK:-out}" = back ]; then rm "$work/a" && mv "$work/a.kept" "$work/a"; else configure 1 "$work/b"; fi
sleep 12
start 1
until_created u --replication-factor 1 --partitions 1
until_shown 'Leader: 1[^0-9]' 60 u
look && echo "3. broker 1 has restarted, and leads a topic that was made since; without a leader: $none"
sleep "${WAIT:-60}"
look && echo "4. ${WAIT:-60} s later; without a leader: $none"
tool org.apache.kafka.tools.LeaderElectionCommand --bootstrap-server "$bootstrap" \
    --election-type preferred --all-topic-partitions > /dev/null || true
sleep 5
look && echo "5. after an election of preferred leaders; without a leader: $none"
grep -hE 'sending [1-9][0-9]* assign|has been unfenced' "$work/1.log" | cut -c1-120 || true
