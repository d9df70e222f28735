"""How long after its pause a real follower leaves the ISR: `python -m eras.pauses FOLDER`.

FOLDER holds what `python -m record.eras VERSION --pauses 30 --out FOLDER` has recorded. The figures
go to `data/recordings/eras/pauses.csv`, for notebook 02.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from eras import kept

PARTITION = 0  # one of those that a leader checks at one time


def waits(recording: kept.Recording) -> list[int]:
    """ms from each SIGSTOP to the next ISR without that broker, if its leader removed it.

    The controller may also remove a broker during its next pause, if a session ends although the
    broker has resumed. That has a new leader epoch, and is left out.
    """
    states = [s for s in recording.stored if s.partition == PARTITION]
    found = []
    for done in recording.done:
        if done.action == "SIGSTOP":
            *_, before = (s for s in states if s.ts_ms <= done.ts_ms)
            left = next(s for s in states if s.ts_ms > done.ts_ms and done.broker not in s.isr)
            if left.leader_epoch == before.leader_epoch:
                found.append(left.ts_ms - done.ts_ms)
    return found


def main() -> None:
    folder = kept.FOLDER = Path(sys.argv[1])
    rows = []
    for name in kept.names("-pauses"):
        recording = kept.read(name)
        rows += [(recording.version, recording.lag_ms, ms) for ms in waits(recording)]
    target = Path(__file__).parents[3] / "data" / "recordings" / "eras" / "pauses.csv"
    with target.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerows([("version", "lag_ms", "waited_ms"), *rows])
    print(f"{len(rows)} pauses from {folder}")


if __name__ == "__main__":
    main()
