"""Other processes at the same store: `children.py DEED FOLDER ARGUMENT`.

Each says on stdout what it has done; most wait for a line on stdin before they act, so that several act at once.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.stores.conftest import open_store
from tests.warm import Program
from toolpost.contracts.questions import Answer
from toolpost.stores.sqlite.store import SQLiteStore
from toolpost.testing.stores.samples import ANN, call_ref, event, intent, key_record, question


@contextmanager
def child(deed: str, folder: Path, argument: str = "") -> Iterator[Program]:
    """Another process; killed if it still lives at the end."""
    with Program(Path(__file__), deed, str(folder), argument) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: Program) -> str:
    """The next line that a child says."""
    return process.stdout.readline().strip()


def go(*processes: Program) -> None:
    """Let waiting children act."""
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()


def _wait() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


async def write_for_ever(store: SQLiteStore, argument: str) -> None:
    """Says how many events of each run are durable, and how many intents."""
    written = 0
    while True:
        for _ in range(25):
            for run_id in ("run_a", "run_b", "run_c"):
                store.events.emit(event(call=call_ref(run_id)))
        written += 25
        await asyncio.gather(store.events.flush(), store.journal.begin(intent(f"call_{written}")))
        print(written, flush=True)


async def append(store: SQLiteStore, argument: str) -> None:
    _wait()
    for number in range(300):
        store.events.emit(event(call=call_ref("run_shared"), facts={"by": argument}))
        if number % 10 == 0:
            await store.events.flush()


async def claim(store: SQLiteStore, argument: str) -> None:
    _wait()
    answer = Answer(decision="approve")
    claims = [await store.pending.claim(f"ask_{n}", answer, by=f"acme:{argument}", at=1500.0) for n in range(20)]
    print(" ".join(str(n) for n, claimed in enumerate(claims) if claimed), flush=True)


async def leave_unfinished(store: SQLiteStore, argument: str) -> None:
    await store.journal.begin(intent("call_unfinished"))
    await store.journal.begin(intent("call_finished"))
    await store.journal.finish("call_finished", "", 1)
    await store.pending.add(question())
    await store.pending.claim("ask_1", Answer(decision="approve"), by="acme:boss", at=1500.0)
    await store.idempotency.reserve(ANN, "k1", key_record())
    _wait()


async def adopt(store: SQLiteStore, argument: str) -> None:
    _wait()
    entries, actions = await store.journal.adopt_orphans(), await store.pending.adopt_claims()
    print(" ".join([entry.call_id for entry in entries] + [action.id for action in actions]), flush=True)
    sys.stdin.readline()  # Were it to end now, what it adopted would be an orphan again.


async def forget_to_close(store: SQLiteStore, argument: str) -> None:
    for _ in range(1000):
        store.events.emit(event())


DEEDS: dict[str, Callable[[SQLiteStore, str], Awaitable[None]]] = {
    "write": write_for_ever,
    "append": append,
    "claim": claim,
    "leave": leave_unfinished,
    "adopt": adopt,
    "forget": forget_to_close,
}


async def main(deed: str, folder: Path, argument: str) -> None:
    if deed == "open":
        _wait()
        async with open_store(folder):
            print("opened", flush=True)
        return
    store = open_store(folder)
    await DEEDS[deed](store, argument)
    if deed != "forget":
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
