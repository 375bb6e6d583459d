"""What n8n says when a webhook fails, as errors that say what to do; its stack traces are told to nobody."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import ToolClientError, ToolServerError
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.web.contents import decoded, parsed_json
from toolpost.web.encoding import compact_json
from toolpost.web.failures import failure_of, presentable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.contracts.errors import ToolNodeError
    from toolpost.sources.webhook.hook import Hook
    from toolpost.web.sending import Reply

_LONGEST_LOOK = 20_000
_DEEPEST = 5
# A frame of a JavaScript stack: `at name (file:1:2)` or `at file:1:2`.
_FRAME = re.compile(r"\s?\bat (?:[^\s()]{1,200} ){0,4}\(?[^\s()]{1,500}:\d{1,9}:\d{1,9}\)?")
_TRACES = frozenset({"stacktrace", "stack"})
_WRONG_METHOD = "not registered for"
_NOT_REGISTERED = "is not registered"
_LOGIN_STATUSES = frozenset({401, 403})


def n8n_failure(subject: str, hook: Hook, reply: Reply, *, secrets: Sequence[str] = ()) -> ToolNodeError:
    """The error that an answer of n8n stands for."""
    told = _told(reply.body)
    said = presentable(_without_frames(str(told.get("message") or "")), secrets)
    if reply.status == 404 and _WRONG_METHOD in said:
        msg = f"{subject} does not take {hook.method}: n8n says {said!r}. Discover the source again, or set the method"
        return ToolClientError(msg, status_code=404, code="webhook_not_registered")
    if reply.status == 404 and _NOT_REGISTERED in said:
        msg = f"{subject} is not registered: it is inactive, or n8n has just started, when webhooks take some seconds"
        return ToolClientError(
            f"{msg}. Activate it in n8n and call again", status_code=404, code="webhook_not_registered"
        )
    if reply.status == 500 and said == "Error in workflow":
        msg = f"{subject} failed while it ran. Its executions in n8n tell where; what it did before that is done"
        return ToolServerError(msg, status_code=500, code="workflow_failed")
    error = failure_of(subject, reply.status, reply.headers, _scrubbed(reply.body, told), secrets=secrets)
    if reply.status in _LOGIN_STATUSES:
        error.message = f"{error.message.rstrip('.')}. {_remedy(hook)}"
        error.args = (error.message,)
    return error


def _told(body: bytes) -> dict[str, Any]:
    try:
        told = parsed_json(body)
    except ValueError:
        return {}
    return told if is_object(told) else {}


def _scrubbed(body: bytes, told: dict[str, Any]) -> bytes:
    """The answer without its traces, which name files and versions of the server."""
    if not told:
        return _without_frames(decoded(body[:_LONGEST_LOOK])).encode()
    kept = _cleaned(told)
    return compact_json(kept).encode() if kept else b""


def _cleaned(value: Any, depth: int = 0) -> Any:
    """A value without traces, as deep as anything is told of it."""
    if isinstance(value, str):
        return _without_frames(value)
    if depth > _DEEPEST:
        return None
    if is_array(value):
        return [_cleaned(item, depth + 1) for item in value]
    if is_object(value):
        return {name: _cleaned(inner, depth + 1) for name, inner in value.items() if name not in _TRACES}
    return value


def _without_frames(text: str) -> str:
    return _FRAME.sub("", text[:_LONGEST_LOOK])


def _remedy(hook: Hook) -> str:
    asks = f"Its Webhook node asks for {hook.login}" if hook.login else "If its Webhook node asks for a login"
    return f"{asks}: write that header into the source's headers. The API key is not sent to webhooks."
