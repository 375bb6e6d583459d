"""Toolpost: any tool, one contract, one safe call."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolpost.agents.planner import ReactPlanner
    from toolpost.agents.planner_outcomes import PlannerFinish, PlannerPause
    from toolpost.auth.code_exchange import SealedSignIns
    from toolpost.auth.oauth_manager import (
        InMemoryTokenStore,
        OAuthCallbackError,
        OAuthManager,
        OAuthProviderConfig,
        VaultTokenStore,
    )
    from toolpost.auth.user_credentials import AuthManager, ManagedCredentials
    from toolpost.catalog.function import FunctionTool, tool
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.configuration.settings import Settings
    from toolpost.connecting.presets import POPULAR_MCP_SERVERS, get_preset
    from toolpost.contracts.adapt import adapt_exception, adapt_mcp_error, adapt_utcp_error
    from toolpost.contracts.calls import Credential, ToolOutput
    from toolpost.contracts.config import (
        AuthType,
        ExternalToolConfig,
        McpOptions,
        McpTransport,
        RetryPolicy,
        ToolOverride,
        TransportType,
        UtcpMode,
    )
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.errors import (
        ConfigError,
        ErrorCategory,
        MCPClientError,
        MCPConnectionError,
        MCPToolExecutionError,
        PauseSignal,
        PendingNotFoundError,
        StoreError,
        ToolApprovalDenied,
        ToolAuthError,
        ToolCancelledError,
        ToolCircuitOpenError,
        ToolClientError,
        ToolCollisionError,
        ToolConflictError,
        ToolConnectionError,
        ToolError,
        ToolExecutionError,
        ToolNodeError,
        ToolNotFoundError,
        ToolOutputError,
        ToolPermissionError,
        ToolRateLimitError,
        ToolSchemaError,
        ToolServerError,
        ToolSourceDownError,
        ToolTimeoutError,
        ToolValidationError,
    )
    from toolpost.contracts.events import EventCode, RemoteBinding, RunEvent, StoredEvent
    from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused, ToolResult
    from toolpost.contracts.principal import Principal
    from toolpost.contracts.questions import Answer, CallPreview, PendingAction, Question
    from toolpost.contracts.sources import CredentialProvider, ToolSource
    from toolpost.contracts.spec import SafetyProfile, ToolCategory, ToolDefinition, ToolSpec
    from toolpost.contracts.storage import StateStore, TokenStore
    from toolpost.contracts.tool import Tool
    from toolpost.policy.paths import is_path_allowed
    from toolpost.policy.rules import Policy, Rule
    from toolpost.runtime.concurrency import map_concurrent
    from toolpost.runtime.event_emitter import EventBus
    from toolpost.runtime.executor import ToolExecutor
    from toolpost.runtime.model_messages import model_text
    from toolpost.runtime.router import ToolRouter
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.mcp_manager import MCPManager
    from toolpost.toolbox.node import MCPClient, ToolNode

__version__ = "0.1.0"

_HOMES = {
    "agents.planner": ["ReactPlanner"],
    "agents.planner_outcomes": ["PlannerFinish", "PlannerPause"],
    "auth.user_credentials": ["AuthManager", "ManagedCredentials"],
    "auth.code_exchange": ["SealedSignIns"],
    "auth.oauth_manager": [
        "InMemoryTokenStore",
        "OAuthCallbackError",
        "OAuthManager",
        "OAuthProviderConfig",
        "VaultTokenStore",
    ],
    "catalog.function": ["FunctionTool", "tool"],
    "catalog.registry": ["ToolRegistry"],
    "contracts.adapt": ["adapt_exception", "adapt_mcp_error", "adapt_utcp_error"],
    "contracts.calls": ["Credential", "ToolOutput"],
    "contracts.config": [
        "AuthType",
        "ExternalToolConfig",
        "McpOptions",
        "McpTransport",
        "RetryPolicy",
        "ToolOverride",
        "TransportType",
        "UtcpMode",
    ],
    "contracts.context": ["ToolContext"],
    "contracts.errors": [
        "ConfigError",
        "ErrorCategory",
        "MCPClientError",
        "MCPConnectionError",
        "MCPToolExecutionError",
        "PauseSignal",
        "PendingNotFoundError",
        "StoreError",
        "ToolApprovalDenied",
        "ToolAuthError",
        "ToolCancelledError",
        "ToolCircuitOpenError",
        "ToolClientError",
        "ToolCollisionError",
        "ToolConflictError",
        "ToolConnectionError",
        "ToolError",
        "ToolExecutionError",
        "ToolNodeError",
        "ToolNotFoundError",
        "ToolOutputError",
        "ToolPermissionError",
        "ToolRateLimitError",
        "ToolSchemaError",
        "ToolServerError",
        "ToolSourceDownError",
        "ToolTimeoutError",
        "ToolValidationError",
    ],
    "contracts.events": ["EventCode", "RemoteBinding", "RunEvent", "StoredEvent"],
    "contracts.outcomes": ["Completed", "Failed", "Outcome", "Paused", "ToolResult"],
    "contracts.principal": ["Principal"],
    "contracts.questions": ["Answer", "CallPreview", "PendingAction", "Question"],
    "contracts.spec": ["SafetyProfile", "ToolCategory", "ToolDefinition", "ToolSpec"],
    "contracts.storage": ["StateStore", "TokenStore"],
    "contracts.sources": ["CredentialProvider", "ToolSource"],
    "contracts.tool": ["Tool"],
    "policy.paths": ["is_path_allowed"],
    "policy.rules": ["Policy", "Rule"],
    "runtime.event_emitter": ["EventBus"],
    "runtime.concurrency": ["map_concurrent"],
    "runtime.executor": ["ToolExecutor"],
    "runtime.model_messages": ["model_text"],
    "runtime.router": ["ToolRouter"],
    "toolbox.box": ["Toolbox"],
    "toolbox.mcp_manager": ["MCPManager"],
    "toolbox.node": ["MCPClient", "ToolNode"],
    "connecting.presets": ["POPULAR_MCP_SERVERS", "get_preset"],
    "configuration.settings": ["Settings"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # noqa: RUF022 - sorted as `sorted` does, constants among the others
    "Answer",
    "AuthManager",
    "AuthType",
    "CallPreview",
    "Completed",
    "ConfigError",
    "Credential",
    "CredentialProvider",
    "ErrorCategory",
    "EventBus",
    "EventCode",
    "ExternalToolConfig",
    "Failed",
    "FunctionTool",
    "InMemoryTokenStore",
    "MCPClient",
    "MCPClientError",
    "MCPConnectionError",
    "MCPManager",
    "MCPToolExecutionError",
    "ManagedCredentials",
    "McpOptions",
    "McpTransport",
    "OAuthCallbackError",
    "OAuthManager",
    "OAuthProviderConfig",
    "Outcome",
    "POPULAR_MCP_SERVERS",
    "PauseSignal",
    "Paused",
    "PendingAction",
    "PendingNotFoundError",
    "PlannerFinish",
    "PlannerPause",
    "Policy",
    "Principal",
    "Question",
    "ReactPlanner",
    "RemoteBinding",
    "RetryPolicy",
    "Rule",
    "RunEvent",
    "SafetyProfile",
    "SealedSignIns",
    "Settings",
    "StateStore",
    "StoreError",
    "StoredEvent",
    "TokenStore",
    "Tool",
    "ToolApprovalDenied",
    "ToolAuthError",
    "ToolCancelledError",
    "ToolCategory",
    "ToolCircuitOpenError",
    "ToolClientError",
    "ToolCollisionError",
    "ToolConflictError",
    "ToolConnectionError",
    "ToolContext",
    "ToolDefinition",
    "ToolError",
    "ToolExecutionError",
    "ToolExecutor",
    "ToolNode",
    "ToolNodeError",
    "ToolNotFoundError",
    "ToolOutput",
    "ToolOutputError",
    "ToolOverride",
    "ToolPermissionError",
    "ToolRateLimitError",
    "ToolRegistry",
    "ToolResult",
    "ToolRouter",
    "ToolSchemaError",
    "ToolServerError",
    "ToolSource",
    "ToolSourceDownError",
    "ToolSpec",
    "ToolTimeoutError",
    "ToolValidationError",
    "Toolbox",
    "TransportType",
    "UtcpMode",
    "VaultTokenStore",
    "adapt_exception",
    "adapt_mcp_error",
    "adapt_utcp_error",
    "get_preset",
    "is_path_allowed",
    "map_concurrent",
    "model_text",
    "tool",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    home = _HOME_OF.get(name)
    if home is None:
        msg = f"module 'toolpost' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"toolpost.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
