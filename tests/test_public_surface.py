"""What `import toolpost` promises, and what it costs."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import toolpost
from toolpost.contracts import errors

SRC = Path(__file__).parent.parent / "src"
HEAVY = ["cryptography", "jsonschema_rs", "pydantic", "rich", "sqlite3", "typer", "yaml"]


def test_the_public_names_are_sorted_and_each_is_there_once() -> None:
    names = list(toolpost.__all__)

    assert names == sorted(set(names))


def test_every_public_name_resolves() -> None:
    missing = [name for name in toolpost.__all__ if not hasattr(toolpost, name)]

    assert missing == []


@pytest.mark.req("GEN-15")
def test_what_a_program_with_external_tools_needs_is_imported_from_one_place() -> None:
    needed = {
        *("ToolNode", "ExternalToolConfig", "TransportType", "AuthType", "UtcpMode", "RetryPolicy"),
        *("OAuthManager", "OAuthProviderConfig", "TokenStore", "InMemoryTokenStore"),
        *("get_preset", "POPULAR_MCP_SERVERS"),
    }
    raised = {name for name in vars(errors) if name.startswith("Tool")}

    assert needed | raised <= set(toolpost.__all__)


def test_the_public_names_are_listed_by_dir() -> None:
    assert set(toolpost.__all__) <= set(dir(toolpost))


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(toolpost, "no_such_name")


def test_importing_the_package_alone_imports_nothing_heavy() -> None:
    program = f"import json, sys, toolpost; print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"

    assert json.loads(_python_without_site(program)) == []


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
