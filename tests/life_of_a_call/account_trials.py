"""Trials: a call that waits for an account is killed at one boundary, and then whoever is concerned goes on.

The agent calls again where it has nothing in hand, the person's browser comes back with what it was given or begins
anew, and a person is asked where nobody can know. `python -m tests.life_of_a_call.account_trials --tool pay` tries
every boundary of one tool; with `--twice` every boundary of the process that goes on is tried as well.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from tests.life_of_a_call.account_victim import ANN, ROOT, Order, agent, questions
from tests.life_of_a_call.strict_service import TOOLS, StrictService
from tests.parts import reserved_port
from tests.toolbox.signing_in import Person, logged_in, served, toolbox
from toolpost import PendingAction, Toolbox
from toolpost.contracts.events import RunSummary
from toolpost.contracts.questions import Decision
from toolpost.toolbox.callback_app import callback_app

PATIENCE_S = 60.0


class Case(NamedTuple):
    """A tool, whether its caller gives a key, and whether the service knows keys."""

    tool: str
    key: str | None = None
    header: str | None = None


class Nursery:
    """Starts victims and says how they ended."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def run(self, order: Order) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(order.encoded())
        return int(await self._process.stdout.readline())


@asynccontextmanager
async def nursery() -> AsyncGenerator[Nursery]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "tests.life_of_a_call.account_victim")
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=env, stdin=pipe, stdout=pipe)
    try:
        yield Nursery(process)
    finally:
        process.kill()
        await process.wait()


class Ann(Person):
    """Signs in, and remembers the address that the service sent her browser to."""

    back = ""

    async def signs_in(self, link: str) -> int:
        shown = await self.opens(link)
        if shown.status_code != 200:
            return shown.status_code
        sent = await self.presses(shown)
        assert sent.status_code == 303, sent.text
        self.back = (await self.opens(sent.headers["location"])).headers["location"]
        return await self.comes_back()

    async def comes_back(self) -> int:
        """What a browser does when the page did not load and its user tries again."""
        return (await self.opens(self.back)).status_code if self.back else 0


@dataclass
class Trial:
    """One flow, from the question to the end, through as many processes as it takes."""

    case: Case
    folder: Path
    service: StrictService
    nursery: Nursery
    port: int
    ann: Ann = field(default_factory=Ann)
    unknown: bool = False
    runs: list[RunSummary] = field(default_factory=list[RunSummary])

    @property
    def source(self) -> dict[str, Any]:
        return self.service.source(self.folder, idempotency_header=self.case.header)

    def order(self, dies: str = "", *, again: bool = False) -> Order:
        tool, key, _ = self.case
        where = str(self.folder)
        return Order(folder=where, source=self.source, port=self.port, tool=tool, key=key, again=again, dies=dies)

    async def lived(self, dies: str = "", *, again: bool = False) -> int:
        """How a process ended that the flow went through, while the person did what she could."""
        order = self.order(dies, again=again)
        order.asked.unlink(missing_ok=True)
        ended = asyncio.ensure_future(self.nursery.run(order))
        while not ended.done() and not order.asked.exists():
            await asyncio.sleep(0.002)
        if order.asked.exists():
            with suppress(httpx2.TransportError):
                await self.ann.signs_in(order.asked.read_text())
        return await ended

    @property
    def crossed(self) -> list[str]:
        """The boundaries of the last process."""
        return self.order().crossed.read_text().splitlines()

    async def goes_on(self) -> list[PendingAction]:
        """A fresh process, to the end; gives every question there ever was, each with what came of it."""
        async with self.opened() as box:
            await agent(box, self.case.tool, self.case.key)
            await self.ann.comes_back()
            async with asyncio.timeout(PATIENCE_S):
                while unsettled := [one for one in await questions(box) if one.status in {"open", "claimed"}]:
                    await self._people(box, unsettled)
            asked = await questions(box)
            self.runs = [run for one in asked if (run := await box.run(one.run_id, user=ANN))]
            return asked

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Toolbox]:
        opening = toolbox(self.source, f"http://127.0.0.1:{self.port}", self.folder / "data")
        with socket.create_server(("127.0.0.1", self.port)) as place:
            async with opening as box, served(callback_app(box, identify=logged_in), place):
                yield box

    async def _people(self, box: Toolbox, unsettled: list[PendingAction]) -> None:
        for action in unsettled:
            if action.question.kind == "unknown":
                self.unknown = True
                decision: Decision = "happened" if self.service.effects else "rerun"
                await box.answer(action.id, "as seen at the bank", by=ANN, decision=decision)
            elif action.status == "open" and await self.ann.signs_in(action.question.payload["auth_url"]) != 200:
                await box.recovery.sweep()  # connected before: nobody needs to be asked
        await asyncio.sleep(0.005)

    def check(self, asked: list[PendingAction]) -> None:
        """Nothing is lost: the call, and there is one, has come to its end. Nothing happened twice."""
        newest, *older = asked
        assert {one.call_id for one in older} <= {newest.call_id}
        assert newest.outcome is not None
        assert newest.outcome["status"] == "completed"
        assert all(one.outcome and one.outcome["status"] == "paused" for one in older)
        assert {run.status for run in self.runs} == {"completed"}
        assert self.service.refusals == []
        if self.case.tool == "look":
            assert self.service.reads >= 1
        else:
            assert len(self.service.effects) == 1


@asynccontextmanager
async def trial(case: Case, folder: Path, nursery: Nursery) -> AsyncGenerator[Trial]:
    folder.mkdir()
    async with StrictService() as service, Ann() as ann:
        with reserved_port() as port:
            yield Trial(case, folder, service, nursery, port, ann)


async def boundaries(case: Case, folder: Path, nursery: Nursery, *, first: str = "") -> list[str]:
    """All that a flow crosses when nobody dies; with `first`, all that the process crosses that goes on after that."""
    async with trial(case, folder, nursery) as whole:
        if first:
            assert await whole.lived(first) == -signal.SIGKILL
        assert await whole.lived(again=bool(first)) == 0
        return whole.crossed


async def killed_at(case: Case, folder: Path, nursery: Nursery, *where: str) -> bool:
    """Kill one process after the other, then check what came of it; whether a person had to say what had happened."""
    async with trial(case, folder, nursery) as trying:
        ended = [await trying.lived(dies, again=number > 0) for number, dies in enumerate(where)]
        trying.check(await trying.goes_on())
        if ended != [-signal.SIGKILL] * len(where):
            raise UnreachedError(f"they ended with {ended} and never came to all of {where}")
        return trying.unknown


class UnreachedError(Exception):
    """It came to a good end without being killed everywhere: who comes second depends on how fast people are."""


async def every(case: Case, *, twice: bool) -> None:
    """Try all there are and print what came of it."""
    began, counted, wrong = time.monotonic(), Counter[str](), list[str]()
    with tempfile.TemporaryDirectory() as scratch:
        async with nursery() as victims:
            for first in await boundaries(case, Path(scratch, "whole"), victims):
                number = counted.total()
                seconds = await boundaries(case, Path(scratch, f"{number}-"), victims, first=first) if twice else []
                for where in ((first,), *((first, second) for second in seconds)):
                    folder = Path(scratch, str(counted.total()))
                    try:
                        counted["unknown" if await killed_at(case, folder, victims, *where) else "finished"] += 1
                    except UnreachedError:
                        counted["unreached"] += 1
                    except (AssertionError, TimeoutError) as error:
                        counted["wrong"] += 1
                        wrong.append(f"{where}: {error!r}")
                print(f"{counted.total()} tried, last {first!r}", file=sys.stderr)
    told = {**case._asdict(), "tried": counted.total(), **counted, "lost or twice": wrong}
    print(json.dumps({**told, "seconds": round(time.monotonic() - began, 1)}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", choices=TOOLS, default="pay")
    parser.add_argument("--key", help="the caller's idempotency key")
    parser.add_argument("--header", help="the header in which the service takes keys")
    parser.add_argument("--twice", action="store_true", help="kill the process that goes on, too")
    chosen = parser.parse_args()
    asyncio.run(every(Case(chosen.tool, chosen.key, chosen.header), twice=chosen.twice))


if __name__ == "__main__":
    main()
