"""ToolNode with NodeSpecs as tools and a ModelRegistry, over Toolpost's ToolNode.

Files and long strings in a result are stored as artifacts and replaced by a summary.
"""

from __future__ import annotations

import base64
import binascii
import functools
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from msgspec.structs import replace

from toolpost.catalog.registry import ToolRegistry
from toolpost.compat.penguiflow.catalog import NodeSpec
from toolpost.compat.penguiflow.node import Node
from toolpost.compat.penguiflow.registry import ModelRegistry
from toolpost.compat.penguiflow.tools.config import ExternalToolConfig
from toolpost.compat.penguiflow.tools.prompts import PromptInfo
from toolpost.compat.penguiflow.tools.resources import ResourceInfo, ResourceTemplateInfo
from toolpost.contracts.config import ExternalToolConfig as _ExternalToolConfig
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolNodeError
from toolpost.contracts.source_kinds import TransportType
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.pydantic_types import arguments_model, result_model
from toolpost.toolbox.node import NodeTool
from toolpost.toolbox.node import ToolNode as _ToolNode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from pydantic import BaseModel

    from toolpost.auth.account_counts import AccountCounts
    from toolpost.auth.managed_credentials import AuthManager
    from toolpost.compat.penguiflow.tools.config import (
        ArtifactExtractionConfig,
        ArtifactFieldConfig,
        BinaryDetectionConfig,
    )
    from toolpost.contracts.outcomes import ToolResult
    from toolpost.contracts.spec import ToolSpec
    from toolpost.policy.redaction import Redactor

__all__ = ["ToolNode"]

_TYPES = {"pdf": "application/pdf", "image": "image/png", "text": "text/plain"}
_MAGIC = {"pdf": b"%PDF", "png": b"\x89PNG", "jpeg": b"\xff\xd8\xff", "gif": b"GIF8", "zip": b"PK"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNodeSpec(NodeSpec):
    """A tool of an external source: calls are validated against its own JSON Schema, and the models are views of it."""

    tool: NodeTool = field(repr=False, compare=False)
    owner: PenguiflowToolNode = field(repr=False, compare=False)

    @property
    def spec(self) -> ToolSpec:
        """The specification as the source declares it."""
        return self.tool.spec

    @property
    def counts(self) -> AccountCounts | None:
        """Counters of the node's sign-ins, if it has any."""
        return self.tool.counts

    @property
    def redactor(self) -> Redactor:
        """The redactor with the secrets of the source, for events about its calls."""
        return self.tool.redactor

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool for the user of the context, who may have to sign in first; raise its error."""
        whole = await self.tool.execute(params, context)
        result = await self.owner.transform(self.name, whole.result, context)
        return whole if result == whole.result else replace(whole, result=result, content_text=None)


@dataclass(slots=True)
class PenguiflowToolNode:
    """An external tool source; its tools are NodeSpecs, and their models are registered as `{name}.{tool}`.

    With `auth_type=oauth2_user`, each call uses the user's token of `auth_manager`. Without one, the call pauses for a
    sign-in. `server` is an MCP server object of this process.
    """

    config: _ExternalToolConfig
    registry: ModelRegistry
    auth_manager: AuthManager | None = None
    server: Any = field(default=None, kw_only=True, repr=False)
    _node: _ToolNode = field(init=False, repr=False)
    _specs: dict[str, SourceNodeSpec] = field(default_factory=dict[str, SourceNodeSpec], init=False, repr=False)

    def __post_init__(self) -> None:
        self._node = _ToolNode(self.config, ToolRegistry(), self.auth_manager, server=self.server)

    async def connect(self, ctx: ToolContext | None = None) -> None:
        """Connect and register the models of the tools; does nothing when the node is connected."""
        await self._node.connect(ctx)
        try:
            self._refresh()
        except ToolNodeError:
            await self.close()
            raise

    def get_tools(self) -> list[NodeSpec]:
        """Return the tools that the source has now; ToolNodeError before `connect`."""
        self._node.get_tools()  # raises when the node is not connected
        self._refresh()
        return list(self._specs.values())

    get_tool_specs = get_tools

    async def call(self, tool_name: str, args: Any, ctx: ToolContext | None = None) -> Any:
        """Call a tool by its full or its bare name; return its result or raise its error."""
        result = await self._node.call(tool_name, args, ctx)
        return await self.transform(tool_name, result, ctx)

    async def transform(self, tool_name: str, result: Any, ctx: Any) -> Any:
        """Apply the configuration of results; artifacts need the context of a running call."""
        config, name = self.config, tool_name.removeprefix(f"{self.config.name}.")
        if not isinstance(config, ExternalToolConfig):
            return result
        if config.output_transformer is not None:
            transformed = config.output_transformer(name, result, ctx)
            return await transformed if inspect.isawaitable(transformed) else transformed
        if not isinstance(ctx, ToolContext) or not ctx.is_running:
            return result
        extraction = config.artifact_extraction
        return await extract_artifacts(result, extraction, ctx, extraction.tool_fields.get(name, []))

    async def list_resources(self, *, refresh: bool = True) -> list[ResourceInfo]:
        """Return the resources of an MCP server; they are listed at every call."""
        return [ResourceInfo.model_validate(each) for each in await self._node.list_resources()]

    async def list_resource_templates(self, *, refresh: bool = True) -> list[ResourceTemplateInfo]:
        """Return the templates of further resources."""
        return [ResourceTemplateInfo.model_validate(each) for each in await self._node.list_resource_templates()]

    async def read_resource(
        self, uri: str, ctx: ToolContext | None = None, *, use_cache: bool = False
    ) -> dict[str, Any]:
        """Return the `text` of a resource, or the `artifact` of a file; `contents` for a resource with several."""
        contents = await self._node.read_resource(uri, ctx)
        if len(contents) != 1:
            return {"contents": contents}
        return {"text": contents[0]["text"]} if "text" in contents[0] else {"artifact": contents[0]}

    async def list_prompts(self, *, refresh: bool = True) -> list[PromptInfo]:
        """Return the prompts of an MCP server; they are listed at every call."""
        return [PromptInfo.model_validate(each) for each in await self._node.list_prompts()]

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> dict[str, Any]:
        """Fill in a prompt; return its `messages`, each with `role`, `type` and content, and its `description`."""
        filled = await self._node.get_prompt(name, arguments)
        messages = [{"role": message["role"], **message["content"]} for message in filled["messages"]]
        return {"messages": messages, "description": filled.get("description")}

    @property
    def resources_supported(self) -> bool:
        """Whether the server offers resources."""
        return self._node.registry.has(f"{self.config.name}.resources_list")

    @property
    def prompts_supported(self) -> bool:
        """Whether the server offers prompts."""
        return self._node.registry.has(f"{self.config.name}.prompts_list")

    async def close(self) -> None:
        """Disconnect and unregister the models; safe to call twice."""
        for name in self._specs:
            self.registry.unregister(name)
        self._specs.clear()
        await self._node.close()

    def _refresh(self) -> None:
        """Register the models of new and changed tools, and unregister those of removed tools."""
        tools = {tool.spec.name: tool for tool in self._node.registry.list() if isinstance(tool, NodeTool)}
        for name, spec in list(self._specs.items()):
            if tools.get(name) is not spec.tool:
                self.registry.unregister(name)
                del self._specs[name]
        for name, tool in tools.items():
            if name not in self._specs and not tool.spec.is_helper:
                self._specs[name] = self._register(name, tool)

    def _register(self, name: str, tool: NodeTool) -> SourceNodeSpec:
        args_model, out_model = arguments_model(f"{name}Args", tool.spec.input_schema), result_model(f"{name}Result")
        try:
            self.registry.register(name, args_model, out_model)
        except ValueError as taken:
            raise ToolNodeError(f"Tool name collision for '{name}' (native tool or another ToolNode)") from taken
        kind = "mcp" if self.config.transport is TransportType.MCP else "utcp"
        return SourceNodeSpec(
            node=Node(functools.partial(self._invoke, name, out_model), name=name),
            name=name,
            desc=tool.spec.description,
            args_model=args_model,
            out_model=out_model,
            side_effects="external",
            tags=(kind, self.config.name),
            extra={"source": kind, "namespace": self.config.name},
            tool=tool,
            owner=self,
        )

    async def _invoke(self, name: str, out_model: type[BaseModel], args: BaseModel, ctx: ToolContext) -> BaseModel:
        """Call a tool with the arguments that were set in the model."""
        arguments = args.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return out_model(result=await self.call(name, arguments, ctx))

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


ToolNode = PenguiflowToolNode  # as penguiflow calls it


class _File(NamedTuple):
    data: bytes
    media_type: str
    summary: str
    content_type: str = "binary"


async def extract_artifacts(
    result: Any, config: ArtifactExtractionConfig, context: ToolContext, fields: list[ArtifactFieldConfig]
) -> Any:
    """Return the result of a tool with its files and long strings replaced by references; `fields` are always files."""
    for each in fields:
        result = await _replace_at(result, each.field_path.split("."), each, context, config)
    return await _walk(result, config, context)


async def _replace_at(
    value: Any, path: list[str], part: ArtifactFieldConfig, context: ToolContext, config: ArtifactExtractionConfig
) -> Any:
    """Replace the text at a path; each item of a list on the path is searched."""
    if is_array(value):
        return [await _replace_at(item, path, part, context, config) for item in value]
    if path and is_object(value) and path[0] in value:
        return {**value, path[0]: await _replace_at(value[path[0]], path[1:], part, context, config)}
    if path or not isinstance(value, str):
        return value
    media_type = part.mime_type or _TYPES.get(part.content_type, "application/octet-stream")
    data = None if part.content_type == "text" else _decode(value)
    if data is None:
        data = value.encode()
    elif part.mime_type is None and (file := _detect(value, config.binary_detection)) is not None:
        media_type = file.media_type
    return await _store(_File(data, media_type, part.summary_template, part.content_type), context)


async def _walk(value: Any, config: ArtifactExtractionConfig, context: ToolContext) -> Any:
    if is_array(value):
        return [await _walk(item, config, context) for item in value]
    if is_object(value):
        return {key: await _walk(item, config, context) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    if (file := _detect(value, config.binary_detection)) is not None:
        return await _store(file._replace(summary=config.default_binary_summary), context)
    if config.auto_artifact_large_content and len(value) > config.max_inline_size:
        text = _File(value.encode("utf-8", "surrogatepass"), "text/plain", config.default_text_summary, "text")
        return await _store(text, context, size=len(value))
    return value


def _detect(text: str, config: BinaryDetectionConfig) -> _File | None:
    """Return the file that a string contains in base64; None for other strings."""
    if not config.enabled or not config.min_size_for_detection <= len(text) <= config.max_decode_bytes * 4 // 3 + 4:
        return None
    signature = next((kind for start, kind in config.signatures.items() if text.startswith(start)), None)
    data = None if signature is None else _decode(text)
    if signature is None or data is None:
        return None
    extension, media_type = signature
    if config.require_magic_bytes and not data.startswith(_MAGIC.get(extension, b"")):
        return None
    return _File(data, media_type, "")


def _decode(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


async def _store(file: _File, context: ToolContext, *, size: int | None = None) -> dict[str, Any]:
    """Store a file and return its replacement; unknown names in a summary are kept."""
    artifact_id = await context.save_artifact(file.data, media_type=file.media_type)
    length = len(file.data) if size is None else size
    facts = {"artifact_id": artifact_id, "mime_type": file.media_type, "size": length}
    summary = file.summary.format_map(_Known({**facts, "content_type": file.content_type}))
    return {**facts, "summary": summary}


class _Known(dict[str, Any]):
    """Facts of a summary."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        super().__init__(facts)

    def __missing__(self, key: str) -> str:
        return "{" + key + "}"
