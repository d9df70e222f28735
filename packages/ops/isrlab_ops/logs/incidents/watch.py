"""Watches growing logs, and reports when an incident opens and when it is over.

When lines arrive, all logs are evaluated again, because a line may change the meaning of earlier
ones. Two incidents count as the same if they overlap in time, and share a replica that was out or a
broker to blame, and a partition, unless one of them has none yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryDirectory

from isrlab_ops.logs.history.history import history_of
from isrlab_ops.logs.incidents.find import Incident
from isrlab_ops.logs.incidents.look import Findings, found_in
from isrlab_ops.logs.incidents.window import Window
from isrlab_ops.logs.reader.files import PathName
from isrlab_ops.logs.reader.growing import follow
from isrlab_ops.logs.recordings import replayed


def watch(
    log_dir: PathName,
    *,
    time_zone: str | None = None,
    min_isr: int | None = None,
    window: Window | None = None,
) -> Iterator[tuple[Findings | None, list[Incident]]]:
    """Yields the current findings, and the incidents that opened or ended since the last ones.

    With the first findings come only open incidents. If nothing is new, yields None and no
    incident. Raises LogDirError as `follow` does.
    """
    raised: list[Incident] | None = None  # the last known incidents
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
    """The reports, with their times, that a watcher would have made if it had looked every
    `step_ms` while the logs were written."""
    with TemporaryDirectory() as folder:
        watched = watch(folder)
        for now_ms in replayed(log_dir, folder, step_ms):
            for incident in next(watched)[1]:
                yield now_ms, incident


def _is_raised(now: Incident, before: list[Incident] | None) -> bool:
    """Whether an incident was known in this state; at first, whether it is over."""
    if before is None:
        return now.is_over
    return any(_is_same(now, other) and now.is_over == other.is_over for other in before)


def _is_same(now: Incident, other: Incident) -> bool:
    is_at_once = (other.end_ms is None or now.start_ms <= other.end_ms) and (
        now.end_ms is None or other.start_ms <= now.end_ms
    )
    # lost contact comes before the first shrink, and has no partition
    has_both = now.partitions and other.partitions
    has_same = not has_both or bool({*now.partitions} & {*other.partitions})
    return is_at_once and has_same and bool({*now.out, *now.blamed} & {*other.out, *other.blamed})
