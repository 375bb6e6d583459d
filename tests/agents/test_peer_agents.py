"""LangGraph's prebuilt agent and Penguiflow's own planner drive the catalog of a Toolbox."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import parts


def penguiflow() -> Path:
    """The interpreter beside penguiflow, which wants older libraries than ours."""
    try:
        return parts.python_of_peer("penguiflow")
    except parts.PartMissingError as missing:
        pytest.skip(f"NO PENGUIFLOW: {missing}")


@pytest.mark.slow
@pytest.mark.programs
@pytest.mark.parametrize("peer", ["langgraph", "penguiflow"])
def test_an_agent_of_others_calls_the_tools_of_a_toolbox_and_approves_nothing(peer: str) -> None:
    python = Path(sys.executable) if peer == "langgraph" else penguiflow()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(parts.ROOT / "src"), str(parts.ROOT)])}
    done = subprocess.run(
        [str(python), "-m", f"tests.agents.peers.{peer}_agent"],
        cwd=parts.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    added, failed, paused = told["read"]
    assert (told["answer"], added) == ("It is 6.", "6")
    assert "nobody is there" in failed
    assert "waits for a person" in paused
    assert (told["waiting"], told["dropped"]) == (["drop"], [])
