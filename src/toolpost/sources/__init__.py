"""What the author of a tool or of a transport needs: a `Transport` makes sources, and those offer tools.

A transport is offered by an entry point in the group `toolpost.sources`; docs/extending.md has a whole one.
"""

from typing import TYPE_CHECKING

from toolpost.catalog.function import FunctionTool
from toolpost.contracts.calls import AuthorizedCall, Credential, ToolOutput
from toolpost.contracts.chat import ChatModel
from toolpost.contracts.config import ExternalToolConfig, McpOptions, ToolOverride
from toolpost.contracts.lazy import lazy_attributes
from toolpost.contracts.questions import Answer, CallPreview, Question
from toolpost.contracts.source_kinds import McpTransport
from toolpost.contracts.sources import LiveSource, SourceHealth, SourceListener, ToolSource
from toolpost.contracts.spec import SafetyProfile, Tool, ToolDefinition, ToolSpec
from toolpost.policy.paths import is_path_allowed
from toolpost.transports.base import BaseSource, Detection, ProbeResponse, Services, SourceTool, Transport
from toolpost.wire.messages import Request

if TYPE_CHECKING:
    from toolpost.sources.workflow.definition import Workflow
    from toolpost.sources.workflow.source import WorkflowFunction

__getattr__ = lazy_attributes(  # these need an extra
    "toolpost.sources",
    {"sources.workflow.definition": ["Workflow"], "sources.workflow.source": ["WorkflowFunction"]},
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
