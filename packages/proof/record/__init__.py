"""Real clusters of Kafka brokers, of any release from 0.8.2.2 on, to record what really happens.

Theory of operation. The brokers of a cluster are processes on this machine: Kafka's own `main`,
with jars from Maven, on loopback. Faults are signals. The state is read from outside: segments,
checkpoints and the state that the controller stored. A cluster has its own folder and ports, so two
can run at the same time; it always ends together with the process that started it.

A **schedule** is a scenario of `data/scenarios` whose lines end with `#>` and what to do to the
real brokers. `python -m record NAME --version 0.10.2.2 --tries 10` (`make record`) plays it and
stores in `data/recordings/history` the brokers' state after each of its blocks, the time of every
step and the brokers' log lines. `tests/proof/test_record.py` plays the same commands on the engine
and compares. Recordings are never edited.

    cluster.py   processes: start, stop, signals
    config.py    the files that a broker of a release needs
    inside.py    the content of a broker's disk, and the state that the controller has stored
    play.py      a schedule on a cluster, and its recording
    many.py      many topics of a cluster moved at the same time
    reassigned.py   the losses after a reassignment, ten tries each
    remedies.py  remedies for an exposed partition, on it and on others; upgrades; ten tries each
    advice.py    the advice of notebooks, ten tries each
    linked.py    fetcher threads and followers that share a link
    Ask.java     asks a controller for other replicas, or for the level of a feature
"""
