"""The encoded forms of a secret, and the normalized text in which they are found."""

from __future__ import annotations

import base64
import json
import string
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from urllib.parse import quote, quote_plus

from toolpost.schema.hidden_text import strip_invisible

SHORTEST = 8  # a shorter form is matched only as written: normalized, it would match ordinary text
_JSON_LAYERS = 3  # of JSON in JSON
_CHUNK = 4096
_DELETED = bytes({*range(33), 127})
_BASE64_FOLDING = bytes.maketrans(string.ascii_uppercase.encode() + b"-_", string.ascii_lowercase.encode() + b"+/")
_ROT13 = str.maketrans(
    string.ascii_letters,
    "".join(f"{letters[13:]}{letters[:13]}" for letters in (string.ascii_lowercase, string.ascii_uppercase)),
)


def forms_of(secret: str) -> set[str]:
    """Return the encoded forms of a secret in normalized text; none for a short secret."""
    plain = normalize(secret)
    if len(plain) < SHORTEST:
        return set()
    import html  # noqa: PLC0415 - it loads a table of all entities, which programs without secrets do not need

    raw = secret.encode("utf-8", "surrogatepass")
    forms = {secret, plain[::-1], raw.hex(), html.escape(secret), *base64_cores(raw)}
    forms.update(_json_forms(secret))
    percent = {quote(raw, safe=""), quote(raw), quote_plus(raw), "".join(f"%{byte:02x}" for byte in raw)}
    forms.update(percent, (form.replace("%", "%25") for form in percent))
    forms.update(_character_forms(secret), _byte_forms(raw))
    return {form for form in map(normalize, forms) if len(form) >= SHORTEST}


def _character_forms(secret: str) -> Iterator[str]:
    """Yield a secret with every character written by its number, as in HTML."""
    numbers = [ord(char) for char in secret]
    yield "".join([f"&#{number};" for number in numbers])
    yield "".join([f"&#x{number:x};" for number in numbers])
    yield ",".join(map(str, numbers))


def _byte_forms(raw: bytes) -> Iterator[str]:
    """Yield a secret with every byte written by its number, and in encodings of bytes beside base64 and hex."""
    for before in ("\\x", "\\\\x", "="):
        yield f"{before}{raw.hex(',').replace(',', before)}"
    yield from (raw.hex(":"), raw.hex("-"), f"0x{raw.hex(',').replace(',', ',0x')}")
    yield "".join([f"\\{byte:03o}" for byte in raw])
    yield base64.b32encode(raw).decode().rstrip("=")
    yield from base64_cores(base64.b64encode(raw).rstrip(b"="))
    text = raw.decode("utf-8", "surrogatepass")
    wide = text.encode("utf-16-le", "surrogatepass")
    yield wide.hex()
    yield from base64_cores(wide)
    yield text.translate(_ROT13)


def _json_forms(secret: str) -> Iterator[str]:
    forms = {secret}
    for _ in range(_JSON_LAYERS):
        forms = {json.dumps(text, ensure_ascii=to_ascii)[1:-1] for text in forms for to_ascii in (True, False)}
        yield from forms
    yield json.dumps(secret)[1:-1].replace("/", "\\/")
    units = secret.encode("utf-16-be", "surrogatepass").hex()
    yield "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def exact_forms_of(secret: str) -> set[str]:
    """Return the forms of a short secret in text as written: plain, in JSON, in a URL and in base64."""
    raw = secret.encode("utf-8", "surrogatepass")
    inside = {core for core in base64_cores(raw) if len(core) >= SHORTEST}
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


def base64_cores(raw: bytes) -> Iterator[str]:
    """Yield the base64 characters of a secret inside a longer text, such as `user:secret`, at each alignment."""
    for before in range(3):
        shifted = b"\0" * before + raw
        first, last = -(-before * 8 // 6), len(shifted) * 8 // 6
        yield base64.b64encode(shifted)[first:last].decode()


def original_index(text: str) -> Callable[[int], int]:
    """Return a function from an index of `normalize(text)` to the index in the text, computed by chunk on demand."""
    ends = list(accumulate(len(normalize(text[at : at + _CHUNK])) for at in range(0, len(text), _CHUNK)))

    @cache
    def places(chunk: int) -> list[int]:
        begin = chunk * _CHUNK
        part = text[begin : begin + _CHUNK]
        if part.isascii():
            return [at for at, byte in enumerate(part.encode(), begin) if byte not in _DELETED]
        return [at for at, char in enumerate(part, begin) for _ in normalize(char)]

    def place(index: int) -> int:
        chunk = bisect_right(ends, index)
        return places(chunk)[index - (ends[chunk - 1] if chunk else 0)]

    return place


def normalize(text: str) -> str:
    """Return the text without case, blanks and invisible characters, and with one alphabet of base64."""
    if text.isascii():
        return text.encode().translate(_BASE64_FOLDING, _DELETED).decode()
    return "".join(strip_invisible(text).casefold().split()).replace("-", "+").replace("_", "/")
