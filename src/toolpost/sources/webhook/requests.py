"""A webhook with its arguments, as the request to send; nothing here opens a connection."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import ToolValidationError
from toolpost.schema.jsontypes import is_array
from toolpost.sources.webhook.signing import signature_headers
from toolpost.web.encoding import UnsendableError, compact_json, percent, text_of
from toolpost.web.planned import PlannedRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolpost.contracts.options import WebhookSignature
    from toolpost.sources.webhook.hook import Hook
    from toolpost.web.encoding import Pair

BODILESS = frozenset({"GET", "HEAD", "DELETE"})
_STEPS = frozenset({"", ".", ".."})


def request_of(
    hook: Hook, arguments: Mapping[str, Any], *, key: str = "", signature: WebhookSignature | None = None
) -> PlannedRequest:
    """The request that calls a webhook; `key` stays the same however often the call is tried."""
    rest = {name: value for name, value in arguments.items() if name not in hook.slots}
    bodiless = hook.method in BODILESS
    body = None if bodiless else _body(rest)
    headers: list[Pair] = [("Accept", "application/json, */*;q=0.8")]
    if body is not None:
        headers.append(("Content-Type", "application/json"))
    if hook.key_header is not None:
        headers.append((hook.key_header, key))
    if signature is not None:
        headers += signature_headers(signature, body or b"", now=time.time())
    return PlannedRequest(
        method=hook.method,
        address=_filled(hook, arguments),
        query=(*hook.query, *(_query(rest) if bodiless else ())),
        headers=tuple(headers),
        body=body,
    )


def _body(arguments: Mapping[str, Any]) -> bytes:
    try:
        return compact_json(arguments).encode()
    except UnsendableError as error:
        raise ToolValidationError(f"the arguments cannot be sent: {error}") from error


def _filled(hook: Hook, arguments: Mapping[str, Any]) -> str:
    """The address with the arguments of its path; one that would lead to another path is refused."""
    if not hook.slots:
        return hook.address
    steps = hook.address.split("/")
    return "/".join(_step(step[1:], arguments) if _is_slot(step, hook) else step for step in steps)


def _is_slot(step: str, hook: Hook) -> bool:
    return step.startswith(":") and step[1:] in hook.slots


def _step(name: str, arguments: Mapping[str, Any]) -> str:
    text = _encoded(name, arguments.get(name))
    if text in _STEPS or "%2F" in text:  # servers decode a slash before they take the path apart
        raise ToolValidationError(f"{name}: a value that is empty, a step or has a slash cannot stand in a path")
    return text


def _query(arguments: Mapping[str, Any]) -> Iterator[Pair]:
    """Each argument as a pair, a list as several; what is null is left out, because a query has no null."""
    for name, value in arguments.items():
        for item in value if is_array(value) else [value]:
            if item is not None:
                yield _encoded(name, name), _encoded(name, item)


def _encoded(name: str, value: Any) -> str:
    try:
        return percent(text_of(value))
    except ValueError as error:  # half of a surrogate pair has no bytes
        raise ToolValidationError(f"{name}: {error}") from error
