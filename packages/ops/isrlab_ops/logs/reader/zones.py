"""The zone of stamps that do not name one, from evidence in the logs.

Since 2.3 a process prints when it started, in ms since the epoch (`Kafka startTimeMs`): the stamp
of that line minus this time is the zone's offset. A container's stamp, which names its zone, shows
the offset for each line. A file without evidence takes the zone of the files in its folder, else of
all others if they agree, else UTC, which is reported as assumed.

Left out: the hour that occurs twice at the end of summer time, in a log with evidence only at its
start. Partition versions order the lines of that hour better than their times.
"""

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from isrlab_ops.logs.reader.stamps import zone_name

STEP_MS = 15 * 60 * 1000  # the offset of every zone is a multiple of it
MOST_APART_MS = 60_000  # between a broker's stamp and its container's, apart from the zone


class Evidence(NamedTuple):
    """From this line on, stamped `local_ms`, a file's local time is `ahead_ms` ahead of UTC."""

    line: int
    local_ms: int
    ahead_ms: int
    how: str


def evidence(line: int, local_ms: int, utc_ms: int, how: str) -> Evidence | None:
    """The evidence that a local time gives if the moment is known; None if they are far apart."""
    ahead_ms = round((local_ms - utc_ms) / STEP_MS) * STEP_MS
    if abs(local_ms - utc_ms - ahead_ms) > MOST_APART_MS or abs(ahead_ms) > 15 * 3_600_000:
        return None
    return Evidence(line, local_ms, ahead_ms, how)


class Zones:
    """The zones of the files of a folder. `evidence` is by file; `given` the zone given to
    the reader, in which its stamps were read."""

    def __init__(self, evidence: Mapping[str, Sequence[Evidence]], given: str | None) -> None:
        self._said, self._given = evidence, given
        self._beside: dict[str, list[Evidence]] = {}
        for name, known in evidence.items():
            self._beside.setdefault(os.path.dirname(name), []).extend(known)
        for known in self._beside.values():
            known.sort(key=lambda each: each.local_ms)
        self._all = {each.ahead_ms for known in evidence.values() for each in known}

    def ahead_ms(self, file: str, lines: Sequence[int], local_ms: Sequence[int]) -> list[int]:
        """How far these lines of a file, with these local times, are ahead of UTC."""
        for known, at, place in ((self._said[file], lines, 0), (self._near(file), local_ms, 1)):
            if known:
                begins = [each[place] for each in known]
                last = (max(0, bisect_right(begins, each) - 1) for each in at)
                return [known[n].ahead_ms for n in last]
        return [min(self._all) if len(self._all) == 1 else 0] * len(lines)

    def _near(self, file: str) -> list[Evidence]:
        return self._beside[os.path.dirname(file)]

    def name(self, file: str, has_local: bool) -> str:
        """The zone of a file's stamps and how it is known, such as "UTC+02:00 (startTimeMs)"."""
        known = self._said[file] or self._near(file)
        names = " and ".join(dict.fromkeys(zone_name(each.ahead_ms) for each in known))
        if self._given:
            return f"{self._given} (given)"
        if not has_local:
            return "in its stamps"
        if known:
            return f"{names} ({known[0].how if self._said[file] else 'of the files beside it'})"
        if len(self._all) == 1:
            return f"{zone_name(min(self._all))} (of the other files)"
        return "UTC (assumed)"
