"""Sign-ins that wait, in memory and in a store that processes share."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.auth.grants import store_of
from toolpost.auth.oauth.authorization import SignInContext, Transaction
from toolpost.auth.oauth.client import Client
from toolpost.auth.oauth.metadata import configured_server
from toolpost.auth.pending_sign_ins import EncryptedSignIns, MemorySignIns, PendingSignIn, PendingSignIns
from toolpost.auth.secret import Secret

SERVER = configured_server(
    authorization_endpoint="https://id.example.org/authorize", token_endpoint="https://id.example.org/token"
)


def sign_in(state: str, *, expires: float = 1000.0, user: str = "acme:ann", pkce: bool = True) -> PendingSignIn:
    caller = SignInContext(
        redirect_uri="https://app.example/callback", user=user, provider="github", trace_id="trace_1"
    )
    verifier = Secret("canary-verifier") if pkce else None
    transaction = Transaction(
        state=state,
        verifier=verifier,
        server=SERVER,
        client=Client(id="app"),
        caller=caller,
        created=400.0,
        expires=expires,
    )
    return PendingSignIn(transaction=transaction)


async def claimed(sign_ins: PendingSignIns, state: str) -> PendingSignIn | None:
    found = await sign_ins.find(state)
    return found if found is not None and await sign_ins.claim(found) else None


@pytest.fixture(params=["dict", "memory", "sqlite"])
async def sign_ins(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PendingSignIns]:
    if request.param == "dict":
        yield MemorySignIns()
        return
    async with store_of(request.param, tmp_path, lambda: 1000.0) as store:
        yield EncryptedSignIns(store.tokens)


async def test_a_sign_in_is_given_out_whole_and_once(sign_ins: PendingSignIns) -> None:
    ann, plain = sign_in("state-1"), sign_in("state-2", user="bob", pkce=False)
    await sign_ins.put(ann)
    await sign_ins.put(plain)

    assert await claimed(sign_ins, "state-3") is None
    assert await claimed(sign_ins, "state-1") == ann
    assert await claimed(sign_ins, "state-1") is None
    assert await claimed(sign_ins, "state-2") == plain


async def test_of_many_who_claim_at_once_one_gets_it(sign_ins: PendingSignIns) -> None:
    await sign_ins.put(ann := sign_in("state-1"))
    claims = await asyncio.gather(*(claimed(sign_ins, "state-1") for _ in range(20)))

    assert [claim for claim in claims if claim] == [ann]


@pytest.mark.req("DEF-10")
async def test_those_that_expired_earlier_are_purged(sign_ins: PendingSignIns) -> None:
    await sign_ins.put(sign_in("old", expires=999.0))
    await sign_ins.put(new := sign_in("new"))

    assert await sign_ins.purge(999.0) == 1
    assert await claimed(sign_ins, "old") is None
    assert await claimed(sign_ins, "new") == new


async def test_the_oldest_make_room_in_memory() -> None:
    sign_ins = MemorySignIns(most=2)
    for number in range(3):
        await sign_ins.put(sign_in(f"state-{number}"))

    assert len(sign_ins) == 2
    assert await claimed(sign_ins, "state-0") is None
    assert await claimed(sign_ins, "state-2") == sign_in("state-2")


async def test_another_process_finds_what_was_put_and_a_thief_finds_nothing(tmp_path: Path) -> None:
    ann = sign_in("canary-state")
    async with store_of("sqlite", tmp_path, lambda: 1000.0) as here, store_of("sqlite", tmp_path, lambda: 1.0) as there:
        await EncryptedSignIns(here.tokens).put(ann)
        raw = b"".join(path.read_bytes() for path in tmp_path.glob("toolpost.db*"))
        assert await claimed(EncryptedSignIns(there.tokens), "canary-state") == ann

    assert b"canary" not in raw
    assert b"acme:ann" not in raw
    assert "canary" not in repr(ann)


async def test_a_state_of_one_kind_is_unknown_to_another(tmp_path: Path) -> None:
    async with store_of("memory", tmp_path, lambda: 1000.0) as store:
        await EncryptedSignIns(store.tokens).put(sign_in("state-1"))
        assert await EncryptedSignIns(store.tokens, kind="transaction").find("state-1") is None
