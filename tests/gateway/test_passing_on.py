"""Servers behind the gateway, passed on to clients in front: old and new ones, on both sides."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
from mcp import MCPError
from mcp.client.client import Client
from mcp.client.subscriptions import ResourceUpdated, listen
from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    PromptReference,
    ResourceTemplateReference,
    Root,
    TextContent,
)

from conformance.fixture import Fixture, serving_fixture
from tests.patient_settings import PatientSettings
from toolpost import Toolbox
from toolpost.configuration.settings import ViewSettings
from toolpost.gateway.mcp.progress import ProgressRelay
from toolpost.gateway.mcp.server import McpServer
from toolpost.gateway.views import View
from toolpost.sources import Workflow, WorkflowFunction

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")  # of what is old

Era = Literal["legacy", "auto"]
ME = "acme:ann"
OLD_AND_NEW = pytest.mark.parametrize(
    ("front", "behind"),
    [("legacy", "legacy"), ("legacy", "auto"), ("auto", "legacy"), ("auto", "auto")],
    ids=["old-old", "old-new", "new-old", "new-new"],
)
STILL = "toolpost://fixture/test://static-text"
WATCHED = "toolpost://fixture/test://watched-resource"


@asynccontextmanager
async def gateway(
    behind: str = "auto",
    *,
    twice: bool = False,
    fixture: Fixture | None = None,
    view: ViewSettings | None = None,
    boxes: list[Toolbox] | None = None,
    **given: Any,
) -> AsyncGenerator[McpServer]:
    """A gateway in front of the fixture; with `twice`, as two sources. Its Toolbox is put into `boxes`."""
    async with serving_fixture(fixture) as url:
        options = {"protocol": behind, "sampling": True, **given.pop("options", {})}
        sources = [
            {"name": name, "transport": "mcp", "connection": url, "options": options, "required": True, **given}
            for name in (["fixture", "other"] if twice else ["fixture"])
        ]
        settings = {"data_dir": None, "policy": "exploratory", "builtins": "none", "sources": sources}
        relay = ProgressRelay()
        async with Toolbox(settings=PatientSettings.model_validate(settings), sinks=[relay]) as box:
            if boxes is not None:
                boxes.append(box)
            shown = View(box, "view", view or ViewSettings())
            server = McpServer(box, principal=lambda _ctx: ME, interactive=lambda _ctx: True, relay=relay, view=shown)
            async with server.publishing():
                yield server


FLOW = """
name: flow
steps:
  ask: {tool: fixture.test_elicitation, arguments: {message: "Who?"}}
  think: {tool: fixture.test_sampling, arguments: {prompt: "Where"}, when: steps.ask}
outputs: ["${{ steps.ask }}", "${{ steps.think }}"]
"""


async def fill_in(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"username": "ann", "email": "ann@example.org"})


async def imagine(context: Any, params: Any) -> CreateMessageResult:
    said = TextContent(type="text", text=f"{params.messages[0].content.text}? Paris.")
    return CreateMessageResult(role="assistant", content=said, model="mine", stop_reason="endTurn")


async def folders(context: Any) -> ListRootsResult:
    return ListRootsResult(roots=[Root.model_validate({"uri": "file:///home/ann", "name": "ann"})])


def text_of(result: Any) -> str:
    return str(result.content[0].text)


@OLD_AND_NEW
async def test_resources_and_prompts_are_passed_on_under_names_that_cannot_collide(front: Era, behind: str) -> None:
    async with gateway(behind, twice=True) as gate, Client(gate.server, mode=front) as client:
        uris = [one.uri for one in (await client.list_resources()).resources]
        templates = [one.uri_template for one in (await client.list_resource_templates()).resource_templates]
        prompts = [one.name for one in (await client.list_prompts()).prompts]
        still = await client.read_resource(STILL)
        filled = await client.read_resource(templates[1].replace("{id}", "123"))
        prompt = await client.get_prompt("other__test_prompt_with_arguments", {"arg1": "x", "arg2": "y"})

    assert {STILL, "toolpost://other/test://static-text"} <= set(uris)
    assert templates == [f"toolpost://{name}/test://template/{{id}}/data" for name in ("fixture", "other")]
    assert {"fixture__test_simple_prompt", "other__test_simple_prompt"} <= set(prompts)
    assert len({*uris}) == len(uris)
    assert (still.contents[0].uri, "static text" in str(still.contents[0])) == (STILL, True)
    assert "Data for ID: 123" in str(filled.contents[0])
    assert "arg1='x', arg2='y'" in str(prompt.messages[0].content)


async def test_a_model_that_calls_the_utility_tools_gets_what_it_can_read() -> None:
    async with gateway() as gate, Client(gate.server) as client:
        read = await client.call_tool("fixture__resources_read", {"uri": "test://static-text"})
        picture = await client.call_tool("fixture__resources_read", {"uri": "test://static-binary"})

    assert [block.type for block in (*read.content, *picture.content)] == ["resource", "image"]
    assert "the content of the static text resource" in str(read.content)


@OLD_AND_NEW
async def test_what_is_not_there_is_an_error_that_names_it(front: Era, behind: str) -> None:
    missing = "toolpost://fixture/test://nothing"
    async with gateway(behind) as gate, Client(gate.server, mode=front) as client:
        with pytest.raises(MCPError, match="test://nothing") as refused:
            await client.read_resource(missing)
        with pytest.raises(MCPError, match="fixture__nothing"):
            await client.get_prompt("fixture__nothing")
        with pytest.raises(MCPError, match="nowhere"):
            await client.read_resource("toolpost://nowhere/test://static-text")

    assert refused.value.error.data == {"uri": missing}


@OLD_AND_NEW
async def test_the_clients_user_and_model_answer_what_the_server_behind_asks(front: Era, behind: str) -> None:
    async with (
        gateway(behind) as gate,
        Client(gate.server, mode=front, elicitation_callback=fill_in, sampling_callback=imagine) as client,
    ):
        asked = await client.call_tool("fixture__test_elicitation", {"message": "Who?"})
        sampled = await client.call_tool("fixture__test_sampling", {"prompt": "Where"})

    assert "ann@example.org" in text_of(asked)
    assert text_of(sampled) == "LLM response: Where? Paris."


@OLD_AND_NEW
async def test_they_answer_what_the_server_asks_inside_a_workflow(front: Era, behind: str) -> None:
    boxes: list[Toolbox] = []
    async with gateway(behind, boxes=boxes) as gate:
        boxes[0].registry.register(WorkflowFunction(Workflow.parse(FLOW)))
        async with Client(gate.server, mode=front, elicitation_callback=fill_in, sampling_callback=imagine) as client:
            result = await client.call_tool("flow", {})

    assert "ann@example.org" in str(result.content)
    assert "LLM response: Where? Paris." in str(result.content)


async def test_the_clients_folders_reach_a_server_of_the_newer_protocol() -> None:
    async with gateway() as gate, Client(gate.server, list_roots_callback=folders) as client:
        told = await client.call_tool("fixture__test_input_required_result_list_roots", {})

    assert "file:///home/ann" in text_of(told)


@pytest.mark.parametrize("options", [{"sampling": False}, {"roots": ["/srv/shared"]}], ids=["sampling", "roots"])
async def test_what_the_operator_does_not_permit_never_reaches_the_client(options: dict[str, Any]) -> None:
    seen: list[str] = []

    async def leak(context: Any, params: Any = None) -> Any:
        seen.append("asked")
        raise AssertionError

    async with (
        gateway(options=options) as gate,
        Client(gate.server, sampling_callback=leak, list_roots_callback=leak) as client,
    ):
        if "roots" in options:
            told = await client.call_tool("fixture__test_input_required_result_list_roots", {})
            assert "/srv/shared" in text_of(told)
        else:
            with pytest.raises(MCPError, match="sampling is needed"):
                await client.call_tool("fixture__test_missing_capability", {})

    assert seen == []


@OLD_AND_NEW
async def test_logs_of_the_level_that_a_client_wants_come_before_the_result(front: Era, behind: str) -> None:
    heard: list[str] = []

    async def log(params: Any) -> None:
        heard.append(str(params.data))

    level: Any = "info"
    async with (
        gateway(behind) as gate,
        Client(gate.server, mode=front, logging_callback=log, log_level=level) as client,
    ):
        await client.call_tool("fixture__test_tool_with_logging", {})
        loud = list(heard)
        if front == "legacy":
            await client.set_logging_level("error")  # pyright: ignore[reportDeprecated]
            await client.call_tool("fixture__test_tool_with_logging", {})

    assert loud == ["Tool execution started", "Tool processing data", "Tool execution completed"]
    assert heard == loud


@OLD_AND_NEW
async def test_arguments_of_prompts_and_templates_are_completed(front: Era, behind: str) -> None:
    async with gateway(behind) as gate, Client(gate.server, mode=front) as client:
        prompt = PromptReference(type="ref/prompt", name="fixture__test_prompt_with_arguments")
        template = ResourceTemplateReference(type="ref/resource", uri="toolpost://fixture/test://template/{id}/data")
        found = await client.complete(prompt, {"name": "arg1", "value": "par"})
        more = await client.complete(template, {"name": "id", "value": "te"})

    assert (found.completion.values, more.completion.values) == (["paris", "park", "party"], ["test"])


@pytest.mark.parametrize("behind", ["legacy", "auto"], ids=["old", "new"])
async def test_a_newer_client_hears_when_a_resource_was_updated(behind: str) -> None:
    fixture = Fixture()
    async with (
        asyncio.timeout(60),
        gateway(behind, fixture=fixture) as gate,
        Client(gate.server) as client,
        listen(client.session, resource_subscriptions=[WATCHED]) as news,
    ):
        event = await _hear(fixture, aiter(news))

    assert event == ResourceUpdated(uri=WATCHED)


async def _hear(fixture: Fixture, news: Any) -> Any:
    """Update the resource until the news of it has come: a subscription behind begins a moment later."""
    heard = asyncio.ensure_future(anext(news))
    while not heard.done():
        await fixture.update("test://watched-resource")
        await asyncio.wait([heard], timeout=0.2)
    return heard.result()


@pytest.mark.parametrize("behind", ["legacy", "auto"], ids=["old", "new"])
async def test_an_older_client_hears_of_the_resources_it_subscribed_to_and_of_changed_lists(behind: str) -> None:
    fixture, heard = Fixture(), asyncio.Queue[str]()

    async def hear(message: Any) -> None:
        if hasattr(message, "method"):
            heard.put_nowait(f"{message.method} {getattr(message.params, 'uri', '')}".strip())

    async with (
        gateway(behind, fixture=fixture) as gate,
        Client(gate.server, mode="legacy", message_handler=hear) as client,
    ):
        await client.subscribe_resource(WATCHED)  # pyright: ignore[reportDeprecated]
        told = asyncio.ensure_future(heard.get())
        async with asyncio.timeout(30):
            while not told.done():
                await fixture.update("test://watched-resource")
                await asyncio.wait([told], timeout=0.2)
        await client.unsubscribe_resource(WATCHED)  # pyright: ignore[reportDeprecated]

    assert told.result() == f"notifications/resources/updated {WATCHED}"


@pytest.mark.parametrize("behind", ["legacy", "auto"])
async def test_subscriptions_that_come_at_once_or_twice_all_end_with_their_client(behind: str) -> None:
    uris, boxes = [STILL, WATCHED, "toolpost://fixture/test://static-binary"], list[Toolbox]()
    async with gateway(behind, boxes=boxes) as gate:
        source: Any = boxes[0].sources.index.content_sources()["fixture"]
        async with Client(gate.server, mode="legacy") as client:
            await asyncio.gather(*(client.subscribe_resource(uri) for uri in uris for _ in range(3)))
            once = sorted(source.subscriptions)
            await client.unsubscribe_resource(WATCHED)
            left = sorted(source.subscriptions)
        async with asyncio.timeout(30):
            while source.subscriptions or any("ResourceNews" in repr(task) for task in asyncio.all_tasks()):
                await asyncio.sleep(0.01)

    assert once == ["test://static-binary", "test://static-text", "test://watched-resource"]
    assert left == once[:2]


async def test_a_changed_list_of_prompts_is_reported_and_listed_again() -> None:
    async with gateway() as gate, Client(gate.server) as client:
        async with asyncio.timeout(30), listen(client.session, prompts_list_changed=True) as changes:
            await client.call_tool("fixture__test_trigger_prompt_change", {})
            await anext(aiter(changes))
        names = [one.name for one in (await client.list_prompts(cache_mode="refresh")).prompts]

    assert "fixture__later" in names


@OLD_AND_NEW
async def test_a_cancelled_request_is_cancelled_at_the_server_behind(front: Era, behind: str) -> None:
    fixture = Fixture()
    async with gateway(behind, fixture=fixture) as gate, Client(gate.server, mode=front) as client:
        call = asyncio.create_task(client.call_tool("fixture__slow_compute", {"seconds": 60}))
        async with asyncio.timeout(30):
            while fixture.computing != 1:
                await asyncio.sleep(0.02)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            while fixture.computing:
                await asyncio.sleep(0.02)


async def test_an_operator_who_leaves_the_utility_tools_out_passes_nothing_on() -> None:
    async with gateway(tool_exclude=["resources_.*", "prompts_.*"]) as gate, Client(gate.server) as client:
        prompts, resources = (await client.list_prompts()).prompts, (await client.list_resources()).resources
        with pytest.raises(MCPError, match="unknown resource"):
            await client.read_resource(STILL)

    assert (prompts, resources) == ([], [])


async def test_a_view_of_one_server_shows_it_as_it_is() -> None:
    own = ViewSettings(sources=["other"], names="own")
    async with gateway(twice=True, view=own) as gate, Client(gate.server) as client:
        tools = {one.name for one in (await client.list_tools()).tools}
        uris = {one.uri for one in (await client.list_resources()).resources}
        prompt = await client.get_prompt("test_simple_prompt")
        greeting = await client.call_tool("greet", {"name": "Ann"})
        with pytest.raises(MCPError, match="fixture__greet"):
            await client.call_tool("fixture__greet", {"name": "Ann"})

    assert {"greet", "test_simple_text"} <= tools
    assert not {"pending_status", "resources_read"} & tools
    assert "test://static-text" in uris
    assert (prompt.messages[0].role, text_of(greeting)) == ("user", "Hello, Ann!")


def test_own_names_are_for_one_source_that_is_shown_whole() -> None:
    for wrong in ({}, {"sources": ["a", "b"]}, {"sources": ["a"], "show": "search"}):
        with pytest.raises(ValueError, match="one of `sources`"):
            ViewSettings.model_validate({"names": "own", **wrong})
