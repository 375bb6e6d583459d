"""Python files and modules as a source of tools."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeGuard

from msgspec.structs import replace

from toolpost.catalog.code_target import code_target
from toolpost.catalog.function import FunctionTool, run_tool
from toolpost.catalog.names import canonical_name
from toolpost.catalog.object_tool import is_custom_tool
from toolpost.catalog.registry import as_tool
from toolpost.contracts.calls import AuthorizedCall, ToolOutput
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolConnectionError
from toolpost.contracts.outcomes import ToolResult
from toolpost.contracts.questions import CallPreview, Question
from toolpost.contracts.sources import SourceTraits, ToolSource
from toolpost.contracts.spec import PreviewingTool, Tool, ToolSpec
from toolpost.sources.base import BaseSource, Detection, ProbeResponse, Services, Transport

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig

_IMPORTS_US = re.compile(rb"^\s*(from|import)\s+toolpost\b", re.MULTILINE)


class PythonTransport(Transport):
    """Tools of a Python file or of an importable module, which run in this process."""

    name = "python"
    forms = ("file", "module")

    def traits(self, config: ExternalToolConfig) -> SourceTraits:
        del config
        return SourceTraits(is_own_code=True, declares_schemas=True, calls_tools=True)

    def advice_without_tools(self, config: ExternalToolConfig) -> str:
        return f"mark functions of {config.connection} with @tool from toolpost"

    def make(self, config: ExternalToolConfig, services: Services) -> ToolSource:
        del services
        return PythonSource(config)

    def detect(self, response: ProbeResponse) -> Detection | None:
        """Recognize a Python file that imports toolpost."""
        if not response.url.endswith(".py") or response.headers or not _IMPORTS_US.search(response.body):
            return None
        return Detection("tools in Python", "it imports toolpost")


class PythonSource(BaseSource):
    """Source of the tools of a Python file (`./tools.py`) or of an importable module (`acme.tools`)."""

    async def discover(self) -> Sequence[Tool]:
        named = [self._rename(tool) for tool in await asyncio.to_thread(self._collect)]
        return [tool for tool in named if self.config.includes(tool.spec.name.partition(".")[2])]

    def _rename(self, tool: Tool) -> Tool:
        spec = replace(tool.spec, name=canonical_name(self.name, tool.spec.name), source=self.name)
        if isinstance(tool, FunctionTool):
            return tool.renamed(spec)
        return RenamedTool(tool, replace(spec, target=spec.target or code_target(tool.execute)))

    def _collect(self) -> list[Tool]:
        """Collect the tools of the module; a tool with several names is collected once."""
        connection = self.config.connection
        try:
            is_file = connection.endswith(".py")
            module = _import_file(Path(connection), self.name) if is_file else importlib.import_module(connection)
            found = {id(value): value for value in vars(module).values() if _is_tool(value) or is_custom_tool(value)}
            return [as_tool(value) for value in found.values()]
        except (Exception, SystemExit) as error:  # foreign code may raise anything
            msg = f"{connection!r} cannot be imported: {type(error).__name__}: {error}"
            raise ToolConnectionError(msg, sent=False, cause=error) from error

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        return await run_tool(call)


class RenamedTool:
    """A custom tool with its name in this catalog."""

    def __init__(self, tool: Tool, spec: ToolSpec) -> None:
        self._tool = tool
        self.spec = spec

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        return await self._tool.execute(params, context)

    async def preview(self, params: dict[str, Any], context: ToolContext) -> CallPreview | None:
        return await self._tool.preview(params, context) if isinstance(self._tool, PreviewingTool) else None


def _is_tool(value: object) -> TypeGuard[Tool]:
    """Return whether a value is a tool: not its class, and not another object with attributes of the same names."""
    if isinstance(value, type) or not callable(getattr(value, "execute", None)):
        return False
    return isinstance(getattr(value, "spec", None), ToolSpec)


class _NoBytecode:
    """Context without `__pycache__` beside the files of sources; several may be imported concurrently."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._importing = 0
        self._before = False

    def __enter__(self) -> None:
        with self._lock:
            if self._importing == 0:
                self._before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
            self._importing += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._importing -= 1
            if self._importing == 0:
                sys.dont_write_bytecode = self._before


_no_bytecode = _NoBytecode()


def _import_file(path: Path, source: str) -> ModuleType:
    """Import a file under a unique module name, because two sources may have the same file name."""
    folder = str(path.parent.resolve())
    if folder not in sys.path:  # the file may import modules of its folder
        sys.path.append(folder)
    name = f"toolpost_source_{source.replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        msg = f"{path} is not a Python file"
        raise ImportError(msg)
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses and pickle look up the module of a class here
    try:
        with _no_bytecode:
            spec.loader.exec_module(module)
    except BaseException:
        if before is None:
            sys.modules.pop(name, None)
        else:  # the previous source stays in use
            sys.modules[name] = before
        raise
    return module
