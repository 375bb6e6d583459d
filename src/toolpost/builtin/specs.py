"""Names and specs of the built-in tools, available before the tools' code is imported.

`python -m tools.builtin_specs` generates `specs.json` from the signatures of the tools, because generating schemas at
start-up would import every tool.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from toolpost.contracts.spec import SafetyProfile, ToolCategory, ToolSpec, ToolTarget

if TYPE_CHECKING:
    from collections.abc import Mapping

SPECS_FILE = Path(__file__).with_name("specs.json")
COMMANDS = ("run_command", "command_output", "command_stop")
"""Not part of `all`: the operator enables commands by naming `run_command`."""

_SYSTEM = ("current_time", "sleep", "get_env", "set_env")
_FILE = (
    *("read_file", "write_file", "list_files", "delete_file", "move_file", "get_file_info", "edit_file"),
    *("grep_files", "glob_files"),
)
_NETWORK = ("http_get", "http_post", "http_request", "web_search", "web_fetch")
_DATA = ("json_parse", "json_stringify", "base64_encode", "base64_decode")
_MEMORY = ("memory_list", "memory_read", "memory_write", "memory_patch", "memory_append")
_TASK = ("task_list", "task_replay")
_SESSION = ("session_archive_read",)
_ARTIFACT = ("artifact_read", "artifact_search")
_READING = (
    *("current_time", "read_file", "list_files", "get_file_info", "grep_files", "glob_files"),
    *("json_parse", "json_stringify", "base64_encode", "base64_decode", "memory_list", "memory_read"),
    *_TASK,
    *_SESSION,
    *_ARTIFACT,
)

COLLECTIONS = MappingProxyType(
    {
        "system_tools": _SYSTEM,
        "file_tools": _FILE,
        "network_tools": _NETWORK,
        "data_tools": _DATA,
        "memory_tools": _MEMORY,
        "task_tools": _TASK,
        "all_task_tools": (*_SYSTEM, *_FILE, *_NETWORK, *_DATA, *_MEMORY, *_TASK),
        "main_agent_tools": (
            *("current_time", "memory_list", "memory_read", "task_list", "task_replay", "session_archive_read"),
            *("spawn_task", "reply"),
        ),
        "reflection_tools": ("memory_read", "memory_write", "memory_patch", "memory_append"),
        "session_tools": _SESSION,
        "artifact_tools": _ARTIFACT,
        "main_agent_extras": ("resume_task", "memory_write", "memory_patch", "memory_append"),
        "task_extras": ("notify", "need_more_info"),
        "explore_tools": (*_READING, "web_search", "web_fetch"),
        "plan_tools": _READING,
    }
)
"""Named sets of tools: one per subject, one per kind of agent, and those that only read.

The tools of `AGENT_TOOLS` belong to agents; a collection has them only where an agent has registered them.
"""

AGENT_TOOLS = ("spawn_task", "reply", "resume_task", "notify", "need_more_info")


@cache
def read_specs() -> Mapping[str, ToolSpec]:
    """Return the specs of all built-in tools by name; the generated file is read once."""
    tools = json.loads(SPECS_FILE.read_text(encoding="utf-8"))["tools"]
    return MappingProxyType({facts["name"]: _spec(facts) for facts in tools})


def schema_document(spec: ToolSpec) -> dict[str, Any]:
    """Return the content of a tool's `schema.json`: the schemas that a model sees."""
    return {"input_schema": spec.model_schema or spec.input_schema, "output_schema": spec.output_schema}


def builtin_target(name: str) -> ToolTarget:
    """Return the target of a built-in tool: Toolpost's code, regardless of configuration."""
    return ToolTarget("builtin", f"the built-in tool {name}")


def _spec(facts: dict[str, Any]) -> ToolSpec:
    typed: dict[str, Any] = {
        **facts,
        "category": ToolCategory(facts["category"]),
        "safety": SafetyProfile(*facts["safety"]),
        "tags": tuple(facts["tags"]),
        "target": builtin_target(facts["name"]),
    }
    return ToolSpec(**typed)
