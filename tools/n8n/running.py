"""A real n8n while it runs: a fresh one each time, with the workflows of the tests active and an API key."""

import asyncio
import json
import os
import signal
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from toolpost.contracts.errors import ToolConnectionError
from toolpost.wire.client import HttpClient
from toolpost.wire.messages import Request
from toolpost.wire.network import NetworkPolicy
from tools.n8n.commands import run
from tools.n8n.workflows import CREDENTIAL, inactive, workflows

_START_S = 180.0
_STOP_S = 20.0
_OWNER = {"email": "owner@example.com", "firstName": "O", "lastName": "W", "password": "Passw0rd!x"}
_SCOPES = ["workflow:list", "workflow:read", "workflow:activate"]


class Instance(NamedTuple):
    """Where it is, and the key of its API."""

    url: str
    key: str


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Instance]:
    """Start an n8n that is installed in a folder; it is gone with its data when the block ends."""
    with tempfile.TemporaryDirectory(prefix="n8n-") as home:
        port = _free_port()
        env = _environment(Path(home), port)
        program = str(folder / "node_modules" / ".bin" / "n8n")
        await _imported(program, Path(home), env)
        process = await _started(program, Path(home), env)
        try:
            yield await _ready(f"http://127.0.0.1:{port}", process)
        finally:
            await _ended(process)


def _environment(home: Path, port: int) -> dict[str, str]:
    off = ("RUNNERS", "DIAGNOSTICS", "VERSION_NOTIFICATIONS", "TEMPLATES", "PERSONALIZATION", "COMMUNITY_PACKAGES")
    return {
        **{f"N8N_{name}_ENABLED": "false" for name in off},
        "N8N_EXPRESSION_ENGINE": "legacy",  # the other one needs a part whose scripts were left out
        "N8N_USER_FOLDER": str(home),
        "N8N_LISTEN_ADDRESS": "127.0.0.1",
        "N8N_PORT": str(port),
        "N8N_RUNNERS_BROKER_PORT": str(_free_port()),
        "N8N_SECURE_COOKIE": "false",
        "DB_TYPE": "sqlite",
    }


async def _imported(program: str, home: Path, env: dict[str, str]) -> None:
    for kind, items in (("credentials", [CREDENTIAL]), ("workflow", workflows())):
        file = home / f"{kind}.json"
        file.write_text(json.dumps(items), encoding="utf-8")
        await run(program, f"import:{kind}", f"--input={file}", folder=home, env=env)


async def _started(program: str, home: Path, env: dict[str, str]) -> asyncio.subprocess.Process:
    with (home / "n8n.log").open("wb") as log:
        return await asyncio.create_subprocess_exec(  # noqa: TID251 - the program under test
            program,
            "start",
            cwd=home,
            env={**os.environ, **env},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


async def _ready(url: str, process: asyncio.subprocess.Process) -> Instance:
    """Wait until it answers, make an owner and a key, and activate what is to be active."""
    async with HttpClient(NetworkPolicy().for_source(url), timeout_s=30.0) as client:
        async with asyncio.timeout(_START_S):
            while not await _answers(client, url):
                if process.returncode is not None:
                    raise SystemExit(f"n8n ended with {process.returncode} before it answered")
                await asyncio.sleep(0.25)
        rest = _Rest(client, url)
        await rest.post("/rest/owner/setup", _OWNER)
        made = await rest.post("/rest/api-keys", {"label": "tests", "expiresAt": None, "scopes": _SCOPES})
        key = str(made["data"]["rawApiKey"])
        rest.headers = (("X-N8N-API-KEY", key),)
        for workflow in workflows():
            if not inactive(workflow):
                await rest.post(f"/api/v1/workflows/{workflow['id']}/activate", {})
    return Instance(url, key)


async def _answers(client: HttpClient, url: str) -> bool:
    try:
        # Its health is well some seconds before its routes are there.
        async with await client.send(Request("GET", f"{url}/rest/settings")) as response:
            return response.status == 200 and response.media_type == "application/json"
    except ToolConnectionError:
        return False


class _Rest:
    """Posts as a browser would: with the cookie that it was given."""

    def __init__(self, client: HttpClient, url: str) -> None:
        self._client = client
        self._url = url
        self.headers: tuple[tuple[str, str], ...] = ()

    async def post(self, path: str, content: dict[str, Any]) -> Any:
        headers = (("Content-Type", "application/json"), *self.headers)
        request = Request("POST", self._url + path, headers=headers, body=json.dumps(content).encode())
        async with await self._client.send(request) as response:
            body = await response.read()
            if response.status >= 300:
                raise SystemExit(f"POST {path} of n8n answered {response.status}: {body[:500].decode()}")
            if cookie := response.headers.get("set-cookie"):
                self.headers = (("Cookie", cookie.partition(";")[0]),)
        return json.loads(body)


async def _ended(process: asyncio.subprocess.Process) -> None:
    """End it and whatever it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is None:
            os.killpg(process.pid, sign)
            try:
                await asyncio.wait_for(process.wait(), _STOP_S)
            except TimeoutError:
                continue


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port
