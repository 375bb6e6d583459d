"""An auth manager of your own: two methods, and a place where the callback stores the token.

Prints:
paused: oauth, github, https://login.example.com/?state=s1
home#3: Paint the fence
tenants apart: True
"""

import asyncio
from typing import Any

from toolpost import ToolContext
from toolpost.compat.penguiflow.registry import ModelRegistry
from toolpost.compat.penguiflow.tools import AuthType, ExternalToolConfig, ToolNode, TransportType
from toolpost.errors import PauseSignal


class MyAuthManager:
    """Tokens of users, by user and provider."""

    def __init__(self) -> None:
        self.tokens: dict[tuple[str, str], str] = {}

    async def get_token(self, user_id: str, provider: str) -> str | None:
        """Return a token, or None."""
        return self.tokens.get((user_id, provider))

    def get_auth_request(self, provider: str, user_id: str, trace_id: str) -> dict[str, Any]:
        """Return what a person who must sign in is shown."""
        return {"display_name": provider.title(), "auth_url": "https://login.example.com/?state=s1", "state": "s1"}


async def main() -> None:
    """Call before and after the sign-in."""
    manager = MyAuthManager()
    config = ExternalToolConfig(
        name="github",
        transport=TransportType.MCP,
        connection="memory:examples.servers:github",
        auth_type=AuthType.OAUTH2_USER,
    )
    issue = {"repo": "home", "title": "Paint the fence"}
    async with ToolNode(config, ModelRegistry(), manager) as github:
        ann = ToolContext(tool_context={"user_id": "acme:ann", "trace_id": "t1"})
        try:
            await github.call("create_issue", issue, ann)
        except PauseSignal as pause:
            payload = pause.question.payload
            print(f"paused: {payload['pause_type']}, {payload['provider']}, {payload['auth_url']}")
        manager.tokens["acme:ann", "github"] = "token-of-ann"  # what the handler of the callback does
        print((await github.call("create_issue", issue, ann))["result"])
        try:
            await github.call("create_issue", issue, ToolContext(tool_context={"user_id": "other:ann"}))
        except PauseSignal:
            print("tenants apart: True")


if __name__ == "__main__":
    asyncio.run(main())
