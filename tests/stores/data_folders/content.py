"""The content of a stored data folder: calls, one of them pending, an artifact, a key, a token and planner state."""

from pathlib import Path
from typing import Any

from toolpost import Completed, Paused, Settings, Toolbox, tool
from toolpost.configuration.settings import LimitSettings
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import Store, TokenKey
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


def box(folder: Path, database: str | None = None) -> Toolbox:
    """A Toolbox on a data folder; its pending actions do not expire while the folder is in use."""
    settings = Settings(data_dir=folder, database=database, limits=LimitSettings(pending_ttl=_CENTURY_S))
    return Toolbox(tools=[pay, delete, report], settings=settings)


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


async def check_content(store: Store) -> None:
    """Read everything that `write_content` wrote."""
    runs = await store.events.runs(tenant="acme")
    [waiting] = await store.pending.list(tenant="acme")
    [artifact] = await store.artifacts.list(tenant="acme")
    text = await store.artifacts.read(artifact.id, tenant="acme")
    token = await store.tokens.get(TOKEN)
    keys = await store.caller_keys.list()
    planner_states: Any = store.state
    state = await planner_states.load_planner_state("pause-token")
    problems = await store.events.verify()

    assert [(run.tool_name, run.status) for run in runs] == [
        ("delete", "paused"),
        ("report", "completed"),
        ("pay", "completed"),
    ]
    assert (waiting.tool_name, waiting.arguments, str(waiting.asked_by)) == ("delete", {"name": "note"}, "acme:ann")
    assert REPORT in text.decode().replace("\\n", "\n")
    assert token is not None
    assert (token.body, state) == (TOKEN_BODY, {"step": 1})
    assert [(key.name, str(key.principal)) for key in keys] == [("bot", "acme:bot")]
    assert problems == []


async def check_continuation(folder: Path, database: str | None = None) -> None:
    """Approve the call that waits, and repeat one by its idempotency key."""
    async with box(folder, database) as opened:
        [waiting] = await opened.store.pending.list(tenant="acme")
        approved = await opened.approve(waiting.id, by=ANN)
        repeated = await opened.call("pay", {"to": "bob"}, user=ANN, idempotency_key="one")
        problems = await opened.store.events.verify()

    assert isinstance(approved, Completed)
    assert isinstance(repeated, Completed)
    assert (approved.content, repeated.content, problems) == ("note deleted", "paid bob", [])
