"""Messages of servers with more values than may be decoded: large results stay JSON, the rest is refused."""

import asyncio
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import bench.mcp
from tests.patient_settings import PatientSettings
from toolpost import Completed, ExternalToolConfig, Failed, Settings, Toolbox
from toolpost.sources.mcp.peer_requests import PeerTurns

pytestmark = pytest.mark.programs
SERVER = Path(str(bench.mcp.__file__)).with_name("hostile_server.py")


def toolbox(count: int, **options: Any) -> Toolbox:
    connection = f"{sys.executable} {SERVER} {count}"
    config = ExternalToolConfig.model_validate(
        {"name": "bad", "transport": "mcp", "connection": connection, "connect_timeout_s": 120, **options}
    )
    return Toolbox(settings=Settings(data_dir=None, policy="exploratory", startup_wait_s=120, sources=[config]))


@pytest.mark.parametrize("name", ["objects", "text"])
async def test_a_result_of_many_values_is_stored_without_being_decoded(name: str) -> None:
    async with toolbox(200_000, inline_values=1000) as box:
        outcome = await box.call("bad." + name, {}, timeout_s=120)
        assert isinstance(outcome, Completed)
        (artifact_id,) = outcome.artifacts
        data = await box.store.artifacts.read(artifact_id, tenant="local")
    assert outcome.content["media_type"] == "application/json"
    assert outcome.content["preview"].startswith(('{"items":[{},{}', "[{},{}"))
    decoded = json.loads(data)
    assert (decoded["items"] if name == "objects" else decoded) == [{}] * 200_000


@pytest.mark.parametrize("name", ["objects", "text", "deep", "parts"])
async def test_a_message_of_too_many_values_is_refused_and_the_session_continues(name: str) -> None:
    async with toolbox(200_000, max_values=100_000) as box:
        outcome = await box.call("bad." + name, {}, timeout_s=120)
        assert isinstance(outcome, Failed)
        assert outcome.error.error_code == "message_too_large"
        again = await box.call("bad." + name, {}, timeout_s=120)
        assert isinstance(again, Failed)
        assert again.error.error_code == "message_too_large"


async def test_a_result_of_few_values_is_decoded_as_before() -> None:
    async with toolbox(10) as box:
        outcome = await box.call("bad.objects", {}, timeout_s=120)
    assert isinstance(outcome, Completed)
    assert outcome.content == {"items": [{}] * 10}


async def test_the_output_of_a_command_is_bounded_too(tmp_path: Path) -> None:
    program = tmp_path / "many"
    program.write_text(f"#!{sys.executable}\nprint('[' + ','.join(['{{}}'] * 200_000) + ']')\n".replace("{{}}", "{}"))
    program.chmod(0o755)
    outcomes = [await _run(program, inline_values=1000), await _run(program, max_values=100_000)]
    stored, refused = outcomes
    assert isinstance(stored, Completed)
    assert stored.content["media_type"] == "application/json"
    assert isinstance(refused, Failed)
    assert refused.error.error_code == "message_too_large"


async def _run(program: Path, **options: Any) -> Any:
    config = ExternalToolConfig.model_validate(
        {"name": "cmd", "transport": "cli", "connection": str(program), "options": {"tools": {"run": {}}}, **options}
    )
    async with Toolbox(settings=PatientSettings(data_dir=None, policy="exploratory", sources=[config])) as box:
        return await box.call("cmd.run", {})


async def test_a_server_that_floods_with_requests_loses_its_session_and_gets_another() -> None:
    async with toolbox(20_000) as box:
        flooded = await box.call("bad.requests", {}, timeout_s=120)
        assert isinstance(flooded, Failed)
        assert flooded.error.error_code == "server_floods"
        assert not flooded.error.is_retryable
        again = await box.call("bad.objects", {}, timeout_s=120)
        assert isinstance(again, Completed)


@pytest.mark.parametrize(("name", "count"), [("requests", 900), ("notifications", 50_000)])
async def test_many_messages_beside_a_call_do_not_fail_it(name: str, count: int) -> None:
    async with toolbox(count) as box:
        outcome = await box.call("bad." + name, {}, timeout_s=120)
    assert isinstance(outcome, Completed)
    assert outcome.content == "done"


async def test_requests_of_a_server_are_begun_a_few_at_a_time() -> None:
    begun, turns = list[int](), list[int]()

    def start(message: dict[str, Any]) -> None:
        begun.append(message["id"])

    shares = PeerTurns(start)
    for number in range(60):
        shares.put({"id": number})
    while len(begun) < 60:
        turns.append(len(begun))
        await asyncio.sleep(0)
    assert begun == list(range(60))
    assert max(after - before for before, after in pairwise(turns)) <= 16


async def test_that_a_list_has_changed_is_reported_in_a_flood_too() -> None:
    shares = PeerTurns(lambda _message: None)
    logs = [shares.admits("notifications/message") for _ in range(1000)]
    changed = [shares.admits("notifications/tools/list_changed") for _ in range(10)]
    assert 0 < logs.count(True) < 1000
    assert changed == [True] + [False] * 9


async def test_a_document_that_cannot_be_checked_fails_its_call_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "killed.py"
    program.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    monkeypatch.setattr("toolpost.processes.json_documents._PROGRAM", str(program))
    async with toolbox(200_000, inline_values=1000) as box:
        outcomes = await asyncio.gather(*(box.call(f"bad.{name}", {}, timeout_s=120) for name in ("objects", "deep")))
    errors = [outcome.error for outcome in outcomes if isinstance(outcome, Failed)]
    assert [error.error_code for error in errors] == ["message_too_large", "message_too_large"]
    assert "failed with code -9" in errors[0].message
