"""Real clusters of Kafka brokers, of any release from 0.8.2.2 to 4.1.2, for what really happens.

Theory of operation. The brokers of a cluster are processes on this machine: Kafka's own `main`, on
the jars that Maven has, on loopback. Faults are signals. What is inside is read from outside:
segments, checkpoints and the state that the controller stored. A cluster has its own folder and
ports, so two may run at once; it ends with the process that started it, in whatever way that ends.

A **schedule** is a scenario of `data/scenarios` that says at the end of its lines, after `#>`, what
to do to the real brokers. `python -m record NAME --version 0.10.2.2 --tries 10` (`make record`)
plays it and keeps in `data/recordings/history` what the brokers had after each block of it, beside
the time of every step and the brokers' own lines. `tests/test_record.py` plays the same commands on
the engine and compares. Real is what was seen: nothing of it is edited.

    cluster.py   processes: start, stop, signals
    config.py    the files that a broker of a release needs
    inside.py    what a broker has on its disk, and what the controller has stored
    play.py      a schedule on a cluster; the text that is kept
    many.py      many topics of a cluster moved at one time
    reassigned.py   the losses after a reassignment, ten tries each
    advice.py    what notebooks advise, ten tries each
    linked.py    fetcher threads and followers that share a link
    Ask.java     asks a controller for other replicas, or for the level of a feature
"""
