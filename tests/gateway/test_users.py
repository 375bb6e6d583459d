"""Users and tenants over REST: an admin sees the own tenant, the operator all."""

from typing import Any

import pytest

from tests.gateway.serving import Served


async def shown(gate: Served, path: str, headers: dict[str, str]) -> tuple[int, Any]:
    answer = await gate.http.get(f"/api/v1{path}", headers=headers)
    return answer.status_code, answer.json()


@pytest.mark.req("OPS-05")
async def test_an_admin_sees_the_own_tenant_and_the_operator_all(gate: Served) -> None:
    for user in ("acme:ann", "other:eve"):
        agent = await gate.key(user, "call")
        await gate.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": 1, "b": 2}}, headers=agent)
    admin, operator = await gate.key("acme:olga", "admin"), await gate.key("local:olga", "admin")
    code, own = await shown(gate, "/users", admin)
    tenants = (await shown(gate, "/tenants", admin))[1]["items"]
    refused = [await shown(gate, f"/users?tenant={name}", admin) for name in ("other", "*")]
    everybody = (await shown(gate, "/users?tenant=*", operator))[1]["items"]
    others = (await shown(gate, "/users?tenant=other", operator))[1]["items"]
    all_tenants = (await shown(gate, "/tenants", operator))[1]["items"]

    assert (code, [one["user"] for one in own["items"]]) == (200, ["acme:ann", "acme:olga"])
    assert own["items"][0]["last_run_at"] > 0
    assert (own["items"][0]["keys"], own["items"][1]["last_run_at"]) == (1, None)
    assert [(one["tenant"], one["users"], one["keys"]) for one in tenants] == [("acme", 2, 2)]
    assert [(status, problem["code"]) for status, problem in refused] == [(403, "operator_required")] * 2
    assert [one["user"] for one in everybody] == ["acme:ann", "acme:olga", "local:olga", "other:eve"]
    assert [one["user"] for one in others] == ["other:eve"]
    assert [one["tenant"] for one in all_tenants] == ["acme", "local", "other"]


@pytest.mark.parametrize("scope", ["call", "answer"])
async def test_other_scopes_see_no_users(gate: Served, scope: Any) -> None:
    key = await gate.key("acme:ann", scope)

    assert [(await shown(gate, path, key))[0] for path in ("/users", "/tenants")] == [403, 403]
