"""Tables in the documents say what the code says: keys, codes, errors, limits, commands and exit codes."""

import inspect
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.docs import settings_table
from tests.docs.blocks import PAGES, ROOT, blocks, page_name
from tests.test_public_surface import PUBLIC
from toolpost import Settings, map_concurrent, tool
from toolpost.auth.token_refresher import REFRESH_S
from toolpost.cli.app import make_app
from toolpost.cli.prompts import EXIT_CODES
from toolpost.cli.sign_in import SIGN_IN_TIMEOUT_S
from toolpost.contracts import errors
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.events import EventCode
from toolpost.contracts.storage import PlannerStateStore, StateStore
from toolpost.runtime.executor import ToolExecutor

DOCS = ROOT / "docs"


def test_the_table_of_settings_has_every_key_with_its_default_and_its_meaning() -> None:
    page = settings_table.PAGE.read_text(encoding="utf-8")

    assert settings_table.section(page) == settings_table.made(page), "run: python -m tests.docs.settings_table"
    assert "|  |" not in settings_table.section(page), "describe the new key"


@pytest.mark.req("DOC-03")
def test_every_level_of_concurrency_is_documented_with_the_default_it_has() -> None:
    documented = {row[0]: row[3] for row in _table("calls.md", "level")}

    assert {level: int(default) for level, default in documented.items()} == {
        "executor": _default(ToolExecutor.__init__, "max_concurrent"),
        "source": ExternalToolConfig.model_fields["max_concurrency"].default,
        "planner": Settings().limits.absolute_max_parallel,
        "map": _default(map_concurrent, "max_concurrency"),
    }
    assert Settings().tools.max_concurrent == int(documented["executor"])


@pytest.mark.req("DOC-04")
def test_variables_that_fail_fast_and_names_that_cannot_collide_have_a_section_with_examples_that_run() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")

    variables = _section(text, "Variables")
    assert "stops the start" in variables
    assert "environment variable is not set: ERP_KEY" in variables
    names = _section(text, "Names and collisions")
    assert {block.language for block in blocks(names, page="configuration.md")} == {"python", "text"}
    assert names.count("refused: ") == 3


@pytest.mark.req("DOC-02")
def test_every_method_of_a_state_store_is_documented_and_the_example_has_it() -> None:
    section = _section((DOCS / "extending.md").read_text(encoding="utf-8"), "A state store")
    methods = [name for kind in (StateStore, PlannerStateStore) for name in vars(kind) if not name.startswith("_")]

    documented = [row[0].partition("(")[0].strip("`") for row in _table("extending.md", "method")]

    assert sorted(documented) == sorted(methods)
    assert [name for name in methods if f"async def {name}(" not in section] == []


@pytest.mark.req("DOC-05")
def test_accounts_have_a_page_from_what_they_are_for_to_what_to_do_when_they_fail() -> None:
    text = (DOCS / "accounts.md").read_text(encoding="utf-8")
    defaults = {row[2]: row[1] for row in _table("accounts.md", "Limit")}
    payload = _section(text, "Paused calls")

    assert " ".join(text.partition("```")[0].split()).count("A call without a token pauses") == 1
    assert {"python", "text"} <= {block.language for block in blocks(text, page="accounts.md")}
    assert [key for key in ("pause_type", "provider", "display_name", "scopes", "auth_url") if key not in payload] == []
    assert defaults["`limits.pending_ttl`"] == f"{Settings().limits.pending_ttl / 86_400:g} days"
    assert defaults["`accounts.sign_in_ttl`"] == f"{Settings().accounts.sign_in_ttl / 60:g} minutes"
    assert defaults["`--timeout`"] == f"{SIGN_IN_TIMEOUT_S / 60:g} minutes"
    assert f"| duration of a token renewal | {REFRESH_S:g} seconds |" in text
    assert [row for row in _table("accounts.md", "Failure") if not row[1].strip()] == []
    for title in ("Token storage", "Limitations", "Metrics", "Troubleshooting"):
        assert len(_section(text, title)) > 200


@pytest.mark.req("DOC-07")
def test_the_reference_leads_to_a_page_for_every_subject() -> None:
    subjects = {row[0]: re.findall(r"\]\(([^)]+)\)", row[1]) for row in _table("reference.md", "subject")}

    assert list(subjects) == [
        *("types", "registry", "catalog tables", "collections", "flow", "events", "security", "errors", "MCP"),
        *("custom tools", "configuration", "testing", "console", "performance", "outlook"),
    ]
    assert [subject for subject, links in subjects.items() if not links] == []


@pytest.mark.req("DOC-09")
def test_the_reference_links_to_what_it_builds_on() -> None:
    links = [re.sub(r"[<>]", "", row[1]) for row in _table("reference.md", "what")]

    for place in ("jlowin/fastmcp", "python-utcp", "modelcontextprotocol/python-sdk", "utcp.io", "io/specification"):
        assert len([link for link in links if place in link]) == 1, place


def test_every_error_is_documented_with_its_code_and_category() -> None:
    tree = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ToolError)]

    documented = {tuple(cell.strip("`") for cell in row[:3]) for row in _table("errors.md", "error")}

    assert documented == {(kind.__name__, kind.error_code, kind.category.value) for kind in tree}


def test_every_event_is_documented_with_its_code() -> None:
    documented = {(int(row[0]), row[1].strip("`")) for row in _table("events.md", "code")}

    assert documented == {(int(code), code.name) for code in EventCode}


def test_every_command_and_its_options_are_documented() -> None:
    documented = {row[0].strip("`"): row[1] for row in _table("cli.md", "command")}
    names = {re.sub(r" [\[A-Z].*", "", name).removeprefix("toolpost "): told for name, told in documented.items()}
    commands = dict(_commands(typer.main.get_command(make_app()), ""))

    assert sorted(names) == sorted(commands)
    unknown = {
        f"{name} {option}"
        for name, told in names.items()
        for option in re.findall(r"--[a-z-]+", told)
        if option not in commands[name]
    }
    assert unknown == set()


def test_every_public_name_is_documented_under_the_module_that_it_is_imported_from() -> None:
    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## `([\w.]+)`$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    documented = {
        module: set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE))))
        for module, text in sections
    }

    assert sorted(documented) == sorted(PUBLIC)
    assert documented == {module: set(import_module(module).__all__) for module in documented}


def test_the_packages_are_documented_by_layer_as_the_import_contract_has_them() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+` ?)+)\|", _section(text, "Packages and layers"), re.MULTILINE)
    documented = [re.findall(r"\w+", row) for row in rows]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    files = (ROOT / "src" / "toolpost").glob("[a-z]*")
    pictured = [name for row in _table("architecture.md", "layer") for name in re.findall(r"\w+", row[1])]

    assert documented == [re.findall(r"\w+", layer) for layer in layers]
    assert pictured == list(chain(*documented))
    assert sorted(chain(*documented)) == sorted(
        file.stem for file in files if file.is_dir() or (file.suffix == ".py" and "__" not in file.stem)
    )


def test_the_exit_codes_are_documented() -> None:
    documented = {row[1].split(":")[0].split(";")[0].split(" ")[0]: int(row[0]) for row in _table("cli.md", "code")}

    assert {word: documented[word] for word in EXIT_CODES} == EXIT_CODES


def test_every_parameter_of_the_decorator_is_documented() -> None:
    documented = {name for row in _table("tools.md", "parameter") for name in re.findall(r"`(\w+)`", row[0])}
    overload = inspect.getsource(inspect.getmodule(tool) or tool).split("def tool(\n")[1].split(") ->")[0]

    assert documented == set(re.findall(r"^    (\w+):", overload, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_a_page_is_readable_as_plain_text(page: Path) -> None:
    outside = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)

    assert [line for line in outside.splitlines() if len(line) > 130 and not line.startswith("|")] == []


def _table(page: str, first_column: str) -> list[list[str]]:
    """The rows of the one table of a page whose first column has this name."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(rf"^\| {first_column} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert len(found) == 1, f"{page} has {len(found)} tables that begin with {first_column!r}"
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in found[0].splitlines()]


def _section(text: str, heading: str) -> str:
    found = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no section {heading!r}"
    return found[1]


def _default(function: Any, parameter: str) -> int:
    default: int = inspect.signature(function).parameters[parameter].default
    return default


def _commands(command: Any, name: str) -> Iterator[tuple[str, set[str]]]:
    """Every command that does something, with its options."""
    for part, below in getattr(command, "commands", {}).items():
        yield from _commands(below, f"{name} {part}".strip())
    if name and (not hasattr(command, "commands") or command.invoke_without_command):
        yield name, {option for parameter in command.params for option in parameter.opts}
