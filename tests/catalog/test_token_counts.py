"""The tokens of a definition are estimated, or counted by a tokenizer that is installed with its vocabulary."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from toolpost.catalog.token_counts import find_counter
from toolpost.contracts.spec import ToolDefinition

SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "A city, such as Bergen"}}}
WEATHER = ToolDefinition("weather", "Report the weather of a city.", SCHEMA)


def test_without_a_tokenizer_tokens_are_estimated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))  # no vocabulary, with and without tiktoken
    counter = find_counter()

    assert counter.tokenizer == "estimate"
    assert 40 <= counter.count(WEATHER) <= 48  # o200k_base: 42
    assert counter.count_text("中文" * 50) == 100
    assert counter.count_text("") == 0


def test_a_tokenizer_without_a_copy_of_its_vocabulary_downloads_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tokenizer = ModuleType("tiktoken")
    tokenizer.__spec__ = sys.__spec__
    monkeypatch.setitem(sys.modules, "tiktoken", tokenizer)  # an attribute of it would be an AttributeError
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))

    assert find_counter().tokenizer == "estimate"
