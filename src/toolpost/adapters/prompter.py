"""Agent Prompter: one prompt to a chat model that may call the tools of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from toolpost.adapters.row_servers import AllowedServer, FindCredential
from toolpost.adapters.stored_tools import AnyToolValue
from toolpost.adapters.table_tools import RunWorkflow, ToolValues
from toolpost.agents.models.names import open_model
from toolpost.agents.models.replies import request_reply
from toolpost.configuration.settings import Settings
from toolpost.contracts.spec import ToolDefinition
from toolpost.toolbox.box import Toolbox

if TYPE_CHECKING:
    from toolpost.adapters.credentials import NamedCredential
    from toolpost.contracts.chat import ChatModel

ROUNDS = 20
PolicyName = Literal["exploratory", "standard", "regulated", "audit"]


async def prompt_agent(
    prompt: str,
    values: Iterable[AnyToolValue],
    *,
    model: str | ChatModel,
    instructions: str = "",
    policy: PolicyName = "standard",
    servers: Iterable[AllowedServer] = (),
    trust_rows: bool = False,
    credentials: Iterable[NamedCredential] | FindCredential = (),
    run_workflow: RunWorkflow | None = None,
    on_problem: Callable[[str], object] | None = None,
    max_rounds: int = ROUNDS,
) -> list[dict[str, Any]]:
    """Let a model answer a prompt with tools, and return the conversation.

    `servers` and `trust_rows` determine the usable values, as for `extract_tools`. The model sees only these;
    `on_problem` receives a sentence about each other value, instead of a warning.

    Results of calls and errors are messages of the conversation. After `max_rounds`, the model must answer without
    tools.
    """
    chat_model = open_model(model)
    messages: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    messages.append({"role": "user", "content": prompt})
    async with Toolbox(settings=Settings(data_dir=None, policy=policy)) as box:
        executor = ToolValues(
            box,
            servers=servers,
            trust_rows=trust_rows,
            credentials=credentials,
            run_workflow=run_workflow,
            on_problem=on_problem,
        )
        tools = [tool for tool in await executor.add(values) if not tool.unusable]
        names = {tool.model_name: tool.tool_name for tool in tools}
        shown = [_definition(tool.model_name, tool.value).to_openai() for tool in tools]
        for number in range(max_rounds + 1):
            offered = shown if number < max_rounds else []
            message = dict((await request_reply(chat_model, messages, tools=offered)).message)
            messages.append(message)
            answers = await box.answer_tool_calls(_rename_calls(message, names))
            if not answers.messages:
                break
            messages.extend(answers.messages)
    return messages


def _definition(name: str, value: AnyToolValue) -> ToolDefinition:
    return ToolDefinition(name, value.description, {"properties": {}, **value.parameter_schema, "type": "object"})


def _rename_calls(message: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a message of a model with the tool names of the catalog."""
    calls: list[Any] = message.get("tool_calls") or []
    renamed = [
        {**call, "function": {**call["function"], "name": names.get(called, called)}}
        for call in calls
        for called in [call["function"]["name"]]
    ]
    return {**message, "tool_calls": renamed} if calls else dict(message)
