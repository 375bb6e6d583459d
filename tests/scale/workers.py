"""Workers as processes of their own, whose tools note what they do in a file."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from toolpost.configuration.loading import load_settings
from toolpost.contracts.jobs import Job
from toolpost.contracts.outcomes import Outcome
from toolpost.contracts.principal import Principal
from toolpost.runtime.job_runs import find_outcome
from toolpost.runtime.jobs import call_job
from toolpost.toolbox.box import Toolbox

ANN = Principal("acme", "ann")
READY = "worker is running"
_TOOLS = '''
import asyncio, os, time
from toolpost import tool

def note(name):
    with open({ledger!r}, "a", buffering=1) as ledger:
        ledger.write(f"{{name}} {{os.getpid()}} {{time.time()}}\\n")

@tool(side_effects="read")
async def fetch(name: str, seconds: float = 0.0) -> str:
    """Wait and note a call; safe to repeat."""
    await asyncio.sleep(seconds)
    note(name)
    return name

@tool(side_effects="write", destructive=False)
async def pay(name: str, seconds: float = 0.0) -> str:
    """Note an effect that must happen once."""
    note(name)
    await asyncio.sleep(seconds)
    return name

@tool(side_effects="write", destructive=True)
async def drop(name: str) -> str:
    """Note an effect that a person has to approve."""
    note(name)
    return name
'''


class Deployment:
    """A database and a folder that workers and a client share."""

    def __init__(self, folder: Path, url: str, **settings: Any) -> None:
        self.folder = folder
        self.url = url
        self.ledger = folder / "ledger"
        self.ledger.touch()
        (folder / "tools.py").write_text(_TOOLS.format(ledger=str(self.ledger)))
        background = "".join(f"  {name}: {value}\n" for name, value in settings.items())
        self.config = folder / "toolpost.yaml"
        self.config.write_text(
            f"data_dir: data\ndatabase: '{url}'\nbuiltins: none\n"
            f"sources:\n  - {{name: local, transport: python, connection: ./tools.py, trust: true}}\n"
            + (f"background:\n{background}" if background else "")
        )

    def client(self) -> Toolbox:
        """A Toolbox that stores jobs, as a gateway does, and runs none."""
        return Toolbox.open(load_settings(self.config))

    def effects(self) -> Counter[str]:
        """How often each call was made."""
        return Counter(line.split()[0] for line in self.ledger.read_text().splitlines())

    def worker_of(self) -> dict[str, int]:
        """The process of the last call of each name."""
        return {name: int(pid) for name, pid, _ in (line.split() for line in self.ledger.read_text().splitlines())}

    @contextmanager
    def worker(self, *options: str, **environment: str) -> Generator["Worker"]:
        """A worker that has begun to take jobs; it is ended by its ID."""
        worker = Worker(self.config, options, environment)
        try:
            worker.wait_until(READY)
            yield worker
        finally:
            worker.stop()


class Worker:
    """The process of `toolpost worker`."""

    def __init__(self, config: Path, options: tuple[str, ...], environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "toolpost", "worker", "--config", str(config), *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )
        self.text = ""
        self._changed = threading.Condition()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.text += line
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait_until(self, text: str, *, within_s: float = 60.0) -> None:
        """Wait until the worker has written a text."""
        deadline = time.monotonic() + within_s
        with self._changed:
            while text not in self.text:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or self.process.poll() is not None:
                    raise AssertionError(f"the worker did not write {text!r}: {self.text}")
                self._changed.wait(min(left_s, 0.2))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        self._reading.join(5)
        if self.process.stderr is not None:
            self.process.stderr.close()
        return self.process.returncode

    @property
    def seen(self) -> psutil.Process:
        return psutil.Process(self.process.pid)


def job(name: str, tool: str = "local.fetch", *, who: Principal = ANN, **arguments: Any) -> Job:
    """The job of a run of this name, whose call notes it."""
    return call_job(name, tool, {"name": name, **arguments}, principal=who, at=time.time(), queue="calls")


async def outcome_of(box: Toolbox, run_id: str, *, who: Principal = ANN) -> Outcome | None:
    """The outcome of a run now; None while it runs."""
    run = await box.run(run_id, user=str(who))
    return None if run is None else await find_outcome(box.store, run)
