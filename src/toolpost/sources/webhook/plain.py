"""Webhooks that an operator wrote down, as tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.catalog.declared import closed_schema, declared_spec
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.options import WebhookTool
from toolpost.sources.webhook.hook import Found, Hook, address_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KIND = "webhook"
_ANYTHING = WebhookTool(description="Call the webhook; the arguments are the JSON that it is sent.")


def declared_hooks(
    source: str, connection: str, tools: Mapping[str, WebhookTool], *, is_n8n: bool = False
) -> Iterator[Found]:
    """A tool for each that is written down; ConfigError names the one that cannot be called."""
    for name, tool in tools.items():
        try:
            address, query = address_of(connection, tool.url)
        except ConfigError as error:
            raise ConfigError(f"webhook.tools.{name} of source {source!r}: {error}") from error
        named = tool.model_copy(update={"input_schema": closed_schema(tool.input_schema)})
        hook = Hook(
            method=tool.method,
            address=address,
            query=query,
            key_header=tool.idempotency_header,
            timeout_s=tool.timeout_s,
            is_n8n=is_n8n,
        )
        extra = {"method": tool.method}
        spec = declared_spec(source, name, tool=keyed(named), kind=KIND, extra=extra, target=hook.target)
        yield Found(name=name, spec=spec, hook=hook)


def only_hook(source: str, connection: str) -> Iterator[Found]:
    """The connection itself as a tool that takes any object."""
    return declared_hooks(source, connection, {"call": _ANYTHING})


def keyed(tool: WebhookTool) -> WebhookTool:
    """A webhook that is told a key with each call knows a repetition, so that a failed call may be repeated."""
    if tool.idempotency_header is None or tool.replay is not None:
        return tool
    return tool.model_copy(update={"replay": "keyed"})
