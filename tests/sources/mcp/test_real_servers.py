"""Servers that others wrote, with no line of code between them and the front door."""

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import parts
from tests.patient_settings import PatientSettings
from toolpost import Completed, EventCode, Failed, Toolbox, ToolContext, ToolRegistry
from toolpost.configuration.settings import NetworkSettings
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.source_kinds import TransportType
from toolpost.errors import ToolClientError, ToolNodeError
from toolpost.policy.secret_shapes import MASK
from toolpost.toolbox.mcp_manager import MCPManager
from toolpost.toolbox.node import ToolNode

pytestmark = pytest.mark.programs

SECRET = "a secret of the parent process"
PNG = b"\x89PNG\r\n\x1a\n"


def server(connection: str, *, name: str = "srv", **config: Any) -> ExternalToolConfig:
    return ExternalToolConfig(
        name=name, transport=TransportType.MCP, connection=connection, connect_timeout_s=60, **config
    )


def toolbox(connection: str, **config: Any) -> Toolbox:
    return Toolbox(
        settings=PatientSettings(
            data_dir=None,
            policy="exploratory",
            builtins="none",
            sources=[server(connection, required=True, **config)],
            network=NetworkSettings(allow_private=True),
        )
    )


def running(program: str) -> int:
    """How many processes below this one run a program."""
    found = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            found += program in " ".join(process.cmdline())
    return found


async def result(box: Toolbox, name: str, arguments: dict[str, Any] | None = None) -> Any:
    return (await completed(box, name, arguments)).content


async def completed(box: Toolbox, name: str, arguments: dict[str, Any] | None = None) -> Completed:
    outcome = await box.call(f"srv.{name}", arguments)
    assert isinstance(outcome, Completed), outcome
    return outcome


@pytest.mark.req("GEN-01", "NODE-05")
async def test_everything_is_listed_under_the_name_of_its_source_and_answers_by_it() -> None:
    async with toolbox(parts.everything()) as box:
        (state,) = box.report
        names = {spec.name for spec in box.registry.specs() if not spec.is_helper}
        echo, total = (
            await completed(box, "echo", {"message": "hei på deg"}),
            await result(box, "get-sum", {"a": 40, "b": 2}),
        )
    assert (state.ok, state.tools) == (True, len(names))
    assert {"srv.echo", "srv.get-sum", "srv.get-env"} <= names
    assert (echo.content, echo.text) == ("Echo: hei på deg", "Echo: hei på deg")
    assert total == "The sum of 40 and 2 is 42."


@pytest.mark.req("CONV-01")
async def test_filters_choose_among_the_tools_of_everything() -> None:
    chosen = {"tool_filter": ["echo", "get-.*"], "tool_exclude": ["get-(env|tiny-image)"]}
    async with toolbox(parts.everything(), **chosen) as box:
        names = [spec.name for spec in box.registry.specs()]
        echo = await result(box, "echo", {"message": "chosen"})
    assert echo == "Echo: chosen"
    assert {"srv.echo", "srv.get-sum"} <= set(names)
    assert [name for name in names if name in ("srv.get-env", "srv.get-tiny-image") or "trigger" in name] == []


@pytest.mark.req("KMCP-02", "PMCP-04")
@pytest.mark.parametrize(("transport", "path"), [("streamableHttp", "mcp"), ("sse", "sse")])
async def test_everything_answers_at_an_address_too(transport: str, path: str) -> None:
    with parts.everything_at(transport) as address:
        async with toolbox(f"{address}/{path}") as box:
            echo = await result(box, "echo", {"message": "by HTTP"})
            steps = await completed(box, "trigger-long-running-operation", {"duration": 0.2, "steps": 2})
            told = await box.events(run_id=steps.run_id)
    assert echo == "Echo: by HTTP"
    assert [event.payload["fraction"] for event in told if event.code is EventCode.SUBAGENT_ACTION] == [0.5, 1.0]


async def test_structured_content_of_everything_is_the_result_and_fits_its_schema() -> None:
    async with toolbox(parts.everything()) as box:
        weather = await result(box, "get-structured-content", {"location": "Chicago"})
        schema = box.registry.find("srv.get-structured-content").tool.spec.output_schema
    assert weather == {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}
    assert schema is not None
    assert set(schema["properties"]) == set(weather)


async def test_an_image_of_everything_becomes_an_artifact() -> None:
    async with toolbox(parts.everything()) as box:
        outcome = await completed(box, "get-tiny-image")
        (artifact,) = outcome.artifacts
        data = await box.store.artifacts.read(artifact, tenant="local", offset=0, limit=len(PNG))
        info = await box.store.artifacts.info(artifact, tenant="local")
    assert info is not None
    assert (data, info.media_type) == (PNG, "image/png")
    assert "Here's the image you requested" in (outcome.text or "")


async def test_links_and_references_of_everything_keep_their_addresses() -> None:
    async with toolbox(parts.everything()) as box:
        links = await completed(box, "get-resource-links", {"count": 2})
        reference = await completed(box, "get-resource-reference", {"resourceType": "Text", "resourceId": 3})
        message = await completed(box, "get-annotated-message", {"messageType": "success", "includeImage": True})
    assert str(links.content).count("demo://resource/dynamic/") == 2
    assert "demo://resource/dynamic/text/3" in str(reference.content)
    assert "Operation completed successfully" in str(message.content)
    assert len(message.artifacts) == 1


async def test_a_long_operation_of_everything_reports_how_far_it_is() -> None:
    async with toolbox(parts.everything()) as box:
        outcome = await completed(box, "trigger-long-running-operation", {"duration": 0.4, "steps": 4})
        told = await box.events(run_id=outcome.run_id)
    assert [event.payload["fraction"] for event in told if event.code is EventCode.SUBAGENT_ACTION] == [
        0.25,
        0.5,
        0.75,
        1.0,
    ]


@pytest.mark.req("CFG-13", "DEF-03", "MISC-05")
async def test_a_server_sees_the_environment_of_its_configuration_and_no_secret_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PARENT_TOKEN", SECRET)
    monkeypatch.setenv("TOKEN_TO_LEND", "ghp_for_the_child")
    async with toolbox(parts.everything(), env={"GITHUB_TOKEN": "${TOKEN_TO_LEND}"}) as box:
        seen = await completed(box, "get-env")
    assert f'"GITHUB_TOKEN": "{MASK}"' in str(seen.text)  # the server has it, and nobody gets it back
    assert "PARENT_TOKEN" not in str(seen.text)
    assert SECRET not in str(seen.text)


@pytest.mark.req("DEF-04")
async def test_a_command_is_split_as_a_shell_would_and_started_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # npx finds the package that is installed in the folder, and asks nobody for it.
    async with toolbox("npx -y '@modelcontextprotocol/server-everything' stdio", cwd=str(parts.ROOT)) as box:
        assert await result(box, "echo", {"message": "by npx"}) == "Echo: by npx"


@pytest.mark.req("GEN-01", "NODE-05", "NODE-09")
async def test_a_node_brings_everything_into_a_shared_registry_and_takes_it_out_again() -> None:
    registry = ToolRegistry()
    node = ToolNode(config=server(parts.everything()), registry=registry)
    with pytest.raises(ToolNodeError, match="ToolNode 'srv' not connected"):
        node.get_tools()
    await node.connect()
    await node.connect()
    names = [tool.spec.name for tool in node.get_tools()]
    by_full_name = await node.call("srv.echo", {"message": "one"}, ToolContext())
    by_bare_name = await node.call("echo", {"message": "two"}, ToolContext())
    assert names == [spec.name for spec in registry.specs() if not spec.is_helper]
    assert (by_full_name, by_bare_name) == ("Echo: one", "Echo: two")
    await node.close()
    await node.close()
    assert registry.specs() == []


@pytest.mark.req("PMCP-01", "PMCP-02", "PMCP-08")
async def test_a_manager_connects_who_can_be_reached_and_lends_the_tools(caplog: pytest.LogCaptureFixture) -> None:
    manager, registry = MCPManager(), ToolRegistry()
    report = await manager.connect_all(
        [server(parts.everything(), name="every"), server(parts.time(), name="clock"), server("no-such", name="gone")]
    )
    try:
        manager.load_tools(registry)
        clocks = running("mcp-server-time")
        echo = await manager.call_tool("every", "echo", {"message": "hi"})
        lent = registry.get("clock.get_current_time")
        assert lent is not None
        now = await lent.execute({"timezone": "Europe/Oslo"}, ToolContext())
        wrong = await lent.execute({"timezone": "Nowhere/Never"}, ToolContext())
    finally:
        await manager.disconnect_all()
    assert (clocks, running("mcp-server-time")) == (1, 0)
    assert (report.connected, list(report.failed)) == (["every", "clock"], ["gone"])
    assert "'gone' is skipped" in caplog.text
    assert (echo.success, echo.content_text) == (True, "Echo: hi")
    assert lent.spec.description.startswith("[clock] ")
    assert "clock__get_current_time" in {definition.name for definition in registry.to_llm_tools()}
    assert (now.success, now.result["timezone"]) == (True, "Europe/Oslo")
    assert (wrong.success, bool(wrong.error)) == (False, True)


@pytest.mark.req("MISC-19")
async def test_servers_in_the_short_form_get_their_folder_and_environment_unless_switched_off(tmp_path: Path) -> None:
    node, files = parts.argv(parts.filesystem(Path()))[:2]
    everything = parts.argv(parts.everything())[1]
    servers = [
        {"name": "files", "command": node, "args": [files, "."], "cwd": str(tmp_path)},
        {"name": "every", "command": node, "args": [everything], "env": {"CITY": "Tromsø"}},
        {"name": "off", "command": "no-such-command", "enabled": False},
    ]
    settings = PatientSettings.model_validate(
        {"data_dir": None, "policy": "exploratory", "tools": {"mcpServers": servers}}
    )
    async with Toolbox(settings=settings) as box:
        names = [state.name for state in box.report if state.ok]
        folders, seen = await box.call("files.list_allowed_directories"), await box.call("every.get-env")
    assert names == ["files", "every"]
    assert isinstance(folders, Completed)
    assert isinstance(seen, Completed)
    assert str(tmp_path) in str(folders.content)
    assert "Tromsø" in str(seen.content)


@pytest.mark.req("DEF-07")
async def test_filesystem_writes_and_reads_below_its_folder_and_nowhere_else(tmp_path: Path) -> None:
    allowed, outside = tmp_path / "allowed folder", tmp_path / "outside.txt"
    allowed.mkdir()
    outside.write_text("not for the server")
    async with toolbox(parts.filesystem(allowed)) as box:
        await result(box, "write_file", {"path": str(allowed / "note.txt"), "content": "blåbær\n"})
        read = await completed(box, "read_text_file", {"path": str(allowed / "note.txt")})
        refused = await box.call("srv.read_text_file", {"path": str(outside)})
    assert (allowed / "note.txt").read_text() == "blåbær\n"
    assert read.content == {"content": "blåbær\n"}
    assert isinstance(refused, Failed)
    assert isinstance(refused.error, ToolClientError)
    assert "denied" in str(refused.error).lower()


async def test_memory_keeps_what_it_was_told(tmp_path: Path) -> None:
    ada = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    async with toolbox(parts.memory(), env={"MEMORY_FILE_PATH": str(tmp_path / "graph.jsonl")}) as box:
        await result(box, "create_entities", {"entities": [ada]})
        graph = await result(box, "read_graph")
    assert graph == {"entities": [ada], "relations": []}


async def test_time_speaks_the_newest_protocol() -> None:
    async with toolbox(parts.time(), options={"protocol": "2026-07-28"}) as box:
        now = await result(box, "get_current_time", {"timezone": "Europe/Oslo"})
    assert now["timezone"] == "Europe/Oslo"


async def test_git_tells_of_a_new_file(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", "--initial-branch=trunk", str(tmp_path)], check=True)
    (tmp_path / "new.txt").touch()
    async with toolbox(parts.git(tmp_path)) as box:
        status = await completed(box, "git_status", {"repo_path": str(tmp_path)})
    assert "new.txt" in str(status.text)


async def test_sqlite_on_the_older_library_creates_fills_and_reads_a_table(tmp_path: Path) -> None:
    async with toolbox(parts.sqlite(tmp_path / "berries.db")) as box:
        await result(box, "create_table", {"query": "CREATE TABLE berries (name TEXT, grams INTEGER)"})
        await result(box, "write_query", {"query": "INSERT INTO berries VALUES ('cloudberry', 12)"})
        rows = await completed(box, "read_query", {"query": "SELECT name, grams FROM berries"})
        wrong = await box.call("srv.read_query", {"query": "SELECT colour FROM berries"})
    assert "'name': 'cloudberry', 'grams': 12" in str(rows.text)
    assert isinstance(wrong, Completed), "this server tells of a database error in an ordinary answer"
    assert "no such column" in str(wrong.text)
