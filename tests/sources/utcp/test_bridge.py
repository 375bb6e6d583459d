"""Protocols that only other people's packages speak go through those, where they are installed."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.parts import ROOT, python_of_utcp
from tests.sources.utcp.serving import in_file, manual, source, tool, toolbox

pytestmark = pytest.mark.programs

PROGRAM = Path(__file__).with_name("bridged.py")
ECHO = {"call_template_type": "echo", "prefix": "${WORD}"}


LEVEL = """
import asyncio, logging, sys
from toolpost import ExternalToolConfig, Settings, Toolbox

async def main():
    one = ExternalToolConfig(name="m", transport="utcp", connection=sys.argv[1], options={"bridge": True})
    async with Toolbox(settings=Settings(data_dir=None, sources=[one])):
        assert "utcp.utcp_client" in sys.modules

asyncio.run(main())
print(logging.getLogger().level, len(logging.getLogger().handlers))
"""


def beside_utcp(*arguments: str) -> str:
    """What a program of ours prints that finds the packages of UTCP beside it."""
    packages = next(python_of_utcp().parent.parent.glob("lib/python3*/site-packages"))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(packages)])}
    done = subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def bridged(connection: Path, bridge: str = "bridge") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(beside_utcp(str(PROGRAM), str(connection), bridge))
    return found


@pytest.mark.req("RES-04", "RES-05", "RES-06")
def test_a_tool_of_a_community_protocol_is_called(tmp_path: Path) -> None:
    found = bridged(in_file(tmp_path, manual(tool("t", ECHO))))

    assert found["tools"] == ["m.t"]
    assert found["contents"] == [{"prefix": "hello", "a": 1}]
    assert found["errors"] == ["connection_failed"]
    assert found["names"] == ["m.t"]
    assert found["odd"] == ["UTCP error: odd"]


def test_a_manual_of_a_community_protocol_is_found(tmp_path: Path) -> None:
    found = bridged(in_file(tmp_path, {"manual_call_templates": [{"name": "m", **ECHO}]}))

    assert found["contents"] == [{"prefix": "hello", "a": 1}]


def test_the_packages_do_not_take_over_the_programs_log(tmp_path: Path) -> None:
    printed = beside_utcp("-c", LEVEL, str(in_file(tmp_path, manual(tool("t", ECHO)))))

    assert printed.split() == [str(logging.WARNING), "0"]


def test_a_protocol_that_no_one_knows_is_reported(tmp_path: Path) -> None:
    found = bridged(in_file(tmp_path, manual(tool("t", {"call_template_type": "smoke_signal"}))))

    assert "cannot call smoke_signal" in found["report"][0]


def test_without_the_bridge_it_stays_closed(tmp_path: Path) -> None:
    found = bridged(in_file(tmp_path, manual(tool("t", ECHO))), "none")

    assert found["tools"] == []
    assert "bridge: true" in found["report"][0]


async def test_where_the_packages_are_missing_the_way_to_install_them_is_reported(tmp_path: Path) -> None:
    async with toolbox(source(in_file(tmp_path, manual(tool("t", ECHO))), options={"bridge": True})) as box:
        [state] = box.report

    assert "pip install 'toolpost[utcp]'" in str(state.error)
