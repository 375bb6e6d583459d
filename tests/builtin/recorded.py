"""Answers of providers: files in the shapes that documentation and public examples show, with invented contents."""

import json
from pathlib import Path
from typing import Any

from tests.wire.site import reply

FOLDER = Path(__file__).with_name("recordings")
KEY = "canary-0123456789-of-mine"


def recorded(name: str) -> bytes:
    """An answer as bytes; one that repeats a key repeats ours."""
    told: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8").replace("{KEY}", KEY))
    body = told["text"] if "text" in told else json.dumps(told["body"], ensure_ascii=False)
    fields = {name.replace("-", "_"): value for name, value in told["headers"].items()}
    return reply(told["status"], body.encode(), **fields)


def kept(provider: str) -> list[str]:
    """The names of what is kept of one provider."""
    return sorted(path.stem for path in (FOLDER / provider).glob("*.json"))


def as_text(body: bytes, kind: str = "application/json", status: int = 200) -> bytes:
    return reply(status, body, content_type=kind)


# What any server may answer in place of results.
ODD = {
    "a page": as_text(b"<html><body>Please sign in</body></html>", "text/html"),
    "nothing": as_text(b""),
    "cut JSON": as_text(b'{"web": {"results": [{"title": "Te'),
    "a list": as_text(b"[]"),
    "null": as_text(b"null"),
    "another object": as_text(b'{"hello": "world"}'),
    "another list": as_text(b'{"web": [], "results": 3, "items": {}, "webPages": "x", "data": {}, "query": 1}'),
    "an error": as_text(b'{"error": {"message": "something broke"}}'),
    "a status": as_text(b'{"error": {"code": 503, "message": "something broke"}}'),
    "too deep": as_text(b"[" * 100_000),
}
TOO_LARGE = as_text(b" " * (5 << 20) + b"{}")
