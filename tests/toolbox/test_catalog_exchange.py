"""Thousands of tools of a source enter, change and leave the catalog in one step, prepared in threads."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.loop_calls import counted_calls
from toolpost import ExternalToolConfig, Settings, Toolbox, ToolContext, ToolNode, ToolRegistry, ToolResult, ToolSpec
from toolpost.auth.credentials import Authorizer
from toolpost.catalog.registry import new_entry
from toolpost.contracts.events import EventCode, RunEvent
from toolpost.sources.base import BaseSource, Services, Transport
from toolpost.toolbox.source_factory import SourceFactory
from toolpost.toolbox.source_manager import SourceManager

MANY = 1500


class Listed:
    """A tool whose record counts its readers on the event loop, and may do something when a thread reads it."""

    def __init__(self, name: str, *, in_thread: Callable[[], object] = lambda: None) -> None:
        self._spec = ToolSpec(name=name, source="many")
        self._in_thread = in_thread
        self.read_on_loop = 0

    @property
    def spec(self) -> ToolSpec:
        if threading.current_thread() is threading.main_thread():
            self.read_on_loop += 1
        else:
            self._in_thread()
        return self._spec

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        raise NotImplementedError


class Listing(BaseSource):
    """A source of the tools that it is given."""

    def __init__(self, config: ExternalToolConfig, tools: Sequence[Listed]) -> None:
        super().__init__(config)
        self.tools = tools

    async def discover(self) -> Sequence[Any]:
        return self.tools


class Given(Transport):
    """Makes a source of tools that exist already."""

    name = "mcp"

    def __init__(self, tools: Sequence[Listed]) -> None:
        self._tools = tools

    def make(self, config: ExternalToolConfig, services: Services) -> Listing:
        return Listing(config, self._tools)


CONFIG = ExternalToolConfig(name="many", transport="mcp", connection="x")


def many(prefix: str) -> list[Listed]:
    return [Listed(f"many.{prefix}{number}") for number in range(MANY)]


@asynccontextmanager
async def connected(registry: ToolRegistry, tools: Sequence[Listed]) -> AsyncIterator[SourceManager]:
    sources = SourceManager(registry, Authorizer(), SourceFactory(transports={"mcp": Given(tools)}))
    await sources.add(CONFIG)
    yield sources
    await sources.close()


async def relist(sources: SourceManager, tools: Sequence[Listed]) -> None:
    source = sources.index.source("many")
    assert source is not None
    await sources.monitor.tools_found(source, tools, ())


async def test_the_event_loop_looks_at_no_tool_that_enters_changes_or_leaves() -> None:
    first, second = many("a"), many("b")
    registry = ToolRegistry()
    async with connected(ToolRegistry(), many("warm")) as sources:  # loads what the first source of a process loads
        await sources.remove("many")
    async with counted_calls() as calls, connected(registry, first) as sources:
        await relist(sources, second)
        await sources.remove("many")

    assert sum(tool.read_on_loop for tool in (*first, *second)) == 0
    assert calls.most < MANY
    assert registry.list() == []


async def test_readers_see_the_tools_of_before_or_those_of_after_and_never_some_of_each() -> None:
    registry = ToolRegistry()
    seen: set[tuple[int, str]] = set()
    async with connected(registry, many("a")) as sources:
        changing = asyncio.create_task(relist(sources, many("b")))
        while not changing.done():
            names = [spec.name for spec in registry.specs()]
            seen |= {(len(names), name[:6]) for name in names}
            await asyncio.sleep(0)

    assert seen <= {(MANY, "many.a"), (MANY, "many.b")}
    assert registry.has("many.b0")


def test_a_draft_of_a_catalog_that_has_changed_since_is_refused() -> None:
    registry = ToolRegistry()
    draft = registry.draft()
    registry.register(Listed("native"))

    assert registry.commit(draft) is None
    assert registry.has("native")
    assert registry.commit(registry.draft()) is not None


async def test_a_catalog_that_changes_all_the_time_keeps_no_source_out() -> None:
    registry = ToolRegistry()
    names = iter(range(1000))
    restless = Listed("many.restless", in_thread=lambda: registry.register(Listed(f"native{next(names)}")))
    async with connected(registry, [restless]):
        assert registry.has("many.restless")
        assert len(registry.list()) > 5


async def test_a_tool_that_the_host_took_away_does_not_disturb_the_next_listing() -> None:
    registry = ToolRegistry()
    mine = Listed("many.b")
    async with connected(registry, [Listed("many.a"), Listed("many.b")]) as sources:
        registry.unregister("many.a")
        registry.register(mine, replace=True)
        await relist(sources, [Listed("many.c")])

    assert registry.list() == [mine, registry.get("many.c")]


class Turns:
    """A sink that counts the events of each turn of the event loop."""

    def __init__(self) -> None:
        self.turn = 0
        self.events: dict[int, int] = {}

    def emit(self, event: RunEvent) -> None:
        if event.code is EventCode.CATALOG_CHANGED:
            self.events[self.turn] = self.events.get(self.turn, 0) + 1


async def test_the_events_of_thousands_of_changes_leave_time_for_others() -> None:
    sink = Turns()
    async with Toolbox(settings=Settings(data_dir=None), sinks=[sink]) as box:
        draft = box.registry.draft()
        for tool in many("a"):
            draft.place(new_entry(tool))
        box.registry.commit(draft)
        while sum(sink.events.values()) < MANY:
            await asyncio.sleep(0)
            sink.turn += 1

    assert sum(sink.events.values()) == MANY
    assert max(sink.events.values()) <= 100


async def test_a_node_brings_its_tools_into_a_shared_registry_at_once(tmp_path: Path) -> None:
    paths: dict[str, Any] = {f"/{number}": {"get": {}} for number in range(MANY)}
    document = {"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": paths}
    (tmp_path / "api.json").write_text(json.dumps(document))
    config = ExternalToolConfig(name="api", transport="http", connection=str(tmp_path / "api.json"))
    shared, sizes = ToolRegistry(), set[int]()
    node = ToolNode(config=config, registry=shared)
    async with node:
        pass  # pays for imports
    async with counted_calls() as calls:
        connecting = asyncio.create_task(node.connect())
        while not connecting.done():
            sizes.add(len(shared.list()))
            await asyncio.sleep(0.001)
        await node.close()

    assert sizes <= {0, MANY}
    assert calls.most < MANY
    assert shared.list() == []
