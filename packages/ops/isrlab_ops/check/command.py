"""The input and output of `python -m isrlab check`: once, or until a restart is safe."""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from isrlab_ops.check import cluster, live, stored, what_if
from isrlab_ops.check.answer import (
    ALL_WELL,
    NOT_KNOWN,
    CheckQuestion,
    ClusterCheck,
    answer_of,
    as_dict,
)
from isrlab_ops.check.cluster import CheckError, ClusterState
from isrlab_ops.logs.incidents import terminal
from isrlab_ops.logs.reader.metadata.records import is_metadata
from isrlab_ops.logs.reader.packed import is_archive, kind_of

UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
SOURCE = ("path", "servers", "version", "config", "limit_s")  # options, grouped by use
ADDED = ("min_isr", "unclean", "zookeeper", "zones", "voters")
SIZES = ("throttle", "size", "produced")


def read(
    path: str | None, servers: str | None, version: str | None = None, **client: Any
) -> ClusterState:
    """The state from the one source that is given: a file, folder or cluster. Raises CheckError."""
    if (path is None) == (servers is None):
        raise CheckError("name one source: a file of kafka-topics --describe, a metadata log, or "
                         "--bootstrap-server")  # fmt: skip
    if path is None:
        return live.of_cluster(str(servers), version=version, **client)
    data = b"" if Path(path).is_dir() else _bytes(path)
    if path != "-" and (not data or is_metadata(data) or kind_of(data) or is_archive(data)):
        return stored.of_files(path, version)
    return cluster.of_text(cluster.decoded(data), version)


def _bytes(path: str) -> bytes:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise CheckError(f"{path}: {error.strerror}") from None
    if not data.strip():
        raise CheckError(f"{'the standard input' if path == '-' else path} is empty")
    return data


def bytes_of(text: str | None, option: str) -> float:
    """A number of bytes such as 20MB or 500000. Raises CheckError."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?) ?([kmgt]?)i?b?(?:/s)?", (text or "0").lower())
    if match is None:
        raise CheckError(f"--{option} {text!r:.40} is not a size such as 20MB")
    return float(match[1]) * UNITS[match[2]]


def tell(options: Mapping[str, Any], as_json: bool, watched: bool) -> int:
    """Print the answer for these options, and return the exit status. Raises CheckError."""
    how = dict(options)
    source, added = ({name: how.pop(name) for name in names} for names in (SOURCE, ADDED))
    if added["zones"] and "=" not in added["zones"]:
        added["zones"] = cluster.decoded(_bytes(added["zones"]))
    if Path(added["voters"]).is_file():
        added["voters"] = cluster.decoded(_bytes(added["voters"]))
    state = cluster.with_options(read(**source), **added)
    sizes = [bytes_of(how.pop(name), name) for name in SIZES]
    if plan := how.pop("move"):
        how["move"] = what_if.PlannedMove(what_if.plan_of(_bytes(str(plan)), state), *sizes)
    how |= {name: state.chosen(how[name]) for name in ("restart", "down")}
    check = ClusterCheck(state, CheckQuestion(**how))
    lines = [*terminal.first_lines(answer_of(check), shutil.get_terminal_size((120, 24)).columns)]
    if as_json:
        lines = [json.dumps(as_dict(check), indent=None if watched else 1)]
    for line in lines[:1] if watched and check.status != ALL_WELL else lines:
        click.echo(line, color=False if os.environ.get("NO_COLOR") else None)
    return check.status


def watch(answer: Callable[[], int], every_s: float) -> int:
    """Repeat until all is well (0) or Ctrl-C (2); errors after the first time are only printed."""
    status = answer()
    while status != ALL_WELL:
        try:
            time.sleep(every_s)
            status = answer()
        except CheckError as error:
            click.echo(f"isrlab: {error}", err=True)
        except KeyboardInterrupt:
            return NOT_KNOWN
    return ALL_WELL
