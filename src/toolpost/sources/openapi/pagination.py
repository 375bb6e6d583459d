"""Find the next page of a response in Link headers, URLs of the body and cursors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urljoin, urlsplit

from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.unions import types_of
from toolpost.sources.openapi.models import ApiOperation, Parameter
from toolpost.wire.messages import Headers

# Possessive quantifiers, so that a hostile header takes linear time.
_LINK = re.compile(r'<([^<>]*+)>((?:\s*+;\s*+[^\s=;,]++(?:\s*+=\s*+(?:"(?:[^"\\]|\\.)*+"|[^";,\s]*+))?)*+)')
_RELATION = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^";,\s]*))', re.IGNORECASE)
# Body members with the URL of the next page, or its cursor.
_ADDRESSES = (
    ("@odata.nextLink",), ("nextLink",), ("next_page_url",), ("next_page_uri",), ("next_url",), ("links", "next"),
    ("_links", "next"), ("paging", "next"), ("pagination", "next"), ("meta", "next_page_url"), ("info", "next"),
    ("next",),
)  # fmt: skip
_CURSORS = (
    ("nextPageToken",), ("next_page_token",), ("nextCursor",), ("next_cursor",), ("nextToken",), ("NextToken",),
    ("next_token",), ("continuationToken",), ("metadata", "continue"), ("response_metadata", "next_cursor"),
    ("meta", "next_cursor"), ("meta", "next_token"), ("pagination", "next_cursor"), ("paging", "cursors", "after"),
    ("paging", "next", "after"), ("next_page", "offset"), ("next_page",), ("offset",),
)  # fmt: skip
# Names of cursor parameters, in lower case without separators.
_CURSOR_PARAMETERS = (
    "cursor", "pagetoken", "nexttoken", "nextcursor", "continuationtoken", "continue", "paginationtoken",
    "startcursor", "after", "startingafter", "offset", "page",
)  # fmt: skip
PAGE_MEMBERS = frozenset({"has_more", *(path[0] for path in (*_ADDRESSES, *_CURSORS))})
_READERS: dict[Any, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "integer": (re.compile(r"-?\d{1,18}"), int),
    "number": (re.compile(r"-?\d{1,18}(?:\.\d{1,18})?"), float),
    "boolean": (re.compile(r"true|false"), "true".__eq__),
}


def find_next_page(
    operation: ApiOperation,
    headers: Headers,
    content: Any,
    *,
    url: str = "",
    arguments: Mapping[str, Any] | None = None,
) -> NextPage | None:
    """Find the next page in Link headers (RFC 8288), body URLs or cursors; `url` and `arguments` are this page's."""
    address = next((link for link, relations in _parse_links(headers) if "next" in relations), None)
    hinted = is_object(content) and not PAGE_MEMBERS.isdisjoint(content)
    if address is None and hinted:
        address = _find_url(content)
    if address is None:
        return _cursor_page(operation, content) if hinted else None
    try:
        there = urljoin(url, address)
        return NextPage(_url_arguments(operation, there, url, arguments or {}), there)
    except ValueError:  # not a URL
        return None


def _parse_links(headers: Headers) -> Iterator[tuple[str, frozenset[str]]]:
    for value in headers.get_all("link"):
        for target, parameters in _LINK.findall(value):
            relation = _RELATION.search(parameters)
            if relation:
                yield target, frozenset((relation[1] or relation[2] or "").lower().split())


def _find_url(content: dict[str, Any]) -> str | None:
    for path in _ADDRESSES:
        value = _get_path(content, path) if path[0] in content else None
        if is_object(value):
            value = value.get("href", value.get("url"))
        if isinstance(value, str) and (value.startswith(("/", "?")) or "://" in value):
            return value
    return None


def _get_path(content: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not is_object(content):
            return None
        content = content.get(key)
    return content


def _url_arguments(operation: ApiOperation, there: str, here: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the query of a next-page URL to arguments; drop unchanged ones and URLs of other endpoints."""
    target = urlsplit(there)
    if here and urlsplit(here)[:3] != target[:3]:
        return {}
    query: dict[str, list[str]] = {}
    for name, value in parse_qsl(target.query, keep_blank_values=True):
        query.setdefault(name, []).append(value)
    by_name = {parameter.name: parameter for parameter in operation.parameters if parameter.location == "query"}
    new = {
        by_name[name].argument: _convert_value(by_name[name], values)
        for name, values in query.items()
        if name in by_name
    }
    return {name: value for name, value in new.items() if arguments.get(name) != value}


def _convert_value(parameter: Parameter, values: list[str]) -> Any:
    kinds = types_of(parameter.schema) if is_object(parameter.schema) else []
    if "array" in kinds:
        return values
    for kind in kinds:
        reader = _READERS.get(kind)
        if reader is not None and reader[0].fullmatch(values[0]):
            return reader[1](values[0])
    return values[0]


def _cursor_page(operation: ApiOperation, content: dict[str, Any]) -> NextPage | None:
    cursor = _find_cursor(content)
    if cursor is None and content.get("has_more") is not True:
        return None
    candidates = {re.sub(r"[-_.]", "", p.name.lower()): p for p in operation.parameters if p.location == "query"}
    if cursor is None:
        return _last_item_page(content, candidates.get("startingafter"))
    taker = next((candidates[name] for name in _CURSOR_PARAMETERS if name in candidates), None)
    return None if taker is None else NextPage({taker.argument: cursor})


def _find_cursor(content: dict[str, Any]) -> str | int | None:
    for path in _CURSORS:
        cursor = _get_path(content, path) if path[0] in content else None
        if isinstance(cursor, str | int) and not isinstance(cursor, bool) and cursor not in ("", 0):
            return cursor
    return None


def _last_item_page(content: dict[str, Any], taker: Parameter | None) -> NextPage | None:
    """Return the next page of a list that continues after the id of its last item."""
    items = content.get("data")
    if taker is None or not (is_array(items) and items):
        return None
    last = items[-1]
    return NextPage({taker.argument: last["id"]}) if is_object(last) and "id" in last else None


class NextPage(NamedTuple):
    """Arguments that fetch the next page, and its URL if the API returns one."""

    arguments: dict[str, Any]
    url: str | None = None

    @property
    def note(self) -> str:
        """Return the note for the model."""
        if self.arguments:
            return f"There is more: call again with {json.dumps(self.arguments)}."
        return f"There is more, at {self.url}"
