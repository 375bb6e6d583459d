"""Build and sign the HTTP request of a webhook call."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import ToolValidationError
from toolpost.schema.json_values import is_array
from toolpost.web.encoding import UnsendableError, compact_json, format_value, percent_encode
from toolpost.web.requests import PlannedRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolpost.contracts.config import WebhookSignature
    from toolpost.sources.webhook.hooks import Hook
    from toolpost.web.encoding import Pair

BODILESS_METHODS = frozenset({"GET", "HEAD", "DELETE"})
_UNSAFE_SEGMENTS = frozenset({"", ".", ".."})
_TIMESTAMP_PLACEHOLDER = "{timestamp}"


def build_request(
    hook: Hook, arguments: Mapping[str, Any], *, key: str = "", signature: WebhookSignature | None = None
) -> PlannedRequest:
    """Build the request of a call; `key` is the idempotency key, the same for every retry."""
    remaining = {name: value for name, value in arguments.items() if name not in hook.slots}
    bodiless = hook.method in BODILESS_METHODS
    body = None if bodiless else _json_body(remaining)
    headers: list[Pair] = [("Accept", "application/json, */*;q=0.8")]
    if body is not None:
        headers.append(("Content-Type", "application/json"))
    if hook.key_header is not None:
        headers.append((hook.key_header, key))
    if signature is not None:
        headers += signature_headers(signature, body or b"", now=time.time())
    return PlannedRequest(
        method=hook.method,
        address=_fill_path(hook, arguments),
        query=(*hook.query, *(_query_pairs(remaining) if bodiless else ())),
        headers=tuple(headers),
        body=body,
    )


def _json_body(arguments: Mapping[str, Any]) -> bytes:
    try:
        return compact_json(arguments).encode()
    except UnsendableError as error:
        raise ToolValidationError(f"the arguments cannot be sent: {error}") from error


def _fill_path(hook: Hook, arguments: Mapping[str, Any]) -> str:
    """Fill the path parameters; refuse values that would change the path."""
    if not hook.slots:
        return hook.address
    segments = hook.address.split("/")
    return "/".join(_path_segment(one[1:], arguments) if _is_slot(one, hook) else one for one in segments)


def _is_slot(segment: str, hook: Hook) -> bool:
    return segment.startswith(":") and segment[1:] in hook.slots


def _path_segment(name: str, arguments: Mapping[str, Any]) -> str:
    text = _encode(name, arguments.get(name))
    if text in _UNSAFE_SEGMENTS or "%2F" in text:  # servers decode a slash before they split the path
        raise ToolValidationError(f"{name}: a value that is empty, a step or has a slash cannot stand in a path")
    return text


def _query_pairs(arguments: Mapping[str, Any]) -> Iterator[Pair]:
    """Yield a pair per argument, several for a list; null is omitted."""
    for name, value in arguments.items():
        for item in value if is_array(value) else [value]:
            if item is not None:
                yield _encode(name, name), _encode(name, item)


def _encode(name: str, value: Any) -> str:
    try:
        return percent_encode(format_value(value))
    except ValueError as error:  # a lone surrogate cannot be encoded
        raise ToolValidationError(f"{name}: {error}") from error


def signature_headers(signature: WebhookSignature, body: bytes, *, now: float) -> tuple[Pair, ...]:
    """Return the HMAC signature header of a body, and the timestamp header if there is one.

    A timestamp is signed with the body against replay. It goes into a header of its own, or into the prefix in
    place of `{timestamp}`, as Stripe does.
    """
    timestamp = str(int(now))
    has_timestamp = signature.timestamp_header is not None or _TIMESTAMP_PLACEHOLDER in signature.prefix
    signed = f"{timestamp}.".encode() + body if has_timestamp else body
    digest = hmac.new(signature.secret.encode(), signed, getattr(hashlib, signature.algorithm)).digest()
    encoded = digest.hex() if signature.encoding == "hex" else base64.b64encode(digest).decode()
    headers: list[Pair] = [(signature.header, signature.prefix.replace(_TIMESTAMP_PLACEHOLDER, timestamp) + encoded)]
    if signature.timestamp_header is not None:
        headers.append((signature.timestamp_header, timestamp))
    return tuple(headers)
