"""Planner state on any table of records."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from msgspec.structs import asdict

from toolpost.contracts.events import EventCode, RemoteBinding, StoredEvent
from toolpost.contracts.principal import Principal
from toolpost.stores.encryption import RowCipher

OF_RUNS = ("event", "binding")  # kinds whose key is the run
_EVENT = StoredEvent.__struct_fields__
_CLAIMED_BY = "claimed_by"


class StateRecord(NamedTuple):
    """Encrypted bytes with their owner (`tenant:user`, or none) and their expiry."""

    body: bytes
    owner: str = ""
    until: float | None = None


class StateTable(Protocol):
    """Stores encrypted records by kind, key and item."""

    async def put(self, kind: str, key: str, item: str, record: StateRecord) -> None:
        """Store a record, in place of an earlier one."""
        ...

    async def add(self, kind: str, key: str, item: str, record: StateRecord) -> bool:
        """Store a record unless there is one; return whether it was stored."""
        ...

    async def all(self, kind: str, key: str) -> list[tuple[str, bytes]]:
        """Return the items and records of a key, ordered by item."""
        ...

    async def replace(self, kind: str, key: str, item: str, record: StateRecord) -> None:
        """Store a record in place of an earlier one; nothing if there is none."""
        ...

    async def of_kind(self, kind: str) -> list[tuple[str, str, bytes]]:
        """Return the keys, items and records of a kind."""
        ...

    async def delete(self, kind: str, keys: Sequence[str]) -> None:
        """Delete all records of these keys."""
        ...

    async def drop_expired(self, kinds: Sequence[str], *, before: float) -> None:
        """Delete the records of these kinds that expired before a time."""
        ...


class EncryptedStateStore:
    """Implements `PlannerStates` on any table.

    A pause is stored under the hash of its token, because the token resumes it. A pause whose payload names its `user`
    is erased with that user; one with `expires_at` is pruned after it expired. `owner_id` returns the ID of this
    process in its claims, and `is_alive` returns whether the process of an owner id still runs.
    """

    def __init__(
        self,
        table: StateTable,
        cipher: RowCipher,
        *,
        owner_id: Callable[[], str],
        is_alive: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._owner_id = owner_id
        self._is_alive = is_alive
        self._table = table
        self._cipher = cipher

    async def save_event(self, event: StoredEvent) -> None:
        data = {**{name: getattr(event, name) for name in _EVENT}, "code": int(event.code)}
        await self._put("event", event.trace_id, f"{event.seq:012d}", {**data, "payload": dict(event.payload)})

    async def load_history(self, trace_id: str) -> Sequence[StoredEvent]:
        return [_event(data) for data in await self._all("event", trace_id)]

    async def save_remote_binding(self, binding: RemoteBinding) -> None:
        item = json.dumps([binding.agent_url, binding.task_id])
        await self._put("binding", binding.trace_id, item, asdict(binding))

    async def load_remote_bindings(self, trace_id: str) -> Sequence[RemoteBinding]:
        return [RemoteBinding(**data) for data in await self._all("binding", trace_id)]

    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        key = _fingerprint(token)
        await self._table.put("pause", key, "", self._pause(key, payload))

    async def load_planner_state(self, token: str) -> dict[str, Any]:
        state = await self._load(token)
        state.pop(_CLAIMED_BY, None)
        return state

    async def claim_planner_state(self, token: str, payload: dict[str, Any]) -> bool:
        key = _fingerprint(token)
        return await self._table.add("pause", key, "", self._pause(key, {**payload, _CLAIMED_BY: self._owner_id()}))

    async def is_claimed(self, token: str) -> bool:
        owner_id = (await self._load(token)).get(_CLAIMED_BY)
        return isinstance(owner_id, str) and await self._is_alive(owner_id)

    async def drop_planner_states(self, tokens: Sequence[str]) -> None:
        await self._table.delete("pause", [_fingerprint(token) for token in tokens])

    async def _load(self, token: str) -> dict[str, Any]:
        states: list[dict[str, Any]] = await self._all("pause", _fingerprint(token))
        return states[0] if states else {}

    def _pause(self, key: str, payload: dict[str, Any]) -> StateRecord:
        user, until = payload.get("user"), payload.get("expires_at")
        body = self._cipher.encrypt(payload, "state", "pause", key, "")
        return StateRecord(body, _owner(user), until if isinstance(until, (int, float)) else None)

    async def _put(self, kind: str, key: str, item: str, value: Any) -> None:
        await self._table.put(kind, key, item, StateRecord(self._cipher.encrypt(value, "state", kind, key, item)))

    async def _all(self, kind: str, key: str) -> list[Any]:
        rows = await self._table.all(kind, key)
        return [self._cipher.decrypt(body, "state", kind, key, item) for item, body in rows]


def _event(data: dict[str, Any]) -> StoredEvent:
    values: dict[str, Any] = {**data, "code": EventCode(data["code"])}
    return StoredEvent(**values)


def _owner(user: object) -> str:
    """Return a user as `tenant:user`; empty when it is not a valid user."""
    try:
        return str(Principal.parse(user)) if isinstance(user, str) else ""
    except ValueError:
        return ""


def _fingerprint(token: str) -> str:
    return sha256(token.encode()).hexdigest()
