"""Tools of smolagents that call a Toolbox; a waiting call keeps the run until a person has answered."""

# The checkers run without the framework, which is tested in a separate environment.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from toolpost.adapters.framework_tools import FrameworkTool, FrameworkTools
from toolpost.adapters.waiting_calls import WAIT_S, BlockingCalls, text_or_error
from toolpost.contracts.errors import ConfigError
from toolpost.schema.provider_dialects import Provider

try:
    from smolagents import Tool
except ImportError as missing:
    raise ConfigError("tools for smolagents need it; run: pip install smolagents") from missing

if TYPE_CHECKING:
    from toolpost.adapters.table_tools import TableTool
    from toolpost.toolbox.box import Toolbox

_INLINED: Provider = "bedrock"  # schemas without references, as the framework shows each property alone
_TYPES = ("string", "number", "integer", "boolean", "array", "object")


async def tools(
    source: Toolbox | Iterable[TableTool],
    *,
    user: str | Callable[[], str] | None = None,
    only: Iterable[str] | None = None,
    provider: Provider = _INLINED,
    wait_s: float = WAIT_S,
) -> list[SmolagentsTool]:
    """Return the tools of a Toolbox, or of a table, for `ToolCallingAgent(tools=...)` or `CodeAgent(tools=...)`.

    Run the agent in a thread, such as by `asyncio.to_thread`: the event loop of the Toolbox must not be blocked. Calls
    are for `user`, which may be a function such as `get` of a context variable. `only` selects tools by name,
    collection or pattern. A call waits for a person for at most `wait_s`, and then fails; the next call with the same
    arguments continues it.
    """
    given = (lambda _: user()) if callable(user) else user
    listed = await FrameworkTools(source, user=given, only=only, provider=provider).read()
    names, calls = set[str](), BlockingCalls(wait_s)
    return [SmolagentsTool(tool, _free_name(tool.name, names), calls) for tool in listed]


class SmolagentsTool(Tool):  # type: ignore[misc, unused-ignore]
    """A tool of smolagents that calls a Toolbox, which validates the arguments.

    A failed call, and one that still waits after its time, raises CallFailedError.
    """

    output_type = "string"
    skip_forward_signature_validation = True

    def __init__(self, tool: FrameworkTool, name: str, calls: BlockingCalls) -> None:
        super().__init__()
        parameters, needed = tool.parameters.get("properties") or {}, tool.parameters.get("required") or ()
        self.name = name
        self.description = tool.description or name
        self.inputs = {key: _input(key, schema, required=key in needed) for key, schema in parameters.items()}
        self._tool = tool
        self._calls = calls

    def __call__(self, *args: Any, sanitize_inputs_outputs: bool = False, **kwargs: Any) -> Any:
        if sanitize_inputs_outputs and len(args) == 1 and isinstance(args[0], str):
            return self._call(args[0])  # arguments that a model wrote and that are not JSON
        return super().__call__(*args, sanitize_inputs_outputs=sanitize_inputs_outputs, **kwargs)

    def forward(self, *args: Any, **arguments: Any) -> str:
        positional = dict(zip(self.inputs, args, strict=False))
        return self._call(
            {name: value for name, value in {**positional, **arguments}.items() if self._is_set(name, value)}
        )

    def _is_set(self, name: str, value: Any) -> bool:
        """Return whether an argument is set; the framework lets models write null for an omitted one."""
        return value is not None or not self.inputs.get(name, {}).get("optional")

    def _call(self, arguments: Mapping[str, Any] | str) -> str:
        return text_or_error(self._calls.block(self._tool, arguments))


def _input(name: str, schema: Any, *, required: bool) -> dict[str, Any]:
    """Return a property as the framework describes it: with types, a description, and whether it may be null."""
    described = _without_alternatives(dict(schema) if isinstance(schema, dict) else {})
    given = described.get("type", list(_TYPES))
    types = [given] if isinstance(given, str) else list(given)
    accepts_null = "null" in types
    left = [one for one in types if one != "null"] or types
    described["type"] = left[0] if len(left) == 1 else left
    described["description"] = described.get("description") or described.get("title") or name
    if accepts_null or not required:
        described["nullable"] = True
    if not accepts_null and not required:
        described["optional"] = True
    return described


def _without_alternatives(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without `anyOf` at its root, which the framework would replace by types.

    A schema or null becomes the schema with two types. Other alternatives are moved into `allOf`, which is the same.
    """
    alternatives = schema.pop("anyOf", ())
    branches = [one for one in alternatives if one != {"type": "null"}]
    if len(branches) == 1 and isinstance(branches[0].get("type"), str):
        nulls = ["null"] if len(alternatives) > 1 else []
        return {**schema, **branches[0], "type": [branches[0]["type"], *nulls]}
    if alternatives:
        schema["allOf"] = [*schema.get("allOf", ()), {"anyOf": list(alternatives)}]
    return schema


def _free_name(name: str, taken: set[str]) -> str:
    """Return the name of a tool as an identifier of Python that is not taken yet."""
    wanted = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not wanted.isidentifier() or keyword.iskeyword(wanted):
        wanted = f"tool_{wanted}"
    free, number = wanted, 1
    while free in taken:
        free, number = f"{wanted}_{number}", number + 1
    taken.add(free)
    return free
