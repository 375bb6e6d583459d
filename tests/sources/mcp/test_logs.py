"""What is written to logs about connections."""

import base64
import gzip
import json
import logging
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patient_settings import PatientSettings
from tests.sources.mcp.programs import mirror
from tests.sources.mcp.rogues import Rogue, heartbeat, text, tool, toolbox
from toolpost import ExternalToolConfig, Toolbox

pytestmark = pytest.mark.programs


async def test_no_secret_of_a_connection_reaches_a_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with mirror() as url:
        source = ExternalToolConfig(
            name="web",
            transport="mcp",
            connection=f"{url}?api_key=s3cret-query",
            auth_type="bearer",
            auth_config={"token": "s3cret-token"},
            headers={"X-API-Key": "s3cret-header"},
        )
        async with Toolbox(settings=PatientSettings(data_dir=None, sources=[source])) as box:
            outcome = await box.call("web.headers", {"password": "s3cret-argument"})
            await box.call("web.headers", {})
    assert outcome.status == "failed"
    assert "s3cret" not in caplog.text


async def test_no_secret_of_a_configuration_is_reported_when_it_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MY_WORD", "s3cret-variable")
    shout = "import os, sys; sys.exit(' '.join([*sys.argv, *os.environ.values()]))"
    command = [sys.executable, "-c", shout, "--token=s3cret-option", "--word", "${MY_WORD}"]
    source = ExternalToolConfig(
        name="loud",
        transport="mcp",
        connection=shlex.join(command).replace("'${MY_WORD}'", "${MY_WORD}"),
        env={"DATABASE_URL": "postgres://me:s3cret-password@host/db", "API_KEY": "s3cret-key"},
    )
    async with Toolbox(settings=PatientSettings(data_dir=tmp_path / "data", sources=[source])) as box:
        [state] = box.report
        told = await box.store.events.read()
    assert not state.ok
    assert "it wrote" in str(state.error)
    assert "s3cret" not in repr(state) + repr(told)


async def test_a_token_that_a_server_says_back_is_not_reported() -> None:
    with mirror() as url:
        source = ExternalToolConfig(
            name="web", transport="mcp", connection=url, auth_type="bearer", auth_config={"token": "s3cret-token"}
        )
        async with Toolbox(settings=PatientSettings(data_dir=None, sources=[source])) as box:
            await box.call("web.headers", {})
            told = [dict(event.payload) for event in await box.store.events.read()]
    assert "s3cret-token" not in json.dumps(told)


PACKED = base64.b64encode(gzip.compress(bytes(1 << 20))).decode()
SAYINGS = {
    "result": {"result": {"isError": True, **text(*[f"s3cret-token {PACKED}"] * 400)}},
    "error": {"error": {"code": -32603, "message": f"s3cret-token {PACKED} " * 400}},
}


@pytest.mark.parametrize("said", SAYINGS)
async def test_an_error_full_of_what_could_be_unpacked_holds_no_one_up(tmp_path: Path, said: str) -> None:
    rogue = Rogue(tmp_path, tool("fail", do=SAYINGS[said], safe=True))

    async with toolbox(rogue.config(env={"API_TOKEN": "s3cret-token"})) as box, heartbeat() as pauses:
        outcome = await box.call("srv.fail")
        events = await box.events()

    told = f"{outcome.error!r} {outcome.error.__cause__!r} {[dict(event.payload) for event in events]}"
    assert max(pauses) < 5  # it was 40 seconds
    assert "s3cret" not in told
    assert len(outcome.error.message) <= 8001


QUIET = """
import asyncio, logging, sys
from toolpost import ExternalToolConfig, Settings, Toolbox

async def main():
    source = ExternalToolConfig(name="srv", transport="mcp", connection=sys.argv[1])
    async with Toolbox(settings=Settings(data_dir=None, policy="exploratory", sources=[source])) as box:
        await box.call("srv.echo")
        for name in ("mcp", "mcp.client.session", "client"):
            logging.getLogger(name).warning("something is odd")

asyncio.run(main())
"""


def test_a_program_without_logging_sees_nothing_of_what_libraries_complain_of(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, tool("echo"))
    done = subprocess.run(
        [sys.executable, "-c", QUIET, rogue.connection], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
