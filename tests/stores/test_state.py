"""Planner state on disk."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.stores.conftest import open_store
from toolpost.testing.stores.samples import STATE_EVENT


@pytest.mark.req("STATE-02")
async def test_state_survives_a_restart_encrypted(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.state.save_event(replace(STATE_EVENT, payload={"note": "event-secret"}))
        await store.state.save_planner_state("the-token", {"note": "pause-secret"})
    raw = b"".join(path.read_bytes() for path in tmp_path.glob("toolpost.db*"))

    assert not [word for word in (b"event-secret", b"pause-secret", b"the-token") if word in raw]
    async with open_store(tmp_path) as store:
        assert await store.state.load_planner_state("the-token") == {"note": "pause-secret"}
        (event,) = await store.state.load_history("trace_1")
        assert event.payload == {"note": "event-secret"}
