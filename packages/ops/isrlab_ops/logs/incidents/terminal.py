"""The answer as lines for a terminal: they fit its width, and the decisive parts are never cut.

Text from logs is made printable first: a terminal shows its control characters and obeys none.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence

from isrlab.events.wording import counted, printable
from isrlab_ops.logs.history.rules import Fault
from isrlab_ops.logs.incidents.answer import AnswerRow, LogAnswer, Proof, Story
from isrlab_ops.logs.incidents.quote import shortened, whole

LABEL, NARROW, WIDE = 8, 48, 160
MOST_STORIES, MOST_DOUBTS, MOST_FAULTS = 10, 10, 10
GREEN, RED = 32, 31
COLOURS = {"CALM": GREEN, "SAFE": GREEN}
_IS_COMMAND = re.compile(r"[a-z-]+\.sh |(?:systemctl|journalctl|dmesg|df|nc|ping|ulimit|last) ")


def first_lines(answer: LogAnswer, width: int) -> Iterator[str]:
    """The lines that a person on call reads first."""
    width = max(NARROW, min(width, WIDE))
    head, *rest = _wrapped(f"{answer.title}  {answer.state}", width)
    colour = COLOURS.get(answer.title, RED)
    yield _bold(answer.title, f"\x1b[{colour}m") + head[len(answer.title) :]
    yield from (" " * LABEL + line for line in _wrapped(" ".join(rest), width - LABEL) if line)
    for row in answer.rows:
        label, *lines = _of_row(row, width)
        yield _bold(label[:LABEL]) + label[LABEL:]
        yield from lines


def _bold(text: str, colour: str = "") -> str:
    return f"{colour}\x1b[1m{text}\x1b[0m"


def story_lines(
    story: Story, width: int, full: bool = False, is_chief: bool = False
) -> Iterator[str]:
    """One incident; with `full`, every quoted line of its evidence in full. For the chief
    incident, what the first lines say is not repeated."""
    width, each = max(NARROW, min(width, WIDE)), story.incident
    title = "The incident above" if is_chief else story.when
    times = "; ".join(story.times * is_chief)
    head, *rest = _wrapped(": ".join(filter(None, (title, times))), width - 4)
    yield _bold(f"{f'{story.number}.':<3} {head}")
    yield from _indented(rest)
    texts = [f"Also: {note}" for note in each.notes]
    if not is_chief:
        texts = [each.says, f"{story.who}; hit: {'; '.join((story.hit, *story.times))}.", *texts]
        texts += [f"Lost: {'; '.join(story.lost)}."] * bool(story.lost)
    for text in texts:
        yield from _indented(_wrapped(text, width - 4))
    for proof in story.proofs:
        yield from _indented(_of_proof(proof, width - 4, full))
    texts = [f"Alternative cause: {other}" for other in each.instead]
    texts += [f"Check: {check}" for check in story.checks[is_chief:]]
    texts += [f"Do: {story.then}"] * bool(story.then and not is_chief)
    texts += [f"Why: {story.why}"] * bool(story.why)
    for text in texts:
        yield from _indented(_wrapped(text, width - 4))


def below(answer: LogAnswer, faults: Sequence[Fault], width: int, full: bool) -> Iterator[str]:
    """The lines after the first ones: faults, doubts, caveats and the latest incidents."""
    width = max(NARROW, min(width, WIDE))
    notes = [*answer.doubts[1:MOST_DOUBTS], *answer.more]
    if len(answer.doubts) > MOST_DOUBTS:
        notes.append(f"{len(answer.doubts) - MOST_DOUBTS:,} more doubts: --json lists all")
    if faults:
        yield "\nLines that break a rule of Kafka:"
        yield from fault_lines(faults)
    if notes:
        yield "\nMind also:"
        yield from (
            line for note in notes for line in _indented(_wrapped(printable(note), width - 4))
        )
    shown = answer.stories[-MOST_STORIES:]
    for story in shown:
        yield ""
        yield from story_lines(story, width, full, story.number == answer.chief)
    if len(shown) < len(answer.stories):
        yield f"\n{len(answer.stories) - len(shown):,} earlier incidents: --json lists all"


def fault_lines(faults: Sequence[Fault]) -> Iterator[str]:
    """Lines that break a rule of Kafka, the first of them with the rule that each breaks."""
    for each in faults[:MOST_FAULTS]:
        against = f" (against {each.against})" if each.against else ""
        yield printable(f"  {each.file}:{each.line}  {each.says}{against}")
    if len(faults) > MOST_FAULTS:
        yield f"  and {len(faults) - MOST_FAULTS:,} more"


def _of_row(row: AnswerRow, width: int) -> list[str]:
    room = width - LABEL
    text = printable(row.text)
    lines = _quoted(text, row.quote, room) if row.quote else _wrapped(text, room)
    return [f"{row.label if n == 0 else '':<{LABEL}}{line}" for n, line in enumerate(lines)]


def _of_proof(proof: Proof, width: int, full: bool) -> list[str]:
    count = f" ({counted(proof.lines_in_all, 'line')})" if proof.lines_in_all > 1 else ""
    head = f"{proof.shows[:1].upper()}{proof.shows[1:]}{count}:"
    if not full:
        return _quoted(printable(f"{head} {proof.place}"), proof.text, width)
    lines = [head]
    for place, text in proof.lines:
        lines += _indented(_wrapped(f"{place}  {whole(text)}", width - 4))
    rest = proof.lines_in_all - len(proof.lines)
    return [*lines, f"    and {counted(rest, 'more line')}"] if rest > 0 else lines


def _quoted(where: str, text: str, room: int) -> list[str]:
    """A place and a line of a log, in one line if enough of it can be seen."""
    if not text:
        return _wrapped(where, room)
    left = room - len(where) - 2
    if len(text) <= left or left >= max(60, room // 2):
        return [f"{where}  {shortened(text, left)}"]
    return [*_wrapped(where, room), "  " + shortened(text, room - 2)]


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters; those of a command continue after a backslash."""
    text = printable(text)
    is_command = _IS_COMMAND.match(text.partition(": ")[2] or text) is not None
    if not is_command:
        return textwrap.wrap(text, width, break_on_hyphens=False) or [""]
    lines = [""]
    for piece in text.split("; "):
        together = f"{lines[-1]}; {piece}" if lines[-1] else piece
        if len(together) <= width:
            lines[-1] = together
            continue
        lines[-1:] = [f"{lines[-1]};"] * bool(lines[-1])
        parts = textwrap.wrap(piece, width - 2, break_on_hyphens=False)
        lines += [*(f"{part} \\" for part in parts[:-1]), parts[-1]]
    return lines


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
