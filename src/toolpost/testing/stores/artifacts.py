"""Tests of artifacts, keys of callers, the progress of webhooks, and searches by a prefix of an id."""

import re
from hashlib import sha256

import pytest
from msgspec.structs import replace

from toolpost.contracts.storage import Store, WebhookProgress
from toolpost.testing.stores.base import StoreFixtures
from toolpost.testing.stores.samples import ANN, BOB, EVE, artifact, call_ref, caller_key, event

_DATA = bytes(range(256)) * 40


class ArtifactTests(StoreFixtures):
    """Tests of `Store.artifacts`, `Store.caller_keys` and `Store.webhooks`."""

    async def test_an_artifact_gets_an_id_a_hash_and_a_size(self, store: Store) -> None:
        ref = await store.artifacts.put(_DATA, artifact())

        assert re.fullmatch(r"art_[0-9a-f]{20,}", ref.id)
        assert (ref.sha256, ref.size) == (sha256(_DATA).hexdigest(), len(_DATA))
        assert (ref.name, ref.tenant, ref.user, ref.created_at) == ("report.txt", "acme", "ann", 1000.0)
        assert await store.artifacts.info(ref.id, tenant=ANN.tenant) == ref

    @pytest.mark.parametrize(
        ("offset", "limit", "expected"),
        [
            (0, None, _DATA),
            (10, 20, _DATA[10:30]),
            (len(_DATA) - 5, 100, _DATA[-5:]),
            (len(_DATA), None, b""),
            (10**9, 5, b""),
            (0, 0, b""),
            (-3, 4, _DATA[:4]),
        ],
    )
    async def test_a_part_of_an_artifact_is_read(
        self, store: Store, offset: int, limit: int | None, expected: bytes
    ) -> None:
        ref = await store.artifacts.put(_DATA, artifact())

        assert await store.artifacts.read(ref.id, tenant=ANN.tenant, offset=offset, limit=limit) == expected

    async def test_an_id_is_valid_for_its_tenant_and_user_only(self, store: Store) -> None:
        hers, his = [await store.artifacts.put(who.user.encode(), artifact(who=who)) for who in (ANN, BOB)]

        assert await store.artifacts.list(tenant=ANN.tenant, user=ANN.user) == [hers]
        assert await store.artifacts.info(hers.id, tenant=ANN.tenant, user=ANN.user) == hers
        assert await store.artifacts.read(hers.id, tenant=ANN.tenant, user=ANN.user) == b"ann"
        assert await store.artifacts.list(tenant=EVE.tenant) == []
        for id_, tenant, user in ((his.id, "acme", "ann"), (hers.id, "evil", None), ("art_x", None, None)):
            assert await store.artifacts.info(id_, tenant=tenant, user=user) is None
            with pytest.raises(KeyError):
                await store.artifacts.read(id_, tenant=tenant, user=user)

    async def test_the_same_content_has_two_ids(self, store: Store) -> None:
        one, two = [await store.artifacts.put(_DATA, artifact(who=who)) for who in (ANN, EVE)]

        assert (one.id != two.id, one.sha256) == (True, two.sha256)

    async def test_artifacts_are_listed_newest_first(self, store: Store) -> None:
        ids: list[str] = []
        for number in range(4):  # two at the same time
            ref = artifact(run_id=f"run_{number % 2}", at=1000.0 + number // 2)
            ids.append((await store.artifacts.put(_DATA, ref)).id)

        assert [ref.id for ref in await store.artifacts.list()] == ids[::-1]
        assert [ref.id for ref in await store.artifacts.list(run_id="run_1", limit=1)] == [ids[3]]
        assert [ref.id for ref in await store.artifacts.list(before=ids[3], limit=2)] == [ids[2], ids[1]]
        assert [ref.id for ref in await store.artifacts.list(before=ids[2], run_id="run_1")] == [ids[1]]
        assert await store.artifacts.list(before="art_9") == []

    async def test_a_caller_key_is_found_listed_and_removed_by_its_tenant(self, store: Store) -> None:
        ann, eve = caller_key("one", ANN, expires_at=2000.0), caller_key("two", EVE)
        for key in (ann, eve):
            await store.caller_keys.add(key)

        assert [await store.caller_keys.find(key.id) for key in (ann, eve)] == [ann, eve]
        assert await store.caller_keys.find("none") is None
        assert await store.caller_keys.list(tenant=ANN.tenant) == [ann]
        assert not await store.caller_keys.remove(ann.id, tenant=EVE.tenant)
        assert await store.caller_keys.remove(ann.id, tenant=ANN.tenant)
        assert await store.caller_keys.list() == [eve]

    async def test_a_webhook_continues_where_it_stopped(self, store: Store) -> None:
        begun = WebhookProgress(name="audit", position=7)
        assert await store.webhooks.take("audit", begin=7) == begun

        failing = replace(begun, position=9, delivered=2, failures=1, error="503", failing_since=1.0, next_try_at=2.0)
        assert await store.webhooks.save(failing)
        await store.webhooks.release("audit")

        assert await store.webhooks.take("audit", begin=100) == failing
        assert await store.webhooks.list() == [failing]

    async def test_a_store_computes_the_same_mac_again(self, store: Store) -> None:
        macs = [store.mac(kind, message) for kind, message in (("a", b"1"), ("a", b"1"), ("a", b"2"), ("b", b"1"))]

        assert macs[0] == macs[1]
        assert len(set(macs)) == 3

    async def test_every_value_is_readable_after_a_key_rotation(self, store: Store) -> None:
        ref = await store.artifacts.put(_DATA, artifact())
        await store.caller_keys.add(caller_key("one", ANN))

        assert (await store.rotate_key(retire=True)).get("unreadable", 0) == 0
        assert await store.artifacts.read(ref.id, tenant=None) == _DATA
        assert await store.caller_keys.list() == [caller_key("one", ANN)]

    async def test_ids_of_a_tenant_are_found_by_a_prefix_the_newest_first(self, store: Store) -> None:
        for at, (run_id, who) in enumerate((("run_a1", ANN), ("run_a2", ANN), ("run_b1", ANN), ("run_a3", EVE))):
            store.events.emit(event(call=call_ref(run_id, f"call_{run_id}", who=who), at=float(at)))

        assert await store.find_ids("run", "run_a", tenant=ANN.tenant) == ["run_a2", "run_a1"]
        assert await store.find_ids("run", "run_a", tenant=ANN.tenant, limit=1) == ["run_a2"]
        assert await store.find_ids("run", "run_a") == ["run_a3", "run_a2", "run_a1"]
        assert await store.find_ids("call", "call_run_b", tenant=ANN.tenant) == ["call_run_b1"]
        assert await store.find_ids("run", "call_run_b", tenant=ANN.tenant) == []

    async def test_a_prefix_is_not_a_pattern(self, store: Store) -> None:
        kept = await store.artifacts.put(b"x", artifact())

        assert await store.find_ids("artifact", kept.id[:8], tenant=ANN.tenant) == [kept.id]
        assert await store.find_ids("artifact", "%", tenant=ANN.tenant) == []
        assert await store.find_ids("pending", "", tenant=ANN.tenant) == []
