"""Toolpost: any tool, one contract, one safe call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.contracts.lazy import lazy_attributes

if TYPE_CHECKING:
    from toolpost.agents.planner import ReactPlanner
    from toolpost.agents.results import PlannerFinish, PlannerPause
    from toolpost.auth.oauth_manager import OAuthManager, OAuthProviderConfig
    from toolpost.auth.token_stores import InMemoryTokenStore
    from toolpost.catalog.function import tool
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.configuration.settings import Settings
    from toolpost.connecting.presets import POPULAR_MCP_SERVERS, get_preset
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.errors import ConfigError, ToolError
    from toolpost.contracts.events import EventCode
    from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused, ToolResult
    from toolpost.contracts.principal import Principal
    from toolpost.contracts.questions import PendingAction, Question
    from toolpost.contracts.retries import RetryPolicy
    from toolpost.contracts.source_kinds import AuthType, TransportType, UtcpMode
    from toolpost.contracts.spec import Tool, ToolCategory, ToolSpec
    from toolpost.contracts.storage import StateStore, TokenStore
    from toolpost.policy.rules import Policy, Rule
    from toolpost.runtime.concurrency import map_concurrent
    from toolpost.runtime.event_bus import EventBus
    from toolpost.runtime.executor import ToolExecutor
    from toolpost.runtime.model_messages import model_text
    from toolpost.runtime.router import ToolRouter
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.callback_app import callback_app
    from toolpost.toolbox.mcp_client import MCPClient
    from toolpost.toolbox.mcp_manager import MCPManager
    from toolpost.toolbox.node import ToolNode

__version__ = "0.1.0"

__getattr__ = lazy_attributes(
    "toolpost",
    {
        "agents.planner": ["ReactPlanner"],
        "agents.results": ["PlannerFinish", "PlannerPause"],
        "auth.oauth_manager": ["OAuthManager", "OAuthProviderConfig"],
        "auth.token_stores": ["InMemoryTokenStore"],
        "catalog.function": ["tool"],
        "catalog.registry": ["ToolRegistry"],
        "configuration.settings": ["Settings"],
        "connecting.presets": ["POPULAR_MCP_SERVERS", "get_preset"],
        "contracts.config": ["ExternalToolConfig"],
        "contracts.context": ["ToolContext"],
        "contracts.errors": ["ConfigError", "ToolError"],
        "contracts.events": ["EventCode"],
        "contracts.outcomes": ["Completed", "Failed", "Outcome", "Paused", "ToolResult"],
        "contracts.principal": ["Principal"],
        "contracts.questions": ["PendingAction", "Question"],
        "contracts.retries": ["RetryPolicy"],
        "contracts.source_kinds": ["AuthType", "TransportType", "UtcpMode"],
        "contracts.spec": ["Tool", "ToolCategory", "ToolSpec"],
        "contracts.storage": ["StateStore", "TokenStore"],
        "policy.rules": ["Policy", "Rule"],
        "runtime.concurrency": ["map_concurrent"],
        "runtime.event_bus": ["EventBus"],
        "runtime.executor": ["ToolExecutor"],
        "runtime.model_messages": ["model_text"],
        "runtime.router": ["ToolRouter"],
        "toolbox.box": ["Toolbox"],
        "toolbox.callback_app": ["callback_app"],
        "toolbox.mcp_client": ["MCPClient"],
        "toolbox.mcp_manager": ["MCPManager"],
        "toolbox.node": ["ToolNode"],
    },
)

__all__ = [  # noqa: RUF022 - sorted as `sorted` does, constants among the others
    "AuthType",
    "Completed",
    "ConfigError",
    "EventBus",
    "EventCode",
    "ExternalToolConfig",
    "Failed",
    "InMemoryTokenStore",
    "MCPClient",
    "MCPManager",
    "OAuthManager",
    "OAuthProviderConfig",
    "Outcome",
    "POPULAR_MCP_SERVERS",
    "Paused",
    "PendingAction",
    "PlannerFinish",
    "PlannerPause",
    "Policy",
    "Principal",
    "Question",
    "ReactPlanner",
    "RetryPolicy",
    "Rule",
    "Settings",
    "StateStore",
    "TokenStore",
    "Tool",
    "ToolCategory",
    "ToolContext",
    "ToolError",
    "ToolExecutor",
    "ToolNode",
    "ToolRegistry",
    "ToolResult",
    "ToolRouter",
    "ToolSpec",
    "Toolbox",
    "TransportType",
    "UtcpMode",
    "callback_app",
    "get_preset",
    "map_concurrent",
    "model_text",
    "tool",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
