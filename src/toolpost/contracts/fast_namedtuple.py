"""NamedTuples of the hot path: build them without their constructor, represent them without their secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

T = TypeVar("T", bound=tuple[Any, ...])
_MAX_NAMES = 10


class _Direct(tuple[Any, ...]):
    """A tuple whose constructor stays that of tuples when a NamedTuple is mixed in."""

    __slots__ = ()
    __new__ = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - its fields are Any


def fast_constructor(kind: type[T]) -> Callable[[tuple[Any, ...]], T]:
    """Return a function that builds a NamedTuple from a tuple of all its fields, in order and unchecked.

    What it builds is of a subclass, and is copied and pickled as the NamedTuple itself. Not for outcomes, whose `type`
    callers compare.
    """
    # The class's own constructor runs Python code; ten of them for every call cost twice as much.

    def reduce(record: tuple[Any, ...]) -> tuple[type[T], tuple[Any, ...]]:
        return kind, tuple(record)

    members: dict[str, Any] = {name: getattr(kind, name) for name in ("__doc__", "__module__", "__qualname__")}
    members |= {"__slots__": (), "__reduce__": reduce}
    return cast("Callable[[tuple[Any, ...]], T]", type(kind.__name__, (_Direct, kind), members))


def represent(record: Any, *hidden: str) -> str:
    """Return the repr of a NamedTuple, with the shape of each field of `hidden` in place of its value."""
    fields = cast("dict[str, Any]", record._asdict())
    shown = (f"{name}={shape(value) if name in hidden else repr(value)}" for name, value in fields.items())
    return f"{type(record).__name__}({', '.join(shown)})"


def shape(value: Any) -> str:
    """Return the type and size of a value; of numbers the value, of objects the names of the members."""
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, str):
        return f"<text of {len(value)} characters>"
    if isinstance(value, Mapping):
        names = [f"{name!r}: ..." for name in cast("Mapping[object, Any]", value)]
        return f"{{{', '.join([*names[:_MAX_NAMES], *(['...'] if len(names) > _MAX_NAMES else [])])}}}"
    if isinstance(value, bytes | list | tuple):
        return f"<{type(cast('object', value)).__name__} of {len(cast('list[Any]', value))}>"
    return f"<{type(value).__name__}>"
