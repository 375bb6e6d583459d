"""Whose tokens travel where: each person's own, to the service that they were got for, and to nobody else."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.auth.ledger import Ledger, hub
from tests.auth.small_issuer import ANN, BOB, SmallIssuer, began, connect, finish, oauth_error, source, toolbox
from tests.wire.site import reply
from toolpost import (
    AuthType,
    Completed,
    ExternalToolConfig,
    Failed,
    Paused,
    Principal,
    ToolContext,
    ToolNode,
    ToolRegistry,
    TransportType,
)
from toolpost.errors import PauseSignal, ToolAuthError


@pytest.fixture
async def issuer() -> AsyncIterator[SmallIssuer]:
    async with SmallIssuer() as issuer:
        yield issuer


async def test_calls_that_hear_of_a_dead_token_late_travel_with_what_another_got(
    issuer: SmallIssuer, tmp_path: Path
) -> None:
    async with toolbox(tmp_path / "data", source("notes", issuer, tmp_path, **issuer.endpoints())) as box:
        await connect(box, "notes")
        issuer.good.clear()
        first_is_done = asyncio.Event()

        async def before(shown: str) -> None:
            if shown.endswith("-1") and len(issuer.shown) > 1:
                await first_is_done.wait()

        issuer.before = before
        calls = [asyncio.create_task(box.call("notes.read", {}, user=ANN)) for _ in range(4)]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        first_is_done.set()
        outcomes = await asyncio.gather(*calls)

    assert [type(outcome) for outcome in outcomes] == [Completed] * 4
    assert issuer.renewals == 1


async def test_tokens_for_one_service_are_not_shown_to_another_of_the_same_issuer(
    issuer: SmallIssuer, tmp_path: Path
) -> None:
    async with SmallIssuer() as staff, SmallIssuer() as vendor:
        sources = [source(name, api, tmp_path, **issuer.endpoints()) for name, api in (("hr", staff), ("shop", vendor))]
        async with toolbox(tmp_path / "data", *sources) as box:
            await connect(box, "hr", ANN)
            await connect(box, "shop", BOB)
            asked = await box.call("shop.read", {}, user=ANN)
            await box.call("shop.read", {}, user=BOB)
            await box.accounts.disconnect("shop", Principal.parse(BOB))
            states = await box.accounts.states(Principal.parse(ANN))

    assert isinstance(asked, Paused)
    assert vendor.shown
    assert not any(shown.endswith("-1") for shown in vendor.shown)
    assert [state.status for state in states] == ["connected", "missing"]


@pytest.mark.req("OAUTH-24")
async def test_the_same_user_name_in_two_tenants_is_two_people() -> None:
    ledger, (server, created) = Ledger(ann="token-of-ann", acme_ann="token-of-acme"), hub()
    how = {"transport": TransportType.MCP, "connection": "memory:hub", "auth_type": AuthType.OAUTH2_USER}
    config = ExternalToolConfig.model_validate({"name": "github", **how})
    node = ToolNode(config=config, registry=ToolRegistry(), auth_manager=ledger, server=server)

    async with node:
        await node.call("create", {"title": "of nobody's tenant"}, ToolContext(user_id="ann"))
        await node.call("create", {"title": "of acme"}, ToolContext(user_id="ann", tenant_id="acme"))
        await node.call("create", {"title": "in full"}, ToolContext(user_id="acme:ann", tenant_id="acme"))
        with pytest.raises(PauseSignal):
            await node.call("create", {"title": "of evil"}, ToolContext(user_id="ann", tenant_id="evil"))
        with pytest.raises(ToolAuthError, match="'acme:ann' does not belong to the tenant 'evil'"):
            await node.call("create", {"title": "of evil"}, ToolContext(user_id="acme:ann", tenant_id="evil"))

    assert created == ["of nobody's tenant", "of acme", "in full"]
    assert ledger.asked == [("github", "evil:ann", "")]


async def test_the_secret_of_a_client_is_shown_to_the_issuer_only_that_it_was_used_with(
    issuer: SmallIssuer, tmp_path: Path
) -> None:
    async with SmallIssuer() as other, SmallIssuer() as api:
        api.issuers = [issuer.url]
        own = {"resource": api.url, "client_id": "app", "client_secret": "canary-of-the-client"}
        async with toolbox(tmp_path / "data", source("notes", api, tmp_path, **own)) as box:
            await connect(box, "notes", ANN)
            api.issuers = [other.url]
            with pytest.raises(ToolAuthError, match=r"was registered with .* change the configuration") as raised:
                await connect(box, "notes", BOB)
        assert raised.value.error_code == "oauth_issuer_changed"
        moved = source("notes", api, tmp_path, **own, issuer=other.url)
        async with toolbox(tmp_path / "data", moved) as box:
            await connect(box, "notes", BOB)
    assert len(issuer.forms) == len(other.forms) == 1


async def test_a_client_that_its_issuer_forgot_is_registered_again(issuer: SmallIssuer, tmp_path: Path) -> None:
    async with toolbox(tmp_path / "data", source("notes", issuer, tmp_path, resource=issuer.url)) as box:
        await connect(box, "notes")
        issuer.good.clear()
        issuer.says = oauth_error("invalid_client", 401)
        asked = await box.call("notes.read", {}, user=ANN)
        assert (await began(box, "notes"))["client_id"] == "client-2"
        with pytest.raises(ToolAuthError, match="invalid_client"):
            await connect(box, "notes")
        issuer.says = None
        told = await began(box, "notes")
        await finish(box, {"state": told["state"], "code": "canary-code"})
        done = await box.call("notes.read", {}, user=ANN)

    assert isinstance(asked, Paused)
    assert (told["client_id"], issuer.forms[-1]["client_id"]) == ("client-3", "client-3")
    assert isinstance(done, Completed)


async def test_a_server_that_wants_ever_more_scopes_is_not_followed_for_ever(
    issuer: SmallIssuer, tmp_path: Path
) -> None:
    issuer.refuse = lambda _: reply(
        403, www_authenticate=f'Bearer error="insufficient_scope", scope="s{len(issuer.shown)}"'
    )
    async with toolbox(tmp_path / "data", source("notes", issuer, tmp_path, **issuer.endpoints())) as box:
        await connect(box, "notes")
        outcome, asked = await box.call("notes.read", {}, user=ANN), 0
        while isinstance(outcome, Paused) and asked < 10:
            asked += 1
            invitation = await box.accounts.consents.invitation(
                outcome.question.payload["auth_url"].partition("ticket=")[2]
            )
            await box.accounts.consents.start(invitation, browser="b")
            outcome = await box.answer(outcome.pending_id, by=ANN)

    assert isinstance(outcome, Failed)
    assert (asked, outcome.error.error_code, outcome.error.status_code) == (4, "oauth_scope_refused", 403)


async def test_sources_that_share_accounts_must_be_of_one_issuer(issuer: SmallIssuer, tmp_path: Path) -> None:
    async with SmallIssuer() as other:
        sources = [
            source("notes", issuer, tmp_path, provider="office", **issuer.endpoints()),
            source("mail", issuer, tmp_path, provider="office", **other.endpoints()),
        ]
        async with toolbox(None, *sources) as box:
            problems = " ".join([*box.problems, *(str(state) for state in box.report)])

    assert "two sources with the accounts of 'office' differ in issuer, client or grant" in problems
