"""Makes sources by their transport; what a transport needs is imported when one is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from toolpost.contracts.config import TransportType
from toolpost.contracts.errors import ConfigError
from toolpost.sources.python import PythonSource
from toolpost.wire.network import NetworkPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from toolpost.contracts.calls import Credential
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.sources import ChatModel, ToolSource
    from toolpost.contracts.storage import ArtifactStore

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
    cache_dir: Path | None = None
    artifacts: ArtifactStore | None = None


def make_source(
    config: ExternalToolConfig, credential: Credential, lent: Lent, plugged: Mapping[str, Factory]
) -> ToolSource:
    """A source that is not connected yet; ConfigError when nothing here speaks its transport."""
    if (factory := plugged.get(config.transport.value)) is not None:
        return factory(config)
    match config.transport:
        case TransportType.PYTHON:
            return PythonSource(config)
        case TransportType.MCP:
            return _mcp(config, credential, lent)
        case TransportType.HTTP:
            return _openapi(config, credential, lent)
        case _:
            known = ", ".join(sorted({"python", "mcp", "http", *plugged}))
            msg = f"no source here speaks transport {config.transport.value!r}; there are: {known}"
            raise ConfigError(msg)


def _mcp(config: ExternalToolConfig, credential: Credential, lent: Lent) -> ToolSource:
    try:
        from toolpost.sources.mcp.source import McpSource  # noqa: PLC0415 - an extra, and a second to import
    except ModuleNotFoundError as error:
        msg = f"source {config.name!r} needs the MCP extra ({error.name} is missing): pip install 'toolpost[mcp]'"
        raise ConfigError(msg) from error
    return McpSource(
        config,
        credential=credential,
        server=(lent.servers or {}).get(config.name),
        roots=lent.roots,
        chat_model=lent.chat_model,
    )


def _openapi(config: ExternalToolConfig, credential: Credential, lent: Lent) -> ToolSource:
    from toolpost.sources.openapi.source import OpenApiSource  # noqa: PLC0415 - forty modules that few need

    return OpenApiSource(
        config, credential=credential, network=lent.network, cache_dir=lent.cache_dir, artifacts=lent.artifacts
    )
