"""Draw a workflow as SVG: one column per stage of concurrent steps, arrows for dependencies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from toolpost.sources.workflow.definition import PlannedStep, Workflow

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _EDGE = 200, 56, 60, 24, 24
_LONGEST = 27
_STYLE = """text{font:13px system-ui,sans-serif;fill:#1f2933}.tool{font-size:11px;fill:#52606d}
.title{font-weight:600}rect{fill:#f5f7fa;stroke:#829ab1}
path{fill:none;stroke:#829ab1}marker path{fill:#829ab1;stroke:none}
@media(prefers-color-scheme:dark){text{fill:#f5f7fa}.tool{fill:#cbd2d9}rect{fill:#323f4b}}"""


_ARROWHEAD = (
    '<marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0L8 4L0 8z"/></marker>'
)


_Spot: TypeAlias = tuple[str, int]  # a step and a column: its own, or one that an arrow from it passes through


class _Place(NamedTuple):
    x: int
    y: int


def draw(workflow: Workflow) -> str:
    """Return the picture of a workflow."""
    places, columns = _places(workflow.steps), _columns(workflow.steps)
    width = max(place.x for place in places.values()) + _WIDTH + _EDGE
    height = max(place.y for place in places.values()) + _HEIGHT + _EDGE
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>{_text(workflow.label)}</title>",
        f"<style>{_STYLE}</style>",
        f"<defs>{_ARROWHEAD}</defs>",
        f'<text class="title" x="{_EDGE}" y="{_EDGE}">{_text(workflow.label)}</text>',
        *_arrows(workflow.steps, places),
        *(_box(step, places[name, columns[name]]) for name, step in workflow.steps.items()),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _columns(steps: Mapping[str, PlannedStep]) -> dict[str, int]:
    """Return the column of every step: right of all its dependencies."""
    columns: dict[str, int] = {}
    for name, step in steps.items():  # in the order in which they can run
        columns[name] = max((columns[other] + 1 for other in step.needs), default=0)
    return columns


def _places(steps: Mapping[str, PlannedStep]) -> dict[_Spot, _Place]:
    """Return the place of every step, and of each column that an arrow passes, because arrows must not cross steps.

    Within a column, spots are ordered by the rows of what leads to them.
    """
    columns = _columns(steps)
    before: dict[_Spot, list[_Spot]] = {}
    for name, step in steps.items():
        before[name, columns[name]] = [(other, columns[name] - 1) for other in sorted(step.needs)]
        for other in step.needs:
            for column in range(columns[other] + 1, columns[name]):
                before[other, column] = [(other, column - 1)]
    rows: dict[_Spot, int] = {}
    for column in range(max(columns.values()) + 1):
        spots = [spot for spot in before if spot[1] == column]
        spots.sort(key=lambda spot: sum(rows[one] for one in before[spot]) / (len(before[spot]) or 1))
        rows.update({spot: row for row, spot in enumerate(spots)})
    return {
        spot: _Place(_EDGE + spot[1] * (_WIDTH + _GAP_X), _EDGE + _GAP_Y + row * (_HEIGHT + _GAP_Y))
        for spot, row in rows.items()
    }


def _arrows(steps: Mapping[str, PlannedStep], places: Mapping[_Spot, _Place]) -> Iterator[str]:
    columns = _columns(steps)
    for name, step in steps.items():
        for other in sorted(step.needs):
            start = _middle(places[other, columns[other]])
            curve = f"M{start.x + _WIDTH} {start.y}"
            at = _Place(start.x + _WIDTH, start.y)
            for column in range(columns[other] + 1, columns[name] + 1):
                end = _middle(places[name if column == columns[name] else other, column])
                half = (at.x + end.x) // 2
                curve += f"C{half} {at.y} {half} {end.y} {end.x} {end.y}"
                if column < columns[name]:
                    curve += f"H{end.x + _WIDTH}"
                at = _Place(end.x + _WIDTH, end.y)
            yield f'<path d="{curve}" marker-end="url(#end)"/>'


def _middle(place: _Place) -> _Place:
    return _Place(place.x, place.y + _HEIGHT // 2)


def _box(step: PlannedStep, place: _Place) -> str:
    marks = [mark for mark, has in (("each", step.items), ("if", step.when)) if has is not None]
    title = f"{step.name} ({', '.join(marks)})" if marks else step.name
    x, y = place.x + 12, place.y
    return (
        f'<g><rect x="{place.x}" y="{place.y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
        f'<text x="{x}" y="{y + 23}">{_text(_cut(title))}</text>'
        f'<text class="tool" x="{x}" y="{y + 42}">{_text(_cut(step.step.tool))}</text></g>'
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _text(text: str) -> str:
    return escape(text, {'"': "&quot;"})
