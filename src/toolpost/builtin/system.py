"""System tools: time, sleep, and environment variables of a task."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections import OrderedDict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast
from zoneinfo import ZoneInfo

from pydantic import Field
from typing_extensions import TypedDict

from toolpost.catalog.function import FunctionTool, tool
from toolpost.contracts.errors import ToolClientError, ToolPermissionError
from toolpost.contracts.spec import ToolCategory
from toolpost.schema.secrets import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from toolpost.contracts.context import ToolContext

ALLOWED = (
    *("HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "PWD", "SHELL"),
    *("TEMP", "TERM", "TMP", "TMPDIR", "TZ", "USER", "USERNAME"),
)
"""Variables of the process that may be read unless others are configured."""

CONTEXT_KEY = "env"
_MOST_TASKS = 1000
_SECRET_VALUE = re.compile(
    r"""-----BEGIN[ ]                                # a private key
    |\b(?:sk|pk|rk)[-_](?:live|test|proj|ant)[-_]    # keys of payment and model providers
    |\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|npm_|pypi-|hf_|SG\.)[\w.-]{10}
    |\b(?:AKIA|ASIA)[0-9A-Z]{16}\b
    |\bAIza[\w-]{30}
    |\beyJ[\w-]{10,}\.[\w-]+\.                       # a JSON Web Token
    |\b[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@       # a URL with a password
    |\b(?:Bearer|Basic)[ ]\S{8}""",
    re.VERBOSE,
)
_RANDOM = re.compile(r"[A-Za-z0-9+/_=-]{32,}")
_CLASSES = (re.compile("[a-z]"), re.compile("[A-Z]"), re.compile("[0-9]"))
_LONGEST_S = 600
_TAGS = ("builtin", "system")


class EnvironmentValue(NamedTuple):
    """The value of a variable; `withheld` if it looks like a secret."""

    value: str | None
    withheld: bool = False


class TaskEnvironment:
    """Environment variables set by tasks; the environment of the process never changes."""

    def __init__(self, allowed: Iterable[str] = ALLOWED, *, process: Mapping[str, str] | None = None) -> None:
        self._allowed = frozenset(allowed)
        self._process = os.environ if process is None else process
        self._tasks: OrderedDict[tuple[str, str, str], dict[str, str]] = OrderedDict()
        self._turn = threading.Lock()

    def get(self, key: str, ctx: ToolContext) -> EnvironmentValue:
        """Return a variable of the task, or an allowed one of the process."""
        own = self.overlay(ctx)
        if key not in own and key not in self._allowed:
            message = f"the environment variable {key!r} may not be read; `tools.env` lists those that may"
            raise ToolPermissionError(message, tool_name="get_env", code="variable_refused")
        return _redact_secret(key, own.get(key, self._process.get(key)))

    def set(self, key: str, value: str, ctx: ToolContext) -> EnvironmentValue:
        """Set a variable for the task and return its previous value."""
        own = self.overlay(ctx)
        before = own.get(key, self._process.get(key) if key in self._allowed else None)
        own[key] = value
        return _redact_secret(key, before)

    def overlay(self, ctx: ToolContext) -> dict[str, str]:
        """Return the variables of a task: those of its context, or those stored under its ID."""
        from_context: Any = ctx.tool_context.get(CONTEXT_KEY)
        if isinstance(from_context, dict):
            return cast("dict[str, str]", from_context)
        if not ctx.task_id:
            return cast("dict[str, str]", ctx.tool_context.setdefault(CONTEXT_KEY, {}))
        with self._turn:
            key = (ctx.tenant_id or "", ctx.user_id or "", ctx.task_id)
            variables = self._tasks.setdefault(key, {})
            self._tasks.move_to_end(key)
            while len(self._tasks) > _MOST_TASKS:
                self._tasks.popitem(last=False)
            return variables


def _redact_secret(key: str, value: str | None) -> EnvironmentValue:
    if value is not None and (is_secret_name(key) or looks_secret(value)):
        return EnvironmentValue(None, withheld=True)
    return EnvironmentValue(value)


def looks_secret(value: str) -> bool:
    """Return whether a value looks like a key, a token or a URL with a password."""
    if _SECRET_VALUE.search(value):
        return True
    return any(all(kind.search(run) for kind in _CLASSES) for run in _RANDOM.findall(value) if "/" not in run[:2])


VariableName = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200, description="The variable's name")
]
VariableText = Annotated[
    str,
    Field(
        max_length=100_000,
        pattern=r"^[^\x00]*$",
        json_schema_extra={"writeOnly": True},
        description="The new value, for the rest of this task",
    ),
]


class CurrentTime(TypedDict):
    """The time; `timestamp` is in milliseconds since 1970."""

    timestamp: int
    iso: str
    timezone: str
    formatted: str


class SleepResult(TypedDict):
    """The time slept, in seconds."""

    slept: float


class EnvValue(TypedDict):
    """The value of a variable; null if it is not set, or if it is `withheld` because it looks like a secret."""

    key: str
    value: str | None
    withheld: bool


class EnvChange(TypedDict):
    """The previous value of a variable; null if it was not set or looks like a secret."""

    key: str
    previous: str | None


def system_tools(environment: TaskEnvironment | None = None) -> list[FunctionTool]:
    """Return the tools of this module; `environment` contains the variables set by tasks."""
    variables = environment or TaskEnvironment()

    @tool(side_effects="read", category=ToolCategory.SYSTEM, tags=_TAGS, timeout_s=5)
    async def get_env(key: VariableName, ctx: ToolContext) -> EnvValue:
        """Read an environment variable that the operator allows, or that this task has set."""
        variable = variables.get(key, ctx)
        return {"key": key, "value": variable.value, "withheld": variable.withheld}

    @tool(
        side_effects="stateful",
        destructive=True,
        idempotent=True,
        category=ToolCategory.SYSTEM,
        tags=_TAGS,
        timeout_s=5,
    )
    async def set_env(key: VariableName, value: VariableText, ctx: ToolContext) -> EnvChange:
        """Set an environment variable for this task; the process and other tasks do not see it."""
        return {"key": key, "previous": variables.set(key, value, ctx).value}

    return [current_time, sleep, get_env, set_env]


@tool(side_effects="read", category=ToolCategory.SYSTEM, tags=_TAGS, timeout_s=5)
async def current_time(
    timezone: Annotated[str, Field(description="An IANA name, such as Europe/Berlin")] = "UTC",
) -> CurrentTime:
    """Return the current time."""
    try:
        zone = ZoneInfo(timezone)
    except (LookupError, ValueError, OSError):  # a folder of zones, or a path
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
) -> SleepResult:
    """Wait for some seconds."""
    began = time.monotonic()
    await asyncio.sleep(duration)
    return {"slept": round(time.monotonic() - began, 3)}
