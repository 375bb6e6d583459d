"""Canaries: made-up secrets that may turn up nowhere, and the disguises in which they are let fly."""

import base64
import codecs
import hashlib
import json
from collections.abc import Callable, Sequence
from urllib.parse import quote

Disguise = Callable[[str], str]
_PIECE = 18
_SHORT_PIECE, _STRIDE = 24, 8


def _half(secret: str) -> int:
    return len(secret) // 2


DISGUISES: dict[str, Disguise] = {
    "plain": str,
    "upper case": str.upper,
    "lower case": str.lower,
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "base64url": lambda secret: base64.urlsafe_b64encode(secret.encode()).decode().rstrip("="),
    "hex": lambda secret: secret.encode().hex(),
    "URL-encoded": lambda secret: "".join(f"%{byte:02X}" for byte in secret.encode()),
    "JSON-escaped": lambda secret: json.dumps(secret)[1:-1],
    "unicode-escaped": lambda secret: "".join(f"\\u{ord(char):04x}" for char in secret),
    "reversed": lambda secret: secret[::-1],
    "over two lines": lambda secret: f"{secret[: _half(secret)]}\n    {secret[_half(secret) :]}",
    "with hidden characters": "\u200b".join,
    "HTML decimal": lambda secret: "".join(f"&#{ord(char)};" for char in secret),
    "HTML hex": lambda secret: "".join(f"&#x{ord(char):X};" for char in secret),
    "percent-encoded twice": lambda secret: quote(quote(secret, safe=""), safe=""),
    "URL-encoded twice": lambda secret: "".join(f"%25{byte:02X}" for byte in secret.encode()),
    "hex escapes": lambda secret: "".join(f"\\x{byte:02x}" for byte in secret.encode()),
    "octal escapes": lambda secret: "".join(f"\\{byte:03o}" for byte in secret.encode()),
    "hex with colons": lambda secret: secret.encode().hex(":"),
    "list of numbers": lambda secret: ", ".join(str(ord(char)) for char in secret),
    "quoted-printable": lambda secret: "".join(f"={byte:02X}" for byte in secret.encode()),
    "base32": lambda secret: base64.b32encode(secret.encode()).decode(),
    "base64 twice": lambda secret: base64.b64encode(base64.b64encode(secret.encode())).decode(),
    "base64 of UTF-16": lambda secret: base64.b64encode(secret.encode("utf-16-le")).decode(),
    "rot13": lambda secret: codecs.encode(secret, "rot13"),
    "inside a URL": lambda secret: f"https://api.example.org/v1/{quote(secret, safe='')}/me?page=1",
}


def canary(kind: str, number: int) -> str:
    """A secret that looks like those of its kind, always the same one."""
    raw = hashlib.sha256(f"{kind} {number}".encode()).digest()
    word = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    match kind:
        case "password":
            return f'{word[:12]} "{word[12:20]}"\\ö/{word[20:32]}+%'
        case "API key":
            return f"sk-live-{word[:28]}"
        case _:
            return word


class Watch:
    """Looks for what may not be there: for the beginning, the middle and the end of every disguise of every canary.

    Nothing of ours is used to look for them.
    """

    def __init__(self, canaries: Sequence[str]) -> None:
        self._pieces = {
            piece: secret
            for secret in canaries
            for name, disguise in DISGUISES.items()
            for piece in _pieces(_trace(name, disguise(secret)))
        }

        # Every eighth place is looked at, so that it takes the first eight pieces of each to meet one.
        self._beginnings = {
            trace[start : start + _SHORT_PIECE]: secret
            for secret in canaries
            for name, disguise in DISGUISES.items()
            for trace in [_trace(name, disguise(secret)).encode()]
            for start in range(_STRIDE)
        }

    def sightings(self, told: str) -> list[str]:
        """The canaries of which something can be read in a text."""
        pieces = self._pieces
        met = {told[at : at + _PIECE] for at in range(len(told) - _PIECE + 1)} & pieces.keys()
        return sorted({pieces[piece] for piece in met})

    def beginnings(self, stored: bytes) -> list[str]:
        """The canaries of which any disguise lies whole among bytes, of which there may be many."""
        met = {stored[at : at + _SHORT_PIECE] for at in range(0, len(stored), _STRIDE)} & self._beginnings.keys()
        return sorted({self._beginnings[piece] for piece in met})


def _pieces(flown: str) -> list[str]:
    middle = (len(flown) - _PIECE) // 2
    return [flown[:_PIECE], flown[middle : middle + _PIECE], flown[-_PIECE:]]


def _trace(name: str, flown: str) -> str:
    """What of a disguise is the secret's own: not the address around it."""
    match name:
        case "inside a URL":
            return flown.removeprefix("https://api.example.org/v1/").removesuffix("/me?page=1")
        case "base64":
            return flown.rstrip("=")[:-1]
        case _:
            return flown
