"""Running a workflow: steps as soon as what they need is there, each a call of the same run under the same policy."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolError, ToolExecutionError
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.workflow.expressions import ExpressionError, is_true

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from toolpost.contracts.context import ToolContext
    from toolpost.sources.workflow.definition import PlannedStep, Workflow

_LONGEST_WAIT_S = 60.0


class _Waiting(Exception):  # noqa: N818 - no failure: a person is asked
    """The call of a step, or calls of its items, wait for a person."""

    def __init__(self, *paused: Paused) -> None:
        super().__init__()
        self.paused = paused


class _Skipped:
    """The result of a step whose condition did not hold."""


_SKIPPED = _Skipped()


async def run_workflow(
    workflow: Workflow, arguments: Mapping[str, Any], context: ToolContext, *, recorded: bool
) -> ToolOutput:
    """Run a workflow and return its outputs, with its message as the text for a model.

    With `recorded` the result of each step is written to the journal, so that steps that have ended are not repeated
    when the workflow runs again after a pause or a crash.
    """
    run = _Run(workflow, context, recorded=recorded)
    await run.take_inputs(arguments)
    await run.run_steps()
    return await run.output()


class _Run:
    """One run of a workflow: results so far, what waits and what failed."""

    def __init__(self, workflow: Workflow, context: ToolContext, *, recorded: bool) -> None:
        self._workflow = workflow
        self._context = context
        self._recorded = recorded
        self._results: dict[str, Any] = {}
        self._skipped: set[str] = set()
        self._missing = {name: len(step.needs) for name, step in workflow.steps.items()}
        self._waiting: list[Paused] = []
        self._failures: list[ToolError] = []
        self._scope: dict[str, Any] = {"steps": self._results}

    async def take_inputs(self, arguments: Mapping[str, Any]) -> None:
        """Split the arguments into inputs and tables."""
        ports = self._workflow.data.ports.inputs
        defaults = _defaults(self._workflow.data.inputs)
        self._scope["inputs"] = defaults | {name: given for name, given in arguments.items() if name not in ports}
        tables: dict[str, Any] = {}
        if ports:
            from toolpost.sources.workflow.ports import read_port  # noqa: PLC0415 - most workflows have no tables

            for name, port in ports.items():
                where = f"{self._workflow.label}: port {name!r}"
                tables[name] = await read_port(where, port, arguments[name], self._context)
        self._scope["ports"] = tables

    async def run_steps(self) -> None:
        """Run every step that can run; raise where one failed, and pause where calls wait for a person."""
        async with asyncio.TaskGroup() as group:
            for name, missing in self._missing.items():
                if missing == 0:
                    group.create_task(self._run_step(name, group))
        if self._failures:
            raise self._failed()
        if self._waiting:
            self._context.wait_for(*self._waiting)

    def _failed(self) -> ToolError:
        """Return the first failure; questions of other steps stay open, because their calls stand by themselves."""
        first = self._failures[0]
        if not self._waiting:
            return first
        open_ids = ", ".join(one.pending_id for one in self._waiting)
        return ToolExecutionError(f"{first.message}; still open are its questions {open_ids}", code=first.error_code)

    async def _run_step(self, name: str, group: asyncio.TaskGroup) -> None:
        planned = self._workflow.steps[name]
        try:
            result = await self._result(planned)
        except _Waiting as waiting:
            self._waiting += waiting.paused
            return
        except ToolError as error:
            if planned.step.on_error == "fail":
                self._failures.append(error)
                return
            result = None
        if result is _SKIPPED:
            self._skipped.add(name)
            result = None
        self._results[name] = result
        if self._failures:  # what runs is let end, and nothing new begins
            return
        for other in planned.needed_by:
            self._missing[other] -= 1
            if self._missing[other] == 0:
                group.create_task(self._run_step(other, group))

    async def _result(self, planned: PlannedStep) -> Any:
        """Return the result of a step: of its call, or of the calls for its items in their order."""
        if planned.when is None:
            if self._skipped and not self._skipped.isdisjoint(planned.needs):
                return _SKIPPED
        elif not planned.when_is_of_item and not self._holds(planned, self._scope, planned.name):
            return _SKIPPED
        if planned.items is not None:
            return await self._loop(planned)
        return await self._once(planned.name, partial(self._call, planned, self._scope, planned.name))

    async def _loop(self, planned: PlannedStep) -> list[Any]:
        """Run a step for every item, `max_parallel` at a time."""
        assert planned.items is not None  # noqa: S101 - checked by the caller
        items = self._evaluate(planned.items.evaluate, self._scope, planned.name, "for_each")
        if not is_array(items):
            msg = f"for_each gives {type(items).__name__}, not a list"
            raise self._error(planned.name, msg)
        results: list[Any] = [None] * len(items)
        waiting: list[Paused] = []
        failed: dict[int, ToolError] = {}
        numbers = iter(range(len(items)))
        if len(items) > 0:
            workers = min(planned.step.max_parallel, len(items))
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(self._run_items(planned, items, numbers, results, waiting, failed))
        if failed:
            raise failed[min(failed)]
        if waiting:
            raise _Waiting(*waiting)
        return results

    async def _run_items(
        self,
        planned: PlannedStep,
        items: list[Any],
        numbers: Iterator[int],
        results: list[Any],
        waiting: list[Paused],
        failed: dict[int, ToolError],
    ) -> None:
        for number in numbers:
            if failed or self._failures:
                return
            where = f"{planned.name}[{number}]"
            scope = {**self._scope, "item": items[number], "index": number}
            try:
                if planned.when_is_of_item and not self._holds(planned, scope, where):
                    continue
                results[number] = await self._once(where, partial(self._call, planned, scope, where))
            except _Waiting as more:
                waiting += more.paused
            except ToolError as error:
                if planned.step.on_error == "fail":
                    failed[number] = error

    async def _once(self, where: str, run: Callable[[], Awaitable[Any]]) -> Any:
        if not self._recorded:
            return await run()
        return await self._context.once(f"step {where}", run, repeatable=True)

    async def _call(self, planned: PlannedStep, scope: Mapping[str, Any], where: str) -> Any:
        """Call the tool of a step until it succeeds, as often as the step allows."""
        arguments = self._evaluate(planned.arguments.render, scope, where, "arguments")
        step, tries = planned.step, 0
        while True:
            tries += 1
            key = where if tries == 1 else f"{where} try {tries}"
            outcome = await self._context.call(step.tool, arguments, key=key)
            match outcome:
                case Completed():
                    return await self._whole(outcome)
                case Paused():
                    raise _Waiting(outcome)
                case Failed(error=error):
                    if tries > step.retries or not _may_retry(error):
                        raise self._error(where, f"{step.tool}: {error.message}", error) from error
                case _:
                    assert_never(outcome)
            wait = min(step.retry_wait_s * 2.0 ** (tries - 1), _LONGEST_WAIT_S)
            await asyncio.sleep(max(wait, error.retry_after_seconds or 0.0))

    async def _whole(self, outcome: Completed) -> Any:
        """Return a result whole; of a large one the outcome has a preview."""
        content = outcome.content
        if not (outcome.artifacts and is_object(content) and content.get("artifact_id") == outcome.artifacts[0]):
            return content
        kind = str(content.get("media_type", ""))
        if "preview" not in content or not kind.startswith(("application/json", "text/plain")):
            return content  # a file, which expressions cannot read into
        data = await self._context.read_artifact(outcome.artifacts[0])
        return json.loads(data) if kind.startswith("application/json") else data.decode("utf-8", "surrogatepass")

    def _holds(self, planned: PlannedStep, scope: Mapping[str, Any], where: str) -> bool:
        assert planned.when is not None  # noqa: S101 - checked by the callers
        return is_true(self._evaluate(planned.when.evaluate, scope, where, "when"))

    def _evaluate(
        self, evaluate: Callable[[Mapping[str, Any]], Any], scope: Mapping[str, Any], where: str, part: str
    ) -> Any:
        try:
            return evaluate(scope)
        except ExpressionError as error:
            raise self._error(where, f"{part}: {error}") from error

    def _error(self, where: str, message: str, cause: ToolError | None = None) -> ToolError:
        """Return an error that names the workflow, the step and the item."""
        name, _, item = where.partition("[")
        place = f"step {name!r}, item {item[:-1]}" if item else f"step {name!r}"
        code = "step_failed" if cause is None else cause.error_code
        return ToolExecutionError(f"{self._workflow.label}: {place}: {message}", code=code, cause=cause)

    async def output(self) -> ToolOutput:
        """Render the outputs, save the tables that come out, and render the message."""
        workflow = self._workflow
        content = self._end("outputs", workflow.outputs.render)
        for name, port in workflow.data.ports.outputs.items():
            from toolpost.sources.workflow.ports import write_port  # noqa: PLC0415 - as above

            rows = self._end(f"port {name!r}", workflow.output_rows[name].evaluate)
            content[name] = await write_port(f"{workflow.label}: port {name!r}", port, rows, self._context)
        text = None if workflow.message is None else self._end("message", workflow.message.render)
        return ToolOutput(content, None if text is None else str(text))

    def _end(self, part: str, evaluate: Callable[[Mapping[str, Any]], Any]) -> Any:
        try:
            return evaluate(self._scope)
        except ExpressionError as error:
            raise ToolExecutionError(f"{self._workflow.label}: {part}: {error}", code="step_failed") from error


def _may_retry(error: ToolError) -> bool:
    """Return whether another try could help: not after a refusal, a denial or wrong arguments."""
    return error.is_retryable or isinstance(error, ToolExecutionError)


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    return {name: one["default"] for name, one in properties.items() if is_object(one) and "default" in one}


def completed(outcome: Outcome, context: ToolContext) -> Completed:
    """Return the outcome of a completed call inside; wait with one that waits, and raise the error of a failure."""
    if isinstance(outcome, Paused):
        context.wait_for(outcome)
    if isinstance(outcome, Failed):
        raise outcome.error
    return outcome
