"""Content coding of responses: whether a client accepts gzip."""

from __future__ import annotations

import re

_REFUSED = re.compile(r"\s*q=0(?:\.0*)?\s*")


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether the header `Accept-Encoding` accepts gzip (RFC 9110, 12.5.3)."""
    for coding in accept_encoding.split(","):
        name, _, parameters = coding.partition(";")
        if name.strip().lower() == "gzip":
            return _REFUSED.fullmatch(parameters) is None
    return False
