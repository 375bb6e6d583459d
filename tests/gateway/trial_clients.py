"""More clients that nobody here wrote: `make test-clients` installs them, which takes minutes, and runs this."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.envs import environment
from tests.cli.program import command
from tests.gateway.clients.trial import PATIENCE_S, assert_lists_and_calls, over_http, over_stdio
from tests.gateway.running import CONFIG, Gateway, furnish, running
from tests.parts import found, node24

pytestmark = pytest.mark.programs
ENVIRONMENTS = {
    "langchain": "mcp-1",
    "mcp_use": "mcp-1",
    "openai_agents": "mcp-2",
    "pydantic_ai_toolset": "mcp-2",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return furnish(tmp_path_factory.mktemp("home"), config=CONFIG.replace("[data_tools]", "all"))


@pytest.fixture(scope="module")
def gateway(home: Path) -> Iterator[Gateway]:
    with running(home) as started:
        yield started


@pytest.mark.parametrize("client", ENVIRONMENTS)
def test_a_client_lists_and_calls_over_http(gateway: Gateway, client: str) -> None:
    assert_lists_and_calls(environment(ENVIRONMENTS[client]), client, over_http(gateway))


@pytest.mark.parametrize("client", ENVIRONMENTS)
def test_a_client_starts_serve_lists_and_calls(home: Path, client: str) -> None:
    assert_lists_and_calls(environment(ENVIRONMENTS[client]), client, over_stdio(home))


def inspect(home: Path, target: list[str], *method: str) -> Any:
    """Run the command line of the MCP Inspector; what it prints is JSON."""
    launcher = found(".parts/inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js")
    told = [str(node24()), str(launcher), "--cli", *target, *method]
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(told, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_inspector_finds_no_schema_that_clients_stumble_over(home: Path, gateway: Gateway) -> None:
    target = [gateway.address, "--header", f"Authorization: Bearer {gateway.token}"]
    listed = inspect(home, target, "--method", "tools/list", "--strict")

    assert {"local__add", "base64_encode"} <= {tool["name"] for tool in listed["tools"]}


@pytest.mark.parametrize("way", ["http", "stdio"])
def test_the_inspector_calls(home: Path, gateway: Gateway, way: str) -> None:
    on_stdio = [*command("serve"), "--cwd", str(home)]  # it takes a --config for its own
    target = on_stdio if way == "stdio" else [gateway.address, "--header", f"Authorization: Bearer {gateway.token}"]
    call = ["--method", "tools/call", "--tool-name", "local__add", "--tool-arg", "a=2", "b=3"]

    assert inspect(home, target, *call)["structuredContent"] == {"result": 5}
