"""Run a workflow: each step is a call of the same run under the same policy, started as soon as its inputs exist."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, assert_never

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolError, ToolExecutionError
from toolpost.contracts.outcomes import NO_META, Completed, Failed, Paused
from toolpost.policy.untrusted import UNTRUSTED
from toolpost.processes.json_documents import measure
from toolpost.schema.json_size import MAX_DIRECT_VALUES
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.workflow.definition import PlannedStep, Workflow
from toolpost.sources.workflow.expressions import ExpressionError, is_true
from toolpost.sources.workflow.ports import read_port, write_port

_LONGEST_WAIT_S = 60.0
_SKIPPED: Any = object()  # the result of a step with a condition that is false


async def run_workflow(
    workflow: Workflow, arguments: Mapping[str, Any], context: ToolContext, *, recorded: bool
) -> ToolOutput:
    """Run a workflow and return its outputs, with its message as the text for a model.

    With `recorded`, the result of each step is written to the journal: completed steps are not repeated when the
    workflow runs again after a pause or a crash.
    """
    run = _Run(workflow, context, recorded=recorded)
    await run.take_inputs(arguments)
    await run.run_steps()
    return await run.output()


class _Run:
    """One run of a workflow: its results, paused calls and failures."""

    def __init__(self, workflow: Workflow, context: ToolContext, *, recorded: bool) -> None:
        self._workflow = workflow
        self._context = context
        self._recorded = recorded
        self._results: dict[str, Any] = {}
        self._origins: set[str] = set()  # origins of untrusted results, which the outputs may contain
        self._skipped: set[str] = set()
        self._missing = {name: len(step.needs) for name, step in workflow.steps.items()}
        self._waiting: list[Paused] = []
        self._failures: list[ToolError] = []
        self._scope: dict[str, Any] = {"steps": self._results}

    async def take_inputs(self, arguments: Mapping[str, Any]) -> None:
        ports = self._workflow.data.ports.inputs
        properties: Mapping[str, Any] = self._workflow.data.inputs.get("properties", {})
        defaults = {name: one["default"] for name, one in properties.items() if is_object(one) and "default" in one}
        self._scope["inputs"] = defaults | {name: value for name, value in arguments.items() if name not in ports}
        tables: dict[str, Any] = {}
        if ports:
            for name, port in ports.items():
                where = f"{self._workflow.label}: port {name!r}"
                tables[name] = await read_port(where, port, arguments[name], self._context)
        self._scope["ports"] = tables

    async def run_steps(self) -> None:
        """Run all steps; raise the first failure, or pause if calls are paused."""
        async with asyncio.TaskGroup() as group:
            for name, missing in self._missing.items():
                if missing == 0:
                    group.create_task(self._run_step(name, group))
        if self._failures:
            first = self._failures[0]
            if not self._waiting:
                raise first
            # Open questions of other steps can only be denied now.
            open_ids = ", ".join(asked.pending_id for one in self._waiting for asked in one.questions)
            raise ToolExecutionError(f"{first.message}; still open are its questions {open_ids}", code=first.error_code)
        if self._waiting:
            self._context.wait_for(*self._waiting)

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
        if self._failures:  # running steps finish, and no new ones start
            return
        for other in planned.needed_by:
            self._missing[other] -= 1
            if self._missing[other] == 0:
                group.create_task(self._run_step(other, group))

    async def _result(self, planned: PlannedStep) -> Any:
        """Return the result of a step: that of its call, or those of the calls for its items in order."""
        if planned.when is None:
            if self._skipped and not self._skipped.isdisjoint(planned.needs):
                return _SKIPPED
        elif not planned.when_is_of_item and not self._holds(planned, self._scope, planned.name):
            return _SKIPPED
        if planned.items is not None:
            return await self._loop(planned)
        return await self._call_or_replay(planned, self._scope, planned.name)

    async def _loop(self, planned: PlannedStep) -> list[Any]:
        assert planned.items is not None  # noqa: S101 - checked by the caller
        items = self._evaluate(planned.items.evaluate, self._scope, planned.name, "for_each")
        if not is_array(items):
            msg = f"for_each returns {type(items).__name__}, not a list"
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
            self._waiting += waiting  # the error names their questions
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
                results[number] = await self._call_or_replay(planned, scope, where)
            except _Waiting as more:
                waiting += more.paused
            except ToolError as error:
                if planned.step.on_error == "fail":
                    failed[number] = error

    async def _call_or_replay(self, planned: PlannedStep, scope: Mapping[str, Any], where: str) -> Any:
        """Return the result of a call: the recorded one if the workflow runs again."""
        run = partial(self._call, planned, scope, where)
        result, origin = (
            await self._context.once(f"step {where}", run, repeatable=True) if self._recorded else await run()
        )
        if origin is not None:
            self._origins.add(origin)
        return result

    async def _call(self, planned: PlannedStep, scope: Mapping[str, Any], where: str) -> Sequence[Any]:
        """Call the tool of a step; retry it as often as the step allows.

        Return its result, and its origin if it is untrusted.
        """
        arguments = self._evaluate(planned.arguments.render, scope, where, "arguments")
        step, attempt = planned.step, 0
        while True:
            attempt += 1
            key = where if attempt == 1 else f"{where} try {attempt}"
            outcome = await self._context.call(step.tool, arguments, key=key)
            match outcome:
                case Completed(meta=meta):
                    origin = str(meta.get("origin") or step.tool) if meta.get("trust") == UNTRUSTED else None
                    try:
                        return await self._whole(outcome), origin
                    except ToolError as error:
                        raise self._error(where, f"{step.tool}: {error.message}", error) from error
                case Paused():
                    raise _Waiting(outcome)
                case Failed(error=error):
                    may_retry = error.is_retryable or isinstance(error, ToolExecutionError)
                    if attempt > step.retries or not may_retry:
                        raise self._error(where, f"{step.tool}: {error.message}", error) from error
                case _:
                    assert_never(outcome)
            wait = min(step.retry_wait_s * 2.0 ** (attempt - 1), _LONGEST_WAIT_S)
            await asyncio.sleep(max(wait, error.retry_after_seconds or 0.0))

    async def _whole(self, outcome: Completed) -> Any:
        """Return the full result; the outcome contains only a preview of a large one."""
        content = outcome.content
        if not (outcome.artifacts and is_object(content) and content.get("artifact_id") == outcome.artifacts[0]):
            return content
        kind = str(content.get("media_type", ""))
        if "preview" not in content or not kind.startswith(("application/json", "text/plain")):
            return content  # a file, which expressions cannot read
        data = await self._context.read_artifact(outcome.artifacts[0])
        if not kind.startswith("application/json"):
            return data.decode("utf-8", "surrogatepass")
        await measure(data, MAX_DIRECT_VALUES)
        return json.loads(data)

    def _holds(self, planned: PlannedStep, scope: Mapping[str, Any], where: str) -> bool:
        assert planned.when is not None  # noqa: S101 - checked by the callers
        return is_true(self._evaluate(planned.when.evaluate, scope, where, "when"))

    def _evaluate(
        self, evaluate: Callable[[Mapping[str, Any]], Any], scope: Mapping[str, Any], where: str, part: str
    ) -> Any:
        try:
            return evaluate(scope)
        except ExpressionError as error:
            raise self._error(where, f"{part}: {error}", code=error.code) from error

    def _error(
        self, where: str, message: str, cause: ToolError | None = None, *, code: str = "step_failed"
    ) -> ToolError:
        name, _, item = where.partition("[")
        place = f"step {name!r}, item {item[:-1]}" if item else f"step {name!r}"
        code = code if cause is None else cause.error_code
        error = ToolExecutionError(f"{self._workflow.label}: {place}: {message}", code=code, cause=cause)
        error.origin = "" if cause is None else cause.origin
        return error

    async def output(self) -> ToolOutput:
        """Render the outputs, save the output tables, and render the message."""
        workflow = self._workflow
        content = self._end("outputs", workflow.outputs.render)
        for name, port in workflow.data.ports.outputs.items():
            rows = self._end(f"port {name!r}", workflow.output_rows[name].evaluate)
            content[name] = await write_port(f"{workflow.label}: port {name!r}", port, rows, self._context)
        text = None if workflow.message is None else self._end("message", workflow.message.render)
        meta = {"origin": ", ".join(sorted(self._origins)), "trust": UNTRUSTED} if self._origins else NO_META
        return ToolOutput(content, None if text is None else str(text), meta=meta)

    def _end(self, part: str, evaluate: Callable[[Mapping[str, Any]], Any]) -> Any:
        try:
            return evaluate(self._scope)
        except ExpressionError as error:
            raise ToolExecutionError(f"{self._workflow.label}: {part}: {error}", code=error.code) from error


class _Waiting(Exception):  # noqa: N818 - not a failure: the call is paused
    """Raised if the call of a step, or calls of its items, are paused."""

    def __init__(self, *paused: Paused) -> None:
        super().__init__()
        self.paused = paused
