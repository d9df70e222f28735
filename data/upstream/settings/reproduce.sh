#!/usr/bin/env bash
# A topic with a setting is deleted, and created again without it. After a restart the broker has the old
# setting again, and deletes the new topic's records. Ten topics, `t0` to `t9`: one for each try.
#
#   ./reproduce.sh 4.3.1                        one broker
#   REPLICAS=2 ./reproduce.sh 4.3.1             two brokers, of which one is restarted
#   OLD="" ./reproduce.sh 4.3.1                 the control: the deleted topic had no setting
#   NEW=retention.ms=604800000 ./reproduce.sh 4.3.1    a remedy: the new topic has this setting of its own
#
# ../cluster.sh says what else is needed.
set -euo pipefail
brokers=${REPLICAS:-1} ports=${PORTS:-311}
# shellcheck source=../cluster.sh
. "$(dirname "$0")/../cluster.sh"
old=${OLD-retention.ms=1000} tries=${TRIES:-10} records=${RECORDS:-1000}
replicas=$(seq -s: "$brokers")

echo "in $work: Kafka $kafka, $brokers broker(s), deleted topics had '${old:-no setting}'"
configure 99 "$work/logs-99"
for n in $(seq "$brokers"); do
    configure "$n" "$work/logs-$n" log.retention.check.interval.ms=5000 log.initial.task.delay.ms=5000
done
for n in 99 $(seq "$brokers"); do format "$n" && start "$n"; done
for i in $(seq 0 $((tries - 1))); do
    until_created "t$i" --replica-assignment "$replicas" ${old:+--config "$old"}
done
topics --delete --topic 't[0-9]'
sleep 5
for i in $(seq 0 $((tries - 1))); do
    until_created "t$i" --replica-assignment "$replicas" ${NEW:+--config "$NEW"}
    produce "t$i" "$records"
done
echo "1. $tries topics were deleted and created again, each with $records records of acks=all"
sleep 15
echo "   first offsets: $(offsets 't[0-9]' --time -2 | tr '\n' ' ')"
stop 1
start 1
for _ in $(seq 60); do offsets 't[0-9]' | grep -q . && break || sleep 2; done
echo "2. broker 1 was restarted; nothing else happened"
configs --describe --entity-type topics --entity-name t0
sleep "${WAIT:-40}"
first=$(offsets 't[0-9]' --time -2)
echo "3. first offsets: $(echo "$first" | tr '\n' ' ')"
lost=$(echo "$first" | awk -F: -v n="$records" '$3 == n' | wc -l)
echo "   no record can be read any more in $lost of $tries topics"
grep -h 'due to log retention time' "$work"/[0-9].log | head -2 || true
