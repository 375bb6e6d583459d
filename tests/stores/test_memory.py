"""What only the store in memory promises."""

from collections.abc import Mapping
from threading import Thread
from typing import Any

from msgspec.structs import replace

from toolpost.contracts.storage import Store
from toolpost.stores.memory.store import MemoryStore
from toolpost.testing.stores.samples import REQUESTED, call_ref, event, whole_run


async def test_it_is_a_store() -> None:
    store: Store = MemoryStore()

    await store.close()


async def test_the_oldest_finished_runs_make_room_whole() -> None:
    store = MemoryStore(max_events=10)
    for number in range(20):
        for each in whole_run(f"run_{number}"):
            store.events.emit(each)

    stored = await store.events.read()

    assert [run.run_id for run in await store.events.runs()] == ["run_19", "run_18", "run_17"]
    assert [(each.run_id, each.seq) for each in stored] == [
        (f"run_{number}", seq) for number in (17, 18, 19) for seq in (1, 2, 3)
    ]
    assert await store.events.verify("run_19") == []


async def test_a_run_that_continues_is_never_dropped() -> None:
    store = MemoryStore(max_events=4)
    store.events.emit(event(REQUESTED, call=call_ref("run_open")))
    for number in range(10):
        for each in whole_run(f"run_{number}"):
            store.events.emit(each)

    assert [run.run_id for run in await store.events.runs()] == ["run_9", "run_open"]


async def test_nothing_is_rendered_until_someone_reads() -> None:
    rendered: list[Mapping[str, Any]] = []

    def redact(facts: Mapping[str, Any]) -> dict[str, Any]:
        rendered.append(facts)
        return dict(facts)

    ref = replace(call_ref(), redact=redact)
    store = MemoryStore(max_events=100)
    for _ in range(50):
        store.events.emit(event(call=ref))

    assert await store.events.runs() != []
    assert rendered == []
    await store.events.read()
    await store.events.read()
    assert len(rendered) == 50  # each once


async def test_events_from_many_threads_are_all_kept() -> None:
    store = MemoryStore(max_events=100_000)

    def work() -> None:
        for _ in range(2000):
            store.events.emit(event())

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    stored = await store.events.read(limit=100_000)
    assert [each.seq for each in stored] == list(range(1, 8001))
    assert await store.events.verify("run_1") == []
