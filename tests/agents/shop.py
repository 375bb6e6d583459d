"""A run that buys an owl in a process of its own: `python -m tests.agents.shop FOLDER model|call [TOKEN]`.

It prints the token that it resumes with, or begins with one that it is given and only ships the owl. Then the model
hangs after the owl was shipped, or the call that ships it hangs when it is; it says so and waits to be killed.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from toolpost import PlannerPause, ReactPlanner, Settings, Toolbox, ToolContext, tool
from toolpost.testing import ScriptedModel, tool_calls


async def hang() -> None:
    print("here", flush=True)
    await asyncio.Event().wait()


def write(ctx: ToolContext, line: str) -> None:
    with (Path(ctx.tool_context["folder"]) / "ledger").open("a") as ledger:
        ledger.write(f"{line}\n")


@tool(side_effects="write")
async def pay(euro: int, ctx: ToolContext) -> str:
    """Pay."""
    code = await ctx.pause("await_input", {"prompt": "Which code?"})
    write(ctx, f"pay {euro} with {code}")
    return f"paid {euro}"


@tool(side_effects="write")
async def ship(what: str, ctx: ToolContext) -> str:
    """Ship something."""
    write(ctx, f"ship {what}")
    if ctx.tool_context["hang"] == "call":
        await hang()
    return f"{what} shipped"


@tool(side_effects="read")
async def stock(what: str) -> str:
    """Count what is left."""
    return f"9 of {what} left"


class Stalling(ScriptedModel):
    """Hangs when it has no more to say."""

    async def stream(self, *messages: Any, **options: Any) -> Any:
        if not self._lines:
            await hang()
        async for item in super().stream(*messages, **options):
            yield item


def opened(folder: Path) -> Toolbox:
    """The shop, not yet open."""
    return Toolbox(tools=[pay, ship, stock], settings=Settings(data_dir=folder / "data"))


async def begin(folder: str, where: str, token: str) -> None:
    model = Stalling(tool_calls(("ship", {"what": "owl"}), ("stock", {"what": "owl"})))
    async with opened(Path(folder)) as box:
        planner = ReactPlanner(catalog=box, llm=model)
        context = {"user_id": "acme:ann", "folder": folder, "hang": where}
        await planner.run("Ship an owl.", tool_context=context, resume_token=token)


async def main(folder: str, where: str, token: str = "") -> None:
    if token:
        await begin(folder, where, token)
    model = Stalling(tool_calls(("pay", {"euro": 50})), tool_calls(("ship", {"what": "owl"})))
    async with opened(Path(folder)) as box:
        planner = ReactPlanner(catalog=box, llm=model)
        context = {"user_id": "acme:ann", "folder": folder, "hang": where}
        pause = await planner.run("Buy an owl.", tool_context=context)
        assert isinstance(pause, PlannerPause)
        print(pause.resume_token, flush=True)
        await planner.resume(pause.resume_token, "1234")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
