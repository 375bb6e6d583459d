"""Tools of the system: the time, a pause, and environment variables."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.environment import TaskEnvironment
from toolpost.catalog.function import FunctionTool, tool
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolClientError
from toolpost.contracts.spec import ToolCategory

_LONGEST_S = 600
_TAGS = ("builtin", "system")

VariableName = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200, description="The variable's name")
]


class Now(TypedDict):
    """A moment; `timestamp` is in milliseconds since 1970."""

    timestamp: int
    iso: str
    timezone: str
    formatted: str


class Slept(TypedDict):
    """How long it was, in seconds."""

    slept: float


class EnvValue(TypedDict):
    """A variable; null when it is not set, or when it is `withheld` because it looks like a secret."""

    key: str
    value: str | None
    withheld: bool


class EnvChange(TypedDict):
    """What a variable was before; null when it was not set or looks like a secret."""

    key: str
    previous: str | None


def system_tools(environment: TaskEnvironment | None = None) -> list[FunctionTool]:
    """The tools of this module, over one record of what tasks have set."""
    kept = environment or TaskEnvironment()
    return [current_time, sleep, _get_env(kept), _set_env(kept)]


@tool(side_effects="read", category=ToolCategory.SYSTEM, tags=_TAGS, timeout_s=5)
async def current_time(
    timezone: Annotated[str, Field(description="An IANA name, such as Europe/Berlin")] = "UTC",
) -> Now:
    """Tell the current time."""
    try:
        zone = ZoneInfo(timezone)
    except (LookupError, ValueError, OSError):  # a folder of zones is no zone, and a path is none either
        message = f"unknown timezone {timezone!r}; write an IANA name such as Europe/Berlin, or UTC"
        raise ToolClientError(message, tool_name="current_time", code="timezone_unknown") from None
    now = datetime.now(zone)
    return {
        "timestamp": int(now.timestamp() * 1000),
        "iso": now.isoformat(timespec="milliseconds"),
        "timezone": timezone,
        "formatted": now.strftime("%A, %d %B %Y, %H:%M:%S %Z"),
    }


@tool(side_effects="pure", category=ToolCategory.SYSTEM, tags=_TAGS, timeout_s=_LONGEST_S + 30)
async def sleep(
    duration: Annotated[float, Field(gt=0, le=_LONGEST_S, description="Seconds, at most 600")],
) -> Slept:
    """Wait for some seconds."""
    began = time.monotonic()
    await asyncio.sleep(duration)
    return {"slept": round(time.monotonic() - began, 3)}


def _get_env(environment: TaskEnvironment) -> FunctionTool:
    @tool(side_effects="read", category=ToolCategory.SYSTEM, tags=_TAGS, timeout_s=5)
    async def get_env(key: VariableName, ctx: ToolContext) -> EnvValue:
        """Read an environment variable that the operator allows, or that this task has set."""
        found = environment.get(key, ctx)
        return {"key": key, "value": found.value, "withheld": found.withheld}

    return get_env


def _set_env(environment: TaskEnvironment) -> FunctionTool:
    @tool(
        side_effects="stateful",
        destructive=True,
        idempotent=True,
        category=ToolCategory.SYSTEM,
        tags=_TAGS,
        timeout_s=5,
    )
    async def set_env(
        key: VariableName,
        value: Annotated[
            str,
            Field(
                max_length=100_000,
                pattern=r"^[^\x00]*$",
                json_schema_extra={"writeOnly": True},
                description="Its new value, for the rest of this task",
            ),
        ],
        ctx: ToolContext,
    ) -> EnvChange:
        """Set an environment variable for this task; the process and other tasks do not see it."""
        return {"key": key, "previous": environment.set(key, value, ctx).value}

    return set_env
