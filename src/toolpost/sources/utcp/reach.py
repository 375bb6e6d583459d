"""The connections of one source: the wires of each manual, bound by where that manual came from."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.context import ToolContext
from toolpost.processes.commands import CommandRunner
from toolpost.schema.jsontypes import is_object
from toolpost.sources.utcp.auth_objects import TemplateTokens
from toolpost.sources.utcp.http_requests import RequestPlan
from toolpost.sources.utcp.stream_calls import opened
from toolpost.sources.utcp.wires import MAX_BYTES, Asked, Prepared, Wires, addresses_of, origin_of
from toolpost.web.sending import sender
from toolpost.wire.client import HttpClient
from toolpost.wire.guard import split_url
from toolpost.wire.http import default_transport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from toolpost.contracts.calls import Credential
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.sources.utcp.templates import CallTemplate, HttpTemplate
    from toolpost.wire.network import NetworkPolicy
    from toolpost.wire.transports import HttpTransport

_DOCUMENT_S = 60.0
_SCHEMES = ("http://", "https://", "ws://", "wss://")


class RemoteWires(NamedTuple):
    """The wires of a manual from elsewhere: for calls that lead only to what the operator wrote, and for all others."""

    known: Wires
    bound: Wires
    written: frozenset[str]

    def of(self, template: CallTemplate) -> Wires:
        """Those for one template."""
        return self.known if {*map(origin_of, addresses_of(template))} <= self.written else self.bound


class Reach:
    """Makes wires, all over the same connections, and closes them together."""

    def __init__(self, config: ExternalToolConfig, credential: Credential, network: NetworkPolicy) -> None:
        self._config = config
        self._credential = credential
        self._network = network
        self._transport: HttpTransport | None = None
        self._made: list[Wires] = []
        self._commands = CommandRunner()

    def own(self, urls: Iterable[str], folder: Path | None = None) -> Wires:
        """For what an operator wrote down: each of these hosts may be reached."""
        return self._wires(HttpClient(self._reaching(urls), transport=self._shared()), None, folder)

    def remote(self, url: str, written: str, variables: Iterable[Mapping[str, Any]]) -> RemoteWires:
        """For what a manual from this URL says: public addresses, its own host, and what the operator wrote.

        `written` is the address that the operator gave for it; credentials go to that origin, and to those of
        the addresses that the operator wrote beside it.
        """
        beside = [address for values in (self._config.auth_config, *variables) for address in _addresses(values)]
        operators = [written, *([self._config.base_url] if self._config.base_url else []), *beside]
        origins = frozenset(origin for url in operators if (origin := origin_of(url)))
        policy = self._reaching(operators)
        known = self._wires(HttpClient(policy, transport=self._shared()), origins, None)
        bound = HttpClient(policy.for_document(url), transport=self._shared())
        return RemoteWires(known, self._wires(bound, origins, None), origins)

    async def fetch(self, template: HttpTemplate, shown: str, secrets: tuple[str, ...]) -> tuple[bytes, str]:
        """A document that an operator wrote the address of, and the address that it came from in the end."""
        wires = self.own([template.url, *token_urls(template)])
        prepared = Prepared("manual", template, f"GET {shown}", _DOCUMENT_S, secrets)
        asked = Asked({}, self._credential, ToolContext)
        async with await opened(RequestPlan(template).request({}), prepared, asked, wires, follow="safe") as response:
            return await response.read(), response.url

    async def close(self) -> None:
        """Close every connection and end every command; safe to call twice."""
        made, self._made = self._made, []
        for wires in made:
            await asyncio.gather(*wires.leaving, return_exceptions=True)
            await wires.tokens.close()
            await wires.client.close()
        await self._commands.close()
        if self._transport is not None:
            await self._transport.close()
            self._transport = None

    def _reaching(self, urls: Iterable[str]) -> NetworkPolicy:
        """By their origins: what comes after may have places for arguments, and is nothing to judge a host by."""
        return self._network.for_source(*{split_url(url)[0] for url in urls})

    def _shared(self) -> HttpTransport:
        if self._transport is None:
            self._transport = default_transport(self._network.proxy)
        return self._transport

    def _wires(self, client: HttpClient, written: frozenset[str] | None, folder: Path | None) -> Wires:
        config = self._config
        client.timeout_s, client.max_bytes = config.timeout_s, MAX_BYTES
        send = sender(client)
        wires = Wires(
            source=config.name,
            client=client,
            send=send,
            tokens=TemplateTokens(sender(client, reads=True)),
            commands=self._commands,
            timeout_s=config.timeout_s,
            headers=tuple(config.headers.items()),
            env=config.env,
            folder=folder,
            written=written,
        )
        self._made.append(wires)
        return wires


def token_urls(template: Any) -> list[str]:
    """Where a template gets its tokens."""
    auth = getattr(template, "auth", None)
    url = getattr(auth, "token_url", None)
    return [url] if isinstance(url, str) else []


def _addresses(values: Mapping[str, Any]) -> Iterator[str]:
    """The addresses among values that an operator wrote."""
    for value in values.values():
        if isinstance(value, str) and value.startswith(_SCHEMES) and origin_of(value):
            yield value
        elif is_object(value):
            yield from _addresses(value)
