"""External tools: sources, their configuration, sign-ins and errors."""

from toolpost.compat.penguiflow.tools.adapters import adapt_exception, adapt_mcp_error, adapt_utcp_error
from toolpost.compat.penguiflow.tools.auth import InMemoryTokenStore, OAuthManager, OAuthProviderConfig, TokenStore
from toolpost.compat.penguiflow.tools.config import (
    ArtifactExtractionConfig,
    ArtifactFieldConfig,
    AuthType,
    BinaryDetectionConfig,
    ExternalToolConfig,
    McpTransportMode,
    ResourceHandlingConfig,
    RetryPolicy,
    TransportType,
    UtcpMode,
)
from toolpost.compat.penguiflow.tools.errors import (
    ErrorCategory,
    ToolAuthError,
    ToolClientError,
    ToolConnectionError,
    ToolError,
    ToolNodeError,
    ToolRateLimitError,
    ToolServerError,
    ToolTimeoutError,
)
from toolpost.compat.penguiflow.tools.node import ToolNode
from toolpost.compat.penguiflow.tools.presets import POPULAR_MCP_SERVERS, get_preset

__all__ = [  # noqa: RUF022 - sorted as `sorted` does, constants among the others
    "ArtifactExtractionConfig",
    "ArtifactFieldConfig",
    "AuthType",
    "BinaryDetectionConfig",
    "ErrorCategory",
    "ExternalToolConfig",
    "InMemoryTokenStore",
    "McpTransportMode",
    "OAuthManager",
    "OAuthProviderConfig",
    "POPULAR_MCP_SERVERS",
    "ResourceHandlingConfig",
    "RetryPolicy",
    "TokenStore",
    "ToolAuthError",
    "ToolClientError",
    "ToolConnectionError",
    "ToolError",
    "ToolNode",
    "ToolNodeError",
    "ToolRateLimitError",
    "ToolServerError",
    "ToolTimeoutError",
    "TransportType",
    "UtcpMode",
    "adapt_exception",
    "adapt_mcp_error",
    "adapt_utcp_error",
    "get_preset",
]
