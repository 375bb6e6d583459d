"""An agent cannot loosen its own rules: configuration, data folder and code are out of reach of every file tool."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolpost import (
    Completed,
    ExternalToolConfig,
    Failed,
    Outcome,
    Settings,
    Toolbox,
    ToolContext,
    TransportType,
    tool,
)
from toolpost.configuration import protected_files
from toolpost.configuration.protected_files import ProtectedFiles
from toolpost.contracts.context import ProtectedPath

TOOLS = """
from helpers import VALUE
from toolpost import tool

@tool(side_effects="pure")
async def value() -> int:
    return VALUE
"""
CONFIG = """
policy: exploratory
builtins: [all, run_command]
tools: {allowedPaths: [.]}
sources:
  - {name: code, transport: python, connection: ./tools.py}
  - {name: api, transport: http, connection: ./api.yaml, enabled: false}
  - {name: server, transport: mcp, connection: "python servers/notes.py --db notes.db", enabled: false}
  - {name: words, transport: cli, connection: ./bin/count, enabled: no, options: {tools: {all: {args: [./bin/all.sh]}}}}
  - {name: manual, transport: utcp, connection: ./manual.json, enabled: false}
  - {name: module, transport: mcp, connection: "python3.11 -u -m served --db notes.db", enabled: false}
  - {name: package, transport: mcp, connection: "uv run python -m pack.server", enabled: false}
  - {name: script, transport: mcp, connection: "python3 script.py", enabled: false}
  - {name: start, transport: mcp, connection: "bash start notes.db", enabled: false}
"""
FILES = {
    "rules.yaml": CONFIG,
    "tools.py": TOOLS,
    "helpers.py": "VALUE = 7\n",
    "api.yaml": "openapi: 3.1.0\n",
    "servers/notes.py": "print('notes')\n",
    "bin/count": "#!/bin/sh\nwc\n",
    "bin/all.sh": "#!/bin/sh\nwc *\n",
    "manual.json": "{}",
    "served.py": "print('served')\n",
    "pack/server.py": "print('pack')\n",
    "start": "exec served\n",
    "script.py": "import json, beside\n",
    "beside.py": "def late():\n    from kit.parts import one\n",
    "kit/parts.py": "from . import two\n",
    "kit/two.py": "two = 2\n",
    "notes.db": "data",
    "readme.txt": "policy: exploratory",
}
PROTECTED = [
    *("rules.yaml", "tools.py", "helpers.py", "api.yaml", "servers/notes.py", "bin/count", "bin/all.sh", "manual.json"),
    *("served.py", "pack/server.py", "start", "script.py", "beside.py", "kit/parts.py", "kit/two.py"),
    *("toolpost.yaml", "toolpost.lock", ".env", ".toolpost/key", ".toolpost/toolpost.db", ".toolpost/new/file"),
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is allowed whole, with a configuration of another name than the usual."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "bin" / "count").chmod(0o755)
    yield tmp_path
    sys.modules.pop("helpers", None)


def tries(path: str) -> list[tuple[str, dict[str, Any]]]:
    """Every way to read or change a file by its path."""
    return [
        ("read_file", {"path": path, "encoding": "latin-1"}),
        ("get_file_info", {"path": path}),
        ("grep_files", {"pattern": ".", "path": path}),
        ("write_file", {"path": path, "content": "policy: exploratory"}),
        ("edit_file", {"path": path, "old_string": "o", "new_string": "0", "replace_all": True}),
        ("delete_file", {"path": path}),
        ("move_file", {"from": path, "to": "stolen"}),
        ("move_file", {"from": "readme.txt", "to": path, "overwrite": True}),
    ]


def is_refused(outcome: Outcome) -> bool:
    return isinstance(outcome, Failed) and str(outcome.error).startswith("Permission denied: ")


@pytest.mark.parametrize("path", PROTECTED)
async def test_no_tool_reads_or_changes_what_decides_what_an_agent_may_do(project: Path, path: str) -> None:
    async with Toolbox.open("rules.yaml") as box:
        outcomes = [await box.call(name, arguments) for name, arguments in tries(path)]

    assert [outcome for outcome in outcomes if not is_refused(outcome)] == []
    assert all("is protected: it is " in str(outcome.error) for outcome in outcomes if isinstance(outcome, Failed))
    assert {name: (project / name).read_text() for name in FILES} == FILES


@pytest.mark.parametrize("allowed", ["settings", "context"])
async def test_a_program_without_a_limit_of_paths_is_held_to_them_too(project: Path, allowed: str) -> None:
    tools = {"allowed_paths": None} if allowed == "settings" else {}
    settings = Settings.model_validate({"policy": "exploratory", "tools": tools})
    context = ToolContext(allowed_paths=None) if allowed == "context" else None
    async with Toolbox(settings=settings, builtins=["file_tools"]) as box:
        outcomes = [
            await box.call(name, arguments, context=context)
            for path in (".toolpost/key", "toolpost.yaml", ".env", f"{project}/toolpost.lock")
            for name, arguments in tries(path)
        ]
        free = await box.call("read_file", {"path": "readme.txt"}, context=context)

    assert [outcome for outcome in outcomes if not is_refused(outcome)] == []
    assert isinstance(free, Completed)


@pytest.mark.parametrize("path", ["RULES.yaml", "Toolpost.Lock", ".ENV", ".TOOLPOST/key", "rul\u200bes.yaml"])
async def test_names_that_some_file_systems_take_for_the_same_are_refused(project: Path, path: str) -> None:
    async with Toolbox.open("rules.yaml") as box:
        assert is_refused(await box.call("write_file", {"path": path, "content": "x"}))


async def test_links_of_both_kinds_lead_to_nothing_protected(project: Path) -> None:
    async with Toolbox.open("rules.yaml") as box:
        os.link(project / "rules.yaml", project / "hard.yaml")
        os.link(project / ".toolpost" / "toolpost.db", project / "hard.db")
        (project / "soft.yaml").symlink_to("rules.yaml")
        (project / "soft").symlink_to(".toolpost")
        readings = [
            await box.call(name, arguments)
            for path in ("hard.yaml", "hard.db", "soft.yaml", "soft/toolpost.db")
            for name, arguments in tries(path)[:5]
        ]
        listed = await box.call("list_files", {"path": "soft"})

    assert [outcome for outcome in [*readings, listed] if not is_refused(outcome)] == []


async def test_a_configuration_behind_links_keeps_its_links_as_well(project: Path) -> None:
    (project / "real").mkdir()
    (project / "rules.yaml").rename(project / "real" / "rules.yaml")
    (project / "way").symlink_to("real")
    (project / "rules.yaml").symlink_to("way/rules.yaml")
    async with Toolbox.open("rules.yaml") as box:
        taken = [await box.call("delete_file", {"path": path}) for path in ("rules.yaml", "way", "real/rules.yaml")]
        moved = await box.call("move_file", {"from": "real", "to": "elsewhere"})

    assert [outcome for outcome in [*taken, moved] if not is_refused(outcome)] == []


@pytest.mark.parametrize("folder", ["servers", "bin", ".toolpost"])
async def test_no_folder_goes_away_with_what_is_protected_in_it(project: Path, folder: str) -> None:
    async with Toolbox.open("rules.yaml") as box:
        deleted = await box.call("delete_file", {"path": folder, "recursive": True})
        moved = await box.call("move_file", {"from": folder, "to": "elsewhere"})

    assert is_refused(deleted)
    assert is_refused(moved)


async def test_nothing_is_put_beside_a_script_that_has_a_folder_of_its_own(project: Path) -> None:
    (project / "servers" / "notes.txt").write_text("readable")
    async with Toolbox.open("rules.yaml") as box:
        beside = await box.call("write_file", {"path": "servers/json.py", "content": "print('mine')"})
        read = await box.call("read_file", {"path": "servers/notes.txt"})
        elsewhere = await box.call("write_file", {"path": "json.py", "content": "{}"})

    assert is_refused(beside)
    assert isinstance(read, Completed)
    assert isinstance(elsewhere, Completed)


@pytest.mark.parametrize(
    "path", [f"__pycache__/helpers.{sys.implementation.cache_tag}.pyc", "helpers/__init__.py", "served.abi3.so"]
)
async def test_nothing_is_written_that_python_would_load_in_place_of_a_module(project: Path, path: str) -> None:
    async with Toolbox.open("rules.yaml") as box:
        assert is_refused(await box.call("write_file", {"path": path, "content": "x"}))
        moved = await box.call("move_file", {"from": "readme.txt", "to": path})

    assert is_refused(moved)


async def test_the_parts_of_a_document_are_protected_like_its_first_file(project: Path) -> None:
    get = "{operationId: get_it, responses: {'200': {description: fine}}}"
    (project / "parts").mkdir()
    (project / "parts" / "it.yaml").write_text(f"get: {get}\n")
    (project / "api.yaml").write_text(
        "openapi: 3.1.0\ninfo: {title: it, version: '1'}\nservers: [{url: http://127.0.0.1:9}]\n"
        "paths: {/it: {$ref: parts/it.yaml}}\n"
    )
    manual = {"call_template_type": "file", "name": "inner", "file_path": "inner.json"}
    loader = {"variable_loader_type": "dotenv", "env_file_path": "vars"}
    (project / "manual.json").write_text(
        json.dumps({"manual_call_templates": [manual], "load_variables_from": [loader]})
    )
    (project / "vars").write_text("A=1\n")
    text = {"call_template_type": "text", "content": "hello"}
    tool = {"name": "hello", "description": "Say it", "tool_call_template": text}
    (project / "inner.json").write_text(json.dumps({"utcp_version": "1.0.0", "tools": [tool]}))
    sources = [
        {"name": "api", "transport": "http", "connection": "./api.yaml", "required": True},
        {"name": "manual", "transport": "utcp", "connection": "./manual.json", "required": True},
    ]
    settings = Settings.model_validate(
        {"policy": "exploratory", "tools": {"allowed_paths": ["."]}, "sources": sources, "builtins": ["file_tools"]}
    )
    async with Toolbox(settings=settings) as box:
        outcomes = [
            await box.call(name, arguments)
            for path in ("parts/it.yaml", "inner.json", "vars")
            for name, arguments in tries(path)
        ]
        found = box.registry.has("api.get_it")

    assert found
    assert [outcome for outcome in outcomes if not is_refused(outcome)] == []


@pytest.mark.programs
async def test_lists_and_searches_leave_it_out(project: Path) -> None:
    (project / ".toolpost").mkdir()
    (project / ".toolpost" / "notes.txt").write_text("policy: exploratory")
    async with Toolbox.open("rules.yaml") as box:
        listed = await box.call("list_files", {"recursive": True})
        globbed = await box.call("glob_files", {"pattern": "**/*"})
        found = await box.call("grep_files", {"pattern": "policy|VALUE", "all_folders": True})
        counted = await box.call("grep_files", {"pattern": "policy|VALUE", "output_mode": "files"})

    assert isinstance(listed, Completed)
    assert isinstance(globbed, Completed)
    assert {entry["path"] for entry in listed.content["files"]} == {"bin", "kit", "servers", "notes.db", "readme.txt"}
    assert {entry["path"] for entry in globbed.content["files"]} == {"notes.db", "readme.txt"}
    assert isinstance(found, Completed)
    assert [match["file"] for match in found.content["matches"]] == ["readme.txt"]
    assert isinstance(counted, Completed)
    assert counted.content["files"] == [{"file": "readme.txt", "count": 1}]


@pytest.mark.programs
async def test_no_command_runs_in_the_data_folder(project: Path) -> None:
    async with Toolbox.open("rules.yaml") as box:
        refused = await box.call("run_command", {"command": ["ls"], "cwd": ".toolpost"})
        there = await box.call("run_command", {"command": ["echo", "hi"], "cwd": "servers"})

    assert is_refused(refused)
    assert isinstance(there, Completed)


async def test_memory_continues_in_the_data_folder_by_its_own_tools(project: Path) -> None:
    async with Toolbox.open("rules.yaml") as box:
        written = await box.call("memory_write", {"path": "facts/a.md", "content": "> Summary: A\n"})
        read = await box.call("memory_read", {"path": "facts/a.md"})
        by_file = await box.call("read_file", {"path": ".toolpost/memory/facts/a.md"})

    assert isinstance(written, Completed)
    assert isinstance(read, Completed)
    assert is_refused(by_file)


async def test_the_code_of_a_programs_own_tools_and_its_packages_stay_as_they_are(tmp_path: Path) -> None:
    @tool(side_effects="pure")
    async def own() -> str:
        return "mine"

    settings = Settings.model_validate({"data_dir": None, "policy": "exploratory", "tools": {"allowed_paths": None}})
    package = Path(pytest.__file__)
    new = package.with_name(f"{tmp_path.name}.py")
    async with Toolbox(tools=[own], settings=settings, builtins=["file_tools"]) as box:
        itself = await box.call("edit_file", {"path": __file__, "old_string": "mine", "new_string": "yours"})
        others = await box.call("write_file", {"path": str(new), "content": ""})
        read = await box.call("read_file", {"path": str(package)})

    assert is_refused(itself)
    assert is_refused(others)
    assert isinstance(read, Completed)
    assert not new.exists()


def test_a_source_that_is_added_while_paths_are_computed_is_protected_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = tmp_path / "late.py"
    late.write_text("")
    early = ExternalToolConfig(name="early", transport=TransportType.PYTHON, connection=str(tmp_path / "early.py"))
    files = ProtectedFiles(Settings(data_dir=None, sources=[early]), config=None, tools=[])
    find_compiled, added = vars(protected_files)["_find_compiled"], list[str]()  # where another thread would run

    def find_and_add(file: ProtectedPath) -> Iterable[ProtectedPath]:
        if not added:
            added.append("late")
            files.add(ExternalToolConfig(name="late", transport=TransportType.PYTHON, connection=str(late)))
        return find_compiled(file)

    monkeypatch.setattr(protected_files, "_find_compiled", find_and_add)
    files.paths()

    assert str(late) in {one.path for one in files.paths()}
