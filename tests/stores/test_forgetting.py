"""Forgetting a person, on disk and in memory."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.stores.children import child, said
from tests.stores.conftest import AnyStore, open_store
from tests.stores.samples import ANN, BOB, EVE, artifact, event, intent, key_record, question, whole_run
from tests.stores.test_state import EVENT
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer
from toolpost.contracts.storage import TokenKey
from toolpost.gateway.callers import new_caller_key
from toolpost.stores.agent_folders import session_folder
from toolpost.stores.pauses import PlannerPauses

KINDS = ("tokens", "pending", "journal", "keys", "caller_keys", "state", "artifacts", "files", "events", "runs")
NOTHING = dict.fromkeys([*KINDS, "tasks", "sessions", "memory", "under_way"], 0)


def token_key(who: Principal, client: str = "client") -> TokenKey:
    return TokenKey(*who, "https://issuer.example", "https://forgettable.example", client)


async def fill(store: AnyStore, who: Principal) -> str:
    """One of everything that is kept by person; gives the artifact's id."""
    name = f"{who.tenant}_{who.user}"
    for each in whole_run(f"run_{name}", who=who):
        store.events.emit(each)
    await store.tokens.put(token_key(who), {"access": "token"})
    await store.pending.add(question(f"ask_{name}", who=who, run_id=f"run_{name}"))
    await store.journal.begin(intent(f"call_{name}", who=who, run_id=f"run_{name}"))
    await store.journal.finish(f"call_{name}", "", "result")
    await store.keys.reserve(who, "k1", key_record())
    await store.keys.settle(who, "k1", {"status": "completed"})
    await store.caller_keys.add(new_caller_key(name, who, ["call"], by="acme:boss")[0])
    await store.state.save_event(replace(EVENT, run_id=f"run_{name}"))
    await store.state.save_planner_state(f"token_{name}", {"user": str(who), "conversation": []})
    kept = await store.artifacts.put(f"content of {name}".encode(), artifact(who=who, run_id=f"run_{name}"))
    return kept.id


async def left_of(store: AnyStore, who: Principal, artifact_id: str) -> list[str]:
    name = f"{who.tenant}_{who.user}"
    held = await store.keys.reserve(who, "k1", key_record())
    if held is None:
        await store.keys.release(who, "k1")
    found = {
        "tokens": await store.tokens.list(tenant=who.tenant, user=who.user),
        "pending": await store.pending.get(f"ask_{name}"),
        "journal": await store.journal.find(f"call_{name}", ""),
        "keys": held,
        "caller_keys": [key for key in await store.caller_keys.list() if key.principal == who],
        "state": await store.state.load_history(f"run_{name}"),
        "pauses": await store.state.load_planner_state(f"token_{name}"),
        "artifacts": await store.artifacts.info(artifact_id, tenant=who.tenant),
    }
    return [kind for kind, value in found.items() if value]


async def test_all_that_is_kept_of_a_person_goes_and_nothing_of_others(store: AnyStore) -> None:
    people = [ANN, BOB, EVE, Principal("evil", "ann")]
    ids = {who: await fill(store, who) for who in people}
    await store.tokens.put(token_key(ANN, "client-2"), {"access": "token"})

    counts = await store.forget(ANN)

    assert counts == {**NOTHING, **dict.fromkeys(KINDS, 1), "tokens": 2, "state": 2, "events": 3}
    assert await left_of(store, ANN, ids[ANN]) == []
    kinds = ["tokens", "pending", "journal", "keys", "caller_keys", "state", "pauses", "artifacts"]
    assert [await left_of(store, who, ids[who]) for who in people[1:]] == [kinds] * 3
    assert await store.artifacts.read(ids[BOB], tenant="acme") == b"content of acme_bob"
    assert await store.forget(ANN) == NOTHING


async def tell(store: AnyStore, run_id: str, who: Principal, **facts: str) -> None:
    for each in whole_run(run_id, who=who):
        store.events.emit(replace(each, facts={"note": f"secret of {who.user}", **facts}))


async def test_events_keep_their_place_and_lose_what_they_say(store: AnyStore) -> None:
    await tell(store, "run_ann", ANN)
    await tell(store, "run_bob", BOB)
    before = await store.events.read()

    assert (await store.forget(ANN))["events"] == 3
    events = await store.events.read()

    assert [(each.id, each.code, each.at, each.hash) for each in events] == [
        (each.id, each.code, each.at, each.hash) for each in before
    ]
    assert [each.is_forgotten for each in events] == [True] * 3 + [False] * 3
    assert dict(events[0].payload) == {"tool_name": "mail.send", "forgotten": True}
    assert events[3:] == before[3:]
    assert await store.events.verify() == []
    run = await store.events.run("run_ann")
    assert run is not None
    assert (run.user, run.status, run.tool_name) == ("", "completed", "mail.send")


async def test_a_name_goes_from_what_is_told_of_others(store: AnyStore) -> None:
    await tell(store, "run_1", BOB, by="acme:ann", error="acme:ann refused it")
    await tell(store, "run_2", BOB, by="acme:anna")
    await store.pending.add(question(who=BOB))
    await store.pending.claim("ask_1", Answer(decision="approve"), by="acme:ann", at=1500.0)
    await store.pending.settle("ask_1", "answered")

    assert (await store.forget(ANN))["events"] == 3

    told = [str(each.payload) for each in await store.events.read()]
    answered = await store.pending.get("ask_1")
    assert [("acme:ann" in text, "acme:anna" in text) for text in told] == [(False, False)] * 3 + [(True, True)] * 3
    assert answered is not None
    assert answered.answered_by == ""
    assert await store.events.verify() == []
    assert (await store.forget(BOB))["events"] == 6
    assert await store.events.verify() == []


async def test_calls_in_a_run_that_somebody_else_began_are_forgotten_too(store: AnyStore) -> None:
    await tell(store, "run_shared", BOB)
    await tell(store, "run_shared", ANN)
    kept = await store.artifacts.put(b"hers", replace(artifact(run_id="run_shared"), call_id="call_of_run_shared"))

    counts = await store.forget(ANN)
    await tell(store, "run_shared", BOB)

    assert (counts["events"], counts["runs"], counts["artifacts"]) == (3, 0, 1)
    assert [each.is_forgotten for each in await store.events.read()] == [False] * 3 + [True] * 3 + [False] * 3
    assert await store.artifacts.info(kept.id, tenant="acme") is None
    assert await store.events.verify() == []


async def test_files_that_a_person_uploaded_are_forgotten_too(store: AnyStore) -> None:
    uploads = [await store.artifacts.put(b"x", artifact(who=who, run_id=f"run_of_{who.user}")) for who in (ANN, BOB)]

    counts = await store.forget(ANN)

    assert (counts["artifacts"], await store.artifacts.list()) == (1, uploads[1:])


async def test_a_run_of_a_forgotten_person_goes_on_in_the_chain(store: AnyStore) -> None:
    await tell(store, "run_ann", ANN)
    await store.forget(ANN)
    await tell(store, "run_ann", ANN)

    assert [each.is_forgotten for each in await store.events.read()] == [True] * 3 + [False] * 3
    assert await store.events.verify() == []


async def test_the_token_of_a_forgotten_person_s_pause_resumes_nothing(store: AnyStore) -> None:
    pauses = PlannerPauses(store.state)
    theirs, claimed, resumed, others = [
        await pauses.keep({"user": str(who), "step": 1}) for who in (ANN, ANN, ANN, BOB)
    ]
    await (await pauses.claim(claimed)).save({"step": 2})
    await pauses.take(resumed)

    assert (await store.forget(ANN))["state"] == 5  # a pause; one with a claim and a step; that one was resumed
    for token in (theirs, claimed, resumed):
        with pytest.raises(KeyError, match="unknown"):
            await pauses.take(token)
    assert await pauses.take(others, user=str(BOB)) == {"user": str(BOB), "step": 1}


async def test_content_that_someone_else_has_too_stays(store: AnyStore) -> None:
    for who in (ANN, BOB):
        for each in whole_run(f"run_{who.user}", who=who):
            store.events.emit(each)
    await store.artifacts.put(b"the same", artifact(who=ANN, run_id="run_ann"))
    theirs = await store.artifacts.put(b"the same", artifact(who=BOB, run_id="run_bob"))

    counts = await store.forget(ANN)

    assert (counts["artifacts"], counts["files"]) == (1, 0)
    assert await store.artifacts.read(theirs.id, tenant="acme") == b"the same"


async def test_what_is_under_way_is_counted_and_ends_by_itself(store: AnyStore) -> None:
    await store.journal.begin(intent("call_1"))
    await store.pending.add(question())
    await store.pending.claim("ask_1", Answer(decision="approve"), by="acme:boss", at=1500.0)
    await store.keys.reserve(ANN, "k1", key_record())

    assert await store.forget(ANN) == {**NOTHING, "under_way": 2}
    await store.journal.finish("call_1", "", "result")
    await store.pending.settle("ask_1", "answered")
    await store.keys.settle(ANN, "k1", {"status": "completed"})
    assert await store.forget(ANN) == {**NOTHING, "journal": 1, "pending": 1, "keys": 1}


async def test_a_step_that_was_cut_off_is_not_under_way_once_its_run_has_ended(store: AnyStore) -> None:
    first, *others = whole_run("run_1")
    store.events.emit(first)
    await store.journal.begin(intent("call_1", "send"))
    assert (await store.forget(ANN))["under_way"] == 1

    for each in others:
        store.events.emit(each)
    counts = await store.forget(ANN)

    assert (counts["journal"], counts["under_way"]) == (1, 0)


@pytest.mark.programs
async def test_what_a_dead_process_left_is_forgotten_too(tmp_path: Path) -> None:
    with child("leave", tmp_path) as victim:
        assert said(victim) == "ready"
        victim.kill()

    async with open_store(tmp_path) as store:
        counts = await store.forget(ANN)

    assert counts == {**NOTHING, "journal": 2, "pending": 1}


async def test_a_run_that_was_told_of_a_moment_ago_counts(store: AnyStore) -> None:
    kept = await store.artifacts.put(b"content", artifact(run_id="run_new"))
    store.events.emit(event(call=whole_run("run_new")[0].call))

    assert (await store.forget(ANN))["artifacts"] == 1
    assert await store.artifacts.info(kept.id, tenant="acme") is None


async def test_nothing_of_it_is_left_in_the_file(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await fill(store, ANN)
        await tell(store, "run_more", ANN, url="forgettable.example")
    assert b"forgettable.example" in (tmp_path / "toolpost.db").read_bytes()

    async with open_store(tmp_path) as store:
        await store.forget(ANN)

    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "key"]
    assert not [path for path in files if b"forgettable.example" in path.read_bytes()]
    assert [path.name for path in files] == ["toolpost.db"]


async def test_nothing_of_them_stays_in_the_write_ahead_log_while_others_have_the_store_open(tmp_path: Path) -> None:
    async with open_store(tmp_path) as other, open_store(tmp_path) as store:
        await tell(store, "run_ann", ANN, note="canary-of-ann")
        await other.events.read()
        await store.events.read()
        before = (tmp_path / "toolpost.db-wal").read_bytes()

        await store.forget(ANN)

        after = [path for path in tmp_path.rglob("*") if path.is_file() and b"canary-of-ann" in path.read_bytes()]
    assert b"canary-of-ann" in before
    assert after == []


@pytest.mark.parametrize(
    ("who", "older"),
    [
        (Principal("local", "Ann"), "sessions/Ann"),
        (Principal("ACME", "ann@x.org"), "tenants/ACME/sessions/ann%40x%2Eorg"),
        (Principal("a~b", "C~D"), "tenants/a~b/sessions/C~D"),
    ],
    ids=str,
)
async def test_sessions_in_folders_of_an_earlier_version_are_found_and_forgotten(
    tmp_path: Path, who: Principal, older: str
) -> None:
    folder = tmp_path / older
    folder.mkdir(parents=True)
    (folder / "current.jsonl").write_text('{"role": "user", "content": "hello"}\n')
    long = Principal("local", "L" * 100)
    session_folder(tmp_path, long).mkdir(parents=True)
    async with open_store(tmp_path) as store:
        found = (session_folder(tmp_path, who) / "current.jsonl").exists()
        forgotten = await store.forget(who)

    assert (found, forgotten["sessions"]) == (True, 1)
    assert [path.name for path in tmp_path.rglob("current.jsonl")] == []
    assert session_folder(tmp_path, long).is_dir()
