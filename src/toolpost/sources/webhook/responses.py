"""Convert the responses of webhooks to tool outputs and errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from toolpost.contracts import errors
from toolpost.contracts.calls import ToolOutput
from toolpost.http.content import Content, UnreadableError, decode_text, parse_body, parse_json
from toolpost.http.encoding import compact_json
from toolpost.http.response_errors import response_error, sanitize, unusable_error
from toolpost.schema.json_size import CheckedJson
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.sources.requests import STREAM_CUT
from toolpost.sources.webhook.hooks import Hook
from toolpost.wire.messages import Headers, Response

_REMEDY = "Check the source's auth_config and headers; they go to the connection's own server and no other."
_MAY_HAVE_FAILED = (
    "n8n responds like this if a workflow fails before its Respond to Webhook node, "
    "and if that node sends no data: the executions of the workflow show which."
)
_WRONG_METHOD_PREFIX = "This webhook is not registered for"
_UNKNOWN_PREFIX = "The requested webhook "
_TEST_PATH = "/webhook-test/"
_LOGIN_STATUSES = frozenset({401, 403})
_CHUNK_TYPES = frozenset({"begin", "item", "end", "error"})
_MAX_CLEANED_CHARS = 20_000
_MAX_DEPTH = 5
_TRACE_KEYS = frozenset({"stacktrace", "stack"})
_HTML_BREAK = re.compile(r"<br\s{0,9}/?>", re.IGNORECASE)
_FRAME_LINE = re.compile(r"(?:\s|&nbsp;){0,80}at\s")
# A frame of a JavaScript stack within a line: `at name (file:1:2)` or `at file:1:2`.
_FRAME = re.compile(r"\s?\bat (?:[^\s()]{1,200} ){0,4}\(?[^\s()]{1,500}:\d{1,9}:\d{1,9}\)?")


def output_of(
    name: str, hook: Hook, response: Response, *, declares_output: bool, secrets: Sequence[str] = ()
) -> ToolOutput:
    """Return the output of a call, or raise a ToolError; a tool with an output schema must return JSON."""
    subject = f"n8n workflow {hook.workflow!r}" if hook.workflow else f"webhook {name!r}"
    if not 200 <= response.status < 300:
        if hook.is_n8n:
            raise n8n_error(subject, hook, response, secrets=secrets)
        body = remove_stack_traces(response.body)
        raise response_error(subject, response.status, response.headers, body, remedy=_REMEDY, secrets=secrets)
    if hook.mode == "streaming":
        response = join_stream(subject, response)
    if not response.body.strip():
        return _empty_output(subject, hook, response, declares_output=declares_output, secrets=secrets)
    content = _parse_content(subject, response, declares_output=declares_output, secrets=secrets)
    if isinstance(content.value, bytes):
        return ToolOutput(content.value, media_type=content.media_type)
    notes = (content.note, STREAM_CUT if response.is_cut else "", _location_note(response, secrets))
    return ToolOutput(content.value, media_type=content.media_type).with_note(" ".join(filter(None, notes)))


def _empty_output(
    subject: str, hook: Hook, response: Response, *, declares_output: bool, secrets: Sequence[str]
) -> ToolOutput:
    may_have_failed = hook.is_n8n and hook.mode in ("responseNode", "")
    why = " ".join(filter(None, (_MAY_HAVE_FAILED if may_have_failed else "", _location_note(response, secrets))))
    if declares_output:
        what = f"{subject} answered {response.status} with an empty body where a result was promised"
        raise errors.ToolOutputError(f"{what}. {why}".rstrip())
    return ToolOutput(None, f"The answer is empty. {why}" if why else None)


def _location_note(response: Response, secrets: Sequence[str]) -> str:
    """Return a note about the Location of a 201 or 202 (RFC 9110, sections 15.3.2 and 15.3.3)."""
    location = response.headers.get("location")
    shown = sanitize(location, secrets) if location else ""
    if response.status == 202:
        text = "It was accepted and may not have finished yet."
        return f"{text} Its status is at {shown}" if shown else text
    return f"It was created at {shown}" if shown and response.status == 201 else ""


def _parse_content(subject: str, response: Response, *, declares_output: bool, secrets: Sequence[str]) -> Content:
    """Parse the body by its media type; raise ToolOutputError for other than JSON when the tool declares an output."""
    declared = ("application/json",) if declares_output else ()
    try:
        content = parse_body(response.body, response.headers.get("content-type") or "", declared=declared)
    except UnreadableError as error:
        raise unusable_error(subject, response.status, response.body, error, secrets) from error
    if declares_output and isinstance(content.value, bytes) and not isinstance(content.value, CheckedJson):
        raise errors.ToolOutputError(f"{subject} answered with {content.media_type} where JSON was promised")
    return content


def n8n_error(subject: str, hook: Hook, response: Response, *, secrets: Sequence[str] = ()) -> errors.ToolNodeError:
    """Map an error response of n8n to a ToolError that says what to do."""
    try:
        raw = str(as_object(parse_json(response.body)).get("message") or "")
    except ValueError:
        raw = ""
    message = sanitize(remove_stack_frames(raw), secrets)
    if response.status == 404 and (not_registered := _not_registered_message(subject, hook, message)):
        return errors.ToolClientError(not_registered, status_code=404, code="webhook_not_registered")
    if response.status == 500 and message == "Error in workflow":
        return workflow_error(subject, response.status)
    error = response_error(
        subject, response.status, response.headers, remove_stack_traces(response.body), secrets=secrets
    )
    if response.status in _LOGIN_STATUSES:
        error.message = f"{error.message.rstrip('.!')}. {_login_hint(hook)}"
        error.args = (error.message,)
    return error


def _not_registered_message(subject: str, hook: Hook, message: str) -> str:
    """Return what to do about an unregistered webhook; empty for a 404 that the workflow itself sent."""
    if message.startswith(_WRONG_METHOD_PREFIX):
        msg = f"{subject} does not accept {hook.method}: n8n responds {message!r}"
        return f"{msg}. Discover the source again, or set the method"
    if not message.startswith(_UNKNOWN_PREFIX):
        return ""
    if _TEST_PATH in hook.address:
        msg = f"{subject} is a test URL, which n8n answers once after 'Execute workflow' in its editor"
        return f"{msg}. Call the production URL: /webhook/ in place of {_TEST_PATH}"
    msg = f"{subject} is not registered: it is inactive, or n8n has just started, and registers webhooks within seconds"
    return f"{msg}. Activate it in n8n and call again"


def _login_hint(hook: Hook) -> str:
    asks = f"Its Webhook node requires {hook.login}" if hook.login else "If its Webhook node requires authentication"
    other = "" if hook.login else " Its options Ignore Bots and IP(s) Whitelist also reject calls."
    return f"{asks}: add that header to the headers of the source. The API key is not sent to webhooks.{other}"


def workflow_error(subject: str, status: int | None = None) -> errors.ToolServerError:
    """Build the error of a failed workflow; a streaming one has no error status, because it already sent 200."""
    msg = f"{subject} failed. Its executions in n8n show where; effects of earlier nodes remain"
    return errors.ToolServerError(msg, status_code=status, code="workflow_failed")


def join_stream(subject: str, response: Response) -> Response:
    """Join the text chunks of n8n's JSON lines stream; return other responses unchanged."""
    chunks = _stream_chunks(response.body)
    if chunks is None:
        return response
    if chunks[-1]["type"] == "error":  # only a last error ends the workflow; after others it continues
        raise workflow_error(subject)
    texts = [one["content"] for one in chunks if one["type"] == "item" and isinstance(one.get("content"), str)]
    response.headers, response.body = Headers(()), "".join(texts).encode("utf-8", "replace")
    return response


def _stream_chunks(body: bytes) -> list[dict[str, Any]] | None:
    try:
        lines = [parse_json(line) for line in body.splitlines() if line.strip()]
    except ValueError:
        return None
    chunks = [line for line in lines if is_object(line) and line.get("type") in _CHUNK_TYPES]
    return chunks if chunks and len(chunks) == len(lines) else None


def remove_stack_traces(body: bytes) -> bytes:
    """Remove stack traces, which reveal files and versions of the server, from an error body."""
    try:
        value = parse_json(body)
    except ValueError:
        text = decode_text(body[:_MAX_CLEANED_CHARS])
        cleaned_text = remove_stack_frames(text)
        return body if cleaned_text == text else cleaned_text.encode()
    cleaned = _clean_value(value)
    if cleaned == value:
        return body
    return compact_json(cleaned).encode() if cleaned else b""


def _clean_value(value: Any, depth: int = 0) -> Any:
    """Remove stack traces from a JSON value; cut it below the depth that error messages quote."""
    if isinstance(value, str):
        return remove_stack_frames(value)
    if depth > _MAX_DEPTH:
        return None
    if is_array(value):
        return [_clean_value(item, depth + 1) for item in value]
    if is_object(value):
        return {
            name: _clean_value(inner, depth + 1) for name, inner in value.items() if name.lower() not in _TRACE_KEYS
        }
    return value


def remove_stack_frames(text: str) -> str:
    """Remove the lines, and parts of lines, that are frames of a stack trace."""
    lines = _HTML_BREAK.sub("\n", text[:_MAX_CLEANED_CHARS]).splitlines()
    if len(lines) > 1:
        text = "\n".join(line for line in lines if not _FRAME_LINE.match(line))
    return _FRAME.sub("", text[:_MAX_CLEANED_CHARS])
