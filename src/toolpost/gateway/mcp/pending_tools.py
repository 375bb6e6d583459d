"""Tools and results for MCP clients that cannot be prompted: they poll their pending calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mcp_types import CallToolRequestParams

from toolpost.contracts.outcomes import OWN_META, Outcome, Paused
from toolpost.contracts.principal import Principal
from toolpost.gateway.mcp.elicitation import where_to_answer
from toolpost.gateway.mcp.pauses import PausedCalls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.spec import ToolSpec
    from toolpost.gateway.mcp.elicitation import OptionsOf
    from toolpost.toolbox.box import Toolbox

_STATUS = "pending_status"
_WAIT = "pending_wait"
_LONGEST_WAIT_S = 120.0
_MOST_LISTED = 20
_MOST_SEEN = 200  # including those outside the client's view
_PENDING_ID = {"pending_id": {"type": "string", "description": "The ID in the result of the pending call"}}
PENDING_TOOLS: list[dict[str, Any]] = [
    {
        "name": _STATUS,
        "description": "Return the state or outcome of a call that waits for a person. Without an ID, list them.",
        "inputSchema": {"type": "object", "properties": _PENDING_ID},
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    {
        "name": _WAIT,
        "description": "Wait until a person has answered an earlier call of yours, and return its result.",
        "inputSchema": {
            "type": "object",
            "properties": {**_PENDING_ID, "timeout_s": {"type": "number", "minimum": 0, "maximum": _LONGEST_WAIT_S}},
            "required": ["pending_id"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
]


class PendingTools:
    """The tools `pending_status` and `pending_wait`, for clients that cannot be prompted."""

    def __init__(self, box: Toolbox, paused: PausedCalls) -> None:
        self._box = box
        self._pending = box.pending
        self._paused = paused

    def has(self, name: str) -> bool:
        """Return whether this is `pending_status` or `pending_wait`, and the catalog has no tool of that name."""
        return name in (_STATUS, _WAIT) and not self._box.registry.has(name)

    async def call(self, params: CallToolRequestParams, user: str) -> Outcome | dict[str, Any]:
        """Return the outcome of a pending call, or the list of them; `pending_wait` waits for an answer."""
        # Null is the same as absent, as in the arguments of any tool.
        given = {name: value for name, value in (params.arguments or {}).items() if value is not None}
        pending_id, wait_s = given.get("pending_id"), given.get("timeout_s", self._paused.wait_s)
        if pending_id is None and params.name == _STATUS:
            return await self._list(user)
        if not isinstance(pending_id, str) or not isinstance(wait_s, int | float):
            return _text(f"{params.name} needs pending_id, a string, and accepts timeout_s, a number", is_error=True)
        action = await self._paused.find_own(pending_id, user)
        if action is None:
            return _text(f"none of your calls is pending as {pending_id!r}; {_STATUS} lists them", is_error=True)
        wait = min(max(0.0, wait_s), _LONGEST_WAIT_S) if params.name == _WAIT else 0
        return await self._pending.outcome(pending_id, by=user, wait_s=wait)

    async def _list(self, user: str) -> dict[str, Any]:
        listed = await self._pending.list(by=user, status=None, user=Principal.parse(user).user, limit=_MOST_SEEN)
        found = [action for action in listed if await self._paused.is_own(action, user)]
        lines = list[str]()
        for action in found[:_MOST_LISTED]:
            arguments = json.dumps(dict(action.question.arguments), ensure_ascii=False)
            lines.append(f"{action.id} {action.tool_name} {arguments}: {action.status}")
        return _text("\n".join(lines) or "none of your calls is pending")


def _text(text: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def pending_result(paused: Paused, spec: ToolSpec, card: Mapping[str, Any], options: OptionsOf) -> dict[str, Any]:
    """Return the result of a pending call: its question, the command that answers it, and how to get the outcome.

    The pending action in `_meta` is for hosts that show it to their user. Some hosts pass the whole result to their
    model, so the sign-in link is removed from it.

    The result is an error if the tool has an output schema, because clients reject it without structured content.
    """
    text = (
        "This call waits for a person and runs once it is answered; do not repeat it. "
        f"{where_to_answer(paused, options)}\n"
        f"To get its result, call {_WAIT} with pending_id: {paused.pending_id}"
    )
    shown: Mapping[str, Any] = {**card, "payload": {}} if paused.question.kind == "consent" else card
    meta: dict[str, Any] = {
        f"{OWN_META}pending_id": paused.pending_id,
        f"{OWN_META}run_id": paused.run_id,
        f"{OWN_META}card": shown,
    }
    if others := paused.questions[1:]:
        meta[f"{OWN_META}others"] = [one.to_dict() for one in others]
    return {"content": [{"type": "text", "text": text}], "isError": spec.output_schema is not None, "_meta": meta}
