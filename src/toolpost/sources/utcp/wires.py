"""What the calls of one manual go over, and what one call brings along."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from toolpost.contracts.errors import ToolAuthError
from toolpost.sources.utcp.auth_objects import OAuth2Auth
from toolpost.sources.utcp.templates import SocketTemplate, WebTemplate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from toolpost.contracts.calls import Credential
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.spec import JsonSchema
    from toolpost.sources.utcp.templates import CallTemplate
    from toolpost.web.encoding import Pair
    from toolpost.web.sending import Send
    from toolpost.web.tokens import ClientTokens
    from toolpost.wire.client import HttpClient
    from toolpost.wire.commands import Commands

MAX_BYTES = 64 * 1024 * 1024
SHARE_OF_TIME = 0.9  # for what may not end by itself: what came is told before the call is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """What is shared by all tools of a manual.

    `headers` are the operator's own; `written` are the hosts that may see credentials, None where the manual is
    the operator's own and so says it itself.
    """

    source: str
    client: HttpClient
    send: Send
    tokens: ClientTokens
    commands: Commands
    timeout_s: float
    headers: tuple[Pair, ...] = field(default=(), repr=False)
    header_secrets: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    folder: Path | None = None
    written: frozenset[str] | None = None


class Prepared(NamedTuple):
    """A tool that can be called: its template filled in, how errors name it, and what must not be told of it."""

    full_name: str
    template: CallTemplate
    shown: str
    timeout_s: float
    secrets: tuple[str, ...] = ()
    outputs: JsonSchema | None = None

    def __repr__(self) -> str:
        return f"Prepared({self.full_name!r})"


class Asked(NamedTuple):
    """What one call brings along."""

    arguments: Mapping[str, Any]
    credential: Credential
    context: Callable[[], ToolContext]

    def __repr__(self) -> str:
        return f"Asked({list(self.arguments)})"


def hosts_of(template: CallTemplate) -> dict[str, str]:
    """The hosts that a call leads to, each with the address that names it."""
    match template:
        case WebTemplate():
            urls = [template.url, *([template.auth.token_url] if isinstance(template.auth, OAuth2Auth) else [])]
        case SocketTemplate():
            urls = [f"http://{template.host}:{template.port}"]
        case _:
            urls = []
    return {host_of(url): url for url in urls}


def host_of(url: str) -> str:
    """The host of an address, empty when it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def refuse_stranger(prepared: Prepared, wires: Wires, credential: Credential) -> None:
    """Credentials go where an operator wrote, not wherever a manual from the web says."""
    if wires.written is None or not (prepared.secrets or credential.headers or wires.header_secrets):
        return
    for host in hosts_of(prepared.template):
        if host not in wires.written:
            msg = f"the manual of {wires.source!r} wants tool {prepared.full_name!r} called at {host}"
            raise ToolAuthError(
                f"{msg}, with your credentials; if that is right, write base_url: https://{host} into the source"
            )
