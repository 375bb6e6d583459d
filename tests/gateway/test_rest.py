"""The REST interface over real HTTP: call, wait, listen, answer, upload; and what becomes of wrong requests."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from tests.gateway.serving import Served, add, served
from toolpost import Completed, Paused, ToolContext, tool
from toolpost.contracts.callers import CallerScope
from toolpost.contracts.outcomes import outcome_to_dict
from toolpost.errors import (
    ToolCancelledError,
    ToolClientError,
    ToolError,
    ToolNodeError,
    ToolOutputError,
    ToolServerError,
    ToolTimeoutError,
)

dropped: list[str] = []
released: list[asyncio.Event] = []  # of the event loop of this test


@tool(side_effects="write", destructive=True)
async def drop(name: str, password: SecretStr | None = None) -> dict[str, str]:
    """Drop a table."""
    dropped.append(name)
    return {"gone": name}


@tool(side_effects="pure")
async def hold(ctx: ToolContext) -> str:
    """Wait until somebody says so."""
    ctx.progress("waiting")
    await released[-1].wait()
    return "released"


@tool(side_effects="pure")
async def odd() -> Any:
    """Return what JSON has no word for."""
    return {"number": float("nan"), "text": "\ud800"}


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Served]:
    dropped.clear()
    released.append(asyncio.Event())
    async with served(tmp_path / "data", [add, drop, hold, odd]) as gate:
        yield gate


async def paused(gate: Served, **headers: str) -> Any:
    reply = await gate.http.post("/api/v1/calls", json={"tool": "drop", "arguments": {"name": "t"}}, headers=headers)
    assert (reply.status_code, reply.json()["status"]) == (200, "paused")
    return reply.json()


async def answer(gate: Served, pending_id: str, headers: dict[str, str] | None = None, **body: Any) -> Any:
    return await gate.http.post(f"/api/v1/pending/{pending_id}/answer", json=body, headers=headers or {})


async def test_a_call_answers_the_same_object_as_the_command_line(gate: Served) -> None:
    reply = await gate.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": 2, "b": 3}})
    failed = await gate.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": 2, "b": "x"}})
    missing = await gate.http.post("/api/v1/calls", json={"tool": "ad"})
    same = outcome_to_dict(await gate.box.call("add", {"a": 2, "b": 3}))

    assert reply.status_code == 200
    assert reply.json().keys() == same.keys()
    assert (reply.json()["status"], reply.json()["content"]) == ("completed", 5)
    assert (failed.json()["status"], failed.json()["error"]["error_code"]) == ("failed", "validation_failed")
    assert missing.json()["error"]["error_code"] == "tool_not_found"


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (OSError("disk"), 500),
        (ConnectionError("reset"), 502),
        (ToolServerError("broken"), 502),
        (ToolClientError("no such order"), 400),
        (ToolTimeoutError("too slow"), 504),
        (ToolOutputError("it is no number"), 502),
        (ToolNodeError("no answer that can be read"), 502),
        (ToolCancelledError("not wanted any more"), 409),
        (ToolError("its process ended", code="interrupted"), 503),
    ],
)
async def test_what_a_tool_fails_with_is_not_the_fault_of_the_request(
    tmp_path: Path, raised: Exception, status: int
) -> None:
    @tool(side_effects="write")
    async def fail() -> str:
        """Fail."""
        raise raised

    async with served(tmp_path / "data", [fail]) as gate:
        reply = await gate.http.post("/api/v1/tools/fail", json={})
        answered = await gate.http.get("/openapi.json")

    assert (reply.status_code, str(raised) in reply.json()["detail"]) == (status, True)
    assert str(status) in answered.json()["paths"]["/api/v1/tools/{name}"]["post"]["responses"]


async def test_a_tool_of_a_source_that_is_down_is_unavailable(tmp_path: Path) -> None:
    source = {"name": "dead", "transport": "mcp", "connection": "http://127.0.0.1:9/mcp"}
    async with served(tmp_path / "data", [add], sources=[source], network={"allow_private": True}) as gate:
        await gate.box.wait_for_sources()
        reply = await gate.http.post("/api/v1/tools/dead.find", json={})

    assert (reply.status_code, reply.json()["code"]) == (503, "source_down")


async def test_the_same_key_gives_the_same_answer_and_other_arguments_are_refused(gate: Served) -> None:
    key = {"Idempotency-Key": "k1"}
    first = await gate.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": 1, "b": 2}}, headers=key)
    again = await gate.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": 1, "b": 2}}, headers=key)
    other = await gate.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": 1, "b": 3}}, headers=key)

    assert again.json()["run_id"] == first.json()["run_id"]
    assert ("idempotent-replayed" in first.headers, again.headers["idempotent-replayed"]) == (False, "true")
    assert (other.status_code, other.json()["code"]) == (422, "key_mismatch")


async def test_an_asynchronous_call_is_collected_by_its_run(gate: Served) -> None:
    started = await gate.http.post("/api/v1/calls", json={"tool": "hold", "mode": "async"})
    outcome = started.headers["location"]
    running = await gate.http.get(outcome)
    released[-1].set()
    done = await gate.http.get(outcome, params={"wait_s": 30})

    assert (started.status_code, started.json()["status"]) == (202, "running")
    assert (running.status_code, done.status_code) == (202, 200)
    assert done.json()["content"] == "released"


@pytest.mark.parametrize("mode", ["wait", "async"])
async def test_a_call_of_a_tool_that_the_caller_does_not_see_starts_nothing(tmp_path: Path, mode: str) -> None:
    views = {"few": {"tools": ["nothing"]}}
    async with served(tmp_path / "data", [add], views=views, view="few") as gate:
        bot = await gate.key("acme:bot", "call")
        call = {"tool": "add", "arguments": {"a": 1, "b": 2}, "mode": mode}
        reply = await gate.http.post("/api/v1/calls", json=call, headers=bot)
        runs = (await gate.http.get("/api/v1/runs")).json()["items"]

    assert reply.status_code == (404 if mode == "async" else 200)
    assert "not found" in reply.text
    assert runs == []


async def test_a_streamed_call_sends_its_events_and_then_the_outcome(gate: Served) -> None:
    released[-1].set()
    async with gate.http.stream("POST", "/api/v1/calls", json={"tool": "hold", "mode": "stream"}) as reply:
        text = (await reply.aread()).decode()
    blocks = [dict(line.split(": ", 1) for line in block.splitlines()) for block in text.strip().split("\n\n")]

    assert reply.headers["content-type"].startswith("text/event-stream")
    names = [block["event"] for block in blocks]
    assert names == [
        "TOOL_CALL_REQUESTED", "TOOL_CALL_STARTED", "SUBAGENT_ACTION", "TOOL_CALL_COMPLETED", "outcome",
    ]  # fmt: skip
    assert json.loads(blocks[-1]["data"])["content"] == "released"


async def test_a_run_is_listed_shown_cancelled_and_then_over(gate: Served) -> None:
    run_id = (await gate.http.post("/api/v1/calls", json={"tool": "hold", "mode": "async"})).json()["run_id"]
    listed = (await gate.http.get("/api/v1/runs")).json()["items"]
    cancelled = await gate.http.post(f"/api/v1/runs/{run_id}/cancel")
    outcome = await gate.http.get(f"/api/v1/runs/{run_id}/outcome", params={"wait_s": 30})
    again = await gate.http.post(f"/api/v1/runs/{run_id}/cancel")
    shown = (await gate.http.get(f"/api/v1/runs/{run_id}")).json()

    assert [run["run_id"] for run in listed] == [run_id]
    assert (cancelled.status_code, again.status_code) == (202, 409)
    assert outcome.json()["status"] == "failed"
    assert [event["seq"] for event in shown["log"]] == list(range(1, len(shown["log"]) + 1))


async def test_pages_continue_by_cursor_and_made_up_cursors_are_refused(gate: Served) -> None:
    made = [(await gate.http.post("/api/v1/calls", json={"tool": "odd"})).json()["run_id"] for _ in range(5)]
    seen, cursor = list[str](), None
    while True:
        page = (
            await gate.http.get("/api/v1/runs", params={"limit": 2} | ({"cursor": cursor} if cursor else {}))
        ).json()
        seen += [run["run_id"] for run in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    wrong = [
        (await gate.http.get(f"/api/v1/{path}", params={"cursor": cursor})).status_code
        for path in ("runs", "tools", "pending", "artifacts")
        for cursor in ("x", "!!", "cnVuXzk", "\u00e9")
    ]

    assert seen == made[::-1]
    assert set(wrong) == {400}


async def test_artifacts_are_listed_by_pages(gate: Served) -> None:
    made = [(await gate.http.post("/api/v1/artifacts", content=b"%d" % number)).json()["id"] for number in range(3)]
    first = (await gate.http.get("/api/v1/artifacts", params={"limit": 2})).json()
    last = (await gate.http.get("/api/v1/artifacts", params={"limit": 2, "cursor": first["next"]})).json()

    assert [one["id"] for one in first["items"] + last["items"]] == made[::-1]
    assert last["next"] is None


async def test_what_waits_is_listed_by_pages_while_it_is_being_answered(gate: Served) -> None:
    bot = await gate.key("acme:bot", "call")
    asked = [(await paused(gate, **{"Idempotency-Key": key}))["pending"]["id"] for key in "abcd"]
    await gate.http.post("/api/v1/calls", json={"tool": "drop", "arguments": {"name": "x"}}, headers=bot)
    first = (await gate.http.get("/api/v1/pending", params={"limit": 2})).json()
    await answer(gate, first["items"][-1]["id"], decision="deny")
    rest = await gate.http.get("/api/v1/pending", params={"limit": 3, "cursor": first["next"]})
    foreign = await gate.http.get("/api/v1/pending", params={"cursor": first["next"]}, headers=bot)

    assert [card["asked_by"] for card in first["items"]] == ["acme:bot", "acme:olga"]
    assert first["items"][-1]["id"] == asked[3]
    assert ([card["id"] for card in rest.json()["items"]], rest.json()["next"]) == (asked[2::-1], None)
    assert (foreign.status_code, foreign.json()["code"]) == (400, "invalid_cursor")


async def test_tools_are_listed_searched_and_reported_unchanged_by_etag(gate: Served) -> None:
    listed = await gate.http.get("/api/v1/tools", params={"limit": 2})
    again = await gate.http.get("/api/v1/tools", params={"limit": 2}, headers={"If-None-Match": listed.headers["etag"]})
    found = await gate.http.get("/api/v1/tools", params={"q": "add numbers", "limit": 1})
    shown = await gate.http.get("/api/v1/tools/add")

    assert (len(listed.json()["items"]), again.status_code, again.content) == (2, 304, b"")
    assert found.json()["items"][0]["name"] == "add"
    assert shown.json()["input_schema"]["required"] == ["a", "b"]


async def test_what_json_has_no_word_for_is_still_answered(gate: Served) -> None:
    reply = await gate.http.post("/api/v1/calls", json={"tool": "odd"})

    assert reply.status_code == 200
    assert reply.json()["status"] in ("completed", "failed")


# ---------------------------------------------------------------- cards and answers


async def test_a_missing_question_is_reported_with_where_to_look_over_rest(gate: Served) -> None:
    shown = await gate.http.get("/api/v1/pending/ask_none")
    answered = await answer(gate, "ask_none", decision="approve")

    assert shown.status_code == answered.status_code == 404
    detail = "Pending action 'ask_none' not found for this user. GET /api/v1/pending lists open pending actions."
    assert shown.json()["detail"] == answered.json()["detail"] == detail


async def test_a_call_that_waits_for_several_answers_names_them_all(tmp_path: Path) -> None:
    @tool(side_effects="write")
    async def drop_both(ctx: ToolContext) -> list[Any]:
        """Drop two tables."""
        outcomes = [await ctx.call("drop", {"name": name}) for name in ("a", "b")]
        if waiting := [one for one in outcomes if isinstance(one, Paused)]:
            ctx.wait_for(*waiting)
        return [one.content for one in outcomes if isinstance(one, Completed)]

    @tool(side_effects="write")
    async def outer(ctx: ToolContext) -> Any:
        """Drop two tables, at the second remove."""
        outcome = await ctx.call("drop_both", {})
        if isinstance(outcome, Paused):
            ctx.wait_for(outcome)
        return outcome.content if isinstance(outcome, Completed) else None

    async with served(tmp_path / "data", [drop, drop_both, outer]) as gate:
        first = (await gate.http.post("/api/v1/calls", json={"tool": "outer"})).json()["pending"]
        cards = {card["id"]: card for card in (await gate.http.get("/api/v1/pending")).json()["items"]}
        second = (await answer(gate, first["id"], decision="approve")).json()["pending"]
        done = (await answer(gate, second["id"], decision="approve")).json()

    named = [first, *first["others"]]
    assert [one["tool_name"] for one in named] == ["drop", "drop"]
    assert [one["arguments"]["name"] for one in named] == ["a", "b"]
    assert {one["id"]: one["prompt"] for one in named} == {id: card["prompt"] for id, card in cards.items()}
    assert (second["id"], second["others"]) == (first["others"][0]["id"], [])
    assert done["content"] == [{"gone": "a"}, {"gone": "b"}]


async def test_a_card_shows_who_asks_for_what_and_the_answers_it_takes(gate: Served) -> None:
    asked = {"tool": "drop", "arguments": {"name": "t", "password": "hunter2"}}
    pending_id = (await gate.http.post("/api/v1/calls", json=asked)).json()["pending"]["id"]
    (card,) = (await gate.http.get("/api/v1/pending")).json()["items"]
    shown = await gate.http.get(f"/api/v1/pending/{pending_id}")

    assert (card["id"], card["tool_name"], card["asked_by"]) == (pending_id, "drop", "acme:olga")
    assert card["arguments"]["name"] == "t"
    assert "hunter2" not in shown.text
    assert [one["decision"] for one in card["answers"]] == ["approve", "modify", "deny"]
    assert card["answers"][1]["schema"]["required"] == ["decision", "changes"]
    assert card["answers"][1]["input_schema"]["required"] == ["name"]
    assert card == shown.json()
    assert card.pop("viewer") == {"may": ["approve", "modify", "deny"], "why_not": None}
    assert card == gate.box.pending.card(await gate.box.pending.get(pending_id, by="acme:olga"))


async def test_an_answer_runs_the_call_once_with_the_arguments_that_were_approved(gate: Served) -> None:
    approved = (await paused(gate))["pending"]["id"]
    done = await answer(gate, approved, decision="approve")
    second = await answer(gate, approved, decision="approve")
    changes = [{"op": "replace", "path": "/name", "value": "other"}]
    modified = await answer(gate, (await paused(gate))["pending"]["id"], decision="modify", changes=changes)
    denied = await answer(gate, (await paused(gate))["pending"]["id"], decision="deny", reason="not today")

    assert (done.json()["content"], modified.json()["content"]) == ({"gone": "t"}, {"gone": "other"})
    assert (second.status_code, second.json()["code"]) == (409, "already_answered")
    assert "not today" in denied.json()["error"]["message"]
    assert dropped == ["t", "other"]


async def test_a_card_says_what_was_decided(gate: Served) -> None:
    ids = [(await paused(gate, **{"Idempotency-Key": key}))["pending"]["id"] for key in "abcd"]
    await answer(gate, ids[0], decision="approve")
    changes = [
        {"op": "replace", "path": "/name", "value": "other"},
        {"op": "add", "path": "/password", "value": "hunter2"},
    ]
    await answer(gate, ids[1], decision="modify", changes=changes)
    await answer(gate, ids[2], decision="deny", reason="not today")
    cards = [(await gate.http.get(f"/api/v1/pending/{one}")).json() for one in ids]

    changed = cards[1]["answer"]
    assert (changed["decision"], changed["arguments"]["name"]) == ("modify", "other")
    assert changed["changes"] == [{"op": "replace", "path": "/name"}, {"op": "add", "path": "/password"}]
    assert "hunter2" not in str(cards)
    assert [card["answer"] for card in (cards[0], cards[2], cards[3])] == [
        {"decision": "approve"}, {"decision": "deny", "reason": "not today"}, None,
    ]  # fmt: skip


async def test_an_answer_with_wrong_arguments_leaves_the_question_open(gate: Served) -> None:
    pending_id = (await paused(gate))["pending"]["id"]
    wrong = [
        await answer(gate, pending_id, decision="modify", changes=[{"op": "replace", "path": "/name", "value": 7}]),
        await answer(gate, pending_id, decision="modify", changes=[{"op": "remove", "path": "/name"}]),
        await answer(gate, pending_id, decision="modify", changes=[{"op": "remove", "path": "/nme"}]),
        await answer(gate, pending_id, decision="modify", changes=[{"op": "move", "path": "/a", "from": "/name"}]),
        await answer(gate, pending_id, decision="modify", changes=[]),
        await answer(gate, pending_id, decision="modify", arguments={"name": "x"}),
        await answer(gate, pending_id, decision="modify"),
        await answer(gate, pending_id, decision="approve", changes=[{"op": "add", "path": "/name", "value": "x"}]),
        await answer(gate, pending_id, decision="perhaps"),
        await answer(gate, pending_id, decision="approve", extra=1),
        await answer(gate, pending_id, decision="answer", value=1),
    ]
    card = (await gate.http.get(f"/api/v1/pending/{pending_id}")).json()

    assert {reply.status_code for reply in wrong} == {422}
    assert (card["status"], dropped) == ("open", [])


async def test_a_masked_secret_is_kept_as_it_is_and_its_mask_is_never_sent(tmp_path: Path) -> None:
    given: list[tuple[str, str, str]] = []

    @tool(side_effects="external", destructive=True)
    async def sign_up(name: str, password: SecretStr, login: dict[str, str]) -> str:
        """Sign somebody up."""
        given.append((name, password.get_secret_value(), login["token"]))
        return "done"

    arguments = {"name": "ann", "password": "hunter2-and-more", "login": {"token": "t0ken-0f-ann"}}
    async with served(tmp_path / "data", [sign_up]) as gate:
        call = await gate.http.post("/api/v1/calls", json={"tool": "sign_up", "arguments": arguments})
        pending_id = call.json()["pending"]["id"]
        card = (await gate.http.get(f"/api/v1/pending/{pending_id}")).json()
        masks = [
            {"op": "replace", "path": "", "value": {**card["arguments"], "name": "bob"}},
            {"op": "replace", "path": "/password", "value": "[redacted]"},
            {"op": "replace", "path": "/login", "value": {"token": "x [redacted] y"}},
        ]
        refused = [await answer(gate, pending_id, decision="modify", changes=[one]) for one in masks]
        rename = [{"op": "replace", "path": "/name", "value": "bob"}]
        done = await answer(gate, pending_id, decision="modify", changes=rename)

    assert card["masked"] == ["/password", "/login/token"]
    assert {(reply.status_code, reply.json()["code"]) for reply in refused} == {(422, "validation_failed")}
    assert "represents a masked secret; omit the path" in refused[0].json()["detail"]
    assert done.json()["content"] == "done"
    assert given == [("bob", "hunter2-and-more", "t0ken-0f-ann")]


@pytest.mark.parametrize("scope", ["call", "admin"])
async def test_a_key_without_the_scope_to_answer_never_answers(gate: Served, scope: CallerScope) -> None:
    pending_id = (await paused(gate))["pending"]["id"]

    reply = await answer(gate, pending_id, await gate.key("acme:bot", scope), decision="approve")

    assert (reply.status_code, dropped) == (403, [])


async def test_an_agent_sees_its_own_and_other_tenants_ids_are_as_missing(gate: Served) -> None:
    asked = await paused(gate)
    stored = (await gate.http.post("/api/v1/artifacts", content=b"x")).json()["id"]
    stranger, bot = await gate.key("beta:eve", "answer", "admin"), await gate.key("acme:bot", "call")

    async def replies(headers: dict[str, str], run: str, pending: str, artifact: str) -> list[Any]:
        paths = [f"runs/{run}", f"runs/{run}/outcome", f"pending/{pending}", f"artifacts/{artifact}"]
        found = [await gate.http.get(f"/api/v1/{path}", headers=headers) for path in paths]
        found.append(await gate.http.post(f"/api/v1/runs/{run}/cancel", headers=headers))
        hidden = [run, pending, artifact]
        return [(one.status_code, *(part for part in one.text.split("'") if part not in hidden)) for one in found]

    theirs = await replies(stranger, asked["run_id"], asked["pending"]["id"], stored)
    missing = await replies(stranger, "run_none", "ask_none", "art_none")
    own = (await gate.http.get("/api/v1/pending", headers=bot)).json()["items"]
    runs = (await gate.http.get("/api/v1/runs", headers=bot)).json()["items"]
    refused = await answer(gate, asked["pending"]["id"], stranger, decision="approve")

    assert theirs == missing
    assert {status for status, *_ in theirs} == {404}
    assert (own, runs, refused.status_code, dropped) == ([], [], 404, [])


async def test_an_agent_is_kept_to_the_view_at_mcp(tmp_path: Path) -> None:
    views: dict[str, Any] = {"view": "sums", "views": {"sums": {"tools": ["add"], "principals": ["acme:*"]}}}
    async with served(tmp_path / "data", [add, drop], **views) as gate:
        bot, guest = await gate.key("acme:bot", "call"), await gate.key("beta:guest", "call")

        async def seen(headers: dict[str, str]) -> list[str]:
            listed = (await gate.http.get("/api/v1/tools", headers=headers)).json()["items"]
            manual = (await gate.http.get("/.well-known/utcp", headers=headers)).json()["tools"]
            assert [tool["name"] for tool in manual] == [tool["name"] for tool in listed]
            return [tool["name"] for tool in listed]

        async def error(headers: dict[str, str], name: str) -> Any:
            reply = await gate.http.post("/api/v1/calls", json={"tool": name, "arguments": {}}, headers=headers)
            return reply.json()["error"]["error_code"]

        found = [await seen(bot), await seen(guest), await seen({})]
        hidden = [await error(bot, "drop"), await error(guest, "add"), await error(bot, "none")]
        shown = await gate.http.get("/api/v1/tools/drop", headers=bot)
        searched = (await gate.http.get("/api/v1/tools", params={"q": "drop a table"}, headers=bot)).json()["items"]

    assert found == [["add"], [], ["add", "drop"]]
    assert hidden == ["tool_not_found"] * 3
    assert shown.status_code == 404
    assert "drop" not in [tool["name"] for tool in searched]


# ---------------------------------------------------------------- artifacts, sources, audit


async def test_a_file_is_uploaded_and_read_in_parts(gate: Served) -> None:
    stored = await gate.http.post(
        "/api/v1/artifacts", params={"name": "a.txt"}, content=b"0123456789", headers={"Content-Type": "text/plain"}
    )
    content = f"{stored.headers['location']}/content"
    whole = await gate.http.get(content)
    parts = {text: await gate.http.get(content, headers={"Range": text}) for text in (
        "bytes=2-4", "bytes=7-", "bytes=-3", "bytes=20-", "bytes=a-b", "bytes=5-2",
    )}  # fmt: skip
    known = await gate.http.get(content, headers={"If-None-Match": whole.headers["etag"]})

    assert (stored.status_code, stored.json()["size"], whole.content) == (201, 10, b"0123456789")
    assert [(one.status_code, one.content) for one in list(parts.values())[:3]] == [
        (206, b"234"), (206, b"789"), (206, b"789"),
    ]  # fmt: skip
    assert [one.status_code for one in list(parts.values())[3:]] == [416, 200, 416]
    assert parts["bytes=2-4"].headers["content-range"] == "bytes 2-4/10"
    assert (known.status_code, whole.headers["content-disposition"]) == (304, "attachment")


async def test_a_file_whose_type_is_not_said_has_that_of_its_name_and_a_form_is_refused(gate: Served) -> None:
    by_curl = {"Content-Type": "application/x-www-form-urlencoded"}
    stored = [
        await gate.http.post("/api/v1/artifacts", params={"name": name}, content=b"bytes", headers=headers)
        for name, headers in (("a.csv", by_curl), ("a.pdf", {}), ("a", by_curl), ("", {}))
    ]
    form = await gate.http.post("/api/v1/artifacts", files={"file": ("a.txt", b"bytes")})

    assert [one.json()["media_type"] for one in stored] == [
        "text/csv", "application/pdf", "application/octet-stream", "application/octet-stream",
    ]  # fmt: skip
    assert (form.status_code, form.json()["code"]) == (415, "unsupported_media_type")
    assert "the body must be the file itself" in form.json()["detail"]


async def test_a_wrong_parameter_is_refused_with_what_it_takes(gate: Served) -> None:
    status = await gate.http.get("/api/v1/pending", params={"status": "waiting"})
    limit = await gate.http.get("/api/v1/pending", params={"limit": "many"})

    assert (status.status_code, limit.status_code) == (400, 400)
    assert status.json()["detail"].startswith("the parameter 'status' is invalid: expected one of \"open\", ")
    assert limit.json()["detail"] == "the parameter 'limit' is invalid: expected integer, got string \"many\""


async def test_a_body_that_is_no_json_is_refused_with_the_place(gate: Served) -> None:
    broken = await gate.http.post("/api/v1/calls", content=b'{"tool": ', headers={"Content-Type": "application/json"})

    assert (broken.status_code, broken.json()["code"]) == (400, "malformed_json")
    assert "line 1 column 10" in broken.json()["detail"]


async def test_an_approver_gives_a_call_her_own_file_and_no_other(tmp_path: Path) -> None:
    @tool(side_effects="write", destructive=True)
    async def send(files: list[dict[str, Any]], ctx: ToolContext) -> list[str]:
        """Send files."""
        return [(await ctx.read_artifact(file["artifact_id"])).decode() for file in files]

    async with served(tmp_path / "data", [send]) as gate:
        bot, eve = await gate.key("acme:bot", "call"), await gate.key("acme:eve", "call")
        uploads = [
            (await gate.http.post("/api/v1/artifacts", content=content, headers=headers)).json()["id"]
            for content, headers in ((b"of the bot", bot), (b"of olga", {}), (b"of eve", eve))
        ]
        files = [{"artifact_id": one} for one in uploads]
        call = {"tool": "send", "arguments": {"files": files[:1]}}
        asked = (await gate.http.post("/api/v1/calls", json=call, headers=bot)).json()
        add = [{"op": "add", "path": "/files/-", "value": file} for file in files[1:]]
        refused = await answer(gate, asked["pending"]["id"], decision="modify", changes=add)
        done = await answer(gate, asked["pending"]["id"], decision="modify", changes=add[:1])
        theirs = (await gate.http.get("/api/v1/artifacts", headers=bot)).json()["items"]
        log = (await gate.http.get(f"/api/v1/runs/{asked['run_id']}")).json()["log"]

    assert (refused.status_code, refused.json()["code"]) == (403, "artifact_not_yours")
    assert "neither yours nor of acme:bot, who made the call; upload it yourself" in refused.json()["detail"]
    assert done.json()["content"] == ["of the bot", "of olga"]
    given, own = theirs
    assert (own["id"], given["run_id"], given["id"] in uploads) == (uploads[0], asked["run_id"], False)
    (stored,) = [event["payload"] for event in log if event["type"] == "ARTIFACT_STORED"]
    assert (stored["artifact_id"], stored["by"]) == (given["id"], "acme:olga")


async def test_an_agent_sees_the_artifacts_that_it_made_and_others_see_those_of_their_tenant(tmp_path: Path) -> None:
    @tool(side_effects="pure")
    async def report(ctx: ToolContext) -> str:
        """Write a report."""
        return await ctx.save_artifact(b"figures", media_type="text/plain", name="report")

    async with served(tmp_path / "data", [report], builtins=["artifact_tools"]) as gate:
        bot, spy, person = [
            await gate.key(*given) for given in (("acme:bot", "call"), ("acme:spy", "call"), ("acme:ann", "answer"))
        ]

        async def seen_by(headers: dict[str, str], made: str) -> list[Any]:
            listed = (await gate.http.get("/api/v1/artifacts", headers=headers)).json()["items"]
            paths = [f"/api/v1/artifacts/{made}", f"/api/v1/artifacts/{made}/content"]
            return [len(listed), *[(await gate.http.get(path, headers=headers)).status_code for path in paths]]

        async def read_by(headers: dict[str, str], made: str) -> Any:
            asked = {"tool": "artifact_read", "arguments": {"artifact_id": made}}
            return (await gate.http.post("/api/v1/calls", json=asked, headers=headers)).json()["status"]

        made = (await gate.http.post("/api/v1/tools/report", json={}, headers=bot)).json()
        sent = (await gate.http.post("/api/v1/artifacts", content=b"x", headers=bot)).json()["id"]
        found = {name: await seen_by(one, made) + await seen_by(one, sent) for name, one in (
            ("bot", bot), ("spy", spy), ("person", person),
        )}  # fmt: skip
        read = [await read_by(bot, made), await read_by(spy, made), await read_by(spy, sent)]

    assert found == {"bot": [2, 200, 200] * 2, "spy": [0, 404, 404] * 2, "person": [2, 200, 200] * 2}
    assert read == ["completed", "failed", "failed"]


async def test_files_that_a_caller_uploads_at_a_time_share_the_room_of_two(tmp_path: Path) -> None:
    stored = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"x"
        await stored.wait()

    async with served(tmp_path / "data", server={"max_upload_mb": 1}) as gate:
        bot, other = await gate.key("acme:bot", "call"), await gate.key("acme:other", "call")

        async def upload(headers: dict[str, str], content: Any) -> httpx2.Response:
            return await gate.http.post("/api/v1/artifacts", content=content, headers=headers)

        held = [asyncio.create_task(upload(bot, endless())) for _ in range(2)]  # of a length that nobody knows
        for _ in range(20):
            assert (await gate.http.get("/healthz")).status_code == 200
        refused, others = await upload(bot, b"file"), await upload(other, b"file")
        stored.set()
        ended = [(await one).status_code for one in held]
        after = await upload(bot, b"file")

    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_uploads")
    assert int(refused.headers["retry-after"]) >= 1
    assert ([others.status_code, after.status_code], ended) == ([201, 201], [201, 201])


async def test_a_file_whose_media_type_fits_no_header_is_read_all_the_same(tmp_path: Path) -> None:
    odd = ["text/plain; a=b\r\nX-Evil: 1", "text/plain; a=\u20ac", "text/plain\n", "text"]
    claimed = ["text/plain; charset=utf-8", *odd]

    @tool(side_effects="pure")
    async def fetch(ctx: ToolContext) -> list[str]:
        """Fetch files."""
        return [await ctx.save_artifact(b"bytes", media_type=one, name="file") for one in claimed]

    async with served(tmp_path / "data", [fetch]) as gate:
        stored = (await gate.http.post("/api/v1/tools/fetch", json={})).json()
        replies = [await gate.http.get(f"/api/v1/artifacts/{one}/content") for one in stored]

    assert [reply.content for reply in replies] == [b"bytes"] * 5
    assert [reply.headers["content-type"] for reply in replies] == [claimed[0], *["application/octet-stream"] * 4]
    assert not any("x-evil" in reply.headers for reply in replies)


async def test_a_source_is_added_reloaded_and_removed_while_it_runs(gate: Served, tmp_path: Path) -> None:
    file = tmp_path / "more.py"
    file.write_text(
        'from toolpost import tool\n\n@tool(side_effects="pure")\ndef hi() -> str:\n    """Greet."""\n    return "hi"\n'
    )
    config = {"name": "more", "transport": "python", "connection": str(file)}
    added = await gate.http.post("/api/v1/sources", json=config)
    again = await gate.http.post("/api/v1/sources", json=config)
    wrong = await gate.http.post("/api/v1/sources", json={**config, "name": "x", "transport": "pigeon"})
    called = await gate.http.post("/api/v1/calls", json={"tool": "more.hi"})
    reloaded = await gate.http.post("/api/v1/sources/more/reload")
    agent = await gate.http.post("/api/v1/sources", json=config, headers=await gate.key("acme:bot", "call"))
    admin = await gate.key("acme:boss", "admin")
    of_tenant = [
        await gate.http.post("/api/v1/sources", json={**config, "name": "evil"}, headers=admin),
        await gate.http.post("/api/v1/sources/more/reload", headers=admin),
        await gate.http.delete("/api/v1/sources/more", headers=admin),
    ]
    by_operators_key = await gate.http.post(
        "/api/v1/sources/more/reload", headers=await gate.key("local:root", "admin")
    )
    removed = await gate.http.delete("/api/v1/sources/more")
    gone = await gate.http.get("/api/v1/sources/more")

    assert (added.status_code, added.json()["tools"], called.json()["content"]) == (201, 1, "hi")
    assert (again.status_code, wrong.status_code, agent.status_code) == (409, 422, 403)
    assert [(reply.status_code, reply.json()["code"]) for reply in of_tenant] == [(403, "operator_required")] * 3
    assert (by_operators_key.status_code, by_operators_key.json()["code"]) == (403, "commands_not_allowed")
    assert (reloaded.json()["state"], removed.status_code, gone.status_code) == ("up", 204, 404)


async def test_a_source_that_is_reloaded_during_a_call_lets_it_end(gate: Served, tmp_path: Path) -> None:
    file, begun, may_end = tmp_path / "slow.py", tmp_path / "begun", tmp_path / "may_end"
    code = """import asyncio
from pathlib import Path

from toolpost import tool


@tool(side_effects="write")
async def work() -> str:
    \"\"\"Work until a file says that it is enough.\"\"\"
    Path({begun!r}).touch()
    while not Path({may_end!r}).exists():
        await asyncio.sleep(0.01)
    return {result!r}
"""
    names = {"begun": str(begun), "may_end": str(may_end)}
    file.write_text(code.format(**names, result="old"))
    source = {"name": "slow", "transport": "python", "connection": str(file), "trust": True}
    assert (await gate.http.post("/api/v1/sources", json=source)).status_code == 201
    async with asyncio.timeout(60):
        calling = asyncio.create_task(gate.http.post("/api/v1/calls", json={"tool": "slow.work"}))
        while not begun.exists():
            await asyncio.sleep(0.01)
        file.write_text(code.format(**names, result="new, and longer"))
        reloading = asyncio.create_task(gate.http.post("/api/v1/sources/slow/reload"))
        other = await gate.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": 1, "b": 2}})
        may_end.touch()
        called, reloaded = await calling, await reloading
        again = await gate.http.post("/api/v1/calls", json={"tool": "slow.work"})

    assert (called.json()["content"], other.json()["content"]) == ("old", 3)
    assert reloaded.status_code == 200
    assert again.json()["content"] == "new, and longer"


async def test_the_record_is_exported_with_its_hashes_and_verified(gate: Served) -> None:
    await gate.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": 1, "b": 1}})
    reply = await gate.http.get("/api/v1/audit", params={"verify": "yes"})
    *events, verdict = [json.loads(line) for line in reply.text.splitlines()]
    stats = (await gate.http.get("/api/v1/stats")).json()

    assert [event["type"] for event in events][:1] == ["TOOL_CALL_REQUESTED"]
    assert all(event["hash"] for event in events)
    assert verdict == {"status": "verified", "problems": []}
    assert stats["calls"]["add"]["count"] == 1


# ---------------------------------------------------------------- wrong requests


async def test_wrong_requests_are_problems_that_say_what_is_wrong(gate: Served) -> None:
    http, kind = gate.http, {"Content-Type": "application/json"}
    replies = {
        "no JSON": (await http.post("/api/v1/calls", content=b"{", headers=kind), 400),
        "not a number": (
            await http.post("/api/v1/calls", content=b'{"tool": "add", "timeout_s": NaN}', headers=kind),
            400,
        ),
        "deep": (await http.post("/api/v1/calls", content=b"[" * 100_000, headers=kind), 400),
        "bytes": (await http.post("/api/v1/calls", content=b"\xff\xfe", headers=kind), 400),
        "a list": (await http.post("/api/v1/calls", json=[]), 422),
        "unknown field": (await http.post("/api/v1/calls", json={"tool": "add", "user": "acme:boss"}), 422),
        "a form": (await http.post("/api/v1/calls", data={"tool": "add"}), 415),
        "large": (await http.post("/api/v1/calls", content=b"x" * 5_000_000, headers=kind), 413),
        "long key": (
            await http.post("/api/v1/calls", json={"tool": "add"}, headers={"Idempotency-Key": "k" * 256}),
            400,
        ),
        "parameter": (await http.get("/api/v1/runs", params={"users": "x"}), 400),
        "limit": (await http.get("/api/v1/runs", params={"limit": "1e3"}), 400),
        "twice": (await http.get("/api/v1/runs?limit=1&limit=2"), 400),
        "path": (await http.get("/api/v1/nothing"), 404),
        "method": (await http.delete("/api/v1/calls"), 405),
        "event id": (await http.get("/api/v1/events", headers={"Last-Event-ID": "-1"}), 400),
        "nothing": (await http.post("/api/v1/artifacts", content=b""), 422),
    }

    assert {why: reply.status_code for why, (reply, _) in replies.items()} == {
        why: status for why, (_, status) in replies.items()
    }
    for reply, _ in replies.values():
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.json()["detail"]


async def test_a_client_that_goes_away_does_not_end_its_call(gate: Served) -> None:
    waiting = asyncio.create_task(gate.http.post("/api/v1/calls", json={"tool": "hold"}))
    while not (runs := (await gate.http.get("/api/v1/runs")).json()["items"]):
        await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    released[-1].set()
    while (await gate.http.get(f"/api/v1/runs/{runs[0]['run_id']}")).json()["status"] == "running":
        await asyncio.sleep(0.01)

    assert (await gate.http.get(f"/api/v1/runs/{runs[0]['run_id']}")).json()["status"] == "completed"


@pytest.mark.parametrize("mode", ["wait", "async", "stream"])
async def test_a_tool_that_raises_an_interrupt_ends_its_call_and_not_the_gateway(tmp_path: Path, mode: str) -> None:
    @tool(side_effects="pure")
    async def leave() -> None:
        """Leave."""
        raise KeyboardInterrupt

    async with served(tmp_path / "data", [leave, add]) as gate:
        reply = await gate.http.post("/api/v1/calls", json={"tool": "leave", "mode": mode})
        while (run := (await gate.http.get("/api/v1/runs")).json()["items"][0])["status"] == "running":
            assert mode == "async"  # such a call is only known to have begun
        after = await gate.http.post("/api/v1/tools/add", json={"a": 1, "b": 2})

    assert (reply.status_code, run["status"], after.json()) == (202 if mode == "async" else 200, "failed", 3)
