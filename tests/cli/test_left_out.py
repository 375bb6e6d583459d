"""A source of whichever kind that was left out: told by the Toolbox, on stderr and by the exit code."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Run
from toolpost import Toolbox

LOOK = {"look": {"side_effects": "read"}}
KEY = {"auth_type": "api_key", "auth_config": {"api_key": "key-1234567890"}}
KINDS: dict[str, dict[str, Any]] = {
    "mcp over HTTP": {"transport": "mcp", "connection": "http://{gone}/mcp"},
    "mcp over stdio": {"transport": "mcp", "connection": "./no-such-program"},
    "http": {"transport": "http", "connection": "http://{gone}/openapi.json"},
    "http in a file": {"transport": "http", "connection": "./no-such.json"},
    "utcp": {"transport": "utcp", "connection": "http://{gone}/utcp"},
    "graphql": {"transport": "graphql", "connection": "http://{gone}/graphql"},
    "n8n": {"transport": "webhook", "connection": "http://{gone}", "options": {"kind": "n8n"}, **KEY},
    "webhook": {
        "transport": "webhook",
        "connection": "http://{gone}",
        "options": {"kind": "plain", "tools": {"look": {"url": "../up"}}},
    },
    "websocket": {
        "transport": "websocket",
        "connection": "ws://{gone}",
        "options": {"tools": LOOK, "mode": "multiplexed", "format": "text"},
    },
    "cli": {"transport": "cli", "connection": "./no-such-program", "options": {"tools": LOOK}},
    "cli by a manual": {"transport": "cli", "connection": "ls", "options": {"manual": "./no-such.json"}},
    "python": {"transport": "python", "connection": "./no_such.py"},
    "a variable that is not set": {"transport": "mcp", "connection": "${{NO_SUCH_VARIABLE_SET}}"},
}


@pytest.mark.parametrize("kind", KINDS)
async def test_the_toolbox_tells_of_a_source_that_was_left_out(kind: str, home: Path) -> None:
    (home / "toolpost.yaml").write_text(configured(kind))
    async with Toolbox.open(home / "toolpost.yaml") as box:
        await box.wait_for_sources()
        [told] = [problem for problem in box.problems if "is skipped" in problem]
        [state] = [state for state in box.report if not state.ok]
        outcome: Any = await box.call("local.add", {"a": 1, "b": 2})
    assert told.startswith("source 'gone' is skipped: ")
    assert (state.name, len(str(state.error)) > 5) == ("gone", True)
    assert outcome.content == 3


@pytest.mark.parametrize("kind", KINDS)
def test_tools_list_tells_of_a_source_that_was_left_out(kind: str, toolpost: Run, home: Path) -> None:
    (home / "toolpost.yaml").write_text(configured(kind))
    listed, told = toolpost("tools", "list", "--json"), toolpost("tools", "list")
    assert (listed.code, told.code) == (4, 4)
    assert "local.add" in [one["name"] for one in listed.json]
    for done in (listed, told):
        assert done.err.count("source 'gone' is skipped: ") == 1
    assert "is skipped" not in told.out


def configured(kind: str) -> str:
    """A configuration with a source that works and one of this kind that does not."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    gone = {"name": "gone", "connect_timeout_s": 20, **KINDS[kind]}
    gone["connection"] = gone["connection"].format(gone=address)
    local = {"name": "local", "transport": "python", "connection": "./tools.py"}
    return json.dumps({"builtins": "none", "sources": [local, gone]})
