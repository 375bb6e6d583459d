"""A call validates its arguments, reads its question and encodes its result once."""

from pathlib import Path

import pytest

from tests.runtime.test_credential_scrubbing import said, saying
from toolpost import Completed, Paused, Toolbox, tool
from toolpost.catalog.entry import Entry
from toolpost.runtime import results
from toolpost.runtime.tool_runtime import ToolRuntime
from toolpost.stores.sql.pending import SQLPendingStore


@tool(side_effects="write", destructive=True)
async def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


def count(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[str]:
    """Note every call of a function, which goes on to do its work."""
    calls: list[str] = []
    real = getattr(owner, name)

    def counted(*args: object, **options: object) -> object:
        calls.append(name)
        return real(*args, **options)

    monkeypatch.setattr(owner, name, counted)
    return calls


async def test_a_pause_validates_the_arguments_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    validated = count(monkeypatch, ToolRuntime, "validate")
    async with Toolbox(tools=[delete], settings={"data_dir": tmp_path}) as box:
        assert isinstance(await box.call("delete", {"path": "a"}), Paused)
    assert validated == ["validate"]


async def test_an_approval_reads_the_question_and_checks_its_arguments_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with Toolbox(tools=[delete], settings={"data_dir": tmp_path}) as box:
        paused = await box.call("delete", {"path": "a"})
        assert isinstance(paused, Paused)
        read, checked = count(monkeypatch, SQLPendingStore, "get"), count(monkeypatch, Entry, "fit")
        assert isinstance(await box.approve(paused.pending_id, by="local:boss"), Completed)
    assert (read, checked) == (["get"], ["fit"])


async def test_a_result_that_is_searched_for_the_credential_is_encoded_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    encoded = count(monkeypatch, results, "json_text")
    async with saying({"is": "harmless"}) as site:
        assert (await said(site, tmp_path)).content == {"is": "harmless"}
    assert encoded == ["json_text"]
