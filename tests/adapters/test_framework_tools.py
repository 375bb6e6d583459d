"""What all adapters share: the tools of a Toolbox with their users, names and calls."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.adapters.frameworks.shelf import Shelf, toolbox
from toolpost import Completed, ExternalToolConfig, Failed, Paused, Toolbox
from toolpost.adapters.framework_tools import FrameworkTool, FrameworkTools, block_in_loop
from toolpost.errors import ToolNotFoundError

ANN, BOSS = "acme:ann", "acme:boss"


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
async def box(shelf: Shelf) -> AsyncIterator[Toolbox]:
    async with toolbox(shelf) as box:
        yield box


async def one(box: Toolbox, name: str) -> FrameworkTool:
    (tool,) = await FrameworkTools(box, user=ANN, only=[name]).read()
    return tool


async def test_only_selects_tools_by_name_collection_and_pattern(box: Toolbox) -> None:
    box.registry.define_collection("numbers", ["add"])

    chosen = await FrameworkTools(box, only=["numbers", "wi*", "page"]).read()

    assert [tool.name for tool in chosen] == ["add", "wipe", "page"]


async def test_the_user_is_read_from_the_context_of_each_call(box: Toolbox, shelf: Shelf) -> None:
    (wipe,) = await FrameworkTools(box, user=lambda context: f"acme:{context}", only=["wipe"]).read()

    for user in ("ann", "bo"):
        waiting = await wipe.call({"disk": "sda"}, call_id=user, context=user)
        assert isinstance(waiting, Paused)
        await box.approve(waiting.pending_id, by=BOSS)

    assert shelf.wiped == [("sda", "acme:ann"), ("sda", "acme:bo")]


async def test_a_repeated_call_has_the_outcome_of_the_first_and_another_thread_its_own(
    box: Toolbox, shelf: Shelf
) -> None:
    wipe = await one(box, "wipe")
    first = await wipe.call({"disk": "sda"}, call_id="c1", thread="a")
    other = await wipe.call({"disk": "sda"}, call_id="c1", thread="b")
    assert isinstance(first, Paused)
    assert isinstance(other, Paused)
    await box.approve(first.pending_id, by=BOSS)

    repeated = await wipe.call({"disk": "sda"}, call_id="c1", thread="a")

    assert isinstance(repeated, Completed)
    assert first.pending_id != other.pending_id
    assert len(shelf.wiped) == 1


async def test_a_call_id_with_other_arguments_is_a_failure_and_runs_nothing(box: Toolbox, shelf: Shelf) -> None:
    wipe = await one(box, "wipe")
    await wipe.call({"disk": "sda"}, call_id="c1")

    other = await wipe.call({"disk": "sdb"}, call_id="c1")

    assert isinstance(other, Failed)
    assert other.error.error_code == "key_mismatch"
    assert shelf.wiped == []


async def test_a_tool_that_disappeared_after_the_listing_is_a_failure_that_names_it(box: Toolbox) -> None:
    add = await one(box, "add")
    box.registry.unregister("add")

    gone = await add.call({"a": 1, "b": 2}, call_id="c1")

    assert isinstance(gone, Failed)
    assert 'Tool "add" not found' in gone.error.message
    assert await add.would_ask({"a": 1, "b": 2}) is None


async def test_a_selected_tool_that_disappeared_is_not_listed_and_an_unknown_one_is_an_error(box: Toolbox) -> None:
    listing = FrameworkTools(box, only=["add", "wipe"])
    with pytest.raises(ToolNotFoundError, match="late"):
        await FrameworkTools(box, only=["add", "late"]).read()
    assert [tool.name for tool in await listing.read()] == ["add", "wipe"]

    box.registry.unregister("wipe")

    assert [tool.name for tool in await listing.read()] == ["add"]


async def test_would_ask_is_the_question_of_the_call_under_the_names_of_the_model(box: Toolbox, shelf: Shelf) -> None:
    wipe, add = await one(box, "wipe"), await one(box, "add")

    asked = await wipe.would_ask('{"disk": "sda"}')
    waiting = await wipe.call({"disk": "sda"}, call_id="c1")

    assert isinstance(waiting, Paused)
    assert asked == waiting.question
    assert await add.would_ask({"a": 1, "b": 2}) is None
    assert shelf.added == []


async def test_progress_is_received_with_the_tool(box: Toolbox) -> None:
    received: list[dict[str, object]] = []
    page = await one(box, "page")

    await page.call({}, call_id="c1", receive=received.append)

    assert [(facts["tool"], facts["text"], facts["fraction"]) for facts in received] == [("page", "half of it", 0.5)]


async def test_a_toolbox_whose_loop_has_ended_is_an_error(shelf: Shelf) -> None:
    opened: list[Toolbox] = []

    async def open_and_leave() -> None:
        box = await toolbox(shelf).__aenter__()
        opened.append(box)

    await asyncio.to_thread(lambda: asyncio.run(open_and_leave()))
    (add, *_) = FrameworkTools(opened[0]).catalog(opened[0])

    with pytest.raises(RuntimeError, match="has stopped"):
        await add.call({"a": 1, "b": 2}, call_id=None)


async def test_code_that_blocks_the_loop_of_the_toolbox_is_refused(box: Toolbox) -> None:
    add = await one(box, "add")
    with pytest.raises(RuntimeError, match="must not be blocked"):
        block_in_loop(box, add.call({"a": 1, "b": 2}, call_id=None))


async def test_schemas_are_compiled_for_a_provider_and_arguments_converted_back(box: Toolbox) -> None:
    (order,) = await FrameworkTools(box, only=["order"], provider="openai-strict").read()
    (shown,) = order.parameters["properties"]

    done = await order.call({shown: "age"}, call_id="c1")

    assert order.parameters["additionalProperties"] is False
    assert isinstance(done, Completed)
    assert done.content == "ordered by age"


@pytest.mark.req("FRAME-06")
async def test_a_tool_that_cannot_be_shown_is_skipped_with_one_warning(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "many.py").write_text(
        "from toolpost import tool\n"
        'MANY = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(5001)}}\n'
        '@tool(side_effects="pure", input_schema=MANY)\n'
        "def choose(**options: str) -> str:\n"
        '    """Choose."""\n'
        '    return ""\n'
    )
    await box.sources.add(ExternalToolConfig(name="shop", transport="python", connection=str(tmp_path / "many.py")))
    listing = FrameworkTools(box, only=["add", "shop.choose"], provider="openai-strict")

    said = r"tool 'shop__choose' of the source 'shop' is left out: \$: it has more than 5000 properties; to check all"
    with pytest.warns(UserWarning, match=said) as warned:
        read = [*await listing.read(), *await listing.read()]

    assert [tool.name for tool in read] == ["add", "add"]
    assert len(warned) == 1
