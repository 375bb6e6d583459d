"""Tools as values: cells of a table that describe tools to call later.

A value contains the definition and the server of a tool, and the name of a credential, but no connection or secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeAlias


class ToolType(Enum):
    """Kinds of tool values, as stored in a table."""

    WORKFLOW = "WORKFLOW"
    MCP = "MCP"
    HTTP = "HTTP"
    FUNCTION = "FUNCTION"


@dataclass(frozen=True, slots=True)
class ToolPort:
    """An input or output port of a workflow: a table or another object, described by `spec`."""

    name: str
    description: str = ""
    type: str = "table"
    spec: Any = None

    def to_arrow_dict(self) -> dict[str, Any]:
        """Return the port as it is stored."""
        return {"0": self.name, "1": self.description, "2": self.type, "3": self.spec}

    @classmethod
    def from_arrow_dict(cls, storage: Mapping[str, Any] | None) -> ToolPort | None:
        """Return the port of its stored form; None stays None."""
        if storage is None:
            return None
        return cls(storage["0"], storage["1"], storage["2"], storage["3"])

    _to_arrow_dict = to_arrow_dict  # the names in the class of KNIME
    _from_arrow_dict = from_arrow_dict


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecutionResult:
    """The result of the call of a tool value.

    `text` is the message for the conversation, also if the call failed or is waiting for an answer. `tables` contains
    those of the output ports of a workflow, by name.
    """

    text: str
    content: Any = field(default=None, repr=False)
    error: str | None = None
    pending_id: str | None = None
    tables: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def success(self) -> bool:
        """Whether the tool ran and returned a result."""
        return self.error is None and self.pending_id is None


class ToolValueExecutor(Protocol):
    """Run tool values of every type; `toolpost.adapters.ToolValues` does it in a Toolbox."""

    async def execute(self, value: ToolValue, parameters: Mapping[str, Any]) -> ToolExecutionResult:
        """Call the tool of a value; an error is a result."""
        ...


class ToolValue(Protocol):
    """Members that all tool values share."""

    @property
    def tool_type(self) -> ToolType:
        """The type, which decides how the value is executed and stored."""
        ...

    @property
    def name(self) -> str:
        """The name for people and models."""
        ...

    @property
    def description(self) -> str:
        """The description of the tool."""
        ...

    @property
    def parameter_schema(self) -> dict[str, Any]:
        """The JSON Schema of the parameters."""
        ...

    async def execute(self, parameters: Mapping[str, Any], executor: ToolValueExecutor) -> ToolExecutionResult:
        """Call the tool."""
        ...


class StoredTool:
    """Parent of the tool values that are stored in tables, for hosts that find a factory by the class of a value."""

    __slots__ = ()

    async def execute(
        self: ToolValue, parameters: Mapping[str, Any], executor: ToolValueExecutor
    ) -> ToolExecutionResult:
        """Call the tool by an executor, which dispatches on the type of the value."""
        return await executor.execute(self, parameters)


@dataclass(frozen=True, slots=True)
class WorkflowTool(StoredTool):
    """A workflow as a tool; `_filestore_keys` are its bytes, or the keys of a host for them.

    `message_output_port_index` is the output port with the message for the conversation, or -1.
    """

    name: str
    description: str
    parameter_schema: dict[str, Any]
    _filestore_keys: bytes | None = field(default=None, repr=False)
    input_ports: list[ToolPort] | None = None
    output_ports: list[ToolPort] | None = None
    message_output_port_index: int | None = -1

    def __post_init__(self) -> None:
        # A missing list is stored as an empty one, so a stored value equals the original.
        object.__setattr__(self, "input_ports", self.input_ports or [])
        object.__setattr__(self, "output_ports", self.output_ports or [])

    @property
    def tool_type(self) -> ToolType:
        """The type of the value."""
        return ToolType.WORKFLOW

    @property
    def package(self) -> bytes | None:
        """The bytes of the workflow, or the keys of a host for them."""
        return self._filestore_keys


@dataclass(frozen=True, slots=True)
class RemoteTool(StoredTool):
    """A tool of a source: of an MCP server, an HTTP API or a file of Python functions.

    `server_uri` is the address of the source, `tool_name` the name of the tool in it. Models see `parameter_schema`;
    `input_schema` is the schema of the source, if it differs. `credential_name` names a credential that the caller of
    the tool looks up.
    """

    name: str
    description: str
    parameter_schema: dict[str, Any]
    server_uri: str
    tool_name: str
    input_schema: dict[str, Any] | None = None
    output_type: str | None = None
    credential_name: str | None = None


@dataclass(frozen=True, slots=True)
class MCPTool(RemoteTool):
    """A tool of the MCP server at `server_uri`."""

    @property
    def tool_type(self) -> ToolType:
        """The type of the value."""
        return ToolType.MCP


@dataclass(frozen=True, slots=True)
class HTTPTool(RemoteTool):
    """An operation of an HTTP API; `server_uri` is the address of its OpenAPI document."""

    @property
    def tool_type(self) -> ToolType:
        """The type of the value."""
        return ToolType.HTTP


@dataclass(frozen=True, slots=True)
class PythonFunctionTool(RemoteTool):
    """A Python function with `@tool`; `server_uri` is its file or module."""

    @property
    def tool_type(self) -> ToolType:
        """The type of the value."""
        return ToolType.FUNCTION


AnyToolValue: TypeAlias = WorkflowTool | MCPTool | HTTPTool | PythonFunctionTool
