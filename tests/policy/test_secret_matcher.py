"""Known secrets are found however they are written, among however many."""

import base64
import gzip
import json
import secrets
import sys

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.policy.canaries import DISGUISES
from toolpost.policy.secret_matcher import SecretMatcher

MASK = "[#]"
TOKEN = "Ya29.a0-Zq_Wb7Rr3kT9xVn8LmPf2"
AWKWARD = 'pa/ss "wörd"+\\1 Straße 100%41'


def watching(*known: str) -> SecretMatcher:
    matcher = SecretMatcher()
    for secret in known:
        matcher.learn(secret)
    return matcher


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("secret", [TOKEN, AWKWARD, "hunter22"], ids=["token", "awkward", "short"])
def test_a_secret_is_found_in_every_disguise(disguise: str, secret: str) -> None:
    told = DISGUISES[disguise](secret)

    text = watching(secret).mask(f"<< {told} >>", MASK)

    assert text.startswith(f"<< {MASK}" if disguise != "inside a URL" else "<< https://")
    assert text.endswith(" >>")
    assert told not in text
    assert len(text) < len(told) / 2 + 60


@pytest.mark.slow
@pytest.mark.parametrize("disguise", DISGUISES)
def test_it_is_found_among_a_thousand_others_and_nothing_else_is(disguise: str) -> None:
    others = [secrets.token_urlsafe(24) for _ in range(1000)]
    text = f"the words before, {DISGUISES[disguise](TOKEN)} and the words behind it"

    assert watching(*others).mask(text, MASK) == text
    assert watching(*others, TOKEN).mask(text, MASK) != text


@pytest.mark.parametrize("around", ["%{}", "\\{}", "%2{}", "&{};", "\\u00{}", "C:\\{}", "{}…", "{}%", "x{}x", "{0}{0}"])
@pytest.mark.parametrize("secret", ["41bcdef0-Zq_Wb7Rr3kT", "newlines-And-tabs-9xVn8"])
def test_what_stands_around_a_secret_does_not_hide_it(around: str, secret: str) -> None:
    assert secret not in watching(secret).mask(around.format(secret), MASK)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_escapes_may_lie_in_escapes(layers: int) -> None:
    told = AWKWARD
    for _ in range(layers):
        told = json.dumps(told)

    assert watching(AWKWARD).mask(f'{{"said": {told}}}', MASK).count(MASK) == 1


def test_of_secrets_that_overlap_nothing_is_left() -> None:
    matcher = watching("abcdefghijkl", "ghijklmnopqr")

    assert matcher.mask("<abcdefghijklmnopqr>", MASK) == f"<{MASK}>"


@pytest.mark.parametrize("cut", ["…", "..."])
def test_the_beginning_of_a_secret_is_taken_out_where_a_text_was_cut(cut: str) -> None:
    for kept in range(12, len(TOKEN)):
        told = watching(TOKEN).mask(f"it was {TOKEN[:kept]}{cut} (said the server)", MASK)
        assert told == f"it was {MASK}{cut} (said the server)"


def test_of_a_text_that_is_full_of_cuts_no_place_is_looked_at_for_each_of_them() -> None:
    dots = "…" * 250_000

    assert watching(TOKEN).mask(f"{dots}{TOKEN[:20]}{dots}", MASK) == f"{dots}{MASK}{dots}"


@pytest.mark.parametrize("disguise", ["URL-encoded", "unicode-escaped", "base64", "hex"])
def test_it_may_be_cut_in_the_middle_of_an_escape(disguise: str) -> None:
    flown = DISGUISES[disguise](TOKEN)
    for kept in range(80, len(flown)):
        assert watching(TOKEN).mask(f"it was {flown[:kept]}…", MASK).startswith(f"it was {MASK}")


def test_what_readers_do_not_see_does_not_hide_a_secret() -> None:
    tags = "".join(chr(0xE0000 + ord(char)) for char in TOKEN)
    for hidden in ("\u200b", "\u200d", "\xad", "\x07", "\ufe0f", "\U000e0001", "\u2060\u200b"):
        assert watching(TOKEN).mask(f"<{hidden.join(TOKEN)}>", MASK) == f"<{MASK}>"
    assert watching(TOKEN).mask(f"<\U0001f3f4{tags}>", MASK) == f"<\U0001f3f4{MASK}>"


HOSTILE = {
    "gzip": base64.b64encode(gzip.compress(bytes(1 << 20))).decode(),
    "escapes": "%41\\u0041\\x41&#65;\\\\",
    "cuts": f"{TOKEN[:20]}…{TOKEN[:13]}...",
    "ends": TOKEN[-18:],
    "secrets": f"{TOKEN} ",
    "hidden": "a\u200b",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("others", [0, 200])
def test_twice_the_text_is_twice_the_work_whatever_it_holds(kind: str, others: int) -> None:
    matcher = watching(TOKEN, *(f"eyJhbGciOiJIUzI1NiJ9.{secrets.token_urlsafe(24)}" for _ in range(others)))

    def work(size: int) -> int:
        """How many functions are called to look through a text of that size."""
        text, calls = (HOSTILE[kind] * size)[:size], [0]
        sys.setprofile(lambda _frame, event, _arg: calls.__setitem__(0, calls[0] + event.endswith("call")))
        try:
            matcher.mask(text, MASK)
        finally:
            sys.setprofile(None)
        return calls[0]

    assert work(80_000) <= 9 * work(10_000) + 1000
    assert work(80_000) <= 80_000 * 6


@settings(deadline=None)
@given(st.text(), st.text(st.characters(codec="utf-8"), min_size=8, max_size=40), st.text())
def test_wherever_it_stands_it_is_found_and_the_rest_is_left(before: str, secret: str, after: str) -> None:
    assume(len("".join(secret.casefold().split())) >= 8)

    text = watching(secret).mask(f"{before}{secret}{after}", MASK)

    assert MASK in text
    assert secret not in text.replace(MASK, "\0")


@settings(deadline=None)
@given(st.text())
def test_a_text_without_a_secret_is_the_very_same(text: str) -> None:
    assert watching(TOKEN, *(secrets.token_urlsafe(24) for _ in range(20))).mask(text, MASK) is text
