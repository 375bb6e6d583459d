"""Calls of a process that lost its lease between two attempts."""

from pathlib import Path

import pytest

from tests.postgres.stores import end_lease, open_judge
from toolpost import Failed, Toolbox, tool
from toolpost.contracts.errors import ToolConnectionError

pytestmark = pytest.mark.programs


@pytest.mark.req("SCALE-20")
async def test_a_call_that_another_process_has_taken_over_is_not_retried(postgres_url: str, tmp_path: Path) -> None:
    runs = 0

    @tool(side_effects="external", destructive=False, replay="unsafe")
    async def pay() -> str:
        """Pay."""
        nonlocal runs
        runs += 1
        if runs == 1:
            end_lease(postgres_url, box.store.journal.owner_id)
            assert len(await judge.journal.adopt_orphans()) == 1
            raise ToolConnectionError("pay could not connect", sent=False)
        return "paid"

    settings = {"database": postgres_url, "data_dir": str(tmp_path), "lock": None}
    async with open_judge(postgres_url, tmp_path) as judge, Toolbox(tools=[pay], settings=settings) as box:
        outcome = await box.call("pay", {})

    assert runs == 1
    assert isinstance(outcome, Failed)
    assert outcome.error.error_code == "taken_over"
