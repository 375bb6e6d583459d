"""What `import toolpost` promises, and what it costs."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import toolpost
from toolpost.contracts import errors

SRC = Path(__file__).parent.parent / "src"
HEAVY = [
    *("cryptography", "jsonschema_rs", "langchain_core", "pyarrow", "pydantic", "rich", "sqlite3", "typer", "yaml"),
]


PUBLIC = [
    "toolpost",
    "toolpost.adapters",
    "toolpost.agents",
    "toolpost.auth",
    "toolpost.builtin",
    "toolpost.compat.penguiflow",
    "toolpost.compat.penguiflow.tools",
    "toolpost.errors",
    "toolpost.events",
    "toolpost.models",
    "toolpost.sources",
    "toolpost.testing",
]


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_are_sorted_and_each_is_there_once(module: str) -> None:
    names = list(import_module(module).__all__)

    assert names == sorted(set(names))


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_resolves_and_is_listed_by_dir(module: str) -> None:
    public = import_module(module)

    assert [name for name in public.__all__ if not hasattr(public, name)] == []
    assert set(public.__all__) <= set(dir(public))


def test_the_top_holds_what_people_use_every_day_and_no_more() -> None:
    assert len(toolpost.__all__) <= 45


@pytest.mark.req("GEN-15")
def test_what_a_program_with_external_tools_needs_is_imported_from_one_place() -> None:
    needed = {
        *("ToolNode", "ExternalToolConfig", "TransportType", "AuthType", "UtcpMode", "RetryPolicy"),
        *("OAuthManager", "OAuthProviderConfig", "TokenStore", "InMemoryTokenStore"),
        *("get_preset", "POPULAR_MCP_SERVERS"),
    }
    raised = {name for name in vars(errors) if name.startswith(("Tool", "MCP"))}

    assert needed <= set(toolpost.__all__)
    assert raised <= set(import_module("toolpost.errors").__all__)


def test_no_two_modules_define_a_public_class_of_the_same_name() -> None:
    classes = Counter(
        name
        for module in SRC.rglob("*.py")
        for name in re.findall(r"^class ([A-Za-z]\w*)", module.read_text(encoding="utf-8"), re.MULTILINE)
    )

    assert [name for name, count in classes.items() if count > 1] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(toolpost, "no_such_name")


@pytest.mark.programs
def test_importing_the_package_alone_imports_nothing_heavy() -> None:
    found = f"[name for name in {HEAVY} if name in sys.modules]"
    program = f"import json, sys, toolpost, toolpost.adapters; print(json.dumps({found}))"

    assert json.loads(_python_without_site(program)) == []


CALL = """
import asyncio, json, sys
from toolpost import Toolbox, tool

@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

async def main():
    async with Toolbox(tools=[add], settings={"data_dir": None}) as box:
        return (await box.call("add", {"a": 1, "b": 2})).content
"""


@pytest.mark.programs
def test_a_call_of_a_plain_function_builds_no_validators_of_pydantic_and_imports_nothing_heavy() -> None:
    needless = [  # pydantic reads the metadata of everything installed when it builds its first validator
        *("pydantic.plugin._loader", "pydantic.root_model", "docstring_parser", "cryptography", "rich", "sqlite3"),
        *("typer", "yaml", "websockets", "mcp", "httpx2", "toolpost.toolbox.accounts", "toolpost.stores.sqlite.store"),
        "toolpost.contracts.config",  # the models of sources
    ]
    told = f"print(json.dumps([asyncio.run(main()), [name for name in {needless} if name in sys.modules]]))"

    assert json.loads(_python_without_site(CALL + told)) == [3, []]


def _python_without_site(program: str) -> str:
    """Run a program with the packages but without their start-up hooks: coverage's own hook imports sqlite3."""
    path = os.pathsep.join([str(SRC), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
