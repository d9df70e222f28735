"""Recordings of real clusters, one for each generation, and the engine beside them.

    kept.py     a recording: what was done, what was stored, what the brokers wrote
    faults.py   the same faults at the same times on the engine: the same ISR history?
    pauses.py   when paused followers left the ISR
    leader.py   a leader's TRACE lines through the engine's leader: the same high watermarks?

`tools/record/eras.py` makes the recordings, `data/recordings/eras` holds them.
"""
