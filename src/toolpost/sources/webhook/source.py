"""Tool source for webhooks, and what their responses mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from toolpost.contracts import errors
from toolpost.contracts.calls import AuthorizedCall, Credential, ToolOutput
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.questions import Question
from toolpost.contracts.source_kinds import AuthType
from toolpost.schema.json_size import CheckedJson, JsonLimits
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.schema.secrets import is_secret_header
from toolpost.sources.webhook.hooks import (
    BODILESS_METHODS,
    CONNECTION_TOOL,
    Hook,
    HookDefinition,
    build_request,
    declared_hooks,
    is_absolute_url,
    origin_of,
)
from toolpost.sources.webhook.n8n import API_KEY_HEADER, API_KEY_HINT, N8nApi, N8nToolBuilder
from toolpost.transports.base import BaseSource, Services, SourceTool
from toolpost.web.content import Content, UnreadableError, decode_text, parse_body, parse_json
from toolpost.web.requests import (
    NOTHING,
    Pair,
    Presentation,
    compact_json,
    make_sender,
    response_error,
    sanitize,
    unusable_error,
)
from toolpost.wire.client import HttpClient
from toolpost.wire.messages import Headers, Response

_REMEDY = "Check the source's auth_config and headers; they go to the connection's own server and no other."
_STREAM_CUT = "The stream went on; this is what came until then."
_MAY_HAVE_FAILED = (
    "n8n answers so when a workflow fails before its Respond to Webhook node, "
    "and when that node sends no data: the executions of the workflow tell which."
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
    notes = (content.note, _STREAM_CUT if response.is_cut else "", _location_note(response, secrets))
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
        text = "It was accepted and may not be done yet."
        return f"{text} How it stands is told at {shown}" if shown else text
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
    raw = str(_json_object(response.body).get("message") or "")
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


def workflow_error(subject: str, status: int | None = None) -> errors.ToolServerError:
    """Build the error of a failed workflow; a streaming one has no error status, because it already sent 200."""
    msg = f"{subject} failed while it ran. Its executions in n8n tell where; what it did before that is done"
    return errors.ToolServerError(msg, status_code=status, code="workflow_failed")


def _not_registered_message(subject: str, hook: Hook, message: str) -> str:
    """Return what to do about an unregistered webhook; empty for a 404 that the workflow itself sent."""
    if message.startswith(_WRONG_METHOD_PREFIX):
        msg = f"{subject} does not take {hook.method}: n8n says {message!r}"
        return f"{msg}. Discover the source again, or set the method"
    if not message.startswith(_UNKNOWN_PREFIX):
        return ""
    if _TEST_PATH in hook.address:
        msg = f"{subject} is a test URL, which n8n answers once after 'Execute workflow' in its editor"
        return f"{msg}. Call the production URL: /webhook/ in place of {_TEST_PATH}"
    msg = f"{subject} is not registered: it is inactive, or n8n has just started, when webhooks take some seconds"
    return f"{msg}. Activate it in n8n and call again"


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        value = parse_json(body)
    except ValueError:
        return {}
    return as_object(value)


def _login_hint(hook: Hook) -> str:
    asks = f"Its Webhook node asks for {hook.login}" if hook.login else "If its Webhook node asks for a login"
    other = "" if hook.login else " Its options Ignore Bots and IP(s) Whitelist refuse calls, too."
    return f"{asks}: write that header into the source's headers. The API key is not sent to webhooks.{other}"


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


def remove_stack_frames(text: str) -> str:
    """Remove the lines, and parts of lines, that are frames of a stack trace."""
    lines = _HTML_BREAK.sub("\n", text[:_MAX_CLEANED_CHARS]).splitlines()
    if len(lines) > 1:
        text = "\n".join(line for line in lines if not _FRAME_LINE.match(line))
    return _FRAME.sub("", text[:_MAX_CLEANED_CHARS])


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


_MAX_RESPONSE_BYTES = 64 * 1024 * 1024


class HookTool(SourceTool):
    """A tool that calls one webhook."""

    __slots__ = ("hook", "name")

    def __init__(self, definition: HookDefinition, source: WebhookSource) -> None:
        super().__init__(definition.spec, source)
        self.name = definition.name
        self.hook = definition.hook


class WebhookSource(BaseSource):
    """Tool source for declared webhooks, or for the webhooks of the active workflows of an n8n.

    Credentials and headers are sent only to the origins of `connection` and `base_url`; n8n's API key is sent
    only to n8n's API.
    """

    def __init__(self, config: ExternalToolConfig, services: Services) -> None:
        super().__init__(config, services)
        urls = [config.connection, *filter(None, [config.base_url])]
        urls += [tool.url for tool in config.webhook.tools.values() if is_absolute_url(tool.url)]
        self._client = HttpClient(
            services.network.for_source(*urls),
            timeout_s=config.timeout_s,
            max_bytes=_MAX_RESPONSE_BYTES,
            max_redirects=0,
        )
        self._own_origins = frozenset(origin_of(url) for url in filter(None, (config.connection, config.base_url)))
        self._send = make_sender(self._client, limits=JsonLimits.of(config))
        self._problems: list[str] = []

    async def discover(self) -> Sequence[HookTool]:
        """Return tools for the declared webhooks; list the workflows of an n8n."""
        self._problems = []
        definitions = await self._n8n_hooks() if await self._is_n8n() else self._declared_hooks()
        included = [one for one in definitions if self.config.includes(one.name)]
        tools = [HookTool(one, self) for one in included if self._can_be_signed(one)]
        self.problems = [f"source {self.name!r}: {problem}" for problem in self._problems]
        return tools

    def _can_be_signed(self, one: HookDefinition) -> bool:
        if self.config.webhook.signature is None or one.hook.method not in BODILESS_METHODS:
            return True
        why = f"a {one.hook.method} has no body, so that one signature would fit every call"
        self._problems.append(f"tool {one.name!r} is left out: {why}; use POST, or a source without a signature")
        return False

    async def _is_n8n(self) -> bool:
        """Return whether the connection is an n8n: by `webhook.kind`, else by probing a URL without a path."""
        options = self.config.webhook
        if options.kind != "auto":
            return options.kind == "n8n"
        if urlsplit(self.config.connection).path.strip("/"):
            return False
        try:
            return await self._api(()).is_n8n()
        except (errors.ToolConnectionError, errors.ToolTimeoutError) as error:
            hint = "With webhook.kind: plain nobody looks what is there before a call"
            error.message = f"{error.message.rstrip('.')}. {hint}"
            error.args = (error.message,)
            raise

    def _declared_hooks(self) -> list[HookDefinition]:
        tools = self.config.webhook.tools or CONNECTION_TOOL
        return [*declared_hooks(self.name, self.config.connection, tools)]

    async def _n8n_hooks(self) -> list[HookDefinition]:
        """Return the declared webhooks with a URL, and those of the active workflows."""
        config = self.config
        base = config.base_url or config.connection
        with_url = {name: tool for name, tool in config.webhook.tools.items() if tool.url}
        declared = [*declared_hooks(self.name, base, with_url, is_n8n=True)]
        headers = self._api_headers()
        if not any(_is_api_key(name) for name, _ in headers):
            return self._without_api(declared)
        without_url = {name: tool for name, tool in config.webhook.tools.items() if not tool.url}
        workflows = await self._api(headers).active_workflows()
        builder = N8nToolBuilder(source=self.name, base=base, tools=without_url)
        workflow_hooks, problems = builder.build(workflows)
        self._problems += [*problems, *_shadowing_problems(workflow_hooks, with_url)]
        return [*declared, *(one for one in workflow_hooks if one.name not in with_url)]

    def _without_api(self, declared: list[HookDefinition]) -> list[HookDefinition]:
        if not declared:
            msg = f"source {self.name!r} is an n8n, and no API key is given to find its workflows with"
            raise errors.ToolAuthError(f"{msg}. {API_KEY_HINT}")
        self._problems.append("without an API key only webhooks with a url are tools")
        return declared

    def _api(self, headers: Sequence[Pair]) -> N8nApi:
        return N8nApi(self._client, self.config.connection, headers, timeout_s=self.config.connect_timeout_s)

    def _api_headers(self) -> list[Pair]:
        """Return the headers for n8n's API; a key without a configured header is sent as X-N8N-API-KEY."""
        credentials = self.credential.headers
        if _holds_api_key(self.config):
            credentials = {API_KEY_HEADER: str(self.config.auth_config["api_key"])}
        return [*self.config.headers.items(), *credentials.items()]

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        """Call the webhook of one call with its credential and its idempotency key."""
        tool = cast("HookTool", call.tool)
        hook, signature = tool.hook, self.config.webhook.signature
        request = build_request(hook, call.arguments, key=call.replay_key, signature=signature)
        presentation = NOTHING
        if origin_of(hook.address) in self._own_origins:
            request = request.with_headers(_without_api_key(self.config.headers))
            presentation = _presentation(self.config, hook, call.credential)
        send = self._send
        timeout_s = call.attempt_s or hook.timeout_s
        if timeout_s is not None:
            send = make_sender(self._client, timeout_s=timeout_s, limits=JsonLimits.of(self.config))
        response = await send(request.presenting(presentation))
        secrets = (*presentation.secrets, *self._secrets())
        return output_of(
            tool.name, hook, response, declares_output=tool.spec.output_schema is not None, secrets=secrets
        )

    def _secrets(self) -> Iterable[str]:
        yield from (value for name, value in self.config.headers.items() if is_secret_header(name, value))
        if self.config.webhook.signature is not None:
            yield self.config.webhook.signature.secret

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        await self._client.close()


def _presentation(config: ExternalToolConfig, hook: Hook, credential: Credential) -> Presentation:
    if hook.is_n8n and _holds_api_key(config):
        return NOTHING
    return Presentation(headers=_without_api_key(credential.headers))


def _holds_api_key(config: ExternalToolConfig) -> bool:
    """Return whether the credential is n8n's API key; any other credential is sent to webhooks, too."""
    return config.auth_type is AuthType.API_KEY and _is_api_key(str(config.auth_config.get("header", API_KEY_HEADER)))


def _without_api_key(headers: Mapping[str, str]) -> tuple[Pair, ...]:
    """Return the headers without n8n's API key, which no webhook is sent."""
    return tuple(pair for pair in headers.items() if not _is_api_key(pair[0]))


def _shadowing_problems(workflow_hooks: Sequence[HookDefinition], with_url: Iterable[str]) -> Iterator[str]:
    for one in workflow_hooks:
        if one.name in with_url:
            yield f"workflow {one.hook.workflow!r} gives way to webhook.tools.{one.name}, which has a url of its own"


def _is_api_key(name: str) -> bool:
    return name.lower() == API_KEY_HEADER.lower()
