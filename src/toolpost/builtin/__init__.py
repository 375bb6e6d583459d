"""Built-in tools as objects, and their collections in both spellings; imported at first use."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolpost.catalog.function import FunctionTool

    Tools = tuple[FunctionTool, ...]

# Annotations without values: `__getattr__` imports a tool at its first use.
allTaskTools: Tools
all_task_tools: Tools
base64_decode: FunctionTool
base64_encode: FunctionTool
current_time: FunctionTool
dataTools: Tools
data_tools: Tools
delete_file: FunctionTool
edit_file: FunctionTool
fileTools: Tools
file_tools: Tools
get_env: FunctionTool
get_file_info: FunctionTool
glob_files: FunctionTool
grep_files: FunctionTool
http_get: FunctionTool
http_post: FunctionTool
http_request: FunctionTool
json_parse: FunctionTool
json_stringify: FunctionTool
list_files: FunctionTool
mainAgentExtras: Tools
mainAgentTools: Tools
main_agent_extras: Tools
main_agent_tools: Tools
memoryTools: Tools
memory_append: FunctionTool
memory_list: FunctionTool
memory_patch: FunctionTool
memory_read: FunctionTool
memory_tools: Tools
memory_write: FunctionTool
move_file: FunctionTool
need_more_info: FunctionTool
networkTools: Tools
network_tools: Tools
notify: FunctionTool
read_file: FunctionTool
reflectionTools: Tools
reflection_tools: Tools
reply: FunctionTool
resume_task: FunctionTool
sessionTools: Tools
session_archive_read: FunctionTool
session_tools: Tools
set_env: FunctionTool
sleep: FunctionTool
spawn_task: FunctionTool
systemTools: Tools
system_tools: Tools
taskExtras: Tools
taskTools: Tools
task_extras: Tools
task_list: FunctionTool
task_replay: FunctionTool
task_tools: Tools
web_fetch: FunctionTool
web_search: FunctionTool
write_file: FunctionTool

__all__ = list(__annotations__)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from toolpost.builtin.importable import imported_collection, imported_tool  # noqa: PLC0415 - when first needed

    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    is_collection = snake.endswith(("_tools", "_extras"))
    value = imported_collection(snake) if is_collection else imported_tool(name)
    setattr(sys.modules[__name__], name, value)
    return value


def __dir__() -> list[str]:
    return [*__all__]
