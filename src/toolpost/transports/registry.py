"""The transports by name: those of this package, and those of plug-ins."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from pydantic import ValidationError

from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.sources import ToolSource
from toolpost.transports.base import Services, Transport
from toolpost.transports.plugins import load_transports

# In the order in which they are asked whether they recognise an address or a file.
_BUILT_IN = {
    "python": "toolpost.sources.python:PythonTransport",
    "utcp": "toolpost.sources.utcp:UtcpTransport",
    "graphql": "toolpost.sources.graphql:GraphqlTransport",
    "webhook": "toolpost.sources.webhook:WebhookTransport",
    "http": "toolpost.sources.openapi:OpenApiTransport",
    "mcp": "toolpost.sources.mcp:ModelContextProtocol",
    "cli": "toolpost.sources.cli:CliTransport",
    "websocket": "toolpost.sources.websocket:WebSocketTransport",
    "workflow": "toolpost.sources.workflow:WorkflowTransport",
}


def find_transport(name: str, plugged: Mapping[str, Transport] | None = None) -> Transport:
    """Return the transport of a name; one in `plugged` comes before ours. ConfigError when there is none."""
    if plugged is not None and name in plugged:
        return plugged[name]
    if name in _BUILT_IN:
        return _built_in(name)
    if plugged is None and name in (plugged := load_transports()[0]):
        return plugged[name]
    known = ", ".join(sorted({*_BUILT_IN, *(plugged or ())}))
    raise ConfigError(f"no source here speaks transport {name!r}; there are: {known}")


def describe_transport(name: str) -> Transport:
    """Return the transport of a name for what it says of its sources; the defaults where a plug-in does not load.

    A broken plug-in then takes out its own sources alone, when they are made.
    """
    try:
        return find_transport(name)
    except ConfigError:
        return Transport()


def all_transports() -> list[Transport]:
    """Return every transport, those of plug-ins first."""
    plugged, _ = load_transports()
    return [*plugged.values(), *(_built_in(name) for name in _BUILT_IN if name not in plugged)]


def make_source(
    config: ExternalToolConfig, services: Services, plugged: Mapping[str, Transport] | None = None
) -> ToolSource:
    """Build the source of a configuration, without connecting; ConfigError says what is wrong with it."""
    transport = find_transport(config.transport, plugged)
    try:
        transport.check_options(config)
        return transport.make(config, services)
    except ValidationError as error:
        faults = "; ".join(f"options.{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise ConfigError(f"source {config.name!r}: {faults}") from None
    except ModuleNotFoundError as error:
        if transport.requires is None:
            raise
        extra = transport.requires[1]
        msg = f"source {config.name!r} needs the extra {extra} ({error.name} is missing)"
        raise ConfigError(f"{msg}: pip install 'toolpost[{extra}]'") from error


@cache
def _built_in(name: str) -> Transport:
    module, _, attribute = _BUILT_IN[name].partition(":")
    transport: type[Transport] = getattr(import_module(module), attribute)
    return transport()
