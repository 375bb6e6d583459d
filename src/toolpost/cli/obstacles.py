"""What is known to keep a source from starting, found without starting anything."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from toolpost.cli.proposal import is_remote
from toolpost.contracts.config import ExternalToolConfig, TransportType
from toolpost.transports.registry import find_transport

_INSTALL = {"uvx": " (it comes with uv: pip install uv)", "npx": " (it comes with Node.js)"}
_OUR_OWN = frozenset({"python", "python3"})  # the running interpreter stands in for it


def obstacles(source: ExternalToolConfig, environ: Mapping[str, str]) -> Iterator[str]:
    """Each thing that is missing, and how to get it."""
    if source.unusable:  # what else is written of it stands for nothing
        yield source.unusable
        return
    module, extra = find_transport(source.transport).requires or ("", "")
    if module and find_spec(module) is None:
        yield f"{source.transport} sources need the extra {extra}: pip install 'toolpost[{extra}]'"
    yield from _missing_program(source, environ)
    if source.transport is TransportType.PYTHON and source.connection.endswith(".py"):
        file = Path(source.connection).expanduser()
        if not file.is_file():
            yield f"there is no file {source.connection}"


def _missing_program(source: ExternalToolConfig, environ: Mapping[str, str]) -> Iterator[str]:
    if is_remote(source) or source.transport is not TransportType.MCP or source.connection.startswith("memory:"):
        return
    program = next(iter(shlex.split(source.connection)), "")
    if os.sep in program and source.cwd is not None:
        program = str(Path(source.cwd, program))
    path = source.env.get("PATH") or environ.get("PATH")
    if program not in _OUR_OWN and shutil.which(program, path=path) is None:
        yield f"there is no {program} on the PATH; install it first{_INSTALL.get(program, '')}"
