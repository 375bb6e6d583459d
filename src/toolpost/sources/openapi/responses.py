"""Parse responses of operations: content by media type, errors by status, pagination hints."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urljoin, urlsplit

from toolpost.catalog.specs import SAFE_METHODS
from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.fast_namedtuple import fast_constructor
from toolpost.policy.redaction import Redactor
from toolpost.schema.json_values import is_array, is_object
from toolpost.web.content import UnreadableError, parse_body
from toolpost.web.failures import response_error, status_phrase, unusable_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from toolpost.sources.openapi.models import ApiOperation, ApiResponse, Parameter
    from toolpost.web.content import Content
    from toolpost.web.requests import PlannedRequest
    from toolpost.wire.messages import Headers


_new_output = fast_constructor(ToolOutput)
_NO_BODY = frozenset({204, 205})
_HIDDEN_HEADERS = frozenset({"authorization", "proxy-authenticate", "set-cookie", "set-cookie2", "www-authenticate"})


def parse_response(
    operation: ApiOperation,
    status: int,
    headers: Headers,
    body: bytes,
    *,
    request: PlannedRequest | None = None,
    arguments: Mapping[str, Any] | None = None,
    secrets: Sequence[str] = (),
    now: float | None = None,
) -> ToolOutput:
    """Return the output of an operation, or raise the ToolError of its status.

    `request` and `arguments` serve to find the next page; `secrets` are the credentials sent, which are
    redacted from every message.
    """
    if 200 <= status < 300:
        return _success(operation, status, headers, body, request, arguments or {}, secrets)
    if status == 304:
        return ToolOutput(None, "304 Not Modified: what you have is still good.", meta={"status": status})
    if 300 <= status < 400 and "location" in headers and _declared_response(operation, status, exactly=True):
        meta = _meta(status, headers, secrets)
        return ToolOutput({**meta}, meta=meta)  # the location is the result
    method = operation.method.upper()
    remedy = _credential_hint(operation) if status == 401 else ""
    subject, writes = f"{method} {operation.path}", method not in SAFE_METHODS
    raise response_error(subject, status, headers, body, remedy=remedy, secrets=secrets, writes=writes, now=now)


def _success(
    operation: ApiOperation,
    status: int,
    headers: Headers,
    body: bytes,
    request: PlannedRequest | None,
    arguments: Mapping[str, Any],
    secrets: Sequence[str],
) -> ToolOutput:
    meta = _meta(status, headers, secrets)
    if operation.method.upper() == "HEAD":  # the headers are what was asked for
        return ToolOutput({"status": status, "headers": _shown_headers(headers, secrets)}, meta=meta)
    if status in _NO_BODY:
        return ToolOutput(None, _location_text(meta), meta=meta)
    content = _content(operation, status, headers, body, secrets)
    if isinstance(content.value, bytes):
        return ToolOutput(content.value, None, content.media_type, meta)
    if content.value is None:
        return ToolOutput(None, _location_text(meta), meta=meta)
    output = _new_output((content.value, None, content.media_type, meta))
    if content.note:
        output = output.with_note(content.note)
    if not _may_have_next_page(headers, content.value):
        return output
    url = "" if request is None else request.url
    page = _find_next_page(operation, headers, content.value, url=url, arguments=arguments)
    return output if page is None else _with_next_page(output, page, Redactor(secrets))


def _meta(status: int, headers: Headers, secrets: Sequence[str]) -> dict[str, Any]:
    """Return the status and the Location header as output metadata."""
    location = headers.get("location")
    return {"status": status} if location is None else {"status": status, "location": _redact_header(location, secrets)}


def _redact_header(value: str, secrets: Sequence[str]) -> str:
    """Return a header value with secrets redacted and invalid bytes replaced."""
    return Redactor(secrets).text(value.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


def _with_next_page(output: ToolOutput, page: NextPage, redactor: Redactor) -> ToolOutput:
    """Add the next page to the output: a note for the model, arguments in `meta` for programs."""
    meta = {**output.meta, "next": {"arguments": page.arguments, "url": page.url and redactor.text(page.url)}}
    return output._replace(meta=meta).with_note(redactor.text(page.note))


def _content(operation: ApiOperation, status: int, headers: Headers, body: bytes, secrets: Sequence[str]) -> Content:
    answer = _declared_response(operation, status)
    declared = () if answer is None else answer.content.keys()
    try:
        return parse_body(body, headers.get("content-type") or "", declared=declared)
    except UnreadableError as error:
        subject = f"{operation.method.upper()} {operation.path}"
        raise unusable_error(subject, status, body, error, secrets) from error


def _declared_response(operation: ApiOperation, status: int, *, exactly: bool = False) -> ApiResponse | None:
    """Return the declared response of a status: exact, by class (`2XX`), or `default`."""
    written = str(status)
    for answer in operation.responses:
        if answer.status == written:
            return answer
    by_status = {answer.status.upper(): answer for answer in operation.responses}
    keys = [written] if exactly else [written, f"{status // 100}XX", "DEFAULT"]
    return next((by_status[key] for key in keys if key in by_status), None)


def _shown_headers(headers: Headers, secrets: Sequence[str]) -> dict[str, str]:
    return {
        name.lower(): _redact_header(value, secrets) for name, value in headers if name.lower() not in _HIDDEN_HEADERS
    }


def _location_text(meta: Mapping[str, Any]) -> str | None:
    """Return the text of an empty response with a Location header."""
    status, location = meta["status"], meta.get("location")
    return f"{status} {status_phrase(status)}: {location}" if location else None


def _credential_hint(operation: ApiOperation) -> str:
    names = list(dict.fromkeys(need.scheme for needs in operation.security for need in needs))
    return f"Check the credential for {' or '.join(map(repr, names))}." if names else ""


# Possessive quantifiers, so that a hostile header takes linear time.
_LINK = re.compile(r'<([^<>]*+)>((?:\s*+;\s*+[^\s=;,]++(?:\s*+=\s*+(?:"(?:[^"\\]|\\.)*+"|[^";,\s]*+))?)*+)')
_RELATION = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^";,\s]*))', re.IGNORECASE)
# Body members that hold the URL of the next page, or its cursor.
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

_HINTS = frozenset({"has_more", *(path[0] for path in (*_ADDRESSES, *_CURSORS))})
_READERS: dict[Any, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "integer": (re.compile(r"-?\d{1,18}"), int),
    "number": (re.compile(r"-?\d{1,18}(?:\.\d{1,18})?"), float),
    "boolean": (re.compile(r"true|false"), "true".__eq__),
}


class NextPage(NamedTuple):
    """Arguments that fetch the next page, and its URL where the API gave one."""

    arguments: dict[str, Any]
    url: str | None = None

    @property
    def note(self) -> str:
        """Return the note for the model."""
        if self.arguments:
            return f"There is more: call again with {json.dumps(self.arguments)}."
        return f"There is more, at {self.url}"


def _may_have_next_page(headers: Headers, content: Any) -> bool:
    """Return whether the response may name a next page; a cheap check before `_find_next_page`."""
    return "link" in headers or (is_object(content) and not _HINTS.isdisjoint(content))


def _find_next_page(
    operation: ApiOperation,
    headers: Headers,
    content: Any,
    *,
    url: str = "",
    arguments: Mapping[str, Any] | None = None,
) -> NextPage | None:
    """Find the next page in Link headers (RFC 8288), body URLs or cursors; `url` and `arguments` are this page's."""
    address = next((link for link, relations in _parse_links(headers) if "next" in relations), None)
    hinted = is_object(content) and not _HINTS.isdisjoint(content)
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
    """Yield the targets of the Link headers with their relations in lower case."""
    for value in headers.get_all("link"):
        for target, parameters in _LINK.findall(value):
            found = _RELATION.search(parameters)
            if found:
                yield target, frozenset((found[1] or found[2] or "").lower().split())


def _find_url(content: dict[str, Any]) -> str | None:
    for path in _ADDRESSES:
        found = _get_path(content, path) if path[0] in content else None
        if is_object(found):
            found = found.get("href", found.get("url"))
        if isinstance(found, str) and (found.startswith(("/", "?")) or "://" in found):
            return found
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
    given: dict[str, list[str]] = {}
    for name, value in parse_qsl(target.query, keep_blank_values=True):
        given.setdefault(name, []).append(value)
    known = {parameter.name: parameter for parameter in operation.parameters if parameter.location == "query"}
    read = {
        known[name].argument: _convert_value(known[name], values) for name, values in given.items() if name in known
    }
    return {name: value for name, value in read.items() if arguments.get(name) != value}


def _convert_value(parameter: Parameter, values: list[str]) -> Any:
    """Convert a query value to the parameter's type."""
    schema = parameter.schema if is_object(parameter.schema) else {}
    kinds = schema.get("type")
    if kinds == "array":
        return values
    for kind in kinds if is_array(kinds) else [kinds]:
        read = _READERS.get(kind)
        if read is not None and read[0].fullmatch(values[0]):
            return read[1](values[0])
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
        found = _get_path(content, path) if path[0] in content else None
        if isinstance(found, str | int) and not isinstance(found, bool) and found not in ("", 0):
            return found
    return None


def _last_item_page(content: dict[str, Any], taker: Parameter | None) -> NextPage | None:
    """Return the next page of a list that continues after the id of its last item."""
    items = content.get("data")
    if taker is None or not (is_array(items) and items):
        return None
    last = items[-1]
    return NextPage({taker.argument: last["id"]}) if is_object(last) and "id" in last else None
