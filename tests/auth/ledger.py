"""Auth managers that an application wrote itself: two methods, and nothing of ours."""

from typing import Any

from fastmcp import FastMCP

URL = "https://id.example.org/authorize?state=canary-state"


class Ledger:
    """Knows tokens by user and provider, and remembers who was asked to sign in."""

    def __init__(self, **tokens: str) -> None:
        self.tokens = {(user.replace("_", ":"), "github"): token for user, token in tokens.items()}
        self.asked: list[tuple[str, str, str]] = []

    async def get_token(self, user_id: str, provider: str) -> str | None:
        return self.tokens.get((user_id, provider))

    async def get_auth_request(self, provider: str, user_id: str, trace_id: str) -> dict[str, Any]:
        self.asked.append((provider, user_id, trace_id))
        return {"display_name": "GitHub", "auth_url": URL, "state": "canary-state", "scopes": ["repo"]}


class PlainLedger(Ledger):
    """The same without async."""

    def get_token(self, user_id: str, provider: str) -> str | None:  # type: ignore[override]
        return self.tokens.get((user_id, provider))

    def get_auth_request(self, provider: str, user_id: str, trace_id: str) -> dict[str, Any]:  # type: ignore[override]
        self.asked.append((provider, user_id, trace_id))
        return {"auth_url": URL}


def hub() -> tuple[FastMCP[Any], list[str]]:
    """A server in this process, and what was created on it."""
    made: FastMCP[Any] = FastMCP("hub")
    created: list[str] = []

    @made.tool
    def create(title: str) -> str:
        """Create an issue."""
        created.append(title)
        return f"created {title}"

    return made, created
