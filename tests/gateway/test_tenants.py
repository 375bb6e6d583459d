"""The files and the memory of tenants and users that share a gateway."""

import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.cli.program import child_environment, warm_command
from tests.gateway.running import Gateway, furnish, running
from tests.gateway.serving import served

Call = Callable[..., Awaitable[Any]]


def caller(address: str, key: str) -> Call:
    """Call tools over REST with a key; gives the outcome as JSON."""

    async def call(tool: str, **arguments: Any) -> Any:
        bearer = {"Authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(base_url=address, headers=bearer, trust_env=False, timeout=60) as http:
            reply = await http.post("/api/v1/calls", json={"tool": tool, "arguments": arguments})
        assert reply.status_code == 200, reply.text
        return reply.json()

    return call


def key_of(home: Path, user: str) -> str:
    words = warm_command("keys", "create", user.replace(":", "-"), "--for", user, "--json")
    done = subprocess.run(words, cwd=home, env=child_environment(), capture_output=True, text=True, check=True)
    key: str = json.loads(done.stdout)["key"]
    return key


def caller_of(home: Path, gateway: Gateway, user: str) -> Call:
    return caller(gateway.address.removesuffix("/mcp"), key_of(home, user))


@pytest.mark.programs
async def test_a_tenant_reaches_no_file_of_another_tenant(tmp_path: Path) -> None:
    home = furnish(tmp_path, config="builtins: all\npolicy: exploratory\n")
    (home / "data").mkdir()
    (home / "data" / "own.txt").write_text("of the operator")
    with running(home) as gateway:
        ann, eve = caller_of(home, gateway, "acme:ann"), caller_of(home, gateway, "evil:eve")
        theirs = str(home / "tenants" / "acme" / "plan.txt")
        written = await ann("write_file", path=theirs, content="secret plan")
        own = await eve("write_file", path=str(home / "tenants" / "evil" / "e.txt"), content="of eve")
        tries = [
            await eve("read_file", path=theirs),
            await eve("read_file", path=str(home / "tenants" / "evil" / ".." / "acme" / "plan.txt")),
            await eve("read_file", path=str(home / "data" / "own.txt")),
            await eve("list_files", path=str(home / "tenants" / "acme")),
            await eve("list_files", path=str(home / "tenants")),
            await eve("edit_file", path=theirs, old_string="secret", new_string="changed"),
            await eve("write_file", path=theirs, content="gone"),
            await eve("delete_file", path=theirs),
            await eve("move_file", **{"from": theirs, "to": str(home / "tenants" / "evil" / "plan.txt")}),
            await eve("glob_files", pattern="**/*", path=str(home)),
            await eve("grep_files", pattern="secret", path=str(home / "tenants" / "acme")),
        ]
        listed = await eve("list_files")

    assert (written["status"], own["status"]) == ("completed", "completed")
    assert [one["error"]["error_code"] for one in tries] == ["path_refused"] * len(tries)
    assert ("e.txt" in str(listed["content"]), "acme" in str(listed["content"])) == (True, False)
    assert (home / "tenants" / "acme" / "plan.txt").read_text() == "secret plan"


@pytest.mark.programs
async def test_an_agent_does_not_change_the_memory_of_another_user(tmp_path: Path) -> None:
    home = furnish(tmp_path, config="builtins: all\n")
    with running(home) as gateway:
        ann, bob = caller_of(home, gateway, "acme:ann"), caller_of(home, gateway, "acme:bob")
        await ann("memory_write", path="facts/ann.md", content="pays by invoice")
        listed = await bob("memory_list")
        await bob("memory_write", path="facts/ann.md", content="pays bob")
        tries = [
            await bob("memory_read", path="../ann/facts/ann.md"),
            await bob("memory_append", path="facts/../../ann/facts/ann.md", entry="and bob"),
        ]
        read = await ann("memory_read", path="facts/ann.md")

    assert listed["content"] == []
    assert [one["error"]["error_code"] for one in tries] == ["path_refused"] * 2
    assert read["content"] == "pays by invoice"


async def test_a_change_of_memory_that_a_tenant_shares_needs_approval(tmp_path: Path) -> None:
    shared = tmp_path / "data" / "tenants" / "acme" / "memory" / "facts"
    shared.mkdir(parents=True)
    (shared / "team.md").write_text("> Summary: the team\n")
    async with served(tmp_path / "data", builtins=["memory_tools"]) as gate:
        bob, eve = [
            caller(gate.url, (await gate.key(user, "call"))["Authorization"].removeprefix("Bearer "))
            for user in ("acme:bob", "evil:eve")
        ]
        changes = [
            await bob("memory_write", path="shared/facts/team.md", content="mine"),
            await bob("memory_append", path="facts/../shared/facts/team.md", entry="mine"),
            await bob("memory_patch", path="./shared/facts/team.md", old_str="team", new_str="bob"),
            await bob("memory_write", path="shared/new.md", content="mine"),
        ]
        read = [await bob("memory_read", path="shared/facts/team.md"), await bob("memory_list")]
        own = await bob("memory_write", path="facts/mine.md", content="mine")
        missing = await eve("memory_read", path="shared/facts/team.md")
        body = {"decision": "approve"}
        answer = f"/api/v1/pending/{changes[3]['pending']['id']}/answer"
        approved = await gate.http.post(answer, json=body)
        seen = await caller(gate.url, (await gate.key("acme:ann", "call"))["Authorization"].removeprefix("Bearer "))(
            "memory_read", path="shared/new.md"
        )

    assert [one["status"] for one in changes] == ["paused"] * 4
    assert "is shared by the whole tenant" in changes[0]["pending"]["prompt"]
    assert (shared / "team.md").read_text() == "> Summary: the team\n"
    assert read[0]["content"] == "> Summary: the team\n"
    assert [entry["path"] for entry in read[1]["content"]] == ["shared/facts/team.md"]
    assert own["status"] == "completed"
    assert missing["error"]["error_code"] == "file_not_found"
    assert (approved.json()["status"], seen["content"]) == ("completed", "mine")


@pytest.mark.programs
@pytest.mark.parametrize(
    ("builtins", "offered"),
    [("", ["artifact_read", "artifact_search"]), ("builtins: [current_time]\n", ["current_time"])],
)
async def test_a_gateway_offers_the_built_in_tools_that_its_file_names(
    tmp_path: Path, builtins: str, offered: list[str]
) -> None:
    home = furnish(tmp_path, config=f"{builtins}sources: []\n")
    program, *arguments = warm_command("serve")
    server = StdioServerParameters(command=program, args=arguments, cwd=home, env=child_environment())
    with running(home) as gateway:
        async with httpx2.AsyncClient(headers=gateway.headers, trust_env=False, timeout=60) as http:
            tools = (await http.get(gateway.address.replace("/mcp", "/api/v1/tools"))).json()["items"]
    async with Client(stdio_client(server)) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]

    assert [tool["name"] for tool in tools] == offered
    assert sorted(listed) == sorted([*offered, "pending_status", "pending_wait"])
    assert "read_file" in command_line_tools(home) if not builtins else command_line_tools(home) == offered


def command_line_tools(home: Path) -> list[str]:
    words = warm_command("tools", "list", "--json")
    done = subprocess.run(words, cwd=home, env=child_environment(), capture_output=True, text=True, check=True)
    return [tool["name"] for tool in json.loads(done.stdout)]
