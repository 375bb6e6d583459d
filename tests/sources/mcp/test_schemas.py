"""What servers say of their tools: odd things are taken as they are, broken ones set aside, and nothing is lost."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from tests.sources.mcp.rogues import Rogue, config_by, heartbeat, is_alive, rogue_by, tool, toolbox
from toolpost import Completed, EventCode, Failed, ToolNode, ToolRegistry
from toolpost import tool as native_tool
from toolpost.errors import ToolNodeError, ToolValidationError

pytestmark = pytest.mark.programs


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"in": schema}}
    return schema


def taking(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


BROKEN: dict[str, tuple[Any, str]] = {
    "illegal_type": (taking(a={"type": "strnig"}), "strnig"),
    "illegal_required": ({"type": "object", "required": "a"}, "required"),
    "huge": (taking(**{f"p{n}": {"type": "string"} for n in range(60_000)}), "more than 100,000 values"),
    "deep": (nested(60), "nested deeper"),
    "remote": (taking(a={"$ref": "http://127.0.0.1:1/schema.json"}), "never fetched"),
    "dangling": (taking(a={"$ref": "#/$defs/nowhere"}), "points at nothing"),
    "list_of_arguments": ({"type": "array"}, "object"),
    "text": ("object", "object"),
    "number": (5, "object"),
    "array": ([], "object"),
    "yes": (True, "object"),
    "no": (False, "object"),
}

TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node"}},
    "required": ["root"],
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["value"],
        }
    },
}
SHAPE = {"oneOf": [{"type": "object", "required": ["radius"]}, {"type": "object", "required": ["side"]}]}
TAKEN = ["model_config", "self", "cls", "schema", "json", "copy", "data", "arguments", "name", "class", "from", "None"]
STRANGE = ["a.b", "with space", "dash-ed", "", "$ref", "ключ", "a/b~c"]
ODD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "anything_in_a_list": (taking(a={"type": "array", "items": True}), {"a": [1, "x", None, {"y": []}]}),
    "anything_at_all": (taking(a=True), {"a": {"b": [False]}}),
    "nothing_more": ({**taking(a={"type": "integer"}), "additionalProperties": False}, {"a": 1}),
    "private": (taking(_id={"type": "string"}), {"_id": "x7"}),
    "taken_names": (taking(**{name: {} for name in TAKEN}), {name: n for n, name in enumerate(TAKEN)}),
    "odd_names": (taking(**{name: {} for name in STRANGE}), {name: n for n, name in enumerate(STRANGE)}),
    "nullable": (taking(a={"type": ["string", "null"]}), {"a": None}),
    "recursive": (TREE, {"root": {"value": 1, "children": [{"value": 2, "children": []}]}}),
    "any_of": (taking(a={"anyOf": [{"type": "integer"}, {"type": "null"}]}), {"a": None}),
    "one_of": (taking(a=SHAPE), {"a": {"side": 2}}),
    "enumerated": (taking(a={"enum": ["x", 1, None]}), {"a": 1}),
    "constant": (taking(a={"const": {"v": 1}}), {"a": {"v": 1}}),
    "list_of_objects": (taking(a={"type": "array", "items": taking(b={"type": "integer"})}), {"a": [{"b": 1}]}),
    "large_numbers": (taking(a={"type": "integer"}, b={"type": "number"}), {"a": 2**53 + 1, "b": 0.1}),
    "draft_7": ({"$schema": "http://json-schema.org/draft-07/schema#", **taking(a={"type": "string"})}, {"a": "x"}),
    "typeless": ({"properties": {"a": {"type": "string"}}}, {"a": "x"}),
}


@pytest.mark.req("MISC-02")
async def test_a_broken_tool_is_set_aside_by_name_and_reason_and_the_rest_work(tmp_path: Path) -> None:
    broken = [tool(name, schema) for name, (schema, _) in BROKEN.items()]
    rogue = Rogue(tmp_path, *broken, tool("echo"))
    async with toolbox(rogue.config()) as box:
        (state,) = box.report
        outcome = await box.call("srv.echo")
        offered = [spec.name for spec in box.registry.specs() if spec.source == "srv"]
        said = {name: [problem for problem in box.problems if name in problem] for name in BROKEN}
    assert (state.ok, state.tools, offered) == (True, 1, ["srv.echo"])
    assert outcome.status == "completed"
    for name, (_, why) in BROKEN.items():
        assert any(why in problem for problem in said[name]), (name, said[name])


@pytest.mark.parametrize("way", ["stdio-legacy", "http-legacy-sse", "http-modern-json", "sse"])
async def test_a_list_too_deep_to_be_read_is_reported_in_time(tmp_path: Path, way: str) -> None:
    with rogue_by(way, tmp_path, tool("deep", nested(300)), tool("echo")) as rogue:
        async with toolbox(config_by(way, rogue, connect_timeout_s=2)) as box:
            (state,) = box.report
            problems = list(box.problems)
    assert state.error or any("deep" in problem for problem in problems)


@pytest.mark.parametrize("way", ["stdio-legacy", "stdio-modern"])
@pytest.mark.req("DEF-06", "MISC-02", "PMCP-07")
async def test_odd_schemas_are_kept_whole_and_arguments_travel_untouched(tmp_path: Path, way: str) -> None:
    with rogue_by(way, tmp_path, *(tool(name, schema) for name, (schema, _) in ODD.items())) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            problems = list(box.problems)
            outcomes = {name: await box.call(f"srv.{name}", arguments) for name, (_, arguments) in ODD.items()}
            kept = {name: box.registry.find(f"srv.{name}").spec.input_schema for name in ODD}
    assert problems == []
    assert {name: outcome.status for name, outcome in outcomes.items()} == dict.fromkeys(ODD, "completed")
    assert {name: rogue.calls(name)[0]["arguments"] for name in ODD} == {
        name: given for name, (_, given) in ODD.items()
    }
    assert kept == {name: schema for name, (schema, _) in ODD.items()}


@pytest.mark.req("PMCP-05", "PMCP-07", "PMCP-11")
async def test_a_model_is_shown_the_servers_own_schema_under_a_name_it_accepts(tmp_path: Path) -> None:
    @native_tool(side_effects="read")
    async def native() -> int:
        return 1

    schema = ODD["recursive"][0]
    rogue = Rogue(tmp_path, tool("walk", schema, description="Walk a tree.", safe=True))
    async with toolbox(rogue.config(), tools=[native]) as box:
        (shown,) = (one for one in box.registry.to_llm_tools() if one.name == "srv__walk")
        outcome = await box.call("srv__walk", ODD["recursive"][1])
        category = box.registry.find("srv.walk").spec.category
        runs = [outcome.run_id, (await box.call("native")).run_id]
        told = [[event.code for event in await box.events(run_id=run_id)] for run_id in runs]
    assert shown.parameters == schema
    assert "Walk a tree." in shown.description
    assert (category, outcome.status) == ("mcp", "completed")
    assert told[0] == told[1]


@pytest.mark.req("CONV-01")
async def test_odd_tool_names_are_made_callable_and_the_server_hears_its_own(tmp_path: Path) -> None:
    odd = ["with space", "a.b.c", "slash/ed", "grüße", "x" * 100, "UPPER", "-", "_"]
    rogue = Rogue(tmp_path, *map(tool, odd), name="s")
    async with toolbox(rogue.config()) as box:
        names = [spec.name for spec in box.registry.specs() if spec.source == "s"]
        outcomes = [await box.call(name) for name in names]
    assert {outcome.status for outcome in outcomes} == {"completed"}
    assert [entry["params"]["name"] for entry in rogue.received("tools/call")] == odd
    assert len(names) == len(set(names)) == len(odd)
    assert {"s.with_space", "s.a_b_c", "s.UPPER"} <= set(names)


@pytest.mark.parametrize(("first", "second"), [("echo", "echo"), ("a.b", "a_b"), ("a b", "a/b")])
@pytest.mark.req("CONV-02")
async def test_two_tools_of_one_server_that_would_share_a_name_are_reported(
    tmp_path: Path, first: str, second: str
) -> None:
    rogue = Rogue(tmp_path, tool(first), tool(second), tool("other"))
    async with toolbox(rogue.config()) as box:
        told = [problem for problem in box.problems if "Duplicate tool name" in problem]
        outcome = await box.call("srv.other")
    assert len(told) == 1
    assert repr(first) in told[0]
    assert repr(second) in told[0]
    assert outcome.status == "completed"


@pytest.mark.req("CONV-03", "CONV-13")
async def test_a_name_that_a_native_tool_has_is_not_taken_over(tmp_path: Path) -> None:
    @native_tool(name="srv.echo", side_effects="pure")
    async def mine() -> str:
        """Say whose it is."""
        return "mine"

    rogue = Rogue(tmp_path, tool("echo"), tool("other"))
    async with toolbox(rogue.config(), tools=[mine]) as box:
        (problem,) = box.problems
        outcomes = [await box.call("srv.echo"), await box.call("srv.other")]
    assert "'srv.echo'" in problem
    assert "source 'srv'" in problem
    assert outcomes[0].content == "mine"
    assert outcomes[1].status == "completed"


@pytest.mark.req("CONV-02")
async def test_a_node_refuses_a_server_that_lists_a_name_twice(tmp_path: Path) -> None:
    rogue, registry = Rogue(tmp_path, tool("echo"), tool("echo"), tool("other")), ToolRegistry()
    with pytest.raises(ToolNodeError, match=r"Duplicate tool name 'srv.echo' in ToolNode 'srv'"):
        await ToolNode(config=rogue.config(), registry=registry).connect()
    assert registry.list() == []
    assert not is_alive(rogue.pids[0])


@pytest.mark.parametrize("holder", ["native", "node"])
@pytest.mark.req("CONV-03", "CONV-13")
async def test_a_node_refuses_a_name_that_is_taken_and_leaves_the_holder_alone(tmp_path: Path, holder: str) -> None:
    @native_tool(name="srv.echo", side_effects="pure")
    async def mine() -> str:
        return "mine"

    first, second, registry = Rogue(tmp_path / "1", tool("echo")), Rogue(tmp_path / "2", tool("echo")), ToolRegistry()
    node = ToolNode(config=first.config(), registry=registry)
    await node.connect() if holder == "node" else registry.register(mine)
    held = registry.find("srv.echo").tool
    try:
        with pytest.raises(ToolNodeError, match=r"Tool name collision for 'srv.echo'"):
            await ToolNode(config=second.config(), registry=registry).connect()
        assert registry.find("srv.echo").tool is held
    finally:
        await node.close()


async def test_a_node_refuses_a_tool_that_a_model_could_not_tell_from_anothers(tmp_path: Path) -> None:
    one, two = Rogue(tmp_path, tool("b__c"), name="a"), Rogue(tmp_path, tool("c"), name="a__b")
    registry = ToolRegistry()
    async with ToolNode(config=one.config(), registry=registry):
        with pytest.raises(ToolNodeError, match=r"'a\.b__c' and 'a__b\.c'"):
            async with ToolNode(config=two.config(), registry=registry):
                pass


@pytest.mark.req("CONV-11", "CONV-13")
async def test_nodes_share_a_registry_and_each_tool_stands_under_its_sources_name(tmp_path: Path) -> None:
    rogues, registry = [Rogue(tmp_path, tool("echo"), name=name) for name in ("a", "b")], ToolRegistry()
    async with (
        ToolNode(config=rogues[0].config(), registry=registry) as one,
        ToolNode(config=rogues[1].config(), registry=registry) as two,
    ):
        names = [spec.name for spec in registry.specs()]
        pids = [(await one.call("a.echo", {}))["pid"], (await two.call("b.echo", {}))["pid"]]
    assert names == ["a.echo", "b.echo"]
    assert pids == [rogues[0].pids[0], rogues[1].pids[0]]
    assert registry.list() == []


async def test_tools_of_two_servers_that_a_model_could_not_distinguish_are_reported(tmp_path: Path) -> None:
    one = Rogue(tmp_path, tool("b__c"), name="a")
    two = Rogue(tmp_path, tool("c"), name="a__b")
    async with toolbox(one.config(), two.config()) as box:
        (problem,) = box.problems
    assert "'a.b__c'" in problem
    assert "'a__b.c'" in problem


async def test_a_tool_without_a_usable_name_is_reported(tmp_path: Path) -> None:
    nameless: list[Any] = [
        {"inputSchema": {}},
        {"name": "", "inputSchema": {}},
        {"name": 7, "inputSchema": {}},
        "text",
        None,
    ]
    rogue = Rogue(tmp_path, tool("echo"))
    rogue.plan(tools=[tool("echo"), *(one for one in nameless if isinstance(one, dict))])
    async with toolbox(rogue.config()) as box:
        (state,) = box.report
        problems = list(box.problems)
        outcome = await box.call("srv.echo")
    assert (state.ok, state.tools) == (True, 1)
    assert len(problems) == 3
    assert outcome.status == "completed"


@pytest.mark.parametrize("way", ["stdio-legacy", "http-modern-json"])
async def test_every_page_of_tools_is_read(tmp_path: Path, way: str) -> None:
    with rogue_by(way, tmp_path, *(tool(f"t{n}") for n in range(25)), page=4) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            (state,) = box.report
            last = await box.call("srv.t24")
    assert state.tools == 25
    assert last.status == "completed"
    assert [(entry.get("params") or {}).get("cursor") for entry in rogue.received("tools/list")] == [
        None, "4", "8", "12", "16", "20", "24",
    ]  # fmt: skip


@pytest.mark.parametrize("cursor", ["same", "new"])
async def test_pages_without_end_are_not_read_without_end(tmp_path: Path, cursor: str) -> None:
    rogue = Rogue(tmp_path, tool("echo"), cursor=cursor)
    other = Rogue(tmp_path, tool("echo"), name="other")
    async with toolbox(rogue.config(connect_timeout_s=60), other.config()) as box:
        state = next(state for state in box.report if state.name == "srv")
        told = f"{state.error} {' '.join(box.problems)}"
        outcome = await box.call("other.echo")
    assert "does not end its list of tools" in told
    assert len(rogue.received("tools/list")) <= 1001
    assert outcome.status == "completed"


@pytest.mark.req("CONV-07")
async def test_a_tool_without_parameters_is_sent_an_empty_object(tmp_path: Path) -> None:
    schemas: dict[str, Any] = {
        "bare": {"type": "object"},
        "empty": taking(),
        "closed": {**taking(), "additionalProperties": False},
    }
    rogue = Rogue(tmp_path, *(tool(name, schema) for name, schema in schemas.items()))
    async with toolbox(rogue.config()) as box:
        statuses = [(await box.call(f"srv.{name}")).status for name in schemas]
        statuses += [(await box.call(f"srv.{name}", {})).status for name in schemas]
    assert statuses == ["completed"] * 6
    assert [entry["params"]["arguments"] for entry in rogue.received("tools/call")] == [{}] * 6


@pytest.mark.parametrize("given", [{"a": 1}, {"a": 1, "b": None}, {"a": 1, "b": 5}, {"a": 1, "extra": [None]}])
@pytest.mark.req("DEF-05")
async def test_what_was_not_given_is_not_sent_and_null_only_when_given(tmp_path: Path, given: dict[str, Any]) -> None:
    schema = {**taking(a={"type": "integer"}, b={"type": ["integer", "null"], "default": 5}), "required": ["a"]}
    rogue = Rogue(tmp_path, tool("add", schema))
    async with toolbox(rogue.config()) as box:
        outcome = await box.call("srv.add", given)
    assert outcome.status == "completed"
    assert [call["arguments"] for call in rogue.calls("add")] == [given]


@pytest.mark.parametrize(
    "given", [{"a": 1, "extra": 2}, {}, {"a": "one"}, {"a": None}, {"a": 1, "b": {"deep": True, "more": 1}}]
)
async def test_arguments_that_break_the_schema_never_reach_the_server(tmp_path: Path, given: dict[str, Any]) -> None:
    inner = {**taking(deep={"type": "boolean"}), "additionalProperties": False}
    schema = {**taking(a={"type": "integer"}, b=inner), "required": ["a"], "additionalProperties": False}
    rogue = Rogue(tmp_path, tool("add", schema))
    async with toolbox(rogue.config()) as box:
        outcome = await box.call("srv.add", given)
    assert isinstance(outcome.error, ToolValidationError)
    assert rogue.calls("add") == []


@pytest.mark.parametrize(
    ("options", "offered"),
    [
        ({}, {"get", "get_and_delete", "forget", "a.get"}),
        ({"tool_filter": ["get"]}, {"get"}),
        ({"tool_filter": ["get.*"]}, {"get", "get_and_delete"}),
        ({"tool_filter": ["a\\.get", "for.*"]}, {"a.get", "forget"}),
        ({"tool_exclude": ["get"]}, {"get_and_delete", "forget", "a.get"}),
        ({"tool_filter": [".*get.*"], "tool_exclude": [".*delete"]}, {"get", "forget", "a.get"}),
        ({"tool_filter": []}, set()),
    ],
)
@pytest.mark.req("CONV-01", "CONV-12")
async def test_filters_match_whole_names(tmp_path: Path, options: dict[str, Any], offered: set[str]) -> None:
    names = ["get", "get_and_delete", "forget", "a.get"]
    rogue = Rogue(tmp_path, *map(tool, names))
    async with toolbox(rogue.config(**options)) as box:
        found = {spec.name for spec in box.registry.specs() if spec.source == "srv"}
    assert found == {f"srv.{name.replace('.', '_')}" for name in offered}


@pytest.mark.req("DEF-03", "DEF-04", "MISC-05")
async def test_a_command_line_is_split_and_gets_its_own_environment_and_nothing_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_SECRET", "hush")
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/ssl/corp.pem")
    monkeypatch.setenv("HTTPS_PROXY", "http://ann:secret@proxy.example")
    rogue = Rogue(tmp_path, tool("echo"), name="with-dash")
    config = rogue.config(env={"TOKEN_OF_MINE": "t ${OUR_SECRET}"}, cwd=str(tmp_path))
    config = config.model_copy(update={"connection": f"{config.connection} --mode 'two words'"})
    async with toolbox(config) as box:
        outcome = await box.call("with-dash.echo")
    (started,) = rogue.received("(started)")
    assert outcome.status == "completed"
    assert started["argv"][-2:] == ["--mode", "two words"]
    assert started["env"]["TOKEN_OF_MINE"] == "t hush"
    assert "OUR_SECRET" not in started["env"]
    assert started["env"]["SSL_CERT_FILE"] == "/etc/ssl/corp.pem"
    assert "HTTPS_PROXY" not in started["env"]
    assert started["cwd"] == str(tmp_path)


CATASTROPHIC = ["^(a|a)*(?!b)c$|!$", r"(?P<n>a)*c\Z|b\Z", "^(?:[ab]{0,50}){0,80}x$|!$"]


@pytest.mark.parametrize("pattern", CATASTROPHIC)
async def test_no_pattern_of_a_server_holds_up_the_others(tmp_path: Path, pattern: str) -> None:
    texts = {"type": "array", "items": {"type": "string", "pattern": pattern}}
    shape = {"type": "object", "properties": {"texts": texts}}
    said = {"texts": ["a" * 13 + "!", "ab" * 50_000 + "!", *["a" * 13 + "!b"] * 20_000]}
    result = {"content": [], "structuredContent": said}
    rogue = Rogue(tmp_path, tool("slow", shape, do={"result": result}, outputSchema=shape, safe=True))

    async with toolbox(rogue.config()) as box, heartbeat() as pauses:
        outcome = await box.call("srv.slow", said)

    assert outcome.status == "completed"
    assert max(pauses) < 10  # it was a minute


async def test_a_pattern_that_is_not_checked_is_reported(tmp_path: Path) -> None:
    schema = taking(a={"type": "string", "pattern": "^(?!x)"}, b={"type": "string", "pattern": "^b"})
    rogue = Rogue(tmp_path, tool("picky", schema, safe=True), tool("plain", safe=True))

    async with toolbox(rogue.config()) as box:
        taken = await box.call("srv.picky", {"a": "x", "b": "b"})
        refused = await box.call("srv.picky", {"a": "x", "b": "c"})
        [problem] = box.problems

    assert (taken.status, refused.error.error_code) == ("completed", "validation_failed")
    assert problem.startswith("source 'srv': patterns of 'srv.picky' cannot be matched in bounded time")


SELF_REFERRING = {
    "type": "object",
    "properties": {"tree": {"$ref": "#/$defs/node"}},
    "$defs": {"node": {"type": "object", "properties": {f"p{n}": {"$ref": "#/$defs/node"} for n in range(2000)}}},
}


async def _turns_until(waiting: Awaitable[Any]) -> tuple[Any, int]:
    """What came of it, and how often the loop did something else meanwhile."""
    task, turns = asyncio.ensure_future(waiting), 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return task.result(), turns


async def test_the_first_call_of_a_tool_with_a_huge_schema_holds_up_no_one(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, tool("huge", SELF_REFERRING, outputSchema=SELF_REFERRING, safe=True))

    async with toolbox(rogue.config()) as box:
        first, turns = await _turns_until(box.call("srv.huge", {"tree": {"p0": 1}}, run_id="r"))
        both = await asyncio.gather(*(box.call("srv.huge", {"tree": {"p1": {}}}) for _ in range(2)))
        told = [event.code for event in await box.events(run_id="r")]

    assert isinstance(first, Failed)
    assert first.error.error_code == "validation_failed"
    assert turns > 100  # a few, where the schema is compiled on the loop
    assert [outcome.status for outcome in both] == ["completed", "completed"]
    assert told == [EventCode.TOOL_CALL_REQUESTED, EventCode.TOOL_CALL_FAILED]


async def test_a_result_with_more_faults_than_memory_is_handed_on_with_a_note(tmp_path: Path) -> None:
    shape = {"type": "object", "required": [f"name{n}" for n in range(200)]}
    result = {"content": [], "structuredContent": {f"key{n}": n for n in range(20_000)}}
    rogue = Rogue(tmp_path, tool("lacking", do={"result": result}, outputSchema=shape, safe=True))

    async with toolbox(rogue.config()) as box:
        outcome = await box.call("srv.lacking")

    assert isinstance(outcome, Completed)
    assert outcome.meta["output_issues"] == ['$: missing required "name0"']


async def test_a_result_too_large_for_its_schema_is_handed_on_unchecked_with_a_note(tmp_path: Path) -> None:
    dear = {"allOf": [{"minimum": -bound} for bound in range(1000)]}
    shape = {"type": "object", "properties": {"many": {"items": dear}}}
    result = {"content": [], "structuredContent": {"many": [1] * 50_000}}
    rogue = Rogue(tmp_path, tool("many", do={"result": result}, outputSchema=shape, safe=True))

    async with toolbox(rogue.config()) as box:
        outcome = await box.call("srv.many")

    assert isinstance(outcome, Completed)
    assert "not checked: more than 3,9" in outcome.meta["output_issues"][0]
