"""The adapters without their extras."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
for missing in ("pyarrow", "langchain_core"):
    sys.modules[missing] = None
from toolpost.adapters import MCPTool, ToolValueFactory
from toolpost.errors import ConfigError
told = [ToolValueFactory().encode(MCPTool("add", "", {}, "u", "add"))["9"]]
for name in ("tool_column", "LangchainToolConverter"):
    try:
        __import__("toolpost.adapters", fromlist=[name]).__getattr__(name)
    except ConfigError as error:
        told.append(str(error))
print(json.dumps(told))
"""


@pytest.mark.programs
def test_a_missing_extra_is_reported_with_its_install_line_and_values_work() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=100)

    name, arrow, langchain = json.loads(done.stdout)
    assert name == "add"
    assert "pip install 'toolpost[arrow]'" in arrow
    assert "pip install 'toolpost[langchain]'" in langchain
