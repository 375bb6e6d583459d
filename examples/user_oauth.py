"""A run that pauses until its user has signed in, and then continues automatically.

Prints:
Auth required: GitHub, scopes ['repo', 'user']
signed in: user_123, trace_abc
answer_complete: The issue is open.
"""

import asyncio

from examples.servers import web_api
from toolpost.compat.penguiflow.planner import PlannerPause, ReactPlanner
from toolpost.compat.penguiflow.registry import ModelRegistry
from toolpost.compat.penguiflow.tools import (
    AuthType,
    ExternalToolConfig,
    OAuthManager,
    OAuthProviderConfig,
    ToolNode,
    TransportType,
)
from toolpost.testing import ScriptedModel, tool_calls

USER = {"user_id": "user_123", "trace_id": "trace_abc"}


async def main() -> None:
    """Run, pause for the sign-in, take the callback and resume."""
    registry = ModelRegistry()
    with web_api() as site:
        oauth_manager = OAuthManager(
            providers={
                "github": OAuthProviderConfig(
                    name="github",
                    display_name="GitHub",
                    auth_url=f"{site}/authorize",  # or "https://github.com/login/oauth/authorize"
                    token_url=f"{site}/token",
                    client_id="client",
                    client_secret="secret",  # or "env:GITHUB_CLIENT_SECRET"
                    redirect_uri="https://myapp.com/oauth/callback",
                    scopes=["repo", "user"],
                ),
            },
        )
        github = ToolNode(
            config=ExternalToolConfig(
                name="github",
                transport=TransportType.MCP,
                connection="memory:examples.servers:github",
                auth_type=AuthType.OAUTH2_USER,
                trust=True,
            ),
            registry=registry,
            auth_manager=oauth_manager,
        )
        await github.connect()
        wanted = tool_calls(("github__create_issue", {"repo": "home", "title": "Paint the fence"}))
        model = ScriptedModel(wanted, "The issue is open.")
        async with ReactPlanner(catalog=github.get_tools(), llm=model, settings={"data_dir": None}) as planner:
            result = await planner.run("Create an issue in my private repo", tool_context=USER)
            if isinstance(result, PlannerPause):
                # A frontend shows a button that opens result.payload["auth_url"]; the browser comes back with a code.
                print(f"Auth required: {result.payload['display_name']}, scopes {result.payload['scopes']}")
                user_id, trace_id = await oauth_manager.handle_callback("code", result.payload["state"])
                print(f"signed in: {user_id}, {trace_id}")
                result = await planner.resume(result.resume_token, tool_context=USER)
            print(f"{result.reason}: {result.payload.get('answer')}")
        await github.close()


if __name__ == "__main__":
    asyncio.run(main())
