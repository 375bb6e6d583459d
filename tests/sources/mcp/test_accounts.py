"""People's own accounts at an MCP server that takes the tokens of a real authorization server."""

import asyncio
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests import warm
from tests.auth.ledger import Ledger
from tests.auth.oauth.provider import RESOURCE, Browser, provider
from tests.patient_settings import PatientSettings
from tests.sources.mcp.programs import guarded, until
from toolpost import (
    Completed,
    ConfigError,
    ExternalToolConfig,
    Failed,
    Outcome,
    Paused,
    Toolbox,
    ToolContext,
    ToolNode,
    ToolRegistry,
)
from toolpost.auth.keys import FileCipher
from toolpost.configuration.settings import AccountSettings, NetworkSettings
from toolpost.contracts.principal import Principal
from toolpost.errors import ToolAuthError
from toolpost.stores.encryption import CacheFolder

pytestmark = pytest.mark.programs

USER = "local:ann"
REDIRECT = "http://127.0.0.1:7777/callback"
DECLARED = [{"name": name, "inputSchema": {"type": "object"}} for name in ("whoami", "publish")]
ROBOT = {
    "client_id": "robot",
    "client_secret": "robots-own",
    "grant_types": ["client_credentials"],
    "redirect_uris": [],
    "response_types": [],
}
AS_ROBOT = {"grant": "client_credentials", "client_id": "robot", "client_secret": "robots-own"}
ERAS = pytest.mark.parametrize("protocol", ["legacy", "auto"])


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with provider(ROBOT) as found:
        yield found


@pytest.fixture
def server(issuer: str) -> Iterator[str]:
    with guarded(issuer) as url:
        yield url


def toolbox(
    url: str,
    auth: dict[str, Any] | None = None,
    *,
    declared: bool = True,
    data_dir: Path | None = None,
    protocol: str = "auto",
) -> Toolbox:
    source = ExternalToolConfig(
        name="web",
        transport="mcp",
        connection=url,
        auth_type="oauth2_user",
        auth_config=auth or {},
        options={"protocol": protocol, "declared_tools": DECLARED if declared else []},
    )
    settings = PatientSettings(
        data_dir=data_dir,
        policy="exploratory",
        builtins="none",
        sources=[source],
        network=NetworkSettings(allow_hosts=["127.0.0.1"]),
        accounts=AccountSettings(redirect_uri=REDIRECT),
    )
    return Toolbox(settings=settings)


def asked(outcome: Outcome) -> Paused:
    assert isinstance(outcome, Paused), outcome
    assert outcome.question.kind == "consent"
    return outcome


def names(box: Toolbox) -> set[str]:
    return {spec.name for spec in box.registry.specs()}


def done(outcome: Outcome) -> Any:
    assert isinstance(outcome, Completed), outcome
    return outcome.content


async def consented(box: Toolbox, outcome: Outcome, *, login: str = "alice") -> dict[str, Any]:
    """What comes of a call whose caller signs in, as data."""
    paused = asked(outcome)
    pending = await box.pending.get(paused.pending_id, by=USER)
    url = str(paused.question.payload["auth_url"])
    await box.accounts.finish(await Browser(REDIRECT, login=login).visit(url), provider="web", person=pending.asked_by)
    async with asyncio.timeout(60):
        while (ended := (await box.pending.get(pending.id, by=USER)).outcome) is None:
            await asyncio.sleep(0.01)
    return dict(ended)


async def control(url: str, **wanted: Any) -> Any:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as web:
        return (await web.post(url.replace("/mcp", "/control"), json=wanted)).json()


async def test_the_first_call_pauses_and_the_same_call_completes_after_the_consent(server: str, issuer: str) -> None:
    async with toolbox(server) as box:
        paused = asked(await box.call("web.whoami", user=USER))
        ended = await consented(box, paused)
        assert (ended["status"], ended["call_id"]) == ("completed", paused.call_id)
        assert ended["content"]["sub"] == "alice"
        payload = paused.question.payload
        assert str(payload["auth_url"]).startswith(f"{issuer}/")
        assert payload["scopes"] == ["tools.read", "offline_access"]  # the one that the challenge named
        assert done(await box.call("web.whoami", user=USER))["sub"] == "alice"


async def test_no_one_has_signed_in_yet_and_the_first_sign_in_brings_the_tools(server: str) -> None:
    async with toolbox(server, declared=False) as box:
        assert [(state.ok, state.tools) for state in box.report] == [(False, 0)]
        await _connect(box, USER, "alice")
        await until(lambda: "web.whoami" in names(box))
        assert done(await box.call("web.whoami", user=USER))["sub"] == "alice"


@ERAS
async def test_two_people_at_once_share_neither_a_token_nor_a_session(server: str, protocol: str) -> None:
    async with toolbox(server, protocol=protocol) as box:
        people = {"local:ann": "alice", "local:bob": "bernd"}
        paused = await asyncio.gather(*(box.call("web.whoami", user=user) for user in people))
        logins = zip(paused, people.values(), strict=True)
        first = await asyncio.gather(*(consented(box, one, login=login) for one, login in logins))
        assert [ended["content"]["sub"] for ended in first] == ["alice", "bernd"]
        outcomes = await asyncio.gather(*(box.call("web.whoami", user=user) for user in [*people] * 10))
    seen = [done(outcome) for outcome in outcomes]
    assert [one["sub"] for one in seen] == ["alice", "bernd"] * 10
    assert len({(one["sub"], one["token"], one["session"]) for one in seen}) == 2
    assert len({one["session"] for one in seen}) == (2 if protocol == "legacy" else 1)  # the newer protocol has none


async def test_nobodys_tools_vanish_when_someone_signs_in_who_is_shown_fewer(server: str, tmp_path: Path) -> None:
    listings = CacheFolder(tmp_path / "listings", FileCipher(tmp_path / "key"))
    async with toolbox(server, declared=False, data_dir=tmp_path) as box:
        await _connect(box, "local:ann", "alice")
        await until(lambda: "web.publish" in names(box))
        await _connect(box, "local:bob", "bernd")
        await until(lambda: len(json.loads(listings.read("web.json") or "{}")["listings"]) == 2)
        assert "web.publish" in names(box)
    assert b"publish" not in (tmp_path / "listings" / "web.json").read_bytes()
    async with toolbox(server, declared=False, data_dir=tmp_path) as box:
        assert {"web.publish", "web.whoami"} <= names(box)


async def _connect(box: Toolbox, user: str, login: str) -> None:
    begun: Any = await box.accounts.connect("web", Principal.parse(user))
    brought = await Browser(REDIRECT, login=login).visit(begun.url)
    await box.accounts.finish(brought, provider="web", person=Principal.parse(user))


async def test_more_rights_are_asked_for_when_a_call_needs_them_and_the_earlier_ones_stay(server: str) -> None:
    async with toolbox(server) as box:
        await consented(box, await box.call("web.whoami", user=USER))
        paused = asked(await box.call("web.publish", user=USER))
        assert {"tools.read", "tools.call"} <= set(paused.question.payload["scopes"])
        assert (await consented(box, paused))["content"] == {"result": "published"}
        assert done(await box.call("web.whoami", user=USER))["sub"] == "alice"


async def test_a_revoked_grant_makes_the_next_call_ask_again_and_no_tool_vanishes(server: str, issuer: str) -> None:
    async with toolbox(server) as box:
        await consented(box, await box.call("web.whoami", user=USER))
        await until(lambda: "web.prompts_list" in names(box))
        before = names(box)
        await _revoke(box, issuer)
        await control(server, refuse="alice")
        paused = asked(await box.call("web.whoami", user=USER))
        assert names(box) == before
        assert (await consented(box, paused))["content"]["sub"] == "alice"


async def _revoke(box: Toolbox, issuer: str) -> None:
    """End the grant where it was given, as a person does on the issuer's own pages."""
    service = box.accounts.consents.service("web")
    account = await box.accounts.accounts.held(service, Principal.parse(USER))
    assert account is not None
    assert account.tokens is not None
    assert account.tokens.refresh_token is not None
    form = {"token": account.tokens.refresh_token.reveal(), "client_id": account.tokens.client_id}
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as web:
        assert (await web.post(f"{issuer}/token/revocation", data=form)).status_code == 200


async def test_an_expired_token_is_renewed_and_no_one_is_asked() -> None:
    with provider(token_ttl_s=2) as issuer, guarded(issuer) as url:
        async with toolbox(url) as box:
            first = (await consented(box, await box.call("web.whoami", user=USER)))["content"]
            async with asyncio.timeout(50):
                while (later := done(await box.call("web.whoami", user=USER)))["token"] == first["token"]:
                    await asyncio.sleep(0.05)
            assert later["sub"] == "alice"


async def test_a_token_that_is_refused_before_its_time_is_renewed_and_no_one_is_asked(server: str) -> None:
    async with toolbox(server) as box:
        first = (await consented(box, await box.call("web.whoami", user=USER)))["content"]
        await control(server, refuse="alice")
        later = done(await box.call("web.whoami", user=USER))
    assert later["sub"] == "alice"
    assert later["token"] != first["token"]


async def test_a_server_that_refuses_even_fresh_tokens_ends_the_call_and_is_not_asked_forever(server: str) -> None:
    async with toolbox(server) as box:
        paused = asked(await box.call("web.whoami", user=USER))
        await control(server, closed=True)
        ended = await consented(box, paused)
        assert (ended["status"], ended["error"]["type"]) == ("failed", "ToolAuthError")
        again = asked(await box.call("web.whoami", user=USER))  # renewing has not helped, so a person must look
        assert (await consented(box, again))["status"] == "failed"
    assert (await control(server))["strangers"] <= 12


async def test_a_server_that_moved_to_another_issuer_sends_its_people_there(server: str, issuer: str) -> None:
    with provider() as other:
        async with toolbox(server) as box:
            await consented(box, await box.call("web.whoami", user=USER))
            await control(server, issuer=other)
            paused = asked(await box.call("web.whoami", user=USER))
            assert str(paused.question.payload["auth_url"]).startswith(f"{other}/")
            assert (await consented(box, paused, login="carla"))["content"]["sub"] == "carla"
            assert done(await box.call("web.whoami", user=USER))["sub"] == "carla"
    assert other != issuer


async def test_tools_and_accounts_outlive_the_process(server: str, tmp_path: Path) -> None:
    async with toolbox(server, data_dir=tmp_path) as box:
        await consented(box, await box.call("web.whoami", user=USER))
        await until(lambda: "web.prompts_list" in names(box))
        before = names(box)
    async with toolbox(server, data_dir=tmp_path, declared=False) as box:
        assert names(box) == before
        assert [state.ok for state in box.report] == [True]
        assert done(await box.call("web.whoami", user=USER))["sub"] == "alice"
        asked(await box.call("web.whoami", user="local:somebody"))


async def test_a_source_that_is_pointed_elsewhere_takes_no_tokens_along(
    server: str, issuer: str, tmp_path: Path
) -> None:
    async with toolbox(server, data_dir=tmp_path) as box:
        await consented(box, await box.call("web.whoami", user=USER))
    with guarded(issuer) as elsewhere:
        async with toolbox(elsewhere, data_dir=tmp_path) as box:
            asked(await box.call("web.whoami", user=USER))
        assert await control(elsewhere) == {"seen": {}, "strangers": 0}


async def test_one_sign_in_of_a_program_serves_all_its_calls_at_once(server: str) -> None:
    async with toolbox(server, AS_ROBOT) as box:
        at_once = await asyncio.gather(*(box.call("web.whoami", user=USER) for _ in range(8)))
    assert len({done(outcome)["token"] for outcome in at_once}) == 1


async def test_a_program_signs_in_by_itself_as_often_as_its_tokens_end() -> None:
    with provider(ROBOT, token_ttl_s=2) as issuer, guarded(issuer) as url:
        async with toolbox(url, AS_ROBOT) as box:
            first = done(await box.call("web.whoami", user=USER))
            async with asyncio.timeout(50):
                while (later := done(await box.call("web.whoami", user=USER)))["token"] == first["token"]:
                    await asyncio.sleep(0.05)
            assert later["sub"] == "robot"


async def test_a_person_who_declines_sees_that_and_the_call_still_waits(server: str) -> None:
    async with toolbox(server) as box:
        paused = asked(await box.call("web.whoami", user=USER))
        answer = await Browser(REDIRECT, says_yes=False).visit(str(paused.question.payload["auth_url"]))
        with pytest.raises(ToolAuthError, match="declined"):
            await box.accounts.finish(answer, provider="web", person=Principal.parse(USER))
        denied = await box.deny(paused.pending_id, by=USER)
    assert isinstance(denied, Failed)


ENVIRON = """
import os
from fastmcp import FastMCP
server = FastMCP("environ")
@server.tool
def whoami() -> dict:
    return {"pid": os.getpid(), "token": len(os.environ.get("SERVICE_TOKEN", "")) > 20}
server.run(show_banner=False)
"""


@pytest.mark.req("NODE-11")
async def test_a_program_acts_for_each_person_in_a_process_that_has_their_token(issuer: str, tmp_path: Path) -> None:
    (tmp_path / "environ.py").write_text(ENVIRON)
    command = shlex.join(warm.command(tmp_path / "environ.py"))
    auth = {"issuer": issuer, "resource": RESOURCE, "scopes": "tools.read", "token_env": "SERVICE_TOKEN"}
    async with toolbox(command, auth, declared=False) as box:
        people = {"local:ann": "alice", "local:bob": "bernd"}
        paused = [await box.call("web.whoami", user=user) for user in people]
        ended = [await consented(box, one, login=login) for one, login in zip(paused, people.values(), strict=True)]
        again = done(await box.call("web.whoami", user="local:ann"))
    first, second = (one["content"] for one in ended)
    assert first["token"]
    assert second["token"]
    assert first["pid"] == again["pid"] != second["pid"]


@pytest.mark.req("NODE-11")
@pytest.mark.parametrize(
    ("auth_type", "auth_config", "said"),
    [
        ("oauth2_user", {"issuer": "https://id.example"}, "write the one that it reads into auth_config"),
        ("bearer", {"token": "t0ken"}, "token_env"),
        ("api_key", {"api_key": "t0ken"}, "pass the secret in a variable"),
    ],
)
async def test_a_credential_that_a_program_would_never_get_is_refused(
    auth_type: str, auth_config: dict[str, str], said: str
) -> None:
    config = ExternalToolConfig(
        name="srv", transport="mcp", connection="some-server", auth_type=auth_type, auth_config=auth_config
    )
    async with Toolbox(settings=PatientSettings(data_dir=None, builtins="none", sources=[config])) as box:
        (state,) = box.report
    with pytest.raises(ConfigError, match="a program"):
        await ToolNode(config=config, registry=ToolRegistry(), auth_manager=Ledger()).connect(
            ToolContext(user_id="ann")
        )
    assert said in str(state.error)
    assert "t0ken" not in str(state.error)


def test_the_program_of_a_preset_is_known_to_read_its_token_from_a_variable() -> None:
    written = ExternalToolConfig(
        name="gh",
        transport="mcp",
        connection="npx -y @modelcontextprotocol/server-github@2025.4.8",
        auth_type="oauth2_user",
    )
    node = ToolNode(config=written, registry=ToolRegistry(), auth_manager=Ledger())

    assert node.config.auth_config["token_env"] == "GITHUB_PERSONAL_ACCESS_TOKEN"
