"""WWW-Authenticate as servers write it."""

import pytest

from toolpost.auth.oauth.challenges import AuthChallenge, Challenge, parse_auth_challenge, parse_challenges
from toolpost.wire.messages import Headers


def bearer(**parameters: str) -> Challenge:
    return Challenge(scheme="bearer", parameters=parameters)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("Bearer", [bearer()]),
        ("bearer", [bearer()]),
        ('Bearer realm="x", scope="a b"', [bearer(realm="x", scope="a b")]),
        ("Bearer scope=a,error=invalid_token", [bearer(scope="a", error="invalid_token")]),
        ("Bearer Scope = \"a\" ,\t error = 'x'", [bearer(scope="a", error="'x'")]),
        (r'Bearer realm="say \"hi\", Basic x=y"', [bearer(realm='say "hi", Basic x=y')]),
        ("Bearer, Basic realm=x", [bearer(), Challenge(scheme="basic", parameters={"realm": "x"})]),
        ("Negotiate abc==, Bearer a=b", [Challenge(scheme="negotiate", token68="abc=="), bearer(a="b")]),
        ('Bearer a="1", DPoP algs="ES256"', [bearer(a="1"), Challenge(scheme="dpop", parameters={"algs": "ES256"})]),
        ('Bearer a="1", a="2"', [bearer(a="1")]),
        ("Bearer resource_metadata=https://h/x?y=z", [bearer(resource_metadata="https://h/x?y=z")]),
        ('Bearer a="unclosed', [bearer()]),
        (",,, ", []),
        ("", []),
        ("=== ??", []),
    ],
)
def test_challenges_are_read_as_rfc_9110_writes_them(field: str, expected: list[Challenge]) -> None:
    assert list(parse_challenges([field])) == expected


def test_a_field_that_never_ends_is_read_in_bounded_time() -> None:
    assert parse_challenges(["Bearer " + "a=b, " * 200_000])[0].parameters == {"a": "b"}
    assert parse_challenges(['Bearer a="' + '\\"' * 200_000]) == (bearer(),)


def test_a_demand_names_the_scopes_and_the_document() -> None:
    headers = Headers(
        (
            ("WWW-Authenticate", 'Basic realm="other"'),
            ("www-authenticate", 'Bearer error="insufficient_scope", scope="a b a", resource_metadata="https://h/m"'),
        )
    )
    assert parse_auth_challenge(403, headers) == AuthChallenge(
        status=403, error="insufficient_scope", scopes=("a", "b"), resource_metadata="https://h/m"
    )
    assert parse_auth_challenge(403, headers).wants_more_scopes


def test_a_demand_without_a_challenge_is_an_empty_one() -> None:
    assert parse_auth_challenge(401, Headers(())) == AuthChallenge(status=401)
    assert parse_auth_challenge(401, Headers((("WWW-Authenticate", "Basic realm=x"),))) == AuthChallenge(status=401)


def test_an_empty_scope_is_not_the_same_as_none() -> None:
    assert parse_auth_challenge(401, Headers((("WWW-Authenticate", 'Bearer scope=""'),))).scopes == ()


@pytest.mark.parametrize(
    ("field", "dpop", "bearer"), [("DPoP", True, False), ("Bearer, DPoP", True, True), ("Bearer", False, True)]
)
def test_a_demand_says_which_kinds_of_token_will_do(field: str, dpop: bool, bearer: bool) -> None:
    found = parse_auth_challenge(401, Headers((("WWW-Authenticate", field),)))
    assert (found.dpop, found.bearer) == (dpop, bearer)
