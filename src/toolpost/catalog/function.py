"""Python functions as tools: the `@tool` decorator and FunctionTool."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, get_args, overload

from msgspec.structs import replace

from toolpost.catalog.code_target import code_target
from toolpost.catalog.names import check_canonical
from toolpost.catalog.threads import is_interrupt, loop_error, run_in_thread
from toolpost.contracts.calls import JSON, AuthorizedCall, ToolOutput
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import PauseSignal, ToolCollisionError, ToolError, ToolExecutionError
from toolpost.contracts.outcomes import NO_META, ToolResult, now_ms
from toolpost.contracts.spec import (
    JsonSchema,
    ReplayClass,
    SafetyProfile,
    SideEffects,
    ToolCategory,
    ToolSpec,
    replay_of,
)

if TYPE_CHECKING:
    from toolpost.contracts.questions import Question
    from toolpost.contracts.spec import Preview
    from toolpost.schema.signature import FunctionSchema

_NOTHING = ToolOutput(None)  # the result of a generator without values
_PLAIN = frozenset({dict, list, str, int, float, bool, type(None)})


class FunctionTool:
    """A Python function with a record; it can still be called as a function."""

    __slots__ = (
        *("__dict__", "_context_parameter", "_convert", "_direct", "_on_loop", "_previewer", "_render", "fn", "spec"),
    )
    is_checked = False
    """Whether both schemas are known to be valid and need no check."""

    def __init__(
        self, fn: Callable[..., Any], spec: ToolSpec, shape: FunctionSchema, previewer: Preview | None = None
    ) -> None:
        self.fn = fn
        self.spec = spec
        self._convert = shape.convert
        self._render = shape.render
        self._context_parameter = shape.context_parameter
        self._previewer = previewer
        is_async = inspect.iscoroutinefunction(fn)
        self._on_loop = is_async or inspect.isasyncgenfunction(fn)
        self._direct = is_async and self._context_parameter is None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the plain function without the pipeline, for tests and for use in other functions."""
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    @property
    def name(self) -> str:
        """Shortcut for `spec.name`."""
        return self.spec.name

    @property
    def description(self) -> str:
        """Shortcut for `spec.description`."""
        return self.spec.description

    @property
    def category(self) -> ToolCategory:
        """Shortcut for `spec.category`."""
        return self.spec.category

    @property
    def parameters(self) -> JsonSchema:
        """Shortcut for `spec.input_schema`."""
        return self.spec.input_schema

    @property
    def takes_context(self) -> bool:
        """Whether the function takes a context, which can ask questions and call other tools."""
        return self._context_parameter is not None

    @property
    def may_report(self) -> bool:
        """Whether calls can report progress or stream values."""
        return not self._direct

    @property
    def previewer(self) -> Preview | None:
        """The function that previews a call, if the tool has one."""
        return self._previewer

    def renamed(self, spec: ToolSpec) -> FunctionTool:
        """Return the same function with another record."""
        copy = object.__new__(FunctionTool)
        for slot in ("fn", "_convert", "_direct", "_render", "_context_parameter", "_on_loop", "_previewer"):
            setattr(copy, slot, getattr(self, slot))
        copy.spec = spec
        return copy

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        try:
            return self.output(await self.start(call))
        except PauseSignal as pause:
            return pause.question

    def start(self, call: AuthorizedCall) -> Awaitable[Any]:
        """Start a call of the function; `output` converts its value."""
        arguments, convert = call.permitted.validated.arguments, self._convert
        if not self._direct:
            return self._run(arguments, call.context)
        value: Awaitable[Any] = self.fn(**(arguments if convert is None else convert(arguments)))
        return value

    def output(self, value: Any) -> ToolOutput:
        """Convert a value of the function to the tool's output."""
        if self._render is None:
            return ToolOutput(value, None, JSON, NO_META) if type(value) in _PLAIN else output_of(value)
        return value if isinstance(value, ToolOutput) else ToolOutput(self._render(value))  # a generator's is rendered

    async def execute(self, params: dict[str, Any], context: ToolContext | Mapping[str, Any]) -> ToolResult:
        """Run the function without the pipeline, and return failures as results.

        The context may be a mapping, such as `{"taskId": "t"}`.
        """
        started, tool_context = now_ms(), ToolContext.of(context)
        try:
            output = self.output(await self._run(params, lambda: tool_context))
        except (asyncio.CancelledError, PauseSignal):
            raise
        except BaseException as raised:  # foreign code is called here
            if is_interrupt(raised):
                raise
            error = raised if isinstance(raised, ToolError) else raised_by_tool(raised, self.spec.name)
            return ToolResult.failed(error, started_at=started)
        return ToolResult.completed(output.content, output.text, started_at=started)

    async def _run(self, arguments: dict[str, Any], make_context: Callable[[], ToolContext]) -> Any:
        kwargs = arguments if self._convert is None else self._convert(arguments)
        context = functools.cache(make_context)  # most functions need none
        if self._context_parameter is not None:
            kwargs = {**kwargs, self._context_parameter: context()}

        def publish(item: Any) -> ToolOutput:
            output = self.output(item)
            context().stream(output.content)
            return output

        if self._on_loop:
            result = self.fn(**kwargs)
        else:
            given_up: list[bool] = []
            try:
                result = await run_in_thread(functools.partial(_called, self.fn, kwargs, publish, given_up))
            finally:
                given_up.append(True)
        if isinstance(result, AsyncGenerator):
            return await _last(cast("AsyncGenerator[Any]", result), publish)
        return await result if inspect.isawaitable(result) else result  # a plain wrapper around an async function


def _called(
    fn: Callable[..., Any], kwargs: dict[str, Any], publish: Callable[[Any], ToolOutput], given_up: list[bool]
) -> Any:
    """Call a plain function; publish the values of a generator in this thread until the caller is cancelled."""
    result: Any = fn(**kwargs)
    if not isinstance(result, Generator):
        return result
    last, values = _NOTHING, cast("Generator[Any]", result)
    with contextlib.closing(values):
        for value in values:
            if given_up:
                break
            last = publish(value)
    return last


async def _last(values: AsyncGenerator[Any], publish: Callable[[Any], ToolOutput]) -> ToolOutput:
    """Publish the values of a generator and return the last one; always close the generator."""
    last = _NOTHING
    async with contextlib.aclosing(values):
        async for value in values:
            last = publish(value)
            await asyncio.sleep(0)  # a generator that never waits could not be cancelled
    return last


async def run_tool(call: AuthorizedCall) -> ToolOutput | Question:
    """Run a tool of this process, made by `@tool` or an implementation of the Tool protocol."""
    if isinstance(call.tool, FunctionTool):
        return await call.tool.invoke(call)
    try:
        return output_of(await call.tool.execute(dict(call.arguments), call.context()))
    except PauseSignal as pause:
        return pause.question


def output_of(value: Any) -> ToolOutput:
    """Convert the return value of a Python tool to output; ToolExecutionError for a ToolResult that failed."""
    match value:
        case ToolOutput():
            return value
        case bytes() | bytearray():
            return ToolOutput(bytes(value), media_type="application/octet-stream")
        case ToolResult(success=True):
            return replace(output_of(value.result), text=value.content_text)
        case ToolResult():
            raise ToolExecutionError(value.error or "the tool reported a failure without a reason")
        case _:
            from toolpost.schema.pydantic_types import to_jsonable  # noqa: PLC0415 - as in `_make`

            return ToolOutput(to_jsonable(value))


def raised_by_tool(raised: BaseException, tool_name: str) -> ToolExecutionError:
    """Wrap an exception of the tool's code in a ToolExecutionError."""
    raised = loop_error(raised)
    text = str(raised) or "no message"
    return ToolExecutionError(f"{type(raised).__name__}: {text}", tool_name=tool_name, cause=raised)


@overload
def tool(fn: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    desc: str | None = None,
    name: str | None = None,
    side_effects: SideEffects | None = None,
    destructive: bool | None = None,
    idempotent: bool = False,
    replay: ReplayClass | None = None,
    tags: Sequence[str] = (),
    timeout_s: float | None = None,
    cost_hint: str | None = None,
    latency_hint_ms: int | None = None,
    category: ToolCategory = ToolCategory.CUSTOM,
    version: str = "1",
    lenient: bool = False,
    cache_ttl_s: float | None = None,
    max_concurrency: int | None = None,
    host_argument: str | None = None,
    network: bool | None = None,
    file: bool = False,
    open_world: bool | None = None,
    input_schema: JsonSchema | None = None,
    output_schema: JsonSchema | None = None,
    deprecated: bool = False,
    preview: Preview | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(fn: Callable[..., Any] | None = None, /, **declared: Any) -> Any:
    """Turn a function into a tool.

    The name, description and schemas come from the function. Declare its effects with `side_effects`: "pure", "read",
    "write", "external" or "stateful". The default is "write": such calls are journaled and never retried automatically.
    `destructive=True` requires approval for every call; under the policy `regulated`, so does "external".
    `open_world=True` marks results as untrusted content, such as web pages. `lenient=True` coerces arguments, for
    example "5" to 5.

    `host_argument` names the argument that contains the target URL. The circuit breaker then works per host and tenant,
    so one unreachable host does not block the others. `preview`, a coroutine function of the arguments and the context,
    reports whether a specific call is destructive and what it would change. Plain functions run in a worker thread.
    Generators, sync or async, stream: each value is emitted as it is produced, and the last one is the result.
    """
    if fn is not None:
        return _make(fn, **declared)
    return functools.partial(_make, **declared)


def _make(
    fn: Callable[..., Any],
    *,
    desc: str | None = None,
    name: str | None = None,
    lenient: bool = False,
    input_schema: JsonSchema | None = None,
    output_schema: JsonSchema | None = None,
    tags: Sequence[str] = (),
    preview: Preview | None = None,
    extra: Mapping[str, Any] | None = None,
    **declared: Any,
) -> FunctionTool:
    # Importing Pydantic takes as long as the rest of the package; the first tool imports it.
    from toolpost.schema.parameters import function_name  # noqa: PLC0415
    from toolpost.schema.schema_checks import check_schema  # noqa: PLC0415
    from toolpost.schema.signature import function_schema  # noqa: PLC0415

    shape = function_schema(fn)
    spec = ToolSpec(
        name=name or str(getattr(fn, "__name__", "")),
        description=desc if desc is not None else shape.description,
        input_schema=input_schema or shape.input_schema,
        output_schema=output_schema or shape.output_schema,
        validate_inputs="lenient" if lenient else "strict",
        tags=tuple(tags),
        extra=dict(extra or {}),
        target=code_target(fn),
        **_with_effects(**declared),
    )
    if not spec.name.replace("<lambda>", ""):
        raise ToolCollisionError(f"the tool made from {function_name(fn)!r} has no name; give it one: tool(name=...)")
    check_canonical(spec.name)
    check_schema(spec.input_schema, tool_name=spec.name)
    made = FunctionTool(fn, spec, shape, preview)
    functools.update_wrapper(made, fn, updated=())
    return made


def _with_effects(
    *,
    side_effects: SideEffects | None = None,
    destructive: bool | None = None,
    idempotent: bool = False,
    replay: ReplayClass | None = None,
    network: bool | None = None,
    file: bool = False,
    open_world: bool | None = None,
    **others: Any,
) -> dict[str, Any]:
    """Build the fields of a record that describe effects; pass the other declarations through."""
    effects = side_effects or "write"
    _one_of("side_effects", effects, get_args(SideEffects))
    external = effects == "external"
    safety = SafetyProfile(
        external if network is None else network,
        file,
        bool(destructive),  # the default is not unknown: the author declared the effects
        external if open_world is None else open_world,
    )
    replay = replay or replay_of(effects, idempotent=idempotent)
    _one_of("replay", replay, get_args(ReplayClass))
    return {
        **others,
        "side_effects": effects,
        "safety": safety,
        "replay": replay,
        "third_party": open_world is True,
    }


def _one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{key}={value!r} is not one of {', '.join(allowed)}")
