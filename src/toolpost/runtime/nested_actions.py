"""Pending actions of calls that wait for each other: a call within a tool, and the call of that tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.runtime.pauses import inner_calls

if TYPE_CHECKING:
    from toolpost.contracts.questions import PendingAction, PendingStatus
    from toolpost.contracts.storage import PendingStore


async def outer_of(
    pending: PendingStore, action: PendingAction, *, status: PendingStatus | None = None
) -> PendingAction | None:
    """Return the newest action of the call that waits, or waited, for the call of this action."""
    outer_id = action.call_id.rpartition(".")[0]
    if not outer_id:
        return None
    actions = await pending.list(tenant=action.asked_by.tenant, status=status, call_id=outer_id)
    return next((one for one in actions if action.call_id in inner_calls(one)), None)


async def ended_inside(pending: PendingStore, action: PendingAction) -> PendingAction | None:
    """Return the action of a nested call that has ended although the call of this action waits for it.

    Two nested calls may be answered concurrently: when the second ended, no call was waiting for it yet.
    """
    tenant = action.asked_by.tenant
    for waiting in await pending.list(tenant=tenant, call_id=action.call_id, limit=1):
        for call_id in inner_calls(waiting):
            for inner in await pending.list(tenant=tenant, status=None, call_id=call_id, limit=1):
                if has_ended(inner):
                    return inner
    return None


def has_ended(action: PendingAction) -> bool:
    """Return whether the call of an action has an outcome that is not another pause."""
    return action.outcome is not None and action.outcome["status"] != "paused"
