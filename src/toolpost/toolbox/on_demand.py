"""Parts of a Toolbox that are created for the first source or setting that needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.configuration.settings import Settings
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.sources import CredentialProvider
    from toolpost.contracts.storage import Store
    from toolpost.runtime.event_webhooks import EventWebhooks
    from toolpost.runtime.pending import PendingActions
    from toolpost.toolbox.accounts import AccountManager
    from toolpost.wire.network import NetworkPolicy


class AccountsOnDemand:
    """The accounts of users; `make` creates the manager for the first source with `auth_type: oauth2_user`."""

    def __init__(self, make: Callable[[], AccountManager]) -> None:
        self._make = make
        self.manager: AccountManager | None = None

    def open(self) -> AccountManager:
        """Return the manager; ConfigError if its settings contradict each other."""
        if self.manager is None:
            self.manager = self._make()
        return self.manager

    def credentials_for(self, config: ExternalToolConfig) -> CredentialProvider:
        """Return the credential provider of an OAuth source."""
        return self.open().credentials_for(config)

    async def resume_waiting(self, actions: PendingActions) -> None:
        """Resume the calls that wait for a completed sign-in."""
        if self.manager is not None:
            await self.manager.resume_waiting(actions)

    async def close(self) -> None:
        """Close the manager, if any."""
        if self.manager is not None:
            await self.manager.close()


class WebhooksOnDemand:
    """Send events to the webhooks of the settings; the sender is created for the first webhook."""

    def __init__(self, store: Store, network: NetworkPolicy, pending: PendingActions) -> None:
        self._store = store
        self._network = network
        self._pending = pending
        self._open: EventWebhooks | None = None

    async def apply(self, settings: Settings) -> None:
        """Send to exactly the enabled webhooks of these settings from now on."""
        console = (settings.server.public_url or "").rstrip("/")
        webhooks = [webhook.to_webhook(console=console) for webhook in settings.webhooks if webhook.enabled]
        if self._open is None:
            if not webhooks:
                return
            from toolpost.runtime.event_webhooks import EventWebhooks  # noqa: PLC0415 - needs an HTTP client

            self._open = EventWebhooks(self._store, self._pending, self._network)
        await self._open.apply(webhooks)

    async def states(self) -> list[dict[str, Any]]:
        """Return the state of each webhook."""
        return [] if self._open is None else await self._open.states()

    @property
    def problems(self) -> list[str]:
        """A sentence for each webhook that fails."""
        return [] if self._open is None else self._open.problems

    async def close(self) -> None:
        """Send the remaining events for a short time, and stop."""
        if self._open is not None:
            await self._open.close()
