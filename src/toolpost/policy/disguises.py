"""How a secret may be written in a text: as it is, in JSON, in a URL, in HTML, in hex and in base64.

Every form is worked out once, when a secret is learned. A text is never decoded: its author decides how much of it
looks like something that could be.
"""

from __future__ import annotations

import base64
import html
import json
import string
from bisect import bisect_right
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

from toolpost.schema.hidden_text import without_hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHORTEST = 8  # a shorter text is looked for as it is written only: without blanks and case it would be everywhere
_JSON_LAYERS = 3  # of JSON in JSON
_CHUNK = 4096
_DELETED = bytes({*range(33), 127})
_PLAIN = bytes.maketrans(string.ascii_uppercase.encode() + b"-_", string.ascii_lowercase.encode() + b"+/")


def plainly(text: str) -> str:
    """A text without what changes when it is written otherwise: case, blanks, and which base64 it is.

    What its readers cannot see is left out, too.
    """
    if text.isascii():
        return text.encode().translate(_PLAIN, _DELETED).decode()
    return "".join(without_hidden(text).casefold().split()).replace("-", "+").replace("_", "/")


def forms_of(secret: str) -> set[str]:
    """How a secret may look in a text seen plainly; none for one that is too short."""
    plain = plainly(secret)
    if len(plain) < SHORTEST:
        return set()
    raw = secret.encode("utf-8", "surrogatepass")
    forms = {secret, plain[::-1], raw.hex(), html.escape(secret), *inside_base64(raw)}
    forms.update(_in_json(secret))
    forms.update((quote(raw, safe=""), quote(raw), quote_plus(raw), "".join(f"%{byte:02x}" for byte in raw)))
    return {form for form in map(plainly, forms) if len(form) >= SHORTEST}


def _in_json(secret: str) -> Iterator[str]:
    written = {secret}
    for _ in range(_JSON_LAYERS):
        written = {json.dumps(text, ensure_ascii=to_ascii)[1:-1] for text in written for to_ascii in (True, False)}
        yield from written
    yield json.dumps(secret)[1:-1].replace("/", "\\/")
    units = secret.encode("utf-16-be", "surrogatepass").hex()
    yield "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def close_forms_of(secret: str) -> set[str]:
    """How a short secret may look in a text as it is written: as it is, in JSON, in a URL and in base64."""
    raw = secret.encode("utf-8", "surrogatepass")
    inside = {core for core in inside_base64(raw) if len(core) >= SHORTEST}
    return {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(raw, safe=""),
        quote(raw),
        quote_plus(raw),
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
        *inside,
        *(core.replace("+", "-").replace("/", "_") for core in inside),
    }


def inside_base64(raw: bytes) -> Iterator[str]:
    """The characters that base64 has for a secret in the middle of a text, such as `user:secret`, at each alignment."""
    for before in range(3):
        shifted = b"\0" * before + raw
        first, last = -(-before * 8 // 6), len(shifted) * 8 // 6
        yield base64.b64encode(shifted)[first:last].decode()


def place_in(text: str) -> Callable[[int], int]:
    """Where in a text each character of `plainly(text)` stands; only what is asked for is looked up one by one."""
    ends = list(accumulate(len(plainly(text[at : at + _CHUNK])) for at in range(0, len(text), _CHUNK)))

    @cache
    def places(chunk: int) -> list[int]:
        begin = chunk * _CHUNK
        return [at for at, char in enumerate(text[begin : begin + _CHUNK], begin) for _ in plainly(char)]

    def place(index: int) -> int:
        chunk = bisect_right(ends, index)
        return places(chunk)[index - (ends[chunk - 1] if chunk else 0)]

    return place
