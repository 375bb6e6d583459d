"""The tools of a simulated world: one of each replay class, with approvals, steps, nested calls and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from toolpost.catalog.function import tool
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolConnectionError
from toolpost.contracts.outcomes import Failed, Paused
from toolpost.testing.simulation.faults import Faults
from toolpost.testing.simulation.world import Effect, EffectLedger

if TYPE_CHECKING:
    from toolpost.contracts.spec import Tool

NARROW = 2
STEPS = ("box", "tape")
_TIMEOUT_S = 2.0


class Workload:
    """The tools, which record their effects in the ledger of the world. Mutable: it counts the calls of `narrow`.

    All processes share the limit of `narrow`.
    """

    def __init__(self, seed: int | str, ledger: EffectLedger, faults: Faults) -> None:
        self.ledger = ledger
        self.faults = faults
        self.crowds: list[str] = []  # processes that ran `narrow` more often at once than its limit, with all others
        self._narrow = 0
        self._random = Random(f"work of {seed}")  # noqa: S311 - a simulation has to be repeatable

    def tools(self, process: str, revision: int) -> Sequence[Tool]:
        """Return the tools for one process; only that of `wipe` differs between revisions."""
        run = ToolRun(self, process, revision)
        wipe = f"Wipe, revision {revision}"
        return [
            _tool_without_effects(run),
            _tool(run, "put", side_effects="write", replay="idempotent"),
            _tool(run, "charge", side_effects="external", replay="keyed"),
            _tool(run, "pay", side_effects="external", replay="unsafe"),
            _tool(run, "wipe", side_effects="write", destructive=True, desc=wipe),
            _tool_with_limit(run),
            _tool_with_question(run),
            _tool_with_steps(run),
            _tool_with_nested_calls(run, "order", "pay", "put"),
            _tool_with_nested_calls(run, "bundle", "charge", "wipe"),
        ]

    @contextmanager
    def counted(self, process: str) -> Generator[None]:
        """Count the calls of `narrow` that run in all processes, and record a number above its limit."""
        self._narrow += 1
        if self._narrow > NARROW:
            self.crowds.append(process)
        try:
            yield
        finally:
            self._narrow -= 1

    def delay(self) -> float:
        """Return how long a step of a tool takes."""
        return self._random.random() ** 3 * 0.3


class ToolRun:
    """State that the tools of one process share."""

    def __init__(self, workload: Workload, process: str, revision: int) -> None:
        self.process = process
        self.workload = workload
        self._revision = revision

    async def work(self, job: str, name: str, amount: int, ctx: ToolContext | None) -> str:
        """Have one effect, if the tool has any, with the faults that the seed chooses before and after it."""
        workload, fault = self.workload, self.workload.faults.of_tool()
        if name == "pack" and fault == "break":
            fault = "refuse"  # a step that raises counts as not run, so it must raise before its effect
        ledger = workload.ledger
        ledger.runs[job] += 1
        await asyncio.sleep(workload.delay())
        if fault == "refuse":
            raise ToolConnectionError(f"{name} could not connect", sent=False)
        if ctx is not None:
            effect = Effect(job, name, ctx.idempotency_key or "", amount, self._revision, ctx.call_id)
            if name == "charge":
                ledger.add_once(effect)
            else:
                ledger.add(effect)
        await asyncio.sleep(_TIMEOUT_S * 2 if fault == "hang" else workload.delay())
        if fault == "break":
            raise ToolConnectionError(f"the connection of {name} broke")
        return job

    async def nest(self, ctx: ToolContext, name: str, job: str, amount: int) -> Any:
        """Call another tool, wait for its questions, and fail as it fails."""
        outcome = await ctx.call(name, {"job": f"{job}.{name}", "amount": amount})
        if isinstance(outcome, Paused):
            ctx.wait_for(outcome)
        if isinstance(outcome, Failed):
            raise outcome.error
        return outcome.content


def _tool(run: ToolRun, name: str, **declared: Any) -> Tool:
    async def work(job: str, amount: int, ctx: ToolContext) -> str:
        await run.work(job, name, amount, ctx)
        return f"{name} {job}"

    return tool(name=name, timeout_s=_TIMEOUT_S, **declared)(work)


def _tool_without_effects(run: ToolRun) -> Tool:
    @tool(side_effects="read", timeout_s=_TIMEOUT_S)
    async def look(job: str, amount: int) -> str:
        await run.work(job, "look", amount, None)
        return f"look {job}"

    return look


def _tool_with_limit(run: ToolRun) -> Tool:
    @tool(side_effects="write", max_concurrency=NARROW)
    async def narrow(job: str, amount: int, ctx: ToolContext) -> str:
        with run.workload.counted(run.process):
            await run.work(job, "narrow", amount, ctx)
        return f"narrow {job}"

    return narrow


def _tool_with_question(run: ToolRun) -> Tool:
    @tool(side_effects="write", timeout_s=_TIMEOUT_S)
    async def ask(job: str, amount: int, ctx: ToolContext) -> str:
        answer = await ctx.pause("how much", {"job": job})
        await run.work(job, "ask", amount, ctx)
        return f"ask {job}: {answer}"

    return ask


def _tool_with_steps(run: ToolRun) -> Tool:
    @tool(side_effects="write")
    async def pack(job: str, amount: int, ctx: ToolContext) -> str:
        for step in STEPS:
            await ctx.once(step, lambda step=step: run.work(f"{job}.{step}", "pack", amount, ctx))  # type: ignore[misc]
        return f"pack {job}"

    return pack


def _tool_with_nested_calls(run: ToolRun, name: str, *inner: str) -> Tool:
    async def work(job: str, amount: int, ctx: ToolContext) -> str:
        for one in inner:
            await run.nest(ctx, one, job, amount)
        return f"{name} {job}"

    return tool(name=name, side_effects="write")(work)
