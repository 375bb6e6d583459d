"""Adapters of more frameworks: `make test-frameworks` installs each in minutes, and runs its tests and its page."""

import json
import subprocess
from pathlib import Path

import pytest

from bench.adapters import listed_tools
from bench.envs import environment
from tests.adapters.frameworks.test_own_environments import HERE, run_trial
from tests.docs.blocks import ROOT, blocks, page_name
from tests.docs.reader import Reader, search_path
from toolpost.models import ToolCompiler

pytestmark = pytest.mark.programs
FRAMEWORKS = [
    "agent_framework",
    "agno",
    "autogen",
    "crewai",
    "dspy",
    "google_adk",
    "haystack",
    "llama_index",
    "penguiflow",
    "semantic_kernel",
    "smolagents",
    "strands",
]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_adapter_of_a_framework(framework: str) -> None:
    run_trial(environment(framework, root=HERE), f"trial_{framework}")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_page_of_a_framework_shows_the_output_of_its_program(framework: str, tmp_path: Path) -> None:
    environment(framework, root=HERE)
    follow(ROOT / "docs" / "frameworks" / f"{framework}.md", tmp_path)


def test_schemas_compiled_for_gemini_are_accepted_by_the_sdk_of_google(tmp_path: Path) -> None:
    compiled = ToolCompiler("gemini").compile(listed_tools(None)).definitions
    written = tmp_path / "schemas.json"
    written.write_text(json.dumps([tool.parameters for tool in compiled]), encoding="utf-8")

    python = environment("google_adk", root=HERE)
    done = subprocess.run(
        [str(python), str(HERE / "gemini_schemas.py"), str(written)], stdout=subprocess.PIPE, text=True, check=True
    )

    assert int(done.stdout) == len(compiled) > 100


def test_the_page_of_a_migration_shows_the_output_of_its_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", search_path())
    environment("langchain_mcp_adapters", root=HERE)
    follow(ROOT / "docs" / "migrate" / "langchain-mcp-adapters.md", tmp_path)


def follow(page: Path, folder: Path) -> None:
    """Run the programs of a page, and compare what they print."""
    reader = Reader(folder)
    for block in blocks(page.read_text(encoding="utf-8"), page=page_name(page)):
        reader.follow(block)
        assert not reader.unrun
