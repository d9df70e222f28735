"""How fast logs are read, compared with a plain script that only finds and parses the same lines.

    python benchmarks/bench_logs.py [megabytes]     (50, then 500)

The logs repeat a recording, each time a day later and with topics of that day (otherwise its epochs
would go back, as after a loss): starts and failures, in which every eighth line is an event; and
the same with no other event lines than those of ISRs, like most logs. Each is timed in its own
process, start included. Ratios are of wall time, and of processor time, which depends less on the
machine's other load. The answer of `logs` is timed as well.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date, timedelta
from itertools import product
from pathlib import Path

from isrlab_ops.logs.reader import read_local
from isrlab_ops.logs.recordings import folder

PLAIN = r"""
import pathlib, re, sys
from isrlab_ops.logs.reader.formats import FORMATS
LINE = re.compile(r"\[(\S+ \S+)\] \w+ (.*) \(([\w.$]+)\)$")
of_logger, found = {}, []
for form in FORMATS:
    of_logger.setdefault(form.logger.rpartition(".")[2], []).append(form.regex)
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.log")):
    for line in path.open(encoding="utf-8"):
        time, message, logger = match.groups() if (match := LINE.match(line)) else ("", "", "")
        tried = (regex.match(message) for regex in of_logger.get(logger.rpartition(".")[2], ()))
        found += [(time, match.groupdict()) for match in tried if match][:1]
print(len(found), "lines")
"""
OURS = r"""
import sys
from isrlab_ops.logs.reader import read_local
logs = read_local(sys.argv[1])
print(logs.events.num_rows, "events")
"""
ANSWER = r"""
import sys
from isrlab_ops.logs.incidents.look import look
findings = look(sys.argv[1])
print(len(findings.incidents), "incidents,", len(findings.losses), "grave,",
      len(findings.faults), "faults,", len(findings.doubts), "doubts")
"""
RELEASE = "3.9"
TOPIC = re.compile(rb"\b(orders|payments)\b")
TOPIC_ID = re.compile(rb"(?:topic I[Dd]|topic id|topicId=|TopicId:) ?([\w-]{22})")
FOLDER = str(Path(__file__).parent)
MEMORY = f"sys.path.append({FOLDER!r}); import alone; print(round(alone.peak_mb()))"


def without_events(path: Path, data: bytes) -> bytes:
    """A log without event lines, except those that name an ISR."""
    events = read_local(path).events["detail"].to_pylist()
    numbers = {int(dict(detail)["line"]) for detail in events}
    lines = enumerate(data.splitlines(keepends=True), start=1)
    return b"".join(line for n, line in lines if n not in numbers or b" ISR " in line)


def build(root: Path, megabytes: int, *, has_events: bool) -> None:
    """Write `megabytes` of logs: the server, controller and state-change logs of every broker."""
    originals = {path: path.read_bytes() for path in folder(RELEASE).rglob("*.log")}
    if not has_events:
        originals = {path: without_events(path, data) for path, data in originals.items()}
    size = sum(map(len, originals.values()))
    ids = {each for data in originals.values() for each in TOPIC_ID.findall(data)}
    for path, data in originals.items():
        first = date.fromisoformat(re.search(rb"^\[(\d{4}-\d\d-\d\d)", data)[1].decode())  # type: ignore[index]
        name = root / path.relative_to(path.parents[2])
        name.parent.mkdir(parents=True, exist_ok=True)
        with name.open("wb") as file:
            for day in range(max(1, megabytes * 1_000_000 // size)):
                later = str(first + timedelta(days=day)).encode()
                number = f"{day:04d}".encode()
                own = TOPIC.sub(rb"\g<1>" + number, data)
                for each in ids:
                    own = own.replace(each, number + each[4:])
                file.write(own.replace(str(first).encode(), later))


def processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(script: str, root: Path) -> tuple[float, float, str, str]:
    """Wall time (s), processor time (s), what it printed, and its peak memory (MB)."""
    started, used_s = time.perf_counter(), processor_s()
    printed = subprocess.run(
        [sys.executable, "-c", script + MEMORY, str(root)],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    return time.perf_counter() - started, processor_s() - used_s, printed[0], printed[1]


def main() -> None:
    sizes = map(int, sys.argv[1:] or ["50", "500"])
    for megabytes, has_events in product(sizes, (True, False)):
        with tempfile.TemporaryDirectory() as temporary:
            root = Path(temporary)
            build(root, megabytes, has_events=has_events)
            timed(PLAIN, root)  # so that the files are in memory
            plain_s, plain_cpu_s, found, _ = timed(PLAIN, root)
            ours_s, ours_cpu_s, events, memory = timed(OURS, root)
            answer_s, answer_cpu_s, says, most = timed(ANSWER, root)
        of = "of failures" if has_events else "with ISR lines only"
        print(
            f"{megabytes} MB {of}: plain script {plain_s:.1f} s ({found}), "
            f"read_local {ours_s:.1f} s ({events}, {memory} MB): "
            f"{ours_s / plain_s:.1f} times as long, "
            f"{ours_cpu_s / plain_cpu_s:.1f} times the processor ({ours_cpu_s:.1f} s); "
            f"answer {answer_s:.1f} s, {answer_cpu_s:.1f} s of the processor ({says}, {most} MB)"
        )


if __name__ == "__main__":
    main()
