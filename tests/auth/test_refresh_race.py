"""Many processes, one account, an issuer that forgives nothing."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.auth.grants import KEY, grant, store_of, vault_over
from tests.auth.refresh_race import ROOT, race
from toolpost.auth.oauth.refresh import RefreshOutcome, RefreshUnknown
from toolpost.auth.token_refresher import ConsentNeeded, TokenRefresher
from toolpost.auth.vault import Account

pytestmark = pytest.mark.programs

EXPIRIES = 200


@pytest.mark.req("FUT-14")
async def test_eight_processes_renew_once_for_each_expiry(tmp_path: Path) -> None:
    counted = await race(tmp_path, processes=8, expiries=EXPIRIES)

    assert counted == {
        "refreshes": EXPIRIES,
        "invalid_grant": 0,
        "early": 0,
        "generation": EXPIRIES,
        "finished": 8,
    }


@pytest.mark.req("FUT-14")
async def test_a_process_killed_while_it_renews_leaves_a_question_and_no_second_request(tmp_path: Path) -> None:
    asked = asyncio.Event()
    requests: list[bytes] = []

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readline())
        asked.set()
        await reader.read()
        writer.close()

    async def ask_again(_: Account) -> RefreshOutcome:
        requests.append(b"again")
        return RefreshUnknown("that it was asked is wrong enough")

    async with store_of("sqlite", tmp_path, lambda: 1000.0) as store:
        kept = await vault_over(store).keep(KEY, grant(expires_at=500.0))
        async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            await _killed_in_the_middle(tmp_path, port, asked)
        current = await TokenRefresher(vault_over(store)).current(KEY, ask_again)

        assert current == ConsentNeeded(key=KEY, reason="doubtful")
        found = await vault_over(store).find(KEY)
        assert found is not None
        assert (found.version, found.status) == (kept.version, "doubtful")
    assert len(requests) == 1


async def _killed_in_the_middle(folder: Path, port: int, asked: asyncio.Event) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = (sys.executable, "-m", "tests.auth.refresh_race", "--child", str(folder), "--port", str(port))
    victim = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=env)
    try:
        async with asyncio.timeout(30):
            await asked.wait()
    finally:
        victim.send_signal(signal.SIGKILL)
        await victim.wait()
