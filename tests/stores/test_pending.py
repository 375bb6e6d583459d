"""Questions that wait for a person, on disk and in memory."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.stores.conftest import AnyStore, open_store
from tests.stores.samples import ANN, EVE, question
from toolpost.contracts.errors import StoreError
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer, PendingStatus, Question
from toolpost.stores.sqlite import SQLiteStore

YES = Answer(decision="approve", reason="fine", changes=[{"op": "replace", "path": "/to", "value": "one@example.com"}])


async def test_a_question_comes_back_exactly(store: AnyStore) -> None:
    asked = replace(
        question(),
        question=Question(kind="input", prompt="Which?", reason="choose", payload={"of": [1, 2]}, key="pause:0"),
        answers={"approval": YES},
        started=True,
        idempotency_key="k1",
        correlation_id="corr",
        task_id="task",
        timeout_s=2.5,
    )
    await store.pending.add(asked)

    assert await store.pending.get("ask_1") == asked


async def test_a_question_is_not_there_for_another_tenant(store: AnyStore) -> None:
    await store.pending.add(question())

    assert await store.pending.get("ask_1", tenant=EVE.tenant) is None
    assert await store.pending.list(tenant=EVE.tenant) == []
    assert await store.pending.get("ask_1", tenant=ANN.tenant) is not None
    assert await store.pending.get("ask_2") is None


async def test_questions_are_listed_newest_first_by_status(store: AnyStore) -> None:
    for number in range(4):
        await store.pending.add(replace(question(f"ask_{number}"), created_at=1000.0 + number // 2))
    await store.pending.claim("ask_2", YES, by="acme:boss", at=1500.0)

    assert [action.id for action in await store.pending.list()] == ["ask_3", "ask_1", "ask_0"]
    assert [action.id for action in await store.pending.list(status="claimed")] == ["ask_2"]
    assert [action.id for action in await store.pending.list(status=None, limit=2)] == ["ask_3", "ask_2"]


async def test_open_questions_are_counted_once_for_calls_within_calls(store: AnyStore) -> None:
    calls = ["call_1", "call_1.a", "call_1.a.b", "call_10", "call_2", "call_2.a"]
    for number, call_id in enumerate(calls):
        await store.pending.add(replace(question(f"ask_{number}"), call_id=call_id))
    assert await store.pending.count_open() == 3  # call_1.a.b, call_10 and call_2.a

    await store.pending.claim("ask_5", YES, by="acme:boss", at=1500.0)
    assert await store.pending.count_open() == 3  # call_2 waits on

    await store.pending.claim("ask_4", YES, by="acme:boss", at=1500.0)
    assert await store.pending.count_open() == 2


async def test_questions_are_listed_by_pages_whatever_became_of_the_last_one(store: AnyStore) -> None:
    for number in range(6):  # two at a time, as a clock may have it
        who = EVE if number == 4 else ANN
        await store.pending.add(replace(question(f"ask_{number}", who=who), created_at=1000.0 + number // 2))
    first = await store.pending.list(tenant=ANN.tenant, limit=2)
    await store.pending.claim(first[-1].id, YES, by="acme:boss", at=1500.0)
    second = await store.pending.list(tenant=ANN.tenant, before=first[-1].id, limit=2)
    third = await store.pending.list(tenant=ANN.tenant, before=second[-1].id, limit=2)

    assert [[action.id for action in page] for page in (first, second, third)] == [
        ["ask_5", "ask_3"],
        ["ask_2", "ask_1"],
        ["ask_0"],
    ]
    assert await store.pending.list(tenant=ANN.tenant, before="ask_4") == []  # another tenant's
    assert await store.pending.list(before="ask_9") == []


async def test_a_question_that_does_not_open_makes_no_page_shorter(sqlite: SQLiteStore, tmp_path: Path) -> None:
    for number in range(4):
        await sqlite.pending.add(replace(question(f"ask_{number}"), created_at=1000.0 + number))
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as database, database:
        database.execute("UPDATE pending SET action = x'00' WHERE id = 'ask_2'")

    first = await sqlite.pending.list(limit=2)

    assert [action.id for action in first] == ["ask_3", "ask_1"]
    assert [action.id for action in await sqlite.pending.list(before="ask_1", limit=2)] == ["ask_0"]


async def test_questions_of_one_user_are_listed(store: AnyStore) -> None:
    await store.pending.add(question("ask_1"))
    await store.pending.add(question("ask_2", who=Principal(ANN.tenant, "bob")))

    assert [action.id for action in await store.pending.list(tenant=ANN.tenant, user=ANN.user)] == ["ask_1"]


async def test_two_questions_cannot_share_an_id(store: AnyStore) -> None:
    await store.pending.add(question())

    with pytest.raises(StoreError, match="'ask_1' is there already"):
        await store.pending.add(question(who=EVE))


async def test_a_claim_returns_the_action_with_its_answer(store: AnyStore) -> None:
    await store.pending.add(question())

    claimed = await store.pending.claim("ask_1", YES, by="acme:boss", at=1500.0)

    expected = replace(question(), status="claimed", answer=YES, answered_by="acme:boss", answered_at=1500.0)
    assert claimed == expected
    assert await store.pending.get("ask_1") == expected


async def test_of_many_answers_at_once_exactly_one_is_taken(store: AnyStore) -> None:
    await store.pending.add(question())

    claims = await asyncio.gather(*(store.pending.claim("ask_1", YES, by=f"acme:{n}", at=1500.0) for n in range(50)))

    assert sum(claim is not None for claim in claims) == 1


@pytest.mark.parametrize("at", [2000.0, 2000.1])
async def test_a_late_answer_is_not_taken(store: AnyStore, at: float) -> None:
    await store.pending.add(question(expires_at=2000.0))

    assert await store.pending.claim("ask_1", YES, by="acme:boss", at=at) is None
    assert await store.pending.claim("ask_x", YES, by="acme:boss", at=1500.0) is None


async def test_a_settled_question_keeps_what_came_of_it(store: AnyStore) -> None:
    await store.pending.add(question())
    await store.pending.claim("ask_1", YES, by="acme:boss", at=1500.0)
    await store.pending.settle("ask_1", "answered", outcome={"status": "completed"})

    found = await store.pending.get("ask_1")

    assert found is not None
    assert (found.status, found.answer, found.outcome) == ("answered", YES, {"status": "completed"})
    assert await store.pending.claim("ask_1", YES, by="acme:boss", at=1500.0) is None


async def test_a_reopened_question_can_be_answered_again(store: AnyStore) -> None:
    await store.pending.add(question())
    await store.pending.claim("ask_1", YES, by="acme:boss", at=1500.0)
    await store.pending.settle("ask_1", "open", reopen=True)

    assert await store.pending.get("ask_1") == question()
    assert await store.pending.claim("ask_1", YES, by="acme:boss", at=1500.0) is not None


@pytest.mark.parametrize("status", ["answered", "denied"])
async def test_an_open_question_cannot_be_settled_past_its_claim(store: AnyStore, status: PendingStatus) -> None:
    await store.pending.add(question())

    with pytest.raises(StoreError, match=f"'ask_1' is not claimed, so it cannot be settled as '{status}'"):
        await store.pending.settle("ask_1", status, outcome={"status": "completed"})
    with pytest.raises(StoreError, match="'ask_x' is not claimed"):
        await store.pending.settle("ask_x", status, outcome={"status": "completed"})


async def test_late_questions_expire_once_and_keep_their_outcome(store: AnyStore) -> None:
    await store.pending.add(question("ask_1", expires_at=1100.0))
    await store.pending.add(question("ask_2", expires_at=1200.0))

    both = await asyncio.gather(store.pending.expire(1100.0), store.pending.expire(1100.0))
    await store.pending.settle("ask_1", "expired", outcome={"status": "failed"})

    assert [(action.id, action.status) for actions in both for action in actions] == [("ask_1", "expired")]
    found = await store.pending.get("ask_1")
    assert found is not None
    assert found.outcome == {"status": "failed"}


@pytest.mark.parametrize("target", ["call_1", "run_1"])
async def test_the_questions_of_a_cancelled_call_or_run_are_closed(store: AnyStore, target: str) -> None:
    await store.pending.add(question("ask_1"))
    await store.pending.add(question("ask_2", call_id="call_2", run_id="run_2"))

    closed = await store.pending.cancel(target)

    assert [(action.id, action.status) for action in closed] == [("ask_1", "cancelled")]
    assert await store.pending.cancel(target) == []
    assert [action.id for action in await store.pending.list()] == ["ask_2"]


async def test_what_a_dead_process_closed_and_did_not_settle_is_adopted_once(tmp_path: Path) -> None:
    async with open_store(tmp_path) as dying:
        for number in range(3):
            await dying.pending.add(question(f"ask_{number}", call_id=f"call_{number}", run_id=f"run_{number}"))
        await dying.pending.cancel("call_0")
        await dying.pending.cancel("call_1")
        await dying.pending.settle("ask_1", "cancelled", outcome={"status": "failed"})
        await dying.pending.expire(3000.0)

    async with open_store(tmp_path) as store:
        adopted = [(action.id, action.status) for action in await store.pending.adopt_claims()]
        assert adopted == [("ask_0", "cancelled"), ("ask_2", "expired")]
        assert await store.pending.adopt_claims() == []


async def test_questions_are_found_by_their_call(store: AnyStore) -> None:
    await store.pending.add(question("ask_1"))
    await store.pending.add(question("ask_2", call_id="call_2"))

    assert [action.id for action in await store.pending.list(call_id="call_2")] == ["ask_2"]
    assert await store.pending.list(call_id="call_2", tenant=EVE.tenant) == []


async def test_claims_of_the_living_are_not_adopted(store: AnyStore) -> None:
    await store.pending.add(question())
    await store.pending.claim("ask_1", YES, by="acme:boss", at=1500.0)

    assert await store.pending.adopt_claims() == []


async def test_the_same_call_is_stored_once_while_it_waits(store: AnyStore) -> None:
    first, again = [replace(question(f"ask_{number}"), same_call="same") for number in (1, 2)]

    assert await store.pending.add(first, unless_waiting=True) is None
    assert await store.pending.add(again, unless_waiting=True) == first
    assert await store.pending.find_waiting("same", at=1500.0) == first
    assert await store.pending.find_waiting("same", at=2000.0) is None  # it has expired
    assert await store.pending.find_waiting("", at=1500.0) is None

    await store.pending.claim("ask_1", YES, by="acme:boss", at=1500.0)
    assert await store.pending.add(again, unless_waiting=True) is None
    assert await store.pending.find_waiting("same", at=1500.0) == again


async def test_the_question_of_an_open_action_is_renewed(store: AnyStore) -> None:
    later = Question(kind="consent", prompt="Sign in.", payload={"auth_url": "https://login.example/2"})
    await store.pending.add(question())
    await store.pending.renew("ask_1", later)
    await store.pending.claim("ask_1", YES, by="acme:boss", at=1500.0)
    await store.pending.renew("ask_1", question().question)

    action = await store.pending.get("ask_1")
    assert action is not None
    assert (action.question, action.status) == (later, "claimed")


@pytest.mark.parametrize(
    "change", ["status = 'open'", "same_call = (SELECT same_call FROM pending WHERE id = 'ask_2')"]
)
async def test_a_question_that_was_changed_from_outside_is_not_waited_for(tmp_path: Path, change: str) -> None:
    async with open_store(tmp_path) as store:
        await store.pending.add(replace(question(), same_call="same"))
        await store.pending.claim("ask_1", YES, by="acme:boss", at=1500.0)
        await store.pending.settle("ask_1", "answered")
        await store.pending.add(replace(question("ask_2"), same_call="other"))
        await store.pending.claim("ask_2", YES, by="acme:boss", at=1500.0)
        await store.pending.add(replace(question("ask_3"), same_call="third"))
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
        db.execute(f"UPDATE pending SET {change} WHERE id IN ('ask_1', 'ask_3')")

    async with open_store(tmp_path) as store:
        assert await store.pending.find_waiting("same", at=1500.0) is None
        assert await store.pending.find_waiting("other", at=1500.0) is None
