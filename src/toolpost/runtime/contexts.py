"""A caller's context across a pause: kept as plain data, without anything secret in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from toolpost.contracts.context import ToolContext
from toolpost.schema.secrets import harmless

if TYPE_CHECKING:
    from collections.abc import Mapping


def keep_context(context: ToolContext | None) -> dict[str, Any] | None:
    """What of a context outlives a pause: where the call may write, and the plain, harmless part of the rest."""
    if context is None:
        return None
    paths = context.allowed_paths
    own = {} if context.inherits_paths else {"allowed_paths": None if paths is None else list(paths)}
    return {
        **own,
        "user_id": context.user_id,
        "trace_id": context.trace_id,
        "memory_dir": context.memory_dir,
        "session_dir": context.session_dir,
        "llm_context": plain(context.llm_context),
        "tool_context": plain(context.tool_context),
    }


def restore_context(kept: Mapping[str, Any] | None) -> ToolContext | None:
    """The context that was kept."""
    return None if kept is None else ToolContext(**kept)


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The members that are JSON, without what stands under secret-like names, however deep."""
    kept: dict[str, Any] = {}
    for name, value in values.items():
        try:
            kept |= json.loads(json.dumps(harmless({name: value}), allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            continue
    return kept
