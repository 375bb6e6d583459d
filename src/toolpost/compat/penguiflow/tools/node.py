"""ToolNode whose tools are NodeSpecs and whose registry is a ModelRegistry, over Toolpost's own."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from toolpost.catalog.registry import ToolRegistry
from toolpost.compat.penguiflow.catalog import NodeSpec
from toolpost.compat.penguiflow.node import Node
from toolpost.compat.penguiflow.registry import ModelRegistry
from toolpost.compat.penguiflow.tools.config import ExternalToolConfig
from toolpost.compat.penguiflow.tools.extraction import extract_artifacts
from toolpost.compat.penguiflow.tools.prompts import PromptInfo
from toolpost.compat.penguiflow.tools.resources import ResourceInfo, ResourceTemplateInfo
from toolpost.contracts.config import ExternalToolConfig as _ExternalToolConfig
from toolpost.contracts.config import TransportType
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolNodeError
from toolpost.schema.typed_models import arguments_model, result_model
from toolpost.toolbox.node import NodeTool
from toolpost.toolbox.node import ToolNode as _ToolNode

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pydantic import BaseModel

    from toolpost.auth.user_credentials import AuthManager
    from toolpost.contracts.outcomes import ToolResult
    from toolpost.contracts.spec import ToolSpec
    from toolpost.policy.redaction import Redactor

__all__ = ["ToolNode"]


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
    def redactor(self) -> Redactor:
        """Knows the secrets of the source, for events about its calls."""
        return self.tool.redactor

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool for the user of the context, who may have to sign in first; raise its error."""
        whole = await self.tool.execute(params, context)
        result = await self.owner.transform(self.name, whole.result, context)
        return whole if result == whole.result else replace(whole, result=result, content_text=None)


@dataclass(slots=True)
class PenguiflowToolNode:
    """An external tool source; its tools are NodeSpecs, and their models are registered as `{name}.{tool}`.

    With `auth_type=oauth2_user` each call uses the token that `auth_manager` has for its user, and pauses until the
    user has signed in where there is none. `server` is an MCP server object of this process.
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
        """Apply what the configuration says of results; artifacts need the context of a running call."""
        config, name = self.config, tool_name.removeprefix(f"{self.config.name}.")
        if not isinstance(config, ExternalToolConfig):
            return result
        if config.output_transformer is not None:
            made = config.output_transformer(name, result, ctx)
            return await made if inspect.isawaitable(made) else made
        if not isinstance(ctx, ToolContext) or not ctx.is_running:
            return result
        extraction = config.artifact_extraction
        return await extract_artifacts(result, extraction, ctx, extraction.tool_fields.get(name, []))

    async def list_resources(self, *, refresh: bool = True) -> list[ResourceInfo]:
        """Return the resources of an MCP server; they are listed anew each time."""
        return [ResourceInfo.model_validate(each) for each in await self._node.list_resources()]

    async def list_resource_templates(self, *, refresh: bool = True) -> list[ResourceTemplateInfo]:
        """Return the templates of further resources."""
        return [ResourceTemplateInfo.model_validate(each) for each in await self._node.list_resource_templates()]

    async def read_resource(
        self, uri: str, ctx: ToolContext | None = None, *, use_cache: bool = False
    ) -> dict[str, Any]:
        """Return the `text` of a resource, or the `artifact` of a file; `contents` where a resource has several."""
        contents = await self._node.read_resource(uri, ctx)
        if len(contents) != 1:
            return {"contents": contents}
        return {"text": contents[0]["text"]} if "text" in contents[0] else {"artifact": contents[0]}

    async def list_prompts(self, *, refresh: bool = True) -> list[PromptInfo]:
        """Return the prompts of an MCP server; they are listed anew each time."""
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
        """Register the models of new and changed tools, and unregister those of tools that are gone."""
        tools = {tool.spec.name: tool for tool in self._node.registry.list() if isinstance(tool, NodeTool)}
        for name, known in list(self._specs.items()):
            if tools.get(name) is not known.tool:
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
        given = args.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return out_model(result=await self.call(name, given, ctx))

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


ToolNode = PenguiflowToolNode  # as penguiflow calls it
