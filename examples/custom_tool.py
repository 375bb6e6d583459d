"""A tool written by hand against the Protocol, registered and run.

Prints:
{'input': 'hi', 'times': 2} -> hi hi
not registered twice: a tool named 'my_custom_tool' is already registered
"""

import asyncio
import time
from typing import Any

from toolpost import ToolCategory, ToolContext, ToolRegistry, ToolResult, ToolSpec


async def do_something(text: str, times: int | None) -> str:
    """Placeholder for the work of your tool."""
    return " ".join([text] * (times or 1))


class MyCustomTool:
    """Description of what this tool does."""

    spec = ToolSpec(
        name="my_custom_tool",
        description="Description of what this tool does",
        category=ToolCategory.CUSTOM,
        input_schema={
            "type": "object",
            "properties": {"input": {"type": "string"}, "times": {"type": "number"}},
            "required": ["input"],
        },
    )

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool; a failure is a result."""
        started_at = time.time() * 1000
        try:
            result = await do_something(params["input"], params.get("times"))
        except Exception as error:  # noqa: BLE001 - any error is the result
            return ToolResult(success=False, error=str(error), started_at=started_at)
        return ToolResult(success=True, result=result, started_at=started_at)


my_custom_tool = MyCustomTool()


async def main() -> None:
    """Register the tool and run it."""
    registry = ToolRegistry()
    registry.register(my_custom_tool)
    params = {"input": "hi", "times": 2}
    result = await my_custom_tool.execute(params, ToolContext("task-1"))
    print(params, "->", result.result)
    try:
        registry.register(my_custom_tool)
    except ValueError as taken:
        print("not registered twice:", str(taken).partition(" (")[0])


if __name__ == "__main__":
    asyncio.run(main())
