"""Clients, trusted origins and prepared tools that the calls of one manual share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from toolpost.contracts.calls import Credential
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolAuthError, ToolPermissionError, ToolValidationError
from toolpost.contracts.records import represent
from toolpost.contracts.spec import JsonSchema
from toolpost.http.content import parse_json
from toolpost.http.encoding import Pair, UnsendableError, format_value
from toolpost.policy.progress import ProgressReporter
from toolpost.policy.redaction import Redactor
from toolpost.processes.commands import CommandRunner
from toolpost.schema.json_size import JsonLimits
from toolpost.schema.json_values import is_object
from toolpost.sources.requests import PlannedRequest, Send, make_sender
from toolpost.sources.utcp.template_credentials import TemplateTokens
from toolpost.sources.utcp.templates import CallTemplate, OAuth2Auth, SocketTemplate, WebTemplate
from toolpost.wire.client import HttpClient, default_transport
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.targets import HTTP_SCHEMES, WEBSOCKET_SCHEMES, parse_target, split_url

if TYPE_CHECKING:
    from toolpost.wire.http1 import Http1Transport


RequestFactory: TypeAlias = "Callable[[Mapping[str, Any]], PlannedRequest]"
MAX_BYTES = 64 * 1024 * 1024
# A stream may never end. Reading stops before the call's own deadline, so that what came until then is returned.
STREAM_TIME_SHARE = 0.9
_MAX_PROGRESS_CHARS = 200
_SCHEMES = ("http://", "https://", "ws://", "wss://")


class ManualContext(Struct, frozen=True, kw_only=True):
    """Clients and settings that all tools of one manual share.

    `headers` come from the operator and are secret. `trusted_origins` may receive them and every credential; None
    trusts every origin, because the manual is the operator's own. `closing` are WebSockets in their closing handshake.
    """

    source: str
    client: HttpClient
    send: Send
    limits: JsonLimits | None
    tokens: TemplateTokens
    commands: CommandRunner
    headers: tuple[Pair, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    folder: Path | None = None
    trusted_origins: frozenset[str] | None = None
    closing: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def __repr__(self) -> str:
        return represent(self, without=("headers", "env", "closing"))

    def sender(self, timeout_s: float) -> Send:
        if timeout_s == self.client.timeout_s:
            return self.send
        return make_sender(self.client, timeout_s=timeout_s, limits=self.limits)

    @property
    def header_secrets(self) -> tuple[str, ...]:
        return tuple(value for _, value in self.headers) if self.headers else ()


class CompiledTool(NamedTuple):
    """A tool whose template is filled in and checked.

    `label` names the tool in errors, `secrets` are redacted from its errors.
    """

    full_name: str
    template: CallTemplate
    label: str
    timeout_s: float
    secrets: tuple[str, ...] = ()
    outputs: JsonSchema | None = None
    build_request: RequestFactory | None = None

    def __repr__(self) -> str:
        return f"CompiledTool({self.full_name!r})"

    def parse_text(self, text: str) -> Any:
        """Parse a string as JSON if the manual declares any output type except a string."""
        declared = (self.outputs or {}).get("type", "string")
        is_text = declared == "string" or (isinstance(declared, list) and "string" in declared)
        return text if is_text else json_or_text(text)


class Invocation(Struct, frozen=True):
    """Arguments, credential and context of one call."""

    arguments: Mapping[str, Any]
    credential: Credential
    context: Callable[[], ToolContext]

    def __repr__(self) -> str:
        return f"Invocation({list(self.arguments)})"

    def progress(self, redact: Callable[[str], str] | None = None) -> Callable[[str], None]:
        """Return a function that reports progress, shortened and rate limited."""
        return ProgressReporter(self.context, redact=redact, max_chars=_MAX_PROGRESS_CHARS).report


def json_or_text(text: str) -> Any:
    """Parse a string as JSON; return it unchanged if it is not JSON."""
    try:
        return parse_json(text.encode())
    except ValueError:
        return text


def argument_text(name: str, value: Any) -> str:
    """Convert an argument to a string; a ToolValidationError names an argument that has no string form."""
    try:
        return format_value(value)
    except UnsendableError as error:
        raise ToolValidationError(f"{name}: {error}") from error


def template_urls(template: CallTemplate) -> list[str]:
    """Return the URLs that a call connects to, the token endpoint included."""
    match template:
        case WebTemplate():
            return [template.url, *([template.auth.token_url] if isinstance(template.auth, OAuth2Auth) else [])]
        case SocketTemplate(host=host, port=port):
            return [f"http://[{host}]:{port}" if ":" in host and not host.startswith("[") else f"http://{host}:{port}"]
        case _:
            return []


def origin_of(url: str) -> str:
    """Return the origin of a URL, with ws as http and wss as https; empty if the URL has none."""
    try:
        target = parse_target(split_url(url)[0], schemes=HTTP_SCHEMES | WEBSOCKET_SCHEMES)
    except ToolPermissionError:
        return ""
    scheme = "https" if target.scheme in ("https", "wss") else "http"
    return f"{scheme}://{replace(target, scheme=scheme).host_header}"


def check_credential_origin(tool: CompiledTool, context: ManualContext, credential: Credential) -> None:
    """Refuse to send credentials to an origin that only a remote manual names, not the operator."""
    if context.trusted_origins is None or not (tool.secrets or credential.headers or context.headers):
        return
    for origin in map(origin_of, template_urls(tool.template)):
        if origin not in context.trusted_origins:
            shown = Redactor(tool.secrets).text(origin)
            msg = f"the manual of {context.source!r} calls tool {tool.full_name!r} at {shown}"
            raise ToolAuthError(
                f"{msg}, with your headers, variables or credential; if this is intended, set base_url: {shown} "
                "into the source"
            )


class RemoteContexts(NamedTuple):
    """Contexts of a remote manual: one for calls to trusted origins only, a restricted one for all others."""

    trusted: ManualContext
    restricted: ManualContext
    trusted_origins: frozenset[str]

    def select(self, template: CallTemplate) -> ManualContext:
        """Return the context that calls of this template use."""
        origins = {*map(origin_of, template_urls(template))}
        return self.trusted if origins <= self.trusted_origins else self.restricted


class ContextFactory:
    """Factory of the contexts of a source's manuals, which share one transport and are closed together."""

    def __init__(self, config: ExternalToolConfig, network: NetworkPolicy) -> None:
        self._config = config
        self._network = network
        self._transport: Http1Transport | None = None
        self._contexts: list[ManualContext] = []
        self._commands = CommandRunner()

    def for_operator(self, urls: Iterable[str], folder: Path | None = None) -> ManualContext:
        """Create a context that may reach the hosts of these URLs, which are from the operator."""
        return self._create(HttpClient(self._policy_for(urls), transport=self._shared_transport()), folder=folder)

    def for_remote(self, url: str, operator_url: str, variables: Iterable[Mapping[str, Any]]) -> RemoteContexts:
        """Create the contexts of a manual that came from `url`: public hosts, its own host, the operator's hosts.

        Credentials go only to the origin of `operator_url`, where the operator said the manual is, and to origins
        of other URLs that the operator wrote.
        """
        others = [url_value for values in (self._config.auth_config, *variables) for url_value in _urls_in(values)]
        operator_urls = [operator_url, *([self._config.base_url] if self._config.base_url else []), *others]
        origins = frozenset(origin for each in operator_urls if (origin := origin_of(each)))
        policy = self._policy_for(operator_urls)
        trusted = HttpClient(policy, transport=self._shared_transport())
        restricted = HttpClient(policy.for_document(url), transport=self._shared_transport())
        return RemoteContexts(self._create(trusted, origins), self._create(restricted, origins), origins)

    async def close(self) -> None:
        contexts, self._contexts = self._contexts, []
        for context in contexts:
            await asyncio.gather(*context.closing, return_exceptions=True)
            await context.tokens.close()
            await context.client.close()
        await self._commands.close()
        if self._transport is not None:
            await self._transport.close()
            self._transport = None

    def _policy_for(self, urls: Iterable[str]) -> NetworkPolicy:
        # Only origins: the policy cannot parse the placeholders of a path.
        return self._network.for_source(*{split_url(url)[0] for url in urls})

    def _shared_transport(self) -> Http1Transport:
        if self._transport is None:
            self._transport = default_transport(self._network.proxy)
        return self._transport

    def _create(
        self, client: HttpClient, trusted_origins: frozenset[str] | None = None, folder: Path | None = None
    ) -> ManualContext:
        config = self._config
        client.timeout_s, client.max_bytes = config.timeout_s, MAX_BYTES
        limits = JsonLimits.of(config)
        context = ManualContext(
            source=config.name,
            client=client,
            send=make_sender(client, limits=limits),
            limits=limits,
            tokens=TemplateTokens(client),
            commands=self._commands,
            headers=tuple(config.headers.items()),
            env=config.env,
            folder=folder,
            trusted_origins=trusted_origins,
        )
        self._contexts.append(context)
        return context


def _urls_in(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the URLs among values that the operator wrote."""
    for value in values.values():
        if isinstance(value, str) and value.startswith(_SCHEMES) and origin_of(value):
            yield value
        elif is_object(value):
            yield from _urls_in(value)
