"""A tool that pauses for a sign-in, without a network.

Prints:
answer_complete
"""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from toolpost.compat.penguiflow import ModelRegistry, Node
from toolpost.compat.penguiflow.catalog import build_catalog, tool
from toolpost.compat.penguiflow.planner import PlannerPause, ReactPlanner, ToolContext
from toolpost.testing import ScriptedModel, tool_calls


class Out(BaseModel):
    """Whether it worked."""

    ok: bool


@tool(desc="A tool that requires OAuth", side_effects="external")
async def oauth_tool(_args: BaseModel, ctx: ToolContext) -> Out:
    """Pause until the user has signed in."""
    if not ctx.tool_context.get("oauth_ready"):
        await ctx.pause(
            "external_event",
            {
                "pause_type": "oauth",
                "provider": "demo",
                "display_name": "Demo OAuth",
                "auth_url": "https://example.invalid/oauth?state=demo",
                "state": "demo",
                "scopes": ["read"],
            },
        )
    return Out(ok=True)


async def main() -> None:
    """Run, and resume as long as the run pauses."""
    registry = ModelRegistry()
    registry.register("oauth_tool", BaseModel, Out)  # permissive args for the demo
    catalog = build_catalog([Node(oauth_tool, name="oauth_tool")], registry)
    model = ScriptedModel(tool_calls(("oauth_tool", {})), "Done.")  # or llm="gpt-4o-mini"
    planner = ReactPlanner(llm=model, catalog=catalog)
    result = await planner.run("Call oauth_tool", tool_context={"session_id": "demo"})
    while isinstance(result, PlannerPause):
        # In real systems: open result.payload["auth_url"], handle callback, then resume.
        result = await planner.resume(
            result.resume_token,
            user_input="oauth_completed",
            tool_context={"session_id": "demo", "oauth_ready": True},
        )
    print(result.reason)
    await planner.close()


if __name__ == "__main__":
    asyncio.run(main())
