"""Sources are added, replaced and removed while a Toolbox is open; calls in flight and other sources never notice."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated

from tests.patient_settings import PatientSettings
from tests.sources.webhook.boxes import said
from tests.wire.site import Received, Site
from toolpost import Completed, ConfigError, ExternalToolConfig, Failed, Toolbox, ToolError
from toolpost.catalog.registry import CatalogChange

PYTHON = "from toolpost import tool\n\n@tool(side_effects='pure')\nasync def {0}() -> str:\n    return '{0}'\n"
SDL = "type Query {{ {0}: String }}"


def mcp_server(name: str) -> FastMCP[Any]:
    server = FastMCP[Any](name)
    server.tool(lambda: name, name=name)
    return server


old_server, new_server = mcp_server("old"), mcp_server("new")


def openapi(*names: str) -> str:
    paths = {f"/{name}": {"get": {"operationId": name, "responses": {"200": {"description": "ok"}}}} for name in names}
    info = {"title": "t", "version": "1"}
    return json.dumps({"openapi": "3.1.0", "info": info, "servers": [{"url": "http://127.0.0.1:9"}], "paths": paths})


def written(folder: Path, name: str, text: str) -> str:
    file = folder / name
    file.write_text(text)
    return str(file)


def config(transport: str, name: str, folder: Path) -> ExternalToolConfig:
    """The settings of a source `srv` of this transport, whose one tool has the name."""
    template = {"call_template_type": "http", "url": "http://127.0.0.1:9/x", "http_method": "GET"}
    manual = {
        "utcp_version": "1.0.1",
        "manual_version": "1.0",
        "tools": [{"name": name, "tool_call_template": template}],
    }
    sdl = {"schema_file": written(folder, f"{name}.graphql", SDL.format(name))}
    options: dict[str, dict[str, Any]] = {
        "python": {"connection": written(folder, f"{name}.py", PYTHON.format(name))},
        "http": {"connection": written(folder, f"{name}.json", openapi(name))},
        "utcp": {"connection": json.dumps(manual)},
        "mcp": {"connection": f"memory:{__name__}:{name}_server"},
        "cli": {"connection": "echo", "options": {"tools": {name: {"args": [name]}}}},
        "webhook": {"connection": "http://127.0.0.1:9", "options": {"kind": "plain", "tools": {name: {"url": name}}}},
        "websocket": {"connection": "ws://127.0.0.1:9", "options": {"tools": {name: {}}}},
        "graphql": {"connection": "http://127.0.0.1:9", "options": sdl},
    }
    return ExternalToolConfig(name="srv", transport=transport, **options[transport])


def opened(*sources: ExternalToolConfig) -> Toolbox:
    return Toolbox(settings=PatientSettings(data_dir=None, lock=None, policy="exploratory", sources=list(sources)))


def tool_names(box: Toolbox, source: str = "srv") -> list[str]:
    return [spec.name for spec in box.registry.specs() if spec.source == source]


@pytest.mark.req("GEN-24")
@pytest.mark.parametrize("transport", ["python", "http", "utcp", "mcp", "cli", "webhook", "websocket", "graphql"])
async def test_a_source_of_every_transport_comes_changes_and_goes_in_one_step_each(
    tmp_path: Path, transport: str
) -> None:
    other = config("python", "other", tmp_path).model_copy(update={"name": "other"})
    heard: list[Sequence[CatalogChange]] = []
    async with opened(other) as box:
        untouched = box.registry.find("other.other")
        box.registry.subscribe(heard.append)
        await box.sources.add(config(transport, "old", tmp_path))
        first = tool_names(box)
        await box.sources.replace(config(transport, "new", tmp_path))
        second = tool_names(box)
        await box.sources.remove("srv")
        third = tool_names(box)

        assert box.registry.find("other.other") is untouched
        assert [state.name for state in box.report] == ["other"]

    assert ("srv.old" in first, "srv.new" in first) == (True, False)
    assert ("srv.old" in second, "srv.new" in second, third) == (False, True, [])
    assert len(heard) == 3
    assert {("removed", "srv.old"), ("added", "srv.new")} <= set(heard[1])


async def test_a_replacement_that_does_not_start_leaves_the_old_source_and_says_why(tmp_path: Path) -> None:
    broken = {"connection": written(tmp_path, "broken.py", "raise RuntimeError('no licence')"), "required": True}
    good = config("python", "old", tmp_path)
    async with opened(good) as box:
        with pytest.raises(ToolError, match="no licence"):
            await box.sources.replace(good.model_copy(update=broken))
        outcome = await box.call("srv.old")
        with pytest.raises(ConfigError, match="there is no source 'sv'; there are: srv"):
            await box.sources.replace(good.model_copy(update={"name": "sv"}))

        assert [(state.ok, state.tools) for state in box.report] == [(True, 1)]
    assert isinstance(outcome, Completed)


async def test_tools_that_stay_the_same_are_no_news_and_run_on_the_new_source(tmp_path: Path) -> None:
    changing = config("python", "old", tmp_path)
    heard: list[CatalogChange] = []
    async with opened(changing) as box:
        before = await box.call("srv.old")
        box.registry.subscribe(heard.extend)
        written(tmp_path, "old.py", PYTHON.format("old").replace("return 'old'", "return 'newer'"))
        await box.sources.replace(changing)
        after = await box.call("srv.old")
        counted = box.registry.get_stats().call_stats["srv.old"].count

    assert isinstance(before, Completed)
    assert isinstance(after, Completed)
    assert (before.content, after.content, counted) == ("old", "newer", 2)
    assert [change.kind for change in heard] in ([], ["changed"])  # its target, the code, may count as changed


async def test_readers_never_see_tools_of_both(tmp_path: Path) -> None:
    def document(prefix: str) -> ExternalToolConfig:
        text = openapi(*(f"{prefix}{number}" for number in range(300)))
        connection = written(tmp_path, f"{prefix}.json", text)
        return ExternalToolConfig(name="srv", transport="http", connection=connection)

    seen: set[tuple[int, str]] = set()
    async with opened(document("a")) as box:
        changing = asyncio.create_task(box.sources.replace(document("b")))
        while not changing.done():
            names = tool_names(box)
            seen |= {(len(names), name[:5]) for name in names}
            await asyncio.sleep(0)
        await changing
        last = tool_names(box)

    assert seen <= {(300, "srv.a"), (300, "srv.b")}
    assert all(name.startswith("srv.b") for name in last)


class Office:
    """Webhooks `/old` and `/new`; those of the old one wait until they may go on."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        site.answer = self.answer

    async def answer(self, received: Received, writer: asyncio.StreamWriter) -> None:
        if received.path == "/old":
            self.begun.set()
            await self.go_on.wait()
        writer.write(said(200, {"by": received.path, "token": received.all("authorization")}))
        await writer.drain()

    def source(self, path: str) -> ExternalToolConfig:
        """The tool `srv.call`, which posts to this path with a token of its own."""
        return ExternalToolConfig.model_validate(
            {
                "name": "srv",
                "transport": "webhook",
                "connection": self.site.url,
                "auth_type": "bearer",
                "auth_config": {"token": f"token-of{path.replace('/', '-')}"},
                "options": {"kind": "plain", "tools": {"call": {"url": path, "side_effects": "read"}}},
            }
        )


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    async with Site() as site:
        yield Office(site)


async def test_calls_in_flight_finish_on_the_old_source_while_others_go_to_the_new_one(office: Office) -> None:
    async with opened(office.source("/old")) as box:
        early = asyncio.create_task(box.call("srv.call"))
        await office.begun.wait()
        await box.sources.replace(office.source("/new"))
        late = await box.call("srv.call")
        office.go_on.set()
        first = await early

    assert isinstance(first, Completed)
    assert isinstance(late, Completed)
    assert (first.content["by"], late.content["by"]) == ("/old", "/new")
    sent = {received.path: received.all("authorization") for received in office.site.requests}
    assert sent == {"/old": ["Bearer token-of-old"], "/new": ["Bearer token-of-new"]}


async def test_removing_a_source_waits_for_its_calls(office: Office) -> None:
    async with opened(office.source("/old")) as box:
        call = asyncio.create_task(box.call("srv.call"))
        await office.begun.wait()
        removing = asyncio.create_task(box.sources.remove("srv"))
        while box.registry.has("srv.call"):
            await asyncio.sleep(0)
        refused = await box.call("srv.call")
        office.go_on.set()
        outcome = await call
        await removing

    assert isinstance(outcome, Completed)
    assert isinstance(refused, Failed)
    assert refused.error.error_code == "tool_not_found"


async def test_a_source_that_is_removed_is_closed_after_its_grace_whatever_runs() -> None:
    async with opened(ExternalToolConfig(name="srv", transport="mcp", connection=f"memory:{__name__}:stuck")) as box:
        call = asyncio.create_task(box.call("srv.hang"))
        await hanging.wait()
        await box.sources.remove("srv", grace_s=0.0)
        outcome = await call

    assert isinstance(outcome, Failed)


hanging = asyncio.Event()
stuck = FastMCP[Any]("stuck")


@stuck.tool
async def hang() -> str:
    """Never answer."""
    hanging.set()
    await asyncio.Event().wait()
    return ""


async def test_changes_of_one_source_take_their_turns_and_the_last_stays(tmp_path: Path) -> None:
    async with opened(config("python", "old", tmp_path)) as box:
        await asyncio.gather(*(box.sources.replace(config("python", name, tmp_path)) for name in ("a", "b", "new")))

        assert tool_names(box) == ["srv.new"]


async def test_a_required_source_that_does_not_start_can_be_added_again(tmp_path: Path) -> None:
    good = config("python", "old", tmp_path).model_copy(update={"required": True})
    async with opened() as box:
        with pytest.raises(ConfigError, match="required source 'srv' failed"):
            await box.sources.add(good.model_copy(update={"connection": "no.such.module"}))
        await box.sources.add(good)

        assert tool_names(box) == ["srv.old"]


async def test_a_source_whose_adding_is_given_up_is_not_reported_and_can_be_added_again(tmp_path: Path) -> None:
    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        with closing(writer):
            await reader.read()  # until the client has gone

    reached, good = asyncio.Event(), config("python", "old", tmp_path)
    server = await asyncio.start_server(never_answer, "127.0.0.1", 0)
    mute = ExternalToolConfig(
        name="srv", transport="mcp", connection=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    )
    async with server, opened() as box:
        adding = asyncio.create_task(box.sources.add(mute))
        await reached.wait()
        adding.cancel()
        await asyncio.gather(adding, return_exceptions=True)
        left = list(box.report)
        await box.sources.add(good)

        assert (left, tool_names(box)) == ([], ["srv.old"])


async def test_a_variable_in_the_settings_of_an_added_source_is_filled_in(
    tmp_path: Path, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFICE_TOKEN", "token-of-the-environment")
    file = written(tmp_path, "toolpost.yaml", "data_dir: null\nlock: null\npolicy: exploratory\nbuiltins: none\n")
    async with Toolbox.open(file) as box:
        await box.sources.add(office.source("/new").model_copy(update={"auth_config": {"token": "${OFFICE_TOKEN}"}}))
        await box.call("srv.call")

    assert office.site.last.all("authorization") == ["Bearer token-of-the-environment"]


async def test_a_name_that_two_sources_map_to_goes_to_the_other_when_the_first_one_leaves(tmp_path: Path) -> None:
    def source(name: str, tool_name: str) -> ExternalToolConfig:
        file = written(tmp_path, f"{name}.py", PYTHON.format(tool_name))
        return ExternalToolConfig(name=name, transport="python", connection=file)

    async with opened(source("a", "b__c"), source("a__b", "c")) as box:
        first, said = await box.call("a__b__c"), list(box.problems)
        await box.sources.remove("a")
        second = await box.call("a__b__c")
        problems = list(box.problems)

    assert isinstance(first, Completed)
    assert isinstance(second, Completed)
    assert (first.tool_name, second.tool_name) == ("a.b__c", "a__b.c")
    assert any("would both be 'a__b__c' to a model" in problem for problem in said)
    assert not any("would both be" in problem for problem in problems)


async def test_a_source_that_is_opened_again_stays_one_of_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "toolpost.yaml"
    written(tmp_path, "old.py", PYTHON.format("old"))
    head = "data_dir: null\nlock: null\nbuiltins: none\nsources:\n"
    file.write_text(f"{head}  - {{name: srv, transport: python, connection: ./old.py}}\n")
    async with Toolbox.open(file) as box:
        await box.sources.reload("srv")
        unchanged = await box.reload()
        file.write_text(f"{head}  []\n")
        changed = await box.reload()

    assert not unchanged
    assert changed.removed == ["srv"]


def notes_server() -> tuple[MCPServer[Any], InMemorySubscriptionBus]:
    """An MCP server with one resource, and where it tells listeners of updates."""
    bus = InMemorySubscriptionBus()
    server = MCPServer[Any]("notes", subscriptions=bus)
    server.resource("note://a", name="a")(lambda: "x")
    return server, bus


(first_server, _), (second_server, second_bus) = notes_server(), notes_server()


async def test_whoever_wants_news_of_a_resource_gets_those_of_the_new_server() -> None:
    def notes(name: str) -> ExternalToolConfig:
        return ExternalToolConfig(name="srv", transport="mcp", connection=f"memory:{__name__}:{name}", required=True)

    heard: list[str | None] = []
    async with opened(notes("first_server")) as box:
        await box.sources.index.content_sources()["srv"].subscribe("note://a")
        box.sources.monitor.subscribe_contents(lambda _source, uri: heard.append(uri))
        await box.sources.replace(notes("second_server"))
        replaced = list(heard)
        async with asyncio.timeout(30):
            while len(heard) < len(replaced) + 1:
                await second_bus.publish(ResourceUpdated(uri="note://a"))
                await asyncio.sleep(0.02)
        await box.sources.index.content_sources()["srv"].unsubscribe("note://a")

        assert list(box.sources.index.content_sources()["srv"].subscriptions) == []
    assert "note://a" in replaced


async def test_no_call_fails_while_a_source_is_replaced_again_and_again(tmp_path: Path, office: Office) -> None:
    other = config("python", "other", tmp_path).model_copy(update={"name": "other"})
    outcomes: list[Any] = []

    async def keep_calling(box: Toolbox, name: str) -> None:
        while True:
            outcomes.append(await box.call(name))
            await asyncio.sleep(0)  # a Python function may return without a pause

    async with opened(office.source("/new"), other) as box:
        callers = [asyncio.create_task(keep_calling(box, name)) for name in ("srv.call", "srv.call", "other.other")]
        for number in range(10):
            await box.sources.replace(office.source("/new" if number % 2 else "/newer"))
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)

    assert {type(outcome) for outcome in outcomes} == {Completed}
    assert {outcome.tool_name for outcome in outcomes} == {"srv.call", "other.other"}
    sent = {(received.path, *received.all("authorization")) for received in office.site.requests}
    assert sent == {("/new", "Bearer token-of-new"), ("/newer", "Bearer token-of-newer")}
