"""The package can be imported where modules of POSIX are missing, as on Windows, and says what is missing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from toolpost.cli import platform_checks
from toolpost.cli.diagnostics import check_machine

PROGRAM = """
import importlib, pkgutil, sys
for library in ("fastmcp", "fastmcp.client", "fastmcp.server", "keyring", "mcp", "pytest", "typer", "uvicorn"):
    importlib.import_module(library)  # on Linux they import what is missing elsewhere
for missing in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[missing] = None
import toolpost
ELSEWHERE = {  # adapters of frameworks that are installed in separate environments
    "agent_framework",
    "agno",
    "autogen",
    "crewai",
    "dspy",
    "google_adk",
    "haystack",
    "llama_index",
    "openai_agents",
    "penguiflow",
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


def lacking() -> set[str]:
    return {one.name.partition(" (")[0] for one in platform_checks.missing_features()}


@pytest.mark.req("OPS-06")
def test_nothing_is_missing_on_this_platform() -> None:
    assert lacking() == set()


@pytest.mark.req("OPS-06")
@pytest.mark.parametrize(("module", "feature"), [("fcntl", "file locks"), ("resource", "resource limits")])
def test_a_missing_module_of_posix_is_a_missing_feature(
    monkeypatch: pytest.MonkeyPatch, module: str, feature: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)

    assert lacking() == {feature}


@pytest.mark.req("OPS-06")
def test_windows_lacks_signals_sockets_handles_modes_and_bash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform_checks, "sys", type("Windows", (), {"platform": "win32", "modules": sys.modules}))
    monkeypatch.delattr(signal, "SIGHUP")
    monkeypatch.setattr(os, "supports_dir_fd", set[object]())
    monkeypatch.setattr(platform_checks, "BASH", Path("/nowhere/bash"))

    assert lacking() == {"Unix sockets", "signals", "handles of folders", "bash"}


def test_doctor_reports_missing_features_extras_and_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    found = [(check.name, check.state, check.detail) for check in check_machine()]
    (locks,) = [detail for name, state, detail in found if (name, state) == ("platform", "note")]

    assert locks.startswith("no file locks (flock): writers of the file tools are not serialized")
    assert {"extras", "programs"} <= {name for name, _, _ in found}


def test_extras_are_described_with_the_command_that_installs_another() -> None:
    described = platform_checks.describe_extras({"mcp": True, "http": False, "gateway": False, "dev": True})

    assert described == "installed: mcp; not installed: gateway, http (`pip install 'toolpost[gateway]'`)"
    assert platform_checks.describe_extras({"mcp": True}) == "installed: mcp"
    assert "not installed as a package" in platform_checks.describe_extras({})


def test_programs_are_looked_up_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "uvx").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert platform_checks.describe_programs().startswith("found: uvx; not found: node, npx, docker, git")
