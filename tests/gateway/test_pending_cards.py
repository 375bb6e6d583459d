"""What a person sees of a pending action and may do with it: rights, filters, refusals with facts, passing on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway.serving import OPERATOR, Served, add, drop, listening, served, whole_app
from tests.gateway.test_sessions import bearer, session
from toolpost import Toolbox, ToolContext, tool
from toolpost.configuration.loading import load_settings
from toolpost.gateway.http import open_callers

RULES: list[dict[str, Any]] = [
    {"action": "allow", "tools": ["add"]},
    {"action": "ask", "tools": ["pay"], "reason": "money leaves", "approvals": {"answerers": ["acme:boss"]}},
]
MAY_RUN = asyncio.Event()


@tool(side_effects="external")
async def pay(euro: int, password: str = "") -> str:
    """Pay."""
    await MAY_RUN.wait()
    return f"{euro} paid"


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Served]:
    MAY_RUN.set()
    async with served(tmp_path / "data", [add, drop, pay], policy=RULES) as gate:
        yield gate


async def asked(gate: Served, tool_name: str, headers: dict[str, str], **arguments: Any) -> str:
    reply = await gate.http.post("/api/v1/calls", json={"tool": tool_name, "arguments": arguments}, headers=headers)
    assert reply.json()["pending"], reply.text
    return str(reply.json()["pending"]["id"])


async def card_for(gate: Served, pending_id: str, headers: dict[str, str]) -> dict[str, Any]:
    card: dict[str, Any] = (await gate.http.get(f"/api/v1/pending/{pending_id}", headers=headers)).json()
    return card


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.req("WEB-08")
async def test_a_link_that_a_chat_program_fetches_never_answers(gate: Served, method: str) -> None:
    pending_id = await asked(gate, "drop", await gate.key("acme:bot", "call"), name="t")
    paths = [f"/approvals/{pending_id}", f"/approvals/{pending_id}?decision=approve", f"/api/v1/pending/{pending_id}"]
    pages = [await gate.http.request(method, path, headers={"Accept": "text/html"}) for path in paths]
    answer = await gate.http.request(method, f"/api/v1/pending/{pending_id}/answer", params={"decision": "approve"})

    assert answer.status_code == 405
    assert all(page.status_code in (200, 404) for page in pages)  # 404 in an installation without the console
    assert (await card_for(gate, pending_id, {}))["status"] == "open"


@pytest.mark.req("WEB-08")
async def test_a_card_says_what_its_viewer_may_do_and_why_not(gate: Served) -> None:
    agent, boss, ann = (
        await gate.key("acme:bot", "call"),
        await session(gate, "acme:boss"),
        await session(gate, "acme:ann"),
    )
    pending_id = await asked(gate, "pay", agent, euro=5)
    for_agent, for_boss, for_ann = [await card_for(gate, pending_id, one) for one in (agent, boss, ann)]

    assert for_boss["viewer"] == {"may": ["approve", "modify", "deny"], "why_not": None}
    assert for_ann["viewer"] == {"may": [], "why_not": "only acme:boss may"}
    assert for_agent["viewer"]["may"] == []
    assert "the scope 'answer'" in for_agent["viewer"]["why_not"]


@pytest.mark.req("WEB-08")
async def test_a_card_shows_the_rule_the_tool_and_the_caller(gate: Served) -> None:
    agent, boss = await gate.key("acme:bot", "call"), await session(gate, "acme:boss")
    paid = await card_for(gate, await asked(gate, "pay", agent, euro=5), boss)
    dropped = await card_for(gate, await asked(gate, "drop", boss, name="x"), boss)

    assert paid["rule"] == {
        "index": 2,
        "of": 2,
        "action": "ask",
        "text": "ask: tools pay",
        "reason": "money leaves",
        "file": None,
        "line": None,
    }
    assert (dropped["rule"]["index"], dropped["rule"]["text"]) == (0, "standard")
    assert (paid["caller"]["kind"], paid["caller"]["name"]) == ("key", "acme:bot")
    assert (dropped["caller"]["kind"], dropped["caller"]["name"]) == ("session", "acme:boss")
    assert paid["tool"] == {
        "description": "Pay.",
        "origin": None,
        "source": None,
        "side_effects": "external",
        "destructive": False,
        "replay": paid["tool"]["replay"],
    }
    assert not paid["truncated"]


async def test_a_call_inside_another_one_has_its_caller(tmp_path: Path) -> None:
    @tool(side_effects="pure")
    async def outer(ctx: ToolContext) -> str:
        """Call another tool."""
        return str(await ctx.call("drop", {"name": "x"}))

    async with served(tmp_path / "data", [outer, drop]) as gate:
        ann = await session(gate, "acme:ann")
        await gate.http.post("/api/v1/calls", json={"tool": "outer"}, headers=ann)
        [card] = (await gate.http.get("/api/v1/pending", headers=ann)).json()["items"]

    assert (card["tool_name"], card["caller"]["kind"]) == ("drop", "session")


async def test_pending_actions_are_filtered_counted_and_paged(gate: Served) -> None:
    agent, boss, ann = (
        await gate.key("acme:bot", "call"),
        await session(gate, "acme:boss"),
        await session(gate, "acme:ann"),
    )
    paid = [await asked(gate, "pay", agent, euro=number) for number in range(3)]
    dropped = await asked(gate, "drop", ann, name="x")

    async def ids(query: str, headers: dict[str, str] = boss) -> tuple[list[str], int | None, str | None]:
        reply = (await gate.http.get(f"/api/v1/pending?{query}", headers=headers)).json()
        return [card["id"] for card in reply["items"]], reply["total"], reply["next"]

    assert await ids("tool=pay&total=yes") == (paid[::-1], 3, None)
    assert await ids("mine=yes", ann) == ([dropped], None, None)
    assert await ids("asked_by=acme:ann&kind=approval") == ([dropped], None, None)
    assert await ids("kind=input") == ([], None, None)
    assert await ids("since=99999999999") == ([], None, None)
    first = await ids("tool=pay&limit=2&total=yes")
    second = await ids(f"tool=pay&limit=2&total=yes&cursor={first[2]}")
    assert (first[:2], second) == ((paid[:0:-1], 3), (paid[:1], 3, None))
    done = await gate.http.post(f"/api/v1/pending/{paid[0]}/answer", json={"decision": "approve"}, headers=boss)
    assert done.json()["content"] == "0 paid"
    assert await ids("status=all&answered_by=acme:boss&total=yes") == ([paid[0]], 1, None)
    summary = (await gate.http.get("/api/v1/pending?view=summary", headers=boss)).json()["items"][0]
    assert [answer["schema"] for answer in summary["answers"]] == [{}] * 3
    assert "input_schema" not in str(summary["answers"])


async def test_a_page_that_reads_too_many_ends_early_and_the_next_one_continues(
    gate: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolpost.gateway.rest.pending._MOST_SEARCHED", 4)
    agent, ann = await gate.key("acme:bot", "call"), await session(gate, "acme:ann")
    dropped = await asked(gate, "drop", ann, name="x")
    for number in range(6):
        await asked(gate, "pay", agent, euro=number)
    path = "/api/v1/pending?tool=drop&limit=3&total=yes"
    first = (await gate.http.get(path, headers=ann)).json()
    second = (await gate.http.get(f"{path}&cursor={first['next']}", headers=ann)).json()

    assert (first["items"], first["total"]) == ([], None)
    assert ([card["id"] for card in second["items"]], second["next"]) == ([dropped], None)


async def test_an_asynchronous_answer_is_confirmed_before_the_call_has_ended(gate: Served) -> None:
    MAY_RUN.clear()
    boss = await session(gate, "acme:boss")
    pending_id = await asked(gate, "pay", await gate.key("acme:bot", "call"), euro=5)
    path, body = f"/api/v1/pending/{pending_id}/answer", {"decision": "approve", "mode": "async"}
    claimed = await gate.http.post(path, json=body, headers=boss)
    again = await gate.http.post(path, json=body, headers=boss)
    MAY_RUN.set()
    async with asyncio.timeout(30):
        while (card := (await gate.http.get(claimed.headers["location"], headers=boss)).json())["outcome"] is None:
            await asyncio.sleep(0.01)

    assert (claimed.status_code, claimed.json()["status"]) == (202, "claimed")
    assert claimed.json()["run_id"] == card["run_id"]
    assert (again.status_code, again.json()["code"]) == (409, "already_answered")
    assert card["outcome"]["content"] == "5 paid"


async def test_a_refused_answer_carries_the_facts(gate: Served) -> None:
    boss, ann = await session(gate, "acme:boss"), await session(gate, "acme:ann")
    pending_id = await asked(gate, "pay", await gate.key("acme:bot", "call"), euro=5, password="hunter2")
    path = f"/api/v1/pending/{pending_id}/answer"
    forbidden = await gate.http.post(path, json={"decision": "approve"}, headers=ann)
    masked = {"decision": "modify", "changes": [{"op": "replace", "path": "/password", "value": "[redacted]"}]}
    refused = await gate.http.post(path, json=masked, headers=boss)
    await gate.http.post(path, json={"decision": "deny", "reason": "no"}, headers=boss)
    late = (await gate.http.post(path, json={"decision": "approve"}, headers=boss)).json()

    assert (forbidden.status_code, forbidden.json()["answerers"], forbidden.json()["four_eyes"]) == (
        403,
        ["acme:boss"],
        False,
    )
    assert refused.status_code == 422
    assert (late["code"], late["answered_by"], late["card"]["id"]) == ("already_answered", "acme:boss", pending_id)
    assert (late["card"]["answer"]["decision"], late["card"]["masked"]) == ("deny", ["/password"])
    assert "hunter2" not in str(late)


@pytest.mark.req("WEB-10")
async def test_a_pending_action_is_passed_on_to_someone_who_may_answer(gate: Served) -> None:
    boss, agent = await session(gate, "acme:boss"), await gate.key("acme:bot", "call")
    pending_id = await asked(gate, "pay", agent, euro=5)
    path = f"/api/v1/pending/{pending_id}/escalate"
    passed = await gate.http.post(path, json={"to": "acme:boss", "note": "is this right?"}, headers=boss)
    wrong = [await gate.http.post(path, json={"to": to}, headers=boss) for to in ("acme:ann", "evil:eve", "boss")]
    forbidden = await gate.http.post(path, json={"to": "acme:boss"}, headers=agent)
    await gate.box.store.events.flush()
    events = await gate.box.store.events.read(tenant="acme")
    done = await gate.http.post(f"/api/v1/pending/{pending_id}/answer", json={"decision": "approve"}, headers=boss)
    late = await gate.http.post(path, json={"to": "acme:boss"}, headers=boss)

    [once] = passed.json()["passed_on"]
    assert (once["by"], once["to"], once["note"]) == ("acme:boss", "acme:boss", "is this right?")
    assert [one.status_code for one in wrong] == [422] * 3
    assert forbidden.status_code == 403
    assert [event.payload["to"] for event in events if event.code.name == "APPROVAL_ESCALATED"] == ["acme:boss"]
    assert done.json()["content"] == "5 paid"
    assert (late.status_code, late.json()["answered_by"]) == (409, "acme:boss")


async def test_a_card_names_the_line_of_its_rule_in_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        "from toolpost import tool\n\n@tool(side_effects='pure')\ndef look() -> str:\n    return 'x'\n"
    )
    (tmp_path / "toolpost.yaml").write_text(
        "data_dir: data\nsources:\n  - {name: own, transport: python, connection: ./tools.py}\n"
        "policy:\n  - {action: allow, tools: [other]}\n  - {action: ask, tools: ['own.*']}\n"
    )
    async with (
        Toolbox.open(load_settings(tmp_path / "toolpost.yaml")) as box,
        open_callers(box, tmp_path / "data", OPERATOR, host="127.0.0.1") as callers,
        listening(whole_app(box, callers, "http://127.0.0.1")) as url,
        httpx2.AsyncClient(base_url=url, headers=bearer(callers.token), trust_env=False, timeout=60) as http,
    ):
        await http.post("/api/v1/calls", json={"tool": "own.look"})
        [card] = (await http.get("/api/v1/pending")).json()["items"]

    assert (card["rule"]["index"], card["rule"]["file"], card["rule"]["line"]) == (2, "toolpost.yaml", 6)
