"""A step of a task, its events, and the deadline and the limit of concurrent calls.

Prints:
TOOL_CALL_REQUESTED 400 done=0
TOOL_CALL_STARTED 405 done=0
TOOL_CALL_COMPLETED 410 done=1
timed out: Tool execution timed out after 50ms
at once: 3
"""

import asyncio

from toolpost import EventBus, Settings, Toolbox, ToolContext, tool
from toolpost.agents.steps import Actor, PlanStep, TaskContext

running = most = 0


@tool(side_effects="read")
async def web_search(query: str) -> list[str]:
    """Search the web."""
    global running, most  # noqa: PLW0603 - counted for the last line
    running += 1
    most = max(most, running)
    await asyncio.sleep(0.01)
    running -= 1
    return [f"about {query}"]


@tool(side_effects="read", timeout_s=0.05)
async def hang() -> None:
    """Never return in time."""
    await asyncio.sleep(60)


async def main() -> None:
    """Run a step, then a tool that hangs, then ten concurrent searches."""
    task, bus = TaskContext(task_id="abc123"), EventBus()
    done = task.actions_done
    end = bus.subscribe(None, lambda event: print(event.code.name, event.code.value, f"done={len(done)}"))
    async with Toolbox(tools=[web_search, hang], settings=Settings(data_dir=None)) as box:
        executor, context = box.executor(bus), ToolContext("abc123")
        step = PlanStep(id="1", tool_name="web_search", params={"query": "AI Agent"})
        await Actor(executor).run_step(step, task, context)
        end()
        print("timed out:", (await executor.execute("hang", {}, context)).error)
        await asyncio.gather(*(executor.execute("web_search", {"query": str(n)}, context) for n in range(10)))
        print("at once:", most)


if __name__ == "__main__":
    asyncio.run(main())
