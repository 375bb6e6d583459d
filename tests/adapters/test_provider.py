"""The tools of an MCP server as a table."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from tests import warm
from tests.adapters.samples import MCP
from tests.adapters.servers import described, small_server
from tests.cli.program import Done
from tests.sources.mcp.programs import SERVERS, mirror
from toolpost import MCPClient
from toolpost.adapters import MCPTool, NamedCredential, tool_values, tools_table
from toolpost.adapters.provider import simple_tool, unsupported_reason
from toolpost.cli import main
from toolpost.errors import ConfigError, MCPClientError, MCPConnectionError, MCPToolExecutionError

pytestmark = pytest.mark.programs
DEAD = "http://127.0.0.1:9/mcp"
CRM = "https://crm.example.com"
TEXT, OBJECT = {"type": "string"}, {"type": "object"}


@pytest.fixture(scope="module")
def abacus() -> Iterator[str]:
    with warm.served(SERVERS / "abacus.py", "web") as url:
        yield url


def tools_of(table: Any, column: str = "Tool") -> list[Any]:
    return tool_values(table[column])


@pytest.mark.req("KNODE-03", "FUT-05")
@pytest.mark.parametrize("path", ["mcp", "sse"])
def test_every_tool_of_a_server_is_one_row_and_nothing_else_is(abacus: str, path: str) -> None:
    table = tools_table(f"{abacus}/{path}", column="T")

    tools = tools_of(table, "T")
    assert table.column_names == ["T"]
    assert [tool.name for tool in tools] == ["add", "divide", "speak"]
    assert tools[0] == MCPTool(
        *("add", "Add two numbers.", tools[0].parameter_schema, f"{abacus}/{path}", "add"), output_type="object"
    )
    assert tools[0].parameter_schema["required"] == ["a", "b"]


async def test_a_table_is_made_where_an_event_loop_runs_already() -> None:
    table = tools_table(small_server(described("look")))

    assert [tool.tool_name for tool in tools_of(table)] == ["look"]
    assert asyncio.get_running_loop().is_running()


def test_a_server_without_tools_gives_an_empty_table_and_a_warning() -> None:
    with pytest.warns(UserWarning, match="No tools found on MCP server"):
        table = tools_table(small_server())

    assert table.num_rows == 0
    assert table.column_names == ["Tool"]


def test_a_tool_that_cannot_be_used_is_left_out_with_a_warning() -> None:
    broken = {"name": "broken", "inputSchema": []}

    with pytest.warns(UserWarning, match="tool 'broken' of source 'server' is skipped"):
        table = tools_table(small_server(broken, described("fine")))

    assert [tool.name for tool in tools_of(table)] == ["fine"]


@pytest.mark.parametrize("url", ["", "  "])
def test_an_empty_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="Server URL must not be empty"):
        tools_table(url)


@pytest.mark.req("KMCP-04")
def test_a_dead_server_is_reported_as_a_connection_error() -> None:
    with pytest.raises(MCPConnectionError, match="cannot connect"):
        tools_table(DEAD)


def test_a_server_that_cannot_be_connected_for_another_reason_is_no_failed_call() -> None:
    with pytest.raises(MCPConnectionError, match="use auth_type basic"):
        tools_table("http://ann:canary-word@127.0.0.1:9/mcp")


def test_a_credential_is_sent_and_its_name_alone_is_stored() -> None:
    with mirror("s3cret-token") as url:
        crm = NamedCredential("crm", password="s3cret-token", origin=url)
        table = tools_table(url, credential=crm)

    tools = tools_of(table)
    assert {tool.credential_name for tool in tools} == {"crm"}
    assert "s3cret-token" not in str(table.to_pylist()) + repr(crm)


@pytest.mark.parametrize(
    ("credential", "sent"),
    [
        (NamedCredential("c", "ann", "pw", "factor", origin=CRM), {"token": "factor"}),
        (NamedCredential("c", password="token", origin=CRM), {"token": "token"}),
        (NamedCredential("c", "ann", "pw", origin=CRM), {"username": "ann", "password": "pw"}),
    ],
)
def test_how_a_credential_is_sent_follows_from_what_it_has(credential: NamedCredential, sent: dict[str, str]) -> None:
    assert credential.source_options(f"{CRM}/mcp")["auth_config"] == {**sent, "origin": CRM}


def test_an_empty_credential_is_refused() -> None:
    with pytest.raises(ConfigError, match="'c' is empty; give it a password"):
        NamedCredential("c", origin=CRM).source_options(CRM)


def with_schema(required: list[str], **properties: Any) -> MCPTool:
    schema = {"type": "object", "properties": properties, "required": required}
    return MCPTool("t", "", schema, "u", "t", credential_name="crm")


@pytest.mark.req("KNODE-04")
def test_the_simple_profile_keeps_texts_and_numbers_and_the_servers_schema() -> None:
    nullable = {"type": ["integer", "null"]}
    tool = with_schema(["q"], q=TEXT, n=nullable, x={"type": "number"}, deep=OBJECT, on={"type": "boolean"}, any={})

    simple, with_booleans = simple_tool(tool), simple_tool(tool, booleans=True)

    assert list(simple.parameter_schema["properties"]) == ["q", "n", "x"]
    assert list(with_booleans.parameter_schema["properties"]) == ["q", "n", "x", "on"]
    assert (simple.input_schema, simple.credential_name) == (tool.parameter_schema, "crm")
    assert unsupported_reason(simple.parameter_schema) is None
    assert simple_tool(MCP) is MCP


@pytest.mark.req("KNODE-04")
def test_a_tool_that_needs_more_than_the_simple_profile_is_marked() -> None:
    simple = simple_tool(with_schema(["q", "filter", "ghost"], q=TEXT, filter=OBJECT))

    assert unsupported_reason(simple.parameter_schema) == "needs 'filter', which is of the type object"
    assert simple.parameter_schema["required"] == ["q"]


def test_a_profile_is_applied_to_every_row() -> None:
    url = small_server(described("fine", q=TEXT), described("deep", required=("f",), f=OBJECT))

    fine, deep = tools_of(tools_table(url, schema_profile="simple"))

    assert unsupported_reason(fine.parameter_schema) is None
    assert unsupported_reason(deep.parameter_schema) is not None


# ---------------------------------------------------------------- without an event loop


@pytest.mark.req("KMCP-01", "KMCP-03")
def test_the_client_serves_code_without_an_event_loop(abacus: str) -> None:
    with MCPClient(f"{abacus}/sse") as client:
        names = [spec.name for spec in client.list_tools()]
        total = client.call_tool("add", {"a": 1, "b": 2})
        with pytest.raises(MCPToolExecutionError, match="division"):
            client.call_tool("divide", {"a": 1, "b": 0})

    assert "server.add" in names
    assert total == {"result": 3}


@pytest.mark.req("KMCP-04")
def test_the_client_without_an_event_loop_raises_the_three_errors() -> None:
    with pytest.raises(MCPConnectionError) as unreachable, MCPClient(DEAD):
        pass
    assert isinstance(unreachable.value, MCPClientError)


async def test_the_client_is_given_its_server_at_once() -> None:
    async with MCPClient(small_server(described("look"))) as client:
        assert await client.call_tool("look") == "look got {}"


# ---------------------------------------------------------------- the command


@pytest.fixture
def toolpost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Done:
        code = main(arguments)
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


def test_the_command_writes_the_table(toolpost: Any, abacus: str) -> None:
    done = toolpost("table", f"{abacus}/mcp", "-o", "tools.parquet")
    as_feather = toolpost("table", f"{abacus}/mcp", "-o", "tools.feather", "--json")

    assert (done.code, done.out) == (0, "tools.parquet: 3 rows, tools in the column 'Tool'\n")
    assert as_feather.json["tools"] == ["add", "divide", "speak"]
    assert tools_of(pq.read_table("tools.parquet")) == tools_of(feather.read_table("tools.feather"))


def test_the_command_reports_that_its_file_cannot_be_written(toolpost: Any, abacus: str) -> None:
    done = toolpost("table", f"{abacus}/mcp", "-o", "no/such/folder/tools.parquet")

    assert (done.code, done.out) == (1, "")
    assert "no/such/folder/tools.parquet cannot be written: " in done.err
    assert "No such file or directory; give another file with -o" in done.err


def test_the_command_reports_which_tools_the_simple_profile_marks(toolpost: Any) -> None:
    done = toolpost("table", small_server(described("deep", required=("f",), f=OBJECT)), "-o", "t.parquet", "--simple")

    assert done.code == 0
    assert "deep is marked as unsupported: it needs 'f', which is of the type object" in done.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["", "-o", "t.parquet"], "Server URL must not be empty"),
        ([DEAD, "-o", "t.parquet"], "cannot connect"),
        ([DEAD, "-o", "t.csv"], "--output: .csv is not a supported format; use .parquet, .feather or .arrow"),
        ([DEAD, "-o", "t.parquet", "--credential", "NO_SUCH_TOKEN"], "the variable NO_SUCH_TOKEN is not set"),
    ],
)
def test_the_command_reports_what_is_wrong(toolpost: Any, words: list[str], complaint: str) -> None:
    done = toolpost("table", *words)

    assert done.code == 1
    assert complaint in done.err
    assert not Path("t.parquet").exists()


def test_the_command_sends_the_token_of_a_variable(toolpost: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM_TOKEN", "s3cret-token")
    with mirror("s3cret-token") as url:
        done = toolpost("table", url, "-o", "t.parquet", "--credential", "CRM_TOKEN", "--json")

    assert done.code == 0
    assert {tool.credential_name for tool in tools_of(pq.read_table("t.parquet"))} == {"CRM_TOKEN"}
    assert "s3cret" not in json.dumps(done.json) + Path("t.parquet").read_bytes().decode("latin-1")
