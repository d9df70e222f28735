"""In which zone the stamps of a log are that name none: what the logs themselves say of it.

A process prints when it started, in ms since the epoch (`Kafka startTimeMs`): against the stamp of
that line it gives the zone, since 2.3. A container's stamp, which names its zone, does the same for
each line. A file that says nothing has the zone of the files beside it, else of all others if they
agree, else UTC, which is then said to be assumed.

Left out: an hour that comes twice at the end of summer time, in a log that says its zone only at
its start. The versions in the lines tell more there than their times.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from isrlab.logs.reader.stamps import zone_name

STEP_MS = 15 * 60 * 1000  # every zone is a multiple of it
MOST_APART_MS = 60_000  # of a broker's stamp and its container's, zone aside


class Evidence(NamedTuple):
    """From this line, stamped `local_ms`, on a file's local time is `ahead_ms` ahead of UTC."""

    line: int
    local_ms: int
    ahead_ms: int
    how: str


def evidence(line: int, local_ms: int, utc_ms: int, how: str) -> Evidence | None:
    """What a local time says of its zone if the moment is known; None if they are far apart."""
    ahead_ms = round((local_ms - utc_ms) / STEP_MS) * STEP_MS
    if abs(local_ms - utc_ms - ahead_ms) > MOST_APART_MS or abs(ahead_ms) > 15 * 3_600_000:
        return None
    return Evidence(line, local_ms, ahead_ms, how)


class Zones:
    """The zones of the files of a folder. `said` is what each file says; `given` the zone that
    the reader was given, in which its stamps have been read."""

    def __init__(self, said: Mapping[str, Sequence[Evidence]], given: str | None) -> None:
        self._said, self._given = said, given
        self._beside: dict[str, list[Evidence]] = {}
        for name, known in said.items():
            self._beside.setdefault(os.path.dirname(name), []).extend(known)
        for known in self._beside.values():
            known.sort(key=lambda each: each.local_ms)
        self._all = {each.ahead_ms for known in said.values() for each in known}

    def ahead_ms(self, file: str, lines: Sequence[int], local_ms: Sequence[int]) -> list[int]:
        """How far lines of a file, with these local times, are ahead of UTC."""
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
