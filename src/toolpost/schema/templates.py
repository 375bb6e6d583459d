"""Templates with `{name}` in place of a value; `{{` and `}}` are braces."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

_PIECE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][\w.-]*)\}|[^{}]+|[{}]")


class Slot(NamedTuple):
    """A placeholder for a value."""

    name: str


@lru_cache(maxsize=4096)
def split_template(template: str) -> tuple[str | Slot, ...]:
    """Split a template into literals and slots; adjacent literals are joined."""
    parts: list[str | Slot] = []
    for match in _PIECE.finditer(template):
        piece = Slot(match[1]) if match[1] else {"{{": "{", "}}": "}"}.get(match[0], match[0])
        if isinstance(piece, str) and parts and isinstance(parts[-1], str):
            parts[-1] += piece
        else:
            parts.append(piece)
    return tuple(parts)


def only_slot(template: str) -> Slot | None:
    """Return the slot of a template that consists of one slot; else None."""
    match split_template(template):
        case (Slot() as slot,):
            return slot
        case _:
            return None


def slot_names(template: str) -> list[str]:
    """Return the names of the slots, each once, in order."""
    return list(dict.fromkeys(piece.name for piece in split_template(template) if isinstance(piece, Slot)))


def fill_template(template: str, value: Callable[[str], str]) -> str:
    """Fill every slot with what `value` returns for its name."""
    return "".join(piece if isinstance(piece, str) else value(piece.name) for piece in split_template(template))
