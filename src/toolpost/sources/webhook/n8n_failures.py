"""What n8n says when a webhook fails, as errors that say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import ToolClientError, ToolServerError
from toolpost.schema.jsontypes import is_object
from toolpost.sources.webhook.traces import without_frames, without_traces
from toolpost.web.contents import parsed_json
from toolpost.web.failures import failure_of, presentable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.contracts.errors import ToolNodeError
    from toolpost.sources.webhook.hook import Hook
    from toolpost.web.sending import Reply

_WRONG_METHOD = "This webhook is not registered for"
_UNKNOWN = "The requested webhook "
_TEST_PATH = "/webhook-test/"
_LOGIN_STATUSES = frozenset({401, 403})


def n8n_failure(subject: str, hook: Hook, reply: Reply, *, secrets: Sequence[str] = ()) -> ToolNodeError:
    """The error that an answer of n8n stands for."""
    told = _told(reply.body)
    said = presentable(without_frames(str(told.get("message") or "")), secrets)
    if reply.status == 404 and (unknown := _unregistered(subject, hook, said)):
        return ToolClientError(unknown, status_code=404, code="webhook_not_registered")
    if reply.status == 500 and said == "Error in workflow":
        return workflow_failed(subject, reply.status)
    error = failure_of(subject, reply.status, reply.headers, without_traces(reply.body), secrets=secrets)
    if reply.status in _LOGIN_STATUSES:
        error.message = f"{error.message.rstrip('.!')}. {_remedy(hook)}"
        error.args = (error.message,)
    return error


def workflow_failed(subject: str, status: int | None = None) -> ToolServerError:
    """The error of a workflow that stopped on its way; one that streams has said 200 by then."""
    msg = f"{subject} failed while it ran. Its executions in n8n tell where; what it did before that is done"
    return ToolServerError(msg, status_code=status, code="workflow_failed")


def _unregistered(subject: str, hook: Hook, said: str) -> str:
    """What to do about a webhook that n8n does not know; nothing where a workflow has found nothing."""
    if said.startswith(_WRONG_METHOD):
        return f"{subject} does not take {hook.method}: n8n says {said!r}. Discover the source again, or set the method"
    if not said.startswith(_UNKNOWN):
        return ""
    if _TEST_PATH in hook.address:
        msg = f"{subject} is a test URL, which n8n answers once after 'Execute workflow' in its editor"
        return f"{msg}. Call the production URL: /webhook/ in place of {_TEST_PATH}"
    msg = f"{subject} is not registered: it is inactive, or n8n has just started, when webhooks take some seconds"
    return f"{msg}. Activate it in n8n and call again"


def _told(body: bytes) -> dict[str, Any]:
    try:
        told = parsed_json(body)
    except ValueError:
        return {}
    return told if is_object(told) else {}


def _remedy(hook: Hook) -> str:
    asks = f"Its Webhook node asks for {hook.login}" if hook.login else "If its Webhook node asks for a login"
    other = "" if hook.login else " Its options Ignore Bots and IP(s) Whitelist refuse calls, too."
    return f"{asks}: write that header into the source's headers. The API key is not sent to webhooks.{other}"
