"""The package can be imported where modules of POSIX are missing, as on Windows."""

import subprocess
import sys

import pytest

PROGRAM = """
import importlib, pkgutil, sys
for library in ("fastmcp", "fastmcp.client", "fastmcp.server", "keyring", "mcp", "pytest", "typer", "uvicorn"):
    importlib.import_module(library)  # on Linux they import what is missing elsewhere
for missing in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[missing] = None
import toolpost
ELSEWHERE = {  # adapters of frameworks that are installed in environments of their own
    "agent_framework",
    "agno",
    "autogen",
    "crewai",
    "dspy",
    "google_adk",
    "haystack",
    "llama_index",
    "openai_agents",
    "semantic_kernel",
    "smolagents",
    "strands",
}
failed = []
for module in pkgutil.walk_packages(toolpost.__path__, "toolpost."):
    if module.name in ("toolpost.__main__", "toolpost.processes.supervisor_program") or ".knime" in module.name:
        continue  # these are run by other programs: Python itself, the supervisor, KNIME
    if module.name.removeprefix("toolpost.adapters.") in ELSEWHERE:
        continue
    try:
        importlib.import_module(module.name)
    except Exception as error:
        failed.append(f"{module.name}: {error!r}")
print("\\n".join(failed))
"""


@pytest.mark.programs
def test_every_module_is_imported_without_modules_of_posix() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
