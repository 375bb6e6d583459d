"""Run a client program of this folder with the interpreter of its environment, and approve its calls meanwhile."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from bench.envs import environment
from tests.cli.program import child_environment, warm_command
from tests.gateway.running import CONFIG, TOOLS, Gateway, furnish, serving
from tests.parts import ROOT

HERE = Path(__file__).parent
PEERS = ROOT / "bench"
PATIENCE_S = 240
_LOOK_S = 0.5
_MOST_OF_A_LARGE_RESULT = 40_000  # characters; the whole has ten times as many
_LARGE = '''

@tool(side_effects="pure")
def large() -> dict[str, list[str]]:
    """Return much."""
    return {"lines": [f"line {number:04} of the log" for number in range(20_000)]}
'''
_SHOP = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "servers": [{"url": "http://127.0.0.1:9"}],
    "paths": {
        "/orders": {
            "get": {
                "operationId": "orders",
                "summary": "List orders.",
                "parameters": [
                    {"name": "most", "in": "query", "schema": {"type": "integer", "minimum": 1}},
                    {"name": "after", "in": "query", "schema": {"type": ["string", "null"]}},
                    {"name": "state", "in": "query", "schema": {"type": "string", "enum": ["open", "paid"]}},
                ],
                "responses": {"200": {"description": "fine"}},
            }
        }
    },
}


def client_home(home: Path, *, builtins: str = "[data_tools]") -> Path:
    """Write a configuration with tools of a file, an API and built-in tools; and the key of an agent."""
    config = CONFIG.replace("[data_tools]", builtins)
    furnish(home, config=f"{config}  - {{name: shop, transport: http, connection: ./shop.json}}\n")
    (home / "shop.json").write_text(json.dumps(_SHOP))
    (home / "tools.py").write_text(TOOLS + _LARGE)
    return home


def client_key(home: Path) -> str:
    """Create a key that calls, as an agent has it."""
    return str(_run(home, "keys", "create", "client")["key"])


def environment_of(client: str) -> Path:
    """Return the interpreter of a client's environment, which is installed when it is not there."""
    root = next(folder for folder in (HERE, PEERS) if (folder / "requirements" / f"{client}.txt").exists())
    try:
        return environment(client, root=root)
    except subprocess.CalledProcessError as error:
        listed = root.relative_to(ROOT) / "requirements" / f"{client}.txt"
        pytest.fail(
            f"NOT TESTED: {client} cannot be installed here ({error}); "
            f"by hand: python -m venv ENV && ENV/bin/pip install --requirement {listed}"
        )


def over_http(gateway: Gateway, key: str) -> list[str]:
    return ["http", gateway.address, key]


def over_stdio(home: Path) -> list[str]:
    return ["stdio", *serving(home)]


def python_program(python: Path, program: str) -> list[str]:
    """Return the command of a client program in Python."""
    return [str(python), "-m", f"tests.gateway.clients.{program}"]


def assert_works(program: list[str], where: list[str], home: Path, *, takes_links: bool = True) -> None:
    """Let a client list, call, fail, get a large result and wait for an approval; each era says a line of its own.

    A client that `takes_links` not raises for a result with the link to a resource.
    """
    trial = f"{Path(program[-1]).stem if program[-1].endswith('.mjs') else program[-1].rpartition('.')[2]}-{where[0]}"
    told = [*program, trial, *where]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        (home / f"{trial}.out").open("w+") as out,
        (home / f"{trial}.err").open("w+") as err,
        subprocess.Popen(told, cwd=ROOT, env=environment, stdout=out, stderr=err, text=True) as client,
    ):
        try:
            _approve_until_done(home, trial, client)
        finally:
            client.kill()
    said = (home / f"{trial}.out").read_text()
    complained = (home / f"{trial}.err").read_text()[-8000:]
    assert client.returncode == 0, complained
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert lines, complained
    for line in lines:
        _assert_right(line, takes_links=takes_links)
    dropped = [name for name in (home / "dropped").read_text().split() if name.startswith(f"{trial}-")]
    assert dropped == [f"{trial}-{number}" for number in range(1, len(lines) + 1)]  # each exactly once


def _approve_until_done(home: Path, trial: str, client: subprocess.Popen[str]) -> None:
    """Approve what the client waits with, as a person does in another terminal."""
    started = time.monotonic()
    while client.poll() is None:
        assert time.monotonic() - started < PATIENCE_S, (home / f"{trial}.err").read_text()[-8000:]
        for action in _run(home, "pending", "list"):
            if str(action["arguments"].get("name", "")).startswith(f"{trial}-"):
                _run(home, "pending", "approve", action["id"])
        try:
            client.wait(timeout=_LOOK_S)
        except subprocess.TimeoutExpired:
            continue


def _run(home: Path, *words: str) -> Any:
    done = subprocess.run(
        warm_command(*words, "--config", str(home / "toolpost.yaml"), "--json"),
        cwd=home,
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def _assert_right(said: dict[str, Any], *, takes_links: bool) -> None:
    expected = {"local__add", "local__total", "local__large", "local__drop", "shop__orders", "base64_encode"}
    assert expected <= set(said["names"])
    came = said["came"]
    assert "5" in came["local__add"], came
    assert "nail" in came["local__total"], came
    assert "amount" in came["local__total"], came
    assert "no luck today" in came["local__fail"], came
    assert len(came["local__large"]) < _MOST_OF_A_LARGE_RESULT
    if takes_links:
        assert "line 0001 of the log" in came["local__large"], came
        assert "art_" in came["local__large"], came
    assert "is gone" in came.get("pending_wait", came["local__drop"]), came
