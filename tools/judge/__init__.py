"""Kafka's own classes as judge of the engine.

The same random schedule is played by the engine and by a real object of Kafka's, from the jars of a
release. After every command both must show the same. A difference is shrunk and printed as a
schedule. `make judge` needs Java and Maven; what Kafka showed is also kept, and
`tests/test_judged.py` plays that without either (isrlab/judged is the engine's part).

    partition   kafka.cluster.Partition with its log and its ISR manager, against the leader: ends,
                high watermark, epochs, ISR and maximal ISR, what is pending and how often was
                asked, each follower's end and clocks, the answers to followers, and the step in
                which a real DelayedProduce or DelayedFetch leaves its real purgatory
    follower    ReplicaFetcherThread with its log, against the follower: requests, records, epochs,
                high watermark; whatever a leader may answer, at whatever pair of logs
    controller  ReplicationControlManager of KRaft: leader, ISR, epochs, ELR, answers; brokers come,
                go, are shut down and die uncleanly, leaders ask right and wrong, operators elect

Not compared: how long a fetch is parked if nothing happens, several partitions in one request, the
controllers of the ZooKeeper era, reassignment. Where a harness lets the two agree by doing
something for Kafka that it would not do itself, its text says so; found.toml lists those
differences as not mended.

    classes.py    what is judged, in which releases
    schedules.py  schedules of a leader; any two players held against each other; shrinking
    pairs.py      schedules of a follower; brokers.py of a controller
    partition.py  Kafka's leader from 3.3 on; older.py from 2.4, managed.py from 0.9
    waiting.py    the produces and fetches that wait, and the ReplicaManager that all ask
    fetcher.py    Kafka's follower; control.py its controller; world.py what all share
    jvm.py        Java objects of any release, by JPype; jars.py where Maven has them
    watch.py      what a release changes against the one before it
    power.py      which verdicts are kept in data/judged, and what they notice
"""
