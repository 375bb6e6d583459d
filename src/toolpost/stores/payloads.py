"""The text of an event: its redacted facts as compact JSON, whatever a tool put into them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from toolpost.contracts.compact_json import compact_encoder

if TYPE_CHECKING:
    from toolpost.contracts.events import RunEvent

# Well below the gigabyte at which SQLite refuses a value.
MAX_BYTES = 256 * 1024 * 1024

_compact = compact_encoder(allow_nan=False, ensure_ascii=False, default=str)


def payload_text(event: RunEvent) -> str:
    """The payload as JSON that can be stored; never raises, because an event must not be lost."""
    try:
        payload = event.payload
        try:
            text = _compact(payload)
        except ValueError:
            text = _compact(_without_nan(payload))
        return text if text.isascii() and len(text) <= MAX_BYTES else _storable(text)
    except Exception as exc:  # noqa: BLE001 - foreign values and the redaction of foreign code; that it happened is kept
        return _compact({"unrenderable": type(exc).__name__})


def _without_nan(payload: dict[str, Any]) -> Any:
    """NaN and the infinities are not JSON; their names are."""
    return json.loads(json.dumps(payload, default=str), parse_constant=str)


def _storable(text: str) -> str:
    """Lone surrogates are legal in Python and JSON escapes, but not in UTF-8."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        text = json.dumps(json.loads(text), separators=(",", ":"))
        size = len(text)
    if size > MAX_BYTES:
        raise OverflowError(size)
    return text
