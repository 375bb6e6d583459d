"""claude-agent-sdk: the program in its wheel is the client, and a scripted model on loopback says what it calls."""

import asyncio
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ToolResultBlock, UserMessage

from tests.agents.models.provider import KEY, Provider
from tests.gateway.clients.told import say, told

SERVER = "toolpost"
PREFIX = f"mcp__{SERVER}__"
PATIENCE_MS = "120000"


def server() -> dict[str, Any]:
    given = told()
    if given.command:
        return {"type": "stdio", "command": given.command[0], "args": given.command[1:]}
    return {"type": "http", "url": given.address, "headers": given.headers}


def variables(home: str, provider: Provider) -> dict[str, str]:
    """Return variables that keep the program to its folder and to loopback: all other addresses are the provider's."""
    return {
        "HOME": home,
        "TMPDIR": home,
        "ANTHROPIC_BASE_URL": provider.site.url,
        "ANTHROPIC_API_KEY": KEY,
        "HTTP_PROXY": provider.site.url,
        "HTTPS_PROXY": provider.site.url,
        "NO_PROXY": "127.0.0.1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        "ENABLE_TOOL_SEARCH": "false",  # the model is told all tools
        "MCP_CONNECTION_NONBLOCKING": "false",  # and before it is asked
        "MCP_TIMEOUT": PATIENCE_MS,
        "MCP_TOOL_TIMEOUT": PATIENCE_MS,
    }


async def result_of(client: ClaudeSDKClient, provider: Provider, name: str, arguments: dict[str, Any]) -> Any:
    """Have the model call a tool; what comes back is what the model is told."""
    function = {"name": f"{PREFIX}{name}", "arguments": json.dumps(arguments)}
    call = {"id": f"call_{len(provider.bodies)}", "function": function}
    provider.lines += [{"content": "", "tool_calls": [call]}, "Done."]
    await client.query(f"Call {name}.")
    results = [
        block.content
        async for message in client.receive_response()
        if isinstance(message, UserMessage)
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]
    assert len(results) == 1, results
    return results[0]


async def main() -> None:
    for name in set(os.environ) - {"PATH"}:
        del os.environ[name]  # the program would inherit them: addresses and keys of a real model
    with TemporaryDirectory() as home:
        async with Provider(["Hello."]) as provider:
            options = ClaudeAgentOptions(
                tools=[],
                mcp_servers={SERVER: server()},
                strict_mcp_config=True,
                allowed_tools=[f"mcp__{SERVER}"],
                setting_sources=[],
                system_prompt="Call what you are asked to call.",
                cwd=Path(home),
                env=variables(home, provider),
            )
            async with ClaudeSDKClient(options) as client:
                await client.query("Hello.")
                async for _ in client.receive_response():
                    pass
                tools = [tool["name"] for tool in provider.bodies[-1]["tools"]]
                names = [name.removeprefix(PREFIX) for name in tools if name.startswith(PREFIX)]

                async def call(name: str, arguments: dict[str, Any]) -> Any:
                    return await result_of(client, provider, name, arguments)

                await say(names, call)
            asked = {received.path.partition("?")[0] for received in provider.site.requests}
            assert asked == {"/v1/messages"}, asked  # nothing else, and nothing meant for another address


asyncio.run(main())
