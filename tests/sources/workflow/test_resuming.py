"""A pause inside a workflow survives kill -9, and what has ended is not repeated."""

import os
import signal
from pathlib import Path
from textwrap import dedent

import pytest

from tests.patient_settings import PatientSettings
from tests.warm import Program
from toolpost import Completed, Toolbox
from toolpost.sources import ExternalToolConfig

ANN = "acme:ann"
FLOW = """
name: order
inputs: {properties: {items: {type: array}}}
steps:
  stamp: {tool: shop.stamp}
  reserve:
    for_each: inputs.items
    tool: shop.reserve
    arguments: {item: "${{ item }}", stamp: "${{ steps.stamp }}"}
  pay: {tool: shop.pay, arguments: {items: "${{ steps.reserve }}"}}
  tell: {tool: shop.tell, arguments: {receipt: "${{ steps.pay }}"}}
outputs: {receipt: "${{ steps.pay }}", stamp: "${{ steps.stamp }}", told: "${{ steps.tell }}"}
"""
UNASKED = """
name: order
version: 1
inputs: {properties: {items: {type: array}}}
steps:
  stamp: {tool: shop.stamp}
  reserve: {tool: shop.reserve, arguments: {item: a, stamp: "${{ steps.stamp }}"}}
  tell: {tool: shop.tell, arguments: {receipt: "${{ steps.reserve }}"}}
"""
SHOP = '''
import asyncio
import itertools
import os
from pathlib import Path

from toolpost import tool

FOLDER = Path(__file__).parent
count = itertools.count(os.getpid() * 1000)


def note(text):
    with (FOLDER / "ledger").open("a") as ledger:
        ledger.write(text + "\\n")


@tool(side_effects="read")
async def stamp() -> int:
    """Return a number that is never the same."""
    note("stamp")
    return next(count)


@tool(side_effects="write")
async def reserve(item: str, stamp: int) -> str:
    """Reserve an item."""
    note(f"reserve {item}")
    return f"{item} for {stamp}"


@tool(side_effects="write", destructive=True)
async def pay(items: list[str]) -> str:
    """Pay."""
    note("pay")
    return f"paid {len(items)}"


async def hang():
    if (FOLDER / "hang").exists():
        print("inside", flush=True)
        await asyncio.sleep(60)


@tool(side_effects="write")
async def tell(receipt: str) -> str:
    """Tell somebody."""
    note("tell")
    await hang()
    return f"told {receipt}"


@tool(side_effects="read")
async def look(receipt: str) -> str:
    """Look at something."""
    note("look")
    await hang()
    return f"saw {receipt}"
'''
HOST = dedent(
    """
    import asyncio, sys
    from toolpost import Toolbox

    async def main():
        async with Toolbox.open(sys.argv[1] + "/toolpost.yaml") as box:
            await box.wait_for_sources()
            if sys.argv[2] == "call":
                outcome = await box.call("flows.order", {"items": ["a", "b"]}, user="acme:ann")
                assert outcome.status == "paused", outcome
                print(outcome.pending_id, flush=True)
                await asyncio.sleep(60)
            else:
                await box.approve(sys.argv[2], by="acme:ann")

    asyncio.run(main())
    """
)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "order.yaml").write_text(FLOW)
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "host.py").write_text(HOST)
    (tmp_path / "toolpost.yaml").write_text(
        "data_dir: data\nbuiltins: none\nsources:\n"
        "  - {name: shop, transport: python, connection: ./shop.py}\n"
        "  - {name: flows, transport: workflow, connection: ./flows}\n"
    )
    return tmp_path


def reopened(folder: Path) -> Toolbox:
    sources = [
        ExternalToolConfig(name="shop", transport="python", connection=str(folder / "shop.py")),
        ExternalToolConfig(name="flows", transport="workflow", connection=str(folder / "flows")),
    ]
    return Toolbox(settings=PatientSettings(data_dir=folder / "data", sources=sources, builtins="none"))


def killed(folder: Path, what: str) -> str:
    """Start the host, read a line of it, and kill it with -9."""
    with Program(folder / "host.py", str(folder), what) as process:
        said = process.stdout.readline().strip()
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    return said


def ledger(folder: Path) -> list[str]:
    return (folder / "ledger").read_text().splitlines()


@pytest.mark.programs
async def test_a_workflow_whose_process_was_killed_while_it_paused_continues_where_it_was(shop: Path) -> None:
    pending_id = killed(shop, "call")

    async with reopened(shop) as box:
        done = await box.approve(pending_id, by=ANN)

    assert isinstance(done, Completed)
    assert done.tool_name == "flows.order"
    assert done.content["told"] == "told paid 2"
    assert sorted(ledger(shop)) == ["pay", "reserve a", "reserve b", "stamp", "tell"]


@pytest.mark.programs
async def test_one_that_was_killed_after_the_answer_asks_about_the_step_whose_end_is_unknown(shop: Path) -> None:
    (shop / "hang").touch()
    pending_id = killed(shop, "call")
    assert killed(shop, pending_id) == "inside"
    (shop / "hang").unlink()

    async with reopened(shop) as box:
        (asked,) = await box.pending.list(by=ANN)
        await box.answer(asked.id, "told by hand", by=ANN, decision="happened")
        done = await box.pending.outcome(pending_id, by=ANN, wait_s=20)

    assert (asked.tool_name, asked.question.kind) == ("shop.tell", "unknown")
    assert isinstance(done, Completed)
    assert done.content["told"] == "told by hand"
    assert sorted(ledger(shop)) == ["pay", "reserve a", "reserve b", "stamp", "tell"]


@pytest.mark.programs
async def test_one_that_was_killed_before_any_pause_asks_about_its_step_alone(shop: Path) -> None:
    (shop / "flows" / "order.yaml").write_text(UNASKED)
    newer = UNASKED.replace("version: 1", "version: 2")  # with two of them, `order` calls a version
    (shop / "flows" / "newer.yaml").write_text(newer)
    (shop / "hang").touch()
    assert killed(shop, "call") == "inside"
    (shop / "hang").unlink()

    async with reopened(shop) as box:
        (asked,) = await box.pending.list(by=ANN)
        done = await box.answer(asked.id, by=ANN, decision="rerun")

    assert asked.tool_name == "shop.tell"
    assert isinstance(done, Completed)
    assert (done.tool_name, done.content[:11]) == ("flows.order", "told a for ")
    assert ledger(shop) == ["stamp", "reserve a", "tell", "tell"]  # the second as the person said


@pytest.mark.programs
async def test_one_that_was_killed_in_a_step_that_only_reads_continues_when_a_person_says_so(shop: Path) -> None:
    (shop / "flows" / "order.yaml").write_text(UNASKED.replace("tool: shop.tell", "tool: shop.look"))
    (shop / "hang").touch()
    assert killed(shop, "call") == "inside"
    (shop / "hang").unlink()

    async with reopened(shop) as box:
        (asked,) = await box.pending.list(by=ANN)
        done = await box.answer(asked.id, by=ANN, decision="rerun")

    assert asked.tool_name == "flows.order"
    assert asked.question.prompt.endswith("not repeated if it runs again: shop.reserve.")
    assert isinstance(done, Completed)
    assert ledger(shop) == ["stamp", "reserve a", "look", "look"]


@pytest.mark.programs
async def test_one_that_was_killed_after_the_answer_in_a_step_that_only_reads_continues_automatically(
    shop: Path,
) -> None:
    (shop / "flows" / "order.yaml").write_text(FLOW.replace("tool: shop.tell", "tool: shop.look"))
    (shop / "hang").touch()
    pending_id = killed(shop, "call")
    assert killed(shop, pending_id) == "inside"
    (shop / "hang").unlink()

    async with reopened(shop) as box:
        done = await box.pending.outcome(pending_id, by=ANN, wait_s=20)
        asked = await box.pending.list(by=ANN)

    assert asked == []
    assert isinstance(done, Completed)
    assert done.content["told"] == "saw paid 2"
    assert sorted(ledger(shop)) == ["look", "look", "pay", "reserve a", "reserve b", "stamp"]
