"""Sets of tools by name, for those who need only some: the six parts, what each kind of agent has, and what only reads.

`spawn_task` and `reply` belong to agents; a collection that names them has them where an agent has registered them.
"""

from __future__ import annotations

from types import MappingProxyType

_SYSTEM = ("current_time", "sleep", "get_env", "set_env")
_FILE = (
    *("read_file", "write_file", "list_files", "delete_file", "move_file", "get_file_info", "edit_file"),
    *("grep_files", "glob_files"),
)
_NETWORK = ("http_get", "http_post", "http_request", "web_search", "web_fetch")
_DATA = ("json_parse", "json_stringify", "base64_encode", "base64_decode")
_MEMORY = ("memory_list", "memory_read", "memory_write", "memory_patch", "memory_append")
_TASK = ("task_list", "task_replay")
_SESSION = ("session_archive_read",)
_ARTIFACT = ("artifact_read", "artifact_search")
_READING = (
    *("current_time", "read_file", "list_files", "get_file_info", "grep_files", "glob_files"),
    *("json_parse", "json_stringify", "base64_encode", "base64_decode", "memory_list", "memory_read"),
    *_TASK,
    *_SESSION,
    *_ARTIFACT,
)

COLLECTIONS = MappingProxyType(
    {
        "system_tools": _SYSTEM,
        "file_tools": _FILE,
        "network_tools": _NETWORK,
        "data_tools": _DATA,
        "memory_tools": _MEMORY,
        "task_tools": _TASK,
        "all_task_tools": (*_SYSTEM, *_FILE, *_NETWORK, *_DATA, *_MEMORY, *_TASK),
        "main_agent_tools": (
            *("current_time", "memory_list", "memory_read", "task_list", "task_replay", "session_archive_read"),
            *("spawn_task", "reply"),
        ),
        "reflection_tools": ("memory_read", "memory_write", "memory_patch", "memory_append"),
        "session_tools": _SESSION,
        "artifact_tools": _ARTIFACT,
        "explore_tools": (*_READING, "web_search", "web_fetch"),
        "plan_tools": _READING,
    }
)
