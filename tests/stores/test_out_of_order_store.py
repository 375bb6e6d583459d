"""The third store is what it is written for: slow, and out of order."""

from pathlib import Path

from tests.stores.out_of_order_store import open_out_of_order
from toolpost.testing.stores.samples import call_ref, event


async def test_runs_become_visible_in_another_order_than_they_were_emitted(tmp_path: Path) -> None:
    store, names = open_out_of_order(tmp_path), [f"run_{number:02}" for number in range(30)]
    for name in names:
        store.events.emit(event(call=call_ref(name)))
    read = await store.events.read()
    await store.close()

    assert sorted(stored.run_id for stored in read) == names
    assert [stored.run_id for stored in read] != names
    assert [stored.id for stored in read] == sorted(stored.id for stored in read)
