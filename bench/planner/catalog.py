"""The catalog that agents of others drive: a Toolbox in memory with the tool of a run."""

from __future__ import annotations

from typing import Any

from bench.core.subject import add3
from toolpost.catalog.function import tool
from toolpost.configuration.settings import Settings
from toolpost.contracts.outcomes import Completed
from toolpost.toolbox.box import Toolbox


def opened() -> Toolbox:
    """The Toolbox, not yet open."""
    return Toolbox(tools=[tool(side_effects="pure")(add3)], settings=Settings(data_dir=None))


async def called(box: Toolbox, name: str, arguments: dict[str, Any]) -> Any:
    """What a call comes to."""
    outcome = await box.call(name, arguments)
    if not isinstance(outcome, Completed):
        raise RuntimeError(f"the call under test {outcome.status}: {outcome}")  # noqa: TRY004 - no caller's mistake
    return outcome.content
