"""Tools of a Toolbox, or of a table, as adapters give them to agent frameworks: names, schemas, users and calls."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from toolpost.contracts.errors import ToolNotFoundError
from toolpost.contracts.outcomes import Outcome, Paused, outcome_to_dict, questions_to_dict
from toolpost.contracts.spec import JsonSchema, ToolDefinition, ToolSpec
from toolpost.runtime.arguments import read_arguments
from toolpost.schema.json_values import is_object
from toolpost.schema.provider_dialects import Provider
from toolpost.schema.provider_schemas import CompiledSchema, CompiledTools, LeftOut, ToolCompiler
from toolpost.toolbox.box import Toolbox

if TYPE_CHECKING:
    from toolpost.adapters.table_tools import TableTool
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.events import RunEvent
    from toolpost.contracts.questions import Question

T = TypeVar("T")
ANY_PROVIDER: Provider = "json"
"""Schemas as they are, with names that all providers accept: the framework converts them for its provider."""
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
    shown: CompiledSchema
    row: TableTool | None = None

    def __deepcopy__(self, _: dict[int, Any]) -> FrameworkTool:
        # Frameworks copy agents with their tools: the copies share the Toolbox.
        return self

    @property
    def parameters(self) -> JsonSchema:
        """The schema that the model sees."""
        return self.shown.schema

    @property
    def asks(self) -> bool:
        """Whether the policy requires approval for the tool, for frameworks that cannot ask for each call."""
        if self.row is not None and self.row.unusable:
            return False
        registry = self.box.registry
        return (
            registry.has(self.tool_name)
            and self.box.router.policy.verdict(registry.find(self.tool_name).spec).action == "ask"
        )

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
        box, user, values = self.box, self.user_of(context), self._real(arguments)
        if box.router.inflight.loop is _running_loop():
            return await self._call(values, user, call_id, thread, receive)
        return await run_in_loop(box, self._call(values, user, call_id, thread, receive))

    async def _call(
        self, values: Any, user: str | None, call_id: str | None, thread: str | None, receive: Receive | None
    ) -> Outcome:
        """Call the tool in the event loop of the Toolbox."""
        box, name = self.box, self.tool_name
        runs_once, may_report = box.router.traits(name)
        key = json.dumps([thread, call_id]) if runs_once and call_id is not None else None
        if receive is None or not may_report:
            return await box.call(name, values, user=user, idempotency_key=key)

        def pass_on(event: RunEvent) -> None:
            receive({"tool": name, **(event.payload or {})})

        run_id = box.router.new_id("run")
        with box.router.emitter.relay_progress(pass_on, run_id=run_id):
            return await box.call(name, values, user=user, idempotency_key=key, run_id=run_id)

    async def would_ask(self, arguments: Mapping[str, Any] | str | None, *, context: Any = None) -> Question | None:
        """Return the approval question that a call would pause with now, as `Toolbox.would_ask`."""
        if self.row is not None and self.row.unusable:
            return None
        values = self._real(arguments)
        return await run_in_loop(self.box, self.box.would_ask(self.tool_name, values, user=self.user_of(context)))

    def user_of(self, context: Any) -> str | None:
        """Return the user of a call."""
        return self.user(context) if callable(self.user) else self.user

    def _real(self, arguments: Mapping[str, Any] | str | None) -> Any:
        """Return arguments under their real names; text that is not JSON stays text, which the Toolbox reports."""
        if self.shown.is_plain:
            return arguments
        values = read_arguments(arguments) if isinstance(arguments, str) else arguments
        return self.shown.from_model(values) if is_object(values) else arguments


class FrameworkTools:
    """The tools of a Toolbox, or of a table, for a framework; every reading has those of the catalog at that time.

    `only` selects tools by name, collection or pattern, each of which must match a tool at the first reading. Calls are
    for `user`, by default the local user, or the user of the table. Schemas are compiled for the `provider` of the
    model. A tool that cannot be shown to it is skipped with a warning.
    """

    def __init__(
        self,
        source: Toolbox | Iterable[TableTool],
        *,
        user: UserOf = None,
        only: Iterable[str] | None = None,
        provider: Provider = ANY_PROVIDER,
    ) -> None:
        self._source = source if isinstance(source, Toolbox) else list(source)
        self._user = user
        self._only = None if only is None else list(only)
        self._compiler = ToolCompiler(provider)
        self._warned: set[LeftOut] = set()
        self._was_read = False

    async def read(self) -> list[FrameworkTool]:
        """Wait for the sources of the Toolbox, and return the tools."""
        source = self._source
        if isinstance(source, list):
            return self.rows(source)
        await run_in_loop(source, source.wait_for_sources())
        return self.catalog(source)

    def catalog(self, box: Toolbox) -> list[FrameworkTool]:
        """Return the tools that the catalog of a Toolbox has now."""
        registry = box.registry
        specs = registry.specs() if self._only is None else self._selected(registry, self._only)
        definitions = registry.to_llm_tools([spec.name for spec in specs])
        names = {shown.name: spec.name for spec, shown in zip(specs, definitions, strict=True)}
        compiled = self._compile(
            definitions, {shown.name: spec.source for spec, shown in zip(specs, definitions, strict=True)}
        )
        return [
            FrameworkTool(
                name=shown.name,
                description=shown.description,
                box=box,
                tool_name=names[shown.name],
                user=self._user,
                shown=compiled.schemas[shown.name],
            )
            for shown in compiled.definitions
        ]

    def _selected(self, registry: ToolRegistry, words: Sequence[str]) -> Sequence[ToolSpec]:
        """Return the selected tools; those that have disappeared since the first reading are skipped."""
        try:
            specs = registry.resolve(words)
        except ToolNotFoundError:
            if not self._was_read:
                raise
            specs = registry.resolve(word for word in words if _is_there(registry, word))
        self._was_read = True
        return specs

    def rows(self, rows: Iterable[TableTool]) -> list[FrameworkTool]:
        """Return the tools of a table."""
        by_name = {row.model_name: row for row in rows}
        compiled = self._compile(
            [
                ToolDefinition(name, row.value.description or row.value.name, row.value.parameter_schema)
                for name, row in by_name.items()
            ],
            {},
        )
        return [
            FrameworkTool(
                name=shown.name,
                description=shown.description,
                box=(row := by_name[shown.name]).executor.box,
                tool_name=row.tool_name,
                user=self._user or row.executor.user,
                shown=compiled.schemas[shown.name],
                row=row,
            )
            for shown in compiled.definitions
        ]

    def _compile(self, definitions: Sequence[ToolDefinition], sources: Mapping[str, str]) -> CompiledTools:
        """Compile tools; warn once of each that cannot be shown, with the source that it may have."""
        compiled = self._compiler.compile(definitions)
        for tool in compiled.left_out:
            if tool not in self._warned:
                self._warned.add(tool)
                source = sources.get(tool.name)
                named = f"tool {tool.name!r} of the source {source!r}" if source else f"tool {tool.name!r}"
                warnings.warn(
                    f"{named} is left out: {tool.field}: {tool.reason}; "
                    f"to check all tools, run: toolpost lint --provider {self._compiler.dialect.provider}",
                    stacklevel=4,
                )
        return compiled


def _is_there(registry: ToolRegistry, word: str) -> bool:
    try:
        return bool(registry.resolve([word]))
    except ToolNotFoundError:
        return False


async def run_in_loop(box: Toolbox, work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine in the event loop of a Toolbox; RuntimeError if that loop has stopped."""
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
    future = _submit(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # such as for a KeyboardInterrupt in this thread
        raise


def _submit(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> Future[T]:
    if not loop.is_running():
        work.close()
        raise RuntimeError("the event loop of the Toolbox has stopped: open a Toolbox in the current one")
    return asyncio.run_coroutine_threadsafe(work, loop)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON data, for frameworks that store what they keep beside a result."""
    return cast("dict[str, Any]", json.loads(json.dumps(outcome_to_dict(outcome), default=str)))


def describe_pause(paused: Paused, tool: FrameworkTool, call_id: str | None) -> dict[str, Any]:
    """Return a waiting call as JSON data for the interrupt of a framework: its pending action and its questions."""
    asked = questions_to_dict(paused.questions)
    named = {"type": f"tool_{asked['kind']}", "tool": tool.tool_name, "name": tool.name, "tool_call_id": call_id}
    return {**asked, **named, "pending_id": paused.pending_id}
