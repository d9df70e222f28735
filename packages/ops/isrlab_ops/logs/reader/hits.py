"""Finds the lines of a block that must be read, without reading each.

RE2 searches for all words together, at some hundred megabytes a second, after 3 ms to compile them.
In a small block, and without Arrow (in a browser), each word is searched for separately.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from isrlab_ops.logs.reader.files import ReadBlock, is_utf8
from isrlab_ops.logs.reader.formats import NO_NEWS, NO_NEWS_TEXT
from isrlab_ops.logs.reader.lines import PERHAPS, PERHAPS_WORDS, WANTED, WANTED_WORDS
from isrlab_ops.logs.reader.packed import DamagedFileError

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    HAS_RE2 = False
else:
    HAS_RE2 = True

_PERHAPS = re.compile(PERHAPS)
_SMALL_BYTES = 100_000


def hits(block: ReadBlock) -> list[int]:
    """The indices in the block of the lines that must be read, in order."""
    is_large = HAS_RE2 and len(block.data) > _SMALL_BYTES
    numbers = set(_by_re2(block) if is_large else _by_words(block)) | block.cut
    if not block.is_utf8:
        numbers.update(n for n in range(block.size) if not is_utf8(block.line(n)))
    return sorted(numbers)


def _by_re2(block: ReadBlock) -> list[int]:
    buffers = [None, pa.py_buffer(block.ends), pa.py_buffer(block.data)]
    lines = pa.Array.from_buffers(pa.binary(), block.size, buffers)
    any_ = pc.indices_nonzero(pc.match_substring_regex(lines, f"{WANTED}|{PERHAPS}"))
    lines = lines.take(any_)  # usually few
    is_news = pc.invert(pc.match_substring_regex(lines, NO_NEWS_TEXT))
    is_wanted = pc.or_(is_news, pc.match_substring_regex(lines, WANTED))
    return list(pc.filter(any_, is_wanted).to_pylist())


def _by_words(block: ReadBlock) -> set[int]:
    numbers = _with_words(block, WANTED_WORDS)
    if not block.is_plain:
        controls = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
        numbers |= {bisect_right(block.ends, m.start()) - 1 for m in controls.finditer(block.data)}
    for n in _with_words(block, PERHAPS_WORDS) - numbers:
        text = block.line(n).decode("utf-8", "replace")
        if _PERHAPS.search(text) and not NO_NEWS.search(text):
            numbers.add(n)
    return numbers


def _with_words(block: ReadBlock, words: tuple[bytes, ...]) -> set[int]:
    data, ends, numbers = block.data, block.ends, set[int]()
    for word in words:
        at = 0
        while (at := data.find(word, at)) >= 0:
            numbers.add(n := bisect_right(ends, at) - 1)
            at = ends[n + 1]
    return numbers


def searched(coming: Iterator[ReadBlock]) -> Iterator[tuple[ReadBlock, list[int]]]:
    """The blocks, each with its hits: the next block is searched in a thread while one is read."""
    if not HAS_RE2:  # a browser has no threads
        yield from ((block, hits(block)) for block in coming)
        return
    with ThreadPoolExecutor(max_workers=1) as ahead:  # a thread begins with the second block
        block, search, damage = next(coming, None), None, None
        while block:
            numbers, after = search.result() if search else hits(block), None
            try:
                after = next(coming, None)
            except (DamagedFileError, OSError) as error:
                damage = error
            search = ahead.submit(hits, after) if after else None
            yield block, numbers
            if damage:
                raise damage
            block = after
