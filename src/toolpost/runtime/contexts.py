"""A caller's context across a pause: kept as plain data, without anything secret in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from toolpost.contracts.context import ToolContext
from toolpost.schema.secrets import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Mapping


def keep_context(context: ToolContext | None) -> dict[str, Any] | None:
    """What of a context outlives a pause: where the call may write, and the plain, harmless part of the rest."""
    if context is None:
        return None
    paths = context.allowed_paths
    return {
        "user_id": context.user_id,
        "trace_id": context.trace_id,
        "allowed_paths": None if paths is None else list(paths),
        "memory_dir": context.memory_dir,
        "session_dir": context.session_dir,
        "llm_context": _plain(context.llm_context),
        "tool_context": _plain(context.tool_context),
    }


def restore_context(kept: Mapping[str, Any] | None) -> ToolContext | None:
    """The context that was kept."""
    return None if kept is None else ToolContext(**kept)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not is_secret_name(key) and _is_json(value)}


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
