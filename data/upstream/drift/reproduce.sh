#!/usr/bin/env bash
# ELR is switched off, the controller restarted from a snapshot, ELR switched on, min.insync.replicas altered:
# from then on leader and controller have different partition epochs, and no ISR of that leader's broker changes.
#
#   ./reproduce.sh 4.3.1
#   RESTART=0 ./reproduce.sh 4.3.1    the control: the controller is not restarted
#
# ../cluster.sh says what else is needed.
set -euo pipefail
brokers=2 ports=${PORTS:-313}
# shellcheck source=../cluster.sh
. "$(dirname "$0")/../cluster.sh"
minimum() { configs --alter --entity-type brokers --entity-default --add-config "min.insync.replicas=$1"; }
isr() { until_shown 'Isr: [12],[12]' "$1" "$2"; }

echo "in $work: Kafka $kafka, the controller is ${RESTART:+not }restarted"
configure 99 "$work/logs-99" metadata.log.max.snapshot.interval.ms=4000
for n in 1 2; do configure $n "$work/logs-$n"; done
for n in 99 1 2; do format $n && start $n; done
until_created t --replica-assignment 1:2
isr 20 t
minimum 2
kill -9 "${pids[2]}"
echo "1. min.insync.replicas of the cluster is 2; broker 2 is killed"
until_shown 'Elr: 2' 40
features downgrade --feature eligible.leader.replicas.version=0
echo "2. ELR is switched off"
if [ -z "${RESTART:-}" ]; then
    touch "$work/mark"
    for i in $(seq 30); do  # records, until the controller has written a snapshot
        configs --alter --entity-type topics --entity-name t --add-config "retention.ms=8640000$i" > /dev/null
        [ "$i" -gt 3 ] && find "$work/metadata-99" -name '*.checkpoint' -newer "$work/mark" | grep -q . && break
        sleep 3
    done
    stop 99
    start 99
    sleep 10
    echo "3. the controller was restarted, from a snapshot"
fi
features upgrade --feature eligible.leader.replicas.version=1
minimum 1
sleep 3
minimum 2
echo "4. ELR is on again, and min.insync.replicas was set to 1 and back to 2"
grep -h 'Removed ELRs' "$work/99.log" | tail -2 || true
start 2
echo "5. broker 2 is back, with all records"
isr 20 t
echo "   requests for t that the controller refused so far: $(grep -ch 'requested disconnect from node 99' "$work/1.log" || true)"
until_created u --replica-assignment 1:2
echo "6. a topic that was made now"
isr 20 u
kill -9 "${pids[2]}"
sleep 12
start 2
echo "   and after broker 2 was killed and came back"
isr 20 u
stop 1
start 1
echo "7. broker 1, the leader, was restarted"
isr 20 t
isr 20 u
