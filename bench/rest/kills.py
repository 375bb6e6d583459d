"""Kill a gateway between a question and its answer, or during the answer, and count how often the call ran.

Each round is one process: it settles what the round before left behind, asks again, and is killed.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

_CONFIG = "builtins: none\nsources:\n  - {name: local, transport: python, connection: ./tools.py}\n"
_TOOLS = '''
from pathlib import Path

from toolpost import tool


@tool(side_effects="write", destructive=True)
async def drop(name: str) -> str:
    """Drop a table, and say so in a file."""
    with Path(__file__).with_name("dropped").open("a") as file:
        file.write(f"{name}\\n")
    return name
'''
_LATEST_KILL_S = 0.02  # after an answer was sent
_PATIENCE_S = 60.0


class Gateway(NamedTuple):
    """A running gateway."""

    process: subprocess.Popen[str]
    address: str
    token: str

    def ask(self, path: str, body: Any = None) -> Any:
        """Send a request and return the JSON of its answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.address}{path}", data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as reply:
            return json.load(reply)

    def kill(self) -> None:
        """Kill the process, which can do nothing about it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def start(home: Path) -> Gateway:
    """Start a gateway on a free port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "toolpost", "up", "--port", "0", "--json"], cwd=home, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    return Gateway(process, told["rest"], Path(told["token_file"]).read_text())


def count_runs(kills: int, *, seed: int = 0) -> Counter[int]:
    """Kill so many gateways, and return how many calls ran how often."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="toolpost-kills-") as folder:
        home = Path(folder)
        (home / "toolpost.yaml").write_text(_CONFIG)
        (home / "tools.py").write_text(_TOOLS)
        left: dict[str, Any] | None = None
        for number in range(kills):
            gateway = start(home)
            if left is not None:
                _settle(gateway, left, home)
            left = gateway.ask("/calls", {"tool": "local.drop", "arguments": {"name": f"n{number}"}})
            assert left is not None
            if number % 2:
                _answer_and_kill(gateway, left, chance.random() * _LATEST_KILL_S)
            else:
                gateway.kill()
        gateway = start(home)
        if left is not None:
            _settle(gateway, left, home)
        gateway.kill()
        ran = Counter((home / "dropped").read_text().split())
    return Counter(ran.get(f"n{number}", 0) for number in range(kills))


def _answer_and_kill(gateway: Gateway, asked: dict[str, Any], after_s: float) -> None:
    """Approve a call, and kill the gateway while it may be doing that."""

    def approve() -> None:
        try:
            gateway.ask(f"/pending/{asked['pending']['id']}/answer", {"decision": "approve"})
        except (OSError, ValueError):
            return  # it was killed before it could answer

    answering = threading.Thread(target=approve)
    answering.start()
    time.sleep(after_s)
    gateway.kill()
    answering.join()


def _settle(gateway: Gateway, asked: dict[str, Any], home: Path) -> None:
    """Answer whatever is still asked about a call until it has ended."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        run = gateway.ask(f"/runs/{asked['run_id']}")
        if run["status"] not in ("running", "paused"):
            return
        for card in gateway.ask("/pending")["items"]:
            _decide(gateway, card, home)
        time.sleep(0.02)
    raise TimeoutError(f"{asked['run_id']} did not end")


def _decide(gateway: Gateway, card: dict[str, Any], home: Path) -> None:
    """Approve, or say of an interrupted call what is true of it."""
    decision = "approve"
    if card["kind"] == "unknown":
        dropped = (home / "dropped").read_text().split() if (home / "dropped").exists() else []
        decision = "happened" if card["arguments"]["name"] in dropped else "rerun"
    try:
        gateway.ask(f"/pending/{card['id']}/answer", {"decision": decision})
    except urllib.error.HTTPError as error:
        if error.code != 409:  # it goes on by itself meanwhile
            raise
