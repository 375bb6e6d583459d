"""Webhooks as a source of tools: each call is one request, over one guarded client."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from toolpost.contracts.calls import NO_CREDENTIAL
from toolpost.contracts.config import AuthType
from toolpost.contracts.errors import ToolAuthError, ToolConnectionError, ToolTimeoutError
from toolpost.contracts.outcomes import ToolResult, now_ms
from toolpost.schema.secrets import is_secret_header
from toolpost.sources.webhook.answers import output_of
from toolpost.sources.webhook.hook import is_whole, origin_of
from toolpost.sources.webhook.n8n_api import API_KEY_HEADER, HOW_TO_GET_A_KEY, N8nApi
from toolpost.sources.webhook.n8n_tools import Workshop
from toolpost.sources.webhook.plain import declared_hooks, only_hook
from toolpost.sources.webhook.requests import BODILESS, request_of
from toolpost.web.presentation import NOTHING, Presentation
from toolpost.web.sending import sender
from toolpost.wire.client import HttpClient
from toolpost.wire.network import NetworkPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from toolpost.contracts.calls import AuthorizedCall, Credential, ToolOutput
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.questions import Question
    from toolpost.contracts.spec import ToolSpec
    from toolpost.sources.webhook.hook import Found, Hook
    from toolpost.web.encoding import Pair

_ANSWER_BYTES = 64 * 1024 * 1024


class HookTool:
    """One webhook as a tool."""

    __slots__ = ("_source", "hook", "name", "spec")

    def __init__(self, found: Found, source: WebhookSource) -> None:
        self.name = found.name
        self.spec: ToolSpec = found.spec
        self.hook: Hook = found.hook
        self._source = source

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Call it with the source's own credential; what fails is raised."""
        started = now_ms()
        output = await self._source.run(self, params)
        return ToolResult.completed(output.content, output.text, started_at=started)


class WebhookSource:
    """The webhooks that an operator wrote down, or those of the active workflows of an n8n.

    What a source presents goes to the server of its connection; n8n's API key goes to n8n's API alone.
    """

    def __init__(
        self,
        config: ExternalToolConfig,
        *,
        credential: Credential = NO_CREDENTIAL,
        network: NetworkPolicy | None = None,
    ) -> None:
        self.config = config
        self._credential = credential
        written = [config.connection, *filter(None, [config.base_url])]
        written += [tool.url for tool in config.webhook.tools.values() if is_whole(tool.url)]
        self._client = HttpClient(
            (network or NetworkPolicy()).for_source(*written),
            timeout_s=config.timeout_s,
            max_bytes=_ANSWER_BYTES,
            max_redirects=0,
        )
        self._own = frozenset(origin_of(url) for url in filter(None, (config.connection, config.base_url)))
        self._send = sender(self._client)
        self._problems: list[str] = []

    @property
    def name(self) -> str:
        """The namespace of its tools."""
        return self.config.name

    async def discover(self) -> Sequence[HookTool]:
        """The webhooks that are written down; an n8n is asked for its own."""
        self._problems = []
        found = await self._n8n_hooks() if await self._is_n8n() else self._plain_hooks()
        included = [one for one in found if self.config.includes(one.name)]
        return [HookTool(one, self) for one in included if self._can_be_signed(one)]

    @property
    def problems(self) -> Sequence[str]:
        """What was left out and why."""
        return [f"source {self.name!r}: {problem}" for problem in self._problems]

    def _can_be_signed(self, one: Found) -> bool:
        if self.config.webhook.signature is None or one.hook.method not in BODILESS:
            return True
        why = f"a {one.hook.method} has no body, so that one signature would fit every call"
        self._problems.append(f"tool {one.name!r} is left out: {why}; use POST, or a source without a signature")
        return False

    async def _is_n8n(self) -> bool:
        """Whether the connection is an n8n: as the operator says, else only an address without a path is looked at."""
        options = self.config.webhook
        if options.kind != "auto":
            return options.kind == "n8n"
        if urlsplit(self.config.connection).path.strip("/"):
            return False
        try:
            return await self._api(()).is_n8n()
        except (ToolConnectionError, ToolTimeoutError) as error:
            advice = "With webhook.kind: plain nobody looks what is there before a call"
            error.message = f"{error.message.rstrip('.')}. {advice}"
            error.args = (error.message,)
            raise

    def _plain_hooks(self) -> list[Found]:
        tools, connection = self.config.webhook.tools, self.config.connection
        return [*(declared_hooks(self.name, connection, tools) if tools else only_hook(self.name, connection))]

    async def _n8n_hooks(self) -> list[Found]:
        """The webhooks of active workflows; beside them, those that are written down with a URL."""
        config = self.config
        base = config.base_url or config.connection
        written = {name: tool for name, tool in config.webhook.tools.items() if tool.url}
        plain = [*declared_hooks(self.name, base, written, is_n8n=True)]
        headers = self._api_headers()
        if not any(_is_api_key(name) for name, _ in headers):
            return self._without_api(plain)
        told = {name: tool for name, tool in config.webhook.tools.items() if not tool.url}
        workflows = await self._api(headers).active_workflows()
        made, problems = Workshop(source=self.name, base=base, tools=told).made(workflows)
        self._problems += [*problems, *_shadowed(made, written)]
        return [*plain, *(one for one in made if one.name not in written)]

    def _without_api(self, plain: list[Found]) -> list[Found]:
        if not plain:
            msg = f"source {self.name!r} is an n8n, and no API key is given to find its workflows with"
            raise ToolAuthError(f"{msg}. {HOW_TO_GET_A_KEY}")
        self._problems.append("without an API key only webhooks with a url are tools")
        return plain

    def _api(self, headers: Sequence[Pair]) -> N8nApi:
        return N8nApi(self._client, self.config.connection, headers, timeout_s=self.config.connect_timeout_s)

    def _api_headers(self) -> list[Pair]:
        """What n8n's API is sent; a key that is given without a header goes by the name that n8n wants."""
        presented = self._credential.headers
        if _holds_api_key(self.config):
            presented = {API_KEY_HEADER: str(self.config.auth_config["api_key"])}
        return [*self.config.headers.items(), *presented.items()]

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        """Run one call."""
        tool = cast("HookTool", call.tool)
        return await self.run(tool, call.arguments, credential=call.credential, key=call.replay_key)

    async def run(
        self,
        tool: HookTool,
        arguments: dict[str, Any],
        *,
        credential: Credential | None = None,
        key: str = "",
    ) -> ToolOutput:
        """Call a webhook; `key` tells a repetition from a new call."""
        hook, signature = tool.hook, self.config.webhook.signature
        planned = request_of(hook, arguments, key=key or uuid.uuid4().hex, signature=signature)
        presented = NOTHING
        if origin_of(hook.address) in self._own:
            planned = planned.with_headers(_without_api_key(self.config.headers))
            presented = _presented(self.config, hook, self._credential if credential is None else credential)
        send = self._send if hook.timeout_s is None else sender(self._client, timeout_s=hook.timeout_s)
        reply = await send(planned.presenting(presented))
        secrets = (*presented.secrets, *self._secrets())
        return output_of(tool.name, hook, reply, promised=tool.spec.output_schema is not None, secrets=secrets)

    def _secrets(self) -> Iterable[str]:
        yield from (value for name, value in self.config.headers.items() if is_secret_header(name, value))
        if self.config.webhook.signature is not None:
            yield self.config.webhook.signature.secret

    async def close(self) -> None:
        """Close every connection; safe to call twice."""
        await self._client.close()


def _presented(config: ExternalToolConfig, hook: Hook, credential: Credential) -> Presentation:
    if hook.is_n8n and _holds_api_key(config):
        return NOTHING
    return Presentation(headers=_without_api_key(credential.headers))


def _holds_api_key(config: ExternalToolConfig) -> bool:
    """Whether the credential of an n8n is the key of its API; any other login is for its webhooks, too."""
    return config.auth_type is AuthType.API_KEY and _is_api_key(str(config.auth_config.get("header", API_KEY_HEADER)))


def _without_api_key(headers: Mapping[str, str]) -> tuple[Pair, ...]:
    """What a webhook may be sent, whatever it is taken for: never the key of n8n's API."""
    return tuple(pair for pair in headers.items() if not _is_api_key(pair[0]))


def _shadowed(made: Sequence[Found], written: Iterable[str]) -> Iterator[str]:
    for one in made:
        if one.name in written:
            yield f"workflow {one.hook.workflow!r} gives way to webhook.tools.{one.name}, which has a url of its own"


def _is_api_key(name: str) -> bool:
    return name.lower() == API_KEY_HEADER.lower()
