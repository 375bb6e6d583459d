"""Who is calling: the operator, keys with scopes, and tokens of an issuer; everybody else is refused."""

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.auth.oauth.provider import RESOURCE, provider
from tests.gateway.serving import Served, listening, served
from toolpost import Toolbox, ToolContext, tool
from toolpost.auth import caller_tokens
from toolpost.contracts.callers import Caller
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.principal import Principal
from toolpost.gateway.caller_keys import local_token, new_caller_key
from toolpost.gateway.http import open_callers

AUDIENCE = "https://tools.example"
KEY, STRANGER = RSAKey.generate_key(2048, {"kid": "one"}), RSAKey.generate_key(2048, {"kid": "one"})


@tool(side_effects="pure")
async def whoami(ctx: ToolContext) -> str:
    """Say for whom this call is."""
    return str(ctx.user_id)


@tool(side_effects="pure")
async def ask(ctx: ToolContext) -> str:
    """Ask a person."""
    return str(await ctx.pause("name", prompt="Who?"))


async def called(gate: Served, headers: dict[str, str]) -> Any:
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False) as http,
        Client(streamable_http_client(f"{gate.url}/mcp", http_client=http)) as client,
    ):
        return (await client.call_tool("whoami", {})).structured_content


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "data", [whoami]) as gate:
        yield gate


async def test_calls_are_for_whom_the_bearer_stands(gate: Served) -> None:
    agent = await gate.key("beta:bot", "call")

    assert "acme" in str(await called(gate, dict(gate.http.headers)))
    assert "beta" in str(await called(gate, agent))


async def test_a_bearer_that_is_unknown_expired_or_revoked_is_refused_alike(gate: Served) -> None:
    expired = await gate.key("acme:old", "call", expires_in_s=-1)
    revoked = await gate.key("acme:gone", "call")
    found = [key for key in await gate.box.store.caller_keys.list() if key.name == "acme:gone"]
    await gate.box.store.caller_keys.remove(found[0].id, tenant="acme")
    changed = {"Authorization": f"{(await gate.key('acme:bot', 'call'))['Authorization'][:-1]}~"}
    made_up = {"Authorization": "Bearer tpk_0_x"}

    replies = [await gate.http.post("/mcp", json={}, headers=one) for one in (expired, revoked, changed, made_up)]

    assert {reply.status_code for reply in replies} == {401}
    assert len({reply.text for reply in replies}) == 1
    assert 'error="invalid_token"' in replies[0].headers["www-authenticate"]


async def test_without_a_bearer_or_with_another_kind_no_one_comes_in(gate: Served) -> None:
    async with httpx2.AsyncClient(base_url=gate.url, trust_env=False) as http:
        replies = [
            await http.post("/mcp", json={}),
            await http.post("/mcp", json={}, headers={"Authorization": "Basic b2xnYTp4"}),
            await http.post("/mcp", json={}, headers={"Authorization": "Bearer"}),
        ]
        health = await http.get("/healthz")

    assert [reply.status_code for reply in replies] == [401, 401, 401]
    assert replies[0].headers["content-type"] == "application/problem+json"
    assert health.status_code == 200


async def test_a_refusal_names_every_scope_that_would_do(gate: Served) -> None:
    reply = await gate.http.get("/api/v1/stats", headers=await gate.key("acme:bot", "call"))

    assert (reply.status_code, reply.json()["detail"]) == (
        403,
        "this needs a caller with the scope 'answer' or 'admin'",
    )
    assert 'scope="answer"' in reply.headers["www-authenticate"]


async def test_a_key_without_the_scope_call_cannot_call(gate: Served) -> None:
    reply = await gate.http.post("/mcp", json={}, headers=await gate.key("acme:boss", "answer", "admin"))

    assert (reply.status_code, reply.json()["code"]) == (403, "insufficient_scope")


def test_a_key_that_can_call_can_never_answer() -> None:
    who = Principal("acme", "bot")
    for scopes in (["call", "answer"], ["call", "admin"], []):
        with pytest.raises(ToolError) as refused:
            new_caller_key("bot", who, scopes, by="acme:olga")  # type: ignore[arg-type]
        assert refused.value.error_code == "key_scopes"


async def test_the_secret_of_a_key_is_nowhere_in_the_data_folder(gate: Served, tmp_path: Path) -> None:
    secret = (await gate.key("acme:bot", "call"))["Authorization"].split("_", 2)[2].encode()
    await called(gate, await gate.key("acme:other", "call"))

    assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file() and secret in path.read_bytes()]


async def test_a_session_belongs_to_the_caller_who_opened_it(gate: Served) -> None:
    begin = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    kinds = {"Accept": "application/json, text/event-stream"}
    opened = await gate.http.post("/mcp", json=begin, headers=kinds)
    session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}

    theirs = await gate.http.post("/mcp", json=listing, headers=kinds | session | await gate.key("acme:bot", "call"))

    assert theirs.status_code == 404


async def test_foreign_hosts_and_pages_large_headers_and_floods_are_refused(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [whoami], server={"requests_per_minute": 2}) as gate:
        agent = await gate.key("acme:bot", "call")
        host = await gate.http.get("/healthz", headers={"Host": "evil.example"})
        page = await gate.http.get("/healthz", headers={"Origin": "https://evil.example"})
        large = await gate.http.get("/healthz", headers={"X-Much": "x" * 40_000})
        replies = [await gate.http.post("/mcp", json={}, headers=agent) for _ in range(3)]

    assert [host.status_code, page.status_code, large.status_code] == [421, 403, 431]
    assert "access-control-allow-origin" not in page.headers
    assert replies[-1].status_code == 429
    assert int(replies[-1].headers["retry-after"]) >= 1
    assert host.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "hosts",
    [
        ["[::1].evil"],
        ["a@127.0.0.1"],
        ["127.0.0.1", "127.0.0.1"],
        ["127.0.0.1", "evil.example"],
        ["127.0.0.1/x"],
        ["127.0.0.1:80:80"],
        ["localhost#"],
        [""],
    ],
)
async def test_a_host_header_is_a_host_and_nothing_else(gate: Served, hosts: list[str]) -> None:
    where = urlsplit(gate.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    lines = "".join(f"Host: {host}\r\n" for host in hosts)
    writer.write(f"GET /healthz HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
    reply = await reader.read()
    writer.close()
    assert reply.split()[1] in (b"400", b"421")


async def test_an_origin_is_compared_with_its_scheme_and_port(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [whoami]) as gate:
        port = urlsplit(gate.url).port
        own = [f"http://127.0.0.1:{port}", f"http://localhost:{port}", f"http://[::1]:{port}"]
        foreign = [
            f"https://127.0.0.1:{port}",
            "http://127.0.0.1",
            "http://localhost:1",
            f"http://a@127.0.0.1:{port}",
            f"http://127.0.0.1:{port}/page",
            f"http://[::1].evil:{port}",
        ]
        statuses = [
            (await gate.http.get("/healthz", headers={"Origin": origin})).status_code for origin in (*own, *foreign)
        ]
    assert statuses == [200] * len(own) + [403] * len(foreign)


@pytest.mark.sqlite
async def test_limits_that_cannot_be_checked_admit_no_call(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [whoami]) as gate:
        agent = await gate.key("acme:bot", "call")
        (tmp_path / "data" / "limits.db").mkdir()
        refused = await gate.http.post("/mcp", json={}, headers=agent)
        (tmp_path / "data" / "limits.db").rmdir()
        admitted = await gate.http.post("/mcp", json={}, headers=agent)

    assert (refused.status_code, refused.json()["code"]) == (503, "limits_unavailable")
    assert int(refused.headers["retry-after"]) >= 1
    assert admitted.status_code != 503


async def test_requests_that_were_counted_in_advance_are_limited_together(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [whoami], server={"requests_per_minute": 120}) as gate:
        agent = await gate.key("acme:bot", "call")
        statuses = [(await gate.http.get("/api/v1/tools", headers=agent)).status_code for _ in range(200)]

    assert statuses[:120] == [200] * 120
    assert 429 in statuses


async def test_an_address_that_is_open_to_others_needs_a_way_in(tmp_path: Path) -> None:
    async with Toolbox(settings={"data_dir": str(tmp_path / "data")}) as box:
        with pytest.raises(ConfigError, match="keys create"):
            async with open_callers(box, tmp_path / "data", "acme:olga", host="0.0.0.0"):
                pass
        key, _ = new_caller_key("bot", Principal("acme", "bot"), ["call"], by="acme:olga")
        await box.store.caller_keys.add(key)
        with pytest.raises(ConfigError, match="public_url"):
            async with open_callers(box, tmp_path / "data", "acme:olga", host="0.0.0.0"):
                pass


# ---------------------------------------------------------------- tokens of an issuer


@pytest.fixture
async def issuer() -> AsyncIterator[str]:
    async def metadata(request: Any) -> JSONResponse:
        here = f"http://{request.headers['host']}"
        return JSONResponse({"issuer": here, "token_endpoint": f"{here}/token", "jwks_uri": f"{here}/keys"})

    async def keys(_request: Any) -> JSONResponse:
        return JSONResponse(KeySet([KEY]).as_dict(private=False))

    routes = [Route("/.well-known/openid-configuration", metadata), Route("/keys", keys)]
    async with listening(Starlette(routes=routes)) as url:
        yield url


def signed(issuer: str, key: RSAKey = KEY, alg: str = "RS256", **claims: Any) -> dict[str, str]:
    told = {"iss": issuer, "aud": AUDIENCE, "sub": "ann", "org": "beta", "exp": time.time() + 300, "roles": ["agent"]}
    whole = {name: value for name, value in (told | claims).items() if value is not None}
    return {"Authorization": f"Bearer {jwt.encode({'alg': alg, 'kid': 'one'}, whole, key)}"}


def oidc(issuer: str, **more: Any) -> dict[str, Any]:
    roles = {"agent": {"scopes": ["call"]}, "payer": {"scopes": ["answer"], "tools": ["pay.*"]}}
    return {"oidc": {"issuer": issuer, "audience": AUDIENCE, "tenant_claim": "org", "roles": roles, **more}}


async def test_no_one_waits_while_a_forged_token_makes_keys_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches, asked, may_answer = list[int](), asyncio.Event(), asyncio.Event()

    async def metadata(request: Any) -> JSONResponse:
        here = f"http://{request.headers['host']}"
        return JSONResponse({"issuer": here, "token_endpoint": f"{here}/token", "jwks_uri": f"{here}/keys"})

    async def keys(_request: Any) -> JSONResponse:
        fetches.append(1)
        if len(fetches) > 1:
            asked.set()
            await may_answer.wait()
        return JSONResponse(KeySet([KEY]).as_dict(private=False))

    monkeypatch.setattr(caller_tokens, "_AGAIN_S", 0.0)
    routes = [Route("/.well-known/openid-configuration", metadata), Route("/keys", keys)]
    async with (
        listening(Starlette(routes=routes)) as issuer,
        served(tmp_path / "data", [whoami], server=oidc(issuer)) as gate,
    ):
        first = await gate.http.get("/api/v1/tools", headers=signed(issuer))
        forged = asyncio.create_task(gate.http.get("/api/v1/tools", headers=signed(issuer, STRANGER)))
        await asked.wait()
        meanwhile = await gate.http.get("/api/v1/tools", headers=signed(issuer))
        was_waiting = not forged.done()
        may_answer.set()
        refused = await forged

    assert [first.status_code, meanwhile.status_code, refused.status_code] == [200, 200, 401]
    assert was_waiting


async def test_a_token_says_tenant_user_and_roles_and_forgeries_are_refused(tmp_path: Path, issuer: str) -> None:
    async with served(tmp_path / "data", [whoami], server=oidc(issuer)) as gate:
        right = await called(gate, signed(issuer))
        wrong = {
            "forged": signed(issuer, STRANGER),
            "expired": signed(issuer, exp=time.time() - 600),
            "endless": signed(issuer, exp=None),
            "early": signed(issuer, nbf=time.time() + 600),
            "foreign audience": signed(issuer, aud="https://other.example"),
            "foreign issuer": signed("https://other.example"),
            "nobody": signed(issuer, sub=None),
            "no tenant": signed(issuer, org=None),
            "two tenants": signed(issuer, org="a:b"),
            "a line break": signed(issuer, sub="ann\nbob"),
            "a tenant with a line break": signed(issuer, org="beta\rlocal"),
            "hidden characters": signed(issuer, sub="ann\u202ebob"),
            "unsigned": {"Authorization": "Bearer eyJhbGciOiJub25lIn0.e30."},
        }
        statuses = {why: (await gate.http.post("/mcp", json={}, headers=one)).status_code for why, one in wrong.items()}
        without_role = await gate.http.post("/mcp", json={}, headers=signed(issuer, roles=["reader"]))
        metadata = (await gate.http.get("/.well-known/oauth-protected-resource/mcp")).json()

    assert "beta" in str(right)
    assert statuses == dict.fromkeys(wrong, 401)
    assert without_role.status_code == 403
    assert (metadata["resource"], metadata["authorization_servers"]) == (f"{gate.url}/mcp", [issuer])


def test_a_role_says_which_tools_may_be_answered_for() -> None:
    boss = Caller("x", Principal("a", "b"), frozenset({"answer"}), ("pay.*",))

    assert (boss.may_answer("pay.refund"), boss.may_answer("mail.send")) == (True, False)


BOTH = {"both": {"scopes": ["call", "answer"]}}


async def test_tokens_answer_only_where_people_use_their_client_and_never_their_own_users_calls(
    tmp_path: Path, issuer: str
) -> None:
    settings = oidc(issuer, roles=BOTH, person_clients=["portal"])
    async with served(tmp_path / "data", [ask], server=settings) as gate:

        def bearer(sub: str, **claims: Any) -> dict[str, str]:
            return signed(issuer, sub=sub, roles=["both"], **claims)

        called = await gate.http.post("/api/v1/calls", json={"tool": "ask"}, headers=bearer("ann", azp="portal"))
        path = f"/api/v1/pending/{called.json()['pending']['id']}/answer"

        async def answer(headers: dict[str, str]) -> tuple[int, str]:
            reply = await gate.http.post(path, json={"decision": "answer", "value": "x"}, headers=headers)
            return reply.status_code, reply.json().get("code", "")

        refused = [
            await answer(bearer("eva")),
            await answer(bearer("eva", azp="agent")),
            await answer(bearer("eva", client_id="agent")),
            await answer(bearer("eva", azp="portal", client_id="agent")),
        ]
        own = [await answer(bearer("ann", azp="portal")), await answer(bearer("ann", client_id="portal", jti="2"))]
        answered = await answer(bearer("eva", azp="portal"))

    assert refused == [(403, "not_a_person")] * 4
    assert own == [(403, "own_call")] * 2
    assert answered == (200, "")


async def test_no_token_answers_where_no_client_of_people_is_named(tmp_path: Path, issuer: str) -> None:
    async with served(tmp_path / "data", [ask], server=oidc(issuer, roles=BOTH)) as gate:
        called = await gate.http.post("/api/v1/calls", json={"tool": "ask"}, headers=signed(issuer, roles=["both"]))
        path = f"/api/v1/pending/{called.json()['pending']['id']}/answer"
        eva = signed(issuer, sub="eva", roles=["both"], azp="portal")
        reply = await gate.http.post(path, json={"decision": "answer", "value": "x"}, headers=eva)

    assert (reply.status_code, reply.json()["code"]) == (403, "not_a_person")


async def test_a_token_without_a_role_may_do_nothing(tmp_path: Path, issuer: str) -> None:
    async with served(tmp_path / "data", [whoami], server=oidc(issuer)) as gate:
        nobody = signed(issuer, roles=["reader"])
        paths = [
            "/api/v1/tools",
            "/api/v1/sources",
            "/api/v1/runs",
            "/api/v1/accounts",
            "/.well-known/utcp",
            "/metrics",
        ]
        replies = [await gate.http.get(path, headers=nobody) for path in paths]
        replies.append(await gate.http.post("/a2a", json={}, headers=nobody))

    assert [(reply.status_code, reply.json()["code"]) for reply in replies] == [(403, "insufficient_scope")] * 7


async def test_an_issuer_that_is_down_is_no_fault_of_the_caller(tmp_path: Path) -> None:
    async with served(tmp_path / "data", server=oidc("http://127.0.0.1:9")) as gate:
        reply = await gate.http.post("/mcp", json={}, headers=signed("http://127.0.0.1:9"))

    assert (reply.status_code, reply.json()["code"]) == (503, "issuer_keys")


@pytest.mark.programs
async def test_tokens_of_a_real_issuer_are_taken(tmp_path: Path) -> None:
    agent = {
        "client_id": "agent",
        "client_secret": "made-up",
        "grant_types": ["client_credentials"],
        "redirect_uris": [],
        "response_types": [],
    }
    with provider(agent) as issuer:
        settings = {
            "oidc": {
                "issuer": issuer,
                "audience": RESOURCE,
                "tenant": "acme",
                "roles_claim": "scope",
                "roles": {"tools.call": {"scopes": ["call"]}},
            }
        }
        async with httpx2.AsyncClient(trust_env=False) as web:
            form = {"grant_type": "client_credentials", "scope": "tools.call", "resource": RESOURCE}
            token = (await web.post(f"{issuer}/token", data=form, auth=("agent", "made-up"))).json()["access_token"]
        async with served(tmp_path / "data", [whoami], server=settings) as gate:
            said = await called(gate, {"Authorization": f"Bearer {token}"})

    assert "acme" in str(said)


def test_gateways_that_start_at_once_on_a_new_folder_have_one_token(tmp_path: Path) -> None:
    gateways, rounds = 4, 200
    together = Barrier(gateways)

    def begin(number: int) -> str:
        together.wait()
        return local_token(tmp_path / str(number))

    with ThreadPoolExecutor(gateways) as threads:
        for number in range(rounds):
            tokens = set(threads.map(begin, [number] * gateways))
            assert len(tokens) == 1
            assert len(tokens.pop()) > 40


async def test_an_agent_with_the_role_admin_changes_no_keys(tmp_path: Path, issuer: str) -> None:
    roles = {"admin": {"scopes": ["call", "admin"]}}
    async with served(tmp_path / "data", server=oidc(issuer, roles=roles, person_clients=["portal"])) as gate:
        agent, person = (signed(issuer, roles=["admin"], azp=client) for client in ("robot", "portal"))
        key = {"name": "ann", "scopes": ["answer"]}
        refused = await gate.http.post("/api/v1/keys", json=key, headers=agent)
        made = await gate.http.post("/api/v1/keys", json=key, headers=person)
        kept = await gate.http.delete(f"/api/v1/keys/{made.json()['key']['id']}", headers=agent)

    assert (refused.status_code, refused.json()["code"]) == (403, "not_a_person")
    assert (made.status_code, kept.status_code) == (201, 403)
