"""What is watched for in texts: secrets for as long as they matter, and those of an operator always."""

import gc
import json
import tracemalloc

import pytest

from tests.auth.grants import KEY, grant, vault_over
from tests.auth.ledger import Ledger
from toolpost.auth.managed_credentials import ManagedCredentials
from toolpost.contracts.clock import Clock
from toolpost.contracts.expiring_secret import ExpiringSecret, expiring
from toolpost.policy.redaction import Redactor
from toolpost.policy.secret_matcher import SecretMatcher
from toolpost.policy.secret_shapes import MASK
from toolpost.stores.memory.store import MemoryStore

NOW = [0.0]
LASTING = "the-secret-of-the-operator"


@pytest.fixture
def matcher() -> SecretMatcher:
    NOW[0] = 0.0
    return SecretMatcher(clock=lambda: NOW[0])


def shown(matcher: SecretMatcher, secret: str) -> bool:
    return secret in matcher.mask(f"before {secret} behind", MASK)


def learn(matcher: SecretMatcher, *secrets: str, until: float | None = None) -> None:
    for secret in expiring(secrets, until=until, now=NOW[0]):
        matcher.learn(secret)


def test_a_passing_secret_is_a_text_like_any() -> None:
    secret = ExpiringSecret("canary", 5.0)

    assert secret == "canary"
    assert {secret} == {"canary"}
    assert json.dumps([secret]) == '["canary"]'


def test_a_secret_is_known_until_an_hour_after_its_end(matcher: SecretMatcher) -> None:
    learn(matcher, "token-number-one", until=600.0)
    NOW[0] = 4199.0
    learn(matcher, "token-number-two")
    assert not shown(matcher, "token-number-one")
    NOW[0] = 4300.0
    learn(matcher, "token-number-three")
    assert shown(matcher, "token-number-one")
    assert not shown(matcher, "token-number-two")
    assert not shown(matcher, "token-number-three")


def test_a_secret_without_a_known_end_is_known_for_a_day_after_it_last_passed(matcher: SecretMatcher) -> None:
    learn(matcher, "token-number-one", "token-number-two")
    NOW[0] = 80_000.0
    learn(matcher, "token-number-one")
    NOW[0] = 100_000.0
    learn(matcher, "token-number-three")
    assert not shown(matcher, "token-number-one")
    assert shown(matcher, "token-number-two")


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_secret_that_lasts_is_never_forgotten(matcher: SecretMatcher, order: str) -> None:
    if order == "before":
        matcher.learn(LASTING)
    learn(matcher, LASTING, until=0.0)
    if order == "after":
        matcher.learn(LASTING)
    NOW[0] = 1e9
    learn(matcher, "token-number-one")
    assert not shown(matcher, LASTING)


def test_a_form_that_two_secrets_share_is_known_as_long_as_one_of_them(matcher: SecretMatcher) -> None:
    learn(matcher, "Token-Number-One", until=0.0)
    learn(matcher, "tokeN-numbeR-onE", until=50_000.0)
    NOW[0] = 10_000.0
    learn(matcher, "another-secret")
    assert not shown(matcher, "Token-Number-One")
    NOW[0] = 60_000.0
    learn(matcher, "yet-another-one")
    assert shown(matcher, "Token-Number-One")


@pytest.mark.slow
def test_among_many_that_come_and_go_those_that_stay_are_found_and_others_leave_nothing(
    matcher: SecretMatcher,
) -> None:
    matcher.learn(LASTING)
    tracemalloc.start()
    learn(matcher, *(f"warming-up-{number}" for number in range(80)), until=0.0)
    sizes: list[int] = []
    for turn in range(1, 6):
        NOW[0] = turn * 4000.0
        for number in range(80):
            learn(matcher, f"token-{turn}-{number}-of-somebody", until=NOW[0])
        assert not shown(matcher, LASTING)
        assert not shown(matcher, f"token-{turn}-77-of-somebody")
        assert shown(matcher, f"token-{turn - 1}-77-of-somebody")
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[-1] < sizes[1] * 1.2
    assert shown(matcher, "a text that is no secret")


async def test_tokens_in_use_are_reported_again_before_they_could_be_forgotten() -> None:
    told: list[set[str]] = []
    now = [1000.0]
    async with MemoryStore(clock=Clock(wall=lambda: now[0])) as store:
        vault = vault_over(store, learn=told.append, clock=lambda: now[0])
        await vault.keep(KEY, grant())
        await vault.find(KEY)
        assert len(told) == 1
        now[0] += 3600.0
        await vault.find(KEY)
    assert told[0] == told[1] == grant().secrets


async def test_a_redactor_knows_the_state_and_the_token_of_a_managed_sign_in() -> None:
    redactor = Redactor()
    managed = ManagedCredentials(Ledger(acme_ann="token-of-ann"), "github", learn=redactor.learn)
    await managed.question("acme:bob", "")
    await managed.held("acme:ann")

    assert redactor.text("canary-state token-of-ann") == f"{MASK} {MASK}"
