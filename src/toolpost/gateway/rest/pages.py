"""Pages of lists: opaque cursors, and responses with the cursor of the next page."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, TypeVar

from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.operations import JsonResponse, JsonSchema, RestRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
PAGE: dict[str, JsonSchema] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": 500, "default": 50},
    "cursor": {"type": "string", "description": "The `next` of the previous page"},
}
YES_NO: JsonSchema = {"type": "string", "enum": ["yes", "no"], "default": "no"}


def page_of(
    request: RestRequest, items: Sequence[T], key: Callable[[T], str], show: Callable[[T], Any]
) -> JsonResponse:
    """Return the page of a list that the cursor and limit of a request select."""
    after, limit = decode_cursor(request.query.get("cursor")), request.query["limit"]
    begin = 0
    if after is not None:
        begin = next((at for at, item in enumerate(items, 1) if key(item) == after), -1)
        if begin < 0:
            raise invalid_cursor()
    return page_response(items[begin : begin + limit + 1], limit, key, show)


def page_response(found: Sequence[T], limit: int, key: Callable[[T], str], show: Callable[[T], Any]) -> JsonResponse:
    """Return a page of items, with the cursor of the next page if `found` has more than `limit` items."""
    last = key(found[limit - 1]) if len(found) > limit else None
    shown = [show(item) for item in found[:limit]]
    return JsonResponse({"items": shown, "next": None if last is None else encode_cursor(last)})


def decode_cursor(cursor: str | None) -> str | None:
    """Return the position of a cursor; raise Problem if it is forged."""
    if cursor is None:
        return None
    try:
        position = base64.b64decode(f"{cursor}{'=' * (-len(cursor) % 4)}", altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise Problem(400, "invalid_cursor", "the cursor is invalid; use the `next` of a page") from None
    return position


def encode_cursor(position: str) -> str:
    """Return a position as an opaque cursor."""
    return base64.urlsafe_b64encode(position.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def invalid_cursor() -> Problem:
    """Return the problem of a cursor to an item that does not exist or is not visible to this caller."""
    return Problem(400, "invalid_cursor", "the item of the cursor no longer exists; begin with the first page")
