"""What the package asks to be installed."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def required() -> set[str]:
    """The names of everything that is installed with the package and its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    return {re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower() for line in [*wanted, *pinned] if line}


@pytest.mark.req("GEN-13")
def test_neither_the_mcp_bridge_of_utcp_nor_a_model_generator_is_used() -> None:
    assert required() & {"utcp-mcp", "datamodel-code-generator"} == set()


def test_every_requirement_is_pinned() -> None:
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert {name.replace("_", "-") for name in required()} <= {name.replace("_", "-") for name in pinned}
