"""The hand-written tool of the documents is a tool like any other."""

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks
from tests.patient_settings import PatientSettings
from toolpost import Completed, Failed, Toolbox, ToolCategory
from toolpost.errors import ToolValidationError


@pytest.mark.req("EXA-08")
async def test_the_custom_tool_of_the_documents_is_found_validated_and_run(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    example = next(block for block in blocks(page, page="extending.md") if block.file_name == "custom.py")
    (tmp_path / "custom.py").write_text(example.text, encoding="utf-8")
    source = {"name": "mine", "transport": "python", "connection": str(tmp_path / "custom.py")}

    async with Toolbox(settings=PatientSettings(data_dir=None, sources=[source])) as box:
        done = await box.call("mine.my_custom_tool", {"input": "ha", "times": 3})
        refused = await box.call("mine.my_custom_tool", {"times": "three"})
        spec = box.registry.find("mine.my_custom_tool").spec

    assert isinstance(done, Completed)
    assert done.content == "ha ha ha"
    assert isinstance(refused, Failed)
    assert isinstance(refused.error, ToolValidationError)
    assert spec.category is ToolCategory.CUSTOM
