"""Where an answer goes on: RFC 8288 links and the cursors of bodies, as arguments for the next call."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urljoin, urlsplit

from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from toolpost.sources.openapi.operation import Operation, Parameter
    from toolpost.wire.headers import Headers

# Possessive, so that a hostile header costs no more than its length.
_LINK = re.compile(r'<([^<>]*+)>((?:\s*+;\s*+[^\s=;,]++(?:\s*+=\s*+(?:"(?:[^"\\]|\\.)*+"|[^";,\s]*+))?)*+)')
_RELATION = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^";,\s]*))', re.IGNORECASE)
# Where a body tells the address of the next page, and where it tells only what to ask for.
_ADDRESSES = (
    ("@odata.nextLink",),
    ("nextLink",),
    ("next_page_url",),
    ("next_page_uri",),
    ("next_url",),
    ("links", "next"),
    ("_links", "next"),
    ("paging", "next"),
    ("pagination", "next"),
    ("meta", "next_page_url"),
    ("info", "next"),
    ("next",),
)
_CURSORS = (
    ("nextPageToken",),
    ("next_page_token",),
    ("nextCursor",),
    ("next_cursor",),
    ("nextToken",),
    ("NextToken",),
    ("next_token",),
    ("continuationToken",),
    ("metadata", "continue"),
    ("response_metadata", "next_cursor"),
    ("meta", "next_cursor"),
    ("meta", "next_token"),
    ("pagination", "next_cursor"),
    ("paging", "cursors", "after"),
    ("paging", "next", "after"),
    ("next_page", "offset"),
    ("next_page",),
    ("offset",),
)
# What the parameter that takes a cursor is called, in lower case without separators.
_TAKERS = (
    "cursor",
    "pagetoken",
    "nexttoken",
    "nextcursor",
    "continuationtoken",
    "continue",
    "paginationtoken",
    "startcursor",
    "after",
    "startingafter",
    "offset",
    "page",
)

_HINTS = frozenset({"has_more", *(path[0] for path in (*_ADDRESSES, *_CURSORS))})
_READERS: dict[Any, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "integer": (re.compile(r"-?\d{1,18}"), int),
    "number": (re.compile(r"-?\d{1,18}(?:\.\d{1,18})?"), float),
    "boolean": (re.compile(r"true|false"), "true".__eq__),
}


class NextPage(NamedTuple):
    """How to get the next page: the arguments to change, and the address where the API gave one."""

    arguments: dict[str, Any]
    url: str | None = None

    @property
    def in_words(self) -> str:
        """What to tell a reader."""
        if self.arguments:
            return f"There is more: call again with {json.dumps(self.arguments)}."
        return f"There is more, at {self.url}"


def may_go_on(headers: Headers, content: Any) -> bool:
    """Whether it is worth looking for a next page; for most answers it is not."""
    return "link" in headers or (is_object(content) and not _HINTS.isdisjoint(content))


def next_page(
    operation: Operation, headers: Headers, content: Any, *, url: str = "", arguments: Mapping[str, Any] | None = None
) -> NextPage | None:
    """The next page of an answer, if it says that there is one; `url` and `arguments` are those of this page."""
    address = next((link for link, relations in links(headers) if "next" in relations), None)
    hinted = is_object(content) and not _HINTS.isdisjoint(content)
    if address is None and hinted:
        address = _address_in(content)
    if address is None:
        return _by_cursor(operation, content) if hinted else None
    try:
        there = urljoin(url, address)
        return NextPage(_arguments_in(operation, there, url, arguments or {}), there)
    except ValueError:  # it is no address
        return None


def links(headers: Headers) -> Iterator[tuple[str, frozenset[str]]]:
    """The links of an answer, each with its relations in lower case."""
    for value in headers.get_all("link"):
        for target, parameters in _LINK.findall(value):
            found = _RELATION.search(parameters)
            if found:
                yield target, frozenset((found[1] or found[2] or "").lower().split())


def _address_in(content: dict[str, Any]) -> str | None:
    for path in _ADDRESSES:
        found = _at(content, path) if path[0] in content else None
        if is_object(found):
            found = found.get("href", found.get("url"))
        if isinstance(found, str) and (found.startswith(("/", "?")) or "://" in found):
            return found
    return None


def _at(content: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not is_object(content):
            return None
        content = content.get(key)
    return content


def _arguments_in(operation: Operation, there: str, here: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that an address stands for, where it is the same operation's; those that stay are left out."""
    target = urlsplit(there)
    if here and urlsplit(here)[:3] != target[:3]:
        return {}
    given: dict[str, list[str]] = {}
    for name, value in parse_qsl(target.query, keep_blank_values=True):
        given.setdefault(name, []).append(value)
    known = {parameter.name: parameter for parameter in operation.parameters if parameter.location == "query"}
    read = {known[name].argument: _typed(known[name], values) for name, values in given.items() if name in known}
    return {name: value for name, value in read.items() if arguments.get(name) != value}


def _typed(parameter: Parameter, values: list[str]) -> Any:
    """A value of an address as the type that the parameter has."""
    schema = parameter.schema if is_object(parameter.schema) else {}
    kinds = schema.get("type")
    if kinds == "array":
        return values
    for kind in kinds if is_array(kinds) else [kinds]:
        read = _READERS.get(kind)
        if read is not None and read[0].fullmatch(values[0]):
            return read[1](values[0])
    return values[0]


def _by_cursor(operation: Operation, content: dict[str, Any]) -> NextPage | None:
    cursor = _cursor_in(content)
    if cursor is None and content.get("has_more") is not True:
        return None
    takers = {re.sub(r"[-_.]", "", p.name.lower()): p for p in operation.parameters if p.location == "query"}
    if cursor is None:
        return _after_last(content, takers.get("startingafter"))
    taker = next((takers[name] for name in _TAKERS if name in takers), None)
    return None if taker is None else NextPage({taker.argument: cursor})


def _cursor_in(content: dict[str, Any]) -> str | int | None:
    for path in _CURSORS:
        found = _at(content, path) if path[0] in content else None
        if isinstance(found, str | int) and not isinstance(found, bool) and found not in ("", 0):
            return found
    return None


def _after_last(content: dict[str, Any], taker: Parameter | None) -> NextPage | None:
    """Lists that go on after the id of their last item."""
    items = content.get("data")
    if taker is None or not (is_array(items) and items):
        return None
    last = items[-1]
    return NextPage({taker.argument: last["id"]}) if is_object(last) and "id" in last else None
