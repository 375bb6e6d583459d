"""A database with its folder, and calls that are open when it is copied."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

from toolpost import Paused, Settings, Toolbox, tool
from toolpost.stores.backups import back_up, restore
from toolpost.stores.moves import ConfiguredDatabase
from toolpost.stores.transfer import COPIED, LogState, find_portable
from toolpost.testing.stores.samples import ANN, artifact, token_key
from toolpost.toolbox.wiring import store_options

ANN_NAME, BOSS = "acme:ann", "acme:boss"
CONTENT = b"content" * 30_000
paid: list[str] = []
gates: dict[str, asyncio.Event] = {}


@tool(side_effects="write", destructive=True)
async def pay(to: str) -> str:
    """Pay somebody."""
    paid.append(to)
    return f"paid {to}"


@tool(side_effects="write", destructive=False)
async def transfer(to: str) -> str:
    """Transfer money."""
    gates["running"].set()
    await gates["backed up"].wait()
    paid.append(to)
    return f"transferred to {to}"


@tool(side_effects="write", destructive=False)
async def note(text: str) -> str:
    """Write a note."""
    return text


class Kept:
    """A database, as a configuration names it."""

    def __init__(self, folder: Path, database: str | None = None) -> None:
        self.settings = Settings(data_dir=folder, database=database)
        self.folder = folder
        self.options = store_options(self.settings)
        self.place = ConfiguredDatabase(find_portable(self.options), self.options)

    def open(self) -> Toolbox:
        return Toolbox(tools=[pay, transfer, note], settings=self.settings)

    def back_up(self, target: Path) -> Path:
        return back_up(self.place.backend, self.options, target).path

    def restore(self, source: Path) -> int:
        return restore(self.place.backend, self.options, source).interrupted

    def take_key(self, other: "Kept") -> None:
        self.folder.mkdir(exist_ok=True)
        shutil.copy2(other.folder / "key", self.folder / "key")

    def content(self) -> tuple[dict[str, list[Any]], LogState]:
        """All rows that are copied, by table, and the ledger."""
        with self.place.backend.snapshot(self.options) as found:
            rows = {table: [row for batch in found.rows(table) for row in batch] for table in COPIED}
            columns = {table: found.columns(table) for table in COPIED}
            return {table: [dict(zip(columns[table], row, strict=True)) for row in rows[table]] for table in COPIED}, (
                found.log
            )


async def fill(box: Toolbox) -> str:
    """Write records of most kinds; return the question of a call that waits."""
    await box.call("note", {"text": "kept"}, user=ANN_NAME, idempotency_key="k1")
    await box.store.artifacts.put(CONTENT, artifact())
    await box.store.tokens.put(token_key(), {"access": "secret-token"})
    await box.store.state.save_planner_state("pause-token", {"step": 1})
    await box.store.metrics.count()
    waiting = await box.call("pay", {"to": "bob"}, user=ANN_NAME, idempotency_key="k2")
    assert isinstance(waiting, Paused)
    return waiting.pending_id


async def back_up_and_continue(kept: Kept, target: Path) -> Path:
    """Back up while one call waits and one runs, both of which happen afterwards."""
    gates.update({"running": asyncio.Event(), "backed up": asyncio.Event()})
    async with kept.open() as box:
        question = await fill(box)
        running = asyncio.ensure_future(box.call("transfer", {"to": "eve"}, user=ANN_NAME))
        await gates["running"].wait()
        path = await asyncio.to_thread(kept.back_up, target)
        gates["backed up"].set()
        await running
        await box.approve(question, by=BOSS)
        await box.call("note", {"text": "later"}, user=ANN_NAME)
    return path


async def read_everything(kept: Kept) -> None:
    """Check that what `fill` wrote is there and verifies."""
    async with kept.open() as box:
        again = await box.call("note", {"text": "kept"}, user=ANN_NAME, idempotency_key="k1")
        [ref] = await box.store.artifacts.list(tenant=ANN.tenant)
        token = await box.store.tokens.get(token_key())
        state = await box.store.state.load_planner_state("pause-token")
        content = await box.store.artifacts.read(ref.id, tenant=ANN.tenant)
        problems = await box.store.events.verify()
    assert (again.status, content, problems, state) == ("completed", CONTENT, [], {"step": 1})
    assert token is not None
    assert token.body == {"access": "secret-token"}


async def settle_unknown_calls(kept: Kept) -> None:
    """Check that both open calls of the backup are unknown, and settle them; nothing runs."""
    before = [*paid]
    async with kept.open() as box:
        questions = sorted(await box.pending.list(by=BOSS), key=lambda action: str(action.arguments["to"]))
        kinds = [(action.question.kind, action.arguments["to"]) for action in questions]
        confirmed = await box.pending.answer(questions[0].id, by=BOSS, decision="happened")
        repeated = await box.call("pay", {"to": "bob"}, user=ANN_NAME, idempotency_key="k2")
        refuted = await box.pending.answer(questions[1].id, by=BOSS, decision="not_happened")
        problems = await box.store.events.verify()
    assert kinds == [("unknown", "bob"), ("unknown", "eve")]
    assert "was open in the backup" in questions[0].question.prompt
    assert (confirmed.status, repeated.call_id, refuted.status) == ("completed", confirmed.call_id, "failed")
    assert (problems, paid) == ([], before)
