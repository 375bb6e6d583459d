"""Tools of DSPy that call a Toolbox; a waiting call keeps the program until a person has answered."""

# The checkers run without the framework, which is tested in a separate environment.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from toolpost.adapters.framework_tools import FrameworkTool, FrameworkTools
from toolpost.adapters.waiting_calls import WAIT_S, BlockingCalls, text_or_error
from toolpost.contracts.errors import ConfigError
from toolpost.schema.provider_dialects import Provider

try:
    from dspy import Tool
    from dspy.utils.callback import with_callbacks
except ImportError as missing:
    raise ConfigError("tools for DSPy need it; run: pip install dspy") from missing

if TYPE_CHECKING:
    from toolpost.adapters.table_tools import TableTool
    from toolpost.toolbox.box import Toolbox

_INLINED: Provider = "bedrock"  # schemas without references, as the framework shows each property alone


async def tools(
    source: Toolbox | Iterable[TableTool],
    *,
    user: str | Callable[[], str] | None = None,
    only: Iterable[str] | None = None,
    provider: Provider = _INLINED,
    wait_s: float = WAIT_S,
) -> list[DSPyTool]:
    """Return the tools of a Toolbox, or of a table, for `dspy.ReAct(signature, tools=...)`.

    Call the program by `acall`, or in a thread: the event loop of the Toolbox must not be blocked. Calls are for
    `user`, which may be a function such as `get` of a context variable. `only` selects tools by name, collection or
    pattern. A call waits for a person for at most `wait_s`, and then fails; the next call with the same arguments
    continues it.
    """
    given = (lambda _: user()) if callable(user) else user
    listed, calls = await FrameworkTools(source, user=given, only=only, provider=provider).read(), BlockingCalls(wait_s)
    return [DSPyTool.of(tool, calls) for tool in listed]


class DSPyTool(Tool):  # type: ignore[misc, unused-ignore]
    """A tool of DSPy that calls a Toolbox, which validates the arguments.

    A failed call, and one that still waits after its time, raises CallFailedError.
    """

    _tool: FrameworkTool = PrivateAttr()
    _calls: BlockingCalls = PrivateAttr()

    @classmethod
    def of(cls, tool: FrameworkTool, calls: BlockingCalls) -> DSPyTool:
        """Return the tool of DSPy that makes the calls of a tool."""
        properties = dict(tool.parameters.get("properties") or {})

        def call(**arguments: Any) -> str:
            return text_or_error(calls.block(tool, arguments))

        made = cls(call, name=tool.name, desc=tool.description, args=properties, arg_types={})
        made._tool, made._calls = tool, calls
        return made

    @with_callbacks  # type: ignore[untyped-decorator, unused-ignore]
    def __call__(self, **arguments: Any) -> str:
        return str(self.func(**arguments))

    @with_callbacks  # type: ignore[untyped-decorator, unused-ignore]
    async def acall(self, **arguments: Any) -> str:
        return text_or_error(await self._calls.call(self._tool, arguments))

    def __deepcopy__(self, memo: Any = None) -> DSPyTool:
        """Return this tool: optimizers copy programs, and the Toolbox is the same in all of them."""
        return self

    def __str__(self) -> str:
        needed = list(self._tool.parameters.get("required") or ())
        return f"{super().__str__()} The required arguments are {needed}."

    def format_as_litellm_function_call(self) -> dict[str, Any]:
        function = {"name": self.name, "description": self.desc, "parameters": self._tool.parameters}
        return {"type": "function", "function": function}
