"""Watches logs that grow, and says when an incident opens and when it is over.

Each time there is something new, all that is known is judged anew, for a line may change what an
earlier one meant. An incident is one that was known if it is about a partition and a replica of
that one, at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryDirectory

from isrlab.logs.history.history import history_of
from isrlab.logs.incidents.find import Incident
from isrlab.logs.incidents.look import Findings, found_in
from isrlab.logs.incidents.window import Window
from isrlab.logs.reader.files import PathName
from isrlab.logs.reader.growing import follow
from isrlab.logs.recordings import replayed


def watch(
    log_dir: PathName,
    *,
    time_zone: str | None = None,
    min_isr: int | None = None,
    window: Window | None = None,
) -> Iterator[tuple[Findings | None, list[Incident]]]:
    """The findings as often as they are asked for, and the incidents that opened or ended since.

    The first ones have only those that are open; without anything new, None and none. Raises
    LogDirError as `follow` does.
    """
    raised: list[Incident] | None = None  # as they were last
    for logs in follow(log_dir, time_zone=time_zone):
        if logs is None or not logs.rows:
            yield None, []
            continue
        history = history_of(logs.rows, logs.file_rows)
        findings = found_in(logs, history, min_isr=min_isr, window=window)
        news = [now for now in findings.incidents if not _is_raised(now, raised)]
        raised = findings.incidents
        yield findings, news


def rehearse(log_dir: PathName, step_ms: int) -> Iterator[tuple[int, Incident]]:
    """What would have been told, and when, to who had looked every `step_ms` while logs were
    written."""
    with TemporaryDirectory() as folder:
        watched = watch(folder)
        for now_ms in replayed(log_dir, folder, step_ms):
            for incident in next(watched)[1]:
                yield now_ms, incident


def _is_raised(now: Incident, before: list[Incident] | None) -> bool:
    """It was known, and as open as it is now; at first what is over is no news."""
    if before is None:
        return now.is_over
    return any(_is_same(now, other) and now.is_over == other.is_over for other in before)


def _is_same(now: Incident, other: Incident) -> bool:
    is_at_once = (other.end_ms is None or now.start_ms <= other.end_ms) and (
        now.end_ms is None or other.start_ms <= now.end_ms
    )
    has_same = set(now.partitions) & set(other.partitions) and set(now.out) & set(other.out)
    return is_at_once and bool(has_same)
