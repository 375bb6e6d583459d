"""Names of tenants and users as path segments."""

from __future__ import annotations

import hashlib
import re

_LONGEST = 200  # of the 255 bytes that file systems allow
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_DEVICES = re.compile(r"con|prn|aux|nul|com[0-9]|lpt[0-9]")  # names that Windows reserves


def path_segment(name: str) -> str:
    """Return a name as one path segment; different names have different segments, even where case is ignored.

    All but lower-case letters, digits, `_` and `-` becomes `%XX`. A long name is cut and ends in `~` and its hash.
    """
    raw = name.encode("utf-8", "surrogatepass")
    segment = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)
    if _DEVICES.fullmatch(segment):
        segment = f"%{raw[0]:02X}{segment[1:]}"
    if len(segment) <= _LONGEST:
        return segment
    return f"{segment[: _LONGEST - 65]}~{hashlib.sha256(raw).hexdigest()}"
