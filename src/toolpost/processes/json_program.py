"""Program of a process that checks one JSON document and cuts a part out of it, with the standard library only.

Stdin is a line of JSON with the path of the part, then the document. Stdout is a line of JSON with the size of the
document without the part (or the error), then that document, then the part unchanged.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, NamedTuple, NoReturn

_NICENESS = 10
_SPACE = re.compile(r"[ \t\n\r]*")


def main() -> None:
    """Check the document on stdin and answer on stdout, with low priority: it may use a core for a second."""
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    options, _, data = sys.stdin.buffer.read().partition(b"\n")
    path: list[str] = json.loads(options)["path"]
    try:
        rest, part = cut(data.decode(), path)
    except (ValueError, RecursionError) as error:
        deep = isinstance(error, RecursionError)
        _answer({"fault": "it is nested too deeply" if deep else str(error)})
        return
    encoded = json.dumps(rest, separators=(",", ":")).encode()
    _answer({"found": part is not None, "rest_bytes": len(encoded)}, encoded, (part or "").encode())


def cut(text: str, path: list[str]) -> tuple[Any, str | None]:
    """Return a document with null in place of the part, and the part; None if the document does not have it."""
    value, part, end = _cut(text, _skip(text, 0), path)
    if _skip(text, end) != len(text):
        raise ValueError("it continues after the end of the document")
    return value, part


def _cut(text: str, start: int, path: list[str]) -> _Cut:
    if not path:
        _, end = _decoder.raw_decode(text, start)
        return _Cut(None, text[start:end], end)
    if text[start : start + 1] != "{":
        value, end = _decoder.raw_decode(text, start)
        return _Cut(value, None, end)
    members, part, at = dict[str, Any](), None, _skip(text, start + 1)
    while text[at : at + 1] != "}":
        name, at = _decoder.raw_decode(text, at)
        at = _skip(text, at)
        if not isinstance(name, str) or text[at : at + 1] != ":":
            raise ValueError(f"a member of an object is expected at character {at}")
        inner = path[1:] if name == path[0] else None
        at = _skip(text, at + 1)
        if inner is None:
            members[name], at = _decoder.raw_decode(text, at)
        else:
            members[name], part, at = _cut(text, at, inner)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
            if text[at : at + 1] == "}":
                raise ValueError(f"a member of an object is expected at character {at}")
        elif text[at : at + 1] != "}":
            raise ValueError(f"a comma is expected at character {at}")
    return _Cut(members, part, at + 1)


class _Cut(NamedTuple):
    value: Any
    part: str | None
    end: int


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _answer(facts: dict[str, Any], *parts: bytes) -> None:
    sys.stdout.buffer.write(b"".join([json.dumps(facts).encode() + b"\n", *parts]))


_decoder = json.JSONDecoder(parse_constant=_refuse)

if __name__ == "__main__":
    main()
