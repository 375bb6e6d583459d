"""`toolpost up --workers N`: one process that listens and keeps N others alive, which serve."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal, NamedTuple

from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from toolpost.cli.output import Output
    from toolpost.wire.http_server import ListeningSocket

_LAST_S = 15.0  # beyond the limit of calls: for what was opened to be closed


class UpOptions(NamedTuple):
    """What `toolpost up` was told on its command line."""

    config: Path | None
    user: str
    host: str
    port: int
    view: str | None
    limit_s: float | None
    workers: int
    log_format: Literal["text", "json"] | None

    def address(self, listening: ListeningSocket) -> str:
        """Return where it is reached on this machine."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{listening.getsockname()[1]}"

    def announce(self, listening: ListeningSocket, folder: Path, output: Output) -> None:
        """Say that it serves, and where."""
        address, token = self.address(listening), str(folder / "token")
        if output.as_json:
            output.line({"mcp": f"{address}/mcp", "rest": f"{address}/api/v1", "token_file": token})
        else:
            output.note(f"MCP at {address}/mcp, REST at {address}/api/v1; the operator's token is in {token}")

    def worker_arguments(self, worker: str) -> list[str]:
        """Return the command line of one of its workers."""
        given = {
            "--config": self.config,
            "--view": self.view,
            "--shutdown-limit": self.limit_s,
            "--log-format": self.log_format,
        }
        options = {"--host": self.host, "--user": self.user, "--worker": worker}
        options |= {name: str(value) for name, value in given.items() if value is not None}
        return ["up", *(part for pair in options.items() for part in pair)]


class WorkerStart(NamedTuple):
    """What a worker is started with: its place among the others, and the sockets that it inherits."""

    number: int
    workers: int
    folder: str
    listening: int
    own: int
    again: bool

    def to_option(self) -> str:
        """Return it as the value of `--worker`."""
        return json.dumps(self._asdict())

    @classmethod
    def of_option(cls, text: str) -> WorkerStart:
        """Restore what `to_option` returned."""
        return cls(**json.loads(text))


async def run_workers(
    options: UpOptions, listening: ListeningSocket, data_folder: Path, limit_s: float, output: Output
) -> int:
    """Keep the workers alive until this is cancelled; ready once all of them are."""
    from toolpost.gateway.siblings import WorkerPlace
    from toolpost.processes.worker_pool import WorkerPool
    from toolpost.wire.http_server import notify_service_manager
    from toolpost.wire.unix_http import listen_unix

    if sys.platform == "win32":
        raise ConfigError("--workers shares a socket among processes, which Windows does not do; leave it out")
    count = options.workers
    with ExitStack() as closing:
        # Not in the data folder: the path of a socket has at most about a hundred characters.
        folder = closing.enter_context(tempfile.TemporaryDirectory(prefix="toolpost-"))
        place = WorkerPlace(0, count, folder)
        own = [closing.enter_context(listen_unix(place.socket_of(number))) for number in range(count)]

        def command(number: int, again: bool) -> list[str]:
            start = WorkerStart(number, count, folder, listening.fileno(), own[number].fileno(), again)
            return [sys.executable, "-m", "toolpost", *options.worker_arguments(start.to_option())]

        sockets = [listening.fileno(), *(one.fileno() for one in own)]
        pool = WorkerPool(command, count, sockets=sockets, report=output.note)
        serving, terminal = asyncio.current_task(), os.isatty(0)

        def hang_up() -> None:
            if terminal and not os.isatty(0) and serving is not None:
                serving.cancel()  # its terminal was closed
            else:
                pool.send(signal.SIGHUP)

        async def tell_when_ready() -> None:
            await pool.all_ready.wait()
            options.announce(listening, data_folder, output)
            notify_service_manager("READY=1")

        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, hang_up)
        telling = loop.create_task(tell_when_ready())
        try:
            return await pool.run(stop_within_s=limit_s + _LAST_S)
        finally:
            telling.cancel()
