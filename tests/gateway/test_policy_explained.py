"""The policy over REST: its rules with their places, and the verdict about a call that is not made."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.serving import Served, served
from toolpost import ToolContext, tool
from toolpost.contracts.questions import CallPreview

RULES: list[dict[str, Any]] = [
    {"action": "deny", "tools": ["close*"], "reason": "the shop stays open"},
    {"action": "ask", "tags": ["money"], "approvals": {"answerers": ["acme:treasury"], "four_eyes": True}},
    {"action": "ask", "destructive": True},
    {"action": "allow"},
]
CALLED: list[str] = []


@tool(side_effects="external", tags=["money"])
async def pay(to: str, euro: int, api_key: str = "") -> str:
    """Pay someone."""
    CALLED.append(to)
    return to


@tool(side_effects="write")
async def close_shop() -> str:
    """Close the shop."""
    return "closed"


async def _preview(arguments: dict[str, Any], _context: ToolContext) -> CallPreview:
    if arguments["name"] == "broken":
        raise RuntimeError("the shelf is gone")
    return CallPreview(text=f"--- {arguments['name']}", destructive=arguments["name"] == "last")


@tool(side_effects="write", preview=_preview)
async def remove(name: str) -> str:
    """Remove a name."""
    CALLED.append(name)
    return name


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "data", [pay, close_shop, remove], policy=RULES) as gate:
        yield gate


async def explained(gate: Served, tool: str, **body: Any) -> Any:
    answer = await gate.http.post("/api/v1/policy/explain", json={"tool": tool, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_rules_are_listed_with_the_number_of_tools_that_each_decides_about(gate: Served) -> None:
    policy = (await gate.http.get("/api/v1/policy")).json()

    assert [(rule["text"], rule["tools"]) for rule in policy["rules"]] == [
        ("deny: tools close*", 1),
        ("ask: tags money", 1),
        ("ask: destructive", 0),
        ("allow: every tool", 1),
    ]
    assert policy["rules"][1]["approvals"] == {"answerers": ["acme:treasury"], "four_eyes": True, "person": None}
    assert policy["template"] == {"name": "standard", "tools": 0}


@pytest.mark.req("WEB-14")
async def test_an_explanation_names_the_rule_and_why_earlier_ones_do_not_match(gate: Served) -> None:
    shown = await explained(gate, "pay", arguments={"to": "bob", "euro": 3, "api_key": "sk-very-secret-value"})

    assert (shown["action"], shown["rule"]["index"], shown["rule"]["of"]) == ("ask", 2, 4)
    assert (shown["answerers"], shown["four_eyes"]) == (["acme:treasury"], True)
    assert [(step["outcome"], step["why"]) for step in shown["trace"]] == [
        ("no_match", "the name matches none of: close*"),
        ("decides", ""),
        ("not_reached", ""),
        ("not_reached", ""),
        ("not_reached", ""),
    ]
    assert shown["issues"] == []
    assert shown["arguments"]["api_key"] == "[redacted]"
    assert "sk-very-secret-value" not in str(shown)


@pytest.mark.req("WEB-14")
async def test_an_explanation_has_no_effects(gate: Served) -> None:
    await explained(gate, "pay", arguments={"to": "bob", "euro": 3})
    await explained(gate, "remove", arguments={"name": "last"})

    assert CALLED == []
    assert (await gate.http.get("/api/v1/runs")).json()["items"] == []
    assert (await gate.http.get("/api/v1/pending")).json()["items"] == []


async def test_invalid_arguments_are_issues(gate: Served) -> None:
    shown = await explained(gate, "pay", arguments={"to": "bob"})

    assert shown["action"] == "ask"
    assert "euro" in shown["issues"][0]


async def test_a_preview_changes_the_verdict_and_the_trace(gate: Served) -> None:
    last = await explained(gate, "remove", arguments={"name": "last"})
    other = await explained(gate, "remove", arguments={"name": "first"})
    broken = await explained(gate, "remove", arguments={"name": "broken"})

    assert (last["action"], last["rule"]["index"], last["preview"]["kind"]) == ("ask", 3, "diff")
    assert (other["action"], other["trace"][2]["why"]) == ("allow", "the tool is not destructive")
    assert broken["issues"] == ["RuntimeError: the shelf is gone"]


async def test_a_denied_call_has_no_preview(gate: Served) -> None:
    shown = await explained(gate, "close_shop", arguments={})

    assert (shown["action"], shown["reason"], shown["preview"]) == ("deny", "the shop stays open", None)


async def test_the_verdict_for_another_user_is_for_people_of_the_same_tenant(gate: Served) -> None:
    agent, approver = await gate.key("acme:bot", "call"), await gate.key("acme:ann", "answer")
    question = {"tool": "pay", "user": "acme:bob"}
    by_agent = await gate.http.post("/api/v1/policy/explain", json=question, headers=agent)
    by_approver = await gate.http.post("/api/v1/policy/explain", json=question, headers=approver)
    elsewhere = await gate.http.post("/api/v1/policy/explain", json={**question, "user": "other:bob"}, headers=approver)

    assert (by_agent.status_code, by_approver.status_code, elsewhere.status_code) == (403, 200, 403)
    assert by_approver.json()["user"] == "acme:bob"
    assert (await gate.http.get("/api/v1/policy", headers=agent)).status_code == 403


async def test_an_agent_sees_the_rule_about_its_call_and_no_other_rule(gate: Served) -> None:
    question = {"tool": "pay", "arguments": {"to": "bob", "euro": 3}}
    agent, approver = await gate.key("acme:bot", "call"), await gate.key("acme:ann", "answer")
    by_agent, by_approver = [
        (await gate.http.post("/api/v1/policy/explain", json=question, headers=who)).json() for who in (agent, approver)
    ]

    assert (by_agent["action"], by_agent["rule"]["text"]) == ("ask", "ask: tags money")
    assert [step["outcome"] for step in by_agent["trace"]] == ["decides"]
    assert len(by_approver["trace"]) == 5
    assert "close" not in str(by_agent)


async def test_an_unknown_tool_is_a_problem_with_the_nearest_name(gate: Served) -> None:
    answer = await gate.http.post("/api/v1/policy/explain", json={"tool": "pai"})

    assert answer.status_code == 404
    assert "pay" in answer.json()["detail"]


async def test_about_states_version_extras_and_problems(gate: Served) -> None:
    about = (await gate.http.get("/api/v1/about")).json()

    assert about["extras"]["gateway"] is True
    assert (about["workers"], about["problems"], about["policy"], about["commands"]) == (1, [], "rules", "operator")
    assert about["public_url"] == gate.url


async def test_the_configuration_is_shown_without_secrets_and_to_the_operator_only(tmp_path: Path) -> None:
    source = {
        "name": "shop",
        "transport": "mcp",
        "connection": "https://bot:pass-word-1@shop.example/mcp?token=tok-en-12",
        "env": {"MODE": "env-value-3"},
        "auth_type": "bearer",
        "auth_config": {"token": "auth-token-4"},
        "enabled": False,
    }
    async with served(tmp_path / "data", [pay], policy=RULES, sources=[source]) as gate:
        shown = await gate.http.get("/api/v1/config")
        refused = [
            await gate.http.get("/api/v1/config", headers=await gate.key(user, "admin"))
            for user in ("acme:ann", "local:ann")
        ]

    assert shown.json()["policy"] == RULES
    assert shown.json()["sources"][0]["name"] == "shop"
    assert shown.json()["sources"][0]["env"] == {"MODE": "[redacted]"}
    assert not [one for one in ("pass-word", "tok-en", "env-value", "auth-token") if one in shown.text]
    assert [answer.status_code for answer in refused] == [403, 200]
