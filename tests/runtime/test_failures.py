"""What a tool's own code raises: the line for its author, the traceback for the operator, neither for others."""

import json
import logging
from pathlib import Path

import pytest

from tests.gateway.serving import served
from tests.gateway.test_encoded_lists import JSON, META, NEW
from toolpost import Failed, Toolbox, tool
from toolpost.contracts.events import EventCode
from toolpost.errors import ToolClientError
from toolpost.gateway.observation import logging_to_stderr
from toolpost.runtime.failures import LONGEST_TRACEBACK, find_line
from toolpost.runtime.model_messages import model_text


@tool(side_effects="pure")
async def leak(password: str) -> str:
    """Raise with the arguments in the message."""
    raise ValueError(f"{password} is wrong, as is token-of-the-box")  # the literal is also in the source line


async def test_the_traceback_is_logged_and_stored_without_secrets(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    async with Toolbox(tools=[leak], settings={"data_dir": str(tmp_path / "data")}) as box:
        box.redactor.learn(["token-of-the-box"])
        outcome = await box.call("leak", {"password": "hunter2hunter2"})
        [failed] = [one for one in await box.events(run_id=outcome.run_id) if one.code is EventCode.TOOL_CALL_FAILED]

    assert isinstance(outcome, Failed)
    [record] = [one for one in caplog.records if one.name == "toolpost.tools"]
    logged = logging.Formatter().format(record)
    for text in (logged, failed.traceback):
        assert "test_failures.py" in text
        assert "in leak" in text
        assert "hunter2" not in text
        assert "token-of-the-box" not in text
    assert record.levelno == logging.ERROR
    assert "router.py" not in failed.traceback


async def test_no_one_but_the_operator_is_shown_the_traceback(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [leak]) as gate:
        arguments = {"password": "hunter2hunter2"}
        rest = await gate.http.post("/api/v1/calls", json={"tool": "leak", "arguments": arguments})
        params = {"name": "leak", "arguments": arguments, "_meta": META}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {**JSON, "MCP-Protocol-Version": NEW, "Mcp-Method": "tools/call", "Mcp-Name": "leak"}
        mcp = await gate.http.post("/mcp", json=message, headers=headers)
        run = await gate.http.get(f"/api/v1/runs/{rest.json()['run_id']}")
        outcome = await gate.box.call("leak", arguments)
        stored = await gate.box.events(user="acme:olga")

    events = json.dumps([event.to_dict() for event in stored])
    assert sum(bool(event.traceback) for event in stored) == 2
    for text in (rest.text, mcp.text, run.text, model_text(outcome), events):
        assert "ValueError" in text
        assert "Traceback" not in text
        assert "test_failures.py" not in text


async def test_a_long_traceback_is_cut_at_its_beginning() -> None:
    @tool(side_effects="pure")
    async def long() -> str:
        """Raise a long message."""
        raise ValueError("x" * 3 * LONGEST_TRACEBACK + " end")

    async with Toolbox(tools=[long], settings={"data_dir": None}) as box:
        outcome = await box.call("long")

    assert isinstance(outcome, Failed)
    assert len(outcome.error.traceback) <= LONGEST_TRACEBACK


async def test_an_error_that_a_tool_reports_has_no_line() -> None:
    @tool(side_effects="pure")
    async def refuse() -> str:
        """Refuse."""
        raise ToolClientError("not today")

    async with Toolbox(tools=[refuse], settings={"data_dir": None}) as box:
        outcome = await box.call("refuse")

    assert isinstance(outcome, Failed)
    assert (outcome.error.traceback, find_line(outcome.error)) == ("", None)


async def test_the_log_of_the_gateway_has_the_traceback_below_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to_stderr("text"):
        async with Toolbox(tools=[leak], settings={"data_dir": None}) as box:
            await box.call("leak", {"password": "hunter2hunter2"})

    head, *below = capsys.readouterr().err.splitlines()
    assert " ERROR leak raised " in head
    assert below
    assert all(line.startswith("  | ") for line in below)
