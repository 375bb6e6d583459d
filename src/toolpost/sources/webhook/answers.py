"""What came back from a webhook, as output: the body by its media type, or the error that it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolOutputError
from toolpost.sources.webhook.n8n_failures import n8n_failure
from toolpost.sources.webhook.streams import put_together
from toolpost.sources.webhook.traces import without_traces
from toolpost.web.contents import UnreadableError, content_of, decoded
from toolpost.web.encoding import compact_json
from toolpost.web.failures import failure_of, presentable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.sources.webhook.hook import Hook
    from toolpost.web.contents import Content
    from toolpost.web.sending import Reply

_LONGEST_LOOK = 4096
_LONGEST_QUOTE = 120
_REMEDY = "Check the source's auth_config and headers; they go to the connection's own server and no other."
_WENT_ON = "The stream went on; this is what came until then."
_MAY_HAVE_FAILED = (
    "n8n answers so when a workflow fails before its Respond to Webhook node, "
    "and when that node sends no data: the executions of the workflow tell which."
)


def output_of(name: str, hook: Hook, reply: Reply, *, promised: bool, secrets: Sequence[str] = ()) -> ToolOutput:
    """The output of a call, or a ToolError raised; `promised` says that the tool declares what it gives."""
    subject = f"n8n workflow {hook.workflow!r}" if hook.workflow else f"webhook {name!r}"
    if not 200 <= reply.status < 300:
        if hook.is_n8n:
            raise n8n_failure(subject, hook, reply, secrets=secrets)
        body = without_traces(reply.body)
        raise failure_of(subject, reply.status, reply.headers, body, remedy=_REMEDY, secrets=secrets)
    if hook.mode == "streaming":
        reply = put_together(subject, reply)
    if not reply.body.strip():
        return _empty(subject, hook, reply, promised=promised, secrets=secrets)
    content = _content(subject, reply, promised=promised, secrets=secrets)
    if isinstance(content.value, bytes):
        return ToolOutput(content.value, media_type=content.media_type)
    notes = (content.note, _WENT_ON if reply.cut else "", _whereabouts(reply, secrets))
    return ToolOutput(content.value, _beside(content, " ".join(filter(None, notes))), content.media_type)


def _empty(subject: str, hook: Hook, reply: Reply, *, promised: bool, secrets: Sequence[str]) -> ToolOutput:
    may_have_failed = hook.is_n8n and hook.mode in ("responseNode", "")
    why = " ".join(filter(None, (_MAY_HAVE_FAILED if may_have_failed else "", _whereabouts(reply, secrets))))
    if promised:
        what = f"{subject} answered {reply.status} with an empty body where a result was promised"
        raise ToolOutputError(f"{what}. {why}".rstrip())
    return ToolOutput(None, f"The answer is empty. {why}" if why else None)


def _whereabouts(reply: Reply, secrets: Sequence[str]) -> str:
    """What RFC 9110, sections 15.3.2 and 15.3.3, means by 201 and 202: something is, or will be, elsewhere."""
    location = reply.headers.get("location")
    where = presentable(location, secrets) if location else ""
    if reply.status == 202:
        told = "It was accepted and may not be done yet."
        return f"{told} How it stands is told at {where}" if where else told
    return f"It was created at {where}" if where and reply.status == 201 else ""


def _content(subject: str, reply: Reply, *, promised: bool, secrets: Sequence[str]) -> Content:
    """The body as a value; what is promised is JSON, so that a page or a picture in its place is a failure."""
    declared = ("application/json",) if promised else ()
    try:
        content = content_of(reply.body, reply.headers.get("content-type") or "", declared=declared)
    except UnreadableError as error:
        begins = presentable(decoded(reply.body[:_LONGEST_LOOK]), secrets)[:_LONGEST_QUOTE]
        msg = f"{subject} answered {reply.status}, but the answer is unusable: {error}. It begins: {begins!r}"
        raise ToolOutputError(msg) from error
    if promised and isinstance(content.value, bytes):
        raise ToolOutputError(f"{subject} answered with {content.media_type} where JSON was promised")
    return content


def _beside(content: Content, note: str) -> str | None:
    """The text of an output that has something to say beside its content."""
    if not note:
        return None
    told = content.value if isinstance(content.value, str) else compact_json(content.value)
    return f"{told}\n\n{note}"
