"""The webhooks of a Toolbox, opened for the first that is configured, which may come with a reload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.storage import Store
    from toolpost.runtime.event_emitter import EventEmitter
    from toolpost.runtime.event_webhooks import EventWebhooks
    from toolpost.runtime.pending import PendingActions
    from toolpost.wire.network import NetworkPolicy


class WebhooksOnDemand:
    """Send events to the webhooks of the settings."""

    def __init__(self, store: Store, emitter: EventEmitter, network: NetworkPolicy) -> None:
        self._store = store
        self._emitter = emitter
        self._network = network
        self._open: EventWebhooks | None = None

    async def apply(self, settings: Settings, pending: PendingActions) -> None:
        """Send to the webhooks that are enabled from now on, and to no others."""
        webhooks = [webhook.to_webhook() for webhook in settings.webhooks if webhook.enabled]
        if self._open is None:
            if not webhooks:
                return
            from toolpost.runtime.event_webhooks import EventWebhooks  # noqa: PLC0415 - few need an HTTP client at once

            self._open = EventWebhooks(self._store, pending, self._network)
            self._emitter.add_sink(self._open)
        await self._open.apply(webhooks)

    async def states(self) -> list[dict[str, Any]]:
        """Return how each webhook stands, by name."""
        return [] if self._open is None else await self._open.states()

    @property
    def problems(self) -> list[str]:
        """What fails, a sentence for each webhook."""
        return [] if self._open is None else self._open.problems

    async def close(self) -> None:
        """Send what is left, for a moment."""
        if self._open is not None:
            await self._open.close()
