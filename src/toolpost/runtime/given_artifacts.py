"""Artifacts of an answerer in the changed arguments of another user's call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolpost.contracts.errors import ToolPermissionError
from toolpost.contracts.storage import ArtifactRef
from toolpost.schema.json_patch import to_pointer
from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from toolpost.contracts.principal import Principal
    from toolpost.contracts.questions import PendingAction
    from toolpost.contracts.storage import ArtifactStore

_NAME = "artifact_id"


async def give_artifacts(
    arguments: Mapping[str, Any], action: PendingAction, store: ArtifactStore, *, by: Principal, at: float
) -> tuple[list[dict[str, Any]], list[ArtifactRef]]:
    """Copy the artifacts of `by` that changed arguments name to the user of the call.

    Return the changes that name the copies, and the copies. A call reads only the artifacts of its own user, and an
    answerer can give only their own. Artifacts that the call named before are not given.
    """
    owner, own = action.asked_by, list[ArtifactRef]()
    for artifact_id in sorted(
        {named for _, named in _named(arguments)} - {named for _, named in _named(action.arguments)}
    ):
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
        "created_at": at,
    }
    copies = {
        one.id: await store.put(await store.read(one.id, tenant=one.tenant, user=one.user), replace(one, **of_call))
        for one in own
    }
    changes = [
        {"op": "replace", "path": to_pointer(path), "value": copies[named].id}
        for path, named in _named(arguments)
        if named in copies
    ]
    return changes, list(copies.values())


def _named(arguments: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield each id that arguments name, at any depth, with its path."""
    left: list[tuple[tuple[str | int, ...], Any]] = [((), dict(arguments))]
    while left:
        path, value = left.pop()
        if is_object(value):
            left += [((*path, name), member) for name, member in value.items()]
        elif is_array(value):
            left += [((*path, at), item) for at, item in enumerate(value)]
        elif path and path[-1] == _NAME and isinstance(value, str):
            yield path, value
