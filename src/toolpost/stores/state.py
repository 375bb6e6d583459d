"""A planner's memory: its events, its remote halves and its pauses, sealed on a shelf."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, fields
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from toolpost.contracts.events import EventCode, RemoteBinding, StoredEvent
from toolpost.contracts.principal import Principal
from toolpost.stores.reader import Reader
from toolpost.stores.sealing import RowSealer
from toolpost.stores.writer import Writer

OF_RUNS = ("event", "binding")  # kinds whose key is the run
_EVENT = tuple(field.name for field in fields(StoredEvent))
_ROW = "INTO state (kind, key, item, body, owner, until) VALUES (?, ?, ?, ?, ?, ?)"


class Document(NamedTuple):
    """Sealed bytes, whose they are (`tenant:user`, or nobody's), and until when they count."""

    body: bytes
    owner: str = ""
    until: float | None = None


class Shelf(Protocol):
    """Where sealed documents stand: by kind, key and item."""

    async def put(self, kind: str, key: str, item: str, document: Document) -> None:
        """Keep a document; replaces the one that stood there."""
        ...

    async def add(self, kind: str, key: str, item: str, document: Document) -> bool:
        """Keep a document where none stands; whether that was so."""
        ...

    async def all(self, kind: str, key: str) -> list[tuple[str, bytes]]:
        """The documents under a key with their items, in the order of the items."""
        ...


class SealedStateStore:
    """Fulfils `StateStore` and `PlannerStateStore` on any shelf.

    A pause's token resumes it, so only its hash is kept. One whose payload names its `user` is forgotten with that
    person; one with `expires_at` goes when that is longer ago than things are kept.
    """

    def __init__(self, shelf: Shelf, sealer: RowSealer) -> None:
        self._shelf = shelf
        self._sealer = sealer

    async def save_event(self, event: StoredEvent) -> None:
        data = {**{name: getattr(event, name) for name in _EVENT}, "code": int(event.code)}
        await self._put("event", event.trace_id, f"{event.seq:012d}", {**data, "payload": dict(event.payload)})

    async def load_history(self, trace_id: str) -> Sequence[StoredEvent]:
        return [_event(data) for data in await self._all("event", trace_id)]

    async def save_remote_binding(self, binding: RemoteBinding) -> None:
        item = json.dumps([binding.agent_url, binding.task_id])
        await self._put("binding", binding.trace_id, item, asdict(binding))

    async def load_remote_bindings(self, trace_id: str) -> Sequence[RemoteBinding]:
        """Where remote agents keep their sides of a run."""
        return [RemoteBinding(**data) for data in await self._all("binding", trace_id)]

    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        key = _fingerprint(token)
        await self._shelf.put("pause", key, "", self._pause(key, payload))

    async def load_planner_state(self, token: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = await self._all("pause", _fingerprint(token))
        return found[0] if found else {}

    async def claim_planner_state(self, token: str, payload: dict[str, Any]) -> bool:
        """Keep a document under a token that has none yet; True for exactly one of those who try."""
        key = _fingerprint(token)
        return await self._shelf.add("pause", key, "", self._pause(key, payload))

    def _pause(self, key: str, payload: dict[str, Any]) -> Document:
        user, until = payload.get("user"), payload.get("expires_at")
        body = self._sealer.seal(payload, "state", "pause", key, "")
        return Document(body, _owner(user), until if isinstance(until, (int, float)) else None)

    async def _put(self, kind: str, key: str, item: str, value: Any) -> None:
        await self._shelf.put(kind, key, item, Document(self._sealer.seal(value, "state", kind, key, item)))

    async def _all(self, kind: str, key: str) -> list[Any]:
        found = await self._shelf.all(kind, key)
        return [self._sealer.open(body, "state", kind, key, item) for item, body in found]


class SQLiteShelf:
    """The shelf in a table."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def put(self, kind: str, key: str, item: str, document: Document) -> None:
        sql = f"INSERT OR REPLACE {_ROW}"
        await self._writer.submit(lambda db: db.execute(sql, (kind, key, item, *document)).close())

    async def add(self, kind: str, key: str, item: str, document: Document) -> bool:
        sql = f"INSERT OR IGNORE {_ROW}"
        return await self._writer.submit(lambda db: db.execute(sql, (kind, key, item, *document)).rowcount) == 1

    async def all(self, kind: str, key: str) -> list[tuple[str, bytes]]:
        sql = "SELECT item, body FROM state WHERE kind = ? AND key = ? ORDER BY item"
        return await self._reader.query(lambda db: db.execute(sql, (kind, key)).fetchall())


class MemoryShelf:
    """The shelf in a dict."""

    def __init__(self) -> None:
        self._documents: dict[tuple[str, str], dict[str, Document]] = {}

    async def put(self, kind: str, key: str, item: str, document: Document) -> None:
        self._documents.setdefault((kind, key), {})[item] = document

    async def add(self, kind: str, key: str, item: str, document: Document) -> bool:
        return self._documents.setdefault((kind, key), {}).setdefault(item, document) is document

    async def all(self, kind: str, key: str) -> list[tuple[str, bytes]]:
        return sorted((item, document.body) for item, document in self._documents.get((kind, key), {}).items())

    def remove(self, *, runs: Collection[str] = (), owner: str = "", before: float = float("-inf")) -> int:
        """Forget what belongs to these runs or to this person, or counts no more since before a time; how many."""
        doomed = [
            name
            for name, documents in self._documents.items()
            if (name[0] in OF_RUNS and name[1] in runs)
            or any((owner and each.owner == owner) or _is_over(each, before) for each in documents.values())
        ]
        return sum(len(self._documents.pop(name)) for name in doomed)


def _is_over(document: Document, before: float) -> bool:
    return document.until is not None and document.until < before


def _event(data: dict[str, Any]) -> StoredEvent:
    values: dict[str, Any] = {**data, "code": EventCode(data["code"])}
    return StoredEvent(**values)


def _owner(user: object) -> str:
    """A person as the other tables know them."""
    try:
        return str(Principal.parse(user)) if isinstance(user, str) else ""
    except ValueError:
        return ""


def _fingerprint(token: str) -> str:
    return sha256(token.encode()).hexdigest()
