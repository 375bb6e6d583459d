"""The nodes for KNIME, in a stand-in for KNIME's own packages."""

import asyncio
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import toolpost.adapters
from tests import warm
from tests.adapters import samples
from tests.adapters.servers import described, small_server
from tests.agents.models.provider import Provider
from tests.sources.mcp.programs import SERVERS, mirror
from toolpost.adapters import MCPTool, ToolType
from toolpost.testing import tool_calls

pytestmark = pytest.mark.programs
STAND_IN = Path(__file__).with_name("knime_stand_in")
FOLDER = Path(toolpost.adapters.__file__).parent / "knime"
OURS = "toolpost.adapters.knime."
FLOW = """
name: shout
description: Shout.
inputs: {properties: {text: {type: string}}, required: [text]}
steps: {look: {tool: look}}
"""


@pytest.fixture(scope="module")
def knime() -> Iterator[Any]:
    """The nodes as KNIME would load them, with the value factories of the extension."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(STAND_IN)
        testing = import_module("knime.extension.testing")
        with pytest.warns(DeprecationWarning, match="WorkflowToolValueFactory"):
            factories = testing.register_extension(FOLDER / "plugin.xml")
        nodes = import_module(f"{OURS}nodes")
        yield SimpleNamespace(
            nodes=nodes,
            factories=factories,
            knext=import_module("knime.extension"),
            types=import_module("knime.api.types"),
            testing=testing,
            context=testing.TestingExecutionContext,
        )
        for name in [name for name in sys.modules if name == "knime" or name.startswith(("knime.", OURS))]:
            del sys.modules[name]


@pytest.fixture(scope="module")
def abacus() -> Iterator[str]:
    with warm.served(SERVERS / "abacus.py", "web") as url:
        yield url


def provider(knime: Any, url: str, **settings: Any) -> Any:
    node = knime.nodes.McpToolProvider()
    for name, value in {"server_url": url, **settings}.items():
        setattr(node, name, value)
    return node


@pytest.mark.req("KTYPE-14", "MISC-11")
def test_the_one_factory_is_the_default_and_the_old_one_stays_beside_it(knime: Any) -> None:
    registered = [(type(factory).__name__, name, default) for factory, name, default in knime.types.REGISTERED]

    assert registered == [
        ("KnimeToolValueFactory", "knime.types.tool.Tool", True),
        ("KnimeWorkflowToolValueFactory", "knime.types.tool.WorkflowTool", False),
    ]
    assert [knime.factories[0].decode(knime.factories[1].encode(value)) for value in samples.EVERY] == samples.EVERY


def test_the_extension_names_what_is_there(knime: Any) -> None:
    about = yaml.safe_load((FOLDER / "knime.yml").read_text())
    nodes = [knime.nodes.McpToolProvider, knime.nodes.WorkflowToTool, knime.nodes.AgentPrompter]

    assert (FOLDER / f"{about['extension_module']}.py").is_file()
    assert (FOLDER / about["license_file"]).is_file()
    assert [
        FOLDER / node.about["icon_path"] for node in nodes if not (FOLDER / node.about["icon_path"]).is_file()
    ] == []
    assert (FOLDER / "icons" / "toolpost.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.req("KNODE-01", "MISC-13")
def test_the_provider_is_a_node_with_a_name_an_icon_a_category_and_keywords(knime: Any) -> None:
    node = knime.nodes.McpToolProvider

    assert node.about["name"] == "MCP Tool Provider"
    assert node.about["category"] == "/community/toolpost"
    assert "MCP" in node.about["keywords"]
    assert [name for name, _ in node.outputs] == ["Tools"]
    assert node.server_url.label == "Server URL"


@pytest.mark.req("KNODE-02", "KNODE-05")
def test_a_node_is_configured_without_asking_the_server(knime: Any) -> None:
    schema = provider(knime, "http://127.0.0.1:9/mcp").configure(None)

    assert [(column.name, column.ktype) for column in schema] == [("Tool", knime.knext.logical(MCPTool))]
    for empty, label in (("server_url", "Server URL"), ("column_name", "Tool column name")):
        with pytest.raises(knime.knext.InvalidParametersError, match=f"{label} must not be empty"):
            provider(knime, "http://127.0.0.1:9", **{empty: " "}).configure(None)


@pytest.mark.req("KNODE-03")
def test_the_provider_gives_one_row_per_tool(knime: Any, abacus: str) -> None:
    table = provider(knime, f"{abacus}/sse").execute(knime.context())

    values = table.to_pandas()["Tool"].tolist()
    assert [(value.tool_type, value.name) for value in values] == [
        (ToolType.MCP, "add"),
        (ToolType.MCP, "divide"),
        (ToolType.MCP, "speak"),
    ]
    assert table.stored["Tool"][0]["8"] == f"{abacus}/sse"


def test_a_server_without_tools_is_a_warning_and_a_dead_one_an_error(knime: Any) -> None:
    context = knime.context()

    provider(knime, small_server()).execute(context)

    assert context.warnings == ["No tools found on MCP server"]
    with pytest.raises(knime.knext.InvalidParametersError, match="cannot connect"):
        provider(knime, "http://127.0.0.1:9/mcp").execute(context)


def test_credentials_are_sent_and_their_name_alone_is_stored(knime: Any) -> None:
    context = knime.context(credentials={"crm": knime.testing.Credentials(password="s3cret-token")})
    with mirror("s3cret-token") as url:
        table = provider(knime, url, credentials="crm").execute(context)

    assert {cell["13"] for cell in table.stored["Tool"]} == {"crm"}
    assert "s3cret-token" not in str(table.stored)
    assert knime.nodes.McpToolProvider.credentials.choices(context) == ["", "crm"]


def test_a_workflow_is_packed_into_a_tool(knime: Any, tmp_path: Path) -> None:
    (tmp_path / "shout.yaml").write_text(FLOW)
    node = knime.nodes.WorkflowToTool()
    node.workflow_file = str(tmp_path / "shout.yaml")

    (value,) = node.execute(knime.context()).to_pandas()["Tool"].tolist()

    assert (value.tool_type, value.name) == (ToolType.WORKFLOW, "shout")
    assert b"toolpost_workflow" in value.package
    assert [column.name for column in node.configure(None)] == ["Tool"]
    node.workflow_file = str(tmp_path / "none.yaml")
    with pytest.raises(knime.knext.InvalidParametersError, match="No such file"):
        node.execute(knime.context())


@pytest.mark.req("TEST-04", "KTYPE-17", "KLC-07")
async def test_tools_of_both_kinds_are_concatenated_and_run_by_the_agent(knime: Any, tmp_path: Path) -> None:
    pandas: Any = import_module("pandas")
    (tmp_path / "shout.yaml").write_text(FLOW)
    made = knime.nodes.WorkflowToTool()
    made.workflow_file = str(tmp_path / "shout.yaml")
    server = small_server(described("look"), described("fail"))
    listing = provider(knime, server)

    def tables() -> Any:
        frames = [node.execute(knime.context()).to_pandas() for node in (listing, made)]
        return knime.knext.Table.from_pandas(pandas.concat(frames, ignore_index=True))

    table = await asyncio.to_thread(tables)
    lines = [tool_calls(("look", {}), ("fail", {}), ("shout", {"text": "hi"}), ("nothing", {})), "done"]
    async with Provider(lines) as model:
        node = knime.nodes.AgentPrompter()
        node.model, node.prompt, node.policy = f"{model.url}#scripted", "Look around.", "exploratory"
        node.system_message, node.servers, node.trust_rows = "Be brief.", server, True
        schema = node.configure(None, table.schema)
        conversation = await asyncio.to_thread(node.execute, knime.context(), table)
        offered = [tool["function"]["name"] for tool in model.bodies[0]["tools"]]

    rows = conversation.to_pandas().to_dict("records")
    assert [column.name for column in schema] == ["Role", "Content", "Tools"]
    assert offered == ["look", "fail", "shout"]
    assert [row["Role"] for row in rows] == ["system", "user", "assistant", "tool", "tool", "tool", "tool", "assistant"]
    assert rows[2]["Tools"] == "look, fail, shout, nothing"
    assert "look got {}" in rows[3]["Content"]
    assert "fail got {}" in rows[4]["Content"]
    assert "workflow 'shout' (version 1): step 'look'" in rows[5]["Content"]  # the catalog has it by its source's name
    assert "not found" in rows[6]["Content"]
    assert rows[-1]["Content"] == "done"


def test_the_agent_says_which_setting_is_wrong(knime: Any) -> None:
    node, texts = knime.nodes.AgentPrompter(), knime.knext.Schema.from_columns([])
    wrong = knime.knext.InvalidParametersError
    with pytest.raises(wrong, match="Model must not be empty"):
        node.configure(None, texts)
    node.model, node.prompt = "gpt", "go"
    with pytest.raises(wrong, match="The table has no column of tools"):
        node.configure(None, texts)
    node.tool_column = "T"
    with pytest.raises(wrong, match="The table has no tool column 'T'; it has Tool"):
        node.configure(None, provider(knime, "http://127.0.0.1:9/mcp").configure(None))


async def test_the_agent_uses_no_server_that_its_settings_do_not_name(knime: Any) -> None:
    table = await asyncio.to_thread(provider(knime, small_server(described("look"))).execute, knime.context())
    context = knime.context()
    async with Provider([tool_calls(("look", {})), "done"]) as model:
        node = knime.nodes.AgentPrompter()
        node.model, node.prompt, node.policy = f"{model.url}#scripted", "Look around.", "exploratory"
        await asyncio.to_thread(node.execute, context, table)
        offered = model.bodies[0].get("tools", [])

    assert offered == []
    assert "tool 'look' of the table cannot be used: its command" in context.warnings[0]


async def test_credentials_of_the_agent_are_sent_to_the_origin_of_its_settings_alone(knime: Any) -> None:
    context = knime.context(credentials={"crm": knime.testing.Credentials(password="s3cret-token")})
    with mirror("s3cret-token") as url:
        table = await asyncio.to_thread(provider(knime, url, credentials="crm").execute, context)
        async with Provider([tool_calls(("headers", {})), "done", "done"]) as model:
            node = knime.nodes.AgentPrompter()
            node.model, node.prompt, node.policy = f"{model.url}#scripted", "Look.", "exploratory"
            node.servers, node.credentials = url, f"crm {url}"
            conversation = await asyncio.to_thread(node.execute, context, table)
            node.credentials = "crm https://crm.example.com"
            await asyncio.to_thread(node.execute, context, table)
            node.credentials = "https://crm.example.com"
            with pytest.raises(knime.knext.InvalidParametersError, match="write a name and an origin on each line"):
                node.configure(None, table.schema)

    (told,) = context.warnings
    assert "authorization" in conversation.to_pandas()["Content"].tolist()[2]
    assert "the credential 'crm' is for https://crm.example.com and is not sent to http://127.0.0.1" in told
