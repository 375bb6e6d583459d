"""A reader who does what a page says, in a folder of its own, and compares what comes out."""

import atexit
import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from tests import warm
from tests.docs.blocks import ROOT, Block, Command, commands
from tests.parts import python_of_framework, python_of_openai_agents, python_of_utcp
from toolpost.configuration.loading import load_settings

LOGIN = "ann"  # what `local:<login>` is in the documents
TIMEOUT_S = 100
HERE = Path(sys.executable).parent
TOOLPOST = 'exec {forked} {here}/toolpost "$@"'
PYTHON = 'case "$1" in *.py) exec {forked} "$@" ;; *) exec {here}/python "$@" ;; esac'
IN_OTHER_ENVIRONMENTS: dict[str, Callable[[], Path | None]] = {
    "agents": python_of_openai_agents,
    "utcp.utcp_client": python_of_utcp,
    # Installed by `make test-frameworks` only.
    "agent_framework": partial(python_of_framework, "agent_framework"),
    "agno": partial(python_of_framework, "agno"),
    "autogen_agentchat": partial(python_of_framework, "autogen"),
    "crewai": partial(python_of_framework, "crewai"),
    "dspy": partial(python_of_framework, "dspy"),
    "google.adk": partial(python_of_framework, "google_adk"),
    "langchain_mcp_adapters": partial(python_of_framework, "langchain_mcp_adapters"),
    "haystack": partial(python_of_framework, "haystack"),
    "llama_index": partial(python_of_framework, "llama_index"),
    "penguiflow": partial(python_of_framework, "penguiflow"),
    "semantic_kernel": partial(python_of_framework, "semantic_kernel"),
    "smolagents": partial(python_of_framework, "smolagents"),
    "strands": partial(python_of_framework, "strands"),
}
NOT_RUN = frozenset({"sh", "toml", "diff", "nginx"})

_ID = r"\b(?:ask|art|call|run)_(?:call_)?[0-9a-f]+\b"
_VARIABLE = re.compile(r"\$\{([A-Z_]+)\}")


def other_environment(block: Block) -> str | None:
    """Return the module of a framework that a program imports and that has an environment of its own."""
    found = (
        name for name in IN_OTHER_ENVIRONMENTS if re.search(rf"^from {re.escape(name)}\b", block.text, re.MULTILINE)
    )
    return next(found, None)


class PageError(AssertionError):
    """A page that does not hold."""


class Reader:
    """Follows one page, in a folder with the files that it says to make; each program stands alone.

    Ids differ each time, so an id shown is bound to the real one at its place.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ids: dict[str, str] = {}
        self._printed: str | None = None
        self.unrun = False  # whether the last program needs a framework that is not installed

    def follow(self, block: Block) -> None:
        """Do what one block says."""
        if block.file_name is not None:
            (self._folder / block.file_name).write_text(block.text, encoding="utf-8")
            return
        match block.language:
            case "python":
                self._printed = self._execute(block)
            case "text" if self.unrun:
                return
            case "text":
                self._compare(block.text, self._printed or "", block.place)
            case "console":
                self._type(block)
            case "yaml":
                self._configure(block)
            case "json":
                json.loads(block.text)
            case language if language in NOT_RUN:
                return
            case other:
                raise PageError(f"{block.place}: nobody checks a block of {other or 'no language'}")

    def _execute(self, block: Block) -> str:
        module = other_environment(block)
        if module is not None:
            python = IN_OTHER_ENVIRONMENTS[module]()
            self.unrun = python is None
            return "" if python is None else self._execute_elsewhere(block, python)
        self.unrun = False
        printed = io.StringIO()
        code = compile("\n" * block.line + block.text, block.page, "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, {"__name__": "__main__"})
        return printed.getvalue()

    def _execute_elsewhere(self, block: Block, python: Path) -> str:
        """Run a program that needs a framework with versions of its own."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        command = [str(python), "-c", block.text]
        done = subprocess.run(
            command, cwd=self._folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        if done.returncode:
            raise PageError(f"{block.place}: the program left with {done.returncode}: {done.stderr[-4000:]}")
        return done.stdout

    def _type(self, block: Block) -> None:
        last = 0
        for command in commands(block):
            if command.line != "echo $?" and last:
                raise PageError(f"{block.place}: a command left with {last}, and the page does not say so")
            last, output = self._run(command, last)
            self._compare(command.shown, output, f"{block.place}: {command.line}")
        if last:
            raise PageError(f"{block.place}: the last command left with {last}, and the page does not say so")

    def _run(self, command: Command, last: int) -> tuple[int, str]:
        line = re.sub(_ID, lambda found: self._ids.get(found[0], found[0]), command.line)
        done = subprocess.run(
            line.replace("$?", str(last)),
            shell=True,
            cwd=self._folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return done.returncode, done.stdout

    def _compare(self, shown: str, actual: str, place: str) -> None:
        """`...` is anything or nothing, and the width of a column may differ.

        Each piece counts at the first place where it stands, so that nothing is tried twice.
        """
        if not shown.strip():
            return
        pieces, text, at = _plain(shown).split("..."), _plain(actual), 0
        for number, piece in enumerate(pieces, 1):
            start, end = r"\A" if number == 1 else "", r"\Z" if number == len(pieces) else ""
            found = re.compile(f"{start}{self._pattern(piece)}{end}").search(text, at)
            if found is None:
                raise PageError(f"{place}\n--- the page shows\n{shown.strip()}\n--- it printed\n{actual}")
            at = found.end()
            self._ids.update(found.groupdict())

    def _pattern(self, piece: str) -> str:
        """An id is the one that it was before; a new one gives its name to what stands in its place."""
        rest = piece.removeprefix(" ")  # its space may be the one that the piece before ended with
        pattern, new = "(?<= )" if rest != piece else "", set[str]()
        for part in re.split(f"({_ID})", rest):
            if not re.fullmatch(_ID, part) or part in self._ids:
                pattern += re.escape(self._ids.get(part, part))
                continue
            pattern += f"(?P={part})" if part in new else f"(?P<{part}>{_ID})"
            new.add(part)
        return pattern

    def _configure(self, block: Block) -> None:
        """A piece of toolpost.yaml holds when the settings take it."""
        file = self._folder / "fragment.yaml"
        file.write_text(block.text, encoding="utf-8")
        environ = dict.fromkeys(_VARIABLE.findall(block.text), "whsec_from0the0environment0with0enough0bytes00")
        load_settings(file, environ=environ)
        file.unlink()


def _plain(text: str) -> str:
    return " ".join(text.split())


def environment() -> dict[str, str]:
    """The reader's own: the commands are on the path, and the login is that of the documents."""
    return {**os.environ, "PATH": search_path(), "LOGNAME": LOGIN, "NO_COLOR": "1"}


def search_path() -> str:
    """Where what a reader types is found: first, programs that run in forks, which have imported everything."""
    return os.pathsep.join([str(_commands()), str(HERE), os.environ["PATH"]])


@cache
def _commands() -> Path:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    forked = shlex.join(warm.command(HERE / "toolpost")[:-1])
    for name, line in (("toolpost", TOOLPOST), ("python", PYTHON)):
        (folder / name).write_text(f"#!/bin/sh\n{line.format(here=HERE, forked=forked)}\n")
        (folder / name).chmod(0o700)
    return folder
