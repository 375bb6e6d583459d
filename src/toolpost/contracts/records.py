"""Representations of records that show only type and size of fields that may contain a secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

_MAX_NAMES = 10


def represent(record: Any, *hidden: str, without: tuple[str, ...] = ()) -> str:
    """Return the repr of a record, with type and size of the fields `hidden` instead of values, `without` others."""
    fields = {name: getattr(record, name) for name in record.__struct_fields__ if name not in without}
    shown = (f"{name}={shape(value) if name in hidden else repr(value)}" for name, value in fields.items())
    return f"{type(record).__name__}({', '.join(shown)})"


def shape(value: Any) -> str:
    """Return the type and size of a value; for numbers the value, for objects the names of the members."""
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
