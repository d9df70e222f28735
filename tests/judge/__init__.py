"""Kafka's own classes as judge of the engine.

The same random schedule is played by the engine's leader and by a real `kafka.cluster.Partition`
with its log and its ISR manager, taken from the jars of a release. After every command both must
show the same: log end offset, high watermark, epochs, ISR and maximal ISR, what is pending and how
often was asked, of every follower its end offset and its clocks, and the answers to producers and
followers. A difference is shrunk and printed as a schedule. `make judge` needs Java and Maven; what
Kafka showed is also kept, and `tests/test_judged.py` plays that without either.

Not compared: how long a fetch is parked, several partitions in one request, followers and the
controller.

    schedules.py  random commands, the two held against each other, shrinking
    partition.py  Kafka's, from 3.3 on; older.py before that; world.py what they share
    jvm.py        Java objects of any release, by JPype; jars.py where Maven has them
    power.py      which verdicts are kept in data/judged, and what they notice
"""
