"""Tools in tables and in agent frameworks: tool values, Arrow columns, LangChain tools, KNIME nodes."""

from typing import TYPE_CHECKING

from toolpost.contracts.lazy import lazy_attributes

if TYPE_CHECKING:
    from toolpost.adapters.arrow_decoding import tool_values
    from toolpost.adapters.arrow_encoding import tool_column, tool_table
    from toolpost.adapters.arrow_tables import filter_tools
    from toolpost.adapters.arrow_type import ToolColumnType
    from toolpost.adapters.credentials import NamedCredential
    from toolpost.adapters.langchain import LangchainToolConverter
    from toolpost.adapters.provider import tools_table
    from toolpost.adapters.stored_tools import (
        HTTPTool,
        MCPTool,
        PythonFunctionTool,
        ToolExecutionResult,
        ToolPort,
        ToolType,
        ToolValue,
        WorkflowTool,
    )
    from toolpost.adapters.table_tools import TableTool, ToolValues, extract_tools
    from toolpost.adapters.values import MCPToolValueFactory, ToolValueFactory, WorkflowToolValueFactory
    from toolpost.adapters.workflows import workflow_tool

__getattr__ = lazy_attributes(
    __name__,
    {
        "adapters.arrow_decoding": ["tool_values"],
        "adapters.arrow_encoding": ["tool_column", "tool_table"],
        "adapters.arrow_tables": ["filter_tools"],
        "adapters.arrow_type": ["ToolColumnType"],
        "adapters.credentials": ["NamedCredential"],
        "adapters.langchain": ["LangchainToolConverter"],
        "adapters.provider": ["tools_table"],
        "adapters.table_tools": ["TableTool", "ToolValues", "extract_tools"],
        "adapters.values": ["MCPToolValueFactory", "ToolValueFactory", "WorkflowToolValueFactory"],
        "adapters.workflows": ["workflow_tool"],
        "adapters.stored_tools": [
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
