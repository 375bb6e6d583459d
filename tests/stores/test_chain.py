"""A change of the log does not go unseen, and what was forgotten is no change."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.stores.conftest import AnyStore, open_store
from toolpost.contracts.errors import StoreError
from toolpost.contracts.events import EventCode
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer
from toolpost.stores.chain import LogKey, Segment
from toolpost.stores.run_heads import chain_start
from toolpost.testing.stores.samples import ANN, COMPLETED, REQUESTED, call_ref, event, intent, question, whole_run

pytestmark = pytest.mark.usefixtures("one_segment_a_call")
KEY = LogKey(b"k" * 32)
START = chain_start(1, "run", "tenant", "tool")
ROW = Segment(3, "run", "tenant", 1, "call", "user", "tool", "corr", '[[400,1.5,{"note":"hers"}]]', b"")
USER = Principal("tenant", "user")
YES = Answer(decision="approve")
CHANGED = "events 1 to 3 were changed, or an event before them was"
RECORD = "the run's record (its user, tool and status) was changed"


def chained(row: Segment, key: LogKey = KEY) -> Segment:
    """The row with the hash that it gets as the first of its run."""
    names = (row.last_id, row.seq, row.call_id, row.user, row.tool_name, row.correlation_id)
    return row._replace(hash=key.chain(START, names, row.events.encode()))


def breaks(row: Segment, start: bytes = START) -> list[str]:
    return KEY.find_breaks([(row, row.unpack())], start, last_seq=1, mac=KEY.end_mac(row.hash))


@pytest.mark.parametrize(
    "other",
    [
        ROW._replace(last_id=4),
        ROW._replace(call_id="callu", user="ser"),
        ROW._replace(user="usert", tool_name="ool"),
        ROW._replace(call_id='call","user', user="tool"),
        ROW._replace(tool_name="toolc", correlation_id="orr"),
        ROW._replace(correlation_id="corr["),
        ROW._replace(events='[[401,1.5,{"note":"hers"}]]'),
        ROW._replace(events='[[400,1.5000000000000002,{"note":"hers"}]]'),
        ROW._replace(events='[[400,1.5,{"note":"hers" }]]'),
    ],
)
def test_every_field_counts_and_none_can_pass_for_its_neighbour(other: Segment) -> None:
    forged = other._replace(hash=chained(ROW).hash)

    assert "event 1 was changed, or an event before it was" in breaks(forged)


@pytest.mark.parametrize(
    "name", [(2, "run", "tenant", "tool"), (1, "runt", "enant", "tool"), (1, "run", "tenan", "ttool")]
)
def test_a_run_cannot_take_the_name_of_another(name: tuple[int, str, str, str]) -> None:
    genuine = chained(ROW)

    assert (
        KEY.find_breaks([(genuine, genuine.unpack())], chain_start(*name), last_seq=1, mac=KEY.end_mac(genuine.hash))
        != []
    )


def test_without_the_key_no_event_can_be_made() -> None:
    genuine, forged = chained(ROW), chained(ROW, LogKey(b"x" * 32))

    assert breaks(genuine) == []
    assert breaks(forged) != []


def test_what_is_left_of_a_forgotten_event_cannot_be_changed() -> None:
    forgotten, count = KEY.forget(chained(ROW), START, USER)
    changed = [
        forgotten._replace(tool_name="another"),
        forgotten._replace(user="bob"),
        forgotten._replace(events=ROW.events),
        forgotten._replace(forgotten=None),
    ]

    assert (count, forgotten.user, forgotten.correlation_id) == (1, "", "")
    assert (forgotten.events, forgotten.hash) == ('[[400,1.5,{"forgotten":true}]]', chained(ROW).hash)
    assert breaks(forgotten) == []
    assert [each for each in changed if not breaks(each)] == []
    assert (
        KEY.find_breaks([(forgotten, forgotten.unpack())], b"elsewhere", last_seq=1, mac=KEY.end_mac(forgotten.hash))
        != []
    )


def test_a_damaged_event_of_a_person_goes_too() -> None:
    forgotten, count = KEY.forget(chained(ROW)._replace(events='[[400,1.5,{"note":"hers'), START, USER)

    assert (count, forgotten.events, forgotten.user) == (1, "[]", "")


async def fill(folder: Path) -> None:
    """Three runs, each of a whole call and a notice after it; one waited for an answer."""
    async with open_store(folder) as store:
        for name in ("run_a", "run_b", "run_c"):
            for each in whole_run(name):
                store.events.emit(replace(each, facts={"note": "pay 100"}))
            store.events.emit(event(EventCode.ARTIFACT_STORED, call=call_ref(name)))
        await store.pending.add(question(run_id="run_b"))
        await store.pending.claim("ask_1", YES, by="acme:boss", at=1500.0)
        await store.pending.settle("ask_1", "answered")


def change(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / "toolpost.db")) as db, db:
        for sql in statements:
            assert db.execute(sql).rowcount > 0


async def tampered(folder: Path, *statements: str) -> list[str]:
    await fill(folder)
    change(folder, *statements)
    async with open_store(folder) as store:
        return await store.events.verify()


OF_B = "run 'run_b' of 'acme': "
MISCOUNT = "the log should contain 3 runs and contains 2: runs were removed or added"
LEDGER = "the ledger of the log was changed, so the expected number of runs is unknown"
ASK = "question 'ask_1' was changed: its status, or the user who answered it"
RUN = "run = (SELECT nr FROM runs WHERE run_id = 'run_b')"
FIRST, LAST = f"WHERE {RUN} AND seq = 1", f"WHERE {RUN} AND seq = 4"
B = "WHERE run_id = 'run_b'"
SHORTER = f"UPDATE runs SET last_seq = 3 {B}"
MAC_SET = f"UPDATE runs SET mac = (SELECT hash FROM segments {FIRST}) {B}"
GONE = "event 1 is missing: event 4 follows event 0"
FORGERIES = [
    ([f"UPDATE segments SET events = replace(events, '100', '900') {FIRST}"], OF_B + CHANGED),
    (
        [f"UPDATE segments SET events = '[[400,1.0,{{\"forgotten\":true}}]]' {LAST}"],
        OF_B + "event 4 was changed, or an",
    ),
    ([f"UPDATE segments SET user = 'bob' {FIRST}"], OF_B + CHANGED),
    ([f"UPDATE segments SET call_id = 'call_x' {FIRST}"], OF_B + CHANGED),
    ([f"UPDATE segments SET tool_name = 'mail.read' {FIRST}"], OF_B + CHANGED),
    ([f"UPDATE segments SET correlation_id = '' {FIRST}"], OF_B + CHANGED),
    ([f"UPDATE segments SET seq = 2 {FIRST}"], OF_B + "event 1 is missing: event 2 follows event 0"),
    ([f"DELETE FROM segments {FIRST}"], OF_B + GONE),
    ([f"DELETE FROM segments {LAST}"], OF_B + "the run's record ends at event 4, its events end at 3"),
    ([f"DELETE FROM segments {LAST}", SHORTER], OF_B + RECORD),
    ([f"DELETE FROM segments {LAST}", SHORTER, MAC_SET], OF_B + RECORD),
    ([f"DELETE FROM segments WHERE {RUN}", f"DELETE FROM runs {B}"], MISCOUNT),
    ([f"UPDATE runs SET user = 'bob' {B}"], OF_B + RECORD),
    ([f"UPDATE runs SET tool_name = 'mail.read' {B}"], OF_B + CHANGED),
    ([f"UPDATE runs SET run_id = 'run_x' {B}"], "run 'run_x' of 'acme': " + CHANGED),
    ([f"UPDATE runs SET status = 'failed' {B}"], OF_B + RECORD),
    ([f"UPDATE runs SET root_call = 'call_x' {B}"], OF_B + RECORD),
    ([f"UPDATE runs SET open_calls = 1 {B}"], OF_B + RECORD),
    ([f"UPDATE runs SET started_at = 1 {B}"], OF_B + RECORD),
    ([f"UPDATE runs SET updated_at = 1 {B}"], OF_B + RECORD),
    ([f"UPDATE runs SET nr = 9 {B}"], "run number 2: it has no record, but 2 rows of events"),
    ([f"UPDATE segments SET last_id = 99 {FIRST}"], OF_B + CHANGED),
    (["UPDATE pending SET answered_by = 'acme:ann'"], OF_B + ASK),
    (["UPDATE pending SET status = 'open'"], OF_B + ASK),
    (["UPDATE pending SET run_id = 'elsewhere'"], ASK),
    (["UPDATE ledger SET runs = 4"], LEDGER),
    (["DELETE FROM ledger"], LEDGER),
    ([f"UPDATE segments SET events = x'00' {FIRST}"], OF_B),
    ([f"UPDATE segments SET hash = 'text' {FIRST}"], OF_B),
    ([f"UPDATE segments SET seq = 1e300 {LAST}"], OF_B),
    ([f"UPDATE runs SET mac = 'text' {B}"], "a run was replaced by another"),
]


@pytest.mark.parametrize(("statements", "found"), FORGERIES)
async def test_what_was_changed_from_outside_is_found(tmp_path: Path, statements: list[str], found: str) -> None:
    assert found in "\n".join(await tampered(tmp_path, *statements))


async def test_an_untouched_log_verifies_also_when_several_stores_wrote_it(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with open_store(tmp_path) as one, open_store(tmp_path) as two:
        for store in (one, two, one):
            for each in whole_run("run_a") + whole_run(f"run_{store.owner_id}"):
                store.events.emit(each)
            await store.events.flush()
        assert await one.events.verify() == await two.events.verify() == []


async def test_a_forged_run_is_found(tmp_path: Path) -> None:
    problems = await tampered(
        tmp_path,
        "INSERT INTO segments SELECT last_id + 100, run + 100, seq, call_id, user, tool_name, correlation_id, events,"
        f" hash, NULL, codes, first_at, last_at FROM segments {FIRST}",
    )

    assert problems == ["run number 102: it has no record, but 1 row of events"]


@pytest.mark.parametrize("change", ["codes = '400'", "first_at = first_at + 1", "last_at = 0"])
async def test_an_event_that_filters_would_miss_is_found(tmp_path: Path, change: str) -> None:
    problems = await tampered(tmp_path, f"UPDATE segments SET {change} {FIRST}")

    assert problems == [f"{OF_B}the columns that filters use for event 1 were changed"]


async def test_a_run_put_back_to_how_it_was_with_all_its_records_is_found(tmp_path: Path) -> None:
    await fill(tmp_path)
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db:
        before = db.execute("SELECT * FROM runs WHERE run_id = 'run_a'").fetchone()
    async with open_store(tmp_path) as store:
        store.events.emit(event(REQUESTED, call=call_ref("run_a", "call_2")))
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
        db.execute("DELETE FROM segments WHERE run = ? AND seq = 5", (before[0],))
        db.execute(f"REPLACE INTO runs VALUES ({', '.join('?' * len(before))})", before)

    async with open_store(tmp_path) as store:
        assert await store.events.verify("run_a") == []
        assert await store.events.verify() == ["a run was replaced by another, or restored to an earlier state"]


async def test_what_was_changed_still_shows_after_the_run_went_on(tmp_path: Path) -> None:
    await fill(tmp_path)
    change(tmp_path, "UPDATE runs SET user = 'bob' WHERE run_id = 'run_a'", "UPDATE pending SET answered_by = 'x'")

    async with open_store(tmp_path) as store:
        store.events.emit(event(COMPLETED, call=call_ref("run_a")))
        assert await store.events.verify("run_a") == [RECORD]
        assert len(await store.events.verify("run_b")) == 1


@pytest.mark.parametrize("goes_on", ["event", "forget"])
async def test_a_run_that_was_cut_short_still_shows_after_it_went_on(tmp_path: Path, goes_on: str) -> None:
    await fill(tmp_path)
    change(tmp_path, f"DELETE FROM segments {LAST}", SHORTER)

    async with open_store(tmp_path) as store:
        if goes_on == "event":
            store.events.emit(event(COMPLETED, call=call_ref("run_b")))
        else:
            await store.forget(ANN)
        assert len(await store.events.verify("run_b")) == 1
        assert OF_B in "".join(await store.events.verify())


async def test_what_was_changed_still_shows_after_its_person_is_forgotten(tmp_path: Path) -> None:
    await fill(tmp_path)
    change(tmp_path, f"UPDATE segments SET events = replace(events, '100', '900') {FIRST}")

    async with open_store(tmp_path) as store:
        await store.forget(ANN)
        assert await store.events.verify("run_b") == [CHANGED]


async def test_a_question_opened_again_from_outside_is_not_answered(tmp_path: Path) -> None:
    await fill(tmp_path)
    change(tmp_path, "UPDATE pending SET status = 'open', answered_by = NULL, answered_at = NULL")

    async with open_store(tmp_path) as store:
        with pytest.raises(StoreError, match="question 'ask_1' was changed outside of toolpost and cannot be answered"):
            await store.pending.claim("ask_1", YES, by="acme:eve", at=1500.0)


async def journaled_call(store: AnyStore) -> None:
    """A call that asked a person, was journaled and completed."""
    await store.pending.add(question())
    store.events.emit(event(REQUESTED))
    store.events.emit(event(EventCode.APPROVAL_REQUESTED, facts={"pending_id": "ask_1"}))
    await store.pending.claim("ask_1", YES, by="acme:boss", at=1500.0)
    await store.pending.settle("ask_1", "answered")
    await store.journal.begin(intent())
    await store.journal.finish("call_1", "", "sent")
    store.events.emit(event(COMPLETED, facts={"journaled": True}))


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ("pending", "question 'ask_1' was removed, although event 2 reports that it was created"),
        ("journal", "the journal entry of call 'call_1' was removed, although event 3 reports that it was written"),
    ],
)
async def test_a_row_of_a_call_that_was_removed_from_outside_is_found(tmp_path: Path, table: str, found: str) -> None:
    async with open_store(tmp_path) as store:
        await journaled_call(store)
        assert await store.events.verify() == []
    change(tmp_path, f"DELETE FROM {table}")

    async with open_store(tmp_path) as store:
        assert await store.events.verify() == [f"run 'run_1' of 'acme': {found}"]
        assert await store.events.verify("run_1") == [found]


async def test_a_key_that_does_not_open_any_more_is_reported_and_never_hidden(tmp_path: Path) -> None:
    problems = await tampered(tmp_path, "UPDATE ledger SET key = x'0200'")

    assert "the ledger of the log was changed" in problems[0]
