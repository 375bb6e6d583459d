"""Frozen dataclasses that are made by the thousand: build them without their constructor."""

from __future__ import annotations

from dataclasses import fields, make_dataclass
from typing import Any, TypeVar, cast

T = TypeVar("T")


def fast_frozen(kind: type[T]) -> type[T]:
    """Return what builds instances of a frozen dataclass with slots from the same keywords, without `__post_init__`."""
    # The class's own constructor goes around the `__setattr__` that freezes it for each field, which takes three times
    # as long. A class with the same slots that is not frozen sets the fields, and then becomes the frozen one.

    def become_frozen(record: Any) -> None:
        record.__class__ = kind

    thawed = make_dataclass(
        kind.__name__,
        [(each.name, each.type, each) for each in fields(cast("Any", kind))],
        namespace={"__post_init__": become_frozen},
        repr=False,
        eq=False,
        kw_only=True,
        slots=True,
    )
    return cast("type[T]", thawed)
