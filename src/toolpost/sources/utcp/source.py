"""UTCP manuals as a source of tools: each is called the way that its manual describes, by executors of our own."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolpost.contracts.calls import NO_CREDENTIAL
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.outcomes import ToolResult
from toolpost.contracts.sources import HoldingSource
from toolpost.sources.utcp.bridge import Bridge, BridgedTool
from toolpost.sources.utcp.delegates import mcp_delegates
from toolpost.sources.utcp.finding import Finder
from toolpost.sources.utcp.preparing import CALLS, check_allowed, prepare
from toolpost.sources.utcp.reach import Reach
from toolpost.sources.utcp.spec import tool_spec
from toolpost.sources.utcp.templates import KINDS
from toolpost.sources.utcp.variables import Variables
from toolpost.sources.utcp.wires import Asked, Prepared, hosts_of, refuse_stranger
from toolpost.wire.network import NetworkPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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
    from toolpost.sources.utcp.wires import Wires

    Make = Callable[[ExternalToolConfig], ToolSource]

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
        output = await self.run(Asked(params, self._credential, lambda: context))
        return ToolResult(success=True, result=output.content, content_text=output.text)

    async def run(self, asked: Asked) -> ToolOutput:
        """Run one call."""
        refuse_stranger(self._prepared, self._wires, asked.credential)
        return await self._call(self._prepared, asked, self._wires)


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
        self._inner: dict[str, ToolSource] = {}
        self._made: list[ToolSource] = []
        self._left_out: list[str] = []
        self._scratch = ExitStack()
        self.problems: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The namespace of its tools."""
        return self.config.name

    async def discover(self) -> Sequence[Tool]:
        """Find the manuals and their tools; tools that cannot be used are told of, none at all is an error."""
        await self.close()
        self._left_out, self.problems = [], ()
        reach = self._reach = Reach(self.config, self._credential, self._network)
        scratch = Path(self._scratch.enter_context(tempfile.TemporaryDirectory(prefix="toolpost-utcp-")))
        finder = Finder(self.config, self._credential, reach, scratch)
        found = await finder.find()
        self._left_out += found.problems
        tools: list[Tool] = []
        for manual in found.manuals:
            tools += await self._tools(manual, finder)
        for delegate in found.delegates:
            tools += await self._delegated(delegate)
        tools += await self._by_bridge(found)
        self.problems = [*self.problems, *(f"source {self.name!r}: {problem}" for problem in self._left_out)]
        if not tools and self._left_out:
            raise ConfigError(f"no tool can be used: {'; '.join(self._left_out[:_MOST_REASONS])}")
        return tools

    async def _tools(self, manual: Manual, finder: Finder) -> list[Tool]:
        self._left_out += manual.problems
        variables = Variables(manual.name, finder.variables(manual.variables), os.environ)
        ours: list[tuple[ManualTool, Prepared]] = []
        others: list[ManualTool] = []
        for tool in manual.tools:
            if not self.config.includes(tool.name):
                continue
            try:
                check_allowed(tool, manual)
                if tool.kind not in KINDS and (tool.kind == "mcp" or self.config.utcp.bridge):
                    others.append(tool)
                else:
                    ours.append((tool, prepare(tool, variables, timeout_s=self.config.timeout_s)))
            except ConfigError as error:
                self._left_out.append(str(error))
        return [*self._called(ours, manual, finder), *await self._elsewhere(others, manual, variables)]

    def _called(self, ours: list[tuple[ManualTool, Prepared]], manual: Manual, finder: Finder) -> list[Tool]:
        """The tools that we call ourselves, over wires that are bound by where the manual came from."""
        if not ours or self._reach is None:
            return []
        if manual.remote is not None:
            wires = self._reach.remote(manual.remote, manual.written, finder.variables(manual.variables))
        else:
            urls = {url for _, prepared in ours for url in hosts_of(prepared.template).values()}
            wires = self._reach.own(sorted(urls), manual.folder)
        found: list[Tool] = []
        for tool, prepared in ours:
            spec = tool_spec(tool, prepared.template, source=self.name)
            timed = prepared._replace(timeout_s=spec.timeout_s or self.config.timeout_s)
            found.append(UtcpTool(spec, timed, call=CALLS[tool.kind], wires=wires, credential=self._credential))
        return found

    async def _elsewhere(self, others: list[ManualTool], manual: Manual, variables: Variables) -> list[Tool]:
        """The tools of MCP servers, and those that only other people's packages can call."""
        found: list[Tool] = []
        bridged: list[ManualTool] = []
        for tool in others:
            if tool.kind != "mcp":
                bridged.append(tool)
                continue
            template = variables.filled(tool.template).template
            for delegate in mcp_delegates(self.config, template, frozenset({tool.name})):
                found += await self._delegated(delegate)
        if bridged:
            found += await self._opened_bridge().tools(manual.name, bridged)
        return found

    async def _delegated(self, delegate: Delegate) -> list[Tool]:
        if self._make is None:
            raise ConfigError(f"source {self.name!r}: nothing here speaks {delegate.config.transport.value}")
        inner = self._make(delegate.config)
        self._made.append(inner)
        tools = [tool for tool in await inner.discover() if _is_meant(tool, delegate.only)]
        self._inner.update({tool.spec.name: inner for tool in tools})
        self.problems = [*self.problems, *getattr(inner, "problems", ())]
        return tools

    async def _by_bridge(self, found: Found) -> list[Tool]:
        """The tools of manuals of unknown kinds."""
        tools: list[Tool] = []
        for template in found.unknown:
            if self.config.utcp.bridge:
                tools += await self._opened_bridge().manual(template)
            else:
                kind = template.get("call_template_type")
                self._left_out.append(f"a manual of the kind {kind!r} is left out; utcp: {{bridge: true}} may know it")
        return tools

    def _opened_bridge(self) -> Bridge:
        if self._bridge is None:
            self._bridge = Bridge(self.config)
        return self._bridge

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        """Run one call, or hand it to the source that its tool is from."""
        tool = call.tool
        if isinstance(tool, UtcpTool):
            return await tool.run(Asked(call.arguments, call.credential, call.context))
        if isinstance(tool, BridgedTool):
            return await tool.run(call.arguments)
        return await self._inner[tool.spec.name].invoke(call)

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


def _is_meant(tool: Tool, only: Iterable[str] | None) -> bool:
    return only is None or str(tool.spec.extra.get("remote_name", "")).rpartition(".")[2] in only
