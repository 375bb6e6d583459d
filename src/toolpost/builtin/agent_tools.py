"""Tools that act inside an agent: reply to a user, start and resume tasks, notify or ask the main agent.

The context contains the agent that runs them. Outside of an agent they only report what they would do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Protocol

from msgspec.structs import replace
from pydantic import Field

from toolpost.builtin.argument_aliases import either, with_camel_case
from toolpost.catalog.function import FunctionTool, tool
from toolpost.contracts.errors import ToolExecutionError
from toolpost.contracts.spec import AGENT_TARGET, ToolCategory, ToolTarget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.context import ToolContext

HOST = "agent"
"""Key of `tool_context` with the agent that runs the tools of this module."""

_LONGEST = 100_000
# The effects of these tools end with their process, so a crash leaves no unknown outcome to ask about.
_DECLARED: Mapping[str, Any] = {
    "side_effects": "stateful",
    "replay": "idempotent",
    "category": ToolCategory.SYSTEM,
    "tags": ("agent",),
    "timeout_s": 30,
}
Text = Annotated[str, Field(min_length=1, max_length=_LONGEST)]


class MainHost(Protocol):
    """Services of a main agent for its tools; each raises a ToolError if it fails."""

    async def send_reply(self, text: str, channel_id: str, reply_to: str | None) -> None:
        """Deliver a text to a channel."""
        ...

    async def spawn_task(self, description: str, input_text: str, *, cause: str) -> str:
        """Start a task in the background for an event, and return its ID."""
        ...

    async def resume_task(self, task_id: str, input_text: str) -> None:
        """Continue a task with more information."""
        ...


class TaskHost(Protocol):
    """Services of an agent for the tools of its tasks."""

    def notify(self, task_id: str, text: str) -> None:
        """Send the main agent a notification of a task."""
        ...


def agent_tools() -> list[FunctionTool]:
    """Return the tools of this module."""
    tools = (spawn_task, reply, resume_task, notify, need_more_info)
    named = (one.renamed(replace(one.spec, target=_target(one.spec.name))) for one in tools)
    return [with_camel_case(one) for one in named]


@tool(**_DECLARED)
async def spawn_task(
    description: Annotated[Text, Field(description="The task in a few words")],
    input: Annotated[Text, Field(description="Everything that the task needs; it cannot see this conversation")],
    ctx: ToolContext,
) -> dict[str, Any]:
    """Start a task in the background. You are notified when it ends."""
    host: MainHost | None = _host(ctx, "spawn_task")
    task_id = ctx.task_id if host is None else await host.spawn_task(description, input, cause=ctx.call_id)
    return {"action": "spawn_task", "description": description, "input": input, "task_id": task_id}


@tool(**_DECLARED)
async def reply(
    text: Annotated[Text, Field(description="The text")],
    channel_id: Annotated[
        str,
        Field(min_length=1, validation_alias=either("channel_id"), description="The channel to send it on"),
    ],
    ctx: ToolContext,
    *,
    reply_to: Annotated[
        str | None, Field(validation_alias=either("reply_to"), description="The message that this is a reply to")
    ] = None,
) -> dict[str, Any]:
    """Send a text to the user. Only text sent with this tool is delivered."""
    host: MainHost | None = _host(ctx, "reply")
    if host is not None:
        await host.send_reply(text, channel_id, reply_to)
    return {"action": "reply", "text": text, "channel_id": channel_id, "reply_to": reply_to}


@tool(**_DECLARED)
async def resume_task(
    task_id: Annotated[str, Field(min_length=1, validation_alias=either("task_id"), description="The task's id")],
    input: Annotated[Text, Field(description="The requested information, or the next instruction")],
    ctx: ToolContext,
) -> dict[str, Any]:
    """Resume a task that asked for more information or has ended."""
    host: MainHost | None = _host(ctx, "resume_task")
    if host is not None:
        await host.resume_task(task_id, input)
    return {"action": "resume_task", "task_id": task_id, "input": input}


@tool(**_DECLARED)
async def notify(text: Annotated[Text, Field(description="The notification")], ctx: ToolContext) -> dict[str, Any]:
    """Notify the main agent while the task continues, for example of its progress."""
    host: TaskHost | None = _host(ctx, "notify")
    if host is not None:
        host.notify(ctx.task_id, text)
    return {"action": "notify", "text": text}


@tool(**_DECLARED)
async def need_more_info(
    question: Annotated[Text, Field(description="The information that the task needs to continue")], ctx: ToolContext
) -> dict[str, Any]:
    """Ask the main agent for information that the task needs to continue; the result is the answer."""
    _host(ctx, "need_more_info")
    return {"action": "need_more_info", "question": question}


def _host(ctx: ToolContext, tool_name: str) -> Any:
    """Return the agent of a running call, or None outside of an agent."""
    host = ctx.tool_context.get(HOST)
    if host is None and ctx.call_id:
        message = f"{tool_name} belongs to a running agent, and there is none here; call it from a MainAgent"
        raise ToolExecutionError(message, tool_name=tool_name, code="no_agent")
    return host


def _target(name: str) -> ToolTarget:
    return ToolTarget(AGENT_TARGET, f"the agent's own tool {name}")
