"""A ToolNode whose users have accounts of their own: whose token travels, and how a call comes by one."""

import asyncio
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.auth.ledger import URL, Ledger, PlainLedger, hub
from tests.sources.mcp.programs import mirror
from tests.sources.openapi.test_source import little_shop
from toolpost import (
    Completed,
    ExternalToolConfig,
    Paused,
    Settings,
    Toolbox,
    ToolContext,
    ToolNode,
    ToolRegistry,
    tool,
)
from toolpost.contracts.questions import Answer
from toolpost.errors import PauseSignal, ToolAuthError, ToolNodeError
from toolpost.sources import Credential

ENVIRON = """
import os
from fastmcp import FastMCP
if "TOKEN" not in os.environ:
    raise SystemExit("no token")
server = FastMCP("environ")
@server.tool
def token() -> str:
    return os.environ["TOKEN"]
server.run(show_banner=False)
"""


def node(auth_manager: Any = None, registry: ToolRegistry | None = None, **options: Any) -> ToolNode:
    """A node named `github`, for a server in this process unless a connection is given."""
    server = None if "connection" in options else hub()[0]
    wanted = {"transport": "mcp", "connection": "memory:hub", "auth_type": "oauth2_user", **options}
    config = ExternalToolConfig(name="github", **wanted)
    return ToolNode(config=config, registry=registry or ToolRegistry(), auth_manager=auth_manager, server=server)


def of(user: str, **more: Any) -> ToolContext:
    return ToolContext(tool_context={"user_id": user, **more})


@pytest.fixture(scope="module")
def everybody() -> Iterator[str]:
    """A server that lets everybody in."""
    with mirror() as url:
        yield url


class PatientContext:
    """The context of another planner, whose pause returns when the person is done."""

    def __init__(self, user: str, meanwhile: Any) -> None:
        self.tool_context = {"user_id": user, "trace_id": "trace_1"}
        self.meanwhile = meanwhile
        self.paused: list[Any] = []

    async def pause(self, reason: str, payload: dict[str, Any]) -> None:
        self.paused.append((reason, payload))
        self.meanwhile()


@pytest.mark.req("OAUTH-15")
async def test_without_a_manager_a_call_says_what_is_missing() -> None:
    async with node() as made:
        with pytest.raises(ToolAuthError) as raised:
            await made.call("create", {"title": "Bug"}, of("ann"))
    assert str(raised.value) == "ToolNode 'github' requires user OAuth but no auth_manager was provided"


@pytest.mark.req("OAUTH-16", "OAUTH-27")
@pytest.mark.parametrize("context", [None, ToolContext(), ToolContext(tool_context={"trace_id": "t"})])
async def test_a_call_needs_a_user(context: ToolContext | None) -> None:
    async with node(Ledger()) as made:
        with pytest.raises(ToolAuthError, match=r"^user_id required in tool_context for OAuth$"):
            await made.call("create", {"title": "Bug"}, context)


@pytest.mark.req("OAUTH-16", "OAUTH-17", "MISC-23")
@pytest.mark.parametrize(
    ("context", "trace"),
    [(of("ann"), ""), (of("ann", trace_id="t1"), "t1"), (ToolContext(user_id="ann", trace_id="t2"), "t2")],
    ids=["no trace", "inner trace", "outer trace"],
)
async def test_a_call_without_a_token_pauses_with_what_its_user_needs(context: ToolContext, trace: str) -> None:
    ledger = Ledger()
    async with node(ledger) as made:
        with pytest.raises(PauseSignal) as raised:
            await made.call("create", {"title": "Bug"}, context)
    question = raised.value.question
    assert (question.reason, question.kind) == ("external_event", "consent")
    assert question.payload == {
        "pause_type": "oauth",
        "provider": "github",
        "display_name": "GitHub",
        "auth_url": URL,
        "state": "canary-state",
        "scopes": ["repo"],
    }
    assert ledger.asked == [("github", "ann", trace)]
    assert "canary" not in str(raised.value)
    assert made.counts is not None
    assert made.counts.snapshot()["pauses"] == {"github": 1}


@pytest.mark.req("OAUTH-18", "NODE-08", "TEST-02")
async def test_after_the_pause_the_token_is_read_again() -> None:
    ledger = PlainLedger()
    signs_in = PatientContext("ann", lambda: ledger.tokens.update({("ann", "github"): "token-of-ann"}))
    wrong_key = PatientContext("bob", lambda: ledger.tokens.update({("tenant:bob", "github"): "x"}))
    async with node(ledger) as made:
        assert await made.call("create", {"title": "Bug"}, signs_in) == {"result": "created Bug"}  # type: ignore[arg-type]
        with pytest.raises(ToolAuthError, match=r"^OAuth for github was not completed$"):
            await made.call("create", {"title": "Bug"}, wrong_key)  # type: ignore[arg-type]
    assert signs_in.paused == [("external_event", {"pause_type": "oauth", "provider": "github", "auth_url": URL})]
    assert made.counts is not None
    assert made.counts.snapshot()["token_misses"] == {"github": 3}


@pytest.mark.req("OAUTH-18")
async def test_a_call_that_runs_again_after_an_answer_in_vain_is_an_error() -> None:
    answered = ToolContext(user_id="ann", answers={"consent:github": Answer(decision="answer")})
    async with node(Ledger()) as made:
        with pytest.raises(ToolAuthError, match="OAuth for github was not completed"):
            await made.call("create", {"title": "Bug"}, answered)


@pytest.mark.programs
@pytest.mark.req("OAUTH-19", "OAUTH-24")
async def test_users_at_once_travel_each_with_their_own_token_over_mcp(everybody: str) -> None:
    ledger = Ledger(ann="token-of-ann", bob="token-of-bob")
    async with node(ledger, connection=everybody) as made:
        users = ["ann", "bob"] * 10
        got = await asyncio.gather(*(made.call("headers", {}, of(user)) for user in users))
    assert [each["authorization"] for each in got] == [f"Bearer token-of-{user}" for user in users]


@pytest.mark.programs
@pytest.mark.req("OAUTH-19")
async def test_users_at_once_travel_each_with_their_own_token_over_http() -> None:
    ledger = Ledger(ann="token-of-ann", bob="token-of-bob")
    with little_shop() as url:
        async with node(ledger, transport="http", connection=f"{url}/openapi.json") as made:
            users = ["ann", "bob"] * 10
            got = await asyncio.gather(*(made.call("headers", {}, of(user)) for user in users))
    assert [each["authorization"] for each in got] == [f"Bearer token-of-{user}" for user in users]


@pytest.mark.programs
@pytest.mark.req("NODE-11")
async def test_each_user_has_a_process_of_their_own_that_finds_the_token_in_its_environment(tmp_path: Path) -> None:
    (tmp_path / "environ.py").write_text(ENVIRON)
    ledger = Ledger(ann="token-of-ann", bob="token-of-bob")
    command = shlex.join(warm.command(tmp_path / "environ.py"))
    async with node(ledger, connection=command, auth_config={"token_env": "TOKEN"}) as made:
        with pytest.raises(ToolNodeError, match="ToolNode 'github' not connected"):
            made.get_tools()
        got = await asyncio.gather(*(made.call("token", {}, of(user)) for user in ("ann", "bob")))
    assert got == [{"result": "token-of-ann"}, {"result": "token-of-bob"}]


@pytest.mark.programs
@pytest.mark.req("OAUTH-29")
async def test_a_renewed_token_travels_at_once(everybody: str) -> None:
    ledger = Ledger(ann="old", bob="token-of-bob")
    async with node(ledger, connection=everybody) as made:
        await made.call("headers", {}, of("ann"))
        ledger.tokens["ann", "github"] = "new"
        got = [await made.call("headers", {}, of(user)) for user in ("ann", "bob")]
    assert [each["authorization"] for each in got] == ["Bearer new", "Bearer token-of-bob"]


@pytest.mark.programs
async def test_a_server_that_lists_nothing_for_strangers_is_listed_at_the_first_call_of_a_user() -> None:
    ledger, registry = Ledger(), ToolRegistry()
    with mirror("token-of-ann", "token-of-bob") as url:
        made = node(ledger, registry, connection=url)
        await made.connect()
        with pytest.raises(ToolNodeError, match="ToolNode 'github' not connected"):
            made.get_tools()
        with pytest.raises(PauseSignal):
            await made.call("headers", {}, of("ann"))
        ledger.tokens |= {("ann", "github"): "token-of-ann", ("bob", "github"): "token-of-bob"}
        got = [await made.call("headers", {}, of(user)) for user in ("ann", "bob")]
        assert registry.has("github.headers")
        await made.close()
    assert [each["authorization"] for each in got] == ["Bearer token-of-ann", "Bearer token-of-bob"]
    assert registry.list() == []


@pytest.mark.programs
async def test_a_user_who_has_signed_in_may_list_when_the_node_is_connected() -> None:
    with mirror("token-of-ann") as url:
        made = node(Ledger(ann="token-of-ann"), connection=url)
        await made.connect(of("ann"))
        names = [each.spec.name for each in made.get_tools()]
        await made.close()
    assert "github.headers" in names


@pytest.mark.programs
async def test_the_operators_token_lists_and_never_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTING", "canary-listing")
    config = {"discovery_auth": {"token": "${LISTING}"}}
    with mirror("canary-listing", "token-of-ann") as url:
        async with node(Ledger(ann="token-of-ann"), connection=url, auth_config=config) as made:
            (headers,) = [each for each in made.get_tools() if each.spec.name == "github.headers"]
            got = await headers.execute({}, of("ann"))
            with pytest.raises(PauseSignal):
                await headers.execute({}, of("bob"))
    assert got.result["authorization"] == "Bearer token-of-ann"


@pytest.mark.parametrize("given", [{}, {"token": ""}, 5, []])
async def test_a_token_for_listing_must_be_one(given: Any) -> None:
    with pytest.raises(ValueError, match=r"auth_config.discovery_auth of 'github' must be a table with a token"):
        await node(Ledger(), auth_config={"discovery_auth": given}).connect()


@pytest.mark.programs
async def test_a_token_for_listing_that_is_refused_is_reported_at_once() -> None:
    with mirror("right") as url:
        made = node(Ledger(), connection=url, auth_config={"discovery_auth": {"token": "canary-wrong"}})
        with pytest.raises(ToolAuthError) as raised:
            await made.connect()
    assert raised.value.status_code == 401
    assert "canary" not in str(raised.value) + repr(made)


@pytest.mark.programs
async def test_a_refused_token_is_asked_for_again_and_then_the_call_runs() -> None:
    ledger = Ledger(ann="revoked")
    signs_in = PatientContext("ann", lambda: ledger.tokens.update({("ann", "github"): "good"}))
    with mirror("good", "list") as url:
        async with node(ledger, connection=url, auth_config={"discovery_auth": {"token": "list"}}) as made:
            with pytest.raises(PauseSignal):
                await made.call("headers", {}, of("ann"))
            with pytest.raises(ToolAuthError, match="OAuth for github was not completed"):
                await made.call("headers", {}, PatientContext("ann", lambda: None))  # type: ignore[arg-type]
            got = await made.call("headers", {}, signs_in)  # type: ignore[arg-type]
    assert got["authorization"] == "Bearer good"


@pytest.mark.programs
async def test_tools_in_the_shared_registry_act_for_whoever_a_toolbox_calls_them_for(everybody: str) -> None:
    ledger = Ledger(acme_bob="token-of-bob")
    async with Toolbox(settings=Settings(data_dir=None, policy="exploratory")) as box:
        made = node(ledger, box.registry, connection=everybody)
        await made.connect()
        bob = await box.call("github.headers", {}, user="acme:bob")
        paused: Any = await box.call("github.headers", {}, user="acme:ann")
        ledger.tokens["acme:ann", "github"] = "token-of-ann"
        ann = await box.answer(paused.pending_id, by="acme:ann")
        await made.close()
    assert isinstance(bob, Completed)
    assert isinstance(paused, Paused)
    assert isinstance(ann, Completed)
    assert [each.content["authorization"] for each in (ann, bob)] == ["Bearer token-of-ann", "Bearer token-of-bob"]


async def test_a_closed_node_asks_no_one_to_sign_in() -> None:
    made = node(Ledger())
    await made.connect()
    await made.close()
    with pytest.raises(ToolNodeError, match="ToolNode 'github' not connected: it was closed"):
        await made.call("headers", {}, of("ann"))


async def test_a_consent_is_never_taken_for_the_answer_to_another_question() -> None:
    ledger = Ledger()
    async with node(ledger) as made:

        @tool(side_effects="write")
        async def careful(context: ToolContext) -> str:
            await made.call("create", {"title": "Bug"}, context)
            return str(await context.pause("approval_required", {"prompt": "And publish it?"}))

        async with Toolbox(tools=[careful], settings=Settings(data_dir=None, policy="exploratory")) as box:
            first: Any = await box.call("careful", {}, user="acme:ann")
            ledger.tokens["acme:ann", "github"] = "token-of-ann"
            second: Any = await box.answer(first.pending_id, "signed in", by="acme:ann")
            third: Any = await box.answer(second.pending_id, "yes", by="acme:ann")
    assert first.question.payload["pause_type"] == "oauth"
    assert second.question.prompt == "And publish it?"
    assert third.content == "yes"


@pytest.mark.req("OAUTH-30")
async def test_no_token_gets_into_the_context_or_into_what_a_failure_says() -> None:
    server, _ = hub()

    @server.tool
    def leak(word: str) -> None:
        raise ValueError(f"cannot use {word}")

    context = ToolContext(user_id="ann", llm_context={"goal": "x"})
    made = node(Ledger(ann="canary-token"))
    made.server = server
    async with made:
        with pytest.raises(ToolNodeError, match="cannot use") as raised:
            await made.call("leak", {"word": "canary-token"}, context)
    assert "canary" not in str(raised.value)
    assert "canary" not in repr([dict(context.llm_context), context.tool_context, made])


async def test_a_name_that_is_taken_stops_a_node_of_people_too() -> None:
    registry = ToolRegistry()
    async with node(Ledger(), registry):
        before = registry.list()
        with pytest.raises(ToolNodeError, match=r"Tool name collision for 'github\.create'"):
            await node(Ledger(), registry).connect()
        assert registry.list() == before
    assert registry.list() == []


async def test_a_manager_is_not_asked_where_the_configuration_has_the_credential() -> None:
    ledger = Ledger()
    async with node(ledger, auth_type="none") as made:
        assert await made.call("create", {"title": "Bug"}) == {"result": "created Bug"}
    assert ledger.asked == []


class Wallet:
    """A provider of credentials, as a Toolbox takes them."""

    async def credential(self, call: Any) -> Credential:
        user = call.validated.request.principal.user
        return Credential(user, {"Authorization": f"Bearer token-of-{user}"})


@pytest.mark.programs
async def test_a_provider_of_credentials_serves_in_place_of_a_manager(everybody: str) -> None:
    async with node(Wallet(), connection=everybody) as made:
        (headers,) = [each for each in made.get_tools() if each.spec.name == "github.headers"]
        got = [await made.call("headers", {}, of("ann")), (await headers.execute({}, of("bob"))).result]
    assert [each["authorization"] for each in got] == ["Bearer token-of-ann", "Bearer token-of-bob"]
