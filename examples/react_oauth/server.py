"""The server of the page: runs the planner, keeps what is secret, and takes the callback of the sign-in.

    python -m examples.react_oauth.server

The provider, `/provider/...`, stands for GitHub; a real one is configured in its place.
"""

import re
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import uvicorn
from fastapi import Body, Cookie, FastAPI
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse

from toolpost import OAuthManager, OAuthProviderConfig
from toolpost.compat.penguiflow import ModelRegistry
from toolpost.compat.penguiflow.planner import PlannerPause, ReactPlanner
from toolpost.compat.penguiflow.tools import AuthType, ExternalToolConfig, ToolNode, TransportType
from toolpost.testing import ScriptedModel, tool_calls

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
LIBRARIES = ROOT / "node_modules"
CARD = ROOT / "packages/approval-card/dist"  # built by `make card`
PAGES = {
    "/": HERE / "index.html",
    "/app.js": HERE / "app.js",
    "/page.css": HERE / "page.css",
    "/react.js": LIBRARIES / "react" / "umd" / "react.production.min.js",
    "/react-dom.js": LIBRARIES / "react-dom" / "umd" / "react-dom.production.min.js",
    "/approval-card.js": CARD / "approval-card.global.js",
    "/approval-card.css": CARD / "approval-card.css",
}
CONNECTED = "<script>opener.postMessage('connected', location.origin); close()</script>Connected."
Session = Annotated[str, Cookie()]


def open_issue(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Placeholder for a model that makes an issue of the request."""
    title = messages[-1]["content"].partition(":")[2].strip() or "Paint the fence"
    return tool_calls(("github__create_issue", {"repo": "home", "title": title}))


def tell_result(messages: list[dict[str, Any]]) -> str:
    """Placeholder for a model that reads the result of its call."""
    issue = re.search(r"home#\d+: [^<\n]+", messages[-1]["content"])
    return f"I opened {issue[0].strip()}." if issue else f"That did not work: {messages[-1]['content']}"


class Agent:
    """A planner with one external tool, and the pauses of its users."""

    def __init__(self, site: str) -> None:
        provider = OAuthProviderConfig(
            name="github",
            display_name="GitHub",
            auth_url=f"{site}/provider/authorize",
            token_url=f"{site}/provider/token",
            client_id="client",
            client_secret="secret",
            redirect_uri=f"{site}/oauth/callback",
            scopes=["repo", "user"],
        )
        self.accounts = OAuthManager({"github": provider})
        config = ExternalToolConfig(
            name="github",
            transport=TransportType.MCP,
            connection="memory:examples.servers:github",
            auth_type=AuthType.OAUTH2_USER,
            trust=True,
        )
        self.github = ToolNode(config, ModelRegistry(), self.accounts)
        self._paused: dict[str, tuple[ReactPlanner, str]] = {}  # resume tokens are secrets: no page sees them

    async def run(self, query: str, user: str) -> dict[str, Any]:
        """Answer a question, or say that the user has to sign in first."""
        model = ScriptedModel(open_issue, tell_result)  # or "gpt-4", and then one planner serves all
        planner = ReactPlanner(model, catalog=self.github.get_tools(), settings={"data_dir": None})
        return self._told(planner, await planner.run(query, tool_context={"user_id": user}), user)

    async def resume(self, user: str) -> dict[str, Any]:
        """Resume after the sign-in."""
        planner, token = self._paused.pop(user)
        return self._told(planner, await planner.resume(token, tool_context={"user_id": user}), user)

    def _told(self, planner: ReactPlanner, result: Any, user: str) -> dict[str, Any]:
        if not isinstance(result, PlannerPause):
            return {"status": "finished", "answer": result.payload["answer"]}
        self._paused[user] = (planner, result.resume_token)
        shown = result.payload
        return {"status": "paused", "authUrl": shown["auth_url"], "action": pending_action(shown)}


def pending_action(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a pause as the REST API describes a pending action, which is what the card of the page takes."""
    now = time.time()
    return {
        "id": secrets.token_hex(4),
        "status": "open",
        "kind": "consent",
        "tool_name": "github.create_issue",
        "prompt": f"{shown['display_name']} wants your consent for: {', '.join(shown['scopes'])}",
        "payload": {"display_name": shown["display_name"]},
        "arguments": {},
        "masked": [],
        "answers": [],
        "asked_by": "you",
        "caller": {"kind": "token", "name": "The agent"},
        "created_at": now,
        "expires_at": now + 600,
    }


def create_app(site: str) -> FastAPI:
    """Make the application that is served at an address."""
    agent = Agent(site)

    @asynccontextmanager
    async def connected(_: FastAPI) -> AsyncIterator[None]:
        async with agent.github:
            yield

    app = FastAPI(lifespan=connected)

    def page(path: str) -> None:
        @app.get(path)
        def serve(session: Session = "") -> FileResponse:
            reply = FileResponse(PAGES[path])
            if not session:
                reply.set_cookie("session", secrets.token_urlsafe(16), httponly=True, samesite="lax")
            return reply

    for path in PAGES:
        page(path)

    @app.post("/api/run")
    async def run(query: Annotated[str, Body(embed=True)], session: Session) -> dict[str, Any]:
        return await agent.run(query, session)

    @app.post("/api/resume")
    async def resume(session: Session) -> dict[str, Any]:
        return await agent.resume(session)

    @app.get("/oauth/callback")
    async def callback(code: str, state: str, session: Session) -> HTMLResponse:
        await agent.accounts.handle_callback(code, state, user_id=session)  # only the user who signed in here
        return HTMLResponse(CONNECTED)

    add_provider(app)
    return app


def add_provider(app: FastAPI) -> None:
    """Add the pages and the token endpoint of an OAuth provider that grants everything."""

    @app.get("/provider/authorize")
    def authorize(redirect_uri: str, state: str) -> HTMLResponse:
        allow = f"/provider/allow?{urlencode({'redirect_uri': redirect_uri, 'state': state})}"
        return HTMLResponse(f"<h1>GitHub</h1><p>May the agent act for you?</p><a href='{allow}'>Allow</a>")

    @app.get("/provider/allow")
    def allow(redirect_uri: str, state: str) -> RedirectResponse:
        return RedirectResponse(f"{redirect_uri}?{urlencode({'code': 'one-time', 'state': state})}")

    @app.post("/provider/token")
    def token() -> dict[str, str]:
        return {"access_token": "token-of-the-user", "token_type": "Bearer"}


if __name__ == "__main__":
    uvicorn.run(create_app("http://127.0.0.1:8000"), host="127.0.0.1", port=8000)
