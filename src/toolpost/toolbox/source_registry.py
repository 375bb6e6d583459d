"""Create sources by transport; the modules of a transport are imported when a source is created."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.config import TransportType
from toolpost.contracts.errors import ConfigError
from toolpost.sources.python import PythonSource
from toolpost.wire.network import NetworkPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.contracts.calls import Credential
    from toolpost.contracts.commands import DescribedCommands
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.sources import ChatModel, ToolSource
    from toolpost.contracts.storage import ArtifactStore
    from toolpost.stores.sealing import CacheFolder
    from toolpost.toolbox.plugins import SourceFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceServices:
    """Services injected into a source: network policy, caches, artifact store, chat model.

    `servers` are MCP server objects of this process, by the name of their source; `network` is the policy beyond
    public addresses.
    """

    roots: Sequence[str] | None = None
    chat_model: ChatModel | None = None
    servers: Mapping[str, Any] | None = None
    network: NetworkPolicy = field(default_factory=NetworkPolicy)
    documents: CacheFolder | None = None
    listings: CacheFolder | None = None
    artifacts: ArtifactStore | None = None


def make_source(
    config: ExternalToolConfig, credential: Credential, services: SourceServices, plugins: Mapping[str, SourceFactory]
) -> ToolSource:
    """Create a source without connecting it; ConfigError when no transport of that name is known."""
    if (factory := plugins.get(config.transport.value)) is not None:
        return factory(config)
    maker = _MAKERS.get(config.transport)
    if maker is None:
        known = ", ".join(sorted({*(kind.value for kind in _MAKERS), *plugins}))
        raise ConfigError(f"no source here speaks transport {config.transport.value!r}; there are: {known}")
    return maker(config, _MakerContext(credential, services, plugins))


class _MakerContext(NamedTuple):
    """The credential and services of one source, and the plug-ins for sources within it."""

    credential: Credential
    services: SourceServices
    plugins: Mapping[str, SourceFactory]


def _python(config: ExternalToolConfig, _: _MakerContext) -> ToolSource:
    return PythonSource(config)


def _mcp(config: ExternalToolConfig, context: _MakerContext) -> ToolSource:
    try:
        from toolpost.sources.mcp.source import McpSource  # noqa: PLC0415 - an extra, and a second to import
    except ModuleNotFoundError as error:
        msg = f"source {config.name!r} needs the MCP extra ({error.name} is missing): pip install 'toolpost[mcp]'"
        raise ConfigError(msg) from error
    return McpSource(
        config,
        credential=context.credential,
        server=(context.services.servers or {}).get(config.name),
        roots=context.services.roots,
        chat_model=context.services.chat_model,
        network=context.services.network,
        listings=context.services.listings,
    )


def _openapi(config: ExternalToolConfig, context: _MakerContext) -> ToolSource:
    from toolpost.sources.openapi.source import OpenApiSource  # noqa: PLC0415 - forty modules that few need

    return OpenApiSource(
        config,
        credential=context.credential,
        network=context.services.network,
        cache=context.services.documents,
        artifacts=context.services.artifacts,
    )


def _utcp(config: ExternalToolConfig, context: _MakerContext) -> ToolSource:
    from toolpost.sources.utcp.source import UtcpSource  # noqa: PLC0415 - few need it

    def make(inner: ExternalToolConfig) -> ToolSource:
        """Create a source for another transport of the manual, with the credential of the manual."""
        return make_source(inner, context.credential, context.services, context.plugins)

    return UtcpSource(config, credential=context.credential, network=context.services.network, make=make)


def _cli(config: ExternalToolConfig, context: _MakerContext) -> ToolSource:
    from toolpost.sources.cli.source import CliSource  # noqa: PLC0415 - few need it

    describe = None if config.cli.manual is None else partial(_read_manual, config, context.services.network)
    return CliSource(config, credential=context.credential, describe=describe)


async def _read_manual(config: ExternalToolConfig, network: NetworkPolicy) -> DescribedCommands:
    """Read the commands of a UTCP manual for the CLI source; sources do not import each other."""
    from toolpost.sources.utcp.cli_export import export_cli_commands  # noqa: PLC0415 - few need it

    return await export_cli_commands(config, network=network)


def _websocket(config: ExternalToolConfig, context: _MakerContext) -> ToolSource:
    from toolpost.sources.websocket.source import WebSocketSource  # noqa: PLC0415 - few need it

    return WebSocketSource(config, credential=context.credential, network=context.services.network)


def _graphql(config: ExternalToolConfig, context: _MakerContext) -> ToolSource:
    from toolpost.sources.graphql.source import GraphqlSource  # noqa: PLC0415 - an extra

    return GraphqlSource(
        config, credential=context.credential, network=context.services.network, artifacts=context.services.artifacts
    )


def _webhook(config: ExternalToolConfig, context: _MakerContext) -> ToolSource:
    from toolpost.sources.webhook.source import WebhookSource  # noqa: PLC0415 - few need it

    return WebhookSource(config, credential=context.credential, network=context.services.network)


_MAKERS = {
    TransportType.PYTHON: _python,
    TransportType.MCP: _mcp,
    TransportType.HTTP: _openapi,
    TransportType.UTCP: _utcp,
    TransportType.CLI: _cli,
    TransportType.WEBSOCKET: _websocket,
    TransportType.GRAPHQL: _graphql,
    TransportType.WEBHOOK: _webhook,
}
