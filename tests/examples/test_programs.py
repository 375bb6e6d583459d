"""Every example prints what it says that it prints, and the table has them all."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from examples.react_oauth.server import Agent

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
HELPERS = {"__init__", "servers"}
PROGRAMS = sorted(file.stem for file in EXAMPLES.glob("*.py") if file.stem not in HELPERS)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("multi_tool_agent", marks=pytest.mark.req("EXA-06")),
        *(name for name in PROGRAMS if name != "multi_tool_agent"),
    ],
)
async def test_an_example_prints_what_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("WEATHER_API_KEY", "STRIPE_SECRET_KEY", "WEB_SEARCH_API_KEY"):
        monkeypatch.setenv(variable, "set anew by the example")
    monkeypatch.chdir(tmp_path)
    program: Any = import_module(f"examples.{name}")

    await program.main()

    assert capsys.readouterr().out.strip() == program.__doc__.partition("Prints:\n")[2].strip()


def test_the_table_leads_to_every_program_and_leaves_nothing_undone() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (00\d) \| (.*?) \| (.*?) \| (.*?) \|$", text, re.MULTILINE)
    linked = {link for _, _, program, _ in rows for link in re.findall(r"\]\((.*?)\)", program)}

    assert len(rows) == 38
    assert [row for row in rows if not row[2].startswith("[")] == []
    assert [link for link in linked if not (EXAMPLES / link).exists()] == []
    assert {f"{name}.py" for name in PROGRAMS} <= linked


@pytest.mark.req("EXA-05")
@pytest.mark.parametrize("title", ["Mend the roof", "Oil the door"])
async def test_the_model_of_the_react_example_reads_the_real_result(title: str) -> None:
    agent = Agent("http://127.0.0.1:8000")
    await agent.accounts.token_store.store("ann", "github", "token-of-ann", None)
    async with agent.github:
        told = await agent.run(f"Create an issue: {title}", "ann")
    assert told == {"status": "finished", "answer": f"I opened home#3: {title}."}
