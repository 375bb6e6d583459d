"""The journal in memory."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import JournalEntry
from toolpost.stores.encryption import copy_json


class MemoryJournal:
    """Intents and results in a dict; the owner is this process, so none is ever orphaned."""

    def __init__(self, owner_id: str) -> None:
        self._owner_id = owner_id
        self.entries: dict[tuple[str, str], JournalEntry] = {}

    async def begin(self, entry: JournalEntry) -> None:
        call = copy_json(dict(entry.call), "journal")
        intent = replace(entry, call=call, owner=self._owner_id, done=False, result=None)
        self.entries[entry.call_id, entry.step] = intent

    async def finish(self, call_id: str, step: str, result: Any) -> None:
        entry = self.entries.get((call_id, step))
        if entry is None:
            raise StoreError(f"call {call_id!r}, step {step!r}: a result without an intent; `begin` comes first")
        self.entries[call_id, step] = replace(entry, done=True, result=copy_json(result, "journal"))

    async def forget(self, call_id: str, step: str) -> None:
        self.entries.pop((call_id, step), None)

    async def find(self, call_id: str, step: str) -> JournalEntry | None:
        entry = self.entries.get((call_id, step))
        if entry is None:
            return None
        return replace(entry, call=copy_json(entry.call, "journal"), result=copy_json(entry.result, "journal"))

    async def inner(self, call_id: str) -> list[JournalEntry]:
        return [
            replace(entry, call=copy_json(entry.call, "journal"), result=copy_json(entry.result, "journal"))
            for (id_, step), entry in self.entries.items()
            if id_.startswith(f"{call_id}.") and not step
        ]

    async def adopt_orphans(self) -> list[JournalEntry]:
        return []
