"""Plays flows as lists of requests: each answer is the next one's, and none may be left over."""

import base64
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from toolpost.auth.oauth.authorization import Transaction, exchange_code, read_callback
from toolpost.auth.oauth.client import Client
from toolpost.auth.oauth.flow import Clock, Flow, FlowRequest, FlowResponse
from toolpost.auth.oauth.metadata import ServerMetadata, Trust
from toolpost.auth.oauth.tokens import TokenSet
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ToolError
from toolpost.wire.messages import Headers

T = TypeVar("T")

ISSUER = "https://id.example.org"
MCP = "https://mcp.example.org/mcp"
REDIRECT = "http://127.0.0.1:7777/callback"
NOW = 1_000_000.0
TRUST = Trust()

DOCUMENT = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "code_challenge_methods_supported": ["S256"],
}
RESOURCE = {"resource": MCP, "authorization_servers": [ISSUER]}


def finish_authorization(
    transaction: Transaction, parameters: Mapping[str, str], *, browser: str = "", clock: Clock = time.time
) -> Flow[TokenSet]:
    """Verify a callback and exchange its code."""
    code = read_callback(transaction, parameters, browser=browser, clock=clock)
    return exchange_code(transaction, code, clock=clock)


class Script:
    """The answers of the other side, in order; an error is one that the wire raised."""

    def __init__(self, *answers: FlowResponse | ToolError) -> None:
        self.answers = list(answers)
        self.asks: list[FlowRequest] = []

    def play(self, flow: Flow[T]) -> T:
        result = self._play(flow)
        assert self.answers == [], "more was expected to be asked"
        return result

    def _play(self, flow: Flow[T]) -> T:
        try:
            self.asks.append(next(flow))
            while True:
                assert self.answers, f"nobody answers {self.asks[-1].url}"
                answer = self.answers.pop(0)
                self.asks.append(flow.throw(answer) if isinstance(answer, ToolError) else flow.send(answer))
        except StopIteration as done:
            result: T = done.value
            return result

    @property
    def urls(self) -> list[str]:
        return [ask.url for ask in self.asks]

    @property
    def form(self) -> dict[str, str]:
        """The only form that was sent."""
        (form,) = [ask.form for ask in self.asks if ask.form is not None]
        assert len(dict(form)) == len(form), "a field was sent twice"
        return dict(form)


def told(body: Any = None, status: int = 200, **headers: str) -> FlowResponse:
    """An answer of JSON, or of the bytes given."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return FlowResponse(status, Headers(tuple((name.replace("_", "-"), value) for name, value in headers.items())), raw)


NOT_FOUND = told({"error": "not found"}, 404)


def at(now: float) -> Callable[[], float]:
    return lambda: now


def server(**changes: Any) -> ServerMetadata:
    known = ServerMetadata(
        issuer=ISSUER,
        token_endpoint=f"{ISSUER}/token",
        authorization_endpoint=f"{ISSUER}/authorize",
        code_challenge_methods=("S256",),
        documents=(f"{ISSUER}/.well-known/oauth-authorization-server",),
    )
    return replace(known, **changes)


def public_client(**changes: Any) -> Client:
    known = Client(id="app", issuer=ISSUER, auth_method="none", redirect_uris=(REDIRECT,))
    return replace(known, **changes)


def tokens(**changes: Any) -> TokenSet:
    known = TokenSet(
        access_token=Secret("access-1"),
        refresh_token=Secret("refresh-1"),
        scopes=("read",),
        asked=("read",),
        expires_at=NOW + 3600,
        received_at=NOW,
        issuer=ISSUER,
        client_id="app",
        resource=MCP,
    )
    return replace(known, **changes)


def claims_of(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the claims of a signed token, unverified."""
    header, claims, _ = token.split(".")
    return _decoded(header), _decoded(claims)


def _decoded(part: str) -> dict[str, Any]:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
