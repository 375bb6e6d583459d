"""`python -m bench.rest.preloaded FOLDER ARGUMENT...`: fork a process for each line of stdin, which runs `toolpost`.

The modules of a gateway are imported once; everything else that a start does, each child does by itself. Its process id
and how it ended are written to stdout, as JSON lines.
"""

from __future__ import annotations

import json
import os
import pkgutil
import sys
from contextlib import suppress
from importlib import import_module

import toolpost
from toolpost.cli import main

_PACKAGES = ("auth", "catalog", "cli", "configuration", "contracts", "gateway", "policy", "runtime", "schema", "stores")
_MORE = ("toolbox", "http", "wire", "builtin.specs", "builtin.loader", "sources.python")


def run(folder: str, arguments: list[str]) -> None:
    """Fork until stdin ends; one child at a time."""
    os.chdir(folder)
    _import_all()
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            devnull = os.open(os.devnull, os.O_RDONLY)
            os.dup2(devnull, 0)
            os._exit(main(arguments))
        _tell({"pid": child})
        _, status = os.waitpid(child, 0)
        _tell({"ended_by": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0})


def _import_all() -> None:
    for name in (*_PACKAGES, *_MORE):
        package = import_module(f"{toolpost.__name__}.{name}")
        for found in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{package.__name__}."):
            with suppress(ImportError):  # of extras that are not installed
                import_module(found.name)


def _tell(line: dict[str, int]) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
