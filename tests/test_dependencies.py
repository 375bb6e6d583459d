"""What the package asks to be installed."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def brought(extra: str) -> set[str]:
    """The requirements that an extra comes to, with those of the extras that it names."""
    found = {line for line in EXTRAS[extra] if not line.startswith("toolpost[")}
    named = (line[len("toolpost[") : -1].split(",") for line in EXTRAS[extra] if line not in found)
    return found.union(*(brought(name) for names in named for name in names))


def required() -> set[str]:
    """The names of everything that is installed with the package and its extras."""
    wanted = [*PROJECT["dependencies"], *(line for extra in EXTRAS for line in brought(extra))]
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    return {re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower() for line in [*wanted, *pinned] if line}


@pytest.mark.req("GEN-13")
def test_neither_the_mcp_bridge_of_utcp_nor_a_model_generator_is_used() -> None:
    assert required() & {"utcp-mcp", "datamodel-code-generator"} == set()


def test_every_requirement_is_pinned() -> None:
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert {name.replace("_", "-") for name in required()} <= {name.replace("_", "-") for name in pinned}


def test_all_brings_what_every_extra_for_users_brings() -> None:
    each = set[str]().union(*(brought(extra) for extra in EXTRAS if extra not in ("all", "dev")))

    assert brought("all") == each


@pytest.mark.req("MISC-03", "GEN-11")
def test_the_extras_for_command_lines_and_websockets_bring_what_they_need() -> None:
    assert brought("websocket") < brought("tools-websocket")
    assert any(line.startswith("aiohttp") for line in brought("tools-websocket"))
    assert "utcp-websocket>=1.0.0" in brought("tools-websocket")
    assert brought("tools-cli") == {"utcp-cli>=1.0.0"}


@pytest.mark.req("GEN-10")
def test_the_extra_for_planners_brings_models_servers_and_apis() -> None:
    names = {re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in brought("planner")}

    assert {"litellm", "fastmcp", "utcp", "utcp-http", "aiohttp"} <= names


def test_the_extra_for_models_brings_what_litellm_imports_for_a_request_with_tools() -> None:
    assert any(line.startswith("litellm[mcp]") for line in brought("agents"))
