"""Recordings of real clusters, one for each generation, and the engine beside them.

    kept.py     a recording: the actions, the stored states, the brokers' log lines
    faults.py   the same faults at the same times on the engine: the same ISR history?
    pauses.py   when paused followers left the ISR
    leader.py   a leader's TRACE lines through the engine's leader: the same high watermarks?

`packages/proof/record/eras.py` makes the recordings, `data/recordings/eras` holds them.
"""
