"""`toolpost up` and `toolpost serve` follow their configuration: clients see each change, and views come and go."""

import asyncio
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import listen

from tests.cli.program import MAIN, child_environment, child_variables
from tests.gateway.running import furnish, running, serving
from tests.warm import Program

pytestmark = pytest.mark.programs
ONE = "builtins: none\nsources:\n  - {name: local, transport: python, connection: ./tools.py}\n"
MORE = f"{ONE}  - {{name: more, transport: python, connection: ./more.py}}\n"
CODE = "from toolpost import tool\n\n@tool(side_effects='pure', tags=['late'])\ndef late() -> str:\n    return 'here'\n"
VIEWS = "views:\n  late: {tags: [late]}\n  find: {show: search}\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "more.py").write_text(CODE)
    return furnish(tmp_path, config=ONE)


def rewrite(home: Path, text: str) -> None:
    """Write the configuration as editors do, by a rename."""
    (home / "new.yaml").write_text(text)
    (home / "new.yaml").rename(home / "toolpost.yaml")


async def names(client: Client) -> set[str]:
    return {one.name for one in (await client.list_tools(cache_mode="refresh")).tools}


async def until_listed(client: Client, fits: Callable[[set[str]], bool]) -> None:
    async with asyncio.timeout(30):
        while not fits(await names(client)):
            await asyncio.sleep(0.05)


async def test_clients_of_up_see_sources_and_views_come_and_go(home: Path) -> None:
    with running(home) as gateway:
        async with httpx2.AsyncClient(headers=gateway.headers, timeout=60) as http:
            missing = await http.post(f"{gateway.address}/late", json={})
            async with Client(streamable_http_client(gateway.address, http_client=http)) as client:
                async with listen(client.session, tools_list_changed=True) as changes:
                    rewrite(home, MORE + VIEWS)
                    async with asyncio.timeout(30):
                        async for _change in changes:
                            break
                await until_listed(client, lambda seen: {"local__add", "more__late"} <= seen)
            late, find = (streamable_http_client(f"{gateway.address}/{name}", http_client=http) for name in VIEW_NAMES)
            async with Client(late) as client:
                only = await names(client)
                done = await client.call_tool("more__late", {})
            async with Client(find) as client:
                found = await client.call_tool("call_tool", {"name": "more.late"})
                rewrite(home, "sources: [")
                rewrite(home, ONE + VIEWS)
                await until_gone(client)

    assert missing.status_code == 404
    assert only - {"pending_status", "pending_wait"} == {"more__late"}
    assert done.structured_content == found.structured_content == {"result": "here"}


VIEW_NAMES = ("late", "find")


async def until_gone(client: Client) -> None:
    """Wait until a search finds nothing of the source that was removed."""
    async with asyncio.timeout(30):
        while "more.late" in str((await client.call_tool("search_tools", {"query": "late"})).structured_content):
            await asyncio.sleep(0.05)


async def test_serve_follows_its_file_and_keeps_to_the_view_it_was_given(home: Path) -> None:
    rewrite(home, ONE + VIEWS)
    program, *arguments = [*serving(home), "--view", "late"]
    server = StdioServerParameters(command=program, args=arguments, cwd=home, env=child_environment())
    async with Client(stdio_client(server), mode="legacy") as client:
        before = await names(client)
        rewrite(home, MORE + VIEWS)
        await until_listed(client, lambda seen: "more__late" in seen)
        after = await names(client)

    assert after - before == {"more__late"}


def test_sighup_applies_the_file_at_once_and_what_happened_is_said(home: Path) -> None:
    errors = home / "stderr"
    with errors.open("w") as stderr, running(home, stderr=stderr) as gateway:
        rewrite(home, "sorces: []\n")
        gateway.process.send_signal(signal.SIGHUP)
        wait_for(errors, "the previous one still applies: unknown key 'sorces'")
        rewrite(home, ONE)
        wait_for(errors, "the configuration was reloaded without changes")
        rewrite(home, MORE + "limits: {inline_bytes: 5}\n")
        gateway.process.send_signal(signal.SIGHUP)
        wait_for(errors, "source added: more")
        wait_for(errors, "needs a restart: limits")

        assert gateway.process.poll() is None


@pytest.mark.parametrize("workers", ["1", "2"])
def test_up_names_the_address_that_callers_use(home: Path, workers: str) -> None:
    rewrite(home, f"{ONE}server: {{public_url: 'https://tools.example'}}\n")
    errors = home / "stderr"
    up, variables = ("up", "--port", "0", "--workers", workers), child_variables()
    with errors.open("w") as stderr, Program(MAIN, *up, variables=variables, folder=home, stderr=stderr) as gateway:
        wait_for(
            errors, "MCP at https://tools.example/mcp, REST at https://tools.example/api/v1; it listens at http://"
        )
        gateway.send_signal(signal.SIGTERM)


def broken(name: str) -> str:
    return f"{ONE}  - {{name: {name}, transport: python, connection: ./gone.py}}\n"


def test_up_says_which_sources_are_down_and_which_rules_forbid_nothing(home: Path) -> None:
    errors = home / "stderr"
    rewrite(home, broken("first") + "policy: [{action: deny, tools: [local.ad]}]\n")
    with errors.open("w") as stderr, running(home, stderr=stderr):
        wait_for(errors, "source 'first' is skipped: ")
        wait_for(errors, "policy rule 1: no tool is called 'local.ad'; did you mean 'local.add'?")
        rewrite(home, broken("second"))
        wait_for(errors, "source 'second' is skipped: ")

    assert errors.read_text().count("'first' is skipped") == 1


def test_serve_says_which_sources_are_down(home: Path) -> None:
    errors = home / "stderr"
    rewrite(home, broken("first"))
    with (
        errors.open("w") as stderr,
        subprocess.Popen(serving(home), stdin=subprocess.PIPE, stderr=stderr, env=child_environment()) as server,
    ):
        assert server.stdin is not None
        wait_for(errors, "source 'first' is skipped: ")
        server.stdin.close()


def wait_for(file: Path, text: str) -> None:
    until = asyncio.run(_appears(file, text))
    assert until, file.read_text()


async def _appears(file: Path, text: str) -> bool:
    try:
        async with asyncio.timeout(30):
            while text not in file.read_text():
                await asyncio.sleep(0.05)
    except TimeoutError:
        return False
    return True
