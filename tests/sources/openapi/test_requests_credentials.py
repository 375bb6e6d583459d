"""Each operation gets the credential that its document asks for, by the name of the scheme."""

from typing import Any

import pytest

from tests.specs import build_request
from toolpost.auth.credentials import static_credential, with_environment
from toolpost.contracts.calls import NO_CREDENTIAL, Credential
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError, ToolAuthError
from toolpost.sources.openapi.credentials import Credentials, scheme_values
from toolpost.sources.openapi.models import ApiOperation, Parameter, SecurityRequirement, SecurityScheme
from toolpost.sources.requests import Presentation

TOKEN_URL = "https://id.example.org/token"
CLIENT = {"client_id": "me:1", "client_secret": "s3cr3t/ü"}
SCHEMES = {
    scheme.name: scheme
    for scheme in (
        SecurityScheme(name="header", type="apiKey", location="header", parameter="X-Key"),
        SecurityScheme(name="query", type="apiKey", location="query", parameter="key"),
        SecurityScheme(name="cookie", type="apiKey", location="cookie", parameter="sid"),
        SecurityScheme(name="raw", type="apiKey", location="header", parameter="Authorization"),
        SecurityScheme(name="bearer", type="http", scheme="bearer"),
        SecurityScheme(name="basic", type="http", scheme="basic"),
        SecurityScheme(name="own", type="http", scheme="GenieKey"),
        SecurityScheme(name="digest", type="http", scheme="digest"),
        SecurityScheme(name="oauth", type="oauth2", token_url=TOKEN_URL),
        SecurityScheme(name="oidc", type="openIdConnect"),
        SecurityScheme(name="mtls", type="mutualTLS"),
    )
}
BEARER = Credential("k", {"Authorization": "Bearer plain"})
BASIC = Credential("k", {"Authorization": "Basic dTpw"})
KEY = Credential("k", {"X-API-Key": "plain"})
COOKIE = Credential("k", {"Cookie": "session=plain"})


def asking(*alternatives: str, **more: Any) -> ApiOperation:
    """An operation; each alternative is the names of its schemes."""
    security = tuple(tuple(SecurityRequirement(scheme=name) for name in names.split()) for names in alternatives)
    return ApiOperation(tool_name="t", method="get", path="/x", servers=("https://h",), security=security, **more)


async def presented(
    operation: ApiOperation, values: dict[str, Any] | None = None, credential: Credential = NO_CREDENTIAL
) -> Presentation:
    return await Credentials(SCHEMES, values or {}, source="shop").present(operation, credential)


def header(name: str, value: str) -> Presentation:
    return Presentation(headers=((name, value),))


@pytest.mark.parametrize(
    ("scheme", "value", "expected"),
    [
        ("header", "v", header("X-Key", "v")),
        ("header", {"value": "v"}, header("X-Key", "v")),
        ("query", "v", Presentation(query=(("key", "v"),))),
        ("cookie", "v", Presentation(cookies=(("sid", "v"),))),
        ("raw", "v", header("Authorization", "v")),
        ("bearer", "v", header("Authorization", "Bearer v")),
        ("bearer", {"token": "v"}, header("Authorization", "Bearer v")),
        ("basic", "u:p", header("Authorization", "Basic dTpw")),
        ("basic", {"username": "u", "password": "p"}, header("Authorization", "Basic dTpw")),
        ("own", "v", header("Authorization", "GenieKey v")),
        ("oauth", "v", header("Authorization", "Bearer v")),
        ("oidc", {"token": "v"}, header("Authorization", "Bearer v")),
    ],
)
async def test_a_value_is_presented_as_its_scheme_says(scheme: str, value: Any, expected: Presentation) -> None:
    assert await presented(asking(scheme), {scheme: value}) == expected


@pytest.mark.parametrize(
    ("scheme", "credential", "expected"),
    [
        ("bearer", BEARER, header("Authorization", "Bearer plain")),
        ("oauth", BEARER, header("Authorization", "Bearer plain")),
        ("raw", BEARER, header("Authorization", "Bearer plain")),
        ("basic", BASIC, header("Authorization", "Basic dTpw")),
        ("header", KEY, header("X-Key", "plain")),
        ("query", KEY, Presentation(query=(("key", "plain"),))),
        ("cookie", KEY, Presentation(cookies=(("sid", "plain"),))),
        ("cookie", COOKIE, Presentation(cookies=(("sid", "plain"),))),
        ("basic", BEARER, header("Authorization", "Bearer plain")),
        ("bearer", COOKIE, Presentation(cookies=(("session", "plain"),))),
    ],
)
async def test_the_plain_credential_stands_in_where_it_fits_and_goes_as_it_is_where_none_fits(
    scheme: str, credential: Credential, expected: Presentation
) -> None:
    assert await presented(asking(scheme), credential=credential) == expected


async def test_the_first_alternative_that_can_be_met_is_taken() -> None:
    operation = asking("oauth", "header query", "bearer")
    assert await presented(operation, {"header": "h", "bearer": "b"}) == header("Authorization", "Bearer b")
    both = Presentation(headers=(("X-Key", "h"),), query=(("key", "q"),))
    assert await presented(operation, {"header": "h", "query": "q", "bearer": "b"}) == both
    assert await presented(operation, {"header": "h"}, KEY) == Presentation(
        headers=(("X-Key", "h"),), query=(("key", "plain"),)
    )


async def test_one_plain_credential_does_not_stand_in_for_two() -> None:
    with pytest.raises(ToolAuthError, match=r"'header'.* together with 'query'"):
        await presented(asking("header query"), credential=KEY)


async def test_an_operation_without_security_gets_nothing_whatever_is_configured() -> None:
    everything = dict.fromkeys(SCHEMES, "u:p")
    assert await presented(asking(), everything, BEARER) == Presentation()


async def test_where_logging_in_is_a_choice_a_credential_is_used_if_there_is_one() -> None:
    assert await presented(asking("", "bearer"), {"bearer": "b"}) == header("Authorization", "Bearer b")
    assert await presented(asking("", "bearer")) == Presentation()


async def test_a_document_without_schemes_gets_the_plain_credential() -> None:
    credentials = Credentials({}, {}, source="shop")
    assert await credentials.present(asking(), BEARER) == header("Authorization", "Bearer plain")
    assert await credentials.present(asking(), COOKIE) == Presentation(cookies=(("session", "plain"),))


@pytest.mark.parametrize(
    ("scheme", "name"),
    [
        ("bearer", "authorization"),
        ("oauth", "Authorization"),
        ("own", "Authorization"),
        ("raw", "Authorization"),
        ("header", "x-key"),
        ("cookie", "Cookie"),
    ],
)
async def test_a_header_of_the_operators_is_the_credential_of_the_scheme_that_it_is_named_by(
    scheme: str, name: str
) -> None:
    credentials = Credentials(SCHEMES, {}, source="shop", headers={name: "sid=mine"})
    assert await credentials.present(asking(scheme)) == Presentation()
    assert await credentials.present(asking(f"{scheme} query"), KEY) == Presentation(query=(("key", "plain"),))


async def test_a_credential_goes_before_a_header_of_the_operators() -> None:
    credentials = Credentials(SCHEMES, {"oauth": "v"}, source="shop", headers={"Authorization": "Bearer mine"})
    assert await credentials.present(asking("oauth")) == header("Authorization", "Bearer v")
    assert await credentials.present(asking("bearer"), BEARER) == header("Authorization", "Bearer plain")


@pytest.mark.parametrize(
    ("scheme", "name"),
    [
        ("header", "Authorization"),
        ("bearer", "X-Key"),
        ("query", "key"),
        ("cookie", "Cookie"),
        ("digest", "Authorization"),
    ],
)
async def test_a_header_of_another_name_is_no_credential(scheme: str, name: str) -> None:
    credentials = Credentials(SCHEMES, {}, source="shop", headers={name: "mine"})
    with pytest.raises(ToolAuthError, match="needs a credential"):
        await credentials.present(asking(scheme))


async def test_what_is_missing_is_named_with_how_to_set_it() -> None:
    with pytest.raises(ToolAuthError) as caught:
        await presented(asking("query", "oauth header"), {"oauth": "t"})
    assert str(caught.value) == (
        "GET /x needs a credential for 'query' (API key, query 'key'), "
        "or 'oauth' (OAuth 2: an access token, or client_id and client_secret) together with "
        "'header' (API key, header 'X-Key'). "
        "Set auth_config.schemes.query of source 'shop', or the environment variable TOOLPOST_SHOP_QUERY."
    )


@pytest.mark.parametrize("scheme", ["digest", "mtls", "unheard"])
async def test_a_scheme_that_cannot_be_met_is_reported_as_that(scheme: str) -> None:
    with pytest.raises(ToolAuthError, match=r"not supported|does not explain"):
        await presented(asking(scheme), {scheme: "v"})


@pytest.mark.parametrize(
    ("scheme", "value"),
    [("header", "a\nX-Evil: 1"), ("bearer", "tok\0en"), ("header", 7), ("basic", "nocolon"), ("bearer", {"tok": "x"})],
)
async def test_a_value_that_cannot_be_presented_is_a_mistake_in_the_configuration_and_not_shown(
    scheme: str, value: Any
) -> None:
    with pytest.raises(ConfigError, match=f"auth_config.schemes.{scheme}") as caught:
        await presented(asking(scheme), {scheme: value})
    assert str(value) not in str(caught.value)


def test_values_come_from_the_configuration_or_from_the_environment() -> None:
    environ = {
        "TOOLPOST_MY_SHOP_HEADER": "from env",
        "TOOLPOST_MY_SHOP_QUERY": "hidden by the configuration",
        "TOOLPOST_MY_SHOP_OAUTH_CLIENT_ID": "id",
        "TOOLPOST_MY_SHOP_OAUTH_CLIENT_SECRET": "secret",
        "TOOLPOST_MY_SHOP_BASIC_USERNAME": "only half",
        "TOOLPOST_MY_SHOP_BEARER": "",
    }
    assert scheme_values("my-shop", {"schemes": {"query": "from config"}}, SCHEMES, environ) == {
        "header": "from env",
        "query": "from config",
        "oauth": {"client_id": "id", "client_secret": "secret"},
    }


def test_a_scheme_that_the_document_does_not_have_is_refused_with_those_it_has() -> None:
    with pytest.raises(ConfigError, match="no scheme 'heder'; there are: 'header', 'query'"):
        scheme_values("shop", {"schemes": {"heder": "x"}}, ["header", "query"], {})
    with pytest.raises(ConfigError, match="is a table"):
        scheme_values("shop", {"schemes": ["x"]}, [], {})


async def test_variables_in_the_configuration_are_filled_in_for_each_scheme() -> None:
    schemes = {"query": "${KEY}", "basic": {"username": "u", "password": "${PW}"}}
    config = ExternalToolConfig(
        name="shop",
        transport="http",
        connection="https://h/openapi.json",
        auth_type="bearer",
        auth_config={"token": "${TOKEN}", "schemes": schemes},
    )
    filled = with_environment(config, {"TOKEN": "t", "KEY": "k", "PW": "p"})
    values = scheme_values("shop", filled.auth_config, SCHEMES, {})
    credentials, plain = Credentials(SCHEMES, values, source="shop"), static_credential(filled)
    assert await credentials.present(asking("query"), plain) == Presentation(query=(("key", "k"),))
    assert await credentials.present(asking("basic"), plain) == header("Authorization", "Basic dTpw")
    assert await credentials.present(asking("bearer"), plain) == header("Authorization", "Bearer t")
    with pytest.raises(ToolAuthError, match="'TOKEN'"):
        with_environment(config, {})


def test_a_secret_shows_only_in_what_goes_over_the_wire() -> None:
    key = Parameter(name="key", location="query", argument="key", schema=True)
    sid = Parameter(name="sid", location="cookie", argument="sid", schema=True)
    auth = Parameter(name="authorization", location="header", argument="auth", schema=True, style="simple")
    operation = asking(parameters=(key, sid, auth))
    planned = build_request(operation, {"key": "mine", "sid": "mine", "auth": "mine"}).presenting(
        Presentation(
            headers=(("Authorization", "Bearer s&1"),), query=(("key", "s&2"),), cookies=(("sid", "s;3"), ("b", "s4"))
        )
    )
    assert planned.wire_url == "https://h/x?key=s%262"
    assert [pair for pair in planned.wire_headers if pair[0].lower() in ("authorization", "cookie")] == [
        ("Authorization", "Bearer s&1"),
        ("Cookie", "sid=s%3B3; b=s4"),
    ]
    assert planned.url == "https://h/x?key=mine"
    told = f"{planned!r} {planned.presented!r} {planned.url}"
    assert [secret for secret in ("s&1", "s&2", "s%262", "s;3", "s%3B3", "s4") if secret in told] == []
    assert "s&1" in planned.presented.secrets
    assert "hush" in header("Authorization", "Basic YW5uOmh1c2g=").secrets
