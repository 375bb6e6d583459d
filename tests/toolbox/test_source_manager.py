"""Sources come in one by one; a broken one never takes the others down."""

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.patient_settings import PatientSettings
from toolpost import (
    ConfigError,
    ExternalToolConfig,
    Settings,
    Toolbox,
    ToolContext,
    ToolRegistry,
    ToolResult,
    ToolSpec,
    tool,
)
from toolpost.auth.credentials import Authorizer
from toolpost.sources.base import BaseSource, Services, Transport
from toolpost.toolbox.source_factory import SourceFactory
from toolpost.toolbox.source_manager import SourceManager

TOOLS = """
from toolpost import tool

@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    '''Say something.'''
    return a + b
"""


def settings(tmp_path: Path, *sources: dict[str, Any]) -> Settings:
    (tmp_path / "tools.py").write_text(TOOLS)
    good = {"name": "good", "transport": "python", "connection": str(tmp_path / "tools.py")}
    return PatientSettings(data_dir=None, sources=[good, *sources])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"transport": "python", "connection": "no.such.module"}, "cannot be imported"),
        ({"transport": "websocket", "connection": "x"}, "only http and https and ws and wss are allowed"),
    ],
)
async def test_a_broken_source_is_reported_and_the_others_work(
    tmp_path: Path, source: dict[str, Any], said: str
) -> None:
    async with Toolbox(settings=settings(tmp_path, {"name": "bad", **source})) as box:
        good, bad = box.report
        outcome = await box.call("good.add", {"a": 1, "b": 2})
    assert (good.ok, good.tools, good.error) == (True, 1, None)
    assert not bad.ok
    assert said in str(bad.error)
    assert outcome.status == "completed"


async def test_a_required_source_that_fails_stops_everything(tmp_path: Path) -> None:
    bad = {"name": "bad", "transport": "python", "connection": "no.such.module", "required": True}
    with pytest.raises(ConfigError, match="required source 'bad' failed"):
        await Toolbox(settings=settings(tmp_path, bad)).__aenter__()


async def test_a_source_that_is_switched_off_is_left_out(tmp_path: Path) -> None:
    off = {"name": "off", "transport": "python", "connection": "no.such.module", "enabled": False}
    async with Toolbox(settings=settings(tmp_path, off)) as box:
        assert [state.name for state in box.report] == ["good"]


class Foreign(BaseSource):
    """A plug-in's source that raises whatever it likes."""

    closed = 0

    async def discover(self) -> list[Any]:
        raise LookupError("the plug-in's own trouble")

    async def close(self) -> None:
        self.closed += 1


class Plugged(Transport):
    """A plug-in's transport, in place of ours."""

    name = "mcp"

    def __init__(self, kind: type[Foreign]) -> None:
        self._kind = kind
        self.made: list[Foreign] = []

    def make(self, config: ExternalToolConfig, services: Services) -> Foreign:
        self.made.append(self._kind(config))
        return self.made[-1]


async def test_an_exception_of_a_plug_in_is_reported_and_its_source_is_closed() -> None:
    transport = Plugged(Foreign)
    sources = SourceManager(ToolRegistry(), Authorizer(), SourceFactory(transports={"mcp": transport}))
    await sources.add(ExternalToolConfig(name="foreign", transport="mcp", connection="x"))
    await sources.close()
    assert sources.index.states[0].error == "LookupError: the plug-in's own trouble"
    assert transport.made[0].closed == 1


async def test_an_object_of_a_plug_in_that_is_not_a_tool_is_reported() -> None:
    class Careless(Foreign):
        async def discover(self) -> list[Any]:
            return ["not a tool"]

    sources = SourceManager(ToolRegistry(), Authorizer(), SourceFactory(transports={"mcp": Plugged(Careless)}))
    await sources.add(ExternalToolConfig(name="foreign", transport="mcp", connection="x"))

    assert "AttributeError" in str(sources.index.states[0].error)


async def test_two_overrides_of_one_tool_both_count_and_that_of_its_source_first(tmp_path: Path) -> None:
    given = settings(tmp_path).model_dump(exclude_unset=True)
    given["sources"][0]["overrides"] = {"add": {"description": "Sum up.", "fix": {"b": 1}}}
    given["overrides"] = {"good.add": {"description": "Add.", "timeout_s": 7}}
    async with Toolbox(settings=PatientSettings.model_validate(given)) as box:
        spec = box.registry.find("good.add").spec
        assert (spec.description, spec.timeout_s, list(spec.input_schema["properties"])) == ("Sum up.", 7, ["a"])

    given["overrides"] = {"good.add": {"hide": True}}
    async with Toolbox(settings=PatientSettings.model_validate(given)) as box:
        assert not box.registry.has("good.add")


async def test_a_tool_whose_name_is_taken_is_set_aside(tmp_path: Path) -> None:
    @tool(name="good.add", side_effects="pure")
    async def mine() -> str:
        """Say something."""
        return "mine"

    async with Toolbox(tools=[mine], settings=settings(tmp_path)) as box:
        (problem,) = box.problems
        outcome = await box.call("good.add")
    assert "tool 'good.add' of source 'good' is skipped" in problem
    assert getattr(outcome, "content", None) == "mine"


LATE = """
import time
from toolpost import tool

time.sleep(0.2)

@tool(side_effects="pure")
def one() -> str:
    '''Say something.'''
    return "late"
"""


async def test_tools_come_in_the_order_of_the_configuration_whoever_answers_first(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)
    (tmp_path / "soon.py").write_text(LATE.replace("time.sleep(0.2)", "").replace("late", "soon"))
    names = ["late", "no_such", "soon"]
    sources = [{"name": name, "transport": "python", "connection": str(tmp_path / f"{name}.py")} for name in names]
    async with Toolbox(settings=settings(tmp_path, *sources)) as box:
        listed = [spec.name for spec in box.registry.specs() if spec.source in {"good", *names}]

    assert listed == ["good.add", "late.one", "soon.one"]


class Slow:
    """A tool whose record is read slowly, as that of thousands of tools is."""

    def __init__(self) -> None:
        self.reading = threading.Event()
        self.go_on = threading.Event()

    @property
    def spec(self) -> ToolSpec:
        if threading.current_thread() is not threading.main_thread():
            self.reading.set()
            assert self.go_on.wait(30)
        return ToolSpec(name="foreign.slow", source="foreign")

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        raise NotImplementedError


async def test_tools_that_were_withdrawn_while_they_were_checked_do_not_come_back() -> None:
    slow = Slow()

    class Listing(Foreign):
        async def discover(self) -> list[Any]:
            return [slow]

    registry = ToolRegistry()
    sources = SourceManager(registry, Authorizer(), SourceFactory(transports={"mcp": Plugged(Listing)}))
    adding = asyncio.create_task(sources.add(ExternalToolConfig(name="foreign", transport="mcp", connection="x")))
    await asyncio.to_thread(slow.reading.wait, 30)
    withdrawing = asyncio.create_task(sources.withdraw())
    await asyncio.sleep(0)
    slow.go_on.set()
    await asyncio.gather(adding, withdrawing)

    assert registry.list() == []
    await sources.close()


IMPORTS = """
import asyncio, importlib.abc, json, sys, threading
from toolpost import Settings, Toolbox

class Watch(importlib.abc.MetaPathFinder):
    on_the_loop = set()
    def find_spec(self, name, path, target=None):
        if threading.current_thread() is threading.main_thread():
            self.on_the_loop.add(name.partition(".")[0])

async def main():
    server = {"name": "a", "transport": "mcp", "connection": "true"}
    api = {"name": "b", "transport": "graphql", "connection": "http://127.0.0.1:9/graphql"}
    sys.meta_path.insert(0, Watch())
    async with Toolbox(settings=Settings.model_validate({"data_dir": None, "sources": [server, api]})) as box:
        await box.wait_for_sources()
    print(json.dumps([sorted(Watch.on_the_loop), [name in sys.modules for name in ("mcp", "fastmcp", "graphql")]]))

asyncio.run(main())
"""


@pytest.mark.programs
def test_the_libraries_of_a_transport_are_not_imported_on_the_event_loop() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=100, check=True)
    on_the_loop, loaded = json.loads(done.stdout.splitlines()[-1])
    assert loaded == [True, True, True]
    assert {"mcp", "fastmcp", "graphql"}.isdisjoint(on_the_loop)
