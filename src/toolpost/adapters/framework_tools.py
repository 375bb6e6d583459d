"""Tools of a Toolbox, or of a table, as adapters give them to agent frameworks: names, schemas, users and calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from toolpost.contracts.outcomes import Outcome, Paused, questions_to_dict
from toolpost.contracts.spec import JsonSchema
from toolpost.runtime.arguments import read_arguments
from toolpost.schema.json_values import is_object
from toolpost.schema.provider_view import ArgumentMap, fit_schema
from toolpost.toolbox.box import Toolbox

if TYPE_CHECKING:
    from toolpost.adapters.table_tools import TableTool
    from toolpost.contracts.events import RunEvent
    from toolpost.contracts.questions import Question

T = TypeVar("T")
UserOf: TypeAlias = str | Callable[[Any], str] | None
"""The user of calls, `tenant:user`, or a function that reads it from the framework's context of a run."""
Receive: TypeAlias = Callable[[dict[str, Any]], None]
"""Receiver of the progress of a call: the `text` and `fraction`, or a streamed `value`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkTool:
    """A tool as a framework shows it to a model, and its calls.

    `tool_name` is the name in the catalog of the Toolbox. Calls may come from any thread and event loop; they run in
    that of the Toolbox.
    """

    name: str
    description: str
    box: Toolbox
    tool_name: str
    user: UserOf
    shown: ArgumentMap
    row: TableTool | None = None

    @property
    def parameters(self) -> JsonSchema:
        """The schema that the model sees."""
        return self.shown.schema

    async def call(
        self,
        arguments: Mapping[str, Any] | str | None,
        *,
        call_id: str | None,
        thread: str | None = None,
        context: Any = None,
        receive: Receive | None = None,
    ) -> Outcome:
        """Call the tool with the arguments that a model wrote, and return the outcome.

        `call_id` is the framework's id of this call, unique within the `thread` (such as a conversation). A call that
        has effects or may pause is made once: repeating it returns its outcome, or the pause that it still waits with.
        Without an id, every call is a new one. `receive` gets the progress, possibly in another thread.
        """
        if self.row is not None and self.row.unusable:
            return await self.row.call({})
        user, values = self._user(context), self._real(arguments)

        async def call() -> Outcome:
            is_keyed = call_id is not None and self.box.router.runs_once(self.tool_name)
            key = json.dumps([thread, call_id]) if is_keyed else None
            run_id = None if receive is None else self.box.router.new_id("run")
            with nullcontext() if receive is None else self._relayed(receive, run_id):
                return await self.box.call(self.tool_name, values, user=user, idempotency_key=key, run_id=run_id)

        return await run_in_loop(self.box, call())

    async def would_ask(self, arguments: Mapping[str, Any] | str | None, *, context: Any = None) -> Question | None:
        """Return the approval question that a call would pause with now, as `Toolbox.would_ask`."""
        if self.row is not None and self.row.unusable:
            return None
        values = self._real(arguments)
        return await run_in_loop(self.box, self.box.would_ask(self.tool_name, values, user=self._user(context)))

    def _user(self, context: Any) -> str | None:
        return self.user(context) if callable(self.user) else self.user

    def _real(self, arguments: Mapping[str, Any] | str | None) -> Any:
        """Return arguments under their real names; text that is not JSON stays text, which the Toolbox reports."""
        if self.shown.is_plain:
            return arguments
        values = read_arguments(arguments) if isinstance(arguments, str) else arguments
        return self.shown.from_model(values) if is_object(values) else arguments

    def _relayed(self, receive: Receive, run_id: str | None) -> Any:
        def pass_on(event: RunEvent) -> None:
            receive({"tool": self.tool_name, **(event.payload or {})})

        return self.box.router.emitter.relay_progress(pass_on, run_id=run_id)


async def framework_tools(
    source: Toolbox | Iterable[TableTool], *, user: UserOf = None, only: Iterable[str] | None = None
) -> list[FrameworkTool]:
    """Return the tools of a Toolbox, or of a table, for a framework.

    Wait for the sources of the Toolbox. `only` selects tools by name, collection or pattern. Calls are for `user`, by
    default the local user, or the user of the table.
    """
    if not isinstance(source, Toolbox):
        return [row_tool(tool, user) for tool in source]
    await run_in_loop(source, source.wait_for_sources())
    return listed_tools(source, user=user, only=only)


def listed_tools(box: Toolbox, *, user: UserOf = None, only: Iterable[str] | None = None) -> list[FrameworkTool]:
    """Return the tools that the catalog has now."""
    registry = box.registry
    specs = registry.specs() if only is None else registry.resolve(only)
    definitions = registry.to_llm_tools([spec.name for spec in specs])
    return [
        FrameworkTool(
            name=shown.name,
            description=shown.description,
            box=box,
            tool_name=spec.name,
            user=user,
            shown=fit_schema(shown.parameters),
        )
        for spec, shown in zip(specs, definitions, strict=True)
    ]


def row_tool(tool: TableTool, user: UserOf = None) -> FrameworkTool:
    """Return a tool of a table; calls are for `user`, by default that of the table."""
    executor = tool.executor
    return FrameworkTool(
        name=tool.model_name,
        description=tool.value.description or tool.value.name,
        box=executor.box,
        tool_name=tool.tool_name,
        user=user or executor.user,
        shown=fit_schema(tool.value.parameter_schema),
        row=tool,
    )


async def run_in_loop(box: Toolbox, work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine in the event loop of a Toolbox; RuntimeError if that loop does not run any more."""
    loop = box.router.inflight.loop
    if loop is None or loop is asyncio.get_running_loop():
        return await work
    return await asyncio.wrap_future(_submit(work, loop))


def block_in_loop(box: Toolbox, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the event loop of a Toolbox from a thread without a loop, and return its result."""
    loop = box.router.inflight.loop
    if loop is None or loop is _running_loop():
        work.close()
        raise RuntimeError("the Toolbox runs in this event loop, which must not be blocked: use the async interface")
    return _submit(work, loop).result()


def _submit(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> Future[T]:
    if not loop.is_running():
        work.close()
        raise RuntimeError("the event loop of the Toolbox does not run any more: open a Toolbox in the current one")
    return asyncio.run_coroutine_threadsafe(work, loop)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def describe_pause(paused: Paused, tool: FrameworkTool, call_id: str | None) -> dict[str, Any]:
    """Return a waiting call as JSON data for the interrupt of a framework: its pending action and its questions."""
    asked = questions_to_dict(paused.questions)
    named = {"type": f"tool_{asked['kind']}", "tool": tool.tool_name, "name": tool.name, "tool_call_id": call_id}
    return {**asked, **named, "pending_id": paused.pending_id}
