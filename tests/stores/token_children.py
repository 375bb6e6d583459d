"""Other processes that lease rows of tokens: `token_children.py DEED FOLDER`."""

import asyncio
import os
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.stores.children import go, said
from tests.stores.conftest import open_store
from tests.warm import Program
from toolpost.contracts.storage import TokenRow


@contextmanager
def token_child(deed: str, folder: Path) -> Generator[Program]:
    """Another process; killed if it still lives at the end."""
    with Program(Path(__file__), deed, str(folder)) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def held_by_child(folder: Path, row: TokenRow) -> Generator[Program]:
    """A process that has leased the only row."""
    with token_child("hold", folder) as holder:
        assert said(holder) == f"took {row.version}"
        yield holder


def race_for_leases(stack: ExitStack, folder: Path, count: int) -> list[list[str]]:
    """The clients whose rows each of several processes got, all having tried at once."""
    racers = [stack.enter_context(token_child("race", folder)) for _ in range(count)]
    assert [said(each) for each in racers] == ["ready"] * count
    go(*racers)
    return [said(each).split() for each in racers]


async def main(deed: str, folder: Path) -> None:
    holder = "child" if deed == "hold" else os.urandom(8).hex()
    async with open_store(folder) as store:
        rows = await store.tokens.list()
        if deed == "race":
            print("ready", flush=True)
            sys.stdin.readline()
        taken = [await store.tokens.take(row.key, row.version, holder=holder, lease_s=10) for row in rows]
        mine = [row for row in taken if row and row.holder == holder]
        if deed == "hold":
            print("took", mine[0].version, flush=True)
            sys.stdin.readline()
        print(" ".join(row.key.client for row in mine), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
