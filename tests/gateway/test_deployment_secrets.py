"""The encryption key and the operator's token of a deployment, in variables that nobody else sees."""

import base64
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.program import child_environment, command
from tests.gateway.running import furnish
from toolpost import Completed, Settings, Toolbox
from toolpost.configuration.loading import load_settings
from toolpost.contracts.errors import ConfigError
from toolpost.gateway.caller_keys import local_token

KEY = base64.b64encode(bytes(range(32))).decode()
TOKEN = "canary-token-of-the-operator-0123456789"
SECRETS: dict[str, Any] = {"accounts": {"key": "env:TP_KEY"}, "server": {"token": "env:TP_TOKEN"}}
CONFIG = """
accounts: {key: env:TP_KEY}
server: {token: env:TP_TOKEN}
"""
# A server that writes the environments that it can read: its own, and those of the processes above it.
SPY = """
import os, pathlib
pid, found = os.getpid(), dict(os.environ)
pathlib.Path("seen").write_text(repr(found))
"""


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TP_KEY", KEY)
    monkeypatch.setenv("TP_TOKEN", TOKEN)


@pytest.mark.programs
@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_gateway_with_its_secrets_in_variables_keeps_no_file_of_them_and_prints_none(
    tmp_path: Path, workers: str
) -> None:
    home = furnish(tmp_path / "home", config=f"sources: []\n{CONFIG}")
    environment = child_environment(TP_KEY=KEY, TP_TOKEN=TOKEN)
    started = command("up", "--port", "0", "--workers", workers, "--json", "--log-format", "json")
    process = subprocess.Popen(
        started, cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        first = process.stdout.readline()
        told = json.loads(first)
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False) as http:
            me = await http.get(f"{told['rest']}/me")
            refused = await http.get(f"{told['rest']}/me", headers={"Authorization": f"Bearer {TOKEN}x"})
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)

    files = [path for path in (home / ".toolpost").rglob("*") if path.is_file()]
    assert (me.status_code, refused.status_code, told["token_file"]) == (200, 401, None)
    assert not {"key", "token"} & {path.name for path in files}
    assert TOKEN not in first + out + err
    assert KEY not in first + out + err
    assert not [path for path in files if TOKEN.encode() in path.read_bytes() or bytes(range(32)) in path.read_bytes()]


@pytest.mark.programs
@pytest.mark.usefixtures("variables")
async def test_programs_that_it_starts_do_not_receive_the_secrets(tmp_path: Path) -> None:
    (tmp_path / "spy.py").write_text(SPY)
    source = {"name": "spy", "transport": "mcp", "connection": f"{sys.executable} spy.py", "cwd": str(tmp_path)}
    given = {**SECRETS, "data_dir": str(tmp_path / "data"), "builtins": ["run_command"], "sources": [source]}
    given |= {"policy": "exploratory", "tools": {"allowed_paths": [str(tmp_path)]}}
    async with Toolbox(settings=Settings.model_validate(given)) as box:
        told = await box.call("run_command", {"command": "env"}, user="local:ann")

    assert isinstance(told, Completed), told
    assert "PATH=" in json.dumps(told.content)
    shown = json.dumps(told.content) + (tmp_path / "seen").read_text()
    assert not [one for one in ("TP_KEY", "TP_TOKEN", KEY, TOKEN) if one in shown]


@pytest.mark.usefixtures("variables")
@pytest.mark.parametrize(
    ("source", "place"),
    [
        ({"transport": "mcp", "connection": "server", "env": {"X": "${TP_KEY}"}}, "env.X"),
        ({"transport": "mcp", "connection": "http://127.0.0.1:9/${TP_TOKEN}"}, "connection"),
        (
            {
                "transport": "mcp",
                "connection": "http://127.0.0.1:9/",
                "auth_type": "bearer",
                "auth_config": {"token": "${TP_TOKEN}"},
            },
            "auth_config.token",
        ),
    ],
)
async def test_a_source_that_would_receive_a_secret_is_refused(
    tmp_path: Path, source: dict[str, Any], place: str
) -> None:
    settings = Settings.model_validate(
        {**SECRETS, "data_dir": str(tmp_path / "data"), "sources": [{"name": "spy", **source}]}
    )
    async with Toolbox(settings=settings) as box:
        (state,) = box.report

    assert not state.ok
    assert f"{place} contains the encryption key or the operator's token" in str(state.error)
    assert KEY not in str(state.error)


def test_a_tool_may_not_read_the_variables(tmp_path: Path) -> None:
    (tmp_path / "toolpost.yaml").write_text(f"tools: {{env: [TP_KEY]}}\n{CONFIG}")

    with pytest.raises(ConfigError, match=r"tools\.env names TP_KEY, a secret of the deployment"):
        load_settings(None, cwd=tmp_path)


@pytest.mark.usefixtures("variables")
async def test_the_secrets_are_redacted_in_results_of_tools(tmp_path: Path) -> None:
    async with Toolbox(settings=Settings.model_validate({**SECRETS, "data_dir": str(tmp_path)})) as box:
        shown = box.redactor.text(f"{KEY} and {TOKEN}")

    assert not re.search(f"{re.escape(KEY)}|{TOKEN}", shown)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("env:TP_NONE", "server.token: the environment variable 'TP_NONE' is not set; put the secret into it"),
        ("env:TP_SHORT", "server.token: the token of env:TP_SHORT must be 32 or more letters"),
        ("env:TP_BLANK", "must be 32 or more letters"),
        (f"file:{Path('missing')}", "server.token: the secret file missing cannot be read"),
        (TOKEN, "server.token: expected a reference to a secret, not the secret itself; write env:NAME"),
    ],
)
def test_a_token_that_cannot_be_used_is_refused_without_showing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, said: str
) -> None:
    monkeypatch.delenv("TP_NONE", raising=False)
    monkeypatch.setenv("TP_SHORT", "canary")
    monkeypatch.setenv("TP_BLANK", f"{TOKEN} canary")

    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        local_token(tmp_path, reference)
    assert "canary" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token-of-the-deployment"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o644)
    with pytest.raises(
        ConfigError, match=f"server.token: the secret file .* can be read by others; run: chmod 600 {file}"
    ):
        local_token(tmp_path, f"file:{file}")

    file.chmod(0o600)
    assert local_token(tmp_path, f"file:{file}") == TOKEN
