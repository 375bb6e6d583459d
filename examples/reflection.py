"""Lessons of a task are written to memory after the task has ended.

Prints:
PostTaskReflection(assessment='It went well.', tool_calls_count=1)
facts/ann.md: who Ann is
"""

import asyncio
import tempfile
from pathlib import Path

from toolpost import Principal, Settings, Toolbox
from toolpost.agents import ActionResult, PostTaskReflector, TaskContext
from toolpost.testing import ScriptedModel, tool_calls

ANN = Principal("acme", "ann")


async def main() -> None:
    """Reflect on a task, then read the memory."""
    done = ActionResult(step_id="1", tool_name="add", params={"a": 1, "b": 2}, success=True, text="3")
    task = TaskContext(task_id="task_1", input_text="add for Ann", iteration=2, actions_done=[done], final_result="3")
    fact = {"path": "facts/ann.md", "content": "# Ann\n> Summary: who Ann is\n- Likes: sums\n"}
    model = ScriptedModel(tool_calls(("memory_write", fact)), "It went well.")
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder))
        async with Toolbox(builtins=["memory_list"], settings=settings) as box:
            print(await PostTaskReflector(box, model, user=ANN).run(task))
            listed = await box.call("memory_list", user=str(ANN))
            for file in getattr(listed, "content", []):
                print(f"{file['path']}: {file['summary']}")


if __name__ == "__main__":
    asyncio.run(main())
