"""What the author of a transport needs: a `Transport` that makes sources, and what those work with.

A transport is offered by an entry point in the group `toolpost.sources`; docs/extending.md has a whole one.
"""

from toolpost.contracts.calls import AuthorizedCall, Credential, ToolOutput
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.questions import Question
from toolpost.contracts.sources import LiveSource, SourceHealth, SourceListener, ToolSource
from toolpost.contracts.spec import ToolSpec
from toolpost.contracts.tool import Tool
from toolpost.transports.base import BaseSource, Detection, ProbeResponse, Services, SourceTool, Transport
from toolpost.wire.requests import Request

__all__ = [
    "AuthorizedCall",
    "BaseSource",
    "Credential",
    "Detection",
    "ExternalToolConfig",
    "LiveSource",
    "ProbeResponse",
    "Question",
    "Request",
    "Services",
    "SourceHealth",
    "SourceListener",
    "SourceTool",
    "Tool",
    "ToolOutput",
    "ToolSource",
    "ToolSpec",
    "Transport",
]
