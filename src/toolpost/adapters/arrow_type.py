"""The Arrow type of a column of tool values.

Importing this module registers the type with pyarrow, which preserves it in files and tables of other programs.
"""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import import_module
from typing import Any, Self, cast

from toolpost.adapters.stored_tools import AnyToolValue
from toolpost.adapters.values import (
    FIELDS,
    SCHEMA_VERSION,
    ToolValueFactory,
)
from toolpost.contracts.errors import ConfigError

try:
    import numpy  # noqa: ICN001 - as pyarrow
    import pyarrow  # noqa: ICN001 - `pa` is the same without types
except ImportError as missing:
    raise ConfigError("tables of tools need pyarrow; run: pip install 'toolpost[arrow]'") from missing


# The type stubs of pyarrow are third-party and incomplete.
np: Any = numpy
pa: Any = pyarrow
pc: Any = import_module("pyarrow.compute")

CHUNK_ROWS = 16_384  # rows whose values stay in the processor's cache while the attributes are processed in turn
_FIELD_TYPES: dict[str, Any] = {"4": pa.binary(), "7": pa.int32(), "12": pa.int32()}
STORAGE = pa.struct(
    [pa.field(str(number), _FIELD_TYPES.get(str(number), pa.string())) for number in range(len(FIELDS))]
)
FACTORY = ToolValueFactory()


class ToolScalar(pyarrow.ExtensionScalar):
    """One cell of a tool column; `as_py` returns the tool value."""

    def as_py(self, **_: Any) -> AnyToolValue | None:
        return FACTORY.decode(None if self.value is None else self.value.as_py())


class ToolColumnType(pyarrow.ExtensionType):
    """The Arrow type of tool values of every kind: a struct with the twelve fields of version 1 and two optional ones.

    All values have one type: tables of different origin can be concatenated. Equal types are one cached object: a
    thread of Arrow may release a type after a read has returned, and the last release needs the interpreter. At exit
    that is fatal before Python 3.14, where a thread that waits for the interpreter is unwound.
    """

    version: int

    def __new__(cls, storage_type: Any = STORAGE, version: int = SCHEMA_VERSION) -> Self:
        return cast("Self", _column_type(cast("Any", cls), storage_type, version))

    def __init__(self, *_: Any, **__: Any) -> None:
        """Do nothing: `__new__` returns a complete object."""

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps({"version": self.version}).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> ToolColumnType:
        # A newer version is reported when a value is read: the rest of its table may still be usable.
        return cls(storage_type, int(json.loads(serialized or b"{}").get("version", SCHEMA_VERSION)))

    def __arrow_ext_scalar_class__(self) -> type[ToolScalar]:
        return ToolScalar


@lru_cache(maxsize=256)
def _column_type(cls: type[ToolColumnType], storage_type: Any, version: int) -> ToolColumnType:
    column_type = pyarrow.ExtensionType.__new__(cls)
    column_type.version = version
    pyarrow.ExtensionType.__init__(column_type, storage_type, "toolpost.tool")
    return column_type


def _register() -> None:
    try:
        pa.register_extension_type(ToolColumnType())
    except pa.ArrowKeyError:  # the module was imported again; the type is already registered
        pa.unregister_extension_type("toolpost.tool")
        pa.register_extension_type(ToolColumnType())


_register()
