"""Many listeners, each on its own run, while many calls are in flight: does each get every event of its run once?"""

from __future__ import annotations

import asyncio
import json
import resource
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2

from bench.rest.gateways import Gateway, start

_CONFIG = "builtins: none\nsources:\n  - {name: local, transport: python, connection: ./tools.py}\n"
_TOOLS = '''
import asyncio

from toolpost import ToolContext, tool


@tool(side_effects="write", destructive=True)
async def work(number: int, ctx: ToolContext) -> int:
    """Report progress ten times."""
    for step in range(10):
        ctx.progress(f"step {step}", fraction=step / 10)
        await asyncio.sleep(0.01)
    return number
'''
_LAST = "TOOL_CALL_COMPLETED"
_PATIENCE_S = 300.0
_Ids = list[int]


class Heard(NamedTuple):
    """Events that listeners got beside those in the log."""

    listeners: int
    events: int
    lost: int
    doubled: int
    out_of_order: int
    most_in_flight: int


def compare_with_log(listeners: int, in_flight: int) -> Heard:
    """Let calls wait for a person, listen to the run of each, approve some at a time, and compare what was heard."""
    _allow_files(4 * listeners)
    with tempfile.TemporaryDirectory(prefix="toolpost-listeners-") as folder:
        home = Path(folder)
        (home / "toolpost.yaml").write_text(_CONFIG)
        (home / "tools.py").write_text(_TOOLS)
        gateway = start(home)
        try:
            return asyncio.run(_run(gateway, listeners, in_flight))
        finally:
            gateway.kill()


async def _run(gateway: Gateway, listeners: int, in_flight: int) -> Heard:
    headers = {"Authorization": f"Bearer {gateway.token}"}
    limits = httpx2.Limits(max_connections=in_flight)
    flying, most = 0, 0
    may_fly = asyncio.Semaphore(in_flight)
    client = httpx2.AsyncClient(headers=headers, limits=limits, timeout=_PATIENCE_S, trust_env=False)
    async with asyncio.timeout(_PATIENCE_S), client as http:

        async def ask(number: int) -> dict[str, Any]:
            body = {"tool": "local.work", "arguments": {"number": number}}
            async with may_fly:
                asked: dict[str, Any] = (await http.post(f"{gateway.address}/calls", json=body)).json()
            return asked

        async def approve(asked: dict[str, Any]) -> None:
            nonlocal flying, most
            async with may_fly:
                flying += 1
                most = max(most, flying)
                address = f"{gateway.address}/pending/{asked['pending']['id']}/answer"
                reply = await http.post(address, json={"decision": "approve"})
                flying -= 1
            assert reply.json()["status"] == "completed", reply.text

        asked = await asyncio.gather(*(ask(number) for number in range(listeners)))
        joined = asyncio.Barrier(listeners + 1)
        listening = [asyncio.create_task(_listen(gateway, one["run_id"], joined)) for one in asked]
        await joined.wait()
        await asyncio.gather(*map(approve, asked))
        heard = dict(zip((one["run_id"] for one in asked), await asyncio.gather(*listening), strict=True))
        log = await _log(http, gateway)
    return _compared(heard, {run_id: log[run_id] for run_id in heard}, most)


async def _listen(gateway: Gateway, run_id: str, joined: asyncio.Barrier) -> _Ids:
    """Return the ids of the events of a run, as a listener of its own gets them until the run has ended."""
    url = urlsplit(gateway.address)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    lines = [
        f"GET {url.path}/events?run={run_id}&after=0 HTTP/1.0",  # without the frames of chunks
        f"Host: {url.netloc}",
        f"Authorization: Bearer {gateway.token}",
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    ids: _Ids = []
    try:
        while (line := (await reader.readline()).decode().strip()) != ": listening":
            assert line or reader.at_eof() is False, "the gateway has hung up"
        await joined.wait()
        while True:
            line = (await reader.readline()).decode()
            assert line, "the gateway has hung up"
            field, _, value = line.strip().partition(": ")
            if field == "id":
                ids.append(int(value))
            elif field == "data" and json.loads(value)["type"] == _LAST:
                return ids
    finally:
        writer.close()


async def _log(http: httpx2.AsyncClient, gateway: Gateway) -> dict[str, _Ids]:
    """Return the ids of all events by their run, as the record has them."""
    found = defaultdict[str, _Ids](list)
    async with http.stream("GET", f"{gateway.address}/audit") as reply:
        async for line in reply.aiter_lines():
            event = json.loads(line)
            found[event["run_id"]].append(event["id"])
    return found


def _compared(heard: dict[str, _Ids], log: dict[str, _Ids], most: int) -> Heard:
    return Heard(
        listeners=len(heard),
        events=sum(map(len, log.values())),
        lost=sum(len(set(log[run_id]) - set(ids)) for run_id, ids in heard.items()),
        doubled=sum(len(ids) - len(set(ids)) for ids in heard.values()),
        out_of_order=sum(ids != sorted(ids) for ids in heard.values()),
        most_in_flight=most,
    )


def _allow_files(count: int) -> None:
    """Permit this process and those that it starts so many open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
