"""The programs by which penguiflow introduces its tools, as printed but for the imports.

Each runs in a process of its own, with a provider of models on loopback and an `npx` that starts a server of this file.
"""

import asyncio
import os
import sys
import textwrap
from pathlib import Path

import pytest

from tests.agents.models.provider import KEY, Provider
from toolpost.testing import tool_calls

pytestmark = pytest.mark.programs

SERVER = '''
import os, sys
from fastmcp import FastMCP

assert sys.argv[1:] == ["-y", "@modelcontextprotocol/server-github"], sys.argv
server = FastMCP("github")


@server.tool
def list_issues(repo: str) -> list[str]:
    """List the open issues of a repository."""
    return [f"{repo}#1 seen with {os.environ.get('GITHUB_TOKEN')}"]


@server.tool
def create_issue(repo: str, title: str) -> str:
    """Open an issue."""
    return f"created {title!r} with {os.environ.get('GITHUB_PERSONAL_ACCESS_TOKEN')}"


server.run(show_banner=False)
'''

BASIC = """
from toolpost.compat.penguiflow.tools import ToolNode, ExternalToolConfig, TransportType
from toolpost.compat.penguiflow.planner import ReactPlanner
from toolpost.compat.penguiflow.registry import ModelRegistry

# Shared registry (required)
registry = ModelRegistry()

# Configure GitHub MCP server
github = ToolNode(
    config=ExternalToolConfig(
        name="github",
        transport=TransportType.MCP,
        connection="npx -y @modelcontextprotocol/server-github",
        env={"GITHUB_TOKEN": os.environ["GITHUB_TOKEN"]},
    ),
    registry=registry,
)

# Connect and discover tools
await github.connect()
print(f"Discovered {len(github.get_tools())} GitHub tools")

# Build planner with GitHub tools
planner = ReactPlanner(
    catalog=[*local_tools, *github.get_tools()],
    llm="gpt-4",
)

result = await planner.run("List open issues in my repo")
"""

USER_OAUTH = """
from toolpost.compat.penguiflow.tools import ToolNode, OAuthManager, OAuthProviderConfig
from toolpost.compat.penguiflow.planner import ReactPlanner, PlannerPause
from toolpost.compat.penguiflow.registry import ModelRegistry

registry = ModelRegistry()

# Configure OAuth
oauth_manager = OAuthManager(
    providers={
        "github": OAuthProviderConfig(
            name="github",
            display_name="GitHub",
            auth_url="https://github.com/login/oauth/authorize",
            token_url="https://github.com/login/oauth/access_token",
            client_id=os.environ["GITHUB_CLIENT_ID"],
            client_secret=os.environ["GITHUB_CLIENT_SECRET"],
            redirect_uri="https://myapp.com/oauth/callback",
            scopes=["repo", "user"],
        ),
    },
)

# ToolNode with OAuth
github = ToolNode(
    config=ExternalToolConfig(
        name="github",
        transport=TransportType.MCP,
        connection="npx -y @modelcontextprotocol/server-github",
        auth_type=AuthType.OAUTH2_USER,
    ),
    registry=registry,
    auth_manager=oauth_manager,
)

await github.connect()

planner = ReactPlanner(
    catalog=github.get_tools(),
    llm="gpt-4",
)

# Run - may pause for OAuth
result = await planner.run(
    "Create an issue in my private repo",
    tool_context={"user_id": "user_123", "trace_id": "trace_abc"},
)

if isinstance(result, PlannerPause):
    # Frontend shows auth button with result.payload["auth_url"]
    print(f"Auth required: {result.payload}")
    # After OAuth callback:
    # user_id, trace_id = await oauth_manager.handle_callback(code, state)
    # result = await planner.resume(result.resume_token, tool_context={...})
"""
RESUMED = """
assert isinstance(result, PlannerPause)
print(result.payload["auth_url"])
await oauth_manager.token_store.store("user_123", "github", "of-user-123", None)
result = await planner.resume(result.resume_token, tool_context={"user_id": "user_123"})
"""
SHOWN = 'print(result.reason, result.payload["answer"])'


async def run(folder: Path, program: str, provider: Provider) -> list[str]:
    """Run a program with `await` at its top in a process of its own; return the lines that it prints."""
    launcher = folder / "bin" / "npx"
    launcher.parent.mkdir()
    launcher.write_text(f"#!{sys.executable}\n{SERVER}")
    launcher.chmod(0o700)
    names = "from toolpost.compat.penguiflow.tools import AuthType, ExternalToolConfig, TransportType"
    body = textwrap.indent(f"{program}\n{SHOWN}", "    ")
    lines = ["import asyncio, os", names, "local_tools = []", "async def main():", body, "asyncio.run(main())"]
    (folder / "program.py").write_text("\n".join(lines))
    path = f"{launcher.parent}{os.pathsep}{os.environ['PATH']}"
    given = {"GITHUB_TOKEN": "of-the-operator", "GITHUB_CLIENT_ID": "client", "GITHUB_CLIENT_SECRET": "s3cret-of-it"}
    model = {"OPENAI_BASE_URL": provider.url, "OPENAI_API_KEY": KEY}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "program.py",
        cwd=folder,
        env={**os.environ, "PATH": path, **given, **model},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode().splitlines()


@pytest.mark.req("EXA-01")
async def test_the_tools_of_an_mcp_server_run_as_printed(tmp_path: Path) -> None:
    async with Provider([tool_calls(("github__list_issues", {"repo": "home"})), "One is open."]) as provider:
        lines = await run(tmp_path, BASIC, provider)
    assert lines == ["Discovered 2 GitHub tools", "answer_complete One is open."]
    assert "home#1 seen with" in provider.bodies[1]["messages"][-1]["content"]
    assert provider.bodies[0]["model"] == "gpt-4"


@pytest.mark.req("EXA-02")
async def test_a_sign_in_is_the_first_pause_of_the_program_as_printed(tmp_path: Path) -> None:
    wanted = tool_calls(("github__create_issue", {"repo": "home", "title": "Bug"}))
    async with Provider([wanted, "It is open."]) as provider:
        shown, auth_url, finished = await run(tmp_path, USER_OAUTH + RESUMED, provider)
    assert shown.startswith("Auth required: {")
    assert auth_url.startswith("https://github.com/login/oauth/authorize?")
    assert finished == "answer_complete It is open."
    assert "created 'Bug' with" in provider.bodies[1]["messages"][-1]["content"]
