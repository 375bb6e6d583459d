"""The test kit is imported without pytest, which only the tests of stores need."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.programs

PROGRAM = "import sys; sys.modules['pytest'] = None; import toolpost.testing; print(toolpost.testing.__all__)"


def test_the_kit_needs_no_pytest() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    assert done.stdout == "['ScriptedModel', 'tool_calls']\n"
