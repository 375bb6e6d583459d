"""kill -9 at every boundary between a question for consent and the finished call: nothing is lost, nothing is twice.

The boundaries are not picked but counted: what one flow crosses, each of the others dies at.
"""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.life_of_a_call.account_trials import Case, Nursery, boundaries, killed_at, nursery, trial

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.programs, pytest.mark.slow]

CONSENT = "after SQLTokenRows.put 5"  # the tokens are kept; whatever comes before is the same for every tool
INTENT, RESULT = "after SQLiteJournal.begin 1", "before SQLiteJournal.finish 1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def victims() -> AsyncIterator[Nursery]:
    async with nursery() as found:
        yield found


@pytest.mark.req("OAUTH-23")
@pytest.mark.parametrize("part", ["even", "odd"])
@pytest.mark.parametrize("key", [None, "k1"], ids=["no-key", "key"])
async def test_an_effect_happens_once_wherever_the_process_is_killed(
    victims: Nursery, tmp_path: Path, key: str | None, part: str
) -> None:
    case = Case("pay", key)
    crossed = await boundaries(case, tmp_path / "whole", victims)
    tried = crossed[part == "odd" :: 2]

    asked = [
        where for number, where in enumerate(tried) if await killed_at(case, tmp_path / str(number), victims, where)
    ]

    doubtful = crossed[crossed.index(INTENT) : crossed.index(RESULT) + 1]
    assert without_events(asked) == without_events([where for where in tried if where in doubtful])
    assert len(asked) >= 2


def without_events(crossed: list[str]) -> list[str]:
    """Events are written with whatever else is on its way."""
    return [where for where in crossed if "event" not in where]


@pytest.mark.req("OAUTH-23")
@pytest.mark.parametrize(
    "case",
    [Case("look"), Case("put"), Case("pay", None, "Idempotency-Key")],
    ids=["read", "idempotent", "keyed"],
)
async def test_a_call_that_may_be_repeated_is_finished_without_asking_anybody(
    victims: Nursery, tmp_path: Path, case: Case
) -> None:
    crossed = await boundaries(case, tmp_path / "whole", victims)

    asked = [
        await killed_at(case, tmp_path / str(number), victims, where)
        for number, where in enumerate(crossed[crossed.index(CONSENT) :])
    ]

    assert asked == [False] * len(asked)
    assert len(asked) > 12


async def test_two_processes_killed_one_after_the_other_leave_it_to_a_third(victims: Nursery, tmp_path: Path) -> None:
    case, first = Case("pay"), "after POST /payments 1"
    crossed = await boundaries(case, tmp_path / "whole", victims, first=first)

    asked = [
        await killed_at(case, tmp_path / str(number), victims, first, second) for number, second in enumerate(crossed)
    ]

    assert asked == [True] * len(asked)
    assert len(asked) > 8


async def test_a_victim_dies_of_nothing_but_the_signal(victims: Nursery, tmp_path: Path) -> None:
    async with trial(Case("look"), tmp_path / "one", victims) as killed:
        assert await killed.lived("before GET /balance 1") == -signal.SIGKILL
        assert (killed.crossed[-1], killed.service.reads) == ("before GET /balance 1", 0)
