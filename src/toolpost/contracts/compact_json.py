"""Compact JSON by encoders that are made once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def compact_encoder(
    *, allow_nan: bool = True, ensure_ascii: bool = True, default: Callable[[Any], Any] | None = None
) -> Callable[[Any], str]:
    """A function that writes JSON without spaces; TypeError, ValueError or RecursionError for what is not JSON.

    `JSONEncoder.encode` builds CPython's encoder anew for each document, at twice the cost.
    """
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, check_circular=False, allow_nan=allow_nan, separators=(",", ":"), default=default
    )
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    quote: Any = json.encoder.encode_basestring_ascii if ensure_ascii else json.encoder.encode_basestring
    pieces = make(None, encoder.default, quote, None, ":", ",", False, False, allow_nan)  # noqa: FBT003 - takes no keywords
    return lambda value: "".join(pieces(value, 0))
