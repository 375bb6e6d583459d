"""Processes that share an account against an issuer with strict rotation.

`python -m tests.auth.refresh_race --processes 8 --expiries 1000` runs the whole figure and prints what was counted.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.auth.grants import KEY, store_of, vault_over
from toolpost.auth.oauth.refresh import GrantRevoked, RefreshedTokens, RefreshOutcome
from toolpost.auth.oauth.tokens import TokenSet
from toolpost.auth.secret import Secret
from toolpost.auth.token_refresher import ConsentNeeded, TokenRefresher
from toolpost.auth.vault import Account

ROOT = Path(__file__).parents[2]
NEVER = 9e9


@dataclass
class StrictIssuer:
    """Issuer and resource in one: a refresh token is good once, and used twice it ends the whole grant.

    A generation of tokens expires when every process has used it and then asks again,
    so that all of them meet each expiry at the same moment.
    """

    processes: int
    expiries: int
    generation: int = 0
    revoked: bool = False
    counts: Counter[str] = field(default_factory=Counter[str])
    used: set[str] = field(default_factory=set[str])
    expired: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            asked = json.loads(line)
            answer = await (self.use(asked) if asked["do"] == "use" else self.refresh(asked))
            writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()

    async def use(self, asked: dict[str, str]) -> dict[str, Any]:
        if asked["token"] != f"access-{self.generation}" or self.revoked:
            return {"status": 401}
        if asked["who"] not in self.used:
            self.used.add(asked["who"])
            if len(self.used) == self.processes:
                self.expired.set()
            return {"status": 200, "last": self.generation == self.expiries}
        await self.expired.wait()
        return {"status": 401}

    async def refresh(self, asked: dict[str, str]) -> dict[str, Any]:
        self.counts["refreshes"] += 1
        if asked["token"] != f"refresh-{self.generation}" or self.revoked:
            self.counts["invalid_grant"] += 1
            self.revoked = True
            return {"error": "invalid_grant"}
        self.counts["early"] += not self.expired.is_set()
        self.generation += 1
        self.used, self.expired = set(), asyncio.Event()
        return {"access": f"access-{self.generation}", "refresh": f"refresh-{self.generation}"}


async def race(folder: Path, *, processes: int, expiries: int) -> dict[str, int]:
    """What the issuer counted, and how many processes saw it through."""
    issuer = StrictIssuer(processes, expiries)
    async with store_of("sqlite", folder, time.time) as store:
        first = TokenSet(access_token=Secret("access-0"), refresh_token=Secret("refresh-0"), expires_at=NEVER)
        await vault_over(store).keep(KEY, first)
    server = await asyncio.start_server(issuer.serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        ended = await asyncio.gather(*(_child(folder, port) for _ in range(processes)))
    counted = {name: issuer.counts[name] for name in ("refreshes", "invalid_grant", "early")}
    return {**counted, "generation": issuer.generation, "finished": sum(code == 0 for code in ended)}


async def _child(folder: Path, port: int) -> int:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = (sys.executable, "-m", "tests.auth.refresh_race", "--child", str(folder), "--port", str(port))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=env)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()


class Worker:
    """One process: uses the token, and when it is refused gets a current one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.who = str(os.getpid())

    async def ask(self, do: str, token: Secret | None) -> dict[str, Any]:
        assert token is not None
        self.writer.write(json.dumps({"do": do, "who": self.who, "token": token.reveal()}).encode() + b"\n")
        return json.loads(await self.reader.readline())

    async def refresh(self, account: Account) -> RefreshOutcome:
        assert account.tokens is not None
        told = await self.ask("refresh", account.tokens.refresh_token)
        if "error" in told:
            return GrantRevoked(told["error"])
        access, refresh = Secret(told["access"]), Secret(told["refresh"])
        return RefreshedTokens(TokenSet(access_token=access, refresh_token=refresh, expires_at=NEVER))

    async def work(self, folder: Path) -> None:
        async with store_of("sqlite", folder, time.time) as store:
            renewer = TokenRefresher(vault_over(store))
            rejected: int | None = None
            while True:
                current = await renewer.current(KEY, self.refresh, rejected=rejected)
                if isinstance(current, ConsentNeeded) or current.tokens is None:
                    sys.exit(f"consent needed: {current}")
                told = await self.ask("use", current.tokens.access_token)
                if told.get("last"):
                    return
                rejected = current.version if told["status"] == 401 else None


async def child(folder: Path, port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await Worker(reader, writer).work(folder)
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--expiries", type=int, default=1000)
    parser.add_argument("--child", type=Path)
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    if options.child:
        asyncio.run(child(options.child, options.port))
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        counted = asyncio.run(race(Path(folder), processes=options.processes, expiries=options.expiries))
    print(json.dumps({**counted, "seconds": round(time.monotonic() - began, 1)}))


if __name__ == "__main__":
    main()
