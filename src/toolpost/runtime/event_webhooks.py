"""Send events of the log to webhooks: signed, in order, at least once, from the position of each webhook.

Requests are those of Standard Webhooks (https://www.standardwebhooks.com): a receiver verifies `webhook-signature` over
`webhook-id`, `webhook-timestamp` and the raw body, and knows a repeated delivery by its `webhook-id`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolpost.contracts.errors import StoreError, ToolError
from toolpost.contracts.retries import RetryPolicy
from toolpost.http.response_errors import response_error
from toolpost.runtime.resilience import backoff
from toolpost.runtime.webhook_messages import WebhookMessage
from toolpost.wire.client import HttpClient
from toolpost.wire.messages import Request

if TYPE_CHECKING:
    from collections.abc import Collection

    from toolpost.contracts.events import StoredEvent
    from toolpost.contracts.storage import Store, WebhookProgress
    from toolpost.runtime.pending import PendingActions
    from toolpost.runtime.webhook_receivers import EventWebhook
    from toolpost.wire.network import NetworkPolicy

_log = logging.getLogger("toolpost.events")
_RETRIES = RetryPolicy(wait_exponential_min_s=0.2, wait_exponential_max_s=300.0)
_MOST_DOUBLINGS = 20
_LONGEST_WAIT_S = 3600.0  # even if a receiver requests more
_ATTEMPT_S = 15.0
_ANSWER_BYTES = 64 * 1024
_PAGE = 100
_LOOK_S = 1.0  # other processes write to the log, and may die while they send
_SAVE_S = 0.2  # after a kill, the deliveries of this time are repeated
_LAST_S = 2.0  # for the remaining events when a Toolbox closes
_LAST_EVENT_S = 0.5  # per event at closing: the next process delivers the rest to a slow receiver
_GONE = 410


class EventWebhooks:
    """Follow the event log for every webhook.

    One process of a data folder sends for a webhook. If a receiver is down, requests are retried with backoff. Its
    events stay in the log, and calls and other webhooks do not wait for it.
    """

    def __init__(self, store: Store, pending: PendingActions, network: NetworkPolicy) -> None:
        self._store = store
        self._pending = pending
        self._network = network
        self._client: HttpClient | None = None
        self._senders: dict[str, _Sender] = {}

    async def apply(self, webhooks: Collection[EventWebhook]) -> None:
        """Send only to these webhooks from now on."""
        wanted = {webhook.name: webhook for webhook in webhooks}
        changed = [one for one in self._senders.values() if one.webhook != wanted.get(one.webhook.name)]
        for sender in changed:
            del self._senders[sender.webhook.name]
        await asyncio.gather(*(sender.stop() for sender in changed))
        if wanted and self._client is None:
            self._client = HttpClient(self._network, timeout_s=_ATTEMPT_S, max_bytes=_ANSWER_BYTES, max_redirects=0)
        newest = await self._newest() if wanted else 0
        for name in wanted.keys() - self._senders.keys():
            assert self._client is not None  # noqa: S101 - created above
            sender = _Sender(wanted[name], self._store, self._pending, self._client)
            self._senders[name] = sender
            await sender.start(newest)

    async def states(self) -> list[dict[str, Any]]:
        """Return the state of each webhook, regardless of the process that sends for it."""
        newest = await self._newest()
        rows = await self._store.webhooks.list()
        return [_state(row, newest) for row in rows if row.name in self._senders]

    @property
    def problems(self) -> list[str]:
        """The failures, one sentence per webhook."""
        return [sender.problem for sender in self._senders.values() if sender.problem]

    async def close(self) -> None:
        """Send remaining events for a moment, except to failing receivers; the next process sends the rest."""
        if self._client is None:
            return
        newest = 0
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_LAST_S):
                await self._store.events.flush()
                newest = await self._newest()
                await asyncio.gather(*(sender.reach(newest) for sender in self._senders.values()))
        for sender in self._senders.values():
            if sender.is_behind(newest):
                _log.warning("webhook %r answers slowly; the next process sends what is left", sender.webhook.name)
        await asyncio.gather(*(sender.stop() for sender in self._senders.values()))
        await self._client.close()

    async def _newest(self) -> int:
        events = await self._store.events.read(limit=1, newest=True)
        return events[0].id if events else 0


def _state(row: WebhookProgress, newest: int) -> dict[str, Any]:
    failing = row.failures > 0
    return {
        "name": row.name,
        "state": "ok" if not failing else "failing" if row.next_try_at is not None else "gone",
        "delivered": row.delivered,
        "behind": max(0, newest - row.position),
        "failures": row.failures,
        "error": row.error or None,
        "failing_since": row.failing_since,
        "next_try_at": row.next_try_at,
    }


class _Sender:
    """Send the events of one webhook, one after the other."""

    def __init__(self, webhook: EventWebhook, store: Store, pending: PendingActions, client: HttpClient) -> None:
        self.webhook = webhook
        self._store = store
        self._pending = pending
        self._client = client
        self._progress: WebhookProgress | None = None  # None: another process sends
        self._saved_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()

    async def start(self, newest: int) -> None:
        """Start to send; a new webhook begins after the event `newest`."""
        with suppress(StoreError):  # retried below
            self._progress = await self._store.webhooks.take(self.webhook.name, begin=newest)
        self._task = asyncio.get_running_loop().create_task(self._run(newest))

    async def stop(self) -> None:
        """Stop, and release the webhook to other processes."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with suppress(StoreError):
            if self._progress is not None:
                await self._store.webhooks.save(self._progress)
                await self._store.webhooks.release(self.webhook.name)

    async def reach(self, position: int) -> None:
        """Wait until the webhook has reached an event, unless it is slow or fails, or another process sends."""
        with suppress(TimeoutError):
            while self.is_behind(position):
                self._moved.clear()
                async with asyncio.timeout(_LAST_EVENT_S):
                    await self._moved.wait()

    def is_behind(self, position: int) -> bool:
        """Return whether this process still has to send events up to a position, and sending does not fail."""
        now = self._progress
        return now is not None and now.position < position and not now.failures

    @property
    def problem(self) -> str:
        """The failure as a sentence, or an empty string."""
        now = self._progress
        if now is None or not now.failures:
            return ""
        then = "it is tried again" if now.next_try_at is not None else "it is not tried again before a restart"
        return f"webhook {now.name!r} has failed {now.failures} times in a row, and {then}: {now.error}"

    async def _run(self, newest: int) -> None:
        while True:
            try:
                if self._progress is None:
                    self._progress = await self._store.webhooks.take(self.webhook.name, begin=newest)
                if self._progress is not None:
                    await self._send_new(self._progress)
                    self._moved.set()
                    newest = await self._store.events.wait(max(newest, self._progress.position), timeout_s=_LOOK_S)
                    continue
            except StoreError as error:
                _log.warning("webhook %r waits for the store: %s", self.webhook.name, error)
            self._moved.set()
            await asyncio.sleep(_LOOK_S)

    async def _send_new(self, progress: WebhookProgress) -> None:
        """Send the events after the position."""
        while page := await self._store.events.read(after=progress.position, limit=_PAGE):
            for event in page:
                if self.webhook.wants(event):
                    progress = await self._deliver(event, progress)
                progress = self._progress = replace(progress, position=event.id)
                self._moved.set()
                if time.monotonic() - self._saved_at > _SAVE_S:
                    await self._save(progress)
            await self._save(progress)

    async def _deliver(self, event: StoredEvent, progress: WebhookProgress) -> WebhookProgress:
        """Retry until the receiver has the event."""
        while True:
            try:
                await self._post(event)
            except ToolError as error:
                progress = await self._wait_after(error, progress)
                continue
            if progress.failures:
                _log.info("webhook %r works again", self.webhook.name)
            return replace(
                progress,
                delivered=progress.delivered + 1,
                failures=0,
                error="",
                failing_since=None,
                next_try_at=None,
            )

    async def _post(self, event: StoredEvent) -> None:
        data = await self._pending.describe_event(event, by=f"{event.tenant}:webhook")
        if self.webhook.template is None:
            at = datetime.fromtimestamp(event.at, UTC).isoformat()
            message: Any = {"type": event.code.name, "timestamp": at, "data": {**data, "tenant": event.tenant}}
        else:
            message = WebhookMessage.of(data, console=self.webhook.console).render(self.webhook.template)
        body = json.dumps(message, separators=(",", ":"), default=str).encode()
        # The hash of the event in the chain: unique, and the same for every delivery.
        message_id, timestamp = f"msg_{event.hash[:20]}", int(time.time())
        headers = {
            "Content-Type": "application/json",
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            **dict(self.webhook.headers),
        }
        if self.webhook.keys:
            headers["webhook-signature"] = self.webhook.sign(message_id, timestamp, body)
        request = Request("POST", self.webhook.url, tuple(headers.items()), body, follow="none")
        async with await self._client.send(request) as response:
            answer = await response.read()
            if not 200 <= response.status < 300:
                raise response_error(request.subject, response.status, response.headers, answer)

    async def _wait_after(self, error: ToolError, progress: WebhookProgress) -> WebhookProgress:
        """Store the failure, and wait until the next attempt."""
        tries, now = progress.failures + 1, time.time()
        wait_s = min(backoff(min(tries, _MOST_DOUBLINGS), error, _RETRIES), _LONGEST_WAIT_S)
        is_gone = error.status_code == _GONE
        if tries == 1 or is_gone:
            then = "no longer sent" if is_gone else "kept in the log, and sent when it answers"
            _log.warning("webhook %r fails; its events are %s: %s", self.webhook.name, then, error)
        progress = self._progress = replace(
            progress,
            failures=tries,
            error=str(error)[:500],
            failing_since=progress.failing_since or now,
            next_try_at=None if is_gone else now + wait_s,
        )
        self._moved.set()
        await self._save(progress)
        if is_gone:
            await asyncio.Event().wait()  # until it is cancelled
        await asyncio.sleep(wait_s)
        return progress

    async def _save(self, progress: WebhookProgress) -> None:
        self._saved_at = time.monotonic()
        await self._store.webhooks.save(progress)
