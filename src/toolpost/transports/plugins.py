"""Plug-ins: tools and transports that installed distributions offer through entry points."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from toolpost.contracts.config import TRANSPORTS_GROUP
from toolpost.contracts.spec import Tool
from toolpost.transports.base import Transport

TOOLS_GROUP = "toolpost.tools"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugins:
    """What the installed plug-ins offer, and what is wrong with those that offer nothing."""

    tools: tuple[Tool, ...] = ()
    transports: Mapping[str, Transport] = field(default_factory=lambda: MappingProxyType({}))
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
    """Load the transports of plug-ins alone, and return what is wrong with the others."""
    collected = _Collector()
    for point in _installed(TRANSPORTS_GROUP):
        collected.take(point, collected.add_transport)
    return collected.transports, collected.problems


def _installed(group: str) -> Sequence[EntryPoint]:
    """Return the entry points of a group, in an order that does not depend on the file system."""
    return _read_installed(tuple((folder, _changed_at(folder)) for folder in sys.path))[group]


@lru_cache(maxsize=1)
def _read_installed(_folders: tuple[tuple[str, int], ...]) -> Mapping[str, Sequence[EntryPoint]]:
    # Reading 150 distributions takes longer than everything else that opens a Toolbox. Whoever installs one changes
    # the folder, by whose time importlib.metadata, too, knows that its own list is out of date.
    offered = entry_points()
    return {
        group: sorted(offered.select(group=group), key=lambda point: (point.name, _distribution(point), point.value))
        for group in (TOOLS_GROUP, TRANSPORTS_GROUP)
    }


def _changed_at(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "unknown distribution"


class _Collector:
    """Collects tools, transports and problems."""

    def __init__(self) -> None:
        self.tools: list[Tool] = []
        self.transports: dict[str, Transport] = {}
        self.problems: list[str] = []

    def take(self, point: EntryPoint, add: Callable[[str, Any], None]) -> None:
        try:
            add(point.name, point.load())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code runs here, and may do anything
            said = str(error) if isinstance(error, _InvalidPluginError) else f"{type(error).__name__}: {error}"
            where = f"plug-in {point.name!r} of {_distribution(point)} ({point.group} = {point.value})"
            self.problems.append(f"{where} is left out: {said}")

    def add_tools(self, name: str, value: Any) -> None:
        offered = value() if callable(value) and not isinstance(value, Tool) else value
        tools = [offered] if isinstance(offered, Tool) else list(_iterable(offered))
        invalid = next((tool for tool in tools if not isinstance(tool, Tool)), None)
        if invalid is not None:
            raise _InvalidPluginError(f"it offers {invalid!r}, which is not a tool; decorate it with @tool")
        self.tools.extend(tools)

    def add_transport(self, name: str, value: Any) -> None:
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
