"""The transports by name, and plug-ins: tools and transports that installed distributions offer by entry points."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, distribution, distributions
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolpost.contracts.errors import ConfigError
from toolpost.contracts.source_kinds import TRANSPORTS_GROUP
from toolpost.contracts.spec import Tool

# Settings without a source need no transport.

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.sources import ToolSource
    from toolpost.sources.base import Services, Transport

# In the order in which they detect an address or a file.
_BUILT_IN = {
    "python": "toolpost.sources.python:PythonTransport",
    "utcp": "toolpost.sources.utcp:UtcpTransport",
    "graphql": "toolpost.sources.graphql:GraphqlTransport",
    "webhook": "toolpost.sources.webhook:WebhookTransport",
    "http": "toolpost.sources.openapi:OpenApiTransport",
    "mcp": "toolpost.sources.mcp:ModelContextProtocol",
    "cli": "toolpost.sources.commands:CliTransport",
    "websocket": "toolpost.sources.websocket:WebSocketTransport",
    "workflow": "toolpost.sources.workflow:WorkflowTransport",
}
TOOLS_GROUP = "toolpost.tools"
_ENTRY_POINTS = "entry_points.txt"


def find_transport(name: str, plugged: Mapping[str, Transport] | None = None) -> Transport:
    """Return the transport of a name, preferably from `plugged`; raise ConfigError if there is none."""
    if plugged is not None and name in plugged:
        return plugged[name]
    if name in _BUILT_IN:
        return _built_in(name)
    if plugged is None and name in (plugged := load_transports()[0]):
        return plugged[name]
    names = ", ".join(sorted({*_BUILT_IN, *(plugged or ())}))
    raise ConfigError(f"no source supports transport {name!r}; there are: {names}")


def describe_transport(name: str) -> Transport:
    """Return the transport of a name to describe its sources; the defaults if a plug-in does not load.

    A broken plug-in then affects only its own sources, when they are made.
    """
    try:
        return find_transport(name)
    except ConfigError:
        from toolpost.sources.base import Transport  # noqa: PLC0415 - as said above

        return Transport()


def all_transports() -> list[Transport]:
    """Return every transport, those of plug-ins first."""
    plugged, _ = load_transports()
    return [*plugged.values(), *(_built_in(name) for name in _BUILT_IN if name not in plugged)]


def make_source(
    config: ExternalToolConfig, services: Services, plugged: Mapping[str, Transport] | None = None
) -> ToolSource:
    """Build the source of a configuration without connecting; raise ConfigError if the configuration is invalid."""
    from pydantic import ValidationError  # noqa: PLC0415 - as said above

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


class Plugins(NamedTuple):
    """Tools and transports of the installed plug-ins, and the problems of broken ones."""

    tools: tuple[Tool, ...] = ()
    transports: Mapping[str, Transport] = MappingProxyType({})
    problems: tuple[str, ...] = ()


def load_plugins() -> Plugins:
    """Load every plug-in; a broken one is reported in `problems`."""
    collected = _Collector()
    for point in _installed(TOOLS_GROUP):
        collected.take(point, collected.add_tools)
    for point in _installed(TRANSPORTS_GROUP):
        collected.take(point, collected.add_transport)
    return Plugins(
        tools=tuple(collected.tools),
        transports=MappingProxyType(collected.transports),
        problems=tuple(collected.problems),
    )


def load_transports() -> tuple[Mapping[str, Transport], Sequence[str]]:
    """Load only the transports of plug-ins; also return the problems of broken ones."""
    collected = _Collector()
    for point in _installed(TRANSPORTS_GROUP):
        collected.take(point, collected.add_transport)
    return collected.transports, collected.problems


def _installed(group: str) -> Sequence[EntryPoint]:
    """Return the entry points of a group, in an order that does not depend on the file system."""
    return _read_installed(tuple((folder, _changed_at(folder)) for folder in sys.path))[group]


@lru_cache(maxsize=1)
def _read_installed(_folders: tuple[tuple[str, int], ...]) -> Mapping[str, Sequence[EntryPoint]]:
    # Reading 150 distributions takes longer than all other steps that open a Toolbox. An installation changes the
    # modification time of its folder, which importlib.metadata also uses to invalidate its cache.
    offered = sorted(_offered(), key=lambda point: (point.name, _distribution(point), point.value))
    return {group: [point for point in offered if point.group == group] for group in (TOOLS_GROUP, TRANSPORTS_GROUP)}


def _offered() -> Iterator[EntryPoint]:
    """Yield the entry points of distributions that may have one of these groups; others are not parsed."""
    names: set[str] = set()
    for package in distributions():
        text = package.read_text(_ENTRY_POINTS) or ""
        if (TOOLS_GROUP not in text and TRANSPORTS_GROUP not in text) or package.name in names:
            continue
        if (
            distribution(package.name).read_text(_ENTRY_POINTS) == text
        ):  # otherwise a distribution of the same name shadows it
            names.add(package.name)
            yield from package.entry_points


def _changed_at(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "unknown distribution"


class _Collector:
    """Tools, transports and problems that are being collected."""

    def __init__(self) -> None:
        self.tools: list[Tool] = []
        self.transports: dict[str, Transport] = {}
        self.problems: list[str] = []

    def take(self, point: EntryPoint, add: Callable[[str, Any], None]) -> None:
        try:
            add(point.name, point.load())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may raise anything
            reason = str(error) if isinstance(error, _InvalidPluginError) else f"{type(error).__name__}: {error}"
            where = f"plug-in {point.name!r} of {_distribution(point)} ({point.group} = {point.value})"
            self.problems.append(f"{where} is skipped: {reason}")

    def add_tools(self, name: str, value: Any) -> None:
        from toolpost.catalog.object_tool import is_custom_tool  # noqa: PLC0415 - most processes have no plug-in
        from toolpost.catalog.registry import as_tool  # noqa: PLC0415

        def is_tool(given: object) -> bool:
            return isinstance(given, Tool) or is_custom_tool(given)

        offered = value() if callable(value) and not is_tool(value) else value
        tools: list[Any] = [offered] if is_tool(offered) else list(_iterable(offered))
        invalid = next((tool for tool in tools if not is_tool(tool)), None)
        if invalid is not None:
            raise _InvalidPluginError(f"it offers {invalid!r}, which is not a tool; decorate it with @tool")
        self.tools.extend(map(as_tool, tools))

    def add_transport(self, name: str, value: Any) -> None:
        from toolpost.sources.base import Transport  # noqa: PLC0415 - as said above

        transport = value() if isinstance(value, type) else value
        if not isinstance(transport, Transport):
            raise _InvalidPluginError(f"it is of type {type(transport).__name__}, not a toolpost.sources.Transport")
        if transport.name != name:
            raise _InvalidPluginError(f"its transport is named {transport.name!r}; name the entry point so, too")
        if name in self.transports:
            raise _InvalidPluginError(f"another plug-in already serves the transport {name!r}; remove one of them")
        self.transports[name] = transport


class _InvalidPluginError(TypeError):
    """A plug-in loads, but its object does not fit its entry point group."""


def _iterable(offered: Any) -> Iterable[Any]:
    if not isinstance(offered, list | tuple | set | frozenset | Iterator):
        raise _InvalidPluginError(
            f"it offers something of type {type(offered).__name__}, not a tool or a list of tools"
        )
    return cast("Iterable[Any]", offered)
