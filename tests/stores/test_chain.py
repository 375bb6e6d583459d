"""A change of the log does not go unseen."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.stores.conftest import open_store
from tests.stores.samples import whole_run
from toolpost.stores.chain import link_hash, link_ids


class Fields(NamedTuple):
    previous: bytes = b"before"
    run_id: str = "run"
    seq: int = 1
    code: int = 400
    at: float = 1.5
    call_id: str = "call"
    tenant: str = "tenant"
    payload: str = "{}"

    def digest(self) -> bytes:
        ids = link_ids(self.run_id, self.call_id, self.tenant)
        return link_hash(self.previous, ids, seq=self.seq, code=self.code, at=self.at, payload=self.payload)


@pytest.mark.parametrize(
    "other",
    [
        Fields(previous=b"Before"),
        Fields(seq=2),
        Fields(code=401),
        Fields(at=1.5000000000000002),
        Fields(run_id="runc", call_id="all"),
        Fields(call_id="callt", tenant="enant"),
        Fields(call_id="c", tenant="all|tenant"),
        Fields(tenant="tenant|", payload="{}"),
        Fields(payload="{ }"),
    ],
)
def test_every_field_counts_and_none_can_pass_for_its_neighbour(other: Fields) -> None:
    assert other.digest() != Fields().digest()


async def tampered(folder: Path, sql: str) -> list[str]:
    async with open_store(folder) as store:
        for each in whole_run("run_a"):
            store.events.emit(each._replace(facts={"note": "pay 100"}))
    with closing(sqlite3.connect(folder / "toolpost.db")) as db, db:
        assert db.execute(sql).rowcount > 0
    async with open_store(folder) as store:
        return await store.events.verify("run_a")


async def test_one_changed_byte_is_found(tmp_path: Path) -> None:
    problems = await tampered(
        tmp_path, "UPDATE events SET payload = replace(payload, 'pay 100', 'pay 900') WHERE seq = 2"
    )

    assert problems == ["event 2 was changed, or an event before it was"]


async def test_one_changed_byte_of_the_file_is_found(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        for each in whole_run("run_a"):
            store.events.emit(each._replace(facts={"note": f"pay {each.code}"}))
    path = tmp_path / "toolpost.db"
    data = path.read_bytes()
    assert data.count(b"pay 405") == 1
    path.write_bytes(data.replace(b"pay 405", b"pay 905"))

    async with open_store(tmp_path) as store:
        assert await store.events.verify("run_a") == ["event 2 was changed, or an event before it was"]


async def test_a_removed_event_is_found(tmp_path: Path) -> None:
    problems = await tampered(tmp_path, "DELETE FROM events WHERE seq = 2")

    assert problems[0] == "event 2 is missing: event 3 follows event 1"


async def test_a_cut_off_end_is_found(tmp_path: Path) -> None:
    problems = await tampered(tmp_path, "DELETE FROM events WHERE seq = 3")

    assert problems == ["the run's record ends at event 3, its events end at 2"]


async def test_an_event_given_to_another_tenant_is_found(tmp_path: Path) -> None:
    problems = await tampered(tmp_path, "UPDATE events SET tenant = 'evil' WHERE seq = 1")

    assert problems == ["event 1 was changed, or an event before it was"]
