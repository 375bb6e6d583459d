"""A plugin of Semantic Kernel that calls a Toolbox; a waiting call ends the automatic invocation of functions."""

# The checkers run without the framework, which is tested in a separate environment.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from toolpost.adapters.framework_tools import FrameworkTool, FrameworkTools, describe_pause
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.outcomes import Failed, Outcome, Paused, outcome_to_dict
from toolpost.runtime.model_messages import model_text
from toolpost.schema.provider_dialects import Provider

try:
    from semantic_kernel.contents import FunctionCallContent, FunctionResultContent
    from semantic_kernel.functions import FunctionResult, KernelFunction, KernelPlugin
    from semantic_kernel.functions.kernel_function_metadata import KernelFunctionMetadata
    from semantic_kernel.functions.kernel_parameter_metadata import KernelParameterMetadata
except ImportError as missing:
    raise ConfigError("a plugin for Semantic Kernel needs it; run: pip install semantic-kernel") from missing

if TYPE_CHECKING:
    from semantic_kernel import Kernel
    from semantic_kernel.contents import ChatMessageContent
    from semantic_kernel.filters import AutoFunctionInvocationContext, FunctionInvocationContext
    from semantic_kernel.functions import KernelArguments

    from toolpost.adapters.table_tools import TableTool
    from toolpost.toolbox.box import Toolbox

_META = "toolpost"
_LONGEST_NAME = 64
_NO_REFERENCES: Provider = "bedrock"
"""Functions have a schema for each parameter and none for all of them, so that definitions have no place."""
_CALL_ID: ContextVar[str | None] = ContextVar("call_id", default=None)


async def plugin(
    source: Toolbox | Iterable[TableTool],
    *,
    user: str | Callable[[KernelArguments], str] | None = None,
    only: Iterable[str] | None = None,
    thread: Callable[[KernelArguments], str] | None = None,
    name: str = "tools",
) -> KernelPlugin:
    """Return the tools of a Toolbox, or of a table, for `kernel.add_plugin`.

    Calls are for `user`, which may be a function of the kernel arguments. `only` selects tools by name, collection or
    pattern. A call is identified by the call id of the model; `thread` returns the id of a conversation from the kernel
    arguments, for models whose call ids are unique in a conversation only.
    """
    listed = await FrameworkTools(source, user=user, only=only, provider=_NO_REFERENCES).read()
    return KernelPlugin(name=name, functions=[PluginFunction.of(tool, name, thread) for tool in listed])


async def wait(
    context: AutoFunctionInvocationContext,
    next: Callable[[AutoFunctionInvocationContext], Awaitable[None]],  # noqa: A002 - passed by this name
) -> None:
    """End the automatic invocation of functions if a call waits, as a filter of `auto_function_invocation`."""
    _CALL_ID.set(None if context.function_call_content is None else context.function_call_content.id)
    await next(context)
    if context.function_result is not None and "pending_id" in context.function_result.metadata.get(_META, {}):
        context.terminate = True


def waiting(messages: Sequence[ChatMessageContent]) -> list[dict[str, Any]]:
    """Return the pending actions that a conversation waits for, as data."""
    return [item.metadata[_META] for item in _waiting_results(messages)]


async def settle(
    kernel: Kernel, messages: Sequence[ChatMessageContent], arguments: KernelArguments | None = None
) -> list[dict[str, Any]]:
    """Write the results of calls that no longer wait into a conversation; return the actions that still wait.

    If there are none, ask the model again with the conversation.
    """
    calls = {item.id: item for item in _items(messages) if isinstance(item, FunctionCallContent)}
    for item in _waiting_results(messages):
        function = kernel.get_function(item.plugin_name, item.function_name)
        outcome = await function.outcome_of(calls[item.id].arguments, item.id, arguments)
        item.inner_content = None
        item.metadata[_META] = function.data_of(outcome, item.id)
        failed = isinstance(outcome, Failed)
        item.result = function.failure(outcome) if failed else model_text(outcome)
    return waiting(messages)


class PluginFunction(KernelFunction):  # type: ignore[misc, unused-ignore]
    """A function of the kernel that calls a Toolbox, which validates the arguments.

    A failed call raises ToolError, which the kernel shows to the model as an error. The result of a call has the
    outcome as data in the metadata, or its pending action.
    """

    _tool: FrameworkTool = PrivateAttr()
    _thread: Callable[[KernelArguments], str] | None = PrivateAttr()

    @classmethod
    def of(
        cls, tool: FrameworkTool, plugin_name: str, thread: Callable[[KernelArguments], str] | None
    ) -> PluginFunction:
        """Return the function of a plugin that makes the calls of a tool."""
        schema = tool.parameters
        required = schema.get("required", [])
        parameters = [
            KernelParameterMetadata(
                name=name,
                description=shown.get("description", ""),
                type="object",
                is_required=name in required,
                schema_data=shown,
            )
            for name, shown in schema.get("properties", {}).items()
        ]
        metadata = KernelFunctionMetadata(
            name=_function_name(tool.name, plugin_name),
            plugin_name=plugin_name,
            description=tool.description,
            parameters=parameters,
            is_prompt=False,
            is_asynchronous=True,
        )
        made = cls(metadata=metadata)
        made._tool, made._thread = tool, thread
        return made

    async def _invoke_internal(self, context: FunctionInvocationContext) -> None:
        names = [parameter.name for parameter in self.parameters]
        given = {name: context.arguments[name] for name in names if name in context.arguments}
        call_id = _CALL_ID.get()
        outcome = await self.outcome_of(given, call_id, context.arguments)
        if isinstance(outcome, Failed) or (isinstance(outcome, Paused) and call_id is None):
            raise ToolError(model_text(outcome), tool_name=self._tool.tool_name)
        result = FunctionResult(function=self.metadata, value=model_text(outcome))
        result.metadata[_META] = self.data_of(outcome, call_id)  # as an argument, all of it would be validated
        context.result = result

    async def _invoke_internal_stream(self, context: FunctionInvocationContext) -> None:
        raise NotImplementedError("calls of a Toolbox are not streamed: use invoke")

    async def outcome_of(self, arguments: Any, call_id: str | None, context: KernelArguments | None) -> Outcome:
        """Return the outcome of a call: it is made once, and repeating it returns the same."""
        thread = None if self._thread is None else self._thread(context)
        return await self._tool.call(arguments, call_id=call_id, thread=thread, context=context)

    def data_of(self, outcome: Outcome, call_id: str | None) -> dict[str, Any]:
        """Return an outcome as data, or the pending action of a call that waits."""
        if isinstance(outcome, Paused):
            return describe_pause(outcome, self._tool, call_id)
        return outcome_to_dict(outcome)

    def failure(self, outcome: Outcome) -> str:
        """Return the text of a failed call, as the kernel writes it."""
        return f"An error occurred while invoking the function {self.fully_qualified_name}: {model_text(outcome)}"


def _function_name(name: str, plugin_name: str) -> str:
    """Return the name of a function; providers limit its length together with that of the plugin."""
    room = _LONGEST_NAME - len(plugin_name) - 1
    if len(name) <= room:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: room - len(digest) - 1]}_{digest}"


def _items(messages: Sequence[ChatMessageContent]) -> list[Any]:
    return [item for message in messages for item in message.items]


def _waiting_results(messages: Sequence[ChatMessageContent]) -> list[FunctionResultContent]:
    return [
        item
        for item in _items(messages)
        if isinstance(item, FunctionResultContent) and "pending_id" in item.metadata.get(_META, {})
    ]
