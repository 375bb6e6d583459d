"""Tokens are renewed once, whoever asks, and a renewal that got lost ends in consent."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.auth.grants import KEY, grant, store_of, vault_over
from toolpost.auth.keys import FileCipher
from toolpost.auth.oauth.records import pack_record
from toolpost.auth.oauth.refresh import GrantRevoked, RefreshedTokens, RefreshOutcome, RefreshUnknown
from toolpost.auth.token_refresher import ConsentNeeded, TokenRefresher
from toolpost.auth.vault import Account, Vault
from toolpost.contracts.errors import (
    ToolAuthError,
    ToolConnectionError,
    ToolError,
    ToolServerError,
    ToolTimeoutError,
)
from toolpost.stores.sqlite.store import open_sqlite_store

pytestmark = pytest.mark.req("FUT-14")


class Issuer:
    """Renews each refresh token once; counts, and waits for `gate` before it answers."""

    def __init__(self, *answers: RefreshOutcome | BaseException) -> None:
        self.asked: list[str] = []
        self.answers = list(answers)
        self.gate = asyncio.Event()
        self.gate.set()

    async def refresh(self, account: Account) -> RefreshOutcome:
        assert account.tokens is not None
        assert account.tokens.refresh_token is not None
        self.asked.append(account.tokens.refresh_token.reveal())
        await self.gate.wait()
        answer = self.answers.pop(0) if self.answers else RefreshedTokens(grant(len(self.asked) + 1, expires_at=9e9))
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture
def now() -> list[float]:
    return [1000.0]


@pytest.fixture(params=["sqlite", "memory"])
async def vault(request: pytest.FixtureRequest, tmp_path: Path, now: list[float]) -> AsyncGenerator[Vault]:
    async with store_of(request.param, tmp_path, lambda: now[0]) as store:
        yield vault_over(store, clock=lambda: now[0])


async def expired(vault: Vault) -> Account:
    return await vault.keep(KEY, grant(1, expires_at=500.0))


async def test_tokens_that_are_good_are_given_without_asking_anyone(vault: Vault) -> None:
    kept, issuer = await vault.keep(KEY, grant()), Issuer()

    assert await TokenRefresher(vault).current(KEY, issuer.refresh) == kept
    assert issuer.asked == []


async def test_an_account_that_was_never_connected_needs_consent(vault: Vault) -> None:
    assert await TokenRefresher(vault).current(KEY, Issuer().refresh) == ConsentNeeded(key=KEY, reason="missing")


async def test_expired_tokens_that_nothing_renews_need_consent(vault: Vault) -> None:
    await vault.keep(KEY, grant(renewable=False, expires_at=500.0))

    assert await TokenRefresher(vault).current(KEY, Issuer().refresh) == ConsentNeeded(key=KEY, reason="expired")


async def test_expired_tokens_are_renewed_and_kept(vault: Vault) -> None:
    await expired(vault)
    issuer = Issuer()
    renewer = TokenRefresher(vault)

    current = await renewer.current(KEY, issuer.refresh)

    assert isinstance(current, Account)
    assert current.tokens == grant(2, expires_at=9e9)
    assert await vault.find(KEY) == current == await renewer.current(KEY, issuer.refresh)
    assert issuer.asked == ["canary-refresh-1"]


async def test_a_version_that_was_rejected_is_renewed_once_for_all_who_met_the_rejection(vault: Vault) -> None:
    kept, issuer = await vault.keep(KEY, grant()), Issuer()
    renewer = TokenRefresher(vault)

    first = await renewer.current(KEY, issuer.refresh, rejected=kept.version)
    later = await renewer.current(KEY, issuer.refresh, rejected=kept.version)

    assert first == later
    assert len(issuer.asked) == 1


async def test_tokens_that_are_over_when_they_arrive_are_given_and_not_renewed_for_ever(vault: Vault) -> None:
    await expired(vault)
    issuer = Issuer(RefreshedTokens(grant(2, expires_at=0.0)))

    current = await TokenRefresher(vault).current(KEY, issuer.refresh)

    assert isinstance(current, Account)
    assert len(issuer.asked) == 1


async def test_many_callers_of_several_renewers_share_one_renewal(vault: Vault) -> None:
    await expired(vault)
    issuer = Issuer()
    renewers = [TokenRefresher(vault) for _ in range(4)]

    found = await asyncio.gather(*(renewer.current(KEY, issuer.refresh) for renewer in renewers for _ in range(10)))

    assert len(issuer.asked) == 1
    assert {each.version for each in found if isinstance(each, Account)} == {_version(found[0])}
    assert len(found) == 40


async def test_accounts_are_renewed_beside_each_other(vault: Vault) -> None:
    keys = [KEY, KEY._replace(user="bob")]
    for key in keys:
        await vault.keep(key, grant(expires_at=500.0))
    issuer = Issuer()
    issuer.gate.clear()
    renewer = TokenRefresher(vault)

    tasks = [asyncio.ensure_future(renewer.current(key, issuer.refresh)) for key in keys]
    await until(lambda: len(issuer.asked) == 2)
    issuer.gate.set()

    assert all(isinstance(each, Account) for each in await asyncio.gather(*tasks))


async def test_a_dead_refresh_token_needs_consent_and_is_not_tried_again(vault: Vault) -> None:
    await expired(vault)
    issuer = Issuer(GrantRevoked("invalid_grant"))
    renewer = TokenRefresher(vault)

    answers = [await renewer.current(KEY, issuer.refresh) for _ in range(3)]

    assert answers == [ConsentNeeded(key=KEY, reason="revoked")] * 3
    assert len(issuer.asked) == 1


LOST: dict[str, Callable[[], Any]] = {
    "unknown": lambda: RefreshUnknown("the answer was HTML"),
    "broken after sending": lambda: ToolConnectionError("reset", sent=True),
    "late": lambda: ToolTimeoutError("late"),
    "failed": lambda: ToolServerError("500", status_code=500),
    "a bug": lambda: KeyError("canary"),
}


@pytest.mark.parametrize("lost", LOST)
async def test_a_renewal_that_may_be_lost_needs_consent_and_is_not_tried_again(
    vault: Vault, caplog: pytest.LogCaptureFixture, lost: str
) -> None:
    await expired(vault)
    issuer = Issuer(LOST[lost]())
    renewer = TokenRefresher(vault)

    answers = [await renewer.current(KEY, issuer.refresh) for _ in range(3)]

    assert answers == [ConsentNeeded(key=KEY, reason="doubtful")] * 3
    assert len(issuer.asked) == 1
    assert "refreshing tokens of 'https://issuer.example' is unknown" in caplog.text
    assert "canary" not in caplog.text
    await vault.keep(KEY, grant(7))
    assert isinstance(await renewer.current(KEY, issuer.refresh), Account)


async def test_an_issuer_that_never_answers_is_given_up(vault: Vault) -> None:
    await expired(vault)
    issuer = Issuer()
    issuer.gate.clear()

    current = await TokenRefresher(vault, refresh_s=0.05).current(KEY, issuer.refresh)

    assert current == ConsentNeeded(key=KEY, reason="doubtful")


@pytest.mark.parametrize(
    "error", [ToolConnectionError("refused", sent=False), ToolAuthError("invalid_client")], ids=["unsent", "refused"]
)
async def test_a_failure_without_an_effect_is_reported_and_may_be_tried_again(vault: Vault, error: ToolError) -> None:
    kept, issuer = await expired(vault), Issuer(error)
    renewer = TokenRefresher(vault)

    with pytest.raises(type(error), match=error.message):
        await renewer.current(KEY, issuer.refresh)
    assert await vault.find(KEY) == kept
    assert isinstance(await renewer.current(KEY, issuer.refresh), Account)


async def test_a_renewal_continues_when_the_one_who_asked_is_gone(vault: Vault) -> None:
    kept, issuer = await expired(vault), Issuer()
    issuer.gate.clear()
    renewer = TokenRefresher(vault)
    asking = asyncio.ensure_future(renewer.current(KEY, issuer.refresh))
    await until(lambda: issuer.asked)

    asking.cancel()
    issuer.gate.set()
    await renewer.close()

    found = await vault.find(KEY)
    assert found is not None
    assert (found.status, found.version > kept.version) == ("live", True)


async def test_a_loop_that_ends_in_the_middle_of_a_renewal_leaves_a_doubt(tmp_path: Path) -> None:
    async def begin_and_leave() -> None:
        async with store_of("sqlite", tmp_path, lambda: 1000.0) as store:
            vault, issuer = vault_over(store, clock=lambda: 1000.0), Issuer()
            await expired(vault)
            issuer.gate.clear()
            asking = asyncio.ensure_future(TokenRefresher(vault).current(KEY, issuer.refresh))
            await until(lambda: issuer.asked)
            asking.cancel()

    await asyncio.to_thread(asyncio.run, begin_and_leave())

    async with store_of("sqlite", tmp_path, lambda: 1000.0) as store:
        current = await TokenRefresher(vault_over(store, clock=lambda: 1000.0)).current(KEY, Issuer().refresh)
    assert current == ConsentNeeded(key=KEY, reason="doubtful")


async def test_a_lease_that_its_holder_outstayed_needs_consent(vault: Vault, now: list[float]) -> None:
    kept = await expired(vault)
    await vault.rows.take(KEY, kept.version, holder="someone", lease_s=10)
    now[0] += 10
    issuer = Issuer()

    assert await TokenRefresher(vault).current(KEY, issuer.refresh) == ConsentNeeded(key=KEY, reason="doubtful")
    assert issuer.asked == []


async def test_those_who_wait_for_another_holder_adopt_what_it_wrote(vault: Vault) -> None:
    kept = await expired(vault)
    await vault.rows.take(KEY, kept.version, holder="someone", lease_s=10)
    waiting = asyncio.ensure_future(TokenRefresher(vault).current(KEY, Issuer().refresh))
    await asyncio.sleep(0)

    await vault.rows.settle(KEY, kept.version, holder="someone", body=pack_record(grant(2)))

    current = await waiting
    assert isinstance(current, Account)
    assert current.tokens == grant(2)


async def test_a_consent_given_during_a_renewal_wins(vault: Vault) -> None:
    await expired(vault)
    issuer = Issuer()
    issuer.gate.clear()
    asking = asyncio.ensure_future(TokenRefresher(vault).current(KEY, issuer.refresh))
    await until(lambda: issuer.asked)

    newer = await vault.keep(KEY, grant(9))
    issuer.gate.set()

    assert await asking == newer == await vault.find(KEY)


async def test_someone_forgotten_during_a_renewal_stays_forgotten(vault: Vault) -> None:
    await expired(vault)
    issuer = Issuer()
    issuer.gate.clear()
    asking = asyncio.ensure_future(TokenRefresher(vault).current(KEY, issuer.refresh))
    await until(lambda: issuer.asked)

    await vault.rows.remove(KEY)
    issuer.gate.set()

    assert await asking == ConsentNeeded(key=KEY, reason="missing")
    assert await vault.find(KEY) is None


@pytest.mark.waits
async def test_new_tokens_are_written_again_when_the_store_fails_for_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "toolpost.db"
    opened = open_sqlite_store(tmp_path, cipher=FileCipher(tmp_path / "key"), busy_s=0.02)
    async with opened as store:
        await expired(vault_over(store))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:

            async def refresh(_: Account) -> RefreshOutcome:
                other.execute("BEGIN EXCLUSIVE")
                asyncio.get_running_loop().call_later(0.3, other.execute, "ROLLBACK")
                return RefreshedTokens(grant(2, expires_at=9e9))

            current = await TokenRefresher(vault_over(store)).current(KEY, refresh)

    assert isinstance(current, Account)
    assert current.tokens == grant(2, expires_at=9e9)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


def _version(current: Account | ConsentNeeded) -> int:
    assert isinstance(current, Account)
    return current.version
