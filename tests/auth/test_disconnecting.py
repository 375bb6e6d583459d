"""Accounts that are let go: what the issuer gave is given back, also where it was being renewed at that moment."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.auth.small_issuer import ANN, BACK, SmallIssuer, connect, source, toolbox
from toolpost import Completed, Paused, Principal, Toolbox
from toolpost.auth.accounts import Accounts
from toolpost.auth.consents import ConsentRequest, Consents, StartedSignIn
from toolpost.auth.oauth.client import ClientProfile
from toolpost.auth.services import service_of
from toolpost.contracts.events import EventCode, EventFilter
from toolpost.contracts.storage import TokenKey, TokenRow
from toolpost.stores.memory.parts import MemoryTokenRows
from toolpost.wire.network import NetworkPolicy

PERSON = Principal.parse(ANN)


@pytest.fixture
async def issuer() -> AsyncIterator[SmallIssuer]:
    async with SmallIssuer() as issuer:
        yield issuer


@pytest.fixture
async def box(issuer: SmallIssuer, tmp_path: Path) -> AsyncIterator[Toolbox]:
    notes = source("notes", issuer, tmp_path, **issuer.endpoints(revocation_url=f"{issuer.url}/revoke"))
    async with toolbox(tmp_path / "data", notes) as box:
        await connect(box, "notes")
        yield box


class Held:
    """A request for tokens that waits at the issuer."""

    def __init__(self, issuer: SmallIssuer, grant_type: str) -> None:
        self.asked, self.may_go_on = asyncio.Event(), asyncio.Event()
        self._grant_type = grant_type
        issuer.good.clear()
        issuer.before = self._before

    async def _before(self, what: str) -> None:
        if what == self._grant_type:
            self.asked.set()
            await self.may_go_on.wait()


async def test_the_end_of_an_account_is_reported_to_its_tenant_only(box: Toolbox) -> None:
    await box.accounts.disconnect("notes", PERSON)

    codes = (EventCode.ACCOUNT_CONNECTED, EventCode.ACCOUNT_DISCONNECTED)
    events = await box.store.events.read(only=EventFilter(codes=frozenset(codes)))
    assert [(event.code, event.tenant, event.payload["user"]) for event in events] == [
        (code, PERSON.tenant, ANN) for code in codes
    ]


@pytest.mark.parametrize("letting_go", ["disconnect", "forget"])
async def test_tokens_that_come_back_after_their_account_was_let_go_are_ended_too(
    box: Toolbox, issuer: SmallIssuer, letting_go: str
) -> None:
    renewal = Held(issuer, "refresh_token")
    call = asyncio.create_task(box.call("notes.read", {}, user=ANN))
    await renewal.asked.wait()
    if letting_go == "disconnect":
        assert await box.accounts.disconnect("notes", PERSON) is True
    else:
        await box.accounts.forget(PERSON)
    before = list(issuer.ended)
    renewal.may_go_on.set()

    assert isinstance(await call, Paused)
    assert before == ["canary-refresh-1", f"canary-access-{issuer.port}-1"]
    assert issuer.ended[2:] == ["canary-refresh-2", f"canary-access-{issuer.port}-2"]


async def test_tokens_of_an_account_that_was_connected_again_meanwhile_are_left_alone(
    box: Toolbox, issuer: SmallIssuer
) -> None:
    renewal = Held(issuer, "refresh_token")
    call = asyncio.create_task(box.call("notes.read", {}, user=ANN))
    await renewal.asked.wait()
    await connect(box, "notes")
    renewal.may_go_on.set()

    assert isinstance(await call, Completed)
    assert issuer.ended == []


async def test_a_person_who_is_forgotten_while_they_sign_in_leaves_no_tokens_behind(
    box: Toolbox, issuer: SmallIssuer
) -> None:
    sign_in = Held(issuer, "authorization_code")
    finishing = asyncio.create_task(connect(box, "notes"))
    await sign_in.asked.wait()
    forgetting = asyncio.create_task(box.accounts.forget(PERSON))
    await asyncio.wait([forgetting], timeout=0.5)  # nothing tells that it waits
    sign_in.may_go_on.set()
    await asyncio.gather(finishing, forgetting)

    assert [state.status for state in await box.accounts.states(PERSON)] == ["missing"]
    assert "canary-refresh-2" in issuer.ended


class BusyRows(MemoryTokenRows):
    """Rows in which another process renews tokens right after they were read, once."""

    renewed: TokenRow | None = None

    async def get(self, key: TokenKey) -> TokenRow | None:
        row = await super().get(key)
        if row is not None and self.renewed is None and key.user == PERSON.user:
            self.renewed = row
            await self.swap(key, row.version, {**row.body, "refresh_token": "canary-renewed"})
        return row


async def test_tokens_that_another_process_renewed_at_the_last_moment_are_the_ones_that_are_ended(
    issuer: SmallIssuer, tmp_path: Path
) -> None:
    config = source("notes", issuer, tmp_path, **issuer.endpoints(revocation_url=f"{issuer.url}/revoke"))
    accounts = Accounts(BusyRows(time.time))
    consents = Consents(accounts, redirect_uri=BACK)
    consents.register(
        service_of(
            config,
            network=NetworkPolicy(allow_hosts=frozenset({"127.0.0.1"})),
            profile=ClientProfile(),
            serves_metadata=False,
        )
    )
    begun = await consents.begin(consents.service("notes"), ConsentRequest(person=PERSON))
    assert isinstance(begun, StartedSignIn)
    await consents.finish({"state": begun.state, "code": "canary-code"}, provider="notes", person=PERSON)

    assert await accounts.disconnect(consents.service("notes"), PERSON) is True
    await accounts.close()
    assert issuer.ended[0] == "canary-renewed"
