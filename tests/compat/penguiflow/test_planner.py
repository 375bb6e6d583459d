"""Programs written for penguiflow's planner."""

from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from pydantic import BaseModel

from toolpost import ConfigError, Settings, ToolRegistry
from toolpost.compat.penguiflow import ModelRegistry, Node
from toolpost.compat.penguiflow.catalog import build_catalog, tool
from toolpost.compat.penguiflow.planner import PlannerFinish, PlannerPause, ReactPlanner, ToolContext
from toolpost.compat.penguiflow.tools import ExternalToolConfig, OAuthManager, OAuthProviderConfig, ToolNode
from toolpost.testing import ScriptedModel, tool_calls

SIGN_IN = {"pause_type": "oauth", "provider": "demo", "auth_url": "https://example.invalid/oauth?state=demo"}
STORE = {"data_dir": None}


class Out(BaseModel):
    ok: bool


@tool(desc="A tool that requires OAuth", side_effects="external")
async def oauth_tool(_args: BaseModel, ctx: ToolContext) -> Out:
    if not ctx.tool_context.get("oauth_ready"):
        await ctx.pause("external_event", SIGN_IN)
    return Out(ok=True)


def one_call(name: str, arguments: Any = None) -> ScriptedModel:
    return ScriptedModel(tool_calls((name, arguments or {})), "done")


@pytest.mark.req("OAUTH-33", "EXA-07", "MISC-22")
async def test_a_tool_that_pauses_for_a_sign_in_continues_after_it() -> None:
    registry = ModelRegistry()
    registry.register("oauth_tool", BaseModel, Out)
    model = one_call("oauth_tool")
    catalog = build_catalog([Node(oauth_tool, name="oauth_tool")], registry)
    async with ReactPlanner(llm=model, catalog=catalog, settings=STORE) as planner:
        paused = await planner.run("Call oauth_tool", tool_context={"session_id": "demo"})
        assert isinstance(paused, PlannerPause)
        assert (paused.reason, paused.payload) == ("external_event", SIGN_IN)
        ready = {"session_id": "demo", "oauth_ready": True}
        result = await planner.resume(paused.resume_token, user_input="oauth_completed", tool_context=ready)

    assert isinstance(result, PlannerFinish)
    assert (result.reason, model.results) == ("answer_complete", ['{"ok": true}'])


async def test_nodes_and_their_registry_may_be_given_instead_of_a_catalog() -> None:
    async def add(args: BaseModel, ctx: Any) -> Out:
        return Out(ok=True)

    registry = ModelRegistry()
    registry.register("add", BaseModel, Out)
    async with ReactPlanner(one_call("add"), nodes=[Node(add)], registry=registry, settings=STORE) as planner:
        assert (await planner.run("Add")).reason == "answer_complete"
    with pytest.raises(ConfigError, match="nodes can be combined only with a list of tools"):
        ReactPlanner(one_call("add"), nodes=[Node(add)], registry=registry, catalog=ToolRegistry())


@pytest.mark.req("EXA-02", "STATE-04")
async def test_an_external_tool_waits_for_its_user_and_then_runs(tmp_path: Path) -> None:
    server: FastMCP[Any] = FastMCP("github")

    @server.tool(annotations={"destructiveHint": False})
    def create_issue(title: str) -> str:
        return f"created {title}"

    provider = OAuthProviderConfig(
        name="github",
        display_name="GitHub",
        auth_url="https://github.example.com/authorize",
        token_url="https://github.example.com/token",
        client_id="client",
        client_secret="s3cret",
        redirect_uri="https://app.example.com/callback",
    )
    manager = OAuthManager({"github": provider})
    config = ExternalToolConfig(
        name="github", transport="mcp", connection="memory:server", auth_type="oauth2_user", trust=True
    )
    model = one_call("github__create_issue", {"title": "Bug"})
    async with ToolNode(config, ModelRegistry(), manager, server=server) as node:
        who = {"user_id": "user_123", "trace_id": "trace_abc"}
        async with ReactPlanner(model, catalog=node.get_tools(), settings={"data_dir": str(tmp_path)}) as planner:
            paused = await planner.run("Create an issue", tool_context=who)
            assert isinstance(paused, PlannerPause)
            assert paused.payload["auth_url"].startswith("https://github.example.com/authorize?")
            await manager.token_store.store("user_123", "github", "a-token", None)
            result = await planner.resume(paused.resume_token, tool_context=who)

    assert result.reason == "answer_complete"
    assert "created Bug" in model.results[0]


@tool(desc="Refund a payment of a customer", side_effects="pure", loading_mode="deferred")
async def refund(args: BaseModel, ctx: Any) -> Out:
    return Out(ok=True)


@tool(desc="Tell the time", side_effects="pure")
async def clock(args: BaseModel, ctx: Any) -> Out:
    return Out(ok=True)


async def test_a_deferred_tool_is_left_out_of_the_prompt_and_found_by_search() -> None:
    registry = ModelRegistry()
    for name in ("refund", "clock"):
        registry.register(name, BaseModel, Out)
    model = ScriptedModel(
        tool_calls(("search_tools", {"query": "refund a payment"})),
        tool_calls(("call_tool", {"name": "refund", "arguments": {}})),
        tool_calls(("clock", {})),
        "done",
    )
    async with ReactPlanner(model, catalog=build_catalog([refund, clock], registry), settings=STORE) as planner:
        result: Any = await planner.run("Refund it")
    assert result.reason == "answer_complete"
    assert model.tools[0] == ["clock", "search_tools", "describe_tool", "call_tool"]
    assert "Refund a payment of a customer" in model.results[0]
    assert model.results[1:] == ['{"ok": true}', '{"ok": true}']
    assert [one["tool_name"] for one in result.metadata["done"]] == ["search_tools", "refund", "clock"]


def test_the_default_loading_mode_is_for_tools_that_declare_none() -> None:
    registry = ModelRegistry()
    for name in ("refund", "clock", "add"):
        registry.register(name, BaseModel, Out)

    @tool(loading_mode="always")
    async def add(args: BaseModel, ctx: Any) -> Out:
        return Out(ok=True)

    built = build_catalog([refund, clock, add], registry, default_loading_mode="deferred")
    assert [(spec.name, spec.loading_mode, spec.spec.is_deferred) for spec in built] == [
        ("refund", "deferred", True),
        ("clock", "deferred", True),
        ("add", "always", False),
    ]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (STORE, "answer_complete"),
        (Settings(data_dir=None), "answer_complete"),
        ({**STORE, "policy": "standard"}, "approval_required"),
        (Settings(data_dir=None, policy="standard"), "approval_required"),
    ],
)
async def test_calls_run_unasked_unless_the_program_gives_a_policy(settings: Any, reason: str) -> None:
    server: FastMCP[Any] = FastMCP("shop")

    @server.tool
    def buy(what: str) -> str:
        return f"bought {what}"

    config = ExternalToolConfig(name="shop", transport="mcp", connection="memory:server")
    async with ToolNode(config, ModelRegistry(), server=server) as node:
        model = one_call("shop__buy", {"what": "tea"})
        async with ReactPlanner(model, catalog=node.get_tools(), settings=settings) as planner:
            result = await planner.run("Buy tea")
    assert result.reason == reason
    if isinstance(result, PlannerPause):
        payload = result.payload
        assert (payload["prompt"], payload["arguments"]) == (result.prompt, {"what": "tea"})
        assert payload["target"]["kind"]
        assert payload["answers"] == ["approve", "deny"]
