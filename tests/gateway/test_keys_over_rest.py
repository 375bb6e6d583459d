"""Keys over REST: people of the tenant list, create and revoke them; the secret is shown once."""

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.serving import Served, served
from tests.gateway.test_callers import issuer, oidc, signed

__all__ = ["issuer"]  # a fixture of its own module

PATH = "/api/v1/keys"


async def created(gate: Served, **body: Any) -> Any:
    answer = await gate.http.post(PATH, json={"name": "bot", "scopes": ["call"], **body})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_key_is_shown_once_and_works_until_it_is_revoked(gate: Served) -> None:
    made = await created(gate, expires_in_s=3600)
    bearer = {"Authorization": f"Bearer {made['token']}"}
    called = await gate.http.post("/api/v1/tools/add", json={"a": 1, "b": 2}, headers=bearer)
    listed = await gate.http.get(PATH)
    removed = await gate.http.delete(f"{PATH}/{made['key']['id']}")
    refused = await gate.http.get("/api/v1/tools", headers=bearer)

    assert (called.json(), removed.status_code, refused.status_code) == (3, 204, 401)
    (key,) = listed.json()["items"]
    assert (key["name"], key["user"], key["scopes"], key["created_by"]) == ("bot", "acme:bot", ["call"], "acme:olga")
    assert key["last_used_at"] >= made["key"]["created_at"]
    assert made["key"]["last_used_at"] is None
    assert made["token"].rpartition("_")[2] not in listed.text


async def test_the_last_use_of_an_agents_key_survives_a_restart(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as gate:
        made = await created(gate)
        bearer = {"Authorization": f"Bearer {made['token']}"}
        await gate.http.post("/api/v1/calls", json={"tool": "none"}, headers=bearer)
        await gate.box.store.events.flush()
    async with served(tmp_path / "data") as gate:
        (key,) = (await gate.http.get(PATH)).json()["items"]

    assert key["last_used_at"] >= made["key"]["created_at"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"scopes": ["call", "answer"]}, 400, "key_scopes"),
        ({"scopes": ["answer"], "interactive": True}, 400, "key_scopes"),
        ({"scopes": []}, 422, "invalid_body"),
        ({"scopes": ["all"]}, 422, "invalid_body"),
        ({"for": "other:bot"}, 403, "other_tenant"),
        ({"expires_in_s": 0}, 422, "invalid_body"),
    ],
)
async def test_wrong_keys_are_refused(gate: Served, body: Any, status: int, code: str) -> None:
    answer = await gate.http.post(PATH, json={"name": "bot", "scopes": ["call"], **body})

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert (await gate.http.get(PATH)).json()["items"] == []


async def test_only_admins_see_keys_and_only_those_of_their_tenant(gate: Served) -> None:
    made = await created(gate)
    approver, other = await gate.key("acme:ann", "answer"), await gate.key("other:eve", "admin")
    path = f"{PATH}/{made['key']['id']}"

    assert (await gate.http.get(PATH, headers=approver)).status_code == 403
    assert [key["user"] for key in (await gate.http.get(PATH, headers=other)).json()["items"]] == ["other:eve"]
    assert (await gate.http.delete(path, headers=other)).status_code == 404


async def test_a_person_may_have_a_key_that_only_opens_sessions(gate: Served) -> None:
    made = await created(gate, name="ann", scopes=["call", "answer"], person=True)
    bearer = {"Authorization": f"Bearer {made['token']}"}
    opened = await gate.http.post("/api/v1/sessions", headers=bearer)
    (key,) = (await gate.http.get(PATH)).json()["items"]

    assert opened.status_code == 200, opened.text
    assert (key["person"], key["user"]) == (True, "acme:ann")
    assert key["last_used_at"] is not None


async def test_an_admin_of_the_issuer_makes_no_key_of_the_operator(tmp_path: Path, issuer: str) -> None:
    settings = oidc(issuer, person_clients=["desk"], tenant_claim=None, roles={"boss": {"scopes": ["admin"]}})
    async with served(tmp_path / "data", server=settings) as gate:
        boss, operator = signed(issuer, azp="desk", roles=["boss"]), await gate.key("local:olga", "admin")
        session = (await gate.http.post("/api/v1/sessions", headers=boss)).json()
        body = {"name": "mallory", "scopes": ["admin"], "person": True}
        refused = [
            await gate.http.post(PATH, json=body, headers=one)
            for one in (boss, {"Authorization": f"Bearer {session['token']}"})
        ]
        agents = await gate.http.post(PATH, json={"name": "bot", "scopes": ["call"]}, headers=boss)
        made = await gate.http.post(PATH, json=body, headers=operator)

    assert [(one.status_code, one.json()["code"]) for one in refused] == [(403, "operator_required")] * 2
    assert (agents.status_code, made.status_code) == (201, 201)


@pytest.mark.parametrize("body", [{"scopes": ["call"], "person": True}, {"scopes": ["answer"]}, {"scopes": ["admin"]}])
async def test_an_admin_of_a_tenant_makes_no_key_that_signs_in_as_another_person(gate: Served, body: Any) -> None:
    admin, operator = await gate.key("acme:ann", "admin"), await gate.key("local:olga", "admin")
    session = (await gate.http.post("/api/v1/sessions", headers=admin)).json()["token"]
    callers = [admin, {"Authorization": f"Bearer {session}"}]
    others = [await gate.http.post(PATH, json={"name": "eva", **body}, headers=one) for one in callers]
    own = await gate.http.post(PATH, json={"name": "desk", "for": "ann", **body}, headers=admin)
    agents = await gate.http.post(PATH, json={"name": "bot", "scopes": ["call"]}, headers=admin)
    operators = await gate.http.post(PATH, json={"name": "eva", "scopes": ["answer"]}, headers=operator)

    assert [(one.status_code, one.json()["code"]) for one in others] == [(403, "key_of_another_person")] * 2
    assert (own.status_code, agents.status_code, operators.status_code) == (201, 201, 201)
