"""Sessions are shared by credential, and servers that cannot be reached are left alone for a while."""

import asyncio

import pytest

from toolpost.contracts.calls import Credential
from toolpost.contracts.errors import ToolAuthError, ToolConnectionError
from toolpost.sources import session_pool
from toolpost.sources.session_pool import SessionPool


class Session:
    """A session that stays with the headers it was opened with."""

    def __init__(self, credential: Credential) -> None:
        self.headers = credential.headers
        self.is_closed = False
        self.is_busy = False

    def use_credential(self, credential: Credential) -> bool:
        return self.headers == credential.headers

    async def close_when_idle(self) -> None:
        await self.close()

    async def close(self) -> None:
        self.is_closed = True


class Server:
    """Opens sessions when it is let, and refuses some tokens."""

    def __init__(self, *, refused: str = "") -> None:
        self.tried: list[str] = []
        self.refused = refused
        self.is_up = True
        self.let = asyncio.Event()
        self.let.set()

    async def connect(self, credential: Credential) -> Session:
        token = credential.headers.get("token", "")
        self.tried.append(token)
        await self.let.wait()
        if token == self.refused:
            raise ToolAuthError("the token is old")
        if not self.is_up:
            raise ToolConnectionError("nobody listens", sent=False)
        return Session(credential)


def credential(token: str, key: str = "ada") -> Credential:
    return Credential(key, {"token": token})


async def test_callers_at_the_same_time_share_one_connect() -> None:
    server = Server()
    pool = SessionPool("api", server.connect)
    one, two = await asyncio.gather(pool.get(credential("t")), pool.get(credential("t")))

    assert one is two
    assert pool.find(credential("t")) is one
    assert server.tried == ["t"]
    await pool.close()
    assert one.is_closed


async def test_a_renewed_token_does_not_fail_with_the_old_one() -> None:
    server = Server(refused="old")
    server.let.clear()
    pool = SessionPool("api", server.connect)
    old = asyncio.create_task(pool.get(credential("old")))
    await asyncio.sleep(0)
    new = asyncio.create_task(pool.get(credential("new")))
    await asyncio.sleep(0)
    server.let.set()

    with pytest.raises(ToolAuthError, match="the token is old"):
        await old
    assert (await new).headers == {"token": "new"}
    await pool.close()


async def test_a_renewed_token_replaces_the_session_of_its_key() -> None:
    pool = SessionPool("api", Server().connect)
    first = await pool.get(credential("one"))
    second = await pool.get(credential("two"))
    await asyncio.sleep(0)

    assert (first.is_closed, second.is_closed) == (True, False)
    assert list(pool) == [second]
    await pool.close()


async def test_a_server_that_is_down_is_left_alone_for_a_growing_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_pool, "_FIRST_BACKOFF_S", 60.0)
    server = Server()
    server.is_up = False
    pool = SessionPool("api", server.connect)
    with pytest.raises(ToolConnectionError, match="nobody listens"):
        await pool.get(credential("t"))
    with pytest.raises(ToolConnectionError, match="nobody listens") as refused:
        await pool.get(credential("t"))

    assert server.tried == ["t"]
    assert not refused.value.sent
    assert 20 < (refused.value.retry_after_s or 0) <= 30
    server.is_up = True
    assert not (await pool.get(credential("other"))).is_closed
    await pool.close()


async def test_the_session_that_was_idle_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_pool, "_MAX_SESSIONS", 2)
    pool = SessionPool("api", Server().connect, pinned=credential("t", "first"))
    opened = [await pool.get(credential("t", key)) for key in ("first", "second", "third")]
    await asyncio.sleep(0)

    assert [session.is_closed for session in opened] == [False, True, False]
    await pool.close()


async def test_a_connect_that_runs_when_the_pool_closes_is_reported() -> None:
    server = Server()
    server.let.clear()
    pool = SessionPool("api", server.connect)
    waiting = asyncio.create_task(pool.get(credential("t")))
    await asyncio.sleep(0)
    await pool.close()

    for call in (waiting, pool.get(credential("t"))):
        with pytest.raises(ToolConnectionError, match="source 'api' is closed"):
            await call
