"""Connections that nobody known has sent a request on: they cannot take the place of honest ones."""

import asyncio
from pathlib import Path

import httpx2
import pytest

from tests.cli.program import command
from tests.gateway.running import furnish, running

pytestmark = pytest.mark.programs
DESCRIPTORS = 256


async def test_idle_connections_do_not_keep_callers_out(tmp_path: Path) -> None:
    words = command("up", "--port", "0", "--json")
    program = ["sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh", *words]
    call = {"tool": "local.add", "arguments": {"a": 1, "b": 2}}
    with running(furnish(tmp_path), program=program) as gateway:
        rest = gateway.address.replace("/mcp", "/api/v1")
        host, _, port = gateway.address.removeprefix("http://").removesuffix("/mcp").rpartition(":")
        async with httpx2.AsyncClient(headers=gateway.headers, timeout=60, trust_env=False) as known:
            before = await known.post(f"{rest}/calls", json=call)
            idle = [await asyncio.open_connection(host, int(port)) for _ in range(DESCRIPTORS + 50)]
            async with httpx2.AsyncClient(headers=gateway.headers, timeout=60, trust_env=False) as late:
                after = [await late.post(f"{rest}/calls", json=call), await known.post(f"{rest}/calls", json=call)]
            closed = await idle[0][0].read()
            for _, writer in idle:
                writer.close()
    assert [reply.json()["content"] for reply in (before, *after)] == [3, 3, 3]
    assert closed == b""  # the oldest made room
