"""Tool source for webhooks declared in the configuration, and for those of an n8n."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast
from urllib.parse import urlsplit

from toolpost.contracts import errors
from toolpost.contracts.calls import AuthorizedCall, ToolOutput
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.questions import Question
from toolpost.contracts.source_kinds import AuthType
from toolpost.http.encoding import Pair
from toolpost.schema.json_size import JsonLimits
from toolpost.schema.secrets import is_secret_header
from toolpost.sources.base import BaseSource, Services, SourceTool
from toolpost.sources.requests import NOTHING, Presentation, make_sender
from toolpost.sources.webhook.hooks import (
    BODILESS_METHODS,
    CONNECTION_TOOL,
    HookDefinition,
    build_request,
    declared_hooks,
    is_absolute_url,
    origin_of,
)
from toolpost.sources.webhook.n8n_api import API_KEY_HEADER, API_KEY_HINT, N8nApi
from toolpost.sources.webhook.n8n_tools import N8nToolBuilder
from toolpost.sources.webhook.options import WebhookOptions
from toolpost.sources.webhook.responses import output_of
from toolpost.wire.client import HttpClient

_MAX_RESPONSE_BYTES = 64 * 1024 * 1024


class WebhookSource(BaseSource):
    """Tool source for declared webhooks, or for the webhooks of the active workflows of an n8n.

    Credentials and headers are sent only to the origins of `connection` and `base_url`; n8n's API key is sent
    only to n8n's API.
    """

    def __init__(self, config: ExternalToolConfig, services: Services) -> None:
        super().__init__(config, services)
        self._options = config.read_options(WebhookOptions)
        urls = [config.connection, *filter(None, [config.base_url])]
        urls += [tool.url for tool in self._options.tools.values() if is_absolute_url(tool.url)]
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
        if await self._is_n8n():
            definitions = await self._n8n_hooks()
        else:
            definitions = [*declared_hooks(self.name, self.config.connection, self._options.tools or CONNECTION_TOOL)]
        included = [one for one in definitions if self.config.includes(one.name)]
        tools = [HookTool(one, self) for one in included if self._can_be_signed(one)]
        self.problems = [f"source {self.name!r}: {problem}" for problem in self._problems]
        return tools

    def _can_be_signed(self, one: HookDefinition) -> bool:
        if self._options.signature is None or one.hook.method not in BODILESS_METHODS:
            return True
        why = f"a {one.hook.method} has no body, so one signature would be valid for every call"
        self._problems.append(f"tool {one.name!r} is skipped: {why}; use POST, or a source without a signature")
        return False

    async def _is_n8n(self) -> bool:
        """Return whether the connection is an n8n: by `options.kind`, else by probing a URL without a path."""
        options = self._options
        if options.kind != "auto":
            return options.kind == "n8n"
        if urlsplit(self.config.connection).path.strip("/"):
            return False
        try:
            return await self._api(()).is_n8n()
        except (errors.ToolConnectionError, errors.ToolTimeoutError) as error:
            hint = "With options.kind: plain, the server is not probed before a call"
            error.message = f"{error.message.rstrip('.')}. {hint}"
            error.args = (error.message,)
            raise

    async def _n8n_hooks(self) -> list[HookDefinition]:
        """Return the declared webhooks with a URL, and those of the active workflows."""
        config = self.config
        base = config.base_url or config.connection
        with_url = {name: tool for name, tool in self._options.tools.items() if tool.url}
        declared = [*declared_hooks(self.name, base, with_url, is_n8n=True)]
        credentials = self.credential.headers
        if _holds_api_key(config):  # which may be configured without a header
            credentials = {API_KEY_HEADER: str(config.auth_config["api_key"])}
        headers = [*config.headers.items(), *credentials.items()]
        if not any(_is_api_key(name) for name, _ in headers):
            if not declared:
                msg = f"source {self.name!r} is an n8n, and no API key is given to find its workflows with"
                raise errors.ToolAuthError(f"{msg}. {API_KEY_HINT}")
            self._problems.append("without an API key only webhooks with a url are tools")
            return declared
        without_url = {name: tool for name, tool in self._options.tools.items() if not tool.url}
        workflows = await self._api(headers).active_workflows()
        builder = N8nToolBuilder(source=self.name, base=base, tools=without_url)
        workflow_hooks, problems = builder.build(workflows)
        self._problems += [*problems, *_shadowing_problems(workflow_hooks, with_url)]
        return [*declared, *(one for one in workflow_hooks if one.name not in with_url)]

    def _api(self, headers: Sequence[Pair]) -> N8nApi:
        return N8nApi(self._client, self.config.connection, headers, timeout_s=self.config.connect_timeout_s)

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        """Call the webhook of one call with its credential and its idempotency key."""
        tool = cast("HookTool", call.tool)
        hook, signature = tool.hook, self._options.signature
        request = build_request(hook, call.arguments, key=call.replay_key, signature=signature)
        presentation = NOTHING
        if origin_of(hook.address) in self._own_origins:
            request = request.with_headers(_without_api_key(self.config.headers))
            if not (hook.is_n8n and _holds_api_key(self.config)):
                presentation = Presentation(headers=_without_api_key(call.credential.headers))
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
        if self._options.signature is not None:
            yield self._options.signature.secret

    async def close(self) -> None:
        await self._client.close()


def _holds_api_key(config: ExternalToolConfig) -> bool:
    """Return whether the credential is n8n's API key; any other credential is sent to webhooks, too."""
    return config.auth_type is AuthType.API_KEY and _is_api_key(str(config.auth_config.get("header", API_KEY_HEADER)))


def _without_api_key(headers: Mapping[str, str]) -> tuple[Pair, ...]:
    """Return the headers without n8n's API key, which no webhook is sent."""
    return tuple(pair for pair in headers.items() if not _is_api_key(pair[0]))


def _shadowing_problems(workflow_hooks: Sequence[HookDefinition], with_url: Iterable[str]) -> Iterator[str]:
    for one in workflow_hooks:
        if one.name in with_url:
            yield f"workflow {one.hook.workflow!r} is replaced by options.tools.{one.name}, which has its own url"


def _is_api_key(name: str) -> bool:
    return name.lower() == API_KEY_HEADER.lower()


class HookTool(SourceTool):
    """A tool that calls one webhook."""

    __slots__ = ("hook", "name")

    def __init__(self, definition: HookDefinition, source: WebhookSource) -> None:
        super().__init__(definition.spec, source)
        self.name = definition.name
        self.hook = definition.hook
