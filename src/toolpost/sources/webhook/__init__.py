"""Webhooks as tools: those declared in the configuration, and those of the active workflows of an n8n."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.source_kinds import AuthType
from toolpost.sources.base import Detection, ProbeResponse, Transport, is_root, url_below
from toolpost.sources.webhook.options import WebhookOptions

if TYPE_CHECKING:
    from toolpost.wire.messages import Request

_KEY_HEADER = "X-N8N-API-KEY"


class WebhookTransport(Transport):
    """Declared webhooks, or those of an n8n; only an n8n can be detected."""

    name = "webhook"
    options = WebhookOptions
    source_class = "toolpost.sources.webhook.source:WebhookSource"
    requires = ("httptools", "http")

    def probes(self, url: str) -> Iterator[Request]:
        from toolpost.wire.messages import Request  # noqa: PLC0415 - only detection needs it

        if is_root(url):
            yield Request("GET", url_below(url, "rest/settings"))

    def detect(self, response: ProbeResponse) -> Detection | None:
        from toolpost.sources.webhook.n8n_api import looks_like_n8n  # noqa: PLC0415 - only detection needs it

        if response.method != "GET" or not looks_like_n8n(response.status, response.headers, response.body):
            return None
        because = "it answers as n8n does" if response.is_given else "its settings are those of n8n"
        return Detection("an n8n", because)

    def configure(self, config: ExternalToolConfig, detection: Detection) -> ExternalToolConfig:
        """Turn n8n's key into the credential: it is only for n8n's API, not a header of every request."""
        changes: dict[str, Any] = {"options": {"kind": "n8n"}}
        key = next((name for name in config.headers if name.lower() == _KEY_HEADER.lower()), None)
        if key is not None:
            changes["headers"] = {name: value for name, value in config.headers.items() if name != key}
            changes["auth_type"] = AuthType.API_KEY
            changes["auth_config"] = {"api_key": config.headers[key], "header": _KEY_HEADER}
        return super().configure(config, detection).model_copy(update=changes)

    def advice(self, config: ExternalToolConfig) -> str:
        """Request n8n's key, which is needed to list its workflows."""
        if config.read_options(WebhookOptions).kind != "n8n" or config.auth_type is not AuthType.NONE:
            return ""
        return f"n8n lists its workflows only with an API key; add it with --header '{_KEY_HEADER}: ...'"
