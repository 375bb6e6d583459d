"""What the calls of one manual go over, and what one call brings along."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.errors import ToolAuthError, ToolPermissionError
from toolpost.policy.redaction import Redactor
from toolpost.sources.utcp.auth_objects import OAuth2Auth
from toolpost.sources.utcp.templates import SocketTemplate, WebTemplate
from toolpost.wire.guard import HTTP_SCHEMES, WEBSOCKET_SCHEMES, parse_target, split_url
from toolpost.wire.network import host_header

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from toolpost.contracts.calls import Credential
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.spec import JsonSchema
    from toolpost.processes.commands import CommandRunner
    from toolpost.sources.utcp.auth_objects import TemplateTokens
    from toolpost.sources.utcp.http_requests import RequestPlan
    from toolpost.sources.utcp.templates import CallTemplate
    from toolpost.web.encoding import Pair
    from toolpost.web.sending import Send
    from toolpost.wire.client import HttpClient

MAX_BYTES = 64 * 1024 * 1024
SHARE_OF_TIME = 0.9  # for what may not end by itself: what came is told before the call is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """What is shared by all tools of a manual.

    `headers` are the operator's own, each of them a secret; `written` are the origins that may see them and all
    credentials, None where the manual is the operator's own and so says it itself. `leaving` are connections that
    still say goodbye.
    """

    source: str
    client: HttpClient
    send: Send
    tokens: TemplateTokens
    commands: CommandRunner
    timeout_s: float
    headers: tuple[Pair, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    folder: Path | None = None
    written: frozenset[str] | None = None
    leaving: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]], repr=False)

    @property
    def header_secrets(self) -> tuple[str, ...]:
        """What must not be told of the headers."""
        return tuple(value for _, value in self.headers) if self.headers else ()


class Prepared(NamedTuple):
    """A tool that can be called: its template filled in, how errors name it, and what must not be told of it."""

    full_name: str
    template: CallTemplate
    shown: str
    timeout_s: float
    secrets: tuple[str, ...] = ()
    outputs: JsonSchema | None = None
    plan: RequestPlan | None = None

    def __repr__(self) -> str:
        return f"Prepared({self.full_name!r})"


class Asked(NamedTuple):
    """What one call brings along."""

    arguments: Mapping[str, Any]
    credential: Credential
    context: Callable[[], ToolContext]

    def __repr__(self) -> str:
        return f"Asked({list(self.arguments)})"


def addresses_of(template: CallTemplate) -> list[str]:
    """The addresses that a call leads to."""
    match template:
        case WebTemplate():
            return [template.url, *([template.auth.token_url] if isinstance(template.auth, OAuth2Auth) else [])]
        case SocketTemplate(host=host, port=port):
            return [f"http://[{host}]:{port}" if ":" in host and not host.startswith("[") else f"http://{host}:{port}"]
        case _:
            return []


def origin_of(url: str) -> str:
    """Scheme, host and port of an address, empty when it has none; what WebSockets and HTTP share is the same."""
    try:
        target = parse_target(split_url(url)[0], schemes=HTTP_SCHEMES | WEBSOCKET_SCHEMES)
    except ToolPermissionError:
        return ""
    scheme = "https" if target.scheme in ("https", "wss") else "http"
    return f"{scheme}://{host_header(replace(target, scheme=scheme))}"


def refuse_stranger(prepared: Prepared, wires: Wires, credential: Credential) -> None:
    """Credentials go where an operator wrote, not wherever a manual from the web says."""
    if wires.written is None or not (prepared.secrets or credential.headers or wires.headers):
        return
    for origin in map(origin_of, addresses_of(prepared.template)):
        if origin not in wires.written:
            told = Redactor(prepared.secrets).text(origin)
            msg = f"the manual of {wires.source!r} wants tool {prepared.full_name!r} called at {told}"
            raise ToolAuthError(
                f"{msg}, with your headers, variables or credential; if that is right, write base_url: {told} "
                "into the source"
            )
