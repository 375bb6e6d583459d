"""A ToolNode whose tools are NodeSpecs, over a real MCP server in this process."""

import base64
import json
from typing import Any

import pytest
from fastmcp import FastMCP
from pydantic import BaseModel, ValidationError

from tests.wire.site import Site, reply
from toolpost import Completed, Settings, Toolbox, ToolContext
from toolpost.compat.penguiflow import ModelRegistry, build_catalog
from toolpost.compat.penguiflow.tools import (
    ArtifactExtractionConfig,
    ArtifactFieldConfig,
    BinaryDetectionConfig,
    ExternalToolConfig,
    ToolNode,
    ToolNodeError,
    TransportType,
)
from toolpost.compat.penguiflow.tools.config import DEFAULT_BINARY_SIGNATURES

PDF = b"%PDF-1.7 " + bytes(1500)
OPEN = Settings(data_dir=None, policy="exploratory")


class Nothing(BaseModel):
    pass


def github() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("github")

    @server.tool
    def create_issue(title: str, labels: list[str] | None = None, milestone: int = 5) -> dict[str, Any]:
        """Open an issue."""
        return {"title": title, "labels": labels, "milestone": milestone}

    @server.tool
    def close_issue(number: int) -> str:
        return f"closed {number}"

    @server.tool
    def export() -> dict[str, Any]:
        return {"name": "report", "file": {"content": base64.b64encode(PDF).decode()}, "notes": "n" * 12_000}

    return server


def node(registry: ModelRegistry | None = None, server: FastMCP[Any] | None = None, **options: Any) -> ToolNode:
    config = ExternalToolConfig(name="github", transport=TransportType.MCP, connection="memory:server", **options)
    return ToolNode(config=config, registry=registry or ModelRegistry(), server=server or github())


@pytest.mark.req("CONV-04")
async def test_a_tool_is_described_by_its_node_its_models_and_its_source() -> None:
    async with node() as made:
        create, close, _ = made.get_tools()

        assert (create.name, create.desc, close.desc) == ("github.create_issue", "Open an issue.", "")
        assert create.node.name == "github.create_issue"
        assert made.registry.models("github.create_issue") == (create.args_model, create.out_model)
        assert (create.side_effects, create.tags) == ("external", ("mcp", "github"))
        assert create.extra == {"source": "mcp", "namespace": "github"}
        with pytest.raises(ValidationError, match="title"):
            create.args_model()


@pytest.mark.req("CONV-04")
async def test_a_tool_of_a_manual_is_marked_as_one_of_utcp() -> None:
    template = {"call_template_type": "http", "url": "http://127.0.0.1:1/now", "http_method": "GET"}
    listed = {"name": "now", "description": "Tell the weather.", "tool_call_template": template}
    manual = json.dumps({"utcp_version": "1.0.1", "manual_version": "1.0.0", "tools": [listed]}).encode()

    async with Site(reply(200, manual, content_type="application/json")) as site:
        config = ExternalToolConfig(name="weather", transport=TransportType.UTCP, connection=f"{site.url}/utcp.json")
        async with ToolNode(config=config, registry=ModelRegistry()) as made:
            [now] = made.get_tools()

    assert (now.tags, now.extra) == (("utcp", "weather"), {"source": "utcp", "namespace": "weather"})


@pytest.mark.req("NODE-12")
async def test_each_function_calls_its_own_tool_with_what_was_set() -> None:
    async with node() as made:
        create, close, _ = made.get_tools()
        created: Any = await create.node.func(create.args_model(title="Bug"), ToolContext())
        closed: Any = await close.node.func(close.args_model(number=7), ToolContext())

        assert created.result == {"title": "Bug", "labels": None, "milestone": 5}
        assert closed.result == {"result": "closed 7"}
        invoked = await close.node.invoke({"number": 8}, ToolContext(), registry=made.registry)
        assert invoked.result == {"result": "closed 8"}


@pytest.mark.req("GEN-08")
async def test_external_tools_and_functions_stand_in_one_catalog() -> None:
    async def hello(args: Nothing, ctx: Any) -> Nothing:
        return Nothing()

    registry = ModelRegistry()
    async with node(registry) as made:
        catalog = [*build_catalog([hello], registry), *made.get_tools()]
        async with Toolbox(tools=catalog, settings=OPEN) as box:
            outcomes = [await box.call("hello"), await box.call("github.close_issue", {"number": 1})]

    assert all(isinstance(outcome, Completed) for outcome in outcomes)


async def test_the_servers_own_schema_decides_and_not_its_view() -> None:
    async with node() as made, Toolbox(tools=made.get_tools(), settings=OPEN) as box:
        outcome = await box.call("github.create_issue", {"title": "Bug", "more": 1})

    assert outcome.status == "failed"


async def test_a_name_that_is_taken_ends_the_connection() -> None:
    registry = ModelRegistry()
    registry.register("github.close_issue", Nothing, Nothing)
    made = node(registry)

    with pytest.raises(ToolNodeError, match=r"Tool name collision for 'github\.close_issue'"):
        await made.connect()

    assert not registry.has("github.create_issue")
    with pytest.raises(ToolNodeError, match="'github' not connected"):
        made.get_tools()


async def test_closing_frees_the_names() -> None:
    registry = ModelRegistry()
    for _ in range(2):
        made = node(registry)
        await made.connect()
        await made.connect()
        assert registry.has("github.export")
        await made.close()
        await made.close()

    assert not registry.has("github.export")


async def test_resources_and_prompts_are_records() -> None:
    server = github()

    @server.resource("repo://readme", mime_type="text/markdown")
    def readme() -> str:
        return "# Hello"

    @server.resource("repo://{name}/logo", mime_type="image/png")
    def logo(name: str) -> bytes:
        return b"\x89PNG"

    @server.prompt
    def triage(issue: str) -> str:
        """Sort an issue."""
        return f"Sort {issue}."

    async with node(server=server) as made:
        assert (made.resources_supported, made.prompts_supported) == (True, True)
        [resource], [template] = await made.list_resources(), await made.list_resource_templates()
        assert (resource.uri, resource.mime_type) == ("repo://readme", "text/markdown")
        assert template.uri_template == "repo://{name}/logo"
        assert await made.read_resource("repo://readme") == {"text": "# Hello"}
        assert (await made.read_resource("repo://x/logo"))["artifact"]["media_type"] == "image/png"
        [prompt] = await made.list_prompts()
        assert (prompt.name, prompt.arguments[0].name, prompt.arguments[0].required) == ("triage", "issue", True)
        filled = await made.get_prompt("triage", {"issue": "#1"})
        assert filled["messages"] == [{"role": "user", "type": "text", "text": "Sort #1."}]


async def test_a_server_without_them_has_none() -> None:
    async with node() as made:
        assert (made.resources_supported, made.prompts_supported) == (False, False)
        assert [await made.list_resources(), await made.list_prompts()] == [[], []]


async def test_files_and_long_texts_in_a_result_become_artifacts() -> None:
    async with node() as made, Toolbox(tools=made.get_tools(), settings=OPEN) as box:
        outcome = await box.call("github.export")
        assert isinstance(outcome, Completed)
        file, notes = outcome.content["file"]["content"], outcome.content["notes"]
        assert (file["mime_type"], file["size"]) == ("application/pdf", len(PDF))
        assert await box.store.artifacts.read(file["artifact_id"], tenant="local") == PDF
        assert (notes["mime_type"], notes["size"]) == ("text/plain", 12_000)
        assert notes["artifact_id"] in notes["summary"]
        assert set(outcome.artifacts) == {file["artifact_id"], notes["artifact_id"]}


async def test_a_configured_field_is_a_file_whatever_its_size() -> None:
    field = ArtifactFieldConfig(field_path="title", content_type="text", summary_template="{size} bytes of {what}")
    extraction = ArtifactExtractionConfig(tool_fields={"create_issue": [field]})
    async with (
        node(artifact_extraction=extraction) as made,
        Toolbox(tools=made.get_tools(), settings=OPEN) as box,
    ):
        outcome = await box.call("github.create_issue", {"title": "Bug"})

        assert isinstance(outcome, Completed)
        assert outcome.content["title"]["summary"] == "3 bytes of {what}"
        assert await box.store.artifacts.read(outcome.artifacts[0], tenant="local") == b"Bug"


async def test_without_a_running_call_nothing_is_taken_out_of_a_result() -> None:
    async with node() as made:
        result = await made.call("export", {})

    assert base64.b64decode(result["file"]["content"]) == PDF


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_transformer_has_the_last_word_about_a_result(*, is_async: bool) -> None:
    async def later(name: str, result: Any, ctx: Any) -> Any:
        return [name, result["result"]]

    def now(name: str, result: Any, ctx: Any) -> Any:
        return [name, result["result"]]

    async with (
        node(output_transformer=later if is_async else now) as made,
        Toolbox(tools=made.get_tools(), settings=OPEN) as box,
    ):
        outcome = await box.call("github.close_issue", {"number": 3})

    assert isinstance(outcome, Completed)
    assert outcome.content == ["close_issue", "closed 3"]


@pytest.mark.parametrize(
    ("text", "media_type"),
    [
        pytest.param(base64.b64encode(PDF).decode(), "application/pdf", id="a file"),
        pytest.param("JVBERi" + "not base64 " * 100, None, id="not base64"),
        pytest.param("JVBERi".ljust(1200, "A"), "application/pdf", id="padding"),
        pytest.param("/9j/" + "A" * 1196, "image/jpeg", id="begins as a picture does"),
        pytest.param("QUJD" * 300, None, id="begins as no picture does"),
        pytest.param(base64.b64encode(PDF[:60]).decode(), None, id="too short"),
        pytest.param("words " * 300, None, id="words"),
    ],
)
async def test_only_a_text_that_is_a_file_is_taken_for_one(text: str, media_type: str | None) -> None:
    server: FastMCP[Any] = FastMCP("files")

    @server.tool
    def echo() -> dict[str, Any]:
        return {"items": [text]}

    signatures = {**DEFAULT_BINARY_SIGNATURES, "QUJD": ("png", "image/png")}
    extraction = ArtifactExtractionConfig(binary_detection=BinaryDetectionConfig(signatures=signatures))
    async with (
        node(server=server, artifact_extraction=extraction) as made,
        Toolbox(tools=made.get_tools(), settings=OPEN) as box,
    ):
        outcome = await box.call("github.echo")

    assert isinstance(outcome, Completed)
    [item] = outcome.content["items"]
    assert (item["mime_type"] if isinstance(item, dict) else None) == media_type


async def test_a_field_within_lists_is_found_and_its_type_detected() -> None:
    server: FastMCP[Any] = FastMCP("files")

    @server.tool
    def files() -> dict[str, Any]:
        return {"files": [{"data": base64.b64encode(PDF).decode()}, {"data": 7}, {"other": "x"}]}

    field = ArtifactFieldConfig(field_path="files.data", content_type="binary")
    extraction = ArtifactExtractionConfig(tool_fields={"files": [field]})
    async with (
        node(server=server, artifact_extraction=extraction) as made,
        Toolbox(tools=made.get_tools(), settings=OPEN) as box,
    ):
        outcome = await box.call("github.files")

    assert isinstance(outcome, Completed)
    first, second, third = outcome.content["files"]
    assert (first["data"]["mime_type"], second, third) == ("application/pdf", {"data": 7}, {"other": "x"})
