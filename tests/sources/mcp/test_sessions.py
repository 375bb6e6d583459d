"""Whose token travels: sessions by credential, headers on every request."""

import base64
from typing import Any

import pytest

from tests.patient_settings import PatientSettings
from tests.sources.mcp.programs import mirror
from toolpost import ExternalToolConfig, MCPClient, MCPManager, Toolbox, ToolNode, ToolRegistry
from toolpost.errors import ToolAuthError
from toolpost.sources import Credential

pytestmark = pytest.mark.programs

ERAS = pytest.mark.parametrize("protocol", ["legacy", "auto"])


def source(url: str, protocol: str = "auto", **options: Any) -> ExternalToolConfig:
    return ExternalToolConfig(
        name="web", transport="mcp", connection=url, trust=True, options={"protocol": protocol}, **options
    )


def toolbox(one: ExternalToolConfig, **given: Any) -> Any:
    return Toolbox(settings=PatientSettings(data_dir=None, sources=[one]), **given)


class Wallet:
    """Lends each person the token of the moment."""

    def __init__(self, **tokens: str) -> None:
        self.tokens = tokens

    async def credential(self, call: Any) -> Credential:
        user = call.validated.request.principal.user
        return Credential(user, {"Authorization": f"Bearer {self.tokens[user]}"})


@ERAS
@pytest.mark.req("NODE-11")
@pytest.mark.parametrize(
    ("auth", "header", "sent"),
    [
        ({"auth_type": "bearer", "auth_config": {"token": "tok-1"}}, "authorization", "Bearer tok-1"),
        ({"auth_type": "api_key", "auth_config": {"api_key": "key-1"}}, "x-api-key", "key-1"),
        ({"auth_type": "api_key", "auth_config": {"api_key": "k", "header": "X-Mine"}}, "x-mine", "k"),
        ({"auth_type": "cookie", "auth_config": {"name": "sid", "value": "c-1"}}, "cookie", "sid=c-1"),
        (
            {"auth_type": "basic", "auth_config": {"username": "u", "password": "p"}},
            "authorization",
            f"Basic {base64.b64encode(b'u:p').decode()}",
        ),
        ({"headers": {"X-Team": "blue"}}, "x-team", "blue"),
    ],
)
async def test_the_configured_credential_travels_with_every_request(
    protocol: str, auth: dict[str, Any], header: str, sent: str
) -> None:
    with mirror() as url:
        async with toolbox(source(url, protocol, **auth)) as box:
            outcome = await box.call("web.headers", {})
    assert outcome.content[header] == sent


@pytest.mark.req("AUTHS-01")
async def test_without_auth_no_credential_travels() -> None:
    with mirror() as url:
        async with toolbox(source(url)) as box:
            outcome = await box.call("web.headers", {})
    assert not {"authorization", "cookie", "x-api-key"} & set(outcome.content)


@ERAS
async def test_no_call_rides_on_another_persons_token_and_each_has_a_session(protocol: str) -> None:
    wallet = Wallet(ann="tok-ann", bob="tok-bob")
    with mirror() as url:
        async with toolbox(source(url, protocol), credentials={"web": wallet}) as box:
            users = ["local:ann", "local:bob"] * 10
            outcomes = [await box.call("web.headers", {}, user=user) for user in users]
    assert [o.content["authorization"] for o in outcomes] == ["Bearer tok-ann", "Bearer tok-bob"] * 10
    if protocol == "legacy":
        assert len({o.content["mcp-session-id"] for o in outcomes}) == 2


@ERAS
async def test_a_renewed_token_travels_at_once_and_disturbs_no_session(protocol: str) -> None:
    wallet = Wallet(ann="old", bob="tok-bob")
    with mirror() as url:
        async with toolbox(source(url, protocol), credentials={"web": wallet}) as box:
            before = [await box.call("web.headers", {}, user=user) for user in ("local:ann", "local:bob")]
            wallet.tokens["ann"] = "new"
            after = [await box.call("web.headers", {}, user=user) for user in ("local:ann", "local:bob")]
    assert [o.content["authorization"] for o in after] == ["Bearer new", "Bearer tok-bob"]
    if protocol == "legacy":
        assert [o.content["mcp-session-id"] for o in after] == [o.content["mcp-session-id"] for o in before]


@ERAS
async def test_a_refused_token_is_reported_as_that_and_hurts_no_one_else(protocol: str) -> None:
    wallet = Wallet(ann="wrong", bob="right")
    with mirror("right") as url:
        open_to_all = source(url, protocol, auth_type="bearer", auth_config={"token": "right"})
        async with toolbox(open_to_all, credentials={"web": wallet}) as box:
            ann = await box.call("web.headers", {}, user="local:ann")
            bob = await box.call("web.headers", {}, user="local:bob")
    assert isinstance(ann.error, ToolAuthError)
    assert ann.error.status_code == 401
    assert bob.status == "completed"


async def test_a_refusal_shows_no_secret() -> None:
    with mirror("right") as url:
        refused = source(url, auth_type="bearer", auth_config={"token": "s3cret-token"})
        async with toolbox(refused) as box:
            [state] = box.report
    assert not state.ok
    assert "401" in str(state.error)
    assert "s3cret-token" not in repr(state) + repr(refused)


@pytest.mark.req("FUT-01")
async def test_resources_and_prompts_are_tools_like_any_other() -> None:
    with mirror() as url:
        async with toolbox(source(url)) as box:
            listed = await box.call("web.resources_list", {})
            read = await box.call("web.resources_read", {"uri": "note://one"})
            prompts = await box.call("web.prompts_list", {})
            filled = await box.call("web.prompts_get", {"name": "greet", "arguments": {"name": "Bo"}})
            missing = await box.call("web.resources_read", {"uri": "note://none"})
    assert [resource["uri"] for resource in listed.content["resources"]] == ["note://one"]
    assert read.text == "a note"
    assert [prompt["name"] for prompt in prompts.content["prompts"]] == ["greet"]
    assert filled.content["messages"][0]["content"]["text"] == "Say hello to Bo."
    assert missing.status == "failed"


async def test_helpers_for_resources_and_prompts_are_no_tools_of_the_server() -> None:
    with mirror() as url:
        manager, registry, client = MCPManager(), ToolRegistry(), MCPClient()
        await manager.connect_all([source(url)])
        loaded = manager.load_tools(registry)
        managed = [tool.spec.name for tool in manager.list_tools("web")]
        await manager.disconnect_all()
        async with ToolNode(config=source(url), registry=(shared := ToolRegistry())) as node, client:
            await client.connect(url)
            of_node, of_client = node.get_tools(), await client.list_tools()
            read = await node.call("resources_read", {"uri": "note://one"})
            known = shared.has("web.resources_read")
    assert loaded == len(managed) == len(of_node) == len(of_client)
    assert not [name for name in managed if "resources_" in name or "prompts_" in name]
    assert (known, read[0]["text"]) == (True, "a note")
