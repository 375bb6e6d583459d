"""What the tests of command lines share: a program that says what it was given, and a box with one source."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.patient_settings import PatientSettings
from toolpost import ExternalToolConfig, Toolbox

SAY = """
import json, os, sys
print(json.dumps({"words": sys.argv[1:], "stdin": sys.stdin.read(), "env": dict(os.environ), "cwd": os.getcwd()}))
"""


def source(connection: str, tools: dict[str, Any], *, options: dict[str, Any] | None = None, **settings: Any) -> Any:
    given = {"tools": tools, **(options or {})}
    return ExternalToolConfig(name="cmd", transport="cli", connection=connection, options=given, **settings)


def box_of(*sources: ExternalToolConfig, policy: str = "exploratory", sinks: Sequence[Any] = ()) -> Any:
    return Toolbox(settings=PatientSettings(data_dir=None, policy=policy, sources=[*sources]), sinks=sinks)


def say(folder: Path) -> str:
    """The command that says what it was given, as a connection."""
    program = folder / "say.py"
    program.write_text(SAY)
    return f"{sys.executable} {program}"


def script(folder: Path, text: str) -> str:
    """A shell script as a connection; a shell that somebody wrote down is a program like any other."""
    program = folder / "script.sh"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


def schema(*required: str, **properties: Any) -> dict[str, Any]:
    named = {name: {"type": kind} if isinstance(kind, str) else kind for name, kind in properties.items()}
    return {"type": "object", "properties": named, "required": list(required)}
