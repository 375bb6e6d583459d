"""The tasks extension of MCP (SEP-2663): calls that continue in the background and are polled by ID.

A task is visible only to the user of the request that started it. Its ID is that of its run, under which the outcome
is stored: after a restart, or in another process on the same store, the task is restored.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, RequestParams
from mcp_types.jsonrpc import HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolpost.gateway.mcp.elicitation import ELICIT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp.server.lowlevel import Server

    from toolpost.gateway.mcp.client import Context

    Result = dict[str, Any]

TASKS = "io.modelcontextprotocol/tasks"
_PREFIX = "task_"
_TTL_S = 3600.0
_MOST_TASKS = 1000
_POLL_MS = 500
_ENDED = frozenset({"completed", "failed", "cancelled"})
_log = logging.getLogger("toolpost.gateway")

Status: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]


class TaskParams(RequestParams):
    """Parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class TaskUpdateParams(TaskParams):
    """Parameters of `tasks/update`: responses to some or all requests of a task."""

    input_responses: dict[str, Any]


class McpTask:
    """A call that continues in the background."""

    def __init__(self, owner: str, run_id: str, *, created_at: float | None = None) -> None:
        self.id = f"{_PREFIX}{run_id}"
        self.owner = owner
        self.is_cancelled = False
        self.status: Status = "working"
        self.message = ""
        self.ended_at: float | None = None
        self._updated_at = datetime.now(UTC)
        self._created_at = self._updated_at if created_at is None else datetime.fromtimestamp(created_at, UTC)
        self._requests: dict[str, Any] = {}
        self._responses: dict[str, Any] = {}
        self._answered = asyncio.Event()
        self._end: Result = {}
        self._running: asyncio.Task[None] | None = None

    def start(self, work: Awaitable[Result]) -> None:
        """Run the call; the task ends with its result or its error."""
        self._running = asyncio.get_running_loop().create_task(self._run(work))

    async def _run(self, work: Awaitable[Result]) -> None:
        try:
            self._finish("completed", {"result": await work})
        except asyncio.CancelledError:
            self._finish("cancelled", {})
        except MCPError as error:
            self._finish("failed", {"error": error.error.model_dump(by_alias=True, mode="json", exclude_none=True)})
        except Exception:  # noqa: BLE001 - any error ends the task as failed
            _log.exception("a task failed with an unexpected error")
            self._finish("failed", {"error": {"code": INTERNAL_ERROR, "message": "Internal error"}})

    async def request_input(self, requests: Mapping[str, Any]) -> dict[str, Any]:
        """Send requests to the client and wait until it has answered all of them, in one or several updates."""
        self._requests, self._responses = dict(requests), {}
        self._answered.clear()
        self._become("input_required")
        await self._answered.wait()
        self._become("working")
        return self._responses

    def update(self, responses: Mapping[str, Any], *, interactive: bool) -> None:
        """Add responses; ignore unknown keys, and forms of a client without a user."""
        for key in self._requests.keys() & responses.keys():
            if self._requests[key].get("method") == ELICIT and not interactive:
                continue
            self._responses[key] = responses[key]
            del self._requests[key]
        self._updated_at = datetime.now(UTC)
        if self.status == "input_required" and not self._requests:
            self._answered.set()

    async def cancel(self) -> None:
        """Cancel the call, unless it has ended."""
        self.is_cancelled = True
        await self.leave()
        if self.status not in _ENDED:  # it had not started
            self._finish("cancelled", {})

    async def leave(self) -> None:
        """Stop waiting for the call; it continues, and the task can be restored."""
        running = self._running
        if running is not None and not running.done():
            running.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])

    def _become(self, status: Status) -> None:
        self.status, self._updated_at = status, datetime.now(UTC)

    def _finish(self, status: Status, end: Result) -> None:
        self._requests, self._end, self.ended_at = {}, end, time.monotonic()
        self._become(status)

    def summary(self) -> Result:
        """Return the fields that every task has."""
        return {
            "taskId": self.id,
            "status": self.status,
            **({"statusMessage": self.message} if self.message else {}),
            "createdAt": self._created_at.isoformat().replace("+00:00", "Z"),
            "lastUpdatedAt": self._updated_at.isoformat().replace("+00:00", "Z"),
            "ttlMs": round(_TTL_S * 1000),
            "pollIntervalMs": _POLL_MS,
        }

    def details(self) -> Result:
        """Return the result of `tasks/get`: the summary with the open requests or the end of the task."""
        asked = {"inputRequests": dict(self._requests)} if self.status == "input_required" else {}
        return {"resultType": "complete", **self.summary(), **asked, **self._end}


class Restored(NamedTuple):
    """A restored task, and the function that continues it."""

    task: McpTask
    work: Callable[[McpTask], Awaitable[Result]]


Restore: TypeAlias = "Callable[[Context, str, str], Awaitable[Restored | None]]"


class Tasks:
    """Tasks of one server by ID.

    `principal` returns the principal of a request, and `interactive` whether a user operates its client. `restore`
    returns a task that this process does not know from its stored run.
    """

    def __init__(
        self,
        principal: Callable[[Context], str],
        restore: Restore | None = None,
        *,
        interactive: Callable[[Context], bool],
    ) -> None:
        self._principal = principal
        self._restore = restore
        self._interactive = interactive
        self._tasks: dict[str, McpTask] = {}

    def serve(self, server: Server[Any]) -> None:
        """Declare the extension and handle its requests."""
        server.extensions[TASKS] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", TaskUpdateParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)

    def start(self, ctx: Context, work: Callable[[McpTask], Awaitable[Result]], *, run_id: str | None = None) -> Result:
        """Start a task for the user of a request, and return the result that announces it."""
        return self.adopt(McpTask(self._principal(ctx), run_id or secrets.token_urlsafe(18)), work)

    def adopt(self, task: McpTask, work: Callable[[McpTask], Awaitable[Result]]) -> Result:
        """Store and start a task, and return the result that announces it."""
        self._forget_old()
        self._tasks[task.id] = task
        created = {"resultType": "task", **task.summary()}
        task.start(work(task))
        return created

    async def close(self) -> None:
        """Stop waiting for the running tasks."""
        await asyncio.gather(*(task.leave() for task in self._tasks.values()))

    def _forget_old(self) -> None:
        """Evict tasks that ended more than an hour ago, and the oldest ended ones beyond the limit."""
        now = time.monotonic()
        ended = [one for one in self._tasks.values() if one.ended_at is not None]
        surplus = max(0, len(ended) - _MOST_TASKS)
        for number, task in enumerate(ended):
            if number < surplus or now - (task.ended_at or now) > _TTL_S:
                del self._tasks[task.id]

    async def _get(self, ctx: Context, params: TaskParams) -> Result:
        return (await self._find(ctx, params)).details()

    async def _update(self, ctx: Context, params: TaskUpdateParams) -> Result:
        (await self._find(ctx, params)).update(params.input_responses, interactive=self._interactive(ctx))
        return {"resultType": "complete"}

    async def _cancel(self, ctx: Context, params: TaskParams) -> Result:
        await (await self._find(ctx, params)).cancel()
        return {"resultType": "complete"}

    async def _find(self, ctx: Context, params: TaskParams) -> McpTask:
        """Return the task of a request; a task of another user is not found."""
        if not knows_tasks(ctx):
            raise missing_tasks()
        _check_name_header(ctx, params.task_id)
        task, user = self._tasks.get(params.task_id), self._principal(ctx)
        if task is None and self._restore is not None:
            restored = await self._restore(ctx, params.task_id.removeprefix(_PREFIX), user)
            task = self._tasks.get(params.task_id)  # another request may have been faster
            if restored is not None and task is None:
                task = restored.task
                self.adopt(*restored)
        if task is None or task.owner != user:
            raise MCPError(code=INVALID_PARAMS, message=f"unknown task {params.task_id!r}: call the tool again")
        return task


def knows_tasks(ctx: Context) -> bool:
    """Return whether the client of a request supports tasks."""
    capabilities = ctx.session.client_capabilities
    extensions = None if capabilities is None else capabilities.extensions
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and TASKS in (extensions or {})


def missing_tasks() -> MCPError:
    """Return the error for clients that do not declare the tasks extension."""
    return MCPError(
        code=MISSING_REQUIRED_CLIENT_CAPABILITY,
        message=f"the client must declare the extension {TASKS}",
        data={"requiredCapabilities": {"extensions": {TASKS: {}}}},
    )


def _check_name_header(ctx: Context, task_id: str) -> None:
    """Reject a request with another task in its `Mcp-Name` header; stdio has no headers."""
    headers: Any = getattr(ctx.request, "headers", None)
    given = None if headers is None else headers.get(MCP_NAME_HEADER)
    if given is not None and decode_header_value(given) != task_id:
        raise MCPError(code=HEADER_MISMATCH, message="the header Mcp-Name and params.taskId differ")
