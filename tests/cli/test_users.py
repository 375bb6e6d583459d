"""`toolpost users`: the operator lists all tenants, others their own."""

import pytest

from tests.cli.program import Run


@pytest.mark.req("OPS-05")
def test_users_and_tenants_are_listed(toolpost: Run) -> None:
    none = toolpost("users", "list", "--user", "acme:ann")
    for user in ("acme:ann", "evil:eve"):
        toolpost("tools", "call", "local.add", "a=1", "b=2", "--user", user)
    own = toolpost("users", "list", "--user", "acme:ann", "--json")
    everybody = toolpost("users", "list", "--all-tenants", "--user", "local:me", "--json")
    foreign = toolpost("users", "list", "--all-tenants", "--user", "acme:ann")
    tenants = [toolpost("users", "tenants", "--user", user, "--json").json for user in ("local:me", "acme:ann")]
    table = toolpost("users", "list", "--user", "acme:ann")

    assert "The tenant 'acme' has no users yet." in none.out
    assert [one["user"] for one in own.json] == ["acme:ann"]
    assert [one["user"] for one in everybody.json] == ["acme:ann", "evil:eve"]
    assert (foreign.code, "only the operator" in foreign.err) == (2, True)
    assert [[one["tenant"] for one in shown] for shown in tenants] == [["acme", "evil"], ["acme"]]
    assert "acme:ann" in table.out
