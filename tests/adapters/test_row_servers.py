"""Rows of a table refer to servers: reading them has no effect, and only servers that somebody allowed are used."""

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.adapters.servers import described, small_server
from tests.patient_settings import PatientSettings
from tests.wire.site import Received, Site, reply
from toolpost import Completed, ExternalToolConfig, Failed, Paused, Toolbox, tool
from toolpost.adapters import (
    HTTPTool,
    LangchainToolConverter,
    MCPTool,
    NamedCredential,
    PythonFunctionTool,
    TableTool,
    extract_tools,
    tool_table,
    tools_table,
    workflow_tool,
)
from toolpost.errors import ConfigError, ToolPermissionError
from toolpost.sources import Workflow

CRM = "https://crm.example.com"
FUNCTIONS = '''
from pathlib import Path

from toolpost import tool

Path({marker!r}).touch()


@tool(side_effects="pure")
def double(n: int) -> int:
    """Double a number."""
    return 2 * n
'''
PAGE = reply(body=b"{}", content_type="application/json")


def box_with(policy: Any = "exploratory", **settings: Any) -> Toolbox:
    return Toolbox(settings=PatientSettings.model_validate({"data_dir": None, "policy": policy, **settings}))


def touching(marker: Path) -> str:
    """A command that leaves a file, and is an MCP server with one tool."""
    script = f"touch {shlex.quote(str(marker))}; exec {small_server(described('look'))}"
    return shlex.join(["sh", "-c", script])


def python_row(tmp_path: Path, marker: Path) -> PythonFunctionTool:
    file = tmp_path / "functions.py"
    file.write_text(FUNCTIONS.format(marker=str(marker)))
    return PythonFunctionTool("double", "", {"type": "object"}, str(file), "double")


async def extract(values: list[Any], box: Toolbox, **options: Any) -> list[TableTool]:
    """The tools of a table with rows that cannot be used."""
    with pytest.warns(UserWarning, match="of the table cannot be used"):
        return await extract_tools(tool_table(values), box=box, **options)


def api(server: str) -> dict[str, Any]:
    operation = {"operationId": "pets", "responses": {"200": {"description": "ok"}}}
    about = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}}
    return {**about, "servers": [{"url": server}], "paths": {"/pets": {"get": operation}}}


# ---------------------------------------------------------------- reading


@pytest.mark.programs
async def test_reading_a_table_starts_imports_and_requests_nothing(tmp_path: Path) -> None:
    started, imported = tmp_path / "started", tmp_path / "imported"
    async with Site(PAGE) as site, box_with("audit") as box:
        rows: list[Any] = [
            MCPTool("look", "", {}, touching(started), "look"),
            python_row(tmp_path, imported),
            MCPTool("web", "", {}, f"{site.url}/mcp", "web"),
            HTTPTool("pets", "", {}, f"{site.url}/openapi.json", "pets"),
            workflow_tool(Workflow.of({"name": "flow", "steps": {"s": {"tool": "look"}}})),
        ]
        pq.write_table(tool_table(rows), tmp_path / "tools.parquet")
        with pytest.warns(UserWarning, match="of the table cannot be used") as warned:
            tools = await extract_tools(pq.read_table(tmp_path / "tools.parquet"), box=box)
        results = [await one() for one in tools]

        assert site.requests == []
    assert (started.exists(), imported.exists()) == (False, False)
    assert [one.unusable != "" for one in tools] == [True] * 5
    for row, result in zip(rows, results, strict=True):
        assert f"tool {row.name!r} of the table cannot be used" in result.text
    assert len(warned) == 5
    assert "add it as a source to the configuration, or allow it with servers=[...]" in results[0].text
    assert box.registry.list() == []


@pytest.mark.programs
async def test_allowed_servers_are_connected_by_the_first_call_and_not_before(tmp_path: Path) -> None:
    started, imported = tmp_path / "started", tmp_path / "imported"
    command, functions = touching(started), python_row(tmp_path, imported)
    async with box_with() as box:
        table = tool_table([MCPTool("look", "", {}, command, "look"), functions])
        look, double = await extract_tools(table, box=box, servers=[command, functions.server_uri])
        before = [(state.state, state.ok) for state in box.report]
        known = [box.registry.has(look.tool_name), box.registry.has(double.tool_name)]

        assert (started.exists(), imported.exists()) == (False, False)
        assert (await look()).content == "look got {}"
        assert (started.exists(), imported.exists()) == (True, False)
        assert (await double(n=4)).content == 8
        assert [state.state for state in box.report] == ["up", "up"]
    assert (before, known) == ([("idle", True)] * 2, [True, True])


@pytest.mark.programs
async def test_a_row_that_cannot_be_used_does_not_break_the_others() -> None:
    good, bad = small_server(described("look")), "sh -c 'exit 1'"
    async with box_with() as box:
        refused, look = await extract(
            [MCPTool("bad", "", {}, bad, "bad"), MCPTool("look", "", {}, good, "look")], box, servers=[good]
        )

        assert (await look()).content == "look got {}"
        outcome = await refused.call({})
    assert isinstance(outcome, Failed)
    assert (outcome.error.error_code, look.unusable) == ("row_not_allowed", "")


async def test_a_row_that_cannot_be_used_is_an_error_message_in_langchain() -> None:
    async with box_with() as box:
        converter = LangchainToolConverter(await extract([MCPTool("bad", "", {}, "sh -c id", "bad")], box))
        (bad,) = converter.to_langchain_tools()
        message = await bad.ainvoke({"name": "bad", "args": {}, "id": "c1", "type": "tool_call"})

    assert message.status == "error"
    assert "its command 'sh -c id' comes from the table alone" in message.content


@pytest.mark.programs
async def test_an_address_is_compared_as_an_address_and_the_codes_own_is_used() -> None:
    server = small_server(described("look"))
    respelled = "  ".join(shlex.quote(word) for word in shlex.split(server))
    rows = [
        MCPTool("look", "", {}, respelled, "look"),
        MCPTool("web", "", {}, "HTTPS://CRM.example.com:443/mcp?a=1", "web"),
        MCPTool("else", "", {}, "https://crm.example.com/other", "else"),
    ]
    async with box_with() as box:
        look, web, other = await extract(rows, box, servers=[server, f"{CRM}/mcp?a=1"])

        assert (await look()).success
        assert (web.unusable, other.unusable != "") == ("", True)


@pytest.mark.programs
async def test_a_source_that_the_program_added_is_used_and_one_of_another_table_is_not() -> None:
    added, of_table = small_server(described("look")), small_server(described("peek"))
    rows = [MCPTool("look", "", {}, added, "look"), MCPTool("peek", "", {}, of_table, "peek")]
    async with box_with() as box:
        await box.sources.add(ExternalToolConfig(name="mine", transport="mcp", connection=added))
        await extract_tools(tool_table(rows[1:]), box=box, servers=[of_table])

        look, peek = await extract(rows, box)

        assert look.tool_name == "mine.look"
        assert (await look()).success
        assert "cannot be used" in (await peek()).text


async def test_a_workflow_of_a_row_runs_where_the_catalog_has_the_same_one(tmp_path: Path) -> None:
    @tool(side_effects="pure")
    def encode(text: str) -> str:
        return text.upper()

    body = {"name": "shout", "steps": {"s": {"tool": "encode", "arguments": {"text": "hi"}}}}
    (tmp_path / "shout.yaml").write_text(json.dumps(body))
    other = Workflow.of({**body, "steps": {"s": {"tool": "encode", "arguments": {"text": "ho"}}}})
    source = {"name": "flows", "transport": "workflow", "connection": str(tmp_path / "shout.yaml")}
    async with Toolbox(tools=[encode], settings={"data_dir": None, "sources": [source]}) as box:
        same, changed = await extract([workflow_tool(tmp_path / "shout.yaml"), workflow_tool(other)], box)

        assert same.tool_name.startswith("flows.shout")
        assert (await same()).success
        assert "its workflow comes from the table alone" in (await changed()).text


# ---------------------------------------------------------------- rows that the code trusts


@pytest.mark.programs
async def test_a_command_of_a_trusted_row_is_started_once_a_person_has_approved_it(tmp_path: Path) -> None:
    marker = tmp_path / "started"
    command = touching(marker)
    async with box_with("exploratory") as box:
        table = tool_table([MCPTool("look", "About it.", {}, command, "look")])
        (look,) = await extract_tools(table, box=box, trust_rows=True)
        paused = await look.call({})
        by_name = await box.call(look.tool_name, {})

        assert isinstance(paused, Paused)
        assert isinstance(by_name, Paused)
        assert not marker.exists()
        assert "Start the command" in paused.question.prompt
        assert paused.question.target["summary"] == command
        done = await box.approve(paused.pending_id, by="local:ann")
        again = await look.call({})
    assert marker.exists()
    assert isinstance(done, Completed)
    assert isinstance(again, Completed)
    assert (done.content, again.content, again.meta["trust"]) == ("look got {}", "look got {}", "untrusted")


@pytest.mark.programs
async def test_opening_the_source_of_a_trusted_row_again_does_not_start_its_command(tmp_path: Path) -> None:
    marker = tmp_path / "started"
    async with box_with("exploratory") as box:
        table = tool_table([MCPTool("look", "", {}, touching(marker), "look")])
        (look,) = await extract_tools(table, box=box, trust_rows=True)
        source = look.tool_name.partition(".")[0]
        with pytest.raises(ConfigError, match="is of a row of a table; extract the tools of the table again"):
            await box.sources.reload(source)
        await box.wait_for_sources([source])

        assert [state.state for state in box.report] == ["idle"]
    assert not marker.exists()


@pytest.mark.programs
async def test_a_denied_command_of_a_trusted_row_is_not_started(tmp_path: Path) -> None:
    marker = tmp_path / "started"
    async with box_with("exploratory") as box:
        table = tool_table([MCPTool("look", "", {}, touching(marker), "look")])
        (look,) = await extract_tools(table, box=box, trust_rows=True)
        paused = await look()
        await box.deny(paused.pending_id or "", by="local:ann")
        again = await look()

    assert again.pending_id is not None
    assert not marker.exists()


async def test_a_file_of_a_trusted_row_is_imported_once_a_person_has_approved_it(tmp_path: Path) -> None:
    marker = tmp_path / "imported"
    async with box_with("exploratory") as box:
        (double,) = await extract_tools(tool_table([python_row(tmp_path, marker)]), box=box, trust_rows=True)
        paused = await double(n=4)

        assert (paused.pending_id is not None, marker.exists()) == (True, False)
        done = await box.approve(paused.pending_id or "", by="local:ann")
    assert isinstance(done, Completed)
    assert (done.content, marker.exists()) == (8, True)


@pytest.mark.parametrize("kind", [MCPTool, HTTPTool])
async def test_the_network_policy_applies_to_an_address_of_a_row(kind: Any) -> None:
    async with Site(PAGE) as site:
        row = kind("get", "", {}, f"{site.url}/here", "get")
        async with box_with() as box:
            (refused,) = await extract_tools(tool_table([row]), box=box, trust_rows=True)
            result = await refused()
            none = list(site.requests)
        async with box_with(network={"allow_hosts": ["127.0.0.1"]}) as box:
            (allowed,) = await extract_tools(tool_table([row]), box=box, trust_rows=True)
            await allowed()

        assert none == []
        assert site.requests != []
    assert "127.0.0.1" in result.text
    assert "network.allow_hosts" in result.text


async def test_a_document_of_a_trusted_row_points_at_no_private_address(tmp_path: Path) -> None:
    async with Site(PAGE) as site, box_with() as box:
        path = tmp_path / "pets.json"
        path.write_text(json.dumps(api(site.url)))
        table = tool_table([HTTPTool("pets", "", {}, str(path), "pets")])
        (pets,) = await extract_tools(table, box=box, trust_rows=True)
        result = await pets()

        assert site.requests == []
    assert "127.0.0.1" in result.text


async def test_a_variable_in_an_address_of_a_row_is_not_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "s3cret-canary")
    async with Site(PAGE) as site, box_with(network={"allow_hosts": ["127.0.0.1"]}) as box:
        row = HTTPTool("get", "", {}, f"{site.url}/${{CANARY}}", "get")
        (get,) = await extract_tools(tool_table([row]), box=box, trust_rows=True)
        await get()

        assert site.requests != []
        assert "s3cret-canary" not in str([one.path for one in site.requests])


# ---------------------------------------------------------------- credentials


def crm_credential(origin: str) -> NamedCredential:
    return NamedCredential("crm", password="s3cret-token", origin=origin)


def sent_token(site: Site) -> bool:
    return "s3cret-token" in str([one.headers for one in site.requests])


@pytest.mark.parametrize("kind", [MCPTool, HTTPTool])
@pytest.mark.parametrize("options", [{"trust_rows": True}, {"allowed": True}])
async def test_a_credential_is_not_sent_to_another_origin(kind: Any, options: dict[str, Any]) -> None:
    async with Site(PAGE) as site, box_with(network={"allow_hosts": ["127.0.0.1"]}) as box:
        row = kind("get", "", {}, f"{site.url}/here", "get", credential_name="crm")
        servers = {"servers": [f"{site.url}/here"]} if "allowed" in options else {"trust_rows": True}
        (get,) = await extract([row], box, credentials=[crm_credential(CRM)], **servers)
        result = await get()

        assert site.requests == []
    assert f"the credential 'crm' is for {CRM} and is not sent to {site.url}" in result.text
    assert "s3cret-token" not in result.text


async def test_a_document_does_not_lead_a_credential_to_another_origin() -> None:
    async with Site(PAGE) as other:
        answer = json.dumps(api(other.url)).encode()
        async with Site(reply(body=answer, content_type="application/json")) as site, box_with() as box:
            row = HTTPTool("pets", "", {}, f"{site.url}/openapi.json", "pets", credential_name="crm")
            options: dict[str, Any] = {"servers": [row.server_uri], "credentials": [crm_credential(site.url)]}
            (pets,) = await extract_tools(tool_table([row]), box=box, **options)
            result = await pets()

            assert sent_token(site)
        assert other.requests == []
    assert f"the credential is for {site.url} and is not sent to {other.url}" in result.text


async def test_a_redirect_of_a_server_does_not_lead_a_credential_to_another_origin() -> None:
    async with Site(PAGE) as other, Site(reply(307, location=f"{other.url}/there")) as site, box_with() as box:
        row = MCPTool("get", "", {}, f"{site.url}/here", "get", credential_name="crm")
        options: dict[str, Any] = {"servers": [row.server_uri], "credentials": [crm_credential(site.url)]}
        (get,) = await extract_tools(tool_table([row]), box=box, **options)
        result = await get()

        assert sent_token(site)
        assert other.requests == []
    assert f"the credential is for {site.url} and is not sent to {other.url}" in result.text


async def test_a_redirect_of_an_api_does_not_lead_a_credential_to_another_origin() -> None:
    async def answer(request: Received, writer: asyncio.StreamWriter) -> None:
        document = reply(body=json.dumps(api(site.url)).encode(), content_type="application/json")
        writer.write(document if request.path == "/api.json" else reply(307, location=f"{other.url}/there"))

    async with Site(PAGE) as other, Site(answer) as site, box_with() as box:
        row = HTTPTool("pets", "", {}, f"{site.url}/api.json", "pets", credential_name="crm")
        options: dict[str, Any] = {"servers": [row.server_uri], "credentials": [crm_credential(site.url)]}
        (pets,) = await extract_tools(tool_table([row]), box=box, **options)
        result = await pets()

        assert site.last.all("authorization") == ["Bearer s3cret-token"]
        assert other.requests == []
    assert f"it redirects to '{other.url}/there', which was not followed" in result.text


async def test_a_credential_that_was_not_given_makes_the_row_unusable() -> None:
    async with box_with() as box:
        row = MCPTool("get", "", {}, f"{CRM}/mcp", "get", credential_name="crm")
        (get,) = await extract([row], box, servers=[row.server_uri])

    assert get.unusable == "it needs the credential 'crm', which was not given; there are: none"


def test_a_credential_needs_an_origin_and_is_refused_for_another_by_the_provider() -> None:
    with pytest.raises(ConfigError, match="the credential 'crm' needs an origin, such as https://crm"):
        NamedCredential("crm", password="s3cret-token", origin=" ")
    both = f"the credential 'crm' is for {CRM} and is not sent to http://127.0.0.1:9"
    with pytest.raises(ToolPermissionError, match=re.escape(both)):
        tools_table("http://127.0.0.1:9/mcp", credential=crm_credential(f"{CRM}:443/mcp"))


@pytest.mark.programs
async def test_a_command_gets_the_credential_that_is_for_exactly_this_command(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    server = small_server(described("look"))
    command = shlex.join(["sh", "-c", f'printf %s "$CRM_TOKEN" > {shlex.quote(str(seen))}; exec {server}'])
    allowed = ExternalToolConfig(
        name="crm", transport="mcp", connection=command, auth_config={"token_env": "CRM_TOKEN"}
    )
    row = MCPTool("look", "", {}, command, "look", credential_name="crm")
    async with box_with() as box:
        options: dict[str, Any] = {"servers": [allowed]}
        (look,) = await extract_tools(tool_table([row]), box=box, credentials=[crm_credential(command)], **options)
        result = await look()
        (other,) = await extract([row], box, credentials=[crm_credential(CRM)], **options)
        (bare,) = await extract([row], box, credentials=[crm_credential(command)], servers=[command])
        (trusted,) = await extract([row], box, credentials=[crm_credential(command)], trust_rows=True)

    assert result.success
    assert seen.read_text() == "s3cret-token"
    assert f"the credential 'crm' is for {CRM} and is not sent to sh -c" in other.unusable
    assert "gets a token in a variable; allow the server as an ExternalToolConfig" in bare.unusable
    assert "from a row gets no credential" in trusted.unusable
