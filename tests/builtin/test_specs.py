"""Sets of tools, exactly as those who are given them expect."""

import pytest

from toolpost.builtin.specs import COLLECTIONS


@pytest.mark.req("PCOL-05")
def test_the_six_parts() -> None:
    assert COLLECTIONS["system_tools"] == ("current_time", "sleep", "get_env", "set_env")
    assert set(COLLECTIONS["file_tools"]) == {
        *("read_file", "write_file", "list_files", "delete_file", "move_file"),
        *("get_file_info", "edit_file", "grep_files", "glob_files"),
    }
    assert set(COLLECTIONS["network_tools"]) == {"http_get", "http_post", "http_request", "web_search", "web_fetch"}
    assert set(COLLECTIONS["data_tools"]) == {"json_parse", "json_stringify", "base64_encode", "base64_decode"}
    assert set(COLLECTIONS["memory_tools"]) == {
        *("memory_list", "memory_read", "memory_write", "memory_patch", "memory_append"),
    }
    assert COLLECTIONS["task_tools"] == ("task_list", "task_replay")


@pytest.mark.req("PCOL-01")
def test_the_tools_of_a_task_are_the_six_parts_and_nothing_of_the_main_agent() -> None:
    parts = ("system_tools", "file_tools", "network_tools", "data_tools", "memory_tools", "task_tools")

    assert COLLECTIONS["all_task_tools"] == tuple(name for part in parts for name in COLLECTIONS[part])
    assert {"spawn_task", "reply"}.isdisjoint(COLLECTIONS["all_task_tools"])


def test_the_tools_of_the_main_agent() -> None:
    assert set(COLLECTIONS["main_agent_tools"]) == {
        *("current_time", "memory_list", "memory_read", "task_list", "task_replay"),
        *("session_archive_read", "spawn_task", "reply"),
    }


@pytest.mark.req("PCOL-03")
def test_the_tools_of_reflection_leave_out_the_index() -> None:
    assert COLLECTIONS["reflection_tools"] == ("memory_read", "memory_write", "memory_patch", "memory_append")


@pytest.mark.req("PCOL-04")
def test_the_tool_of_sessions() -> None:
    assert COLLECTIONS["session_tools"] == ("session_archive_read",)
