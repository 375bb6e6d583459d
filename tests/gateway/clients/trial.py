"""Run a client program of this folder with the interpreter of its environment."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.gateway.running import Gateway, serving
from tests.parts import ROOT

PATIENCE_S = 240


def over_http(gateway: Gateway) -> list[str]:
    return ["http", gateway.address, gateway.token]


def over_stdio(home: Path) -> list[str]:
    return ["stdio", *serving(home)]


def assert_lists_and_calls(python: Path, program: str, where: list[str]) -> None:
    """Let a client list and call; a client of both eras says a line for each."""
    told = [str(python), "-m", f"tests.gateway.clients.{program}", *where]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        told, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines
    for line in lines:
        _assert_right(json.loads(line))


def _assert_right(said: dict[str, Any]) -> None:
    assert {"local__add", "local__total", "local__fail", "local__drop", "base64_encode"} <= set(said["names"])
    came = said["came"]
    assert "5" in came["local__add"]
    assert "nail" in came["local__total"]
    assert "amount" in came["local__total"]
    assert "no luck today" in came["local__fail"]
    if "local__drop" in came:
        assert "toolpost pending approve ask_" in came["local__drop"]
