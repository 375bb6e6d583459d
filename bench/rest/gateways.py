"""Start gateways on free ports, as the real command or forked from a process that has its imports, and kill them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_PATIENCE_S = 60.0
_UP = ("up", "--port", "0", "--json")


class Gateway(NamedTuple):
    """A running gateway."""

    pid: int
    address: str
    token: str
    reap: Callable[[], None]

    def ask(self, path: str, body: Any = None, *, method: str | None = None) -> Any:
        """Send a request and return the JSON of its answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.address}{path}", data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as reply:
            return json.load(reply)

    def is_ready(self) -> bool:
        """Return whether it takes calls."""
        with urllib.request.urlopen(f"{self.address.removesuffix('/api/v1')}/readyz", timeout=_PATIENCE_S) as reply:
            return bool(reply.status == 200)

    def kill(self) -> None:
        """Kill the process, which can do nothing about it, and wait until it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        self.reap()


def start(home: Path, *options: str) -> Gateway:
    """Start the command `toolpost up` on a free port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "toolpost", *_UP, *options], cwd=home, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    told = process.stdout

    def reap() -> None:
        process.wait()
        told.close()

    return _gateway_of(process.pid, json.loads(told.readline()), reap)


@contextmanager
def preloaded(home: Path) -> Generator[Callable[[], Gateway]]:
    """Yield what starts gateways of a folder without the start of an interpreter, one after the other."""
    command = [sys.executable, "-m", "bench.rest.preloaded", str(home), *_UP]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        commands, told = process.stdin, process.stdout

        def reap() -> None:
            assert json.loads(told.readline())["ended_by"] == signal.SIGKILL

        def start_next() -> Gateway:
            print("start", file=commands, flush=True)
            lines = [json.loads(told.readline()) for _ in range(2)]  # of the process, and of the gateway
            both = lines[0] | lines[1]
            return _gateway_of(both["pid"], both, reap)

        yield start_next
        commands.close()


def _gateway_of(pid: int, told: dict[str, Any], reap: Callable[[], None]) -> Gateway:
    return Gateway(pid, told["rest"], Path(told["token_file"]).read_text(), reap)
