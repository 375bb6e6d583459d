"""Disguises: how a secret may look in a text that does not hold it as it is, and texts seen without their disguise."""

from __future__ import annotations

import base64
import html
import json
import re
import string
import zlib
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, quote_plus, unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHORTEST = 8  # a shorter text is looked for as it is written only: seen through disguises it would be everywhere
_MOST_LAYERS = 4  # of escapes around escapes, such as JSON in JSON
_LARGEST_UNPACKED = 1 << 20
_ESCAPES = re.compile(
    r"""
      (?P<torn>(?:%[0-9A-Fa-f]?|\\(?:u[0-9A-Fa-f]{0,3}|x[0-9A-Fa-f]?)?)(?=…|\.\.\.))
    | (?P<url>(?:%[0-9A-Fa-f]{2})+)
    | (?P<utf16>(?:\\u[0-9A-Fa-f]{4})+)
    | (?P<bytes>(?:\\x[0-9A-Fa-f]{2})+)
    | \\(?:u\{(?P<braced>[0-9A-Fa-f]{1,6})\}|U(?P<long>[0-9A-Fa-f]{8}))
    | \\(?P<blank>[abfnrtv0]|\r?\n)
    | \\(?P<char>.)
    | (?P<html>&(?:\#\d{1,7}|\#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]{2,8});)
    """,
    re.VERBOSE | re.DOTALL,
)
CUT = re.compile(r"…|\.\.\.")
_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}|\\.|&[#A-Za-z]", re.DOTALL)  # quick to say that there is none
_BLANKS = b" \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"
_PLAIN = bytes.maketrans(string.ascii_uppercase.encode() + b"-_", string.ascii_lowercase.encode() + b"+/")
GZIP = "H4sI"  # how gzip begins in base64
_GZIP = re.compile(r"H4sI(?:[A-Za-z0-9+/_-]|%2[BbFf]|\s*[\r\n]\s*|\\[nr/])+={0,2}")


def plainly(text: str) -> str:
    """A text without what changes when it is written otherwise: case, blanks, and which base64 it is."""
    if text.isascii():
        return text.encode().translate(_PLAIN, _BLANKS).decode()
    return "".join(text.casefold().split()).replace("-", "+").replace("_", "/")


def forms_of(secret: str) -> set[str]:
    """How a secret may look in a text seen plainly; none for one that is too short."""
    plain = plainly(secret)
    if len(plain) < SHORTEST:
        return set()
    raw = secret.encode("utf-8", "surrogatepass")
    found = {plain[::-1], raw.hex(), plainly(secret.replace(" ", "+")), *map(plainly, inside_base64(raw))}
    found.update(map(plainly, layers(secret)))  # undoing what is around it undoes what looks like an escape in it
    return {form for form in found if len(form) >= SHORTEST}


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


def layers(text: str) -> Iterator[str]:
    """A text as it is written, and then with the escapes of URLs, JSON, programs and HTML undone, one layer at a time.

    As it is written, too, because what stands before a secret may look like the beginning of an escape.
    """
    yield text
    for _ in range(_MOST_LAYERS):
        if not _ESCAPED.search(text):
            return
        inner = _ESCAPES.sub(_undone, text)
        if inner == text:
            return
        yield inner
        text = inner


def is_escaped(text: str) -> bool:
    """Whether a text may have more than one layer."""
    return _ESCAPED.search(text) is not None


class Seen(NamedTuple):
    """A text seen plainly, and for each of its characters where it came from."""

    text: str
    begins: list[int]
    ends: list[int]


def seen(text: str, layer: int) -> Seen:
    """One of the layers of a text, plainly, with the places in the text itself."""
    begins, ends = list(range(len(text))), list(range(1, len(text) + 1))
    for _ in range(layer):
        text, begins, ends = _mapped(Seen(text, begins, ends), _ESCAPES, _undone)
    if len(text.casefold()) != len(text):  # some letters become two
        return _mapped(Seen(text, begins, ends), _EACH, lambda found: plainly(found[0]))
    kept = [at for at, char in enumerate(text) if not char.isspace()]
    return Seen(plainly(text), [begins[at] for at in kept], [ends[at] for at in kept])


def packed_in(text: str) -> Iterator[tuple[int, int, str | None]]:
    """Where gzip in base64 stands in a text, and what is in it; None where that is too much to look at."""
    for found in _GZIP.finditer(text):
        written = unquote(found[0]).replace("\\/", "/")
        letters = re.sub(r"\\.|[^A-Za-z0-9+/_-]", "", written).replace("-", "+").replace("_", "/")
        yield found.start(), found.end(), _unpacked(base64.b64decode(letters[: len(letters) & ~3]))


_EACH = re.compile(r".", re.DOTALL)


def _mapped(layer: Seen, pattern: re.Pattern[str], replaced: Callable[[re.Match[str]], str]) -> Seen:
    """A text with some of it replaced; what was replaced together came from the same place."""
    parts: list[str] = []
    begins: list[list[int]] = []
    ends: list[list[int]] = []
    last = 0
    for found in pattern.finditer(layer.text):
        start, end = found.span()
        new = replaced(found)
        parts += (layer.text[last:start], new)
        begins += (layer.begins[last:start], [layer.begins[start]] * len(new))
        ends += (layer.ends[last:start], [layer.ends[end - 1]] * len(new))
        last = end
    parts.append(layer.text[last:])
    return Seen("".join(parts), [*chain(*begins), *layer.begins[last:]], [*chain(*ends), *layer.ends[last:]])


def _undone(found: re.Match[str]) -> str:
    kind, text = found.lastgroup, found[0]
    match kind:
        case "url":
            return bytes.fromhex(text.replace("%", "")).decode("utf-8", "replace")
        case "bytes":
            return _text(bytes.fromhex(text.replace("\\x", "")))
        case "utf16":
            return bytes.fromhex(text.replace("\\u", "")).decode("utf-16-be", "surrogatepass")
        case "torn":  # the text was cut in the middle of it
            return ""
        case "blank":
            return " "
        case "char":
            return found["char"]
        case "html":
            return html.unescape(text)
        case _:
            return _character(int(found[kind or 0], 16))


def _text(raw: bytes) -> str:
    """Bytes of UTF-8 as Python writes them, or characters as JavaScript does."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _character(number: int) -> str:
    return chr(number) if number <= 0x10FFFF else ""


def _unpacked(data: bytes) -> str | None:
    """What gzip holds, as far as it is there."""
    unpacking = zlib.decompressobj(wbits=31)
    try:
        inner = unpacking.decompress(data, _LARGEST_UNPACKED)
    except zlib.error:
        return ""
    return None if unpacking.unconsumed_tail else inner.decode("utf-8", "replace")
