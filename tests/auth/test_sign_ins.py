"""Sign-ins that wait, in memory and in a store that processes share."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.auth.grants import store_of
from toolpost.auth.secret import Secret
from toolpost.auth.sign_ins import MemorySignIns, PendingSignIn, PendingSignIns, SealedSignIns

ANN = PendingSignIn(
    user_id="acme:ann", trace_id="trace_1", provider="github", created_at=1000.0, verifier=Secret("canary-verifier")
)


@pytest.fixture(params=["dict", "memory", "sqlite"])
async def sign_ins(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PendingSignIns]:
    if request.param == "dict":
        yield MemorySignIns()
        return
    async with store_of(request.param, tmp_path, lambda: 1000.0) as store:
        yield SealedSignIns(store.tokens)


async def test_a_sign_in_is_given_out_whole_and_once(sign_ins: PendingSignIns) -> None:
    await sign_ins.put("state-1", ANN)
    plain = replace(ANN, verifier=None, user_id="bob")
    await sign_ins.put("state-2", plain)

    assert await sign_ins.claim("state-3") is None
    assert await sign_ins.claim("state-1") == ANN
    assert await sign_ins.claim("state-1") is None
    assert await sign_ins.claim("state-2") == plain


async def test_of_many_who_claim_at_once_one_gets_it(sign_ins: PendingSignIns) -> None:
    await sign_ins.put("state-1", ANN)
    claims = await asyncio.gather(*(sign_ins.claim("state-1") for _ in range(20)))

    assert [claim for claim in claims if claim] == [ANN]


@pytest.mark.req("DEF-10")
async def test_those_begun_earlier_are_purged(sign_ins: PendingSignIns) -> None:
    await sign_ins.put("old", replace(ANN, created_at=999.0))
    await sign_ins.put("new", ANN)

    assert await sign_ins.purge(1000.0) == 1
    assert await sign_ins.claim("old") is None
    assert await sign_ins.claim("new") == ANN


async def test_the_oldest_make_room_in_memory() -> None:
    sign_ins = MemorySignIns(most=2)
    for number in range(3):
        await sign_ins.put(f"state-{number}", ANN)

    assert len(sign_ins) == 2
    assert await sign_ins.claim("state-0") is None
    assert await sign_ins.claim("state-2") == ANN


async def test_another_process_finds_what_was_put_and_a_thief_finds_nothing(tmp_path: Path) -> None:
    async with store_of("sqlite", tmp_path, lambda: 1000.0) as here, store_of("sqlite", tmp_path, lambda: 1.0) as there:
        await SealedSignIns(here.tokens).put("canary-state", ANN)
        raw = b"".join(path.read_bytes() for path in tmp_path.glob("toolpost.db*"))
        assert await SealedSignIns(there.tokens).claim("canary-state") == ANN

    assert b"canary" not in raw
    assert b"acme:ann" not in raw
    assert "canary" not in repr(ANN)
