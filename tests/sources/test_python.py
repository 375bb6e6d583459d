"""Python files and modules as a source of tools."""

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from toolpost.catalog.registry import ToolRegistry
from toolpost.contracts.calls import (
    NO_CREDENTIAL,
    AuthorizedCall,
    PermittedCall,
    RequestedCall,
    ToolOutput,
    ValidatedCall,
)
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolConnectionError
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Question
from toolpost.contracts.spec import Tool
from toolpost.sources.python import PythonSource

TOOLS = """
    from toolpost import ToolContext, ToolResult, ToolSpec, tool

    @tool(side_effects="pure")
    def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    plus = add

    @tool
    async def choose(ctx: ToolContext) -> str:
        return await ctx.pause("which", {"prompt": "Which one?"})

    class Shout:
        spec = ToolSpec(name="shout", input_schema={"type": "object", "properties": {"text": {"type": "string"}}})

        async def execute(self, params, context):
            if not params:
                await context.pause("text", {"prompt": "What?"})
            return ToolResult(success=True, result=params["text"].upper())

    shout = Shout()

    class Stranger:
        spec = "of something else"
        def execute(self): ...

    stranger = Stranger()
    helper = lambda: None
"""


@pytest.fixture(autouse=True)
def _python_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in [name for name in sys.modules if name.startswith(("toolpost_source_", "acme_tools", "neighbour_"))]:
        del sys.modules[name]


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return path


def source(connection: Path | str, name: str = "local", **changes: Any) -> PythonSource:
    return PythonSource(
        ExternalToolConfig.model_validate(
            {"name": name, "transport": "python", "connection": str(connection), **changes}
        )
    )


def names(tools: Any) -> list[str]:
    return [tool.spec.name for tool in tools]


async def invoke(origin: PythonSource, tool: Tool, **arguments: Any) -> ToolOutput | Question:
    request = RequestedCall("call_1", "run_1", tool.spec.name, arguments, Principal("acme", "ann"))
    permitted = PermittedCall(ValidatedCall(request, tool, arguments))
    return await origin.invoke(AuthorizedCall(permitted, NO_CREDENTIAL, ToolContext))


async def test_a_file_gives_its_tools_under_the_name_of_the_source(tmp_path: Path) -> None:
    found = await source(written(tmp_path / "tools.py", TOOLS)).discover()

    assert names(found) == ["local.add", "local.choose", "local.shout"]
    assert {tool.spec.source for tool in found} == {"local"}
    assert found[0].spec.description == "Add two numbers."


async def test_a_module_gives_its_tools_too(tmp_path: Path) -> None:
    written(tmp_path / "acme_tools" / "math.py", TOOLS)
    written(tmp_path / "acme_tools" / "__init__.py", "")
    sys.path.append(str(tmp_path))

    assert names(await source("acme_tools.math").discover()) == ["local.add", "local.choose", "local.shout"]


async def test_the_tools_run_functions_and_hand_written_ones_alike(tmp_path: Path) -> None:
    origin = source(written(tmp_path / "tools.py", TOOLS))
    add, choose, shout = await origin.discover()

    assert await invoke(origin, add, a=1, b=2) == ToolOutput(3)
    assert await invoke(origin, shout, text="hey") == ToolOutput("HEY")
    for tool in (choose, shout):
        assert isinstance(await invoke(origin, tool), Question)


async def test_the_tools_go_into_a_registry(tmp_path: Path) -> None:
    origin, registry = source(written(tmp_path / "tools.py", TOOLS)), ToolRegistry()

    for tool in await origin.discover():
        registry.register(tool, source=origin)

    assert [definition.name for definition in registry.to_llm_tools()] == [
        "local__add",
        "local__choose",
        "local__shout",
    ]
    await origin.close()
    await origin.close()


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ({"tool_filter": ["add", "sh.*"]}, ["local.add", "local.shout"]),
        ({"tool_filter": ["ad"]}, list[str]()),
        ({"tool_exclude": ["add"]}, ["local.choose", "local.shout"]),
        ({"tool_filter": [".*"], "tool_exclude": ["c.*", "shout"]}, ["local.add"]),
        ({"tool_filter": []}, list[str]()),
    ],
    ids=["some", "whole-names-only", "all-but", "both", "none"],
)
async def test_filters_decide_which_tools_come_in(tmp_path: Path, filters: dict[str, Any], left: list[str]) -> None:
    origin = source(written(tmp_path / "tools.py", TOOLS), **filters)

    assert names(await origin.discover()) == left


async def test_two_sources_may_have_files_of_the_same_name(tmp_path: Path) -> None:
    text = "from toolpost import tool\n@tool\ndef where() -> str:\n    return {!r}\n"
    origins = [
        source(written(tmp_path / folder / "tools.py", text.format(folder)), name=folder) for folder in ("one", "two")
    ]

    answers = [await invoke(origin, (await origin.discover())[0]) for origin in origins]

    assert answers == [ToolOutput("one"), ToolOutput("two")]


async def test_a_file_can_import_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "neighbour_of_tools.py", "GREETING = 'hello'")
    text = """
        from neighbour_of_tools import GREETING
        from toolpost import tool

        @tool
        def greet() -> str:
            return GREETING
    """
    written(tmp_path / "tools.py", text)
    monkeypatch.chdir(tmp_path)
    origin = source("tools.py")

    (greet,) = await origin.discover()

    assert await invoke(origin, greet) == ToolOutput("hello")


async def test_a_file_may_hold_dataclasses_with_postponed_annotations(tmp_path: Path) -> None:
    text = """
        from __future__ import annotations
        from dataclasses import dataclass
        from toolpost import tool

        @dataclass
        class Point:
            x: int

        @tool
        def move(point: Point) -> Point:
            return Point(point.x + 1)
    """
    origin = source(written(tmp_path / "tools.py", text))

    (move,) = await origin.discover()

    assert await invoke(origin, move, point={"x": 1}) == ToolOutput({"x": 2})


async def test_a_file_is_read_again_when_it_is_asked_again(tmp_path: Path) -> None:
    path = written(tmp_path / "tools.py", "from toolpost import tool\n@tool\ndef old() -> None: ...\n")
    origin = source(path)
    before = names(await origin.discover())

    written(path, "from toolpost import tool\n@tool\ndef a_new_one() -> None: ...\n")

    assert (before, names(await origin.discover())) == (["local.old"], ["local.a_new_one"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "FileNotFoundError"),
        ("def broken(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import no_such_module_here", "ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("from toolpost import tool\n@tool(name='not a name')\ndef f(): ...", "'not a name' is not a tool name"),
        (
            "class P:\n  @property\n  def execute(self): raise RuntimeError('no context')\np = P()",
            "RuntimeError: no context",
        ),
    ],
    ids=["missing", "syntax", "exit", "import", "raises", "bad-name", "hostile-value"],
)
async def test_a_file_that_cannot_be_used_says_why_and_can_be_asked_again(
    tmp_path: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "tools.py"
    if text is not None:
        written(path, text)
    origin = source(path)

    with pytest.raises(ToolConnectionError, match="cannot be imported") as raised:
        await origin.discover()
    written(path, TOOLS)

    assert said in str(raised.value)
    assert (raised.value.sent, raised.value.is_retryable) == (False, True)
    assert len(await origin.discover()) == 3


async def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(ToolConnectionError, match=r"'no_such\.module' cannot be imported: ModuleNotFoundError"):
        await source("no_such.module").discover()
