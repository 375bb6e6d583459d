"""Progress of webhooks, in memory."""

from __future__ import annotations

from typing import TypeAlias

from msgspec.structs import replace

from toolpost.contracts.storage import WebhookProgress

Rows: TypeAlias = list[WebhookProgress]  # The store's own `list` hides the builtin one.


class MemoryWebhookStore:
    """Progress of webhooks for as long as the process lives."""

    def __init__(self) -> None:
        self._rows: dict[str, WebhookProgress] = {}

    async def take(self, name: str, *, begin: int) -> WebhookProgress | None:
        return self._rows.setdefault(name, WebhookProgress(name=name, position=begin))

    async def save(self, progress: WebhookProgress) -> bool:
        self._rows[progress.name] = replace(progress)
        return True

    async def release(self, name: str) -> None:
        """Do nothing, because no other process can send."""

    async def list(self) -> Rows:
        return [self._rows[name] for name in sorted(self._rows)]
