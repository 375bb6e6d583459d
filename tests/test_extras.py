"""The core without its extras."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.programs

PROGRAM = """
import asyncio, json, sys
for missing in ("fastmcp", "mcp", "mcp_types", "httpx2"):
    sys.modules[missing] = None
from toolpost import ExternalToolConfig, Settings, Toolbox, tool

@tool(side_effects="pure")
def add(a: int, b: int) -> int:
    return a + b

async def main():
    source = ExternalToolConfig(name="srv", transport="mcp", connection="some-server")
    async with Toolbox(tools=[add], settings=Settings(data_dir=None, sources=[source])) as box:
        print(json.dumps([(await box.call("add", {"a": 1, "b": 2})).content, box.report[0].error]))

asyncio.run(main())
"""


@pytest.mark.req("GEN-12")
def test_a_missing_extra_is_reported_with_its_install_line_and_all_else_works(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=tmp_path)
    total, error = json.loads(done.stdout)
    assert total == 3
    assert "pip install 'toolpost[mcp]'" in error


def test_a_database_whose_driver_is_missing_is_reported_with_its_install_line(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None; from toolpost.stores.registry import find_backend; "
        "find_backend('postgresql://ann:canary@db/x')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert (
        "ConfigError: database: postgresql needs the package psycopg; run: pip install 'toolpost[postgres]'"
        in done.stderr
    )
    assert "canary" not in done.stderr.replace(program, "")
