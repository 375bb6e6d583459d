"""Known secrets are found however they are written, among however many."""

import base64
import gzip
import json
import secrets
from urllib.parse import quote

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.policy.canaries import DISGUISES
from toolpost.policy.lookout import Lookout

MASK = "[#]"
TOKEN = "Ya29.a0-Zq_Wb7Rr3kT9xVn8LmPf2"
AWKWARD = 'pa/ss "wörd"+\\1 Straße 100%41'


def watching(*known: str) -> Lookout:
    lookout = Lookout()
    for secret in known:
        lookout.learn(secret)
    return lookout


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("secret", [TOKEN, AWKWARD, "hunter22"], ids=["token", "awkward", "short"])
def test_a_secret_is_found_in_every_disguise(disguise: str, secret: str) -> None:
    told = DISGUISES[disguise](secret)

    text = watching(secret).without(f"<< {told} >>", MASK)

    assert text.startswith(f"<< {MASK}" if disguise != "inside a URL" else "<< https://")
    assert text.endswith(" >>")
    assert told not in text
    assert len(text) < len(told) / 2 + 60


@pytest.mark.parametrize("disguise", DISGUISES)
def test_it_is_found_among_a_thousand_others_and_nothing_else_is(disguise: str) -> None:
    others = [secrets.token_urlsafe(24) for _ in range(1000)]
    text = f"the words before, {DISGUISES[disguise](TOKEN)} and the words behind it"

    assert watching(*others).without(text, MASK) == text
    assert watching(*others, TOKEN).without(text, MASK) != text


@pytest.mark.parametrize(
    "around", ["%{}", "\\{}", "%2{}", "&{};", "\\u00{}", "C:\\{}", "H4sI{}", "{}…", "{}%", "x{}x", "{0}{0}"]
)
@pytest.mark.parametrize("secret", ["41bcdef0-Zq_Wb7Rr3kT", "newlines-And-tabs-9xVn8"])
def test_what_stands_around_a_secret_does_not_hide_it(around: str, secret: str) -> None:
    assert secret not in watching(secret).without(around.format(secret), MASK)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_escapes_may_lie_in_escapes(layers: int) -> None:
    told = AWKWARD
    for _ in range(layers):
        told = json.dumps(told)

    assert watching(AWKWARD).without(f'{{"said": {told}}}', MASK).count(MASK) == 1


def test_of_secrets_that_overlap_nothing_is_left() -> None:
    lookout = watching("abcdefghijkl", "ghijklmnopqr")

    assert lookout.without("<abcdefghijklmnopqr>", MASK) == f"<{MASK}>"


@pytest.mark.parametrize("cut", ["…", "..."])
def test_the_beginning_of_a_secret_is_taken_out_where_a_text_was_cut(cut: str) -> None:
    for kept in range(12, len(TOKEN)):
        told = watching(TOKEN).without(f"it was {TOKEN[:kept]}{cut} (said the server)", MASK)
        assert told == f"it was {MASK}{cut} (said the server)"


def test_of_a_text_that_is_full_of_cuts_no_place_is_looked_at_for_each_of_them() -> None:
    dots = "…" * 250_000

    assert watching(TOKEN).without(f"{dots}{TOKEN[:20]}{dots}", MASK) == f"{dots}{MASK}{dots}"


@pytest.mark.parametrize("disguise", ["URL-encoded", "unicode-escaped", "base64", "hex"])
def test_it_may_be_cut_in_the_middle_of_an_escape(disguise: str) -> None:
    flown = DISGUISES[disguise](TOKEN)
    for kept in range(80, len(flown)):
        assert watching(TOKEN).without(f"it was {flown[:kept]}…", MASK).startswith(f"it was {MASK}")


def test_what_is_packed_too_well_to_look_at_is_taken_out_unseen() -> None:
    bomb = base64.b64encode(gzip.compress(bytes(50 << 20))).decode()

    assert watching(TOKEN).without(f"<{bomb}>", MASK) == f"<{MASK}>"


def test_what_is_packed_may_stand_in_a_url() -> None:
    for number in range(20):
        packed = base64.b64encode(gzip.compress(f"{number} {TOKEN}".encode(), mtime=number)).decode()

        assert watching(TOKEN).without(f"/x?state={quote(packed, safe='')}", MASK).startswith(f"/x?state={MASK}")


def test_what_is_packed_is_left_alone_where_no_secret_is_in_it() -> None:
    packed = base64.b64encode(gzip.compress(b"the words of a song")).decode()

    assert watching(TOKEN).without(packed, MASK) == packed


@settings(deadline=None)
@given(st.text(), st.text(st.characters(codec="utf-8"), min_size=8, max_size=40), st.text())
def test_wherever_it_stands_it_is_found_and_the_rest_is_left(before: str, secret: str, after: str) -> None:
    assume(len("".join(secret.casefold().split())) >= 8)

    text = watching(secret).without(f"{before}{secret}{after}", MASK)

    assert MASK in text
    assert secret not in text.replace(MASK, "\0")


@settings(deadline=None)
@given(st.text())
def test_a_text_without_a_secret_is_the_very_same(text: str) -> None:
    assert watching(TOKEN, *(secrets.token_urlsafe(24) for _ in range(20))).without(text, MASK) is text
