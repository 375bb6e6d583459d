"""Rogue servers for a test: their plans, their configurations, what they received, and their processes."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.patient_settings import PatientSettings
from tests.sources.mcp.rogue import Message
from toolpost import ExternalToolConfig, Tool, Toolbox

ROOT = Path(__file__).parent.parent.parent.parent
PYTHON = [sys.executable, "-S", "-s"]  # without site-packages it starts in a tenth of the time
LONGEST_TEST_S = 100.0

READ_ONLY = {"readOnlyHint": True}
IDEMPOTENT = {"readOnlyHint": False, "idempotentHint": True, "destructiveHint": False}


def tool(
    name: str, schema: Any = None, *, safe: bool = False, do: dict[str, Any] | None = None, **more: Any
) -> Message:
    """A tool as a rogue offers it; by default it answers with what it received."""
    annotations = {"annotations": READ_ONLY} if safe else {}
    return {
        "name": name,
        "inputSchema": {"type": "object"} if schema is None else schema,
        **annotations,
        "do": do or {},
        **more,
    }


def answering(name: str, result: Message, **more: Any) -> Message:
    """A tool that answers with a given CallToolResult."""
    return tool(name, do={"result": result}, **more)


def text(*texts: str) -> Message:
    """A CallToolResult of text blocks."""
    return {"content": [{"type": "text", "text": one} for one in texts]}


class Rogue:
    """A rogue on standard input and output: Toolpost starts it, we write its plan and read its log."""

    def __init__(self, folder: Path, *tools: Message, name: str = "srv", **plan: Any) -> None:
        self.name = name
        self._folder = folder / f"rogue-{name}"
        self._folder.mkdir(parents=True)
        self._plan = {"tools": list(tools), **plan}
        self.plan()

    def plan(self, **changes: Any) -> None:
        """Change the server's mind, also while it runs."""
        self._plan.update(changes)
        beside = self._folder / "plan.new"
        beside.write_text(json.dumps(self._plan))
        beside.replace(self._folder / "plan.json")

    @property
    def options(self) -> list[str]:
        return ["--plan", str(self._folder / "plan.json"), "--log", str(self._folder / "log.jsonl")]

    @property
    def connection(self) -> str:
        return shlex.join([*PYTHON, str(Path(__file__).with_name("rogue.py")), *self.options])

    def config(self, *, trust: bool = True, **options: Any) -> ExternalToolConfig:
        """Its configuration; trusted, so that what a test says of a tool counts."""
        reached = {"transport": "mcp", "connection": self.connection, "trust": trust}
        return ExternalToolConfig(name=self.name, **reached, **options)

    @property
    def log(self) -> list[dict[str, Any]]:
        path = self._folder / "log.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def received(self, method: str) -> list[dict[str, Any]]:
        """Every message of a method, by whichever process."""
        return [entry for entry in self.log if entry.get("method") == method]

    def calls(self, name: str) -> list[dict[str, Any]]:
        """The params of every call of a tool, as they travelled."""
        return [entry["params"] for entry in self.received("tools/call") if entry["params"]["name"] == name]

    def runs(self, name: str) -> int:
        """How often a tool was really run, by whichever process."""
        return sum(entry["params"]["name"] == name for entry in self.received("(ran)"))

    @property
    def pids(self) -> list[int]:
        """The processes that there were, oldest first."""
        return [entry["pid"] for entry in self.received("(started)")]

    @property
    def greetings(self) -> int:
        """How often a client began anew."""
        return len(self.received("initialize")) or len(self.received("server/discover"))


class HttpRogue(Rogue):
    """A rogue behind a port: we start and stop it."""

    path = "/mcp"
    port = 0
    _process: subprocess.Popen[str] | None = None

    @property
    def connection(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    def start(self) -> None:
        """Listen, at the port of before if there was one."""
        command = [*PYTHON, "-m", "tests.sources.mcp.rogue_http", *self.options, "--port", str(self.port)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def stop(self) -> None:
        """End it, without warning anyone."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate(timeout=60)
            self._process = None

    def wait(self) -> None:
        """Wait until it has ended by itself."""
        assert self._process is not None
        self._process.wait(timeout=60)
        self.stop()


@contextmanager
def http_rogue(
    folder: Path, *tools: Message, path: str = "/mcp", name: str = "srv", **plan: Any
) -> Iterator[HttpRogue]:
    """A rogue that listens until the block ends."""
    rogue = HttpRogue(folder, *tools, name=name, **plan)
    rogue.path = path
    rogue.start()
    try:
        yield rogue
    finally:
        rogue.stop()


# How a rogue can be reached: the transport, and what of the plan and of the configuration that takes.
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "stdio-legacy": ({"era": "legacy"}, {}),
    "stdio-modern": ({"era": "modern"}, {}),
    "http-legacy-sse": ({"era": "legacy", "style": "sse", "only": "mcp"}, {}),
    "http-legacy-json": ({"era": "legacy", "style": "json", "only": "mcp"}, {}),
    "http-modern-json": ({"era": "modern", "style": "json", "only": "mcp"}, {}),
    "http-modern-sse": ({"era": "modern", "style": "sse", "only": "mcp"}, {}),
    "sse": ({"era": "legacy", "only": "sse"}, {"options": {"transport": "sse"}}),
}


@contextmanager
def rogue_by(way: str, folder: Path, *tools: Message, **plan: Any) -> Iterator[Rogue]:
    """A rogue that is reached in one of the ways."""
    needed, _ = WAYS[way]
    if way.startswith("stdio"):
        yield Rogue(folder, *tools, **needed, **plan)
        return
    with http_rogue(folder, *tools, path="/sse" if way == "sse" else "/mcp", **needed, **plan) as rogue:
        yield rogue


def config_by(way: str, rogue: Rogue, *, options: dict[str, Any] | None = None, **settings: Any) -> ExternalToolConfig:
    """The configuration that reaches a rogue in that way."""
    needed = WAYS[way][1].get("options", {})
    return rogue.config(options={**needed, **(options or {})}, **settings)


@asynccontextmanager
async def toolbox(*configs: ExternalToolConfig, tools: Sequence[Tool] = (), **settings: Any) -> AsyncIterator[Any]:
    """A Toolbox that asks nobody, for some seconds; Any, because a test knows which outcomes it expects."""
    given = PatientSettings(data_dir=None, policy="exploratory", sources=list(configs), **settings)
    async with asyncio.timeout(LONGEST_TEST_S), Toolbox(tools=tools, settings=given) as box:
        yield box


async def until(condition: Callable[[], Any], *, within: float = 60.0) -> Any:
    """Wait for something to become true, looking often, and return it."""
    async with asyncio.timeout(within):
        while not (value := condition()):
            await asyncio.sleep(0.02)
    return value


@asynccontextmanager
async def heartbeat() -> AsyncIterator[list[float]]:
    """What the loop's thread used between two turns, each time, in seconds of CPU: a busy machine changes little."""
    pauses: list[float] = []

    async def tick() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.01)
            pauses.append(time.thread_time() - before)

    ticking = asyncio.create_task(tick())
    try:
        yield pauses
        await asyncio.sleep(0.02)
    finally:
        ticking.cancel()


def is_alive(pid: int) -> bool:
    """Whether a process still runs; one that only waits to be reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def memory_mb() -> float:
    """What this process holds."""
    return psutil.Process(os.getpid()).memory_info().rss / 1e6
