"""Kafka's own classes as judge of the engine.

The same random schedule is played by the engine and by a real Kafka object from the jars of a
release. After every command both must show the same state. A difference is shrunk and printed as a
schedule. `make judge` needs Java and Maven; Kafka's states are also stored, and
`tests/proof/test_judged.py` compares them without either (the engine's part: isrlab_proof.judged).

    partition   kafka.cluster.Partition with its log and its ISR manager, against the leader: ends,
                high watermark, epochs, ISR and maximal ISR, whether a change is pending, the number
                of requests, each follower's end and clocks, the answers to followers, and the step
                in which a real DelayedProduce or DelayedFetch leaves its real purgatory
    follower    ReplicaFetcherThread with its log, against the follower: requests, records, epochs,
                high watermark; any answer of a leader, to any pair of logs
    controller  ReplicationControlManager of KRaft: leader, ISR, epochs, ELR, answers; brokers
                start, shut down and die uncleanly, leaders ask with right and wrong values,
                operators ask for elections and reassignments

Not compared: how long a fetch is parked if nothing happens, and the controllers of the ZooKeeper
era. Where a harness makes the two agree by doing something that Kafka would not do itself, its
docstring says so; found.toml lists those differences as not corrected.

    classes.py    the classes that are judged, and in which releases
    schedules.py  schedules of a leader; comparison of any two players; shrinking
    pairs.py      schedules of a follower; brokers.py of a controller
    partition.py  Kafka's leader from 3.3 on; older.py from 2.4, managed.py from 0.9
    waiting.py    the produces and fetches that wait, and the ReplicaManager that all of them use
    fetcher.py    Kafka's follower; control.py its controller; world.py the objects that all share
    jvm.py        Java objects of any release, by JPype; jars.py Kafka's jars, from Maven
    watch.py      the changes of a release against the one before it
    mutants.py    wrong rules, which stored steps notice them, and which runs are worth storing
"""
