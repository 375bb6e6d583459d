"""Artifacts that an answerer puts into the changed arguments of somebody else's call."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolpost.contracts.errors import ToolPermissionError
from toolpost.contracts.storage import ArtifactRef
from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from toolpost.contracts.principal import Principal
    from toolpost.contracts.questions import PendingAction
    from toolpost.contracts.storage import ArtifactStore

_NAME = "artifact_id"


async def give_artifacts(
    arguments: Mapping[str, Any], action: PendingAction, store: ArtifactStore, *, by: Principal
) -> tuple[dict[str, Any], list[ArtifactRef]]:
    """Copy the artifacts of `by` that arguments name to the user of the call; return arguments that name the copies.

    A call reads those of its own user alone, and an answerer gives away no others than her own. Also return the copies.
    """
    owner, given, own = action.asked_by, dict(arguments), list[ArtifactRef]()
    for artifact_id in _named(given):
        found = await store.info(artifact_id, tenant=owner.tenant)
        if found is None or found.user == owner.user:
            continue
        if found.user != by.user:
            message = f"artifact {artifact_id!r} is neither yours nor of {owner}, who made the call; upload it yourself"
            raise ToolPermissionError(message, tool_name=action.tool_name, code="artifact_not_yours")
        own.append(found)
    of_call: dict[str, Any] = {
        "user": owner.user,
        "run_id": action.run_id,
        "call_id": action.call_id,
        "created_at": time.time(),
    }
    copies = {
        one.id: await store.put(await store.read(one.id, tenant=one.tenant, user=one.user), replace(one, **of_call))
        for one in own
    }
    renamed: dict[str, Any] = _renamed(given, {old: copy.id for old, copy in copies.items()}) if copies else given
    return renamed, list(copies.values())


def _named(value: Any) -> set[str]:
    """Return the ids that a value names, at any depth."""
    found, left = set[str](), [value]
    while left:
        one = left.pop()
        if is_object(one):
            left += one.values()
            named = one.get(_NAME)
            found |= {named} if isinstance(named, str) else set()
        elif is_array(one):
            left += one
    return found


def _renamed(value: Any, ids: Mapping[str, str]) -> Any:
    if is_object(value):
        return {
            name: ids.get(member, member) if name == _NAME and isinstance(member, str) else _renamed(member, ids)
            for name, member in value.items()
        }
    return [_renamed(item, ids) for item in value] if is_array(value) else value
