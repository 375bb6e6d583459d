"""Makes sources by their transport; what a transport needs is imported when one is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.config import TransportType
from toolpost.contracts.errors import ConfigError
from toolpost.sources.python import PythonSource
from toolpost.wire.network import NetworkPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolpost.contracts.calls import Credential
    from toolpost.contracts.commands import DescribedCommands
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.sources import ChatModel, ToolSource
    from toolpost.contracts.storage import ArtifactStore
    from toolpost.stores.sealing import CacheFolder

    Factory = Callable[[ExternalToolConfig], ToolSource]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """What sources may use of the Toolbox that they belong to.

    `servers` are MCP server objects of this process, by the name of their source;
    `network` is what the configuration lets through besides public addresses.
    """

    roots: Sequence[str] | None = None
    chat_model: ChatModel | None = None
    servers: Mapping[str, Any] | None = None
    network: NetworkPolicy = field(default_factory=NetworkPolicy)
    documents: CacheFolder | None = None
    listings: CacheFolder | None = None
    artifacts: ArtifactStore | None = None


def make_source(
    config: ExternalToolConfig, credential: Credential, lent: Lent, plugged: Mapping[str, Factory]
) -> ToolSource:
    """A source that is not connected yet; ConfigError when nothing here speaks its transport."""
    if (factory := plugged.get(config.transport.value)) is not None:
        return factory(config)
    maker = _MAKERS.get(config.transport)
    if maker is None:
        known = ", ".join(sorted({*(kind.value for kind in _MAKERS), *plugged}))
        raise ConfigError(f"no source here speaks transport {config.transport.value!r}; there are: {known}")
    return maker(config, Loan(credential, lent, plugged))


class Loan(NamedTuple):
    """What is lent to one source, and what it may make other sources of."""

    credential: Credential
    lent: Lent
    plugged: Mapping[str, Factory]


def _python(config: ExternalToolConfig, _: Loan) -> ToolSource:
    return PythonSource(config)


def _mcp(config: ExternalToolConfig, loan: Loan) -> ToolSource:
    try:
        from toolpost.sources.mcp.source import McpSource  # noqa: PLC0415 - an extra, and a second to import
    except ModuleNotFoundError as error:
        msg = f"source {config.name!r} needs the MCP extra ({error.name} is missing): pip install 'toolpost[mcp]'"
        raise ConfigError(msg) from error
    return McpSource(
        config,
        credential=loan.credential,
        server=(loan.lent.servers or {}).get(config.name),
        roots=loan.lent.roots,
        chat_model=loan.lent.chat_model,
        network=loan.lent.network,
        listings=loan.lent.listings,
    )


def _openapi(config: ExternalToolConfig, loan: Loan) -> ToolSource:
    from toolpost.sources.openapi.source import OpenApiSource  # noqa: PLC0415 - forty modules that few need

    return OpenApiSource(
        config,
        credential=loan.credential,
        network=loan.lent.network,
        cache=loan.lent.documents,
        artifacts=loan.lent.artifacts,
    )


def _utcp(config: ExternalToolConfig, loan: Loan) -> ToolSource:
    from toolpost.sources.utcp.source import UtcpSource  # noqa: PLC0415 - few need it

    def make(inner: ExternalToolConfig) -> ToolSource:
        """A source for a part of the manual that speaks another transport; the manual's own credential goes along."""
        return make_source(inner, loan.credential, loan.lent, loan.plugged)

    return UtcpSource(config, credential=loan.credential, network=loan.lent.network, make=make)


def _cli(config: ExternalToolConfig, loan: Loan) -> ToolSource:
    from toolpost.sources.cli.source import CliSource  # noqa: PLC0415 - few need it

    describe = None if config.cli.manual is None else partial(_described, config, loan.lent.network)
    return CliSource(config, credential=loan.credential, describe=describe)


async def _described(config: ExternalToolConfig, network: NetworkPolicy) -> DescribedCommands:
    """What a manual says of commands: sources do not know each other, so one's reader is lent to the other."""
    from toolpost.sources.utcp.cli_export import export_cli_commands  # noqa: PLC0415 - few need it

    return await export_cli_commands(config, network=network)


def _websocket(config: ExternalToolConfig, loan: Loan) -> ToolSource:
    from toolpost.sources.websocket.source import WebSocketSource  # noqa: PLC0415 - few need it

    return WebSocketSource(config, credential=loan.credential, network=loan.lent.network)


def _graphql(config: ExternalToolConfig, loan: Loan) -> ToolSource:
    from toolpost.sources.graphql.source import GraphqlSource  # noqa: PLC0415 - an extra

    return GraphqlSource(config, credential=loan.credential, network=loan.lent.network, artifacts=loan.lent.artifacts)


def _webhook(config: ExternalToolConfig, loan: Loan) -> ToolSource:
    from toolpost.sources.webhook.source import WebhookSource  # noqa: PLC0415 - few need it

    return WebhookSource(config, credential=loan.credential, network=loan.lent.network)


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
