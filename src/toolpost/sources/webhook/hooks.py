"""Webhook definitions, and the tools for webhooks declared in the configuration."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from toolpost.catalog.specs import closed_schema, declared_spec
from toolpost.contracts.config import WebhookTool
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.spec import ToolTarget
from toolpost.web.requests import split_query

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolpost.contracts.spec import ToolSpec
    from toolpost.web.encoding import Pair

_ABSOLUTE_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SAFE_CHARS = "/:@!$&'()*+,;=%~"
_DOT_SEGMENTS = frozenset({".", ".."})
_KIND = "webhook"
_ANY_OBJECT = WebhookTool(description="Call the webhook; the arguments are the JSON that it is sent.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """The request of a webhook.

    `slots` are the path parameters (`:name`) and `key_header` carries the idempotency key. For n8n, `workflow` is
    the workflow's name, `mode` its response mode and `login` the authentication of its Webhook node.
    """

    method: str
    address: str
    query: tuple[Pair, ...] = ()
    slots: tuple[str, ...] = ()
    key_header: str | None = None
    timeout_s: float | None = None
    is_n8n: bool = False
    workflow: str = ""
    mode: str = ""
    login: str = ""

    @property
    def target(self) -> ToolTarget:
        """Return the tool target, which approvals are bound to."""
        query = "&".join("=".join(pair) for pair in self.query)
        url = f"{self.address}?{query}" if query else self.address
        return ToolTarget.of("webhook", f"{self.method} {url}", slots=self.slots, workflow=self.workflow)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookDefinition:
    """A webhook with the name and spec of its tool."""

    name: str
    spec: ToolSpec
    hook: Hook


def is_absolute_url(url: str) -> bool:
    """Return whether a URL has a scheme and a host."""
    return _ABSOLUTE_URL.match(url) is not None


def resolve_url(connection: str, url: str) -> tuple[str, tuple[Pair, ...]]:
    """Resolve a URL or a path below the connection; return the address and its query. Dot segments are refused."""
    base, path = (urlsplit(url), "") if is_absolute_url(url) else (urlsplit(connection), url)
    below, _, query = path.partition("#")[0].partition("?")
    full_path = f"{base.path.rstrip('/')}/{below.lstrip('/')}" if below else base.path or "/"
    if not _DOT_SEGMENTS.isdisjoint(full_path.split("/")):
        raise ConfigError(f"the webhook path {below or base.path!r} has a step '.' or '..'; write the path out")
    address = f"{base.scheme}://{base.netloc}{quote(full_path, safe=_SAFE_CHARS)}"
    return address, (*split_query(base.query), *split_query(query))


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of a URL."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").lower(), parts.port or {"http": 80, "https": 443}.get(scheme)


def declared_hooks(
    source: str, connection: str, tools: Mapping[str, WebhookTool], *, is_n8n: bool = False
) -> Iterator[HookDefinition]:
    """Yield a definition for each declared tool; raise a ConfigError that names an invalid one."""
    for name, tool in tools.items():
        try:
            address, query = resolve_url(connection, tool.url)
        except ConfigError as error:
            raise ConfigError(f"webhook.tools.{name} of source {source!r}: {error}") from error
        closed = tool.model_copy(update={"input_schema": closed_schema(tool.input_schema)})
        hook = Hook(
            method=tool.method,
            address=address,
            query=query,
            key_header=tool.idempotency_header,
            timeout_s=tool.timeout_s,
            is_n8n=is_n8n,
        )
        extra = {"method": tool.method}
        spec = declared_spec(source, name, tool=with_keyed_replay(closed), kind=_KIND, extra=extra, target=hook.target)
        yield HookDefinition(name=name, spec=spec, hook=hook)


def connection_hook(source: str, connection: str) -> Iterator[HookDefinition]:
    """Yield the connection itself as a tool that accepts any object."""
    return declared_hooks(source, connection, {"call": _ANY_OBJECT})


def with_keyed_replay(tool: WebhookTool) -> WebhookTool:
    """Set `replay` to "keyed" for a webhook with an idempotency header, so that failed calls may be retried."""
    if tool.idempotency_header is None or tool.replay is not None:
        return tool
    return tool.model_copy(update={"replay": "keyed"})
