"""Watches growing logs, and reports when an incident opens and when it is over.

When lines arrive, all logs are evaluated again, because a line may change the meaning of earlier
ones. Two incidents count as the same if they overlap in time, and share a replica that was out or a
broker to blame, and a partition, unless one of them has none yet.
"""

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
) -> Iterator[tuple[Findings | None, dict[int, Incident]]]:
    """Yields the current findings, and the incidents that opened or ended since the last ones, by a
    number that each keeps.

    With the first findings come only open incidents. If nothing is new, yields None and no
    incident. Raises LogDirError as `follow` does.
    """
    raised: list[Incident] = []  # the last state of every incident so far
    is_first = True
    for logs in follow(log_dir, time_zone=time_zone):
        if logs is None or not logs.rows:
            yield None, {}
            continue
        history = history_of(logs.rows, logs.file_rows)
        findings = found_in(logs, history, min_isr=min_isr, window=window)
        news, free = {}, [*range(len(raised))]
        for now in findings.incidents:
            place = next((n for n in free if _is_same(now, raised[n])), len(raised))
            before = raised[place : place + 1]
            if now.is_over != before[0].is_over if before else not (is_first and now.is_over):
                news[place + 1] = now
            raised[place : place + 1] = [now]
            free = [n for n in free if n != place]
        is_first = False
        yield findings, news


def rehearse(log_dir: PathName, step_ms: int) -> Iterator[tuple[int, Incident]]:
    """The reports, with their times, that a watcher would have made if it had looked every
    `step_ms` while the logs were written."""
    with TemporaryDirectory() as folder:
        watched = watch(folder)
        for now_ms in replayed(log_dir, folder, step_ms):
            for incident in next(watched)[1].values():
                yield now_ms, incident


def _is_same(now: Incident, other: Incident) -> bool:
    is_at_once = (other.end_ms is None or now.start_ms <= other.end_ms) and (
        now.end_ms is None or other.start_ms <= now.end_ms
    )
    # lost contact comes before the first shrink, and has no partition
    has_both = now.partitions and other.partitions
    has_same = not has_both or bool({*now.partitions} & {*other.partitions})
    return is_at_once and has_same and bool({*now.out, *now.blamed} & {*other.out, *other.blamed})
