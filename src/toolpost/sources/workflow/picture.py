"""A picture of a workflow as SVG: one column for each stage that can run at once, arrows for what needs what."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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


class _Place(NamedTuple):
    x: int
    y: int


def draw(workflow: Workflow) -> str:
    """Return the picture of a workflow."""
    places = _places(workflow.steps)
    width = max(place.x for place in places.values()) + _WIDTH + _EDGE
    height = max(place.y for place in places.values()) + _HEIGHT + _EDGE
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>{_text(workflow.label)}</title>",
        f"<style>{_STYLE}</style>",
        f"<defs>{_ARROWHEAD}</defs>",
        f'<text class="title" x="{_EDGE}" y="{_EDGE}">{_text(workflow.label)}</text>',
        *_arrows(workflow.steps, places),
        *(_box(step, places[name]) for name, step in workflow.steps.items()),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _places(steps: Mapping[str, PlannedStep]) -> dict[str, _Place]:
    """Return the place of every step: a column right of all that it needs, below those before it."""
    columns: dict[str, int] = {}
    for name, step in steps.items():  # in the order in which they can run
        columns[name] = max((columns[other] + 1 for other in step.needs), default=0)
    filled: dict[int, int] = defaultdict(int)
    places: dict[str, _Place] = {}
    for name, column in columns.items():
        row, filled[column] = filled[column], filled[column] + 1
        places[name] = _Place(_EDGE + column * (_WIDTH + _GAP_X), _EDGE + _GAP_Y + row * (_HEIGHT + _GAP_Y))
    return places


def _arrows(steps: Mapping[str, PlannedStep], places: Mapping[str, _Place]) -> Iterator[str]:
    for name, step in steps.items():
        end = _Place(places[name].x, places[name].y + _HEIGHT // 2)
        for other in sorted(step.needs):
            start = _Place(places[other].x + _WIDTH, places[other].y + _HEIGHT // 2)
            middle = (start.x + end.x) // 2
            curve = f"M{start.x} {start.y}C{middle} {start.y} {middle} {end.y} {end.x} {end.y}"
            yield f'<path d="{curve}" marker-end="url(#end)"/>'


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
