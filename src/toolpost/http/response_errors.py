"""Build errors from HTTP responses: the status, the reason that the server gives, and the time to wait."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from toolpost.contracts import errors
from toolpost.http.content import decode_text, looks_like_json, parse_json, parse_media_type
from toolpost.http.encoding import UnsendableError, compact_json
from toolpost.policy.redaction import Redactor
from toolpost.schema.json_values import is_array, is_object
from toolpost.wire.messages import Headers
from toolpost.wire.retry_after import parse_retry_after

_LONGEST = 500
_LONGEST_LOOK = 20_000
_LONGEST_QUOTED = 4096
_LONGEST_QUOTE = 120
_DEEPEST = 4
_MOST_COMPLAINTS = 3
_MARKUP = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]*)?[^<>]*>|([^<]+|<)")
_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CHALLENGE = re.compile(r'\b(error_description|error|scope)="([^"]*)"')
# The request was processed and the result is elsewhere; other redirects name another address for the request.
_AFTERWARDS = frozenset({302, 303})
_DONE = "The request may have taken effect."
_MESSAGE_KEYS = ("detail", "error_description", "message", "error_message", "error", "msg", "reason")
# Member names of RFC 9457's example and of common validators for errors of single fields.
_DETAIL_KEYS = ("errors", "invalid-params", "validation", "violations")
_PLACES = ("loc", "location")  # path of the invalid field in errors of FastAPI and Prism


def response_error(
    subject: str,
    status: int,
    headers: Headers,
    body: bytes,
    *,
    remedy: str = "",
    secrets: Iterable[str] = (),
    writes: bool = False,
    now: float | None = None,
) -> errors.ToolNodeError:
    """Build the error of a response; secrets are redacted.

    `subject` names the called tool or API. With `writes`, the call may have changed something. `remedy` is appended to
    the message of a 401.
    """
    parts = (
        [_redirection(headers), _DONE if writes and status in _AFTERWARDS else ""]
        if 300 <= status < 400
        else [extract_reason(headers, body), _challenge(headers)]
    )
    text = " ".join(part for part in parts if part)
    head = f"{subject} answered {status} {status_phrase(status)}".rstrip()
    message = f"{head}: {sanitize(text, secrets)}" if text else head
    if status == 401:
        message = f"{message.rstrip('.')}. {remedy}".rstrip()
    error = _build_rate_limit_error(status, headers, message) or errors.from_status(status, message)
    error.retry_after_s = parse_retry_after(headers, now=now)
    error.challenges = headers.get_all("www-authenticate")
    return error


def _build_rate_limit_error(status: int, headers: Headers, message: str) -> errors.ToolRateLimitError | None:
    """Build a rate-limit error for a 403 with header fields of a rate limit."""
    if status != 403 or not ("retry-after" in headers or headers.get("x-ratelimit-remaining") == "0"):
        return None
    return errors.ToolRateLimitError(message, status_code=status, category=errors.ErrorCategory.RETRYABLE_RATE_LIMIT)


def _redirection(headers: Headers) -> str:
    location = headers.get("location")
    if not location:
        return "it redirects without an address."
    try:
        there = urlsplit(location)
    except ValueError:
        return "it redirects to an invalid address."
    where = f"{there.scheme}://{there.netloc}{there.path}" if there.netloc else there.path
    return f"it redirects to {where!r}, which was not followed."


def _challenge(headers: Headers) -> str:
    parameters = dict(_CHALLENGE.findall(headers.get("www-authenticate") or ""))
    return ", ".join(f"{name}: {value}" for name, value in parameters.items())


def unusable_error(
    subject: str, status: int, body: bytes, reason: object, secrets: Iterable[str]
) -> errors.ToolOutputError:
    """Build the error for a 2xx response with an unusable body; the message quotes the beginning of the body."""
    begins = sanitize(decode_text(body[:_LONGEST_QUOTED]), secrets)[:_LONGEST_QUOTE]
    return errors.ToolOutputError(
        f"{subject} answered {status}, but the answer is unusable: {reason}. It begins: {begins!r}"
    )


def extract_reason(headers: Headers, body: bytes) -> str:
    """Extract the server's reason for a failure; prefer the title and detail of RFC 9457."""
    kind = parse_media_type(headers.get("content-type") or "")
    if kind.kind == "json" or looks_like_json(body):
        try:
            return _message_of(parse_json(body, kind.charset))
        except ValueError:
            pass
    if kind.kind == "binary" and kind.essence:
        return ""
    return _readable(decode_text(body, kind.charset))


def _message_of(value: Any, depth: int = 0) -> str:
    if isinstance(value, str):
        return value
    if depth > _DEEPEST or value is None:
        return ""
    if is_array(value):
        return "; ".join(text for item in value[:_MOST_COMPLAINTS] if (text := _message_of(item, depth + 1)))
    if is_object(value):
        return _message_of_object(value, depth) or ("" if depth else _as_json(value))
    return str(value)


def _message_of_object(value: dict[str, Any], depth: int) -> str:
    title = value.get("title")
    message = next((text for key in _MESSAGE_KEYS if (text := _message_of(value.get(key), depth + 1))), "")
    parts = [title if isinstance(title, str) else "", message]
    parts += [_message_of(value.get(key), depth + 1) for key in _DETAIL_KEYS]
    text = ": ".join(dict.fromkeys(part for part in parts if part)).replace(".: ", ": ")
    place = next((value[key] for key in _PLACES if is_array(value.get(key))), None)
    return f"{'.'.join(map(str, place))}: {text}" if text and place else text


def _as_json(value: Any) -> str:
    try:
        return compact_json(value)
    except UnsendableError:
        return ""


def _readable(text: str) -> str:
    """Convert an HTML page to text, title first; return other text unchanged."""
    if "<" not in text:
        return text
    title, words, inside = list[str](), list[str](), ""
    for closing, tag, run in _MARKUP.findall(text):
        if run and inside not in ("script", "style"):
            (title if inside == "title" else words).append(run)
        elif tag and (closing or inside not in ("script", "style")):
            inside = "" if closing else tag.lower()
    return html.unescape(": ".join(part for part in (" ".join(title), " ".join(words)) if part.strip()))


def sanitize(text: str, secrets: Iterable[str]) -> str:
    """Return the text as one line without secrets, control characters and terminal escapes."""
    cleaned = _TERMINAL.sub(" ", Redactor(secrets).text(text)[:_LONGEST_LOOK])
    safe = " ".join("".join(char if char.isprintable() else " " for char in cleaned).split())
    return safe if len(safe) <= _LONGEST else f"{safe[:_LONGEST]}…"


def status_phrase(status: int) -> str:
    """Return the reason phrase of a status; empty if the status is unknown."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
