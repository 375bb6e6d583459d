"""Tests of console sessions and of the tickets that open them."""

import asyncio

from msgspec.structs import replace

from toolpost.contracts.callers import CallerSession, SignInTicket
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import Retention, Store
from toolpost.testing.stores.base import StoreFixtures
from toolpost.testing.stores.samples import ANN, BOB, EVE, caller_key

_HOUR_S = 3600.0


def session(name: str, who: Principal = ANN, *, at: float = 1000.0) -> CallerSession:
    """Return a console session that ends an hour after it was created."""
    return CallerSession(
        id=name,
        principal=who,
        scopes=frozenset({"call", "answer"}),
        answers=("pay.*",),
        digest=b"digest of " + name.encode(),
        credential="key:1",
        created_at=at,
        used_at=at,
        expires_at=at + _HOUR_S,
        gateway="g",
    )


def ticket(name: str = "t1", who: Principal = ANN) -> SignInTicket:
    """Return a ticket."""
    return SignInTicket(
        id=name,
        principal=who,
        scopes=frozenset({"answer"}),
        answers=("*",),
        digest=b"digest",
        credential="operator",
        expires_at=1120.0,
    )


class SessionTests(StoreFixtures):
    """Tests of `Store.sessions`."""

    async def test_a_session_is_found_listed_by_tenant_and_user_and_removed(self, store: Store) -> None:
        ann, bob, eve = session("a"), session("b", BOB, at=1001.0), session("e", EVE)
        for one in (bob, ann, eve):
            await store.sessions.add(one)

        assert [await store.sessions.find(one) for one in ("a", "e", "x")] == [ann, eve, None]
        assert await store.sessions.list(tenant=ANN.tenant) == [ann, bob]
        assert await store.sessions.list(tenant=ANN.tenant, user=BOB.user) == [bob]
        await store.sessions.remove("a")
        assert await store.sessions.find("a") is None
        assert await store.sessions.list(tenant=ANN.tenant) == [bob]

    async def test_the_time_of_use_is_stored_and_a_removed_session_does_not_return(self, store: Store) -> None:
        one = session("a")
        await store.sessions.add(one)
        await store.sessions.use(one, at=1500.0)
        used = await store.sessions.find("a")
        await store.sessions.remove("a")
        await store.sessions.use(one, at=1600.0)

        assert used == replace(one, used_at=1500.0)
        assert await store.sessions.find("a") is None

    async def test_a_ticket_is_used_once(self, store: Store) -> None:
        await store.sessions.add_ticket(ticket())
        before = await store.sessions.find_ticket("t1")
        used = await asyncio.gather(*(store.sessions.use_ticket(ticket()) for _ in range(5)))

        assert before == (ticket(), False)
        assert sorted(used) == [False] * 4 + [True]
        assert await store.sessions.find_ticket("t1") == (ticket(), True)
        assert await store.sessions.find_ticket("t2") is None

    async def test_sessions_and_tickets_are_erased_with_their_user_and_pruned(self, store: Store) -> None:
        for one in (session("a"), session("b", BOB), session("c", BOB, at=3000.0)):
            await store.sessions.add(one)
        await store.sessions.add_ticket(ticket())
        await store.forget(ANN)
        erased = await store.sessions.find("a"), await store.sessions.find_ticket("t1")
        kept = await store.sessions.find("b")
        await store.prune(Retention(max_age_s=100.0), now=1000.0 + _HOUR_S + 200.0)

        assert erased == (None, None)
        assert kept is not None
        assert [one.id for one in await store.sessions.list(tenant=BOB.tenant)] == ["c"]

    async def test_a_new_session_drops_those_that_expired_long_ago(self, store: Store) -> None:
        await store.sessions.add(session("old"))
        await store.sessions.add(session("new", at=1000.0 + 3 * _HOUR_S))

        assert [one.id for one in await store.sessions.list(tenant=ANN.tenant)] == ["new"]

    async def test_the_last_use_of_a_key_is_the_latest(self, store: Store) -> None:
        bot, bee = caller_key("bot", ANN), caller_key("bee", EVE)
        for key, at in ((bot, 2000.0), (bot, 1000.0), (bee, 1500.0), (bee, 2500.0)):
            await store.key_uses.save(key, at=at)

        assert await store.key_uses.list() == {bot.id: 2000.0, bee.id: 2500.0}
        await store.key_uses.remove(bot.id)
        assert await store.key_uses.list() == {bee.id: 2500.0}
        await store.forget(EVE)
        assert await store.key_uses.list() == {}
