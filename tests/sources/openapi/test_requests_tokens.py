"""OAuth clients: a token is fetched once for all, kept while it lasts, and renewed when it is refused."""

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest

from toolpost.auth.oauth.client_tokens import ClientGrant, ClientTokens
from toolpost.contracts.errors import ConfigError, ToolAuthError, ToolError, ToolRateLimitError, ToolServerError
from toolpost.sources.openapi.credentials import Credentials
from toolpost.sources.openapi.models import ApiOperation, SecurityRequirement, SecurityScheme
from toolpost.sources.openapi.requests import RequestBuilder
from toolpost.sources.openapi.source import call_operation
from toolpost.sources.requests import PlannedRequest, Presentation
from toolpost.wire.client import HttpClient
from toolpost.wire.messages import Headers, Request, Response
from toolpost.wire.network import NetworkPolicy

TOKEN_URL = "https://id.example.org/token"
CLIENT = {"client_id": "me:1", "client_secret": "s3cr3t/ü"}
SCHEMES = {"oauth": SecurityScheme(name="oauth", type="oauth2", token_url=TOKEN_URL)}


class Endpoint(HttpClient):
    """A token endpoint that counts; `answer` says what it does the n-th time."""

    def __init__(self, answer: Callable[[int], tuple[int, Any]] | None = None, **headers: str) -> None:
        super().__init__(NetworkPolicy())
        self.answer = answer or (lambda n: (200, {"access_token": f"t{n}", "expires_in": 100}))
        self.headers = headers
        self.asked: list[Request] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def send(self, request: Request) -> Response:
        self.asked.append(request)
        status, told = self.answer(len(self.asked))
        await self.gate.wait()
        body = told if isinstance(told, bytes) else json.dumps(told).encode()
        return Response(status, Headers(tuple(self.headers.items())), body)


def client(
    endpoint: Endpoint, value: dict[str, Any] | None = None, *, clock: Callable[[], float] = lambda: 0.0
) -> Credentials:
    tokens = ClientTokens(endpoint, clock=clock)
    return Credentials(SCHEMES, {"oauth": {**CLIENT, **(value or {})}}, source="shop", tokens=tokens)


def scoped(*scopes: str) -> ApiOperation:
    need = SecurityRequirement(scheme="oauth", scopes=scopes)
    return ApiOperation(tool_name="t", method="get", path="/x", servers=("https://h",), security=((need,),))


async def test_a_client_gets_a_token_with_the_scopes_of_the_operation() -> None:
    endpoint = Endpoint()
    found = await client(endpoint).present(scoped("read", "write"))
    (asked,) = endpoint.asked
    assert isinstance(asked.body, bytes)
    fields = dict(parse_qsl(asked.body.decode()))
    assert found.headers == (("Authorization", "Bearer t1"),)
    assert (asked.method, asked.url) == ("POST", TOKEN_URL)
    assert fields == {"grant_type": "client_credentials", "scope": "read write"}
    shown = b64decode(dict(asked.headers)["Authorization"].removeprefix("Basic ")).decode()
    assert shown == "me%3A1:s3cr3t%2F%C3%BC"


async def test_what_the_configuration_says_of_a_client_goes_before_the_document() -> None:
    endpoint = Endpoint(lambda _: (200, {"access_token": "t", "token_type": "MAC"}))
    own = {"token_url": "https://own/t/?tenant=1", "scope": ["a", "b"], "audience": "aud", "auth_method": "post"}
    found = await client(endpoint, own).present(scoped("read"))
    (asked,) = endpoint.asked
    assert isinstance(asked.body, bytes)
    fields = dict(parse_qsl(asked.body.decode()))
    assert (asked.url, found.headers) == ("https://own/t/?tenant=1", (("Authorization", "MAC t"),))
    assert fields == {"grant_type": "client_credentials", "audience": "aud", "scope": "a b", **CLIENT}
    assert "Authorization" not in dict(asked.headers)


async def test_a_token_is_kept_until_shortly_before_its_end() -> None:
    endpoint, now = Endpoint(), [0.0]
    credentials = client(endpoint, clock=lambda: now[0])
    tokens = []
    for now[0] in (0.0, 50.0, 89.0, 91.0, 92.0):
        tokens.append((await credentials.present(scoped())).tokens[0])
    assert tokens == ["t1", "t1", "t1", "t2", "t2"]


@pytest.mark.parametrize("told", [{}, {"expires_in": "soon"}, {"expires_in": None}])
async def test_a_token_without_an_end_is_kept_until_it_is_refused(told: dict[str, Any]) -> None:
    endpoint, now = Endpoint(lambda n: (200, {"access_token": f"t{n}", **told})), [0.0]
    credentials = client(endpoint, clock=lambda: now[0])
    first = await credentials.present(scoped())
    now[0] = 1e9
    assert await credentials.present(scoped()) == first
    assert credentials.forget(first)
    assert (await credentials.present(scoped())).tokens == ("t2",)
    credentials.forget(first)
    assert (await credentials.present(scoped())).tokens == ("t2",)


async def test_all_who_ask_at_once_share_one_request_even_if_one_gives_up() -> None:
    endpoint = Endpoint()
    endpoint.gate.clear()
    credentials = client(endpoint)
    waiting = [asyncio.create_task(credentials.present(scoped())) for _ in range(20)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    endpoint.gate.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert {one.tokens for one in found[1:] if isinstance(one, Presentation)} == {("t1",)}
    assert len(endpoint.asked) == 1


async def test_a_failure_is_shared_by_those_who_waited_and_not_kept() -> None:
    endpoint = Endpoint(lambda n: (500, {}) if n == 1 else (200, {"access_token": "t"}))
    credentials = client(endpoint)
    failed = await asyncio.gather(*(credentials.present(scoped()) for _ in range(5)), return_exceptions=True)
    assert {type(error) for error in failed} == {ToolServerError}
    assert len(endpoint.asked) == 1
    assert (await credentials.present(scoped())).tokens == ("t",)


@pytest.mark.parametrize(
    ("status", "told", "kind", "text"),
    [
        (401, {"error": "no_client", "error_description": "s3cr3t/ü?"}, ToolAuthError, "no_client: …?"),
        (400, {"error": "invalid_scope"}, ToolAuthError, "status 400, invalid_scope."),
        (404, b"<h1>Not here</h1>", ToolAuthError, "Not here"),
        (200, b"<html>", ToolAuthError, "no access_token"),
        (200, {"access_token": "a\nb"}, ToolAuthError, "cannot be sent in a header"),
        (429, {}, ToolRateLimitError, "status 429"),
        (503, {}, ToolServerError, "status 503"),
    ],
)
async def test_a_refused_client_learns_why_and_never_its_secret(
    status: int, told: Any, kind: type[ToolError], text: str
) -> None:
    endpoint = Endpoint(lambda _: (status, told), **{"Retry-After": "9"})
    with pytest.raises(kind) as caught:
        await client(endpoint).present(scoped())
    assert text in str(caught.value)
    assert "'oauth'" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    assert caught.value.retry_after_s == (9.0 if status in (429, 503) else None)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ({"token_url": "", "client_id": "x", "client_secret": "y"}, "needs token_url"),
        ({"client_id": "x"}, "also needs a client_secret"),
        ({**CLIENT, "token_url": "https://t", "auth_method": "jwt"}, "'basic' or 'post'"),
    ],
)
async def test_half_a_client_is_a_mistake_in_the_configuration(value: dict[str, Any], match: str) -> None:
    schemes = {"oauth": SecurityScheme(name="oauth", type="oauth2")}
    credentials = Credentials(schemes, {"oauth": value}, tokens=ClientTokens(Endpoint()))
    with pytest.raises(ConfigError, match=match):
        await credentials.present(scoped())


@pytest.mark.parametrize(("refusals", "tries"), [(0, ["t1"]), (1, ["t1", "t2"]), (2, ["t1", "t2"])])
async def test_a_token_that_is_refused_is_renewed_once(refusals: int, tries: list[str]) -> None:
    seen: list[str] = []

    async def send(planned: PlannedRequest) -> Response:
        seen.append(dict(planned.wire_headers)["Authorization"].removeprefix("Bearer "))
        return Response(200 if len(seen) > refusals else 401, Headers(()), b"")

    call = call_operation(RequestBuilder(scoped()), {}, send=send, credentials=client(Endpoint()))
    if refusals < 2:
        await call
    else:
        with pytest.raises(ToolAuthError, match="answered 401"):
            await call
    assert seen == tries


async def test_closing_leaves_no_request_behind() -> None:
    endpoint = Endpoint()
    endpoint.gate.clear()
    tokens = ClientTokens(endpoint)
    grant = ClientGrant(label="oauth", token_url=TOKEN_URL, client_id="a", client_secret="hush")
    waiting = asyncio.create_task(tokens.token(grant))
    await asyncio.sleep(0)
    await tokens.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert "hush" not in repr(grant)
