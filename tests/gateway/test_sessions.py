"""Console sessions: a person opens one, and what an agent holds opens none and answers nothing."""

import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from tests.gateway.serving import OPERATOR, Served, add, drop, served
from tests.gateway.test_callers import issuer, oidc, signed
from toolpost.contracts.callers import Caller, CallerScope
from toolpost.contracts.errors import ToolAuthError, ToolError
from toolpost.contracts.principal import Principal
from toolpost.gateway.caller_keys import create_caller_key, new_caller_key, revoke_caller_key
from toolpost.gateway.problems import Problem
from toolpost.gateway.sessions import IDLE_S, LONGEST_S, Sessions

__all__ = ["issuer"]  # a fixture of its own module


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "data", [add, drop]) as gate:
        yield gate


async def person_key(gate: Served, user: str, *scopes: CallerScope) -> dict[str, str]:
    _, text = await create_caller_key(
        gate.box, "desk", Principal.parse(user), scopes or ("call", "answer"), by=OPERATOR, person=True
    )
    return bearer(text)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def session(gate: Served, user: str, *scopes: CallerScope) -> dict[str, str]:
    """The header of a session that a person has opened with a key."""
    opened = await gate.http.post("/api/v1/sessions", headers=await person_key(gate, user, *scopes))
    assert opened.status_code == 200, opened.text
    return bearer(opened.json()["token"])


async def ticket(gate: Served) -> str:
    return str((await gate.http.post("/api/v1/tickets")).json()["ticket"])


async def redeem(gate: Served, text: str) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=gate.url, trust_env=False) as http:
        return await http.post("/api/v1/sessions/redeem", json={"ticket": text})


async def events_of(gate: Served, user: str) -> list[tuple[str, dict[str, Any]]]:
    await gate.box.store.events.flush()
    found = await gate.box.store.events.read(tenant=Principal.parse(user).tenant, run_id="caller_sessions")
    return [(event.code.name, dict(event.payload)) for event in found]


@pytest.mark.req("WEB-02")
async def test_a_ticket_of_the_operator_opens_one_session(gate: Served) -> None:
    made = await gate.http.post("/api/v1/tickets")
    text = made.json()["ticket"]
    opened, again = await redeem(gate, text), await redeem(gate, text)
    me = await gate.http.get("/api/v1/me", headers=bearer(opened.json()["token"]))

    assert (made.status_code, made.json()["url"]) == (201, f"{gate.url}/#t={text}")
    assert 100 < made.json()["expires_at"] - time.time() <= 120
    assert (opened.status_code, opened.json()["me"]["session"]) == (200, me.json()["session"])
    assert me.json()["caller"] == {"kind": "operator", "id": "operator", "name": "operator"}
    assert (me.json()["user"], me.json()["operator"]) == (OPERATOR, True)
    assert me.json()["scopes"] == ["call", "answer", "admin", "observe"]
    assert (again.status_code, again.json()["code"]) == (410, "ticket_used")
    assert "toolpost open" in again.json()["detail"]


async def test_expired_forged_and_unknown_tickets_say_what_happened(gate: Served) -> None:
    text = await ticket(gate)
    store = gate.box.store.sessions
    found = await store.find_ticket(text.split("_")[1])
    assert found is not None
    await store.add_ticket(replace(found[0], expires_at=time.time() - 1))

    expired, forged, unknown = [await redeem(gate, one) for one in (text, f"{text[:-1]}~", "tpt_0_x")]

    assert (expired.status_code, expired.json()["code"]) == (410, "ticket_expired")
    assert "120 seconds" in expired.json()["detail"]
    assert [(one.status_code, one.json()["code"]) for one in (forged, unknown)] == [(401, "ticket_unknown")] * 2
    assert [event for event, _ in await events_of(gate, "local:x")] == ["TICKET_REFUSED"] * 2
    [(code, facts)] = await events_of(gate, OPERATOR)
    assert (code, facts["reason"]) == ("TICKET_REFUSED", "expired")


@pytest.mark.sqlite
async def test_a_ticket_that_was_copied_in_the_database_is_unknown(gate: Served, tmp_path: Path) -> None:
    text = await ticket(gate)
    _, id_, secret = text.split("_", 2)
    [path] = [one for one in (tmp_path / "data").iterdir() if one.is_file() and one.read_bytes()[:6] == b"SQLite"]
    with closing(sqlite3.connect(path)) as db, db:
        columns = "kind, 'copied', item, body, owner, until"
        db.execute(
            f"INSERT INTO state (kind, key, item, body, owner, until) SELECT {columns} FROM state WHERE key = ?",
            (id_,),
        )
    refused = await redeem(gate, f"tpt_copied_{secret}")

    assert (refused.status_code, refused.json()["code"]) == (401, "ticket_unknown")
    assert str(tmp_path) not in refused.text


@pytest.mark.req("WEB-03")
async def test_a_key_of_a_person_only_opens_sessions_which_call_and_answer(gate: Served) -> None:
    key = await person_key(gate, "acme:ann")
    direct = [
        await gate.http.get("/api/v1/tools", headers=key),
        await gate.http.post("/api/v1/tools/add", json={"a": 1, "b": 2}, headers=key),
        await gate.http.post("/mcp", json={}, headers=key),
        await gate.http.get("/api/v1/sessions", headers=key),
    ]
    mine = await session(gate, "acme:ann")
    paused = (
        await gate.http.post("/api/v1/calls", json={"tool": "drop", "arguments": {"name": "x"}}, headers=mine)
    ).json()
    answer = f"/api/v1/pending/{paused['pending']['id']}/answer"
    done = await gate.http.post(answer, json={"decision": "approve"}, headers=mine)

    assert [(one.status_code, one.json()["code"]) for one in direct] == [(403, "key_of_a_person")] * 4
    assert (done.status_code, done.json()["content"]) == (200, "x")


@pytest.mark.req("WEB-03")
async def test_what_an_agent_holds_opens_no_session(gate: Served) -> None:
    agent, mine = await gate.key("acme:ann", "call"), await session(gate, "acme:ann")
    refused = await gate.http.post("/api/v1/sessions", headers=agent)
    again = await gate.http.post("/api/v1/sessions", headers=mine)
    none = await gate.http.post("/api/v1/sessions", headers={"Authorization": ""})
    listed = await gate.http.get("/api/v1/sessions", headers=agent)
    tickets = [await gate.http.post("/api/v1/tickets", headers=one) for one in (agent, mine)]

    assert (refused.status_code, refused.json()["code"]) == (403, "not_a_person")
    assert "toolpost keys create NAME --person" in refused.json()["detail"]
    assert (again.status_code, again.json()["code"]) == (403, "already_a_session")
    assert (none.status_code, listed.status_code) == (401, 403)
    assert [one.status_code for one in tickets] == [403, 403]


async def test_a_session_answers_what_an_agent_of_its_user_asks_and_agents_have_no_session(gate: Served) -> None:
    mine = await session(gate, "acme:ann")
    call = {"tool": "drop", "arguments": {"name": "x"}}
    asked = (await gate.http.post("/api/v1/calls", json=call, headers=await gate.key("acme:ann", "call"))).json()
    done = await gate.http.post(
        f"/api/v1/pending/{asked['pending']['id']}/answer", json={"decision": "approve"}, headers=mine
    )
    refused = [await gate.http.post(path, json={}, headers=mine) for path in ("/mcp", "/a2a")]

    assert done.json()["content"] == "x"
    assert [(one.status_code, one.json()["code"]) for one in refused] == [(403, "session_of_a_person")] * 2


async def test_another_bearer_of_a_person_answers_what_was_called_in_the_console(gate: Served) -> None:
    call = {"tool": "drop", "arguments": {"name": "x"}}
    mine, key = await session(gate, "acme:ann"), await gate.key("acme:ann", "answer")
    asked = (await gate.http.post("/api/v1/calls", json=call, headers=mine)).json()
    done = await gate.http.post(
        f"/api/v1/pending/{asked['pending']['id']}/answer", json={"decision": "approve"}, headers=key
    )

    assert (done.status_code, done.json()["content"]) == (200, "x")


async def test_a_token_opens_a_session_where_its_client_is_for_people_but_answers_no_call_of_it(
    tmp_path: Path, issuer: str
) -> None:
    roles = {"agent": {"scopes": ["call", "answer"]}}
    settings = oidc(issuer, person_clients=["desk"])
    settings["oidc"]["roles"] = roles
    async with served(tmp_path / "data", [add, drop], server=settings) as gate:
        token, agents = signed(issuer, azp="desk"), signed(issuer, azp="bot")
        refused = await gate.http.post("/api/v1/sessions", headers=agents)
        opened = (await gate.http.post("/api/v1/sessions", headers=token)).json()
        mine = bearer(opened["token"])
        answers = list[Any]()
        for headers in (token, agents, mine):
            call = {"tool": "drop", "arguments": {"name": str(len(answers))}}
            asked = (await gate.http.post("/api/v1/calls", json=call, headers=headers)).json()
            path = f"/api/v1/pending/{asked['pending']['id']}/answer"
            answers += [(await gate.http.post(path, json={"decision": "approve"}, headers=mine)).json()]

    assert (refused.status_code, refused.json()["code"]) == (403, "not_a_person")
    assert opened["expires_at"] <= time.time() + 300  # that of the token
    assert opened["me"]["caller"]["kind"] == "token"
    assert [one.get("code") for one in answers] == ["own_call", "own_call", None]
    assert answers[2]["content"] == "2"


async def test_sessions_are_listed_and_ended_by_their_user_and_by_an_admin_of_the_tenant(gate: Served) -> None:
    ann, boss, eve = [
        await session(gate, user, *scopes)
        for user, scopes in (("acme:ann", ()), ("acme:boss", ("answer", "admin")), ("evil:eve", ("answer", "admin")))
    ]
    listed = [(await gate.http.get("/api/v1/sessions", headers=one)).json()["items"] for one in (ann, boss, eve)]
    [mine] = listed[0]
    foreign = await gate.http.delete(f"/api/v1/sessions/{mine['id']}", headers=eve)
    still = await gate.http.get("/api/v1/me", headers=ann)
    ended = await gate.http.delete(f"/api/v1/sessions/{mine['id']}", headers=boss)
    after = await gate.http.get("/api/v1/me", headers=ann)
    out = await gate.http.delete(f"/api/v1/sessions/{listed[2][0]['id']}", headers=eve)

    assert [[one["user"] for one in items] for items in listed] == [
        ["acme:ann"],
        ["acme:ann", "acme:boss"],
        ["evil:eve"],
    ]
    assert mine["current"]
    assert (mine["scopes"], mine["opened_with"]["kind"]) == (["call", "answer"], "key")
    assert (foreign.status_code, foreign.json()["code"]) == (404, "session_not_found")
    assert (still.status_code, ended.status_code, after.status_code, out.status_code) == (200, 204, 401, 204)
    reasons = [facts.get("reason") for code, facts in await events_of(gate, "acme:x") if code == "SESSION_ENDED"]
    assert reasons == ["ended by a person"]


async def test_a_session_ends_with_its_key(gate: Served) -> None:
    mine = await session(gate, "acme:ann")
    [key] = await gate.box.store.caller_keys.list(tenant="acme")
    await revoke_caller_key(gate.box, key.id, by="acme:olga")
    after = await gate.http.get("/api/v1/me", headers=mine)

    assert (after.status_code, after.json()["code"]) == (401, "invalid_token")
    assert "sign in again" in after.json()["detail"]
    codes = [code for code, _ in await events_of(gate, "acme:x")]
    assert codes == ["SESSION_CREATED", "SESSION_ENDED"]
    assert not [facts for _, facts in await events_of(gate, "acme:x") if "tps_" in str(facts)]


async def test_the_secret_of_a_session_is_nowhere_in_the_data_folder(gate: Served, tmp_path: Path) -> None:
    mine = (await session(gate, "acme:ann"))["Authorization"].split("_", 2)[2].encode()
    text = (await ticket(gate)).split("_", 2)[2].encode()
    await gate.http.get("/api/v1/me", headers=bearer(f"tps_x_{mine.decode()}"))

    files = [path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert not [one for one in files if mine in one or text in one]


@pytest.mark.req("WEB-04")
async def test_an_address_tries_to_sign_in_ten_times_a_minute(gate: Served) -> None:
    replies = [await redeem(gate, "tpt_0_x") for _ in range(11)]
    by_bearer = await gate.http.post("/api/v1/sessions", headers=bearer("tpk_0_x"))
    me = await gate.http.get("/api/v1/me")

    assert [one.status_code for one in replies] == [401] * 10 + [429]
    assert int(replies[-1].headers["retry-after"]) >= 1
    assert (by_bearer.status_code, me.status_code) == (429, 200)


async def test_a_session_on_this_machine_ends_with_the_gateway(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [add]) as gate:
        mine = await session(gate, "acme:ann")
        during = await gate.http.get("/api/v1/me", headers=mine)
    async with served(tmp_path / "data", [add]) as gate:
        after = await gate.http.get("/api/v1/me", headers=mine)

    assert (during.status_code, after.status_code) == (200, 401)
    assert "the gateway was restarted" in after.json()["detail"]


@pytest.mark.req("WEB-04")
async def test_elsewhere_a_session_ends_after_twelve_hours_without_a_request_and_after_seven_days(gate: Served) -> None:
    now = [1000.0]
    emitter, store = gate.box.router.emitter, gate.box.store
    sessions = Sessions(
        store.sessions,
        store.caller_keys,
        emitter,
        gateway="g",
        operator=Principal.parse(OPERATOR),
        clock=lambda: now[0],
    )
    key, _ = new_caller_key("desk", Principal("acme", "ann"), ["answer"], by=OPERATOR)
    await store.caller_keys.add(key)
    caller = gate_caller(key.id)
    idle, used = [await sessions.open(caller, on_loopback=False) for _ in range(2)]
    ended: list[float] = []
    while now[0] < 1000 + LONGEST_S + IDLE_S:
        now[0] += IDLE_S / 2
        try:
            await sessions.identify(used.token, is_local=False)
        except ToolAuthError:
            ended.append(now[0] - 1000)
        if now[0] == 1000 + IDLE_S:
            with pytest.raises(ToolAuthError, match="not used"):
                await sessions.identify(idle.token, is_local=False)

    assert ended[0] == LONGEST_S


async def test_the_operators_session_and_ticket_are_for_this_machine(gate: Served) -> None:
    emitter, store = gate.box.router.emitter, gate.box.store
    sessions = Sessions(store.sessions, store.caller_keys, emitter, gateway="g", operator=Principal.parse(OPERATOR))
    me = gate_caller("x")._replace(id="operator")
    _, text = await sessions.issue_ticket(me)
    with pytest.raises(Problem, match="for this machine"):
        await sessions.redeem(text, is_local=False, on_loopback=False)
    opened = await sessions.redeem(text, is_local=True, on_loopback=False)
    with pytest.raises(ToolAuthError, match="for this machine"):
        await sessions.identify(opened.token, is_local=False)

    assert opened.session.gateway == "g"
    assert opened.token.split("_")[2] not in repr(opened)


def gate_caller(key_id: str) -> Caller:
    scopes: frozenset[CallerScope] = frozenset({"answer"})
    return Caller(f"key:{key_id}", Principal("acme", "ann"), scopes, grants=scopes)


def test_a_key_of_a_person_may_combine_scopes_and_is_not_for_a_client() -> None:
    who = Principal("acme", "ann")
    key, _ = new_caller_key("desk", who, ["call", "answer", "admin"], by=OPERATOR, person=True)
    with pytest.raises(ToolError, match="not for both"):
        new_caller_key("desk", who, ["call"], by=OPERATOR, person=True, interactive=True)

    assert key.to_dict()["person"] is True
