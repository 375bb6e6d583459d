"""Tools of a table are called through the router of a Toolbox."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import warm
from tests.adapters.servers import OBJECT, described, small_server
from tests.sources.mcp.programs import SERVERS, mirror
from tests.wire.site import Site, reply
from toolpost import Settings, Toolbox, ToolContext, tool
from toolpost.adapters import (
    HTTPTool,
    MCPTool,
    NamedCredential,
    PythonFunctionTool,
    ToolExecutionResult,
    ToolPort,
    ToolValues,
    WorkflowTool,
    extract_tools,
    tool_table,
    tools_table,
    workflow_tool,
)
from toolpost.errors import ConfigError
from toolpost.sources import Workflow

pytestmark = pytest.mark.programs
TEXT = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FUNCTIONS = '''
from toolpost import tool


@tool(side_effects="pure")
def double(n: int) -> int:
    """Double a number."""
    return 2 * n


@tool(side_effects="pure")
def other() -> int:
    return 0
'''


@pytest.fixture(scope="module")
def abacus() -> Iterator[str]:
    with warm.served(SERVERS / "abacus.py", "web") as url:
        yield f"{url}/mcp"


@pytest.fixture
async def box() -> AsyncIterator[Toolbox]:
    async with Toolbox(settings=Settings(data_dir=None, policy="exploratory")) as opened:
        yield opened


async def run_workflow(tool: WorkflowTool, parameters: dict[str, Any], context: ToolContext) -> Any:
    if tool.name == "broken":
        return ToolExecutionResult(text="", error="the third step failed")
    return {"ran": tool.name, **parameters}


PETS = reply(body=b'["Rex"]', content_type="application/json")


@pytest.mark.req("KLC-05", "KLC-06", "KMIG-05")
async def test_a_column_of_all_types_gives_tools_that_run(abacus: str, box: Toolbox, tmp_path: Path) -> None:
    functions = tmp_path / "functions.py"
    functions.write_text(FUNCTIONS)
    workflow = WorkflowTool("clean up!", "", NUMBER, b"steps")
    made = tool_table([workflow, None, PythonFunctionTool("double", "", NUMBER, str(functions), "double")])
    table = pa.concat_tables([tools_table(abacus), made])

    extracted = await extract_tools(table, box=box, servers=[abacus, functions], run_workflow=run_workflow)
    tools = {tool.name: tool for tool in extracted}

    assert list(tools) == ["add", "divide", "speak", "clean up!", "double"]
    assert (await tools["add"](a=1, b=2)).content == {"result": 3}
    assert (await tools["clean up!"](n=1)).content == {"ran": "clean up!", "n": 1}
    assert (await tools["double"](n=4)).content == 8
    assert not box.registry.has("functions.other")


@pytest.mark.req("KLC-03", "KLC-04")
async def test_errors_are_messages_in_the_conversation(abacus: str, box: Toolbox) -> None:
    add, divide, _ = await extract_tools(tools_table(abacus), box=box, servers=[abacus])

    by_nought, wrong = await divide(a=1, b=0), await add(a="one", b=2)
    runner = add.executor
    text = await runner._execute_mcp_tool(add.value, {"a": 1, "b": 2})  # type: ignore[arg-type]  # noqa: SLF001 - the name that hosts call

    assert not by_nought.success
    assert "division by zero" in by_nought.text
    assert 'expected integer, got string "one"' in wrong.text
    assert ">\n3\n<" in text


async def test_a_server_that_is_down_is_reported_at_the_call(box: Toolbox) -> None:
    table = tool_table([MCPTool("look", "", {}, "http://127.0.0.1:9/mcp", "look")])
    tools = await extract_tools(table, box=box, servers=["http://127.0.0.1:9/mcp"])

    result = await tools[0]()

    assert not result.success
    assert "The call failed" in result.text


async def test_a_call_that_needs_a_person_is_a_result_that_says_so() -> None:
    url = small_server(described("wipe", read_only=False))
    async with Toolbox(settings=Settings(data_dir=None)) as box:
        (wipe,) = await extract_tools(tools_table(url), box=box, servers=[url])

        paused = await wipe()
        done = await box.approve(paused.pending_id or "", by="local:ann")

    assert (paused.success, paused.error) == (False, None)
    assert "waits for a person" in paused.text
    assert getattr(done, "content", None) == "wipe got {}"


async def test_tools_of_one_name_are_distinguished(box: Toolbox) -> None:
    one, other = small_server(described("go")), small_server(described("go", q=TEXT))

    table = pa.concat_tables([tools_table(one), tools_table(other)])
    first, second = await extract_tools(table, box=box, servers=[one, other])

    assert [first.model_name, second.model_name] == ["go", "go_1"]
    assert first.name == first.tool_name != second.name
    assert (await second(q="x")).content == 'go got {"q": "x"}'


async def test_names_that_models_do_not_accept_are_mapped(box: Toolbox) -> None:
    server = small_server(described("look"))
    named = MCPTool("look around, 🙂", "", {}, server, "look")

    (look,) = await extract_tools(tool_table([named]), box=box, servers=[server])

    assert (look.name, look.model_name) == ("look around, 🙂", "look_around___")
    assert (await look()).success


async def test_tools_that_are_marked_as_unsupported_are_left_out(box: Toolbox) -> None:
    url = small_server(described("fine"), described("deep", required=("f",), f=OBJECT))
    table = tools_table(url, schema_profile="simple")

    with pytest.warns(UserWarning, match="tool 'deep' is skipped: it needs 'f', which is of the type object"):
        tools = await extract_tools(table, box=box, servers=[url])

    assert [tool.name for tool in tools] == ["fine"]
    runner = tools[0].executor
    deep = MCPTool("deep", "", {"x-unsupported": "needs 'f'"}, url, "deep")
    with pytest.warns(UserWarning, match="is skipped: it needs"):
        assert (await runner.execute(deep, {})).text == "The tool is not supported: it needs 'f'"


async def test_a_credential_is_looked_up_by_its_name_and_sent(box: Toolbox) -> None:
    with mirror("s3cret-token") as url:
        crm = NamedCredential("crm", password="s3cret-token", origin=url)
        table = tools_table(url, credential=crm)
        extracted = await extract_tools(table, box=box, servers=[url], credentials=[crm])
        tools = {tool.name: tool for tool in extracted}
        seen = await tools["headers"]()

    assert seen.success
    assert "s3cret-token" not in seen.text


async def test_a_server_of_the_configuration_keeps_its_own_source() -> None:
    url = small_server(described("look"))
    source = {"name": "mine", "transport": "mcp", "connection": url}
    async with Toolbox(settings={"data_dir": None, "sources": [source]}) as box:
        (look,) = await extract_tools(tools_table(url), box=box)

        assert look.tool_name == "mine.look"
        assert [state.name for state in box.report] == ["mine"]


async def test_an_operation_of_an_api_is_a_value_too(box: Toolbox, tmp_path: Path) -> None:
    async with Site(PETS) as site:
        operation = {"operationId": "listPets", "responses": {"200": {"description": "ok"}}}
        document = {
            "openapi": "3.1.0",
            "info": {"title": "t", "version": "1"},
            "servers": [{"url": site.url}],
            "paths": {"/pets": {"get": operation}, "/other": {"get": {**operation, "operationId": "other"}}},
        }
        path = tmp_path / "pets.json"
        path.write_text(json.dumps(document))
        table = tool_table([HTTPTool("pets", "", {}, str(path), "listPets")])
        (pets,) = await extract_tools(table, box=box, servers=[path])

        result = await pets()

        assert site.last.path == "/pets"
    assert result.content == ["Rex"]


FLOW = """
name: shout
description: Greet loudly.
inputs: {properties: {name: {type: string}}, required: [name]}
ports: {inputs: {people: {columns: {id: int64}}}, outputs: {found: {columns: {id: int64}, rows: ports.people}}}
steps:
  greet: {tool: encode, arguments: {text: "${{ inputs.name }}"}}
outputs: {said: "${{ steps.greet }}"}
message: Done.
"""


@pytest.mark.req("FUT-08")
async def test_a_workflow_of_toolpost_travels_in_a_table_and_runs_in_the_box(tmp_path: Path) -> None:
    @tool(side_effects="pure")
    def encode(text: str) -> str:
        return text.upper()

    value = workflow_tool(Workflow.parse(FLOW))
    pq.write_table(tool_table([value]), tmp_path / "tools.parquet")
    async with Toolbox(tools=[encode], settings=Settings(data_dir=None)) as box:
        (shout,) = await extract_tools(pq.read_table(tmp_path / "tools.parquet"), box=box, trust_rows=True)
        result = await shout(name="ann", people=[{"id": 1}])

    assert (value.input_ports, value.output_ports) == (
        [ToolPort("people", "", "table", {"id": "int64"})],
        [ToolPort("found", "", "table", {"id": "int64"}), ToolPort("message", "", "message")],
    )
    assert (value.message_output_port_index, value.description) == (1, "Greet loudly.")
    assert (shout.tool_name, result.content["said"], result.text) == ("workflow.shout", "ANN", "Done.")


def test_a_file_of_a_workflow_is_a_value_too(tmp_path: Path) -> None:
    (tmp_path / "shout.yaml").write_text(FLOW)

    assert workflow_tool(tmp_path / "shout.yaml") == workflow_tool(Workflow.parse(FLOW))
    with pytest.raises(ConfigError, match=r"none\.yaml: No such file"):
        workflow_tool(tmp_path / "none.yaml")


async def test_a_workflow_that_cannot_be_run_and_one_that_fails_are_messages(box: Toolbox) -> None:
    broken, hosted = WorkflowTool("broken", "", {}), WorkflowTool("clean", "", {}, b"keys of a file store")
    with pytest.warns(UserWarning, match="tool 'clean' of the table cannot be used"):
        (unrunnable,) = await extract_tools(tool_table([hosted]), box=box, trust_rows=True)
    (failing,) = await extract_tools(tool_table([broken]), box=box, run_workflow=run_workflow)

    assert "the workflow 'clean' cannot be run here: the packed workflow cannot be read" in (await unrunnable()).text
    assert "the third step failed" in (await failing()).text


async def test_two_workflows_of_one_name_are_two_tools(box: Toolbox) -> None:
    async def tell(tool: WorkflowTool, parameters: dict[str, Any], context: ToolContext) -> Any:
        return (tool.package or b"").decode()

    table = tool_table([WorkflowTool("w", "", {}, b"one"), WorkflowTool("w", "", {}, b"two")])
    first, second = await extract_tools(table, box=box, run_workflow=tell)

    assert [(await first()).content, (await second()).content] == ["one", "two"]
    assert [first.name, second.name] == ["workflow.w", "workflow.w_2"]


@pytest.mark.req("KTYPE-13")
async def test_a_value_executes_itself_by_an_executor(abacus: str, box: Toolbox) -> None:
    value = MCPTool("add", "", {}, abacus, "add")

    result = await value.execute({"a": 2, "b": 3}, ToolValues(box, servers=[abacus]))

    assert result.content == {"result": 5}
