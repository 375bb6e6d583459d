"""What an application can rely on when a tool acts for its users, point by point and without a network."""

from pathlib import Path
from typing import Any

import pytest

from tests.auth.ledger import hub
from tests.patient_settings import PatientSettings
from toolpost import (
    AuthType,
    ExternalToolConfig,
    Toolbox,
    ToolContext,
    ToolNode,
    ToolRegistry,
    TransportType,
)
from toolpost.auth.managed_credentials import ManagedCredentials
from toolpost.auth.oauth_manager import OAuthManager, OAuthProviderConfig
from toolpost.auth.token_stores import InMemoryTokenStore
from toolpost.errors import PauseSignal, ToolAuthError
from toolpost.stores.memory.store import MemoryStore
from toolpost.stores.pauses import PlannerPauses

CONFIG = ExternalToolConfig(
    name="demo", transport=TransportType.MCP, connection="memory:hub", auth_type=AuthType.OAUTH2_USER
)
PROVIDER = OAuthProviderConfig(
    name="demo",
    display_name="Demo OAuth",
    auth_url="https://example.invalid/oauth",
    token_url="https://example.invalid/token",
    client_id="demo",
    client_secret="demo-secret",
    redirect_uri="https://app.example/oauth/callback",
    scopes=["read"],
)


def node(auth_manager: Any) -> ToolNode:
    return ToolNode(config=CONFIG, registry=ToolRegistry(), auth_manager=auth_manager, server=hub()[0])


async def paused(auth_manager: Any, context: ToolContext) -> PauseSignal:
    async with node(auth_manager) as made:
        with pytest.raises(PauseSignal) as raised:
            await made.call("demo.create", {"title": "Bug"}, context)
    return raised.value


@pytest.mark.req("OAUTH-17", "MISC-23")
async def test_the_pause_says_why_and_shows_what_the_person_needs() -> None:
    oauth = OAuthManager(providers={"demo": PROVIDER}, token_store=InMemoryTokenStore())
    question = (await paused(oauth, ToolContext(tool_context={"user_id": "ann"}))).question
    payload = dict(question.payload)
    state, url = payload.pop("state"), payload.pop("auth_url")
    assert question.reason == "external_event"
    assert payload == {
        "pause_type": "oauth",
        "provider": "demo",
        "display_name": "Demo OAuth",
        "scopes": ["read"],
    }
    assert url.startswith("https://example.invalid/oauth?")
    assert f"state={state}" in url


@pytest.mark.req("OAUTH-16", "OAUTH-27")
async def test_the_user_is_required_and_setting_the_tool_context_is_the_fix() -> None:
    oauth = OAuthManager(providers={"demo": PROVIDER})
    async with node(oauth) as made:
        with pytest.raises(ToolAuthError, match="user_id required in tool_context for OAuth"):
            await made.call("demo.create", {"title": "Bug"}, ToolContext(tool_context={"trace_id": "t"}))
    await paused(oauth, ToolContext(tool_context={"user_id": "ann"}))


class OwnManager:
    """An application's own: the two methods, and a callback of whatever shape."""

    def __init__(self) -> None:
        self.tokens: dict[tuple[str, str], str] = {}

    async def get_token(self, user_id: str, provider: str) -> str | None:
        return self.tokens.get((user_id, provider))

    async def get_auth_request(self, provider: str, user_id: str, trace_id: str) -> dict[str, Any]:
        return {"auth_url": f"https://sso.example/{provider}", "note": f"{user_id} {trace_id}", "provider": "other"}

    def connected(self, user_id: str) -> None:
        self.tokens[user_id, "demo"] = "own-token"


@pytest.mark.req("OAUTH-22", "MISC-23")
async def test_a_manager_of_the_applications_own_plugs_in() -> None:
    own, context = OwnManager(), ToolContext(tool_context={"user_id": "acme:ann", "trace_id": "t1"})
    question = (await paused(own, context)).question
    assert question.payload == {
        "pause_type": "oauth",
        "provider": "demo",
        "auth_url": "https://sso.example/demo",
        "note": "acme:ann t1",
    }
    own.connected("acme:ann")
    async with node(own) as made:
        assert await made.call("demo.create", {"title": "Bug"}, context) == {"result": "created Bug"}


@pytest.mark.req("OAUTH-29")
async def test_a_token_under_another_key_is_no_token() -> None:
    tokens = InMemoryTokenStore()
    oauth = OAuthManager({"demo": PROVIDER}, tokens)
    for user, provider in [("tenant:ann", "demo"), ("ann", "github"), ("demo", "ann")]:
        await tokens.store(user, provider, "token", None)
    context = ToolContext(tool_context={"user_id": "ann"})
    await paused(oauth, context)
    await tokens.store("ann", "demo", "token", None)
    async with node(oauth) as made:
        assert await made.call("create", {"title": "Bug"}, context) == {"result": "created Bug"}


@pytest.mark.req("STATE-10", "OAUTH-28")
async def test_a_token_that_resumes_nothing_is_a_key_error() -> None:
    store = MemoryStore()
    memory_only, durable = PlannerPauses(), PlannerPauses(store.state)
    lost = await memory_only.keep({"call": "demo.create"})
    kept = await durable.keep({"call": "demo.create"})
    for token in ("unknown", "", lost):
        with pytest.raises(KeyError):
            await PlannerPauses(store.state).take(token)
    with pytest.raises(KeyError):
        await PlannerPauses().take(lost)
    assert await PlannerPauses(store.state).take(kept) == {"call": "demo.create"}
    with pytest.raises(KeyError, match="resumed before"):
        await PlannerPauses(store.state).take(kept)


@pytest.mark.req("STATE-10", "OAUTH-28")
async def test_answering_a_question_that_no_one_kept_is_a_key_error(tmp_path: Path) -> None:
    def box(folder: Path | None) -> Any:
        credentials = {"demo": ManagedCredentials(OwnManager(), "demo")}
        settings = PatientSettings(data_dir=folder, policy="exploratory", sources=[CONFIG])
        return Toolbox(settings=settings, credentials=credentials, servers={"demo": hub()[0]})

    for folder in (None, tmp_path):
        async with box(folder) as first:
            asked = await first.call("demo.create", {"title": "Bug"}, user="acme:ann")
        async with box(folder) as second:
            if folder is None:
                with pytest.raises(KeyError):
                    await second.answer(asked.pending_id, by="acme:ann")
            else:
                outcome = await second.answer(asked.pending_id, by="acme:ann")
                assert str(outcome.error) == "OAuth for demo was not completed"
