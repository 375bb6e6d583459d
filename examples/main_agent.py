"""A main agent that answers by `reply` only, and starts a task that uses the tools of an MCP server.

Prints:
home: I will look.
home: Two issues are open.
completed - Two issues.
"""

import asyncio
from typing import Any

from toolpost import Settings
from toolpost.agents import MainAgent, Reply
from toolpost.testing import ScriptedModel, tool_calls


def say(reply: Reply) -> None:
    """Show a reply to the user."""
    print(f"{reply.channel_id}: {reply.text}")


def report(messages: list[dict[str, Any]]) -> Any:
    """Reply once the task is done; other text of the model is not sent."""
    if "completed] Two issues" in messages[-1]["content"]:
        return tool_calls(("reply", {"text": "Two issues are open.", "channelId": "home"}))
    return "Nobody hears what I say here."


async def main() -> None:
    """Start the agent, write to it, and wait until it is idle."""
    look = {"description": "look at the issues", "input": "Which issues are open?"}
    model = ScriptedModel(
        tool_calls(("reply", {"text": "I will look.", "channelId": "home"}), ("spawn_task", look)), report, report, ""
    )
    worker = ScriptedModel(tool_calls(("github__list_issues", {"repo": "home"})), "Two issues.")
    server = {"name": "github", "transport": "mcp", "connection": "memory:examples.servers:github", "trust": True}
    settings = Settings.model_validate({"data_dir": None, "builtins": "none", "sources": [server]})
    async with MainAgent(settings, model, task_llm=worker, on_reply=say, reflect=False) as agent:
        await agent.send("home", "Is anything broken?")
        await agent.idle()
        print(agent.tasks[0].state, "-", agent.tasks[0].result)


if __name__ == "__main__":
    asyncio.run(main())
