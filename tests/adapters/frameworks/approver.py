"""A program that approves one pending action in a process of its own, which then makes the call."""

import asyncio
import sys
from pathlib import Path

from tests.adapters.frameworks.shelf import Shelf, toolbox
from toolpost.contracts.outcomes import outcome_to_dict


async def main(data: Path, pending_id: str, by: str) -> None:
    shelf = Shelf()
    async with toolbox(shelf, data) as box:
        outcome = await box.approve(pending_id, by=by)
    print(outcome_to_dict(outcome)["content"], len(shelf.wiped))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
