"""`toolpost demo`: list, call, refuse, pause, approve and finish tools of a small shop in a temporary folder."""

from __future__ import annotations

import asyncio
import json as jsonlib
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict, assert_never

from msgspec import Struct, field
from msgspec.structs import asdict, replace
from pydantic import Field
from rich import box as boxes
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from toolpost import ToolContext, tool
from toolpost.cli.documents import document_hint
from toolpost.cli.output import Output, make_printable
from toolpost.cli.runner import own_words_for_failures
from toolpost.contracts.errors import ToolError
from toolpost.contracts.events import EventCode, StoredEvent
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused, outcome_to_dict
from toolpost.toolbox.box import Toolbox

_LIFE_OF_AN_APPROVED_CALL = [
    EventCode.TOOL_CALL_REQUESTED,
    EventCode.APPROVAL_REQUESTED,
    EventCode.APPROVAL_GRANTED,
    EventCode.TOOL_CALL_STARTED,
    EventCode.TOOL_CALL_COMPLETED,
]
ORDERS_FILE = "orders.json"
LEDGER_FILE = "ledger.txt"
SHOP_FOLDER = Path("tenants", "shop")  # where the tools of this tenant find its files
_REFUSALS = 2  # how often the exchange hangs up before it answers

AGENT, PERSON, OUTSIDER = "shop:agent", "shop:maria", "other:eve"
CHILD_TIMEOUT_S = 60.0
_COLOURS = {"completed": "green", "failed": "red", "paused": "yellow", "approved": "green", "denied": "red"}
_CONFIG = """\
data_dir: state
builtins: [artifact_read, artifact_search]
sources:
  - {name: shop, transport: python, connection: toolpost.cli.demo}
"""


class DemoStep(Struct, frozen=True, kw_only=True):
    """One step of the demo with its expected and its actual status."""

    title: str
    did: str
    expected: str
    status: str
    says: str
    fine: bool = True
    more: RenderableType | None = None
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def ok(self) -> bool:
        """Return whether the step has its expected status and passed its check."""
        return self.fine and self.status == self.expected

    def to_dict(self) -> dict[str, Any]:
        """Return the step as JSON data."""
        facts = {name: getattr(self, name) for name in ("title", "did", "expected", "status", "says", "ok")}
        return {**facts, "detail": dict(self.detail)}


class Stage(Struct, frozen=True, kw_only=True):
    """Toolbox and folder that every scene uses."""

    box: Toolbox
    folder: Path

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Outcome:
        """Call a tool as the agent."""
        return await self.box.call(name, arguments, user=AGENT)

    def count_notes(self, text: str) -> int:
        """Count a line in the ledger of the shop."""
        return (self.folder / SHOP_FOLDER / LEDGER_FILE).read_text(encoding="utf-8").splitlines().count(text)


def run(*, json: bool = False) -> int:
    """Run the demo; return 0 when every step came out as expected."""
    console = Console(highlight=False, quiet=json)
    began = time.perf_counter()
    with own_words_for_failures():
        steps = asyncio.run(_play(console))
    seconds = time.perf_counter() - began
    ok = len(steps) > len(SCENES) and all(step.ok for step in steps)
    if json:
        document = {"status": "ok" if ok else "failed", "seconds": seconds, "steps": [s.to_dict() for s in steps]}
        Output(sys.stdout, as_json=True).document(document)
    console.print(_summary(steps, seconds))
    return 0 if ok else 1


async def _play(console: Console) -> list[DemoStep]:
    steps: list[DemoStep] = []
    with tempfile.TemporaryDirectory(prefix="toolpost-demo-") as name:
        folder = Path(name)
        _write_files(folder)
        async with Toolbox.open(folder / "toolpost.yaml") as box:
            async for step in _steps(Stage(box=box, folder=folder)):
                steps.append(step)
                console.print(_panel(step, len(steps)))
    return steps


def _write_files(folder: Path) -> None:
    (folder / "toolpost.yaml").write_text(_CONFIG, encoding="utf-8")
    (folder / SHOP_FOLDER).mkdir(parents=True)
    orders = [{"id": n, "customer": f"customer {n}", "total": n * 1.25} for n in range(1, 1001)]
    (folder / SHOP_FOLDER / ORDERS_FILE).write_text(jsonlib.dumps(orders), encoding="utf-8")
    (folder / SHOP_FOLDER / LEDGER_FILE).touch()


async def _steps(stage: Stage) -> AsyncIterator[DemoStep]:
    """Run the scenes; a scene that raises is a failed step."""
    for scene in SCENES:
        try:
            async for step in scene(stage):
                yield step
        except ToolError as error:
            yield DemoStep(title="The demo broke", did=scene.__name__, expected="", status="failed", says=str(error))


async def _listing(stage: Stage) -> AsyncIterator[DemoStep]:
    specs = stage.box.registry.specs()
    table = _table("Tool", "Effects", "Repeat", "Description")
    for spec in specs:
        table.add_row(spec.name, spec.side_effects, spec.replay, spec.description.partition(".")[0].partition(";")[0])
    yield DemoStep(
        title="Every tool has a contract",
        did="toolpost tools list",
        expected="listed",
        status="listed",
        says=f"{len(specs)} tools of a small shop, their schemas made from signatures and docstrings",
        fine={"shop.find_order", "artifact_read"} <= {spec.name for spec in specs},
        more=table,
        detail={"tools": [spec.name for spec in specs]},
    )


async def _calls(stage: Stage) -> AsyncIterator[DemoStep]:
    order = await stage.call("shop.find_order", {"order_id": 2})
    yield _outcome("A call is one line", {"order_id": 2}, order, "completed", "customer 2")
    wrong = {"order_id": "two", "colour": "red"}
    refused = await stage.call("shop.find_order", wrong)
    yield _outcome("Wrong arguments never reach the tool", wrong, refused, "failed", "order_id")
    unknown = await stage.call("shop.find_oder", {"order_id": 2})
    yield _outcome(
        "The error for an unknown tool names the nearest", {"order_id": 2}, unknown, "failed", "Did you mean"
    )
    raised = await stage.call("shop.find_order", {"order_id": 4711})
    yield _outcome("An exception in a tool is a failed call", {"order_id": 4711}, raised, "failed", "LookupError")


async def _approval(stage: Stage) -> AsyncIterator[DemoStep]:
    arguments = {"order_id": 2}
    paused = await stage.call("shop.delete_order", arguments)
    yield _outcome("A destructive call waits for approval", arguments, paused, "paused", "destructive")
    pending_id = _pending_id(paused)
    yield await _refused(
        "Another tenant cannot see it", stage.box.approve(pending_id, by=OUTSIDER), OUTSIDER, "pending_not_found"
    )
    command = ["pending", "approve", pending_id, "--user", PERSON, "--json"]
    code, answer = await asyncio.to_thread(other_process, stage.folder, command)
    yield DemoStep(
        title="An approver approves it in another process, and it runs there",
        did=f"toolpost {' '.join(command)}",
        expected="approved",
        status="approved" if code == 0 else "failed",
        says=f"{answer.get('status')}: {_short(answer.get('content') or answer.get('error'))}",
        fine=answer.get("status") == "completed",
        detail={"exit_code": code, "outcome": answer},
    )
    yield await _refused(
        "No pending action is answered twice", stage.box.approve(pending_id, by=PERSON), PERSON, "already"
    )
    gone = await stage.call("shop.find_order", arguments)
    yield _outcome("This process sees that the order is gone", arguments, gone, "failed", "no order 2")
    yield await _log(stage, paused.run_id)


async def _denial(stage: Stage) -> AsyncIterator[DemoStep]:
    arguments = {"order_id": 3, "text": "You won!"}
    paused = await stage.call("shop.email_customer", arguments)
    yield _outcome("A mail cannot be undone, and waits too", arguments, paused, "paused", "marked destructive")
    denied = await stage.box.deny(_pending_id(paused), by=PERSON, reason="we do not send that")
    step = _outcome("An approver denies it, with a reason", arguments, denied, "failed", "we do not send that")
    yield _with_check(step, fine=stage.count_notes("mailed 'You won!'") == 0)


async def _input(stage: Stage) -> AsyncIterator[DemoStep]:
    paused = await stage.call("shop.ship_order", {"order_id": 5})
    yield _outcome("A tool can ask a question (ctx.pause)", {"order_id": 5}, paused, "paused", "Where does")
    shipped = await stage.box.answer(_pending_id(paused), "12 Long Lane", by=PERSON)
    ran, reserved = stage.count_notes("began to ship"), stage.count_notes("reserved")
    step = _outcome("The answer runs it again from the top", {"order_id": 5}, shipped, "completed", "12 Long Lane")
    says = f"The tool ran {ran} times, its step in ctx.once {reserved} time."
    yield _with_check(step, says=says, fine=(ran, reserved) == (2, 1))


async def _artifact(stage: Stage) -> AsyncIterator[DemoStep]:
    large = await stage.call("shop.export_orders", {})
    step = _outcome("A large result is stored, and a preview is returned", {}, large, "completed", "artifact_id")
    artifact_ids = large.artifacts if isinstance(large, Completed) else ()
    yield _with_check(step, fine=len(artifact_ids) == 1)
    reading = {"artifact_id": "".join(artifact_ids), "offset": 40_000, "limit": 60}
    part = await stage.call("artifact_read", reading)
    yield _outcome("artifact_read reads the rest", reading, part, "completed", "next_offset", show="content")
    search = {"artifact_id": "".join(artifact_ids), "query": "customer 777"}
    hits = await stage.call("artifact_search", search)
    yield _outcome("artifact_search finds a place in it", search, hits, "completed", "customer 777", show="matches")


async def _retries(stage: Stage) -> AsyncIterator[DemoStep]:
    rate = await stage.call("shop.exchange_rate", {"currency": "USD"})
    events = await stage.box.events(user=AGENT, run_id=rate.run_id)
    retried = [event for event in events if event.code is EventCode.CALL_RETRIED]
    step = _outcome("A read-only call is retried", {"currency": "USD"}, rate, "completed", "1.08")
    waits = ", ".join(f"{event.payload['wait_s']:.2f} s" for event in retried)
    yield _with_check(step, says=f"It failed {len(retried)} times and waited {waits}.", fine=len(retried) == 2)


async def _statistics(stage: Stage) -> AsyncIterator[DemoStep]:
    stats = stage.box.registry.get_stats()
    table = _table("Tool", "Calls", "Failed", "Mean ms")
    for name, one in stats.call_stats.items():
        table.add_row(name, str(one.count), str(one.failures), f"{one.avg_duration:.2f}")
    yield DemoStep(
        title="Calls are counted",
        did="box.registry.get_stats()",
        expected="counted",
        status="counted",
        says=f"{sum(one.count for one in stats.call_stats.values())} calls of {len(stats.call_stats)} tools here",
        fine=stats.call_stats["shop.find_order"].failures == 3,
        more=table,
        detail={name: asdict(one) for name, one in stats.call_stats.items()},
    )


SCENES: tuple[Callable[[Stage], AsyncIterator[DemoStep]], ...] = (
    _listing,
    _calls,
    _approval,
    _denial,
    _input,
    _artifact,
    _retries,
    _statistics,
)


def other_process(folder: Path, command: list[str]) -> tuple[int, dict[str, Any]]:
    """Run a toolpost command in another process on the same folder."""
    line = [sys.executable, "-m", "toolpost", *command, "--config", str(folder / "toolpost.yaml")]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=CHILD_TIMEOUT_S, check=False)  # noqa: S603 - our own command
    try:
        answer: dict[str, Any] = jsonlib.loads(done.stdout)
    except ValueError:
        answer = {"status": "failed", "error": done.stderr.strip()}
    return done.returncode, answer


async def _log(stage: Stage, run_id: str) -> DemoStep:
    """Show the events of a run that two processes wrote."""
    events = await stage.box.events(user=AGENT, run_id=run_id)
    breaks = await stage.box.store.events.verify(run_id)
    table = _table("Seq", "Event", "What", "Hash")
    for event in events:
        table.add_row(
            str(event.seq), f"{int(event.code)} {event.code.name}", _event_text(event), f"{event.hash[:12]}..."
        )
    gapless = [event.seq for event in events] == list(range(1, len(events) + 1))
    return DemoStep(
        title="Both processes wrote one log, numbered and chained by hash",
        did=f"toolpost events --run {run_id}",
        expected="verified",
        status="failed" if breaks else "verified",
        says="; ".join(breaks) or f"{len(events)} events without a gap; every hash covers the one before",
        fine=gapless and [event.code for event in events] == _LIFE_OF_AN_APPROVED_CALL,
        more=table,
        detail={"events": [event.to_dict() for event in events], "breaks": breaks},
    )


def _event_text(event: StoredEvent) -> str:
    keys = ("params", "kind", "by", "input", "summary")
    return ", ".join(f"{key} {_short(event.payload[key])}" for key in keys if key in event.payload)


async def _refused(title: str, answer: Any, who: str, code: str) -> DemoStep:
    """Show that an answer is refused with this error code."""
    did = f"toolpost pending approve ... --user {who}"
    try:
        outcome: Outcome = await answer
    except ToolError as error:
        fine = error.error_code.startswith(code)
        return DemoStep(title=title, did=did, expected="failed", status="failed", says=str(error), fine=fine)
    return DemoStep(title=title, did=did, expected="failed", status=outcome.status, says="the answer was taken")


def _outcome(
    title: str, arguments: Mapping[str, Any], outcome: Outcome, expected: str, holds: str, *, show: str | None = None
) -> DemoStep:
    """Show a call; it must end with the expected status, and its text must contain `holds`."""
    text = _outcome_text(outcome)
    shown = _text(outcome.content[show]) if show and isinstance(outcome, Completed) else text
    return DemoStep(
        title=title,
        did=f"{outcome.tool_name} {_text(arguments)}",
        expected=expected,
        status=outcome.status,
        says=_short(shown),
        fine=holds in text,
        detail=outcome_to_dict(outcome),
    )


def _outcome_text(outcome: Outcome) -> str:
    match outcome:
        case Completed(content=content):
            return _text(content)
        case Failed(error=error):
            return str(error)
        case Paused(question=question):
            return question.prompt
        case _:
            assert_never(outcome)


def _pending_id(outcome: Outcome) -> str:
    return outcome.pending_id if isinstance(outcome, Paused) else "none"


def _with_check(step: DemoStep, *, fine: bool, says: str = "") -> DemoStep:
    """Add a check, and a text about it, to a step."""
    return replace(step, says="\n".join(filter(None, [step.says, says])), fine=step.fine and fine)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else jsonlib.dumps(value, ensure_ascii=False)


def _short(value: Any, most: int = 150) -> str:
    text = _text(value)
    return text if len(text) <= most else f"{text[:most]}..."


def _table(*columns: str) -> Table:
    table = Table(box=boxes.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _panel(step: DemoStep, number: int) -> Panel:
    word = Text(f"{step.status}  ", style=f"bold {_COLOURS.get(step.status, 'cyan')}")
    parts: list[RenderableType] = [Text(make_printable(step.did), style="dim"), word + Text(make_printable(step.says))]
    if step.more is not None:
        parts.append(step.more)
    if not step.ok:
        parts.append(Text(f"Expected: {step.expected}", style="bold red"))
    return Panel(Group(*parts), title=f"{number}. {step.title}", title_align="left", border_style="dim")


def _summary(steps: list[DemoStep], seconds: float) -> Panel:
    good = sum(step.ok for step in steps)
    result = f"{good} of {len(steps)} steps succeeded, in {seconds:.1f} s."
    after = f"Next: write your own tools in twelve lines: {document_hint()}\n`toolpost --help` shows the commands."
    return Panel(f"{result}\n{after}", border_style="green" if good == len(steps) else "red")


class Order(TypedDict):
    """Order of the shop."""

    id: int
    customer: str
    total: float


OrderId = Annotated[int, Field(ge=1, description="The number of the order")]


@tool(side_effects="read", tags=["orders"])
def find_order(order_id: OrderId, ctx: ToolContext) -> Order:
    """Look up one order."""
    for order in _orders(ctx):
        if order["id"] == order_id:
            return order
    raise LookupError(f"there is no order {order_id}")


@tool(side_effects="read", tags=["orders"])
def export_orders(ctx: ToolContext) -> list[Order]:
    """All orders in one list, which is long."""
    return _orders(ctx)


@tool(side_effects="write", destructive=True, tags=["orders"])
def delete_order(order_id: OrderId, ctx: ToolContext) -> str:
    """Delete an order permanently."""
    remaining_orders = [order for order in _orders(ctx) if order["id"] != order_id]
    (_folder(ctx) / ORDERS_FILE).write_text(jsonlib.dumps(remaining_orders), encoding="utf-8")
    return f"order {order_id} is deleted"


@tool(side_effects="external", destructive=True, tags=["mail"])
def email_customer(order_id: OrderId, text: str, ctx: ToolContext) -> str:
    """Send a mail to the customer of an order."""
    _write_note(ctx, f"mailed {text!r}")
    return f"mail about order {order_id} sent"


@tool(side_effects="write", tags=["orders"])
async def ship_order(order_id: OrderId, ctx: ToolContext) -> str:
    """Reserve the goods, ask a person for the address, and ship."""
    _write_note(ctx, "began to ship")

    async def reserve() -> str:
        _write_note(ctx, "reserved")
        return f"parcel-{order_id}"

    parcel = await ctx.once("reserve", reserve)
    address = await ctx.pause("address_needed", {"order_id": order_id}, prompt="Where does the parcel go?")
    return f"{parcel} is on its way to {address}"


@tool(side_effects="read", tags=["money"])
def exchange_rate(currency: str, ctx: ToolContext) -> float:
    """What a euro costs; the exchange behind it hangs up on the first calls."""
    if _write_note(ctx, f"asked for {currency}") <= _REFUSALS:
        raise ConnectionResetError("the exchange hung up")
    return 1.08


def _folder(ctx: ToolContext) -> Path:
    return Path((ctx.allowed_paths or ["."])[0])


def _orders(ctx: ToolContext) -> list[Order]:
    orders: list[Order] = jsonlib.loads((_folder(ctx) / ORDERS_FILE).read_text(encoding="utf-8"))
    return orders


def _write_note(ctx: ToolContext, text: str) -> int:
    """Append a line to the ledger; return how often it is there."""
    ledger = _folder(ctx) / LEDGER_FILE
    with ledger.open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")
    return ledger.read_text(encoding="utf-8").splitlines().count(text)
