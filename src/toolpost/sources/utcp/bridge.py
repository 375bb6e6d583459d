"""Call tools of other kinds with the packages of the UTCP project."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.foreign_errors import adapt_exception
from toolpost.contracts.spec import Tool, ToolSpec
from toolpost.sources.base import BaseSource, SourceTool
from toolpost.sources.utcp.manuals import Manual, ManualTool, manual_name, parse_manual
from toolpost.sources.utcp.options import UtcpOptions
from toolpost.sources.utcp.specs import tool_spec

_INSTALL = "pip install 'toolpost[utcp]'"


class UtcpBridge:
    """One UtcpClient for all bridged tools of a source."""

    def __init__(self, source: BaseSource) -> None:
        self._source = source
        self._config = source.config
        self._client: Any = None

    async def tools(self, manual: str, tools: Sequence[ManualTool]) -> list[Tool]:
        """Register tools of one manual; a ConfigError says that the packages do not know their kinds."""
        client = await self._open_client()
        manual_data = {"tools": [_manual_entry(tool) for tool in tools]}
        try:
            utcp_manual = _import_utcp("utcp.data.utcp_manual").UtcpManualSerializer().validate_dict(manual_data)
            first = utcp_manual.tools[0].tool_call_template.model_copy(update={"name": manual})
            first.allowed_communication_protocols = sorted({tool.kind for tool in tools})
            await client.config.tool_repository.save_manual(first, utcp_manual)
        except Exception as error:  # foreign code runs here, and may raise anything
            kinds = ", ".join(sorted({tool.kind for tool in tools}))
            msg = f"the utcp packages here cannot call {kinds}; install the plugin for it"
            raise ConfigError(f"source {self._config.name!r}: {msg} ({type(error).__name__})") from error
        return [self._tool(tool, client) for tool in tools]

    async def manual(self, template: Mapping[str, Any]) -> list[Tool]:
        """Let the packages discover a manual, and return its tools."""
        client, kind = await self._open_client(), str(template.get("call_template_type"))
        name = manual_name(str(template.get("name") or self._config.name))
        try:
            call_template = (
                _import_utcp("utcp.data.call_template")
                .CallTemplateSerializer()
                .validate_dict({**template, "name": name})
            )
            result = await client.register_manual(call_template)
        except Exception as error:  # foreign code runs here, and may raise anything
            msg = f"the utcp packages here cannot find a manual by {kind}; install the plugin for it"
            raise ConfigError(f"source {self._config.name!r}: {msg} ({type(error).__name__})") from error
        if not result.success:
            raise ConfigError(f"source {self._config.name!r}: no manual by {kind}: {'; '.join(result.errors)[:500]}")
        parsed = parse_manual(result.manual.model_dump(by_alias=True), Manual(name=name, kind=kind))
        return [self._tool(tool, client) for tool in parsed.tools if self._config.includes(tool.name)]

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    def _tool(self, tool: ManualTool, client: Any) -> Tool:
        return BridgedTool(tool_spec(tool, None, source=self._config.name), self._source, tool.full_name, client)

    async def _open_client(self) -> Any:
        if self._client is None:
            config = self._config
            own = {**config.auth_config, **config.env, **config.read_options(UtcpOptions).variables}
            variables = {key: value for key, value in own.items() if isinstance(value, str)}
            with _preserve_root_logging():
                kind = _import_utcp("utcp.utcp_client").UtcpClient
                self._client = await kind.create(config={"variables": variables})
        return self._client


def _manual_entry(tool: ManualTool) -> dict[str, Any]:
    return {
        "name": tool.full_name,
        "description": tool.description,
        "inputs": tool.inputs,
        "outputs": tool.outputs or {},
        "tags": list(tool.tags),
        "tool_call_template": dict(tool.template),
    }


def _import_utcp(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"options.bridge needs the utcp packages ({error.name} is missing): {_INSTALL}") from error


@contextmanager
def _preserve_root_logging() -> Generator[None]:
    """Restore the root logger, which importing the packages configures."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers


class BridgedTool(SourceTool):
    """A tool that a UtcpClient calls."""

    __slots__ = ("_client", "_full_name")

    def __init__(self, spec: ToolSpec, source: BaseSource, full_name: str, client: Any) -> None:
        super().__init__(spec, source)
        self._full_name = full_name
        self._client = client

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        """Call the tool; foreign exceptions become ToolErrors."""
        try:
            return ToolOutput(await self._client.call_tool(self._full_name, dict(arguments)))
        except Exception as error:  # foreign code runs here, and may raise anything
            raise adapt_exception(error, "utcp") from error
