"""Serialization of transactions, clients, metadata and tokens to plain JSON, for stores that encrypt it."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from toolpost.auth.keys import UNREADABLE
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import StoreError

Record = TypeVar("Record", bound=Struct)


def pack_record(record: Struct) -> dict[str, Any]:
    """Return a record as plain data with its secrets in clear text: encrypt it before storing."""
    data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(record, enc_hook=_reveal))
    return data


def unpack_record(kind: type[Record], data: object) -> Record:
    """Return the record of plain data; missing fields get their default, unknown ones are ignored."""
    try:
        return msgspec.convert(data, kind, dec_hook=_restore)
    except msgspec.ValidationError:  # its message could contain the data
        message = f"A stored {kind.__name__} cannot be read; another program wrote it."
        raise StoreError(message, code=UNREADABLE) from None


def _reveal(secret: Any) -> str:
    if not isinstance(secret, Secret):
        raise TypeError(f"{type(secret).__name__} cannot be stored")
    return secret.reveal()


def _restore(kind: type, data: object) -> Any:
    if kind is not Secret or not isinstance(data, str):
        raise TypeError(kind.__name__)
    return Secret(data)
