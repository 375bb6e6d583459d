"""Credentials that stand in the configuration."""

import base64
from typing import Any

import pytest

from toolpost import ExternalToolConfig
from toolpost.auth.credentials import static_credential, with_environment
from toolpost.errors import ToolAuthError


def config(**options: Any) -> ExternalToolConfig:
    return ExternalToolConfig(name="srv", transport="mcp", connection="https://example.com/mcp", **options)


@pytest.mark.req("AUTHS-01", "AUTHS-02", "AUTHS-03")
@pytest.mark.parametrize(
    ("given", "headers"),
    [
        ({}, {}),
        ({"auth_type": "api_key", "auth_config": {"api_key": "k"}}, {"X-API-Key": "k"}),
        ({"auth_type": "api_key", "auth_config": {"api_key": "k", "header": "X-Mine"}}, {"X-Mine": "k"}),
        ({"auth_type": "bearer", "auth_config": {"token": "t"}}, {"Authorization": "Bearer t"}),
        ({"auth_type": "cookie", "auth_config": {"value": "c"}}, {"Cookie": "session=c"}),
        (
            {"auth_type": "basic", "auth_config": {"username": "u", "password": "p"}},
            {"Authorization": "Basic " + base64.b64encode(b"u:p").decode()},
        ),
        ({"auth_type": "oauth2_user"}, {}),
    ],
)
def test_each_kind_has_its_header(given: dict[str, Any], headers: dict[str, str]) -> None:
    assert static_credential(config(**given)).headers == headers


def test_different_tokens_have_different_sessions_and_neither_is_shown() -> None:
    one, other = (
        static_credential(config(auth_type="bearer", auth_config={"token": token})) for token in ("t-one", "t-two")
    )
    assert one.key != other.key
    assert "t-one" not in repr(one)


@pytest.mark.req("AUTHS-02", "AUTHS-03", "AUTHS-05")
@pytest.mark.parametrize(
    ("auth_type", "key", "headers"),
    [("bearer", "token", {"Authorization": "Bearer tok"}), ("api_key", "api_key", {"X-API-Key": "tok"})],
)
def test_variables_are_filled_in_wherever_they_stand(auth_type: str, key: str, headers: dict[str, str]) -> None:
    given = config(auth_type=auth_type, auth_config={key: "${T}"}, env={"A": "x${B}y"}, headers={"H": "${B}"})
    filled = with_environment(given, {"T": "tok", "B": "b"})
    assert static_credential(filled).headers.items() >= headers.items()
    assert (filled.env, filled.headers) == ({"A": "xby"}, {"H": "b"})


@pytest.mark.req("AUTHS-05")
def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(ToolAuthError, match="Missing required environment variable 'T' for ToolNode 'srv'"):
        with_environment(config(env={"A": "${T}"}), {})


def test_a_credential_is_bound_to_the_origin_that_the_configuration_names() -> None:
    bound = {"token": "t", "origin": "HTTPS://Example.com:443/mcp"}

    assert static_credential(config(auth_type="bearer", auth_config=bound)).origin == "https://example.com"
    assert static_credential(config(auth_type="bearer", auth_config={"token": "t"})).origin == ""


@pytest.mark.parametrize(
    "options",
    [
        {"transport": "graphql", "connection": "https://example.com", "auth_type": "bearer"},
        {"transport": "mcp", "connection": "https://example.com/mcp", "auth_type": "oauth2_user"},
    ],
)
def test_an_origin_is_refused_where_it_would_not_be_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"auth_config\.origin is for the transports mcp and http with an auth_type"):
        ExternalToolConfig(name="srv", auth_config={"token": "t", "origin": "https://example.com"}, **options)
