"""Sign-ins that are nearly done: what a browser brought is not lost, and neither is what waits."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.auth.small_issuer import ANN, SmallIssuer, began, finish, oauth_error, source, toolbox
from tests.wire.site import reply
from toolpost import Completed, Paused, Principal, ToolError
from toolpost.auth.accounts import Accounts
from toolpost.auth.consents import ConnectedAccount, ConsentRequest, Consents
from toolpost.auth.device_sign_in import finish_device_sign_in, start_device_sign_in
from toolpost.auth.oauth.authorization import callback_parameters
from toolpost.auth.oauth.client import ClientProfile
from toolpost.auth.services import service_of
from toolpost.contracts.storage import TokenRow
from toolpost.errors import ToolAuthError
from toolpost.stores.memory.parts import MemoryTokenRows
from toolpost.wire.network import NetworkPolicy

PERSON = Principal.parse(ANN)


@pytest.fixture
async def issuer() -> AsyncIterator[SmallIssuer]:
    async with SmallIssuer() as issuer:
        yield issuer


@pytest.mark.parametrize(
    "failure",
    [oauth_error("temporarily_unavailable", 503), reply(502), reply(429), b"HTTP/1.1 200 OK\r\ncontent-le"],
    ids=["busy", "bad gateway", "too many", "cut"],
)
async def test_a_code_that_the_issuer_did_not_look_at_may_be_brought_again(
    issuer: SmallIssuer, tmp_path: Path, failure: bytes
) -> None:
    async with toolbox(tmp_path / "data", source("notes", issuer, tmp_path, **issuer.endpoints())) as box:
        brought = {"state": (await began(box, "notes"))["state"], "code": "canary-code"}

        async def cut(_: str) -> None:
            if failure.endswith(b"content-le"):
                raise ConnectionError

        issuer.says, issuer.before = failure, cut
        with pytest.raises(ToolError):
            await finish(box, brought)
        issuer.says = issuer.before = None
        assert await finish(box, brought) == ConnectedAccount(PERSON, "notes")
        with pytest.raises(ToolAuthError, match="Invalid or expired OAuth state"):
            await finish(box, brought)


async def test_a_code_that_the_issuer_refused_is_not_shown_again(issuer: SmallIssuer, tmp_path: Path) -> None:
    async with toolbox(tmp_path / "data", source("notes", issuer, tmp_path, **issuer.endpoints())) as box:
        brought = {"state": (await began(box, "notes"))["state"], "code": "canary-code"}
        issuer.says = oauth_error("invalid_grant")
        for said in ("invalid_grant", "Invalid or expired OAuth state"):
            with pytest.raises(ToolAuthError, match=said):
                await finish(box, brought)
    assert len(issuer.forms) == 1


async def test_a_browser_that_goes_away_while_its_code_is_exchanged_is_connected_all_the_same(
    issuer: SmallIssuer, tmp_path: Path
) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def before(kind: str) -> None:
        if kind == "authorization_code":
            asked.set()
            await go_on.wait()

    issuer.before = before
    async with toolbox(tmp_path / "data", source("notes", issuer, tmp_path, **issuer.endpoints())) as box:
        waiting = await box.call("notes.read", {}, user=ANN)
        assert isinstance(waiting, Paused)
        state = (await began(box, "notes"))["state"]
        visit = asyncio.create_task(finish(box, {"state": state, "code": "canary-code"}))
        await asked.wait()
        visit.cancel()
        await asyncio.gather(visit, return_exceptions=True)
        go_on.set()
        async with asyncio.timeout(20):
            while not isinstance(await box.call("notes.read", {}, user=ANN), Completed):
                await asyncio.sleep(0.01)
        await box.accounts.resume_waiting(box.pending)
        await box.router.background.finish(patience_s=20)
        assert (await box.pending.get(waiting.pending_id, by=ANN)).status == "answered"


class CountingRows(MemoryTokenRows):
    """Rows in memory, and how often all of a kind were looked at."""

    looks = 0

    async def list(self, *, tenant: str | None = None, user: str | None = None) -> list[TokenRow]:
        self.looks += 1
        return await super().list(tenant=tenant, user=user)


async def test_a_question_does_not_look_at_all_earlier_ones(issuer: SmallIssuer, tmp_path: Path) -> None:
    now = [1000.0]
    rows = CountingRows(lambda: now[0])
    consents = Consents(Accounts(rows, clock=lambda: now[0]), start_url="https://app.example.org/oauth/start")
    config = source("notes", issuer, tmp_path, **issuer.endpoints())
    service = service_of(config, network=NetworkPolicy(), profile=ClientProfile(), serves_metadata=False)
    for _ in range(50):
        await consents.invite(service, ConsentRequest(person=PERSON))
    assert (rows.looks, len(rows.rows)) == (2, 50)

    now[0] += 8 * 86_400
    await consents.invite(service, ConsentRequest(person=PERSON))
    assert len(rows.rows) == 1


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("state=S&code=a?b", {"state": "S", "code": "a?b"}),
        ("/oauth/callback?state=S&code=a?b", {"state": "S", "code": "a?b"}),
        ("https://app.example.org/?state=S&error_description=Why?", {"state": "S", "error_description": "Why?"}),
    ],
    ids=["query", "path", "URL"],
)
def test_a_question_mark_in_a_value_hides_nothing(query: str, found: dict[str, str]) -> None:
    assert callback_parameters(query) == found


@pytest.mark.parametrize("known", [True, False], ids=["configured", "not configured"])
async def test_a_terminal_signs_in_by_code_where_an_operator_wrote_the_endpoint(
    issuer: SmallIssuer, tmp_path: Path, *, known: bool
) -> None:
    more: dict[str, Any] = {"device_url": f"{issuer.url}/device"} if known else {}
    config = source("notes", issuer, tmp_path, **issuer.endpoints(**more))
    async with toolbox(tmp_path / "data", config) as box:
        service, accounts = box.accounts.consents.service("notes"), box.accounts.accounts
        if not known:
            with pytest.raises(ToolAuthError, match="does not support device codes"):
                await start_device_sign_in(service, accounts)
            return
        grant = await start_device_sign_in(service, accounts)
        assert await finish_device_sign_in(service, accounts, PERSON, grant) == ConnectedAccount(PERSON, "notes")
        assert isinstance(await box.call("notes.read", {}, user=ANN), Completed)
    assert issuer.forms[0]["device_code"] == "canary-device"
