"""Find the secrets that settings contain literally, to redact them everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from toolpost.configuration.settings import Settings

# Shorter values ("1", "on") are not secrets, and masking them would make texts unreadable.
MIN_SECRET = 4
_SECRET_NAME = re.compile(r"(^|_)(key|token|secret|password|passwd|cookie)$", re.IGNORECASE)


def literal_secrets(settings: Settings) -> Iterator[str]:
    """Yield every key, token and password that settings contain literally."""
    tools = settings.tools
    links = [*tools.web_search.chain, *tools.web_fetch.chain, *tools.retrieval.chain]
    keys = [tools.web_search.api_key, *(link.api_key for link in links)]
    keys += [secret for webhook in settings.webhooks for secret in (webhook.secret, webhook.previous_secret)]
    keys += [link.embeddings.api_key for link in links if link.embeddings is not None]
    yield from (key.get_secret_value().strip() for key in keys if key is not None)
    for webhook in settings.webhooks:
        for value in webhook.headers.values():  # without the scheme of "Bearer TOKEN"
            yield value.get_secret_value().rpartition(" ")[2]
    if settings.database is not None and (password := urlsplit(settings.database).password):
        yield from (password, unquote(password))
    for source in settings.all_sources():
        yield from _secret_values({**source.auth_config, **source.env})


def _secret_values(named: Mapping[str, Any]) -> Iterator[str]:
    for name, value in named.items():
        if isinstance(value, Mapping):
            yield from _secret_values(cast("Mapping[str, Any]", value))
        elif isinstance(value, str) and len(value) >= MIN_SECRET and _SECRET_NAME.search(name):
            yield value
