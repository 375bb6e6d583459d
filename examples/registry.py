"""A registry of built-in tools: by name, by category, for a model, and in numbers.

Prints:
read_file: file, known as a Tool: True
memory: ['memory_append', 'memory_list', 'memory_patch', 'memory_read', 'memory_write']
for a model: ['base64_decode', 'base64_encode', 'json_parse', 'json_stringify']
called once: {'current_time': 1}
main agent only: ['reply', 'spawn_task']
"""

import asyncio

from toolpost import Tool, ToolCategory, ToolRegistry
from toolpost.builtin import all_task_tools, main_agent_tools, reflection_tools


async def main() -> None:
    """Register a collection and look at it."""
    registry = ToolRegistry()
    registry.register_many(all_task_tools)
    read_file = registry.get("read_file")
    if read_file is not None:
        print(f"read_file: {read_file.spec.category}, known as a Tool: {isinstance(read_file, Tool)}")
    memory = registry.list_by_category(ToolCategory.MEMORY)
    print("memory:", sorted(tool.spec.name for tool in memory))
    data = [tool.spec.name for tool in registry.list_by_category(ToolCategory.DATA)]
    shown = registry.to_llm_tools(name for name in data if name.startswith(("base64", "json")))
    print("for a model:", sorted(definition.name for definition in shown))
    registry.update_call_stats("current_time", 1.5, success=True)
    print("called once:", {name: stats.count for name, stats in registry.get_stats().call_stats.items()})
    tasks = {tool.spec.name for tool in (*all_task_tools, *reflection_tools)}
    own = sorted(tool.spec.name for tool in main_agent_tools if tool.spec.name in {"spawn_task", "reply"} - tasks)
    print("main agent only:", own)


if __name__ == "__main__":
    asyncio.run(main())
