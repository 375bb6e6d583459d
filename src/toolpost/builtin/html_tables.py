"""Tables of a page as Markdown; those that only lay out the page become its blocks again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    Cell = list[str]

_LONGEST_CELL = 500
_MOST_COLUMNS = 50


def table_lines(rows: Sequence[Sequence[Cell]]) -> list[str]:
    """A table as one block, of rows of cells of blocks; a layout as all of its blocks."""
    width = max((len(row) for row in rows), default=0)
    if width < 2 or width > _MOST_COLUMNS or any(_is_layout(cell) for row in rows for cell in row):
        return [block for row in rows for cell in row for block in cell]
    head, *body = [row for row in rows if any(row)] or [[]]
    above: list[str] = []
    if len(head) == 1 and body:  # a caption, or a heading over all columns
        above, head, body = head[0], body[0], body[1:]
    lines = [_line(head, width), "|" + " --- |" * width, *(_line(row, width) for row in body)]
    return [*above, "\n".join(lines)] if any(head) or body else []


def _is_layout(cell: Cell) -> bool:
    return sum(map(len, cell)) > _LONGEST_CELL or any(block.startswith(("#", "|", "```")) for block in cell)


def _line(row: Sequence[Cell], width: int) -> str:
    cells = [" ".join(cell).replace("\n", " ").replace("|", "\\|") for cell in row]
    return "".join(f"| {cell} " for cell in [*cells, *[""] * (width - len(cells))]) + "|"
