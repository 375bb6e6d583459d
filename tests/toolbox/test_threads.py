"""Work that a server or a large result decides about runs beside the event loop: objects note who works on them."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.patient_settings import PatientSettings
from tests.sources.mcp.rogues import Rogue
from tests.sources.mcp.rogues import tool as listed
from tests.sources.utcp.serving import in_file, manual
from tests.sources.utcp.serving import tool as described
from toolpost import ExternalToolConfig, Toolbox, ToolContext, ToolRegistry, ToolResult, ToolSpec
from toolpost.auth.credentials import Authorizer
from toolpost.catalog.lock import Lock
from toolpost.contracts.calls import Credential, ToolOutput
from toolpost.contracts.spec import ToolTarget
from toolpost.runtime.results import CredentialScrubber
from toolpost.sources.base import BaseSource, Services, Transport
from toolpost.toolbox.source_factory import SourceFactory
from toolpost.toolbox.source_manager import SourceManager
from toolpost.toolbox.source_tools import Pinning

TOKEN = "tok-1234567890abcdef"


class Noting(ExternalToolConfig):
    """A configuration that notes which threads ask it about a tool, as each listing does for every tool."""

    def includes(self, tool_name: str) -> bool:
        asked.append((tool_name, threading.current_thread() is threading.main_thread()))
        return super().includes(tool_name)


asked: list[tuple[str, bool]] = []


@pytest.fixture(autouse=True)
def _nothing_asked() -> None:
    asked.clear()


@pytest.mark.programs
async def test_the_listing_of_a_server_is_read_in_a_thread(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, listed("one"), listed("two"))
    config = Noting(name="srv", transport="mcp", connection=rogue.connection, required=True)
    async with Toolbox(settings=PatientSettings(data_dir=None, sources=[config])) as box:
        assert {spec.name for spec in box.registry.specs() if spec.source == "srv"} == {"srv.one", "srv.two"}
    assert set(asked) == {("one", False), ("two", False)}


async def test_a_manual_is_compiled_in_a_thread(tmp_path: Path) -> None:
    template = {"call_template_type": "http", "url": "http://127.0.0.1:9/", "http_method": "GET"}
    file = in_file(tmp_path, manual(described("one", template), described("two", template)))
    config = Noting(name="m", transport="utcp", connection=str(file), required=True)
    async with Toolbox(settings=PatientSettings(data_dir=None, sources=[config])) as box:
        assert {spec.name for spec in box.registry.specs() if spec.source == "m"} == {"m.one", "m.two"}
    assert set(asked) == {("one", False), ("two", False)}


class Word(str):
    """A word of a configuration that notes who reads it."""

    __slots__ = ()

    def __str__(self) -> str:
        asked.append((self[:], threading.current_thread() is threading.main_thread()))
        return self[:]


class NotingOptions(ExternalToolConfig):
    """A configuration with such a word among its options."""

    def read_options(self, model: type[Any]) -> Any:
        return super().read_options(model).model_copy(update={"allowed_communication_protocols": [Word("http")]})


async def test_a_manual_is_read_in_a_thread(tmp_path: Path) -> None:
    template = {"call_template_type": "http", "url": "http://127.0.0.1:9/", "http_method": "GET"}
    file = in_file(tmp_path, manual(described("one", template)))
    config = NotingOptions(name="m", transport="utcp", connection=str(file), required=True)
    async with Toolbox(settings=PatientSettings(data_dir=None, sources=[config])) as box:
        assert box.registry.has("m.one")
    assert ("http", False) in asked
    assert ("http", True) not in asked


class Own(BaseSource):
    """A plug-in's source, which is its own one tool."""

    def __init__(self, config: ExternalToolConfig, spec: ToolSpec) -> None:
        super().__init__(config)
        self.spec = spec

    async def discover(self) -> list[Any]:
        return [self]

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        raise NotImplementedError


class Plugged(Transport):
    """A plug-in's transport, in place of ours."""

    name = "mcp"

    def __init__(self, spec: ToolSpec) -> None:
        self._spec = spec

    def make(self, config: ExternalToolConfig, services: Services) -> Own:
        return Own(config, self._spec)


async def test_definitions_are_compared_with_the_lock_in_a_thread(tmp_path: Path) -> None:
    def detail() -> str:
        asked.append(("detail", threading.current_thread() is threading.main_thread()))
        return "{}"

    lock = Lock(tmp_path / "toolpost.lock")
    lock.write({"own": {}})
    spec = ToolSpec(name="own.one", source="own", target=ToolTarget("plug-in", "one", detail))
    registry = ToolRegistry()
    sources = SourceManager(
        registry, Authorizer(), SourceFactory(transports={"mcp": Plugged(spec)}, pinning=Pinning(lock))
    )
    await sources.add(ExternalToolConfig(name="own", transport="mcp", connection="x"))
    await sources.close()
    assert asked == [("detail", False)]


class Part(dict[str, Any]):
    """A part of a result that notes who reads it."""

    def items(self) -> Any:
        asked.append(("part", threading.current_thread() is threading.main_thread()))
        return super().items()


@pytest.mark.parametrize(("length", "on_the_loop"), [(10, True), (100_000, False)])
async def test_a_long_result_is_searched_for_secrets_in_a_thread(length: int, on_the_loop: bool) -> None:
    output = ToolOutput({"part": Part(said=f"it is {TOKEN}"), "text": "x" * length})
    credential = Credential(headers={"Authorization": f"Bearer {TOKEN}"})
    scrubbed, _ = await CredentialScrubber().scrub(output, credential, frozenset())

    assert TOKEN not in json.dumps(scrubbed.content)
    assert set(asked) == {("part", on_the_loop)}
