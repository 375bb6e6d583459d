"""The list of what stays on one machine is complete, and the documents have it."""

from pathlib import Path

from tests.stores.data_folders.content import write_content
from toolpost.stores.local_files import LOCAL_DATA

PAGE = Path(__file__).parents[2] / "docs" / "deployment.md"
OF_SQLITE = {"toolpost.db", "owners", "limits.db", "limits.lock"}


async def test_a_data_folder_has_nothing_that_is_not_listed(tmp_path: Path) -> None:
    await write_content(tmp_path)

    found = {path.name.partition("-")[0] for path in tmp_path.iterdir()}  # -wal and -shm belong to the database

    assert "key" in found
    assert found <= OF_SQLITE | {local.name for local in LOCAL_DATA}


def test_the_documents_have_the_same_list() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Local to a machine")[2].partition("\n## ")[0]

    rows = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| Place")]

    assert rows == [f"| {name} | {content} | {consequence} |" for name, content, consequence in LOCAL_DATA]
