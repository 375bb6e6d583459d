"""Webhooks: their definitions, the tools for those declared in the configuration, and the request of a call."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from msgspec import Struct

from toolpost.catalog.specs import closed_schema, declared_spec
from toolpost.contracts.errors import ConfigError, ToolValidationError
from toolpost.contracts.spec import ToolSpec, ToolTarget
from toolpost.http.encoding import Pair, UnsendableError, compact_json, format_value, percent_encode, split_query
from toolpost.schema.json_values import is_array
from toolpost.sources.requests import PlannedRequest
from toolpost.sources.webhook.options import WebhookSignature, WebhookTool

_ABSOLUTE_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SAFE_CHARS = "/:@!$&'()*+,;=%~"
BODILESS_METHODS = frozenset({"GET", "HEAD", "DELETE"})
_DOT_SEGMENTS = frozenset({".", ".."})
_TIMESTAMP_PLACEHOLDER = "{timestamp}"
_KIND = "webhook"
# The connection itself as a tool that accepts any object.
CONNECTION_TOOL = {"call": WebhookTool(description="Call the webhook; the arguments are the JSON that it is sent.")}


class Hook(Struct, frozen=True, kw_only=True):
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


class HookDefinition(Struct, frozen=True, kw_only=True):
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
        raise ConfigError(
            f"the webhook path {below or base.path!r} contains a segment '.' or '..'; write the resolved path"
        )
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
            raise ConfigError(f"options.tools.{name} of source {source!r}: {error}") from error
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


def with_keyed_replay(tool: WebhookTool) -> WebhookTool:
    """Set `replay` to "keyed" for a webhook with an idempotency header, so that failed calls may be retried."""
    if tool.idempotency_header is None or tool.replay is not None:
        return tool
    return tool.model_copy(update={"replay": "keyed"})


def build_request(
    hook: Hook, arguments: Mapping[str, Any], *, key: str = "", signature: WebhookSignature | None = None
) -> PlannedRequest:
    """Build the request of a call; `key` is the idempotency key, the same for every retry."""
    remaining = {name: value for name, value in arguments.items() if name not in hook.slots}
    bodiless = hook.method in BODILESS_METHODS
    body = None if bodiless else _json_body(remaining)
    headers: list[Pair] = [("Accept", "application/json, */*;q=0.8")]
    if body is not None:
        headers.append(("Content-Type", "application/json"))
    if hook.key_header is not None:
        headers.append((hook.key_header, key))
    if signature is not None:
        headers += signature_headers(signature, body or b"", now=time.time())
    return PlannedRequest(
        method=hook.method,
        address=_fill_path(hook, arguments),
        query=(*hook.query, *(_query_pairs(remaining) if bodiless else ())),
        headers=tuple(headers),
        body=body,
    )


def _json_body(arguments: Mapping[str, Any]) -> bytes:
    try:
        return compact_json(arguments).encode()
    except UnsendableError as error:
        raise ToolValidationError(f"the arguments cannot be sent: {error}") from error


def _fill_path(hook: Hook, arguments: Mapping[str, Any]) -> str:
    """Fill the path parameters; refuse values that would change the path."""
    if not hook.slots:
        return hook.address
    slots = {f":{slot}" for slot in hook.slots}
    segments = hook.address.split("/")
    return "/".join(_path_segment(one[1:], arguments) if one in slots else one for one in segments)


def _path_segment(name: str, arguments: Mapping[str, Any]) -> str:
    text = _encode(name, arguments.get(name))
    if text in ("", ".", "..") or "%2F" in text:  # servers decode a slash before they split the path
        raise ToolValidationError(f'{name}: invalid path segment; it must not be empty, ".", ".." or contain "/"')
    return text


def _query_pairs(arguments: Mapping[str, Any]) -> Iterator[Pair]:
    for name, value in arguments.items():
        for item in value if is_array(value) else [value]:
            if item is not None:
                yield _encode(name, name), _encode(name, item)


def _encode(name: str, value: Any) -> str:
    try:
        return percent_encode(format_value(value))
    except ValueError as error:  # a lone surrogate cannot be encoded
        raise ToolValidationError(f"{name}: {error}") from error


def signature_headers(signature: WebhookSignature, body: bytes, *, now: float) -> tuple[Pair, ...]:
    """Return the HMAC signature header of a body, and the timestamp header if there is one.

    A timestamp is signed with the body against replay. It goes into a separate header, or into the prefix in
    place of `{timestamp}`, as Stripe does.
    """
    timestamp = str(int(now))
    has_timestamp = signature.timestamp_header is not None or _TIMESTAMP_PLACEHOLDER in signature.prefix
    signed = f"{timestamp}.".encode() + body if has_timestamp else body
    digest = hmac.new(signature.secret.encode(), signed, getattr(hashlib, signature.algorithm)).digest()
    encoded = digest.hex() if signature.encoding == "hex" else base64.b64encode(digest).decode()
    headers: list[Pair] = [(signature.header, signature.prefix.replace(_TIMESTAMP_PLACEHOLDER, timestamp) + encoded)]
    if signature.timestamp_header is not None:
        headers.append((signature.timestamp_header, timestamp))
    return tuple(headers)
