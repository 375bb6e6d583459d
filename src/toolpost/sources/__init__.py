"""Public names for authors of tools and transports. A `Transport` makes sources; a source offers tools.

A plug-in offers a transport by an entry point in the group `toolpost.sources`. docs/extending.md shows a complete one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.contracts.lazy import lazy_attributes

if TYPE_CHECKING:
    from toolpost.catalog.function import FunctionTool
    from toolpost.contracts.calls import AuthorizedCall, Credential, ToolOutput
    from toolpost.contracts.chat import ChatModel
    from toolpost.contracts.config import ExternalToolConfig, ToolOverride
    from toolpost.contracts.questions import Answer, CallPreview, Question
    from toolpost.contracts.source_kinds import McpTransport
    from toolpost.contracts.sources import LiveSource, SourceHealth, SourceListener, ToolSource
    from toolpost.contracts.spec import SafetyProfile, Tool, ToolDefinition, ToolSpec
    from toolpost.policy.paths import is_path_allowed
    from toolpost.sources.base import BaseSource, Detection, ProbeResponse, Services, SourceTool, Transport
    from toolpost.sources.mcp.options import McpOptions
    from toolpost.sources.workflow.definition import Workflow
    from toolpost.sources.workflow.source import WorkflowFunction
    from toolpost.wire.messages import Request

__getattr__ = lazy_attributes(
    "toolpost.sources",
    {
        "catalog.function": ["FunctionTool"],
        "contracts.calls": ["AuthorizedCall", "Credential", "ToolOutput"],
        "contracts.chat": ["ChatModel"],
        "contracts.config": ["ExternalToolConfig", "ToolOverride"],
        "contracts.questions": ["Answer", "CallPreview", "Question"],
        "contracts.source_kinds": ["McpTransport"],
        "contracts.sources": ["LiveSource", "SourceHealth", "SourceListener", "ToolSource"],
        "contracts.spec": ["SafetyProfile", "Tool", "ToolDefinition", "ToolSpec"],
        "policy.paths": ["is_path_allowed"],
        "sources.mcp.options": ["McpOptions"],
        "sources.base": ["BaseSource", "Detection", "ProbeResponse", "Services", "SourceTool", "Transport"],
        "sources.workflow.definition": ["Workflow"],
        "sources.workflow.source": ["WorkflowFunction"],
        "wire.messages": ["Request"],
    },
)

__all__ = [
    "Answer",
    "AuthorizedCall",
    "BaseSource",
    "CallPreview",
    "ChatModel",
    "Credential",
    "Detection",
    "ExternalToolConfig",
    "FunctionTool",
    "LiveSource",
    "McpOptions",
    "McpTransport",
    "ProbeResponse",
    "Question",
    "Request",
    "SafetyProfile",
    "Services",
    "SourceHealth",
    "SourceListener",
    "SourceTool",
    "Tool",
    "ToolDefinition",
    "ToolOutput",
    "ToolOverride",
    "ToolSource",
    "ToolSpec",
    "Transport",
    "Workflow",
    "WorkflowFunction",
    "is_path_allowed",
]
