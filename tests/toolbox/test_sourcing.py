"""Sources come in one by one; a broken one never takes the others down."""

from pathlib import Path
from typing import Any

import pytest

from toolpost import ConfigError, ExternalToolConfig, Settings, Toolbox, ToolRegistry, tool
from toolpost.auth.authorizer import Authorizer
from toolpost.toolbox.sourcing import Sources

TOOLS = """
from toolpost import tool

@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    return a + b
"""


def settings(tmp_path: Path, *sources: dict[str, Any]) -> Settings:
    (tmp_path / "tools.py").write_text(TOOLS)
    good = {"name": "good", "transport": "python", "connection": str(tmp_path / "tools.py")}
    return Settings(data_dir=None, sources=[good, *sources])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"transport": "python", "connection": "no.such.module"}, "cannot be imported"),
        ({"transport": "workflow", "connection": "x"}, "no source here speaks transport 'workflow'"),
    ],
)
async def test_a_broken_source_is_told_of_and_the_others_work(
    tmp_path: Path, source: dict[str, Any], said: str
) -> None:
    async with Toolbox(settings=settings(tmp_path, {"name": "bad", **source})) as box:
        good, bad = box.report
        outcome = await box.call("good.add", {"a": 1, "b": 2})
    assert (good.ok, good.tools, good.error) == (True, 1, None)
    assert not bad.ok
    assert said in str(bad.error)
    assert outcome.status == "completed"


async def test_a_required_source_that_fails_stops_everything(tmp_path: Path) -> None:
    bad = {"name": "bad", "transport": "python", "connection": "no.such.module", "required": True}
    with pytest.raises(ConfigError, match="required source 'bad' failed"):
        await Toolbox(settings=settings(tmp_path, bad)).__aenter__()


async def test_a_source_that_is_switched_off_is_left_out(tmp_path: Path) -> None:
    off = {"name": "off", "transport": "python", "connection": "no.such.module", "enabled": False}
    async with Toolbox(settings=settings(tmp_path, off)) as box:
        assert [state.name for state in box.report] == ["good"]


class Foreign:
    """A plug-in's source that raises whatever it likes."""

    def __init__(self, config: ExternalToolConfig) -> None:
        self.name = config.name
        self.closed = 0

    async def discover(self) -> list[Any]:
        raise LookupError("the plug-in's own trouble")

    async def close(self) -> None:
        self.closed += 1


async def test_what_a_plug_in_raises_is_told_and_its_source_is_closed() -> None:
    made: list[Foreign] = []

    def factory(config: ExternalToolConfig) -> Any:
        made.append(Foreign(config))
        return made[-1]

    sources = Sources(ToolRegistry(), Authorizer(), factories={"mcp": factory})
    await sources.load(ExternalToolConfig(name="foreign", transport="mcp", connection="x"))
    await sources.close()
    assert sources.states[0].error == "LookupError: the plug-in's own trouble"
    assert made[0].closed == 1


async def test_a_tool_whose_name_is_taken_is_set_aside(tmp_path: Path) -> None:
    @tool(name="good.add", side_effects="pure")
    async def mine() -> str:
        return "mine"

    async with Toolbox(tools=[mine], settings=settings(tmp_path)) as box:
        (problem,) = box.problems
        outcome = await box.call("good.add")
    assert "tool 'good.add' of source 'good' is set aside" in problem
    assert getattr(outcome, "content", None) == "mine"
