"""Built-in tools as objects, and their collections in both spellings; imported at first use."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolpost.catalog.function import FunctionTool

    Tools = tuple[FunctionTool, ...]
    base64_decode: FunctionTool
    base64_encode: FunctionTool
    current_time: FunctionTool
    delete_file: FunctionTool
    edit_file: FunctionTool
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
    memory_append: FunctionTool
    memory_list: FunctionTool
    memory_patch: FunctionTool
    memory_read: FunctionTool
    memory_write: FunctionTool
    move_file: FunctionTool
    need_more_info: FunctionTool
    notify: FunctionTool
    read_file: FunctionTool
    reply: FunctionTool
    resume_task: FunctionTool
    session_archive_read: FunctionTool
    set_env: FunctionTool
    sleep: FunctionTool
    spawn_task: FunctionTool
    task_list: FunctionTool
    task_replay: FunctionTool
    web_fetch: FunctionTool
    web_search: FunctionTool
    write_file: FunctionTool
    allTaskTools: Tools
    all_task_tools: Tools
    dataTools: Tools
    data_tools: Tools
    fileTools: Tools
    file_tools: Tools
    mainAgentExtras: Tools
    mainAgentTools: Tools
    main_agent_extras: Tools
    main_agent_tools: Tools
    memoryTools: Tools
    memory_tools: Tools
    networkTools: Tools
    network_tools: Tools
    reflectionTools: Tools
    reflection_tools: Tools
    sessionTools: Tools
    session_tools: Tools
    systemTools: Tools
    system_tools: Tools
    taskExtras: Tools
    taskTools: Tools
    task_extras: Tools
    task_tools: Tools

__all__ = [
    "allTaskTools",
    "all_task_tools",
    "base64_decode",
    "base64_encode",
    "current_time",
    "dataTools",
    "data_tools",
    "delete_file",
    "edit_file",
    "fileTools",
    "file_tools",
    "get_env",
    "get_file_info",
    "glob_files",
    "grep_files",
    "http_get",
    "http_post",
    "http_request",
    "json_parse",
    "json_stringify",
    "list_files",
    "mainAgentExtras",
    "mainAgentTools",
    "main_agent_extras",
    "main_agent_tools",
    "memoryTools",
    "memory_append",
    "memory_list",
    "memory_patch",
    "memory_read",
    "memory_tools",
    "memory_write",
    "move_file",
    "need_more_info",
    "networkTools",
    "network_tools",
    "notify",
    "read_file",
    "reflectionTools",
    "reflection_tools",
    "reply",
    "resume_task",
    "sessionTools",
    "session_archive_read",
    "session_tools",
    "set_env",
    "sleep",
    "spawn_task",
    "systemTools",
    "system_tools",
    "taskExtras",
    "taskTools",
    "task_extras",
    "task_list",
    "task_replay",
    "task_tools",
    "web_fetch",
    "web_search",
    "write_file",
]


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
