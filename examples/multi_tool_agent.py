"""An agent with many tools: files, a function, an MCP server and a web API; a person approves what it writes.

Prints:
asks: github.create_issue {'repo': 'home', 'title': 'Mend the roof'}
answer_complete: The roof comes first; I opened home#3.
events: 4 calls completed
"""

import asyncio
import tempfile
from pathlib import Path

from examples.servers import web_api
from toolpost import EventBus, EventCode, ReactPlanner, Settings, Toolbox, tool
from toolpost.agents import PlannerPause
from toolpost.testing import ScriptedModel, tool_calls


@tool(side_effects="pure")
def days_until_winter(month: int) -> int:
    """Count the days until winter, roughly."""
    return max(0, 12 - month) * 30


async def main() -> None:
    """Let the agent look at everything, and ask before it writes."""
    completed: list[str] = []
    bus = EventBus()
    bus.subscribe(EventCode.TOOL_CALL_COMPLETED, lambda event: completed.append(event.call.tool_name))
    with web_api() as site, tempfile.TemporaryDirectory() as name:
        notes = Path(name, "notes.md")
        notes.write_text("The roof leaks.", encoding="utf-8")
        settings = Settings.model_validate(
            {
                "data_dir": None,
                "tools": {"allowedPaths": [name]},
                "sources": [
                    {"name": "github", "transport": "mcp", "connection": "memory:examples.servers:github"},
                    {"name": "weather", "transport": "utcp", "connection": f"{site}/.well-known/utcp.json"},
                ],
            }
        )
        model = ScriptedModel(
            tool_calls(("read_file", {"path": str(notes)}), ("weather__forecast", {"city": "Hamburg"})),
            tool_calls(("days_until_winter", {"month": 10})),
            tool_calls(("github__create_issue", {"repo": "home", "title": "Mend the roof"})),
            "The roof comes first; I opened home#3.",
        )
        async with Toolbox(tools=[days_until_winter], builtins=["read_file"], sinks=[bus], settings=settings) as box:
            await box.wait_for_sources()
            planner = ReactPlanner(catalog=box, llm=model)
            result = await planner.run(f"What shall I mend first? My notes: {notes}")
            while isinstance(result, PlannerPause):
                print("asks:", result.tool_name, dict(result.arguments))
                result = await planner.resume(result.resume_token, "approve")
            print(f"{result.reason}: {result.payload['answer']}")
    print(f"events: {len(completed)} calls completed")


if __name__ == "__main__":
    asyncio.run(main())
