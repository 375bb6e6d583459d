"""Child programs that serve HTTP on a port of their own and print where, and the tools of tests that call them."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

from tests.parts import ROOT
from toolpost.auth.oauth.client_tokens import ClientTokens
from toolpost.contracts.calls import NO_CREDENTIAL, Credential, ToolOutput
from toolpost.sources.files import File
from toolpost.sources.openapi.credentials import Credentials, scheme_values
from toolpost.sources.openapi.loader import build_api, load_documents
from toolpost.sources.openapi.models import ApiDescription, ApiOperation
from toolpost.sources.openapi.requests import RequestBuilder
from toolpost.sources.openapi.source import call_operation
from toolpost.sources.requests import PlannedRequest, Send, make_sender
from toolpost.wire.client import HttpClient
from toolpost.wire.messages import Request, Response
from toolpost.wire.network import NetworkPolicy


@contextmanager
def served(program: str, *arguments: str) -> Iterator[str]:
    """A program of this folder while it runs; gives its address."""
    command = [sys.executable, "-m", f"tests.sources.openapi.apps.{program}", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, f"{program} ended before it listened"
            yield address
        finally:
            process.kill()


async def no_others(url: str) -> bytes:
    raise AssertionError(url)


async def api_from(document: dict[str, Any] | bytes, address: str) -> ApiDescription:
    """A document, read as if it had come from the address."""
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    return build_api(await load_documents(raw, address, no_others), address)


class Caller(NamedTuple):
    """Calls the operations of one API over the real wire, and remembers what was sent."""

    api: ApiDescription
    send: Send
    tokens: ClientTokens
    sent: list[PlannedRequest]
    token_bodies: list[Any]

    def operation(self, wanted: str) -> ApiOperation:
        """By `METHOD /path`."""
        return next(one for one in self.api.operations if f"{one.method.upper()} {one.path}" == wanted)

    async def __call__(
        self,
        wanted: str,
        arguments: dict[str, Any] | None = None,
        *,
        schemes: dict[str, Any] | None = None,
        credential: Credential = NO_CREDENTIAL,
        files: dict[str, File] | None = None,
    ) -> ToolOutput:
        values = scheme_values("shop", {"schemes": schemes or {}}, self.api.schemes, {})
        return await call_operation(
            RequestBuilder(self.operation(wanted)),
            arguments or {},
            send=self.send,
            credentials=Credentials(self.api.schemes, values, source="shop", tokens=self.tokens),
            credential=credential,
            files=files,
        )


@asynccontextmanager
async def calling(api: ApiDescription, address: str, **limits: Any) -> AsyncIterator[Caller]:
    sent: list[PlannedRequest] = []
    async with HttpClient(NetworkPolicy().for_source(address)) as client:
        send = _remembering(make_sender(client, **limits), sent.append)
        token_bodies: list[Any] = []
        tokens = ClientTokens(_TokenClient(client, token_bodies))
        yield Caller(api, send, tokens, sent, token_bodies)
        await tokens.close()


class _TokenClient(HttpClient):
    """The client of token requests; remembers their bodies."""

    def __init__(self, client: HttpClient, bodies: list[Any]) -> None:
        super().__init__(client.policy)
        self._client, self._bodies = client, bodies

    async def send(self, request: Request) -> Response:
        self._bodies.append(request.body)
        return await self._client.send(request)


def _remembering(send: Send, remember: Callable[[PlannedRequest], None]) -> Send:
    async def both(planned: PlannedRequest) -> Response:
        remember(planned)
        return await send(planned)

    return both
