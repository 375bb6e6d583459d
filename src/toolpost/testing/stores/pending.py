"""Tests of pending actions: stored unchanged, claimed once, listed by pages, expired, cancelled and renewed."""

import asyncio

import pytest
from msgspec.structs import replace

from toolpost.contracts.errors import StoreError
from toolpost.contracts.questions import PendingStatus, Question
from toolpost.contracts.storage import Store
from toolpost.testing.stores.base import StoreFixtures
from toolpost.testing.stores.samples import ANN, APPROVE, BOB, EVE, intent, question


class PendingTests(StoreFixtures):
    """Tests of `Store.pending`."""

    async def test_an_action_is_returned_unchanged(self, store: Store) -> None:
        action = replace(
            question(),
            question=Question(kind="input", prompt="Which?", reason="choose", payload={"of": [1, 2]}, key="pause:0"),
            answers={"approval": APPROVE},
            started=True,
            idempotency_key="k1",
            correlation_id="corr",
            task_id="task",
            timeout_s=2.5,
        )
        await store.pending.add(action)

        assert await store.pending.get("ask_1") == action
        with pytest.raises(StoreError, match="'ask_1'"):  # the id is taken
            await store.pending.add(question(who=EVE))

    async def test_an_action_replaces_the_intent_of_its_call(self, store: Store) -> None:
        await store.journal.begin(intent("call_1"))
        await store.journal.begin(intent("call_1", "step"))
        await store.journal.begin(intent("call_2"))
        await store.journal.finish("call_2", "", "done")
        await store.pending.add(question())
        await store.pending.add(question("ask_2", call_id="call_2"))

        assert await store.journal.find("call_1", "") is None
        assert await store.journal.find("call_1", "step") is not None
        assert (found := await store.journal.find("call_2", "")) is not None
        assert found.result == "done"

    async def test_an_action_is_not_visible_to_another_tenant(self, store: Store) -> None:
        await store.pending.add(question())

        assert await store.pending.get("ask_1", tenant=EVE.tenant) is None
        assert await store.pending.list(tenant=EVE.tenant) == []
        assert await store.pending.list(call_id="call_1", tenant=EVE.tenant) == []
        assert await store.pending.get("ask_1", tenant=ANN.tenant) == question()
        assert await store.pending.get("ask_2") is None

    async def test_actions_are_listed_newest_first_by_status_user_and_call(self, store: Store) -> None:
        for number, who in enumerate([ANN, BOB, ANN, ANN]):
            created_at = 1000.0 + number // 2  # two at the same time
            await store.pending.add(question(f"ask_{number}", who=who, call_id=f"call_{number}", created_at=created_at))
        await store.pending.claim("ask_2", APPROVE, by="acme:boss", at=1500.0)

        async def found(status: PendingStatus | None = "open", limit: int = 100) -> list[str]:
            return [action.id for action in await store.pending.list(status=status, limit=limit)]

        assert await found() == ["ask_3", "ask_1", "ask_0"]
        assert await found("claimed") == ["ask_2"]
        assert await found(None, limit=2) == ["ask_3", "ask_2"]
        assert [action.id for action in await store.pending.list(tenant="acme", user="bob")] == ["ask_1"]
        assert [action.id for action in await store.pending.list(call_id="call_3")] == ["ask_3"]

    async def test_pages_continue_although_the_last_action_was_answered(self, store: Store) -> None:
        for number in range(6):
            who = EVE if number == 4 else ANN
            await store.pending.add(question(f"ask_{number}", who=who, created_at=1000.0 + number // 2))
        first = await store.pending.list(tenant=ANN.tenant, limit=2)
        await store.pending.claim(first[-1].id, APPROVE, by="acme:boss", at=1500.0)
        second = await store.pending.list(tenant=ANN.tenant, before=first[-1].id, limit=2)
        third = await store.pending.list(tenant=ANN.tenant, before=second[-1].id, limit=2)

        pages = [[action.id for action in page] for page in (first, second, third)]
        assert pages == [["ask_5", "ask_3"], ["ask_2", "ask_1"], ["ask_0"]]
        assert await store.pending.list(tenant=ANN.tenant, before="ask_4") == []  # an action of another tenant
        assert await store.pending.list(before="ask_9") == []

    async def test_an_open_action_is_not_counted_if_a_nested_call_waits(self, store: Store) -> None:
        for number, call_id in enumerate(["call_1", "call_1.a", "call_1.a.b", "call_10", "call_2", "call_2.a"]):
            await store.pending.add(question(f"ask_{number}", call_id=call_id))
        counts = [(await store.status()).pending]  # call_1.a.b, call_10, call_2.a
        for answered in ("ask_5", "ask_4"):  # call_2.a, then call_2
            await store.pending.claim(answered, APPROVE, by="acme:boss", at=1500.0)
            counts.append((await store.status()).pending)

        assert counts == [3, 3, 2]

    async def test_a_claim_returns_the_action_with_its_answer(self, store: Store) -> None:
        await store.pending.add(question())

        claimed = await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0)

        assert claimed is not None
        expected = replace(question(), status="claimed", answer=APPROVE, answered_by="acme:boss", answered_at=1500.0)
        assert claimed == replace(expected, owner=claimed.owner) == await store.pending.get("ask_1")
        assert await store.pending.adopt_claims() == []  # the process of the claim runs

    async def test_one_of_many_concurrent_answers_claims_an_action(self, store: Store) -> None:
        await store.pending.add(question())

        claims = (store.pending.claim("ask_1", APPROVE, by=f"acme:{n}", at=1500.0) for n in range(50))

        assert sum(claim is not None for claim in await asyncio.gather(*claims)) == 1

    async def test_an_expired_or_unknown_action_is_not_claimed(self, store: Store) -> None:
        await store.pending.add(question(expires_at=2000.0))

        for pending_id, at in (("ask_1", 2000.0), ("ask_1", 2000.1), ("ask_x", 1500.0)):
            assert await store.pending.claim(pending_id, APPROVE, by="acme:boss", at=at) is None

    async def test_a_settled_action_has_its_outcome_and_is_not_claimed_again(self, store: Store) -> None:
        await store.pending.add(question())
        await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0)
        await store.pending.settle("ask_1", "answered", outcome={"status": "completed"})

        found = await store.pending.get("ask_1")

        assert found is not None
        assert (found.status, found.answer, found.outcome) == ("answered", APPROVE, {"status": "completed"})
        assert await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0) is None

    async def test_a_reopened_action_can_be_answered_again(self, store: Store) -> None:
        await store.pending.add(question())
        await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0)
        await store.pending.settle("ask_1", "open", reopen=True)

        assert await store.pending.get("ask_1") == question()
        assert await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0) is not None

    @pytest.mark.parametrize("status", ["answered", "denied"])
    async def test_only_a_claimed_action_is_settled(self, store: Store, status: PendingStatus) -> None:
        await store.pending.add(question())

        for pending_id in ("ask_1", "ask_x"):
            with pytest.raises(StoreError, match=f"'{pending_id}' is not claimed"):
                await store.pending.settle(pending_id, status, outcome={"status": "completed"})

    async def test_an_action_expires_once_and_can_be_settled(self, store: Store) -> None:
        await store.pending.add(question("ask_1", expires_at=1100.0))
        await store.pending.add(question("ask_2", expires_at=1200.0))

        both = await asyncio.gather(store.pending.expire(1100.0), store.pending.expire(1100.0))
        await store.pending.settle("ask_1", "expired", outcome={"status": "failed"})

        assert [(action.id, action.status) for actions in both for action in actions] == [("ask_1", "expired")]
        found = await store.pending.get("ask_1")
        assert found is not None
        assert found.outcome == {"status": "failed"}

    @pytest.mark.parametrize("target", ["call_1", "run_1"])
    async def test_actions_of_a_cancelled_call_or_run_are_closed(self, store: Store, target: str) -> None:
        await store.pending.add(question("ask_1"))
        await store.pending.add(question("ask_2", call_id="call_2", run_id="run_2"))

        assert list(await store.pending.cancel(target, tenant=EVE.tenant)) == []
        closed = await store.pending.cancel(target)

        assert [(action.id, action.status) for action in closed] == [("ask_1", "cancelled")]
        assert list(await store.pending.cancel(target)) == []
        assert [action.id for action in await store.pending.list()] == ["ask_2"]

    async def test_the_same_call_is_stored_once_while_it_waits(self, store: Store) -> None:
        first, again = [question(f"ask_{number}", same_call="same") for number in (1, 2)]

        assert await store.pending.add(first, unless_waiting=True) is None
        assert store.pending.may_wait
        assert await store.pending.add(again, unless_waiting=True) == first
        assert await store.pending.find_waiting("same", at=1500.0) == first
        assert await store.pending.find_waiting("same", at=2000.0) is None  # it has expired
        assert await store.pending.find_waiting("", at=1500.0) is None

        await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0)
        assert await store.pending.add(again, unless_waiting=True) is None
        assert await store.pending.find_waiting("same", at=1500.0) == again

    async def test_one_of_many_concurrent_calls_is_stored(self, store: Store) -> None:
        actions = [question(f"ask_{number}", same_call="same") for number in range(20)]

        added = await asyncio.gather(*(store.pending.add(one, unless_waiting=True) for one in actions))

        assert added.count(None) == 1
        assert len(await store.pending.list()) == 1

    async def test_the_question_of_an_open_action_is_replaced(self, store: Store) -> None:
        later = Question(kind="consent", prompt="Sign in.", payload={"auth_url": "https://login.example/2"})
        await store.pending.add(question())
        await store.pending.renew("ask_1", later)
        await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0)
        await store.pending.renew("ask_1", question().question)

        action = await store.pending.get("ask_1")
        assert action is not None
        assert (action.question, action.status) == (later, "claimed")
