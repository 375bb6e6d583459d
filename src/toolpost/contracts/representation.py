"""How values that may hold secrets are shown in the representation of a record: by their shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

_MOST_NAMES = 10


def shape(value: Any) -> str:
    """What kind of value it is, and how large; numbers are shown, and the names in an object."""
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, str):
        return f"<text of {len(value)} characters>"
    if isinstance(value, Mapping):
        names = [f"{name!r}: ..." for name in cast("Mapping[object, Any]", value)]
        return f"{{{', '.join([*names[:_MOST_NAMES], *(['...'] if len(names) > _MOST_NAMES else [])])}}}"
    if isinstance(value, bytes | list | tuple):
        return f"<{type(cast('object', value)).__name__} of {len(cast('list[Any]', value))}>"
    return f"<{type(value).__name__}>"


def shown(record: Any, *hidden: str) -> str:
    """The representation of a NamedTuple, with some of its fields shown by their shape."""
    fields = cast("dict[str, Any]", record._asdict())
    told = (f"{name}={shape(value) if name in hidden else repr(value)}" for name, value in fields.items())
    return f"{type(record).__name__}({', '.join(told)})"
