"""Environment variables as a task sees them: few of the process's own, what it has set itself, and no secrets."""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolpost.contracts.errors import ToolPermissionError
from toolpost.schema.secrets import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from toolpost.contracts.context import ToolContext

ALLOWED = (
    *("HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "PWD", "SHELL"),
    *("TEMP", "TERM", "TMP", "TMPDIR", "TZ", "USER", "USERNAME"),
)
"""What may be read of the process's environment unless others are named."""

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


class Variable(NamedTuple):
    """A variable's value; `withheld` says that there is one, and that it looks like a secret."""

    value: str | None
    withheld: bool = False


class TaskEnvironment:
    """What each task has set. Nothing is ever written to the environment of the process."""

    def __init__(self, allowed: Iterable[str] = ALLOWED, *, process: Mapping[str, str] | None = None) -> None:
        self._allowed = frozenset(allowed)
        self._process = os.environ if process is None else process
        self._tasks: OrderedDict[tuple[str, str, str], dict[str, str]] = OrderedDict()
        self._turn = threading.Lock()

    def get(self, key: str, ctx: ToolContext) -> Variable:
        """A variable of the task, or one of the process that may be read."""
        own = self.overlay(ctx)
        if key not in own and key not in self._allowed:
            message = f"the environment variable {key!r} may not be read; `tools.env` lists those that may"
            raise ToolPermissionError(message, tool_name="get_env", code="variable_refused")
        return _shown(key, own.get(key, self._process.get(key)))

    def set(self, key: str, value: str, ctx: ToolContext) -> Variable:
        """Set a variable for the task; what it was before."""
        own = self.overlay(ctx)
        before = own.get(key, self._process.get(key) if key in self._allowed else None)
        own[key] = value
        return _shown(key, before)

    def overlay(self, ctx: ToolContext) -> dict[str, str]:
        """What the task has set so far: in its context, or by its id where each call has a context of its own."""
        kept: Any = ctx.tool_context.get(CONTEXT_KEY)
        if isinstance(kept, dict):
            return cast("dict[str, str]", kept)
        if not ctx.task_id:
            return cast("dict[str, str]", ctx.tool_context.setdefault(CONTEXT_KEY, {}))
        with self._turn:
            key = (ctx.tenant_id or "", ctx.user_id or "", ctx.task_id)
            found = self._tasks.setdefault(key, {})
            self._tasks.move_to_end(key)
            while len(self._tasks) > _MOST_TASKS:
                self._tasks.popitem(last=False)
            return found


def _shown(key: str, value: str | None) -> Variable:
    if value is not None and (is_secret_name(key) or looks_secret(value)):
        return Variable(None, withheld=True)
    return Variable(value)


def looks_secret(value: str) -> bool:
    """Whether a value has the look of a key, a token or a password in a URL."""
    if _SECRET_VALUE.search(value):
        return True
    return any(all(kind.search(run) for kind in _CLASSES) for run in _RANDOM.findall(value) if "/" not in run[:2])
