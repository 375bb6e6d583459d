"""Tools in tables and in agent frameworks: tool values, Arrow columns, LangChain tools, KNIME nodes."""

from typing import TYPE_CHECKING

from toolpost.contracts.lazy import lazy_attributes

if TYPE_CHECKING:
    from toolpost.adapters.arrow import ToolColumnType, filter_tools, tool_column, tool_table, tool_values
    from toolpost.adapters.credentials import NamedCredential
    from toolpost.adapters.langchain import LangchainToolConverter
    from toolpost.adapters.provider import tools_table
    from toolpost.adapters.table_tools import TableTool, ToolValues, extract_tools
    from toolpost.adapters.values import MCPToolValueFactory, ToolValueFactory, WorkflowToolValueFactory
    from toolpost.adapters.workflows import workflow_tool
    from toolpost.contracts.tool_values import (
        HTTPTool,
        MCPTool,
        PythonFunctionTool,
        ToolExecutionResult,
        ToolPort,
        ToolType,
        ToolValue,
        WorkflowTool,
    )

__getattr__ = lazy_attributes(
    __name__,
    {
        "adapters.arrow": ["ToolColumnType", "filter_tools", "tool_column", "tool_table", "tool_values"],
        "adapters.credentials": ["NamedCredential"],
        "adapters.langchain": ["LangchainToolConverter"],
        "adapters.provider": ["tools_table"],
        "adapters.table_tools": ["TableTool", "ToolValues", "extract_tools"],
        "adapters.values": ["MCPToolValueFactory", "ToolValueFactory", "WorkflowToolValueFactory"],
        "adapters.workflows": ["workflow_tool"],
        "contracts.tool_values": [
            *("HTTPTool", "MCPTool", "PythonFunctionTool", "WorkflowTool"),
            *("ToolExecutionResult", "ToolPort", "ToolType", "ToolValue"),
        ],
    },
)

__all__ = [
    "HTTPTool",
    "LangchainToolConverter",
    "MCPTool",
    "MCPToolValueFactory",
    "NamedCredential",
    "PythonFunctionTool",
    "TableTool",
    "ToolColumnType",
    "ToolExecutionResult",
    "ToolPort",
    "ToolType",
    "ToolValue",
    "ToolValueFactory",
    "ToolValues",
    "WorkflowTool",
    "WorkflowToolValueFactory",
    "extract_tools",
    "filter_tools",
    "tool_column",
    "tool_table",
    "tool_values",
    "tools_table",
    "workflow_tool",
]


def __dir__() -> list[str]:
    return list(__all__)
