"""Webhooks for events: their filters, addresses and signatures."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from fnmatch import fnmatchcase

from msgspec import Struct

from toolpost.contracts.events import StoredEvent
from toolpost.contracts.records import represent
from toolpost.runtime.webhook_messages import Template

SECRET_PREFIX = "whsec_"  # noqa: S105 - a prefix of secrets
_SHORTEST_KEY = 24  # bytes, by the specification


class EventWebhook(Struct, frozen=True, kw_only=True):
    """A receiver of events; patterns (`*`, `?`) of types, tools and `tenant:user` must all match.

    The receiver may verify with any of `keys`, the newest first; without keys, requests are not signed. With a
    `template`, the body is a message for people, and links to the console at `console`.
    """

    name: str
    url: str
    keys: tuple[bytes, ...]
    template: Template | None = None
    headers: tuple[tuple[str, str], ...] = ()
    console: str = ""
    events: tuple[str, ...] = ("*",)
    tools: tuple[str, ...] = ("*",)
    principals: tuple[str, ...] = ("*",)

    def __repr__(self) -> str:
        return represent(self, without=("url", "keys", "headers"))

    def wants(self, event: StoredEvent) -> bool:
        """Return whether an event matches the filters of this webhook."""
        return (
            _matches(event.code.name, self.events)
            and _matches(str(event.payload.get("tool_name", "")), self.tools)
            and _matches(f"{event.tenant}:{event.user}", self.principals)
        )

    def sign(self, message_id: str, timestamp: int, body: bytes) -> str:
        """Return the value of `webhook-signature`, with one signature per key."""
        signed = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
        digests = (hmac.new(key, signed, hashlib.sha256).digest() for key in self.keys)
        return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)


def _matches(text: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def webhook_key(secret: str) -> bytes:
    """Return the key of a secret; ValueError if it is too short or not base64."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        key = b""
    if len(key) < _SHORTEST_KEY:
        raise ValueError(f"must be {SECRET_PREFIX} and the base64 of at least {_SHORTEST_KEY} random bytes")
    return key
