"""Tests of the event log: order, pages, filters, run status, tenants and verification."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from toolpost.contracts.callers import CALLER_KEY_RUN, KEY_ID
from toolpost.contracts.events import CALLER, CallRef, EventCode, EventFilter, JsonText, RunFilter, StoredEvent
from toolpost.contracts.storage import EventRecorder, Store
from toolpost.testing.stores.base import StoreFixtures, emit
from toolpost.testing.stores.samples import (
    ANN,
    APPROVE,
    BOB,
    COMPLETED,
    EVE,
    FAILED,
    PAUSED,
    REQUESTED,
    RESUMED,
    STARTED,
    call_ref,
    caller_key,
    event,
    intent,
    question,
    whole_run,
)

_ASKED, _GRANTED = EventCode.APPROVAL_REQUESTED, EventCode.APPROVAL_GRANTED
_PROGRESS = EventCode.SUBAGENT_ACTION
_RUN_STATUS: list[tuple[str, list[tuple[str, EventCode]]]] = [  # by the events of calls
    ("running", [("one", REQUESTED)]),
    ("running", [("one", REQUESTED), ("one", STARTED)]),
    ("completed", [("one", REQUESTED), ("one", STARTED), ("one", COMPLETED)]),
    ("failed", [("one", REQUESTED), ("one", FAILED)]),
    ("paused", [("one", REQUESTED), ("one", _ASKED)]),
    ("paused", [("one", REQUESTED), ("one", STARTED), ("one", PAUSED)]),
    ("running", [("one", REQUESTED), ("one", PAUSED), ("one", _GRANTED), ("one", RESUMED)]),
    ("completed", [("one", REQUESTED), ("one", PAUSED), ("one", RESUMED), ("one", STARTED), ("one", COMPLETED)]),
    ("running", [("one", REQUESTED), ("one", STARTED), ("one", EventCode.CALL_RETRIED)]),
    # An event without a call is a completed run, until a call is requested in it.
    ("completed", [("", EventCode.CATALOG_CHANGED)]),
    ("running", [("", EventCode.CATALOG_CHANGED), ("one", REQUESTED)]),
    # A run ends with the call that began it, not with a nested call.
    ("running", [("one", REQUESTED), ("nested", REQUESTED), ("nested", COMPLETED)]),
    ("failed", [("one", REQUESTED), ("nested", REQUESTED), ("nested", COMPLETED), ("one", FAILED)]),
    ("completed", [("one", REQUESTED), ("one", COMPLETED), ("nested", STARTED)]),
    # A second call restarts the run.
    ("running", [("one", REQUESTED), ("one", COMPLETED), ("two", REQUESTED)]),
    ("failed", [("one", REQUESTED), ("one", COMPLETED), ("two", REQUESTED), ("two", FAILED)]),
]


class EventLogTests(StoreFixtures):
    """Tests of `Store.events`."""

    async def test_reading_returns_events_emitted_before(self, store: Store) -> None:
        store.events.emit(event(facts={"params": {"a": 1}}))

        (stored,) = await store.events.read()

        assert (stored.run_id, stored.call_id, stored.tenant, stored.at) == ("run_1", "call_1", "acme", 1000.0)
        assert (stored.code, stored.seq, stored.user) == (REQUESTED, 1, "ann")
        assert stored.payload == {"tool_name": "mail.send", "correlation_id": "corr_1", "params": {"a": 1}}

    async def test_an_event_given_in_parts_is_the_same_event(self, store: Store) -> None:
        assert isinstance(store.events, EventRecorder)
        for facts in ({"params": {"a": 1}}, {"summary": 3, "tool_name": "another"}, {}):
            store.events.record(call_ref(), COMPLETED, facts)
            (in_parts,) = await store.events.read(newest=True, limit=1)
            store.events.emit(event(COMPLETED, at=in_parts.at, facts=facts))
            (whole,) = await store.events.read(newest=True, limit=1)

            assert replace(in_parts, id=whole.id, seq=in_parts.seq + 1, hash=whole.hash) == whole
        assert await store.events.verify() == []

    async def test_only_redacted_facts_are_stored(self, store: Store) -> None:
        def redact(facts: Mapping[str, Any]) -> dict[str, Any]:
            return {"params": "[redacted]", "size": len(facts["params"])}

        ref = replace(call_ref(), redact=redact)
        store.events.emit(event(call=ref, facts={"params": JsonText('{"password":"hunter2"}')}))

        (stored,) = await store.events.read()

        assert stored.payload == {"tool_name": "", "correlation_id": "", "params": "[redacted]", "size": 22}

    async def test_each_run_is_numbered_from_one_without_gaps(self, store: Store) -> None:
        for pair in zip(whole_run("run_a") + whole_run("run_a"), whole_run("run_b") * 2, strict=True):
            for one in pair:
                store.events.emit(one)

        for run_id in ("run_a", "run_b"):
            assert [stored.seq for stored in await store.events.read(run_id=run_id)] == [1, 2, 3, 4, 5, 6]
        assert await store.events.read(run_id="run_x") == []

    @pytest.mark.parametrize("run_id", [None, "run_a"], ids=["whole log", "one run"])
    async def test_a_reader_continues_after_the_last_id(self, store: Store, run_id: str | None) -> None:
        for one in whole_run("run_a") + whole_run("run_b"):
            store.events.emit(one)
        every = await store.events.read(run_id=run_id)

        pages: list[StoredEvent] = []
        last = 0
        while page := await store.events.read(run_id=run_id, after=last, limit=2):
            pages += page
            last = page[-1].id

        assert pages == every
        assert [one.id for one in every] == sorted({one.id for one in every})
        assert await store.events.read(run_id=run_id, newest=True, limit=2) == every[-2:]
        assert await store.events.read(limit=0) == []

    async def test_events_are_filtered_by_tool_code_and_time(self, store: Store) -> None:
        for at, tool in ((1000.0, "mail.send"), (2000.0, "mail.read"), (3000.0, "web.get")):
            call = call_ref(f"run_{tool}", tool=tool)
            await emit(store, event(REQUESTED, call=call, at=at), event(COMPLETED, call=call, at=at))

        async def found(only: EventFilter, **options: Any) -> list[tuple[str, int]]:
            events = await store.events.read(only=only, **options)
            return [(one.run_id.removeprefix("run_"), int(one.code)) for one in events]

        send, read, get = [[(tool, 400), (tool, 410)] for tool in ("mail.send", "mail.read", "web.get")]
        assert await found(EventFilter(tool="mail.*")) == send + read
        assert await found(EventFilter(tool="mail.read", codes=frozenset({COMPLETED}))) == read[1:]
        assert await found(EventFilter(since=2000.0), limit=3) == read + get[:1]
        assert await found(EventFilter(until=2000.0)) == send + read
        assert await found(EventFilter(codes=frozenset({REQUESTED})), limit=2, newest=True) == [read[0], get[0]]

    async def test_runs_and_events_are_filtered_by_tool_user_caller_time_and_status(self, store: Store) -> None:
        for run_id, who, at, end, facts in (
            ("run_1", ANN, 100.0, COMPLETED, {}),
            ("run_2", BOB, 200.0, FAILED, {CALLER: "key:one"}),
            # The arguments name the caller of another run.
            ("run_3", BOB, 300.0, COMPLETED, {CALLER: "key:two", "params": {CALLER: "key:one"}}),
        ):
            call = call_ref(run_id, f"call_of_{run_id}", who=who, tool="web.get" if who is ANN else "mail.send")
            await emit(store, event(call=call, at=at, facts=facts), event(end, call=call, at=at + 1))

        async def runs(only: RunFilter, limit: int = 50) -> list[str]:
            return [run.run_id for run in await store.events.runs(only=only, limit=limit)]

        async def events(only: EventFilter) -> list[tuple[str, int]]:
            return [(one.run_id, int(one.code)) for one in await store.events.read(only=only)]

        assert await runs(RunFilter()) == ["run_3", "run_2", "run_1"]
        assert await runs(RunFilter(user="bob")) == ["run_3", "run_2"]
        assert await runs(RunFilter(tool="mail.*")) == ["run_3", "run_2"]
        assert await runs(RunFilter(tool="web.get")) == ["run_1"]
        assert await runs(RunFilter(caller="key:one")) == ["run_2"]
        assert await runs(RunFilter(status="completed")) == ["run_3", "run_1"]
        assert await runs(RunFilter(status="completed"), limit=1) == ["run_3"]
        assert await runs(RunFilter(since=150.0, until=250.0)) == ["run_2"]
        assert await events(EventFilter(caller="key:one")) == [("run_2", 400), ("run_2", 420)]
        assert await events(EventFilter(user="ann")) == [("run_1", 400), ("run_1", 410)]

    async def test_the_calls_of_a_key_are_found_also_after_it_was_revoked(self, store: Store) -> None:
        stored, revoked = caller_key("one", BOB), caller_key("two", ANN)
        await store.caller_keys.add(stored)
        created = CallRef(CALLER_KEY_RUN, "", "", ANN.tenant, "toolpost", "", dict)
        facts = {"key_id": revoked.id, "user": str(ANN)}
        await emit(store, event(EventCode.CALLER_KEY_CREATED, call=created, facts=facts))
        for number, key in enumerate((stored, revoked, stored)):
            call = call_ref(f"run_{number}", f"call_{number}", who=key.principal)
            await emit(store, event(call=call, facts={CALLER: f"{KEY_ID}{key.id}"}))

        for key, found in ((stored, ["run_2", "run_0"]), (revoked, ["run_1"])):
            only = RunFilter(caller=f"{KEY_ID}{key.id}")
            assert [run.run_id for run in await store.events.runs(only=only)] == found
            assert await store.events.count_runs(only=only) == len(found)
            events = await store.events.read(only=EventFilter(caller=f"{KEY_ID}{key.id}"))
            assert sorted(one.run_id for one in events) == sorted(found)

    async def test_pages_of_events_go_back_from_any_event_with_the_filters(self, store: Store) -> None:
        for number in range(4):
            who = ANN if number % 2 else EVE
            await emit(store, *whole_run(f"run_{number}", who=who, at=1000.0 + number))
        every = await store.events.read()

        for only in (EventFilter(), EventFilter(user="ann"), EventFilter(codes=frozenset({COMPLETED}), since=1001.0)):
            for tenant in (None, "acme"):
                for before in (None, *(one.id for one in every), every[-1].id + 1):
                    older = await store.events.read(tenant=tenant, only=only, before=before, newest=True, limit=2)
                    expected = [
                        one
                        for one in every
                        if (before is None or one.id < before)
                        and tenant in (None, one.tenant)
                        and only.user in (None, one.user)
                        and (not only.codes or (one.code in only.codes and one.at >= 1001.0))
                    ]
                    assert older == expected[-2:]
        of_run = await store.events.read(run_id="run_1", tenant="acme", before=every[5].id, newest=True, limit=1)
        assert [one.seq for one in of_run] == [2]

    async def test_runs_are_found_by_source_and_text_and_counted(self, store: Store) -> None:
        for run_id, tool, who in (("run_a", "mail.send", ANN), ("run_b", "mailbox", BOB), ("run_x", "web.get", EVE)):
            call = call_ref(run_id, f"call_of_{run_id}", who=who, tool=tool)
            await emit(store, event(call=call), event(COMPLETED if who is ANN else FAILED, call=call))

        async def found(only: RunFilter, tenant: str | None = "acme") -> list[str]:
            runs = await store.events.runs(tenant=tenant, only=only)
            assert await store.events.count_runs(tenant=tenant, only=only) == len(runs)
            return [run.run_id for run in runs]

        assert await found(RunFilter()) == ["run_b", "run_a"]
        assert await found(RunFilter(source="mail")) == ["run_a"]
        assert await found(RunFilter(q="MAIL")) == ["run_b", "run_a"]
        assert await found(RunFilter(q="bob")) == await found(RunFilter(status="failed")) == ["run_b"]
        assert await found(RunFilter(q="un_A", status="completed")) == ["run_a"]
        assert await found(RunFilter(q="%")) == await found(RunFilter(q="eve")) == await found(RunFilter(q="r_n")) == []
        assert await found(RunFilter(q="un_"), None) == ["run_x", "run_b", "run_a"]
        assert await found(RunFilter(caller="key:one"), None) == []

    async def test_the_details_of_a_run_follow_from_its_events(self, store: Store) -> None:
        call, inner = call_ref("run_1", "outer"), call_ref("run_1", "inner")
        await emit(store, *whole_run("corr_1"))
        await emit(
            store,
            event(call=call, at=100.0, facts={CALLER: "key:one"}),
            event(STARTED, call=call, at=101.0),
            event(call=inner, at=102.0, facts={CALLER: "key:two"}),
            event(PAUSED, call=inner, at=103.0, facts={"pending_id": "ask_1"}),
            event(RESUMED, call=inner, at=113.0, facts={"pending_id": "ask_1"}),
            event(_PROGRESS, call=call, at=114.0, facts={"text": "first", "fraction": 0.1}),
            event(FAILED, call=inner, at=115.0, facts={"error_code": "inner_code"}),
            event(_PROGRESS, call=call, at=116.0, facts={"text": "half", "fraction": 0.5}),
        )
        (run,) = [run for run in await store.events.runs() if run.run_id == "run_1"]
        (running,) = await store.events.run_details([run])
        await emit(store, event(FAILED, call=call, at=120.0, facts={"error_code": "outer_code"}))
        runs = await store.events.runs(only=RunFilter(q="run_1"))
        (ended,) = await store.events.run_details(runs)

        assert running.to_dict() == {
            "caller": "key:one",
            "source": "mail",
            "error_code": None,
            "duration_ms": 16_000.0,
            "work_ms": 6_000.0,
            "waited_ms": 10_000.0,
            "pending_ids": ["ask_1"],
            "progress": {"text": "half", "fraction": 0.5},
            "parent_run": "corr_1",
        }
        assert (ended.error_code, ended.duration_ms, ended.work_ms, ended.progress) == (
            "outer_code",
            20_000,
            10_000,
            None,
        )
        assert await store.events.run_details([]) == []

    async def test_runs_are_listed_newest_first_by_pages_of_a_tenant(self, store: Store) -> None:
        for number, who in enumerate([ANN, BOB, ANN, EVE, ANN]):
            await emit(store, *whole_run(f"run_{number}", who=who))

        async def found(user: str | None = None, before: str | None = None) -> list[str]:
            runs = await store.events.runs(tenant=ANN.tenant, only=RunFilter(user=user), before=before)
            return [run.run_id for run in runs]

        assert await found() == ["run_4", "run_2", "run_1", "run_0"]
        assert await found(before="run_2") == ["run_1", "run_0"]
        assert await found(user=ANN.user, before="run_4") == ["run_2", "run_0"]
        assert await found(before="run_3") == []  # a run of another tenant
        assert await found(before="run_none") == []

    @pytest.mark.parametrize(("status", "events"), _RUN_STATUS)
    async def test_the_status_of_a_run_follows_its_events(
        self, store: Store, status: str, events: list[tuple[str, EventCode]]
    ) -> None:
        await emit(store, *(event(code, call=call_ref("run_1", call_id)) for call_id, code in events))

        run = await store.events.run("run_1")

        assert run is not None
        assert run.status == status

    async def test_a_run_has_a_summary(self, store: Store) -> None:
        for one in whole_run("run_a"):
            store.events.emit(replace(one, at=1000.0 + one.code))

        run = await store.events.run("run_a")

        assert run is not None
        assert (run.tenant, run.user, run.tool_name, run.call_id) == ("acme", "ann", "mail.send", "call_of_run_a")
        assert (run.events, run.started_at, run.updated_at) == (3, 1400.0, 1410.0)
        assert await store.events.run("run_b") is None

    async def test_open_calls_of_a_run_are_returned_innermost_first(self, store: Store) -> None:
        outer, inner, done = [call_ref("run_1", call_id, tool=call_id) for call_id in ("outer", "inner", "done")]
        await emit(store, *(event(call=call) for call in (outer, inner, done)), event(COMPLETED, call=done))

        calls = await store.events.open_calls("run_1", tenant="acme")

        assert [(call.call_id, call.tool_name, call.user) for call in calls] == [
            ("inner", "inner", "ann"),
            ("outer", "outer", "ann"),
        ]

    async def test_two_tenants_with_one_run_id_have_a_run_each(self, store: Store) -> None:
        await emit(store, *whole_run("shared", who=ANN), event(REQUESTED, call=call_ref("shared", who=EVE)))

        theirs, ours = [await store.events.run("shared", tenant=who.tenant) for who in (EVE, ANN)]

        assert theirs is not None
        assert ours is not None
        assert (ours.status, ours.events, theirs.status, theirs.events) == ("completed", 3, "running", 1)
        assert [one.seq for one in await store.events.read(run_id="shared", tenant="evil")] == [1]
        assert [run.events for run in await store.events.runs(tenant="acme")] == [3]
        assert (await store.events.read(tenant="none"), await store.events.run("shared", tenant="none")) == ([], None)
        assert await store.events.verify("shared") == await store.events.verify() == []
        assert await store.events.verify("run_x") == ["there is no run 'run_x'"]

    async def test_verification_reports_its_progress(self, store: Store) -> None:
        for number in range(203):
            await emit(store, *whole_run(f"run_{number}", who=ANN if number else EVE))
        seen: list[tuple[int, int]] = []

        assert await store.events.verify(tenant="acme", on_progress=lambda done, of: seen.append((done, of))) == []
        assert seen[-1] == (202, 202)
        assert seen == sorted(set(seen))

    async def test_ids_and_times_that_cannot_be_stored_are_replaced(self, store: Store) -> None:
        await emit(store, event(call=call_ref("run_\ud800", "call_\udfff"), at=float("nan")))
        await emit(store, event(call=call_ref("run_\ud800", "call_é")))
        await emit(store, event(call=call_ref("run_é")))

        stored = await store.events.read()

        names = sorted((one.run_id, one.seq) for one in stored)  # runs may be committed in any order
        assert names == [("run_\\ud800", 1), ("run_\\ud800", 2), ("run_é", 1)]
        assert (stored[0].call_id, stored[0].at) == ("call_\\udfff", 0.0)
        assert await store.events.verify() == []

    async def test_a_second_answer_to_one_question_is_reported(self, store: Store) -> None:
        await store.pending.add(question())
        await emit(
            store, *(event(code, facts={"pending_id": "ask_1"}) for code in (_ASKED, _GRANTED, _ASKED, _GRANTED))
        )
        await emit(store, event(_GRANTED, facts={"pending_id": "ask_1", "recovered": True}))
        assert await store.events.verify("run_1") == []

        await emit(store, event(_GRANTED, facts={"pending_id": "ask_1"}))
        (problem,) = await store.events.verify("run_1")
        assert "'ask_1'" in problem
        assert "event 6" in problem

    async def test_a_call_that_pauses_removes_its_intent_and_verifies(self, store: Store) -> None:
        await store.pending.add(question())
        await emit(store, event(REQUESTED), event(_ASKED, facts={"pending_id": "ask_1"}))
        await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0)
        await store.pending.settle("ask_1", "answered")
        await store.journal.begin(intent())
        await store.journal.finish("call_1", "", "sent")
        await emit(store, event(COMPLETED, facts={"journaled": True}))
        assert await store.events.verify() == []

        await store.pending.add(question("ask_2"))
        await store.journal.forget("call_1", "")
        await emit(store, event(PAUSED, facts={"pending_id": "ask_2"}))
        assert await store.events.verify() == []
