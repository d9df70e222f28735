"""Messages in a folder of logs that no format of the reader knows, by their wording.

    python -m record.unknown FOLDER     # of loggers about replication; --all: of all loggers

For a new release: start its brokers (`record.eras`), and read the messages that no table has. A
wording that the tables list as irrelevant is marked with "-", an unknown one with "!".
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path

from isrlab_ops.logs.reader.files import find, lines
from isrlab_ops.logs.reader.formats import NO_NEWS
from isrlab_ops.logs.reader.layout import Layout
from isrlab_ops.logs.reader.lines import LOGGERS, LineReader, form_of
from isrlab_ops.logs.reader.metadata.files import recognise

SAMPLE = 300  # lines of a file, from which its layout is found
# Parts that differ from line to line: ids, partitions, numbers, lists of them.
VARYING = (
    (re.compile(r"\b[\w-]{22}\b"), "ID"),
    (re.compile(r"[\w.]+-\d+\b"), "T-N"),
    (re.compile(r"\d+(, ?\d+)*"), "N"),
    (re.compile(r"T-N(, ?T-N)+"), "T-N"),
)


def unknown(folder: Path, *, of_all: bool = False) -> Counter[tuple[str, str, str, str]]:
    """How often each wording occurs: mark, level, logger, message."""
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for source in find(folder):
        if source.skipped or recognise(source.path, source.name):
            continue
        texts = [line.text.decode("utf-8", "replace") for line in lines(source.path)]
        reader = LineReader(None, Layout.of(texts[:SAMPLE]))
        for head in filter(None, map(reader.time_of, texts)):
            is_known = not head.logger or not (of_all or LOGGERS.search(head.logger))
            if is_known or form_of(head.message):
                continue
            wording = head.message
            for pattern, name in VARYING:
                wording = pattern.sub(name, wording)
            mark = "-" if NO_NEWS.search(head.message) else "!"
            counts[mark, head.level, str(head.logger).rpartition(".")[2], wording[:200]] += 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="with the logs of a cluster")
    parser.add_argument("--all", action="store_true", help="of every logger")
    args = parser.parse_args()
    for wording, count in sorted(unknown(args.folder, of_all=args.all).items()):
        print(f"{count:6,} {' '.join(wording)}")


if __name__ == "__main__":
    main()
