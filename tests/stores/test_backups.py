"""Backups that are made while a store is used, and what becomes of the calls that were open in them."""

import asyncio
import shutil
import zipfile
from pathlib import Path

import pytest

from toolpost import Completed, Paused, Settings, Toolbox, tool
from toolpost.contracts.errors import StoreError
from toolpost.contracts.events import EventCode, EventFilter
from toolpost.contracts.questions import PendingAction
from toolpost.stores.backups import back_up, restore
from toolpost.stores.transfer import PortableBackend, find_portable
from toolpost.testing.stores.samples import ANN, artifact
from toolpost.toolbox.wiring import store_options

ANN_NAME, BOSS = "acme:ann", "acme:boss"
paid: list[str] = []
gates: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def _unpaid() -> None:
    paid.clear()
    gates["backed up"] = asyncio.Event()


@tool(side_effects="write", destructive=True)
async def pay(to: str) -> str:
    """Pay somebody."""
    paid.append(to)
    return f"paid {to}"


@tool(side_effects="write", destructive=False)
async def transfer(to: str) -> str:
    """Transfer money."""
    await gates["backed up"].wait()
    paid.append(to)
    return f"transferred to {to}"


@tool(side_effects="write", destructive=False)
async def note(text: str) -> str:
    """Write a note."""
    return text


class Place:
    """A database with its folder, as a configuration names it."""

    def __init__(self, folder: Path, database: str | None = None) -> None:
        self.settings = Settings(data_dir=folder, database=database)
        self.options = store_options(self.settings)
        self.backend: PortableBackend = find_portable(self.options)
        self.folder = folder

    def open(self) -> Toolbox:
        return Toolbox(tools=[pay, transfer, note], settings=self.settings)

    def back_up(self, target: Path) -> Path:
        return back_up(self.backend, self.options, target).path

    def restore(self, source: Path) -> int:
        return restore(self.backend, self.options, source).interrupted

    def take_key(self, other: "Place") -> None:
        self.folder.mkdir(exist_ok=True)
        shutil.copy2(other.folder / "key", self.folder / "key")


@pytest.fixture
def before(tmp_path: Path) -> Place:
    return Place(tmp_path / "before")


@pytest.fixture
def after(tmp_path: Path, before: Place) -> Place:
    place = Place(tmp_path / "after")
    before.folder.mkdir(exist_ok=True)
    return place


@pytest.fixture
async def backup(before: Place, tmp_path: Path) -> Path:
    """A backup with a completed call, an artifact, a call that waits and one that runs; both have happened since."""
    async with before.open() as box:
        await box.call("note", {"text": "kept"}, user=ANN_NAME, idempotency_key="k1")
        await box.store.artifacts.put(b"content" * 30_000, artifact())
        waiting = await box.call("pay", {"to": "bob"}, user=ANN_NAME, idempotency_key="k2")
        running = asyncio.ensure_future(box.call("transfer", {"to": "eve"}, user=ANN_NAME))
        while not await box.store.events.read(only=EventFilter(tool="transfer", codes=STARTED)):
            await box.store.events.wait(0, timeout_s=1)
        path = await asyncio.to_thread(before.back_up, tmp_path)
        gates["backed up"].set()
        await running
        assert isinstance(waiting, Paused)
        await box.approve(waiting.pending_id, by=BOSS)
        await box.call("note", {"text": "later"}, user=ANN_NAME)
    return path


STARTED = frozenset({EventCode.TOOL_CALL_STARTED})


async def unknown(box: Toolbox) -> list[PendingAction]:
    actions = await box.pending.list(by=BOSS)
    return sorted(actions, key=lambda action: action.arguments["to"])


async def test_what_was_stored_is_there_again_and_verifies(backup: Path, before: Place, after: Place) -> None:
    after.take_key(before)
    after.restore(backup)

    async with after.open() as box:
        again = await box.call("note", {"text": "kept"}, user=ANN_NAME, idempotency_key="k1")
        [kept] = await box.store.artifacts.list(tenant=ANN.tenant)
        content = await box.store.artifacts.read(kept.id, tenant=ANN.tenant)
        problems = await box.store.events.verify()
        notes = [event for event in await box.events(user=ANN_NAME) if event.payload.get("tool_name") == "note"]

    assert isinstance(again, Completed)
    assert (again.content, content, problems) == ("kept", b"content" * 30_000, [])
    assert "later" not in repr(notes)


async def test_calls_that_were_open_are_unknown_and_do_not_run_again(backup: Path, before: Place, after: Place) -> None:
    after.take_key(before)
    assert (after.restore(backup), paid) == (2, ["eve", "bob"])

    async with after.open() as box:
        questions = await unknown(box)
        kinds = [(action.question.kind, action.arguments["to"]) for action in questions]
        confirmed = await box.pending.answer(questions[0].id, by=BOSS, decision="happened")
        repeated = await box.call("pay", {"to": "bob"}, user=ANN_NAME, idempotency_key="k2")
        refuted = await box.pending.answer(questions[1].id, by=BOSS, decision="not_happened")
        problems = await box.store.events.verify()

    assert kinds == [("unknown", "bob"), ("unknown", "eve")]
    assert "was open in the backup" in questions[0].question.prompt
    assert (confirmed.status, repeated.call_id, refuted.status) == ("completed", confirmed.call_id, "failed")
    assert (problems, paid) == ([], ["eve", "bob"])


async def test_an_unknown_call_runs_again_only_if_a_person_says_so(backup: Path, before: Place, after: Place) -> None:
    after.take_key(before)
    after.restore(backup)

    async with after.open() as box:
        again = await box.pending.answer((await unknown(box))[0].id, by=BOSS, decision="rerun")
        assert isinstance(again, Paused)  # the approval that the backup did not have
        done = await box.approve(again.pending_id, by=BOSS)

    assert (done.status, paid) == ("completed", ["eve", "bob", "bob"])


async def test_positions_of_events_never_repeat(backup: Path, before: Place, after: Place) -> None:
    async with before.open() as box:
        assigned = (await box.store.events.read())[-1].id
    after.take_key(before)
    after.restore(backup)

    async with after.open() as box:
        await box.call("note", {"text": "new"}, user=ANN_NAME)
        followed = await box.store.events.read(after=assigned)

    assert "new" in repr([event.payload for event in followed])
    assert followed[-1].id < 2**53


async def test_a_backup_is_complete_while_others_write(before: Place, after: Place, tmp_path: Path) -> None:
    async with before.open() as box:

        async def write() -> None:
            for number in range(60):
                await box.call("note", {"text": str(number)}, user=ANN_NAME)
                await box.store.artifacts.put(str(number).encode(), artifact())

        writing = asyncio.ensure_future(write())
        path = await asyncio.to_thread(before.back_up, tmp_path / "during.zip")
        await writing
    after.take_key(before)
    after.restore(path)

    async with after.open() as box:
        kept = await box.store.artifacts.list(limit=1000)
        assert [len(await box.store.artifacts.read(ref.id, tenant=None)) for ref in kept] == [ref.size for ref in kept]
        assert await box.store.events.verify() == []


def damaged(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "cut off":
        path.write_bytes(data[: len(data) // 2])
    elif how == "changed":
        data[len(data) // 3] ^= 0xFF
        path.write_bytes(data)
    elif how == "another ZIP file":
        with zipfile.ZipFile(path, "w") as other:
            other.writestr("readme.txt", "hello")
    else:
        path.write_bytes(b"no backup")


@pytest.mark.parametrize("how", ["cut off", "changed", "another ZIP file", "text"])
async def test_a_damaged_backup_is_refused_and_changes_nothing(
    backup: Path, before: Place, after: Place, how: str
) -> None:
    after.take_key(before)
    damaged(backup, how)

    with pytest.raises(StoreError, match=r"damaged or incomplete|not a backup"):
        after.restore(backup)
    assert [path.name for path in after.folder.iterdir()] == ["key"]


async def test_a_backup_of_another_key_is_refused(backup: Path, before: Place, after: Place) -> None:
    async with after.open():
        pass  # which makes another key
    for path in after.folder.glob("toolpost.db*"):
        path.unlink()

    with pytest.raises(StoreError, match="was encrypted with another key"):
        after.restore(backup)
    assert not [*after.folder.glob("toolpost.db*")]
    assert (before.folder / "key").read_bytes() != (after.folder / "key").read_bytes()


async def test_a_database_with_data_is_not_overwritten(backup: Path, before: Place) -> None:
    with pytest.raises(StoreError, match=r"is not empty: it contains .*of runs"):
        before.restore(backup)
    async with before.open() as box:
        with pytest.raises(StoreError, match="1 process uses the database"):
            before.restore(backup)
        assert len(await box.store.events.runs()) == 4


async def test_a_backup_contains_no_key_and_only_its_owner_reads_it(backup: Path, before: Place) -> None:
    key = (before.folder / "key").read_bytes()
    with zipfile.ZipFile(backup) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}

    assert backup.stat().st_mode & 0o777 == 0o600
    assert not [name for name, data in parts.items() if name == "key" or key.strip() in data]
    assert "bob" not in parts["tables/pending"].decode(errors="replace")


async def test_an_existing_file_is_not_overwritten(backup: Path, before: Place) -> None:
    written = backup.read_bytes()
    with pytest.raises(StoreError, match="exists; name another file"):
        before.back_up(backup)
    assert backup.read_bytes() == written


async def test_an_artifact_without_its_content_is_reported(before: Place, tmp_path: Path) -> None:
    async with before.open() as box:
        lost = await box.store.artifacts.put(b"lost", artifact())
        await box.store.artifacts.put(b"kept", artifact())
    next((before.folder / "artifacts").glob(f"*/{lost.sha256}")).unlink()

    done = back_up(before.backend, before.options, tmp_path / "backup.zip")

    assert (done.missing, done.deleted, done.manifest.rows["artifacts"]) == ([lost.sha256], 0, 1)
