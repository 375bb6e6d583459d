"""UTCP manuals as a source of tools: each is called the way that its manual describes, by executors of our own."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.calls import NO_CREDENTIAL
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.makers import maker
from toolpost.contracts.outcomes import ToolResult, now_ms
from toolpost.contracts.sources import HoldingSource
from toolpost.sources.utcp.bridge import Bridge, BridgedTool
from toolpost.sources.utcp.delegates import check_servers, mcp_delegates
from toolpost.sources.utcp.finding import Finder, told_without
from toolpost.sources.utcp.preparing import CALLS, check_allowed, filled_template, prepare
from toolpost.sources.utcp.reach import Reach
from toolpost.sources.utcp.spec import tool_spec
from toolpost.sources.utcp.templates import KINDS
from toolpost.sources.utcp.variables import Variables
from toolpost.sources.utcp.wires import Asked, Prepared, addresses_of, refuse_stranger
from toolpost.wire.network import NetworkPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from toolpost.contracts.calls import AuthorizedCall, Credential, ToolOutput
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.questions import Question
    from toolpost.contracts.sources import ToolSource
    from toolpost.contracts.spec import ToolSpec
    from toolpost.contracts.tool import Tool
    from toolpost.sources.utcp.delegates import Delegate
    from toolpost.sources.utcp.finding import Found
    from toolpost.sources.utcp.manuals import Manual, ManualTool
    from toolpost.sources.utcp.preparing import Call
    from toolpost.sources.utcp.reach import RemoteWires
    from toolpost.sources.utcp.wires import Wires

    Make = Callable[[ExternalToolConfig], ToolSource]

_new_asked = maker(Asked)
_MOST_REASONS = 3


class UtcpTool:
    """One tool of a manual."""

    __slots__ = ("_call", "_credential", "_prepared", "_wires", "spec")

    def __init__(self, spec: ToolSpec, prepared: Prepared, *, call: Call, wires: Wires, credential: Credential) -> None:
        self.spec = spec
        self._prepared = prepared
        self._call = call
        self._wires = wires
        self._credential = credential

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run it with the source's own credential; what fails is raised."""
        started = now_ms()
        output = await self.run(Asked(params, self._credential, lambda: context))
        return ToolResult.completed(output.content, output.text, started_at=started)

    def run(self, asked: Asked) -> Coroutine[Any, Any, ToolOutput]:
        """Run one call."""
        refuse_stranger(self._prepared, self._wires, asked.credential)
        return self._call(self._prepared, asked, self._wires)


class UtcpSource:
    """The tools of manuals, found by address, in a file or in the configuration itself.

    What another transport speaks better is handed to a source that `make` makes: API documents, MCP servers
    and GraphQL endpoints. `network` is what the configuration lets through; a manual from elsewhere adds nothing.
    """

    def __init__(
        self,
        config: ExternalToolConfig,
        *,
        credential: Credential = NO_CREDENTIAL,
        network: NetworkPolicy | None = None,
        make: Make | None = None,
    ) -> None:
        self.config = config
        self._credential = credential
        self._network = network or NetworkPolicy()
        self._make = make
        self._reach: Reach | None = None
        self._bridge: Bridge | None = None
        self._inner: dict[int, tuple[Tool, ToolSource]] = {}  # by the object: two parts may have tools of one name
        self._made: list[ToolSource] = []
        self._left_out: list[str] = []
        self._failed: list[ToolError] = []
        self._scratch = ExitStack()
        self.problems: Sequence[str] = ()
        self.files: Sequence[str] = ()
        self.secrets: set[str] = set()

    @property
    def name(self) -> str:
        """The namespace of its tools."""
        return self.config.name

    async def discover(self) -> Sequence[Tool]:
        """Find the manuals and their tools; tools that cannot be used are told of, none at all is an error."""
        await self.close()
        self._left_out, self._failed, self.problems = [], [], ()
        reach = self._reach = Reach(self.config, self._credential, self._network)
        scratch = Path(self._scratch.enter_context(tempfile.TemporaryDirectory(prefix="toolpost-utcp-")))
        finder = Finder(self.config, self._credential, reach, scratch)
        found = await finder.find()
        self._left_out += found.problems
        tools: list[Tool] = []
        for manual in found.manuals:
            tools += await self._tools(manual, finder, reach)
        for delegate in found.delegates:
            tools += await self._delegated(delegate)
        tools += await self._by_bridge(found)
        self.problems = [*self.problems, *(f"source {self.name!r}: {problem}" for problem in self._left_out)]
        self.files = [*finder.files, *(file for inner in self._made for file in getattr(inner, "files", ()))]
        if not tools:
            self._refuse_nothing(found)
        return tools

    def _refuse_nothing(self, found: Found) -> None:
        """No tools at all is an error, unless a filter took them away."""
        if len(self._left_out) == len(self._failed) == 1:
            raise self._failed[0]
        if self._left_out:
            raise ConfigError(f"no tool can be used: {'; '.join(self._left_out[:_MOST_REASONS])}")
        if not (found.delegates or found.unknown or any(manual.tools for manual in found.manuals)):
            raise ConfigError("the manual has no tools; check whether its address is the right one")

    async def _tools(self, manual: Manual, finder: Finder, reach: Reach) -> list[Tool]:
        self._left_out += manual.problems
        own = finder.variables(manual.variables)
        variables = Variables(manual.name, own, os.environ)
        remote = None if manual.remote is None else reach.remote(manual.remote, manual.written, own)
        ours: list[tuple[ManualTool, Prepared]] = []
        bridged: list[ManualTool] = []
        found: list[Tool] = []
        for tool in manual.tools:
            if not self.config.includes(tool.name):
                continue
            try:
                check_allowed(tool, manual)
                if tool.kind == "mcp":
                    found += await self._of_server(tool, variables, remote)
                elif tool.kind in KINDS or not self.config.utcp.bridge:
                    ours.append((tool, prepare(tool, variables, timeout_s=self.config.timeout_s)))
                else:
                    bridged.append(_bridgeable(tool, variables, remote))
            except ConfigError as error:
                self._left_out.append(str(error))
        self.secrets |= variables.secrets
        return [*self._called(ours, manual, remote, reach), *found, *await self._bridged(bridged, manual)]

    def _called(
        self, ours: list[tuple[ManualTool, Prepared]], manual: Manual, remote: RemoteWires | None, reach: Reach
    ) -> list[Tool]:
        """The tools that we call ourselves, over wires that are bound by where the manual came from."""
        urls = (
            {url for _, prepared in ours for url in addresses_of(prepared.template)} if remote is None else set[str]()
        )
        near = reach.own(sorted(urls), manual.folder) if remote is None else None
        longest_s = None if remote is None else self.config.timeout_s
        found: list[Tool] = []
        for tool, prepared in ours:
            wires = near or cast("RemoteWires", remote).of(prepared.template)
            spec = tool_spec(tool, prepared.template, source=self.name, longest_s=longest_s)
            timed = prepared._replace(timeout_s=spec.timeout_s or self.config.timeout_s)
            found.append(UtcpTool(spec, timed, call=CALLS[tool.kind], wires=wires, credential=self._credential))
        return found

    async def _of_server(self, tool: ManualTool, variables: Variables, remote: RemoteWires | None) -> list[Tool]:
        """A tool of an MCP server."""
        filled = filled_template(tool, variables)
        only = frozenset({tool.full_name.rpartition(".")[2]})
        try:
            delegates = list(mcp_delegates(self.config, filled.template, only))
            if remote is not None:
                check_servers(delegates, remote.written)
        except ConfigError as error:
            told = told_without(error, filled.values)
            raise ConfigError(f"tool {tool.full_name!r} is left out: {told}") from None
        found: list[Tool] = []
        for delegate in delegates:
            found += await self._delegated(delegate._replace(secrets=filled.values))
        return found

    async def _bridged(self, tools: list[ManualTool], manual: Manual) -> list[Tool]:
        """The tools that only other people's packages can call."""
        try:
            return await self._opened_bridge().tools(manual.name, tools) if tools else []
        except ConfigError as error:
            self._left_out.append(f"{len(tools)} tools of manual {manual.name!r} are left out: {error}")
            return []

    async def _delegated(self, delegate: Delegate) -> list[Tool]:
        """The tools of a source that is made for a part of the manual; where it fails, that part is left out."""
        try:
            if self._make is None:
                raise ConfigError(f"nothing here speaks {delegate.config.transport.value}")
            inner = self._make(delegate.config)
            self._made.append(inner)
            tools = [tool for tool in await inner.discover() if _is_meant(tool, delegate.only)]
        except ToolError as error:
            error = told_without(error, delegate.secrets, remedy=delegate.remedy)
            self._failed.append(error)
            self._left_out.append(f"a part of it, by {delegate.config.transport.value}, is left out: {error}")
            return []
        self._inner.update({id(tool): (tool, inner) for tool in tools})
        self.problems = [*self.problems, *getattr(inner, "problems", ())]
        return tools

    async def _by_bridge(self, found: Found) -> list[Tool]:
        """The tools of manuals of unknown kinds."""
        tools: list[Tool] = []
        for template in found.unknown:
            kind = template.get("call_template_type")
            if not self.config.utcp.bridge:
                self._left_out.append(f"a manual of the kind {kind!r} is left out; utcp: {{bridge: true}} may know it")
                continue
            try:
                tools += await self._opened_bridge().manual(template)
            except ConfigError as error:
                self._left_out.append(f"a manual of the kind {kind!r} is left out: {error}")
        return tools

    def _opened_bridge(self) -> Bridge:
        if self._bridge is None:
            self._bridge = Bridge(self.config)
        return self._bridge

    def invoke(self, call: AuthorizedCall) -> Coroutine[Any, Any, ToolOutput | Question]:
        """Run one call, or hand it to the source that its tool is from."""
        tool = call.tool
        if isinstance(tool, UtcpTool):
            return tool.run(_new_asked((call.arguments, call.credential, call.context)))
        if isinstance(tool, BridgedTool):
            return tool.run(call.arguments)
        return self._inner[id(tool)][1].invoke(call)

    def release(self, call_id: str) -> None:
        """Nobody will answer any more."""
        for inner in self._made:
            if isinstance(inner, HoldingSource):
                inner.release(call_id)

    async def close(self) -> None:
        """Close every connection and every source that was made; safe to call twice."""
        made, self._made, self._inner = self._made, [], {}
        for inner in made:
            await inner.close()
        if self._bridge is not None:
            await self._bridge.close()
            self._bridge = None
        if self._reach is not None:
            await self._reach.close()
            self._reach = None
        self._scratch.close()


def _bridgeable(tool: ManualTool, variables: Variables, remote: RemoteWires | None) -> ManualTool:
    filled = variables.filled(tool.template)
    if remote is not None and (filled.values or filled.missing):
        raise ConfigError(
            f"tool {tool.full_name!r} is left out: its manual is from elsewhere, and the utcp packages do not keep "
            "variables to the hosts that you wrote; save the manual to a file if you trust it"
        )
    return tool


def _is_meant(tool: Tool, only: Iterable[str] | None) -> bool:
    return only is None or str(tool.spec.extra.get("remote_name", "")).rpartition(".")[2] in only
