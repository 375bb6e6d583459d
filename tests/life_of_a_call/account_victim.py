"""Processes that a call and a sign-in go through, each of which kills itself where it is told to.

A boundary is the moment before or after a durable write or a request to another machine. `python -m
tests.life_of_a_call.account_victim` takes orders, one JSON document a line, forks a process for each and answers
with how it ended: forking a process that has everything imported is what makes it possible to try every boundary.
"""

import asyncio
import gc
import importlib
import json
import os
import re
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

from tests.toolbox.signing_in import logged_in, served, toolbox
from toolpost import PendingAction, Settings, Toolbox
from toolpost.contracts.events import RunEvent
from toolpost.sources.registry import load_plugins
from toolpost.stores.sqlite.transactions import TransactionRunner
from toolpost.stores.writer import Item, WriteFunction
from toolpost.toolbox.callback_app import callback_app
from toolpost.wire.client import HttpClient
from toolpost.wire.messages import Request, Response

ROOT = Path(__file__).parents[2]
ANN = "acme:ann"
# What the recovery task does again when its time has come, which depends on how fast a machine is.
_ROUNDS = frozenset(
    {
        "SQLPendingStore expired",
        "SQLPendingStore.adopt_claims",
        "SQLiteJournal._adopt",
        "SQLiteEventLog.adopt_orphans",
    }
)
_STATUS = re.compile(r"status = '(\w+)'")


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a victim does: call a tool, or go on with what another left; where it dies, or nowhere."""

    folder: str
    source: dict[str, Any]
    port: int
    tool: str
    key: str | None = None
    again: bool = False
    dies: str = ""

    @property
    def asked(self) -> Path:
        """Where the caller is told what its call waits for."""
        return Path(self.folder, "asked")

    @property
    def crossed(self) -> Path:
        """The boundaries that were crossed, in their order."""
        return Path(self.folder, "crossed")

    @property
    def imported(self) -> Path:
        """What a victim that lived had imported in the end."""
        return Path(self.folder, "imported")

    def encoded(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


class Boundaries:
    """Counts what is crossed, by name, and dies at one of them."""

    def __init__(self, order: Order) -> None:
        self._dies = order.dies
        self._log = os.open(order.crossed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.armed = order.again

    def cross(self, moment: str, names: Sequence[str]) -> None:
        for name in names if self.armed else ():
            with self._lock:
                number = self._seen[f"{moment} {name}"] = self._seen[f"{moment} {name}"] + 1
                if number > 1 and name in _ROUNDS:
                    continue
                boundary = f"{moment} {name} {number}"
                os.write(self._log, f"{boundary}\n".encode())
            if boundary == self._dies:
                os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def watched(self) -> Generator[None]:
        """Every transaction and every request of this process."""
        commit, send = TransactionRunner.commit, HttpClient.send

        def watched_commit(transactor: TransactionRunner, batch: Sequence[Item]) -> Any:
            names = [name for item in batch if (name := _name(item))]
            self.cross("before", names)
            replies = commit(transactor, batch)
            self.cross("after", names)
            return replies

        async def watched_send(client: HttpClient, request: Request) -> Response:
            names = [f"{request.method} {urlsplit(request.url).path}"]
            self.cross("before", names)
            response = await send(client, request)
            self.cross("after", names)
            return response

        with patch.object(TransactionRunner, "commit", watched_commit), patch.object(HttpClient, "send", watched_send):
            yield


def _name(item: Item) -> str:
    """What a transaction holds; nothing where it changes nothing."""
    if isinstance(item, RunEvent):
        return f"event {item.code.name}"
    if not isinstance(item, WriteFunction):
        return ""
    work: Any = item.work
    if getattr(work, "__qualname__", "").startswith(
        "SharedSQLite.write"
    ):  # a function of a part that all databases share
        (work,) = (cell.cell_contents for cell in work.__closure__ if callable(cell.cell_contents))
    work = getattr(work, "func", work)
    name = work.__qualname__.partition(".<locals>")[0]
    if name != "SQLPendingStore._change":
        return name
    changes = [cell.cell_contents for cell in work.__closure__ or ()]
    (sql,) = (change.assignments for change in changes if hasattr(change, "assignments"))
    return f"SQLPendingStore {_STATUS.findall(sql)[0]}"


async def live(order: Order, boundaries: Boundaries) -> None:
    opening = toolbox(order.source, f"http://127.0.0.1:{order.port}", Path(order.folder, "data"))
    with boundaries.watched(), socket.create_server(("127.0.0.1", order.port)) as place:
        async with opening as box, served(callback_app(box, identify=logged_in), place):
            boundaries.armed = True
            await agent(box, order.tool, order.key)
            while unsettled := [one for one in await questions(box) if one.status in {"open", "claimed"}]:
                if all(one.question.kind == "unknown" for one in unsettled):
                    return
                tell(order, unsettled)
                await asyncio.sleep(0.005)


async def agent(box: Toolbox, tool: str, key: str | None) -> None:
    """With a key it is safe to call again; without one only where nothing was kept of the call."""
    if key or not await questions(box):
        await box.call(f"bank.{tool}", {}, user=ANN, idempotency_key=key)


async def questions(box: Toolbox) -> list[PendingAction]:
    """All there ever were."""
    return await box.pending.list(by=ANN, status=None)


def tell(order: Order, unsettled: Sequence[PendingAction]) -> None:
    """Say, in one piece, where the person is sent."""
    links = [one.question.payload["auth_url"] for one in unsettled if one.question.kind == "consent"]
    if links and not order.asked.exists():
        written = order.asked.with_suffix(".part")
        written.write_text(links[0])
        written.rename(order.asked)


def main() -> None:
    load_plugins()  # reads what is installed, which the victims then need not
    for line in sys.stdin:
        order = Order(**json.loads(line))
        Settings(sources=[order.source])  # compiles the models
        gc.freeze()
        child = os.fork()
        if not child:
            asyncio.run(live(order, Boundaries(order)))
            order.imported.write_text("\n".join(sys.modules))
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if not ended:  # what one of them needed to the end, the next ones need not import again
            _import(order.imported.read_text().splitlines())
        print(ended, flush=True)


def _import(names: Sequence[str]) -> None:
    for name in names:
        with suppress(ImportError):
            importlib.import_module(name)


if __name__ == "__main__":
    main()
