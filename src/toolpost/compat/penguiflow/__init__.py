"""The names of penguiflow over Toolpost: change `penguiflow` to `toolpost.compat.penguiflow` in imports.

docs/migrate/penguiflow.md lists the differences.
"""

from toolpost.compat.penguiflow.catalog import (
    NodeSpec,
    SideEffect,
    ToolInputExample,
    ToolLoadingMode,
    build_catalog,
    tool,
)
from toolpost.compat.penguiflow.node import Node, NodePolicy
from toolpost.compat.penguiflow.planner import PlannerFinish, PlannerPause, ReactPlanner, ToolContext
from toolpost.compat.penguiflow.registry import ModelRegistry
from toolpost.contracts.events import RemoteBinding, StoredEvent
from toolpost.contracts.storage import StateStore
from toolpost.runtime.concurrency import map_concurrent

__all__ = [
    "ModelRegistry",
    "Node",
    "NodePolicy",
    "NodeSpec",
    "PlannerFinish",
    "PlannerPause",
    "ReactPlanner",
    "RemoteBinding",
    "SideEffect",
    "StateStore",
    "StoredEvent",
    "ToolContext",
    "ToolInputExample",
    "ToolLoadingMode",
    "build_catalog",
    "map_concurrent",
    "tool",
]
