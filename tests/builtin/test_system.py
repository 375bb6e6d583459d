"""The time, a pause, and environment variables."""

import os
import time
from datetime import datetime
from typing import Any

import pytest

from tests.builtin.caller import Caller
from toolpost.builtin.system import TaskEnvironment, looks_secret, system_tools
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolValidationError

PROCESS = {
    "LANG": "C.UTF-8",
    "HOME": "/home/ann",
    "GITHUB_TOKEN": "plain",
    "DATABASE": "postgres://ann:pw@db/x",
    "OTHER": "1",
}


def caller(*allowed: str) -> Caller:
    return Caller(system_tools(TaskEnvironment(allowed, process=PROCESS)))


@pytest.mark.req("PSYS-01")
async def test_the_time_is_reported_as_a_number_as_text_and_in_a_timezone() -> None:
    before = time.time() * 1000 - 1

    found = await caller().do("current_time", timezone="Asia/Tokyo")

    assert before <= found["timestamp"] <= time.time() * 1000
    told = datetime.fromisoformat(found["iso"])
    assert told.utcoffset() is not None
    assert str(told.utcoffset()) == "9:00:00"
    assert int(told.timestamp() * 1000) == found["timestamp"]
    assert found["timezone"] == "Asia/Tokyo"


@pytest.mark.req("PSYS-01")
async def test_without_a_timezone_it_is_utc() -> None:
    found = await caller().do("current_time")

    assert (found["timezone"], found["iso"][-6:]) == ("UTC", "+00:00")


@pytest.mark.parametrize("name", ["Mars/Base", "../../etc/passwd", "/etc/localtime", "Europe", "", "a\0b"])
async def test_an_unknown_timezone_is_refused_and_not_taken_for_utc(name: str) -> None:
    error = await caller().refused("current_time", timezone=name)

    assert error["error_code"] == "timezone_unknown"
    assert "Europe/Berlin" in error["message"]


@pytest.mark.req("PSYS-02")
async def test_sleeping_takes_the_time_it_says() -> None:
    began = time.monotonic()

    found = await caller().do("sleep", duration=0.05)

    assert 0.05 <= found["slept"] <= time.monotonic() - began + 0.001


@pytest.mark.parametrize("duration", [0, -1, 601, "5"])
async def test_a_pause_that_is_none_or_too_long_is_refused(duration: Any) -> None:
    with pytest.raises(ToolValidationError):
        await caller().ask("sleep", {"duration": duration})


@pytest.mark.req("PSYS-03", "DEF-14")
async def test_only_listed_variables_are_read() -> None:
    asked = caller("LANG", "MISSING")

    assert await asked.do("get_env", key="LANG") == {"key": "LANG", "value": "C.UTF-8", "withheld": False}
    assert (await asked.do("get_env", key="MISSING"))["value"] is None
    error = await asked.refused("get_env", key="OTHER")
    assert error["error_code"] == "variable_refused"
    assert "Permission denied" in error["message"]


@pytest.mark.req("DEF-14")
@pytest.mark.parametrize("key", ["GITHUB_TOKEN", "DATABASE"])
async def test_what_looks_like_a_secret_is_withheld_even_when_it_is_listed(key: str) -> None:
    result = await caller(key).ask("get_env", {"key": key})

    assert result.result == {"key": key, "value": None, "withheld": True}
    assert PROCESS[key] not in repr(result)


@pytest.mark.req("PSYS-04", "DEF-14")
async def test_a_variable_is_set_for_the_context_and_not_for_the_process() -> None:
    asked = caller("HOME")

    assert await asked.do("set_env", key="HOME", value="/tmp") == {"key": "HOME", "previous": "/home/ann"}
    assert await asked.do("set_env", key="MINE", value="1") == {"key": "MINE", "previous": None}

    assert (await asked.do("get_env", key="HOME"))["value"] == "/tmp"
    assert (await asked.do("get_env", key="MINE"))["value"] == "1"
    assert PROCESS["HOME"] == "/home/ann"
    assert "MINE" not in os.environ


async def test_one_task_does_not_see_what_another_has_set() -> None:
    asked = caller()
    asked.context = ToolContext("task-1", user_id="acme:ann")
    await asked.do("set_env", key="MINE", value="1")

    asked.context = ToolContext("task-1", user_id="acme:ann")
    assert (await asked.do("get_env", key="MINE"))["value"] == "1"
    for other in (ToolContext("task-2", user_id="acme:ann"), ToolContext("task-1", user_id="acme:bob")):
        asked.context = other
        assert (await asked.refused("get_env", key="MINE"))["error_code"] == "variable_refused"


@pytest.mark.parametrize("key", ["", "A=B", "A B", "1A", "A\0"])
async def test_a_name_that_no_variable_can_have_is_refused(key: str) -> None:
    with pytest.raises(ToolValidationError):
        await caller().ask("set_env", {"key": key, "value": "1"})


def test_the_value_that_is_set_is_marked_as_a_secret_and_setting_asks_a_person() -> None:
    spec = caller().registry.find("set_env").spec

    assert spec.input_schema["properties"]["value"]["writeOnly"] is True
    assert spec.safety.destructive is True


@pytest.mark.parametrize(
    "value",
    [
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "-----BEGIN PRIVATE KEY-----",
        "AKIAABCDEFGHIJKLMNOP",
        "https://ann:pw@example.org/",
        "Bearer abcdefgh12345",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
        "wJalrXUtnFEMI7K7MDENG9bPxRfiCYEXAMPLEKEY",
    ],
)
def test_keys_and_tokens_are_known_by_their_look(value: str) -> None:
    assert looks_secret(value)


@pytest.mark.parametrize(
    "value",
    ["", "C.UTF-8", "/usr/local/bin:/usr/bin:/bin", "https://example.org/a?b=c", "xterm-256color", "Europe/Berlin"],
)
def test_ordinary_values_are_not_taken_for_secrets(value: str) -> None:
    assert not looks_secret(value)
