"""Tests of metrics: events are counted once, by minute and by hour, for each dimension."""

from typing import Any

import pytest

from toolpost.contracts.events import EventCode
from toolpost.contracts.metrics import HOUR_S, MINUTE_S, MetricRow, percentile
from toolpost.contracts.storage import Retention, Store
from toolpost.testing.stores.base import StoreFixtures, emit
from toolpost.testing.stores.samples import ANN, EVE, call_ref, event, question

_NOON = 1_800_000_000.0 - 1_800_000_000.0 % HOUR_S
_DAY_S = 24 * 3600
_COMPLETED, _FAILED = EventCode.TOOL_CALL_COMPLETED, EventCode.TOOL_CALL_FAILED


async def _count(store: Store) -> int:
    counted = 0
    while read := await store.metrics.count(limit=3):
        counted += read
    return counted


async def _rows(
    store: Store,
    dimension: Any = "none",
    *,
    tenant: str | None = ANN.tenant,
    width: int = HOUR_S,
    key: str | None = None,
) -> list[MetricRow]:
    return await store.metrics.read(dimension, tenant=tenant, width=width, since=0, until=_NOON + _DAY_S, key=key)


class MetricTests(StoreFixtures):
    """Tests of `Store.metrics`."""

    async def test_ended_calls_are_counted_by_minute_and_hour(self, store: Store) -> None:
        call = call_ref(tool="shop.pay")
        await emit(
            store,
            event(_COMPLETED, call=call, at=_NOON, facts={"duration_ms": 100.0}),
            event(_COMPLETED, call=call, at=_NOON + 30, facts={"duration_ms": 200.0}),
            event(_FAILED, call=call, at=_NOON + 90, facts={"error_code": "timeout", "duration_ms": 9.0}),
        )
        await _count(store)

        [hour] = await _rows(store)
        assert (hour.calls, hour.failed, hour.begin, hour.last_at) == (3, 1, _NOON, _NOON + 90)
        assert [(row.begin - _NOON, row.calls, row.failed) for row in await _rows(store, width=MINUTE_S)] == [
            (0, 2, 0),
            (60, 1, 1),
        ]
        assert percentile(hour.durations, 0) == pytest.approx(100, rel=0.05)
        assert percentile(hour.durations, 1) == pytest.approx(200, rel=0.05)
        assert await store.metrics.begin(tenant=ANN.tenant) == _NOON

    @pytest.mark.parametrize(
        ("dimension", "key"),
        [
            ("tool", "shop.pay"),
            ("source", "shop"),
            ("user", ANN.user),
            ("code", "timeout"),
            ("failure", "shop.pay timeout"),
        ],
    )
    async def test_a_failure_is_counted_in_each_dimension(self, store: Store, dimension: str, key: str) -> None:
        failed = event(_FAILED, call=call_ref(tool="shop.pay"), at=_NOON, facts={"error_code": "timeout"})
        await emit(store, failed, event(_COMPLETED, call=call_ref(tool="add"), at=_NOON))
        await _count(store)

        assert [(row.key, row.failed) for row in await _rows(store, dimension, key=key)] == [(key, 1)]
        assert await _rows(store, dimension, key="another") == []

    async def test_a_denied_call_is_not_a_failed_one(self, store: Store) -> None:
        await emit(store, event(_FAILED, at=_NOON, facts={"error_code": "approval_denied"}))
        await _count(store)

        assert [(row.calls, row.failed) for row in await _rows(store)] == [(1, 0)]

    async def test_questions_are_counted_with_the_time_to_their_answers(self, store: Store) -> None:
        await store.pending.add(question(created_at=_NOON, expires_at=_NOON + 900))
        asked = {"pending_id": "ask_1", "kind": "approval"}
        await emit(
            store,
            event(EventCode.APPROVAL_REQUESTED, at=_NOON, facts=asked),
            event(EventCode.APPROVAL_GRANTED, at=_NOON + 60, facts=asked),
            event(EventCode.APPROVAL_DENIED, at=_NOON + 61, facts={"pending_id": "ask_gone"}),
            event(EventCode.QUESTION_EXPIRED, at=_NOON + 62, facts={"pending_id": "ask_3"}),
            event(EventCode.CALL_PAUSED, at=_NOON + 63, facts={"pending_id": "ask_4", "kind": "restart"}),
        )
        await _count(store)

        [row] = await _rows(store)
        assert (row.asked, row.answered, row.denied, row.expired) == (1, 1, 1, 1)
        assert sum(row.answer_times.values()) == 1
        assert percentile(row.answer_times, 0.5) == pytest.approx(60_000, rel=0.05)

    async def test_each_event_is_counted_once(self, store: Store) -> None:
        await emit(store, event(_COMPLETED, at=_NOON))
        await _count(store)
        await emit(store, event(_COMPLETED, at=_NOON + 1))
        await _count(store)

        assert await store.metrics.count() == 0
        assert [row.calls for row in await _rows(store)] == [2]

    async def test_tenants_are_apart(self, store: Store) -> None:
        await emit(store, event(_COMPLETED, at=_NOON), event(_COMPLETED, call=call_ref("run_2", who=EVE), at=_NOON))
        await _count(store)

        assert [row.calls for row in await _rows(store)] == [1]
        assert [row.calls for row in await _rows(store, tenant=EVE.tenant)] == [1]
        assert sorted(row.tenant for row in await _rows(store, tenant=None)) == sorted([ANN.tenant, EVE.tenant])
        assert await store.metrics.begin(tenant="other") is None

    async def test_facts_of_wrong_types_are_no_obstacle(self, store: Store) -> None:
        odd = {"duration_ms": "long", "error_code": {"a": 1}, "pending_id": [1], "kind": {}}
        codes = (_COMPLETED, _FAILED, EventCode.APPROVAL_REQUESTED, EventCode.CALL_RESUMED)
        await emit(store, *(event(code, at=_NOON, facts=odd) for code in codes))
        await _count(store)

        assert [(row.calls, row.asked, row.answered) for row in await _rows(store)] == [(2, 1, 1)]

    async def test_rows_of_an_erased_user_are_deleted(self, store: Store) -> None:
        await emit(store, event(_COMPLETED, at=_NOON))
        await _count(store)
        await store.forget(ANN)
        await emit(store, event(_COMPLETED, call=call_ref("run_2", who=ANN), at=_NOON))

        assert await _rows(store, "user") == []
        assert [row.calls for row in await _rows(store)] == [1]

    async def test_minutes_are_kept_for_days_and_hours_as_long_as_events(self, store: Store) -> None:
        await emit(store, event(_COMPLETED, at=_NOON))
        await _count(store)

        removed = await store.prune(Retention(), now=_NOON + 9 * _DAY_S)
        assert removed["metrics"] == 4  # the rows of a minute: all, the tool, its source, and the user
        assert await _rows(store, width=MINUTE_S) == []
        assert len(await _rows(store)) == 1
        await store.prune(Retention(max_age_s=_DAY_S), now=_NOON + 9 * _DAY_S)
        assert await _rows(store) == []
