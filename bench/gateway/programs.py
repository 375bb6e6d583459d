"""The gateways under test as programs of their own, whose CPU and memory are read from outside."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from bench.core.harness import Contender, LocalTrack, Turn
from bench.gateway.client import RawClient
from bench.mcp.endpoint import ROOT
from bench.mcp.seats import USUAL

FLOOR, FASTMCP = "bench.gateway.floor", "bench.gateway.fastmcp_proxy"
PATIENCE_S = 30.0


class Gateway:
    """A gateway that runs: its address, the token of its callers, and its process."""

    def __init__(self, url: str, token: str, process: psutil.Process) -> None:
        self.url = url
        self.token = token
        self.process = process

    def client(self) -> RawClient:
        return RawClient(self.url, self.token)

    def cpu_us(self) -> float:
        """CPU that the process has used so far, with all its threads."""
        used = self.process.cpu_times()
        return (used.user + used.system) * 1e6


@contextmanager
def program(module: str, servers: Sequence[str]) -> Generator[Gateway]:
    """Run a gateway of this folder on these servers until its stdin is closed."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *servers], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Gateway(json.loads(process.stdout.readline())["mcp"], "", psutil.Process(process.pid))
        finally:
            process.stdin.close()


@contextmanager
def bridge(command: Sequence[str], url: str) -> Generator[Gateway]:
    """Run a bridge to a server on stdio until the end; it says nothing when it is ready, so it is asked."""
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _wait_for(url)
            yield Gateway(url, "", psutil.Process(process.pid))
        finally:
            process.terminate()


def _wait_for(url: str) -> None:
    address, until = urlsplit(url), time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection((address.hostname or "", address.port or 0)).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


@contextmanager
def toolpost_up(folder: Path, servers: Sequence[str]) -> Generator[Gateway]:
    """Run `toolpost up` on these servers; as many calls at once as are made, since peers have no limit."""
    folder.mkdir()
    sources = [
        {
            "name": f"u{number}",
            "transport": "mcp",
            "connection": server,
            "trust": True,
            "max_concurrency": USUAL.callers,
            "required": True,
        }
        for number, server in enumerate(servers)
    ]
    settings = {
        "builtins": "none",
        "network": {"allow_private": True},
        "limits": {"absolute_max_parallel": 2 * USUAL.callers},
        "sources": sources,
    }
    (folder / "toolpost.yaml").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "toolpost", "up", "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            told = json.loads(process.stdout.readline())
            token = Path(told["token_file"]).read_text(encoding="ascii")
            yield Gateway(told["mcp"], token, psutil.Process(process.pid))
        finally:
            process.terminate()


class ServedTrack(LocalTrack):
    """Contenders in this process whose CPU is that of the gateway which they call."""

    def __init__(self, contenders: Sequence[Contender], gateways: Mapping[str, Gateway | None]) -> None:
        super().__init__(contenders)
        self._gateways = gateways

    async def turn(self, name: str, calls: int) -> Turn:
        gateway = self._gateways[name.removesuffix(" [many]")]
        before = 0.0 if gateway is None else gateway.cpu_us()
        turn = await super().turn(name, calls)
        used = 0.0 if gateway is None else gateway.cpu_us() - before
        return turn._replace(cpu_us=used / calls)
