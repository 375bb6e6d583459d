"""Serialization of transactions, clients, metadata and tokens to plain JSON, for stores that encrypt it."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

from msgspec import Struct

from toolpost.auth.keys import UNREADABLE
from toolpost.auth.oauth.authorization import Transaction
from toolpost.auth.oauth.client import Client
from toolpost.auth.oauth.device import DeviceGrant
from toolpost.auth.oauth.metadata import ServerMetadata
from toolpost.auth.oauth.tokens import TokenSet
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import StoreError
from toolpost.schema.json_values import is_array, is_object

StoredRecord = Client | DeviceGrant | ServerMetadata | TokenSet | Transaction
Record = TypeVar("Record", Client, DeviceGrant, ServerMetadata, TokenSet, Transaction)


def pack_record(record: StoredRecord) -> dict[str, Any]:
    """Return a record as plain data with its secrets in clear text: encrypt it before storing."""
    return {name: _plain(getattr(record, name)) for name in record.__struct_fields__}


def unpack_record(kind: type[Record], data: object) -> Record:
    """Return the record of plain data; missing fields get their default, unknown ones are ignored."""
    try:
        record: Record = _whole(kind, data)
    except (ValueError, TypeError, KeyError):
        # Messages of these errors could contain the data.
        message = f"A stored {kind.__name__} cannot be read; another program wrote it."
        raise StoreError(message, code=UNREADABLE) from None
    return record


def _plain(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    return value if value is None or isinstance(value, str | int | float) else list(value)


def _whole(kind: type[Any], data: object) -> Any:
    if not is_object(data):
        raise TypeError(kind.__name__)
    types = _types(kind)  # type: ignore[arg-type]  # every class can be hashed
    return kind(**{name: _value(types[name], value) for name, value in data.items() if name in types})


@cache
def _types(kind: type[Any]) -> dict[str, Any]:
    """Return the type hints of a class, cached because reading them takes longer than all the rest."""
    return get_type_hints(kind)


def _value(kind: Any, data: object) -> Any:
    if data is None:
        return None
    inner = next((one for one in get_args(kind) or (kind,) if one is not type(None)), kind)
    if inner is Secret:
        return Secret(str(data))
    if isinstance(inner, type) and issubclass(inner, Struct):
        return _whole(inner, data)
    return tuple(data) if is_array(data) else data
