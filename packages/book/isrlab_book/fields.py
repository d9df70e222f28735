"""A table as SVG: in each field a text, and a colour that has a meaning."""

from collections.abc import Iterable, Mapping, Sequence

from isrlab.show.colours import GREY, INK
from isrlab.show.svg import LETTER, WIDTH, Drawing, text_at, titled

NAMES, ROW = 130, 20  # pixels: the name of a row, the height of a row
Fields = tuple[Sequence[str], Mapping[str, Sequence[tuple[str, str]]]]


def draw_fields(
    title: str, blocks: Sequence[Fields], wide: float = 0, legend: Iterable[tuple[str, str]] = ()
) -> Drawing:
    """Named rows of (text, colour) in blocks, each under the heads of its columns, which share the
    width or are `wide`; the legend has colours and what they mean."""
    fields, texts, y, right = list[str](), list[str](), 0, 0.0  # fields lie below all texts
    rect = f'<rect x="{{:g}}" y="{{}}" width="{{:g}}" height="{ROW - 2}" fill="{{}}"/>'
    for heads, rows in blocks:
        step = wide or (WIDTH - NAMES) / len(heads)
        y += ROW * bool(heads)
        texts += [text_at(NAMES + step * (n + 0.5), y - 5, head, GREY)
                  for n, head in enumerate(heads)]  # fmt: skip
        for name, row in rows.items():
            y, right = y + ROW, max(right, NAMES + step * len(row))
            texts.append(text_at(NAMES - 8, y - 5, name, GREY, "end"))
            for x, (text, colour) in ((NAMES + step * n, field) for n, field in enumerate(row)):
                fields.append(rect.format(x, y - ROW + 1, step - 2, colour))
                texts.append(text_at(x + step / 2, y - 5, text, INK))
    for colour, meaning in legend:
        y, right = y + ROW, max(right, NAMES + ROW + 4 + LETTER * len(meaning))
        fields.append(rect.format(NAMES, y - ROW + 1, ROW - 2, colour))
        texts.append(text_at(NAMES + ROW + 4, y - 5, meaning, INK, "start"))
    return titled(title, Drawing(right, y + 4, "".join(fields + texts)))
