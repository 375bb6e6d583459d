"""Tests of token rows and the leases to refresh them."""

import asyncio

import pytest

from toolpost.contracts.storage import Store, TokenKey, TokenStatus
from toolpost.testing.stores.base import StoreFixtures
from toolpost.testing.stores.samples import token_key

_KEY = token_key()
_BODY = {"access": "canary-access", "refresh": "canary-refresh", "scopes": ["a"]}


class TokenTests(StoreFixtures):
    """Tests of `Store.tokens`."""

    async def test_a_token_is_returned_unchanged(self, store: Store) -> None:
        put = await store.tokens.put(_KEY, _BODY)

        assert await store.tokens.get(_KEY) == put
        assert (put.key, put.status, put.body, put.holder) == (_KEY, "live", _BODY, "")
        assert "canary" not in repr(put)

    @pytest.mark.parametrize("part", TokenKey._fields)
    async def test_each_part_of_the_key_identifies_the_row(self, store: Store, part: str) -> None:
        await store.tokens.put(_KEY, _BODY)
        other = _KEY._replace(**{part: "other"})

        assert await store.tokens.get(other) is None
        await store.tokens.put(other, {"access": "theirs"})
        assert await store.tokens.remove(other)
        assert [row.body for row in await store.tokens.list()] == [_BODY]

    async def test_rows_are_listed_by_tenant_and_user(self, store: Store) -> None:
        keys = [_KEY, _KEY._replace(user="bob"), _KEY._replace(tenant="evil"), _KEY._replace(client="client-2")]
        for key in keys:
            await store.tokens.put(key, _BODY)

        assert [row.key for row in await store.tokens.list()] == sorted(keys)
        assert [row.key for row in await store.tokens.list(tenant="acme", user="ann")] == [_KEY, keys[3]]
        assert await store.tokens.list(tenant="none") == []

    async def test_a_swap_needs_the_stored_version(self, store: Store) -> None:
        first = await store.tokens.put(_KEY, _BODY)

        swaps = await asyncio.gather(*(store.tokens.swap(_KEY, first.version, {"access": str(n)}) for n in range(30)))

        (second,) = [row for row in swaps if row is not None]
        assert second.version > first.version
        assert await store.tokens.get(_KEY) == second
        assert await store.tokens.swap(_KEY, first.version, {"access": "3"}) is None
        assert await store.tokens.swap(_KEY._replace(user="bob"), 1, {"access": "3"}) is None

    async def test_a_version_is_never_used_again(self, store: Store) -> None:
        first = await store.tokens.put(_KEY, _BODY)
        assert await store.tokens.remove(_KEY, version=first.version + 1) is False
        assert await store.tokens.remove(_KEY, version=first.version) is True
        assert await store.tokens.remove(_KEY) is False
        await asyncio.sleep(0.002)  # a store may take its versions from a clock

        assert (await store.tokens.put(_KEY, _BODY)).version > first.version

    async def test_one_of_many_takes_the_lease_and_the_others_see_it(self, store: Store) -> None:
        row = await store.tokens.put(_KEY, _BODY)

        takes = (store.tokens.take(_KEY, row.version, holder=f"h{n}", lease_s=10) for n in range(30))
        taken = [one for one in await asyncio.gather(*takes) if one]

        assert (len(taken), len({(one.holder, one.until) for one in taken})) == (30, 1)
        assert await store.tokens.take(_KEY, row.version - 1, holder="h", lease_s=10) == taken[0]
        assert await store.tokens.take(_KEY._replace(user="bob"), row.version, holder="h", lease_s=10) is None

    async def test_a_lease_ends_with_a_new_body(self, store: Store) -> None:
        row = await store.tokens.put(_KEY, _BODY)
        await store.tokens.take(_KEY, row.version, holder="h", lease_s=10)

        assert await store.tokens.settle(_KEY, row.version, holder="other", body={"access": "2"}) is None
        assert await store.tokens.settle(_KEY, row.version + 1, holder="h", body={"access": "2"}) is None
        settled = await store.tokens.settle(_KEY, row.version, holder="h", body={"access": "2"})

        assert settled is not None
        assert settled == await store.tokens.get(_KEY)
        assert (settled.status, settled.holder, settled.body) == ("live", "", {"access": "2"})
        assert settled.version > row.version

    @pytest.mark.parametrize(("status", "body"), [("live", _BODY), ("doubtful", _BODY), ("revoked", {})])
    async def test_a_lease_ends_without_a_body_in_a_status(
        self, store: Store, status: TokenStatus, body: dict[str, object]
    ) -> None:
        row = await store.tokens.put(_KEY, _BODY)
        await store.tokens.take(_KEY, row.version, holder="h", lease_s=10)

        settled = await store.tokens.settle(_KEY, row.version, holder="h", status=status)
        taken = await store.tokens.take(_KEY, row.version, holder="next", lease_s=10)

        assert settled is not None
        assert (settled.status, settled.holder, settled.body) == (status, "", body)
        assert taken is not None
        assert taken.holder == ("next" if status == "live" else "")  # a row that is not live is not leased
        assert (await store.tokens.put(_KEY, _BODY)).status == "live"

    async def test_a_lease_past_its_time_makes_the_row_doubtful(self, store: Store) -> None:
        row = await store.tokens.put(_KEY, _BODY)
        await store.tokens.take(_KEY, row.version, holder="slow", lease_s=0)

        found = await store.tokens.take(_KEY, row.version, holder="next", lease_s=10)
        late = await store.tokens.settle(_KEY, row.version, holder="slow", body={"access": "2"})

        assert found is not None
        assert (found.status, found.holder) == ("doubtful", "slow")
        assert late is not None
        assert (late.status, late.body) == ("live", {"access": "2"})  # the body of a late holder is stored
