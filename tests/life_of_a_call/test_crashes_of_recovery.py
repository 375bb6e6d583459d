"""Processes that end while they recover the calls of others, and processes that are about to end a call themselves."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.stores.conftest import open_store
from toolpost import Completed, Settings, Toolbox, tool
from toolpost.contracts.outcomes import outcome_to_dict
from toolpost.contracts.questions import Answer, Question
from toolpost.events import EventCode
from toolpost.testing.stores.base import emit
from toolpost.testing.stores.samples import APPROVE, COMPLETED, REQUESTED, call_ref, event, intent, question

pytestmark = pytest.mark.sqlite
DONE = outcome_to_dict(Completed("call_1", "run_1", "wipe", "wiped"))


@pytest.mark.req("SCALE-24")
async def test_an_answer_about_an_unknown_outcome_decides_for_the_approval_before_it(tmp_path: Path) -> None:
    runs: list[str] = []

    @tool(side_effects="write", destructive=True)
    async def wipe(disk: str) -> str:
        runs.append(disk)
        return "wiped"

    approval = replace(question(), tool_name="wipe", arguments={"disk": "a"})
    unknown = Question(kind="unknown", prompt="What is the case?", key="unknown")
    answers = {approval.question.key: APPROVE}
    async with open_store(tmp_path) as killed:
        await killed.pending.add(approval)
        await killed.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0)
        # Another process asked about the outcome, and ended before it settled the approval.
        await killed.pending.add(replace(approval, id="ask_2", question=unknown, answers=answers, started=True))
        await killed.pending.claim("ask_2", Answer(decision="happened"), by="acme:boss", at=1600.0)
        await killed.pending.settle("ask_2", "answered", outcome=DONE)
        killed.abandon()

        async with Toolbox(tools=[wipe], settings=Settings(data_dir=tmp_path, lock=None)) as box:
            settled = await box.store.pending.get("ask_1")

    assert runs == []
    assert settled is not None
    assert (settled.status, settled.outcome) == ("answered", DONE)


async def test_the_answer_that_another_process_carries_out_is_awaited(tmp_path: Path) -> None:
    approval = replace(question(), tool_name="wipe", arguments={"disk": "a"})
    again = replace(approval, id="ask_2", answers={approval.question.key: APPROVE}, started=True)
    async with open_store(tmp_path) as alive, open_store(tmp_path) as killed:
        await killed.pending.add(approval)
        await killed.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0)
        await killed.pending.add(again)
        await alive.pending.claim("ask_2", APPROVE, by="acme:boss", at=1600.0)
        killed.abandon()

        async with Toolbox(settings=Settings(data_dir=tmp_path, lock=None)) as box:
            claimed = await box.store.pending.get("ask_1")
            await alive.pending.settle("ask_2", "answered", outcome=DONE)
            await box.recovery.sweep()
            settled = await box.store.pending.get("ask_1")

    assert claimed is not None
    assert settled is not None
    assert (claimed.status, settled.status, settled.outcome) == ("claimed", "answered", DONE)


async def test_a_call_whose_process_is_about_to_end_it_is_left_to_that_process(tmp_path: Path) -> None:
    async def codes(box: Toolbox) -> list[EventCode]:
        return [one.code for one in await box.store.events.read(run_id="run_1") if one.call_id == "call_1"]

    async with open_store(tmp_path) as alive, open_store(tmp_path) as killed:
        await alive.journal.begin(intent())
        await alive.journal.finish("call_1", "", DONE)
        await emit(killed, event(REQUESTED, call=call_ref()))  # another call of the run makes it the owner
        killed.abandon()

        async with Toolbox(settings=Settings(data_dir=tmp_path, lock=None)) as box:
            assert await codes(box) == [REQUESTED]
            alive.abandon()
            await box.recovery.sweep()
            await box.store.events.flush()
            assert await codes(box) == [REQUESTED, COMPLETED]
