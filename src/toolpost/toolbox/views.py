"""Views of a Toolbox: some of its tools, or three tools that find, describe and call all the others.

A view does not run tools itself: `call_tool` is a call of the named tool through the Toolbox.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack

from toolpost.contracts.errors import ToolError, ToolNotFoundError, ToolSourceDownError, ToolValidationError
from toolpost.contracts.nearest_names import nearest
from toolpost.contracts.outcomes import Completed, Failed, Outcome
from toolpost.contracts.spec import ToolDefinition
from toolpost.runtime.arguments import read_arguments
from toolpost.runtime.concurrency import map_concurrent
from toolpost.runtime.model_messages import ToolCallAnswers, read_tool_calls
from toolpost.schema.json_values import as_object

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from toolpost.catalog.entry import Entry
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.context import ToolContext
    from toolpost.schema.provider_schemas import CompiledTools

SEARCH, DESCRIBE, CALL = "search_tools", "describe_tool", "call_tool"
OWN = (SEARCH, DESCRIBE, CALL)
_KEYS = {SEARCH: ("query", "limit"), DESCRIBE: ("name",), CALL: ("name", "arguments")}
_LONGEST_SCHEMA = 4000  # characters of a schema that a search result includes
_MOST_HITS = 20
_SHOWN_SOURCES = 40


class CallOptions(TypedDict, total=False):
    """The options of `Toolbox.call`."""

    user: str | None
    timeout_s: float | None
    idempotency_key: str | None
    run_id: str | None
    context: ToolContext | None
    session: str | None


class ViewedBox(Protocol):
    """The members of a Toolbox that a view uses."""

    registry: ToolRegistry
    settings: Settings

    async def wait_for_tool(self, name: str) -> None:
        """Wait for a tool of a connecting source."""
        ...

    # A method with named options does not satisfy a Protocol that takes them as one TypedDict.
    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        user: str | None = None,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        run_id: str | None = None,
        context: ToolContext | None = None,
        session: str | None = None,
    ) -> Coroutine[Any, Any, Outcome]:
        """Call a tool."""
        ...


class SelectedTools:
    """The tools that `only`, the arguments of `ToolRegistry.select`, selects; other tools are not found.

    Every method uses the current catalog, which may change.
    """

    def __init__(self, box: ViewedBox, only: Mapping[str, Any]) -> None:
        self.only = only
        self._box = box
        self._accepts = box.registry.select(**only)

    def entries(self) -> list[Entry]:
        """Return the entries of the tools, in the order of the catalog."""
        registry = self._box.registry
        return [registry.find(spec.name) for spec in registry.specs() if self._accepts(spec)]

    def has(self, name: str) -> bool:
        """Return whether a tool of this name is selected; without a selection, also tools that no longer exist."""
        registry = self._box.registry
        return not self.only or (registry.has(name) and self._accepts(registry.find(name).spec))

    def find(self, name: str) -> Entry:
        """Return the entry of a tool; ToolNotFoundError suggests the nearest name among those selected."""
        registry = self._box.registry
        if registry.has(name) and self._accepts(registry.find(name).spec):
            return registry.find(name)
        seen = [spec.name for spec in registry.specs() if self._accepts(spec)]
        raise ToolNotFoundError(name, suggestion=nearest(name, seen))

    async def call(
        self, name: str, arguments: Mapping[str, Any] | str | None = None, **options: Unpack[CallOptions]
    ) -> Outcome:
        """Call a tool, as `Toolbox.call` does."""
        _check_options(options)
        if (refused := await self.refusal(name)) is not None:
            return Failed("", options.get("run_id") or "", name, refused)
        return await self._box.call(name, arguments, **options)

    async def refusal(self, name: str) -> ToolError | None:
        """Return why a tool cannot be called here: the selection excludes it."""
        if not self.only:
            return None
        # A tool may be known only after its source has connected, and may then differ from the cached listing.
        with suppress(ToolSourceDownError):
            await self._box.wait_for_tool(name)
        try:
            self.find(name)
        except ToolError as error:
            return error
        return None


class SearchView:
    """The tools of an open Toolbox behind `search_tools`, `describe_tool` and `call_tool`.

    Only tools that `only`, the arguments of `ToolRegistry.select`, selects can be found, described and called. Every
    call uses the current catalog. A model may also call a tool that it has found directly by name.
    """

    def __init__(self, box: ViewedBox, *, limit: int = 5, only: Mapping[str, Any] | None = None) -> None:
        self.box = box
        self._limit = limit
        self._tools = SelectedTools(box, dict(only or {}))

    def definitions(self) -> Sequence[ToolDefinition]:
        """Return the definitions of the three tools for a model."""
        name = {"type": "string", "description": "The name of a tool, as returned by search_tools."}
        query = {"type": "string", "description": "What the tool should do, in a few words: refund a payment."}
        limit = {"type": "integer", "minimum": 1, "maximum": _MOST_HITS, "description": f"Default {self._limit}."}
        arguments = {"type": "object", "description": "The arguments of the tool, by its input_schema."}
        return [
            ToolDefinition(
                SEARCH,
                f"Find tools by what they do. {self._sources()}The best come first, with their input schemas.",
                _schema({"query": query, "limit": limit}, ["query"]),
            ),
            ToolDefinition(DESCRIBE, "Describe one tool completely, with its full schemas.", _schema({"name": name})),
            ToolDefinition(
                CALL, "Call a tool that search_tools found.", _schema({"name": name, "arguments": arguments}, ["name"])
            ),
        ]

    def _sources(self) -> str:
        sources = sorted({entry.spec.source for entry in self._tools.entries()} - {""})
        more = ", and others" if len(sources) > _SHOWN_SOURCES else ""
        return f"There are tools of: {', '.join(sources[:_SHOWN_SOURCES])}{more}. " if sources else ""

    def unwrap(self, name: str, arguments: Any) -> tuple[str, Any]:
        """Return the tool and the arguments of a call; for `call_tool`, those of the nested call."""
        if name != CALL:
            return name, arguments
        members = _read(arguments)
        return (
            (members["name"], members.get("arguments")) if isinstance(members.get("name"), str) else (name, arguments)
        )

    def is_own(self, name: str, arguments: Any) -> bool:
        """Return whether a call is for a tool of the view; `call_tool` also reaches catalog tools of the same name."""
        called, _ = self.unwrap(name, arguments)
        return called in OWN and not (name == CALL and called != name and self.box.registry.has(called))

    async def call(
        self, name: str, arguments: Mapping[str, Any] | str | None = None, **options: Unpack[CallOptions]
    ) -> Outcome:
        """Call a tool for the model, as `Toolbox.call` does; the outcome of `call_tool` is that of the tool itself."""
        _check_options(options)
        is_own, run_id = self.is_own(name, arguments), options.get("run_id") or ""
        try:
            if name == CALL:
                _check_keys(name, _read(arguments))
            name, arguments = self.unwrap(name, arguments)
            if is_own:
                return Completed("", run_id, name, await self._answer(name, _read(arguments)))  # no call of a tool
        except ToolError as error:
            return Failed("", run_id, name, error)
        return await self._tools.call(name, arguments, **options)

    async def answer_tool_calls(
        self,
        reply: object,
        *,
        user: str | None = None,
        max_parallel: int | None = None,
        run_id: str | None = None,
        context: ToolContext | None = None,
        compiled: CompiledTools | None = None,
    ) -> ToolCallAnswers:
        """Answer the tool calls of a model's reply, as `Toolbox.answer_tool_calls` does."""
        tool_calls, most = read_tool_calls(reply, compiled), self.box.settings.limits.absolute_max_parallel
        return tool_calls.answered(
            await map_concurrent(
                tool_calls.calls,
                lambda one: self.call(one.name, one.arguments, user=user, run_id=run_id, context=context),
                max_concurrency=min(max_parallel or most, most),
            )
        )

    async def _answer(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        _check_keys(name, arguments)
        if name == SEARCH:
            return await self._search(_text(arguments, "query", SEARCH), _limit(arguments))
        if name == CALL:  # it names no tool, or itself
            raise ToolValidationError("$.name: call_tool needs the name of another tool", tool_name=CALL)
        entry = self._tools.find(_text(arguments, "name", DESCRIBE))
        spec = entry.spec
        facts = {"source": spec.source, "side_effects": spec.side_effects, "tags": list(spec.tags)}
        return {**_brief(entry), "input_schema": entry.shown_schema, "output_schema": spec.output_schema, **facts}

    async def _search(self, query: str, limit: int | None) -> dict[str, Any]:
        registry = self.box.registry
        specs = await registry.search(query, limit=min(limit or self._limit, _MOST_HITS), **self._tools.only)
        if specs:
            return {"tools": [_hit(registry.find(spec.name)) for spec in specs if registry.has(spec.name)]}
        near = (
            None if self._tools.only else await registry.correct(query)
        )  # it would suggest words of tools that are not selected
        return {"tools": [], "note": f"No tools match.{f' Did you mean {near!r}?' if near else ' Use other words.'}"}


def _check_options(options: CallOptions) -> None:
    """Raise TypeError for an option that `Toolbox.call` does not have, even if no call is made."""
    for unknown in options.keys() - CallOptions.__optional_keys__:
        raise TypeError(f"call() got an unexpected keyword argument {unknown!r}")


def _check_keys(name: str, arguments: Mapping[str, Any]) -> None:
    """Raise ToolValidationError for unknown arguments of a tool of the view, worded as for other tools."""
    keys = _KEYS[name]
    allowed = ", ".join(f'"{key}"' for key in keys)
    unknown = [f"$: unexpected {json.dumps(key)}; allowed are {allowed}" for key in arguments if key not in keys]
    if unknown:
        raise ToolValidationError(unknown, tool_name=name)


def _hit(entry: Entry) -> dict[str, Any]:
    """Return a found tool with its schema; a long schema is replaced by the names of its parameters."""
    schema = entry.shown_schema
    if len(json.dumps(schema)) <= _LONGEST_SCHEMA:
        return {**_brief(entry), "input_schema": schema}
    return {**_brief(entry), "parameters": list(schema.get("properties", ())), "note": f"{DESCRIBE} has the schema."}


def _brief(entry: Entry) -> dict[str, Any]:
    return {"name": entry.spec.name, "description": entry.spec.description}


def _schema(properties: dict[str, Any], required: Sequence[str] | None = None) -> dict[str, Any]:
    wanted = list(properties) if required is None else list(required)
    return {"type": "object", "properties": properties, "required": wanted, "additionalProperties": False}


def _read(arguments: Any) -> Mapping[str, Any]:
    value = read_arguments(arguments) if isinstance(arguments, str) else arguments
    return as_object(value)


def _limit(arguments: Mapping[str, Any]) -> int | None:
    limit = arguments.get("limit")
    if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and limit > 0):
        return limit
    raise ToolValidationError(f"$.limit: expected integer of at least 1, got {json.dumps(limit)}", tool_name=SEARCH)


def _text(arguments: Mapping[str, Any], key: str, tool: str) -> str:
    value = arguments.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ToolValidationError(f"$.{key}: {tool} needs a string", tool_name=tool)
    return value
