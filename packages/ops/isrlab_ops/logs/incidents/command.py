"""The output of `python -m isrlab logs`: once, or each time something is new."""

import gc
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from isrlab.events.wording import duration, printable
from isrlab.world.decided import decided
from isrlab_ops.logs.incidents import look, page, retold, terminal, watch
from isrlab_ops.logs.incidents import tell as tell_
from isrlab_ops.logs.incidents.anonymous import Names
from isrlab_ops.logs.incidents.answer import LogAnswer, answer_about
from isrlab_ops.logs.incidents.look import Findings
from isrlab_ops.logs.reader.files import PathName

QUIET_S = 60  # without growth: then a note is printed
NO_TERMINAL = (120, 24)  # columns and lines if the output is not a terminal


class OutputOptions(NamedTuple):
    """The forms of an answer: JSON or text; a file for the page."""

    as_json: bool = False
    page: Path | None = None
    full: bool = False
    anonymous: bool = False


class ShownAnswer(NamedTuple):
    """An answer, and the stand-ins for its names if it is to be anonymous."""

    answer: LogAnswer
    names: Names | None

    def of(self, value: Any) -> Any:
        return self.names.of(value) if self.names else value


def shown_answer(findings: Findings, anonymous: bool = False) -> ShownAnswer:
    """The answer that findings give, as it is shown."""
    answer = answer_about(findings)
    return ShownAnswer(answer, _names(findings, answer) if anonymous else None)


def _names(findings: Findings, answer: LogAnswer) -> Names:
    """Stand-ins for all names, assigned before anything is shown."""
    files = findings.logs.file_rows
    topics = {row.topic for row in findings.logs.rows if row.topic is not None}
    paths = {row[name] for row in files for name in ("file", "run")}
    addresses = sorted(findings.settings.addresses.items())
    hosts = [address.rpartition(":")[0] for _, address in addresses]
    names = Names(topics, dict.fromkeys(hosts), paths - {""})
    names.of(answer)
    return names


def tell(log_dir: PathName, wanted: OutputOptions, *, min_isr: int | None, **how: Any) -> int:
    """Print the answer about a folder of logs; returns the exit status. Raises as `look` does."""
    gc.disable()  # rows have no cycles, and there may be millions of them
    try:
        findings = look.look(log_dir, min_isr=min_isr, **how)
    finally:
        gc.enable()
    answered = shown_answer(findings, wanted.anonymous)
    if wanted.page:
        shown, faults = answered.of((answered.answer, findings.faults))
        text = page.page_of(shown, faults, page.timeline(findings))
        wanted.page.write_text(text, encoding="utf-8")
    if wanted.as_json:
        whole = answered.of(tell_.as_dict(findings, answered.answer))
        click.echo(json.dumps(whole, indent=1), nl=False)
        return findings.status
    answer, width = answered.of(answered.answer), _width()
    _print(terminal.first_lines(answer, width))
    _print(terminal.below(answer, answered.of(findings.faults), width, wanted.full))
    return findings.status


def tell_when_decided(log_dir: PathName, name: str, min_isr: int | None, **how: Any) -> int:
    """Print when the loss of a partition such as "orders-0" was decided; returns the exit status.
    Raises as `look` and `retold` do."""
    record = look.look(log_dir, min_isr=min_isr, **how).record
    keys = {f"{key.topic}-{key.partition}": key for key in record.spans}
    if name not in keys:
        known = ", ".join([*keys][:8]) or "none"
        raise ValueError(f"no partition {printable(name)!r}; known: {printable(known)}")
    story = retold.retold(record, keys[name], min_isr)
    click.echo("\n".join([story.text, decided(story.text).table, story.how]))
    return look.CALM


def follow(
    log_dir: str, every_s: float, anonymous: bool, *, min_isr: int | None, **how: Any
) -> NoReturn:
    """Print what is new until interrupted, then exit with the status of the last findings."""
    last: Findings | None = None
    watched = FolderWatch(Path(log_dir), every_s)
    try:
        for findings, news in watch.watch(log_dir, min_isr=min_isr, **how):
            _print(watched.notes(is_new=findings is not None))
            if findings:
                known = last.faults if last else ()
                answered = shown_answer(findings, anonymous)
                faults = answered.of([each for each in findings.faults if each not in known])
                first = () if last else terminal.first_lines(answered.of(answered.answer), _width())
                _print(first)
                _print(["", "DOUBT", *terminal.fault_lines(faults)] if faults else ())
                stories = answered.of(answered.answer).stories
                for number, incident in news.items():
                    story = replace(stories[findings.incidents.index(incident)], number=number)
                    title = "OVER" if incident.is_over else "OPEN"
                    _print(["", title, *terminal.story_lines(story, _width())])
            last = findings or last
            time.sleep(every_s)
    except KeyboardInterrupt:
        raise SystemExit(last.status if last else look.NOT_KNOWN) from None
    raise AssertionError("watching never ends by itself")


class FolderWatch:
    """Watches a folder: which files disappear from it, and whether any still grows."""

    def __init__(self, folder: Path, every_s: float) -> None:
        self._folder, self._every_s = folder, every_s
        self._names, self._quiet = self._listed(), 0

    def _listed(self) -> set[str]:
        return {p.relative_to(self._folder).as_posix() for p in self._folder.rglob("*")}

    def notes(self, is_new: bool) -> Iterator[str]:
        """Notes to print after a look at the folder; `is_new`: it found something new."""
        names = self._listed()
        for name in sorted(self._names - names):
            if not any(other.startswith(name) for other in names):  # it may be compressed now
                yield f"GONE: {printable(name)} is no longer there; what it said is kept."
        was_quiet = self._quiet * self._every_s >= QUIET_S
        self._names, self._quiet = names, 0 if is_new else self._quiet + 1
        is_quiet = self._quiet * self._every_s >= QUIET_S
        if was_quiet and is_new:
            yield "GROWING: lines arrive again."
        elif is_quiet and not was_quiet:
            since = duration(1000 * self._quiet * self._every_s)
            yield f"QUIET: no file has grown for {since}; are the brokers down?"


def _width() -> int:
    return shutil.get_terminal_size(NO_TERMINAL).columns


def _print(lines: Iterable[str]) -> None:
    """Colours only for a terminal, and none where NO_COLOR is set (no-color.org)."""
    for line in lines:
        click.echo(line, color=False if os.environ.get("NO_COLOR") else None)
