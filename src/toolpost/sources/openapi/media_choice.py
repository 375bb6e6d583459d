"""Which of the media types that a document offers is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from toolpost.web.media_types import media_type

if TYPE_CHECKING:
    from collections.abc import Iterable

Form = Literal["json", "multipart", "form", "text", "binary", "any"]

_ORDER: tuple[Form, ...] = ("json", "multipart", "form", "text", "binary", "any")
_ANYTHING = ("*/*", "application/*", "")


def form_of(name: str) -> Form:
    """In which form a body of this type is given: a value, a form, text or bytes."""
    read = media_type(name)
    if read.essence in _ANYTHING:
        return "any"
    match read.kind:
        case "json" | "multipart" | "form" | "binary":
            return read.kind
        case _:
            return "text"


def preferred(names: Iterable[str]) -> str | None:
    """The type that is used: JSON, forms with files, forms, text, bytes, anything, in this order."""
    return min(names, key=_rank, default=None)


def _rank(name: str) -> tuple[int, int]:
    form = form_of(name)
    if form != "json":
        return _ORDER.index(form), 0
    # Of the many kinds of patch, a merge patch is a document like any other.
    return 0, {"application/json": 0, "application/merge-patch+json": 1}.get(media_type(name).essence, 2)
