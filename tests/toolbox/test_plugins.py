"""Plug-ins come from real distributions on the path, and a broken one breaks nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolpost.sources.registry import load_plugins

pytestmark = pytest.mark.programs

SRC = Path(__file__).parents[2] / "src"

TOOLS = """
from toolpost.catalog.function import tool
from toolpost.sources.base import Transport

@tool(side_effects="pure")
def one() -> int:
    return 1

@tool(side_effects="pure")
def two() -> int:
    return 2

def made():
    return [two]

class Http(Transport):
    name = "http"

class Other(Transport):
    name = "other"

class Custom:
    name, description, category = "three", "Count to three.", "custom"
    parameters = {"type": "object"}
    async def execute(self, params, context):
        return 3

custom = Custom()
not_a_tool = [one, len]
number = 5
"""
REPORT = """
import json
from toolpost.sources.registry import load_plugins
found = load_plugins()
print(json.dumps({
    "tools": [tool.spec.name for tool in found.tools],
    "sources": {name: type(one).__module__ for name, one in found.transports.items()},
    "problems": list(found.problems),
}))
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "plug.py").write_text(TOOLS)
    (tmp_path / "broken.py").write_text("raise RuntimeError('no such luck')\n")
    (tmp_path / "leaving.py").write_text("raise SystemExit(3)\n")
    return tmp_path


def install(site: Path, name: str, entry_points: str) -> None:
    """Write a distribution as an installer leaves it."""
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(entry_points)


def load(*sites: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", REPORT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [SRC, *sites]))},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_tools_and_sources_come_in_through_entry_points(site: Path) -> None:
    install(site, "good", "[toolpost.tools]\na = plug:one\nb = plug:made\n[toolpost.sources]\nhttp = plug:Http\n")

    assert load(site) == {"tools": ["one", "two"], "sources": {"http": "plug"}, "problems": []}


def test_a_distribution_behind_another_of_its_name_is_not_there(
    site: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    hidden = tmp_path_factory.mktemp("hidden")
    install(site, "good", "[console_scripts]\ngood = plug:main\n")
    install(hidden, "good", "[toolpost.tools]\na = plug:one\n")
    install(hidden, "other", "[toolpost.tools]\na = plug:made\n")

    assert load(site, hidden) == {"tools": ["two"], "sources": {}, "problems": []}


def test_a_broken_plug_in_is_a_problem_and_the_others_load(site: Path) -> None:
    install(site, "good", "[toolpost.tools]\nz = plug:one\n[toolpost.sources]\nhttp = plug:Http\n")
    install(
        site,
        "odd",
        "[toolpost.tools]\na = broken:tool\nb = leaving:tool\nc = plug:gone\nd = plug:not_a_tool\ne = plug:number\n"
        "[toolpost.sources]\nhttp = plug:Http\nmcp = plug:number\nx = plug:Other\n",
    )

    found = load(site)

    assert found["tools"] == ["one"]
    assert found["sources"] == {"http": "plug"}
    said = [problem.split(" is skipped: ") for problem in found["problems"]]
    assert said[0][0] == "plug-in 'a' of odd 1.0 (toolpost.tools = broken:tool)"
    assert [why for _, why in said] == [
        "RuntimeError: no such luck",
        "SystemExit: 3",
        "AttributeError: module 'plug' has no attribute 'gone'",
        "it offers <built-in function len>, which is not a tool; decorate it with @tool",
        "it offers something of type int, not a tool or a list of tools",
        "another plug-in already serves the transport 'http'; remove one of them",
        "it is of type int, not a toolpost.sources.Transport",
        "its transport is named 'other'; name the entry point so, too",
    ]


def test_a_plug_in_that_is_installed_later_is_found(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(site)
    assert load_plugins().problems == ()

    install(site, "late", "[toolpost.tools]\na = broken:tool\n")

    (problem,) = load_plugins().problems
    assert problem.startswith("plug-in 'a' of late 1.0 ")


BROKEN_SOURCE = """
import asyncio, json
from pathlib import Path
from toolpost import Toolbox

async def main():
    async with Toolbox.open("toolpost.yaml") as box:
        done = await box.call("mine.one")
        print(json.dumps([done.status, [state.error for state in box.report if not state.ok]]))

asyncio.run(main())
"""


def test_a_transport_that_does_not_load_takes_out_its_own_sources_alone(site: Path) -> None:
    install(site, "odd", "[toolpost.sources]\nbroken = broken:Broken\n")
    (site / "toolpost.yaml").write_text(
        "data_dir: null\nbuiltins: none\nsources:\n"
        "  - {name: mine, transport: python, connection: ./plug.py}\n"
        "  - {name: odd, transport: broken, connection: x}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", BROKEN_SOURCE],
        cwd=site,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SRC), str(site)])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    status, errors = json.loads(done.stdout.splitlines()[-1])
    assert status == "completed"
    assert "no source supports transport 'broken'" in errors[0]


def test_an_object_that_describes_a_tool_by_its_members_is_offered_too(site: Path) -> None:
    install(site, "objects", "[toolpost.tools]\none = plug:custom\n")
    found = load(site)
    assert (found["tools"], found["problems"]) == (["three"], [])
