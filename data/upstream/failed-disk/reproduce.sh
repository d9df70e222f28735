#!/usr/bin/env bash
# A disk of broker 1 fails, and is taken out of log.dirs while the broker is stopped cleanly. The leader
# dies. Broker 1 starts, makes its replica anew, empty, and is elected from the ELR.
#
#   ./reproduce.sh 4.3.1
#   ELR=0 ./reproduce.sh 4.3.1        a control, without eligible leader replicas
#   DISK=back ./reproduce.sh 4.3.1    a control: the disk is repaired and stays in log.dirs
#
# A directory fails when its folder is moved away and a file takes its place. ../cluster.sh says what else
# is needed.
set -euo pipefail
brokers=2 ports=${PORTS:-312}
# shellcheck source=../cluster.sh
. "$(dirname "$0")/../cluster.sh"

echo "in $work: Kafka $kafka, eligible.leader.replicas.version ${ELR:-of the release}, disk ${DISK:-taken out}"
more=(replica.high.watermark.checkpoint.interval.ms=1000)
configure 99 "$work/logs-99"
for n in 1 2; do configure $n "$work/a-$n,$work/b-$n" "${more[@]}"; done
for n in 99 1 2; do format $n && start $n; done
until_created t --replica-assignment 1:2 --config min.insync.replicas=2
until_shown 'Isr: [12],[12]' 60
produce t 1000
written=$(offsets t:0 | cut -d: -f3)
echo "1. $written records are written with acks=all"
failed=$(dirname "$(ls -d "$work"/[ab]-1/t-0)")
other=$work/a-1
[ "$failed" = "$other" ] && other=$work/b-1
mv "$failed" "$failed.kept" && touch "$failed"
echo "2. the directory of broker 1 that holds t-0 fails"
until_shown 'Isr: 2[^0-9,]' 60
stop 1
if [ "${DISK:-out}" = back ]; then rm "$failed" && mv "$failed.kept" "$failed"
else configure 1 "$other" "${more[@]}"; fi
kill -9 "${pids[2]}"
echo "3. broker 1 is stopped cleanly, its disk ${DISK:-taken out}; broker 2, the leader, is killed"
sleep 12
start 1
until_shown 'Leader: [12][^0-9]' 20
start 2
sleep 15
until_shown 'Isr: [12],[12]' 40
now=$(offsets t:0 | cut -d: -f3)
echo "4. broker 2 is back: t-0 ends at ${now:-?}, $((written - ${now:-0})) of $written acknowledged records are lost"
grep -h 'using ELR' "$work/99.log" || true
grep -h 'Truncating t-0 .*below high watermark' "$work/2.log" || true
