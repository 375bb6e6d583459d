"""The content of a stored data folder: calls, one of them pending, an artifact, a key, a token and planner state."""

from pathlib import Path
from typing import Any

from toolpost import Completed, Paused, Settings, Toolbox, tool
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import TokenKey
from toolpost.gateway.caller_keys import create_caller_key

ANN = "acme:ann"
TOKEN = TokenKey("acme", "ann", "https://issuer.example", "https://api.example", "client")
TOKEN_BODY = {"access_token": "stored-token"}
REPORT = "line of the report\n" * 4000
_CENTURY_S = 100 * 365 * 86_400.0


@tool(side_effects="write", destructive=False)
async def pay(to: str) -> str:
    """Pay someone."""
    return f"paid {to}"


@tool(side_effects="write", destructive=True)
async def delete(name: str) -> str:
    """Delete a note."""
    return f"{name} deleted"


@tool(side_effects="read")
async def report() -> str:
    """Return a large text."""
    return REPORT


def box(folder: Path) -> Toolbox:
    """A Toolbox on a data folder; its pending actions do not expire while the folder is in use."""
    return Toolbox(tools=[pay, delete, report], settings=Settings(data_dir=folder, limits={"pending_ttl": _CENTURY_S}))


async def write_content(folder: Path) -> None:
    """Write a data folder through the public API, and a token as connecting an account writes it."""
    async with box(folder) as opened:
        assert isinstance(await opened.call("pay", {"to": "bob"}, user=ANN, idempotency_key="one"), Completed)
        assert isinstance(await opened.call("report", {}, user=ANN), Completed)
        assert isinstance(await opened.call("delete", {"name": "note"}, user=ANN), Paused)
        await create_caller_key(opened, "bot", Principal("acme", "bot"), ["call"], by="acme:olga")
        await opened.store.tokens.put(TOKEN, TOKEN_BODY)
        state: Any = opened.store.state
        await state.save_planner_state("pause-token", {"step": 1})
