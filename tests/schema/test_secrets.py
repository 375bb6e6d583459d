"""Which names and places hold secrets."""

from typing import Any

import pytest

from toolpost.schema.secrets import is_secret_header, is_secret_name, is_secret_path, secret_paths

SECRET = """
password passwd userPassword DB_PASSWORD dbpassword password2 password_confirm new_password passphrase
secret client_secret clientSecret secret_key aws_secret_access_key secrets
token access_token accessToken refresh_token githubToken GITHUB_TOKEN id_token
api_key apikey api-key apiKey X-API-Key OPENAI_API_KEY authorization Authorization proxy-authorization
credential credentials private_key privateKey private_key_pem access_key session_id sessionId cookie Set-Cookie jwt
"""

HARMLESS = """
max_tokens maxTokens token_count tokens tokenizer token_type token_url page_token nextPageToken stop_token
author author_id authorization_url secretary secret_name cookies_enabled password_policy key keyboard monkey
public_key name id session sessions query text 42 _ passenger
"""


@pytest.mark.parametrize("name", SECRET.split())
def test_a_secret_like_name_is_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", HARMLESS.split())
def test_a_harmless_name_is_not(name: str) -> None:
    assert not is_secret_name(name)


def test_an_empty_name_is_harmless() -> None:
    assert not is_secret_name("")


def test_secrets_are_found_by_mark_by_format_and_by_name_at_any_depth() -> None:
    schema = {
        "properties": {
            "a": {"type": "string", "writeOnly": True},
            "b": {"properties": {"c": {"format": "password"}, "d": {"type": "string"}}},
            "list": {"items": {"properties": {"api_key": {"type": "string"}}}},
            "pair": {"prefixItems": [{"format": "password"}]},
            "map": {"additionalProperties": {"format": "password"}},
            "choice": {"anyOf": [{"type": "null"}, {"properties": {"token": {"type": "string"}}}]},
        }
    }

    assert secret_paths(schema) == {
        ("a",),
        ("b", "c"),
        ("list", "*", "api_key"),
        ("pair", "*"),
        ("map", "*"),
        ("choice", "token"),
    }


def test_references_are_followed_and_recursion_ends() -> None:
    schema = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "properties": {
                    "pin": {"format": "password"},
                    "left": {"$ref": "#/$defs/node"},
                    "right": {"$ref": "#/$defs/node"},
                }
            }
        },
    }

    found = secret_paths(schema)

    assert {("pin",), ("left", "pin"), ("right", "left", "pin")} <= found
    assert len(found) < 20_000


def test_a_condition_does_not_make_a_secret() -> None:
    schema: dict[str, Any] = {
        "not": {"properties": {"a": {"writeOnly": True}}},
        "if": {"properties": {"b": {"writeOnly": True}}},
    }

    assert secret_paths(schema) == frozenset()


@pytest.mark.parametrize("schema", [True, False, {}])
def test_a_schema_without_properties_has_no_secrets(schema: Any) -> None:
    assert secret_paths(schema) == frozenset()


def test_what_lies_in_a_secret_is_secret() -> None:
    marked = frozenset({("a", "*", "b")})

    assert is_secret_path(("a", 3, "b"), marked)
    assert is_secret_path(("a", 3, "b", "c"), marked)
    assert is_secret_path(("x", "password", "y"), marked)
    assert not is_secret_path(("a", 3), marked)
    assert not is_secret_path(("a", 3, "c"), marked)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Custom", "abc-def-1"),
        ("X-Tenant-Code", "9f8e7d6c5b4a"),
        ("Authorization", "Bearer x"),
        ("X-API-Key", "json"),
    ],
)
def test_the_value_of_a_header_is_a_secret_whatever_its_name(name: str, value: str) -> None:
    assert is_secret_header(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Accept", "application/vnd.github+json"),
        ("User-Agent", "my-agent/1.0 (of mine)"),
        ("Content-Type", "application/json"),
        ("Notion-Version", "2022-06-28"),
        ("X-Format", "json"),
        ("X-Page-Size", "100"),
        ("X-Media", "text/plain"),
    ],
)
def test_a_header_that_says_how_to_talk_is_none(name: str, value: str) -> None:
    assert not is_secret_header(name, value)
