"""The configuration of an external source: defaults, bounds, and what does not fit together."""

from typing import Any

import pytest
from pydantic import ValidationError

from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.config_model import ConfigModel
from toolpost.contracts.retries import RetryPolicy
from toolpost.contracts.source_kinds import AuthType, TransportType, UtcpMode
from toolpost.sources.openapi.options import HttpOptions
from toolpost.sources.webhook.options import WebhookOptions


def source(**changes: Any) -> ExternalToolConfig:
    return ExternalToolConfig.model_validate(
        {"name": "a", "transport": "http", "connection": "https://a.test", **changes}
    )


@pytest.mark.req("CFG-01")
def test_the_transports_have_their_names() -> None:
    named = {"MCP": "mcp", "HTTP": "http", "UTCP": "utcp", "CLI": "cli"}

    assert named.items() <= {member.name: member.value for member in TransportType}.items()


@pytest.mark.req("CFG-02")
def test_the_kinds_of_authentication_have_their_names() -> None:
    named = {"NONE": "none", "API_KEY": "api_key", "BEARER": "bearer", "OAUTH2_USER": "oauth2_user"}

    assert named.items() <= {member.name: member.value for member in AuthType}.items()


@pytest.mark.req("CFG-03")
def test_the_modes_of_utcp_have_their_names() -> None:
    named = {"AUTO": "auto", "MANUAL_URL": "manual_url", "BASE_URL": "base_url"}

    assert {member.name: member.value for member in UtcpMode} == named


@pytest.mark.req("CFG-04", "CFG-05", "CFG-06")
def test_a_retry_policy_tries_three_times_and_waits_up_to_five_seconds() -> None:
    policy = RetryPolicy()

    assert (policy.max_attempts, policy.wait_exponential_min_s, policy.wait_exponential_max_s) == (3, 0.1, 5.0)


@pytest.mark.req("CFG-07")
def test_rate_limits_and_broken_servers_are_tried_again() -> None:
    assert RetryPolicy().retry_on_status == [429, 500, 502, 503, 504]


@pytest.mark.req("CFG-04", "CFG-05", "CFG-06")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_attempts", 0),
        ("max_attempts", 11),
        ("wait_exponential_min_s", 0.009),
        ("wait_exponential_max_s", 0.09),
    ],
)
def test_a_retry_policy_beyond_its_bounds_is_refused(key: str, value: float) -> None:
    with pytest.raises(ValidationError, match=key):
        RetryPolicy.model_validate({key: value})


@pytest.mark.req("CFG-08", "CFG-10", "CFG-11")
@pytest.mark.parametrize("key", ["name", "transport", "connection"])
def test_a_source_needs_a_name_a_transport_and_a_connection(key: str) -> None:
    given = {"name": "a", "transport": "http", "connection": "https://a.test"}
    del given[key]

    with pytest.raises(ValidationError, match=f"{key}\n  Field required"):
        ExternalToolConfig.model_validate(given)


@pytest.mark.req("CFG-09", "CFG-12", "CFG-18")
def test_a_source_offers_all_its_tools_by_default() -> None:
    config = source()

    assert (config.description, config.utcp_mode, config.tool_filter) == ("", UtcpMode.AUTO, None)


@pytest.mark.req("CFG-13", "CFG-14")
def test_a_source_has_no_credential_and_no_environment_by_default() -> None:
    config = source()

    assert (config.env, config.auth_type, config.auth_config) == ({}, AuthType.NONE, {})


@pytest.mark.req("CFG-15", "CFG-16", "CFG-17")
def test_a_source_is_bounded_and_retried_by_default() -> None:
    config = source()

    assert (config.timeout_s, config.max_concurrency, config.retry_policy) == (30.0, 10, RetryPolicy())


@pytest.mark.req("CFG-15", "CFG-17")
@pytest.mark.parametrize(
    ("key", "value"),
    [("timeout_s", 0.9), ("timeout_s", 300.1), ("max_concurrency", 0), ("max_concurrency", 101)],
)
def test_a_source_beyond_its_bounds_is_refused(key: str, value: float) -> None:
    with pytest.raises(ValidationError, match=key):
        source(**{key: value})


@pytest.mark.req("CFG-10")
def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(ValidationError, match="transport"):
        source(transport="pigeon")


@pytest.mark.req("CFG-18")
@pytest.mark.parametrize(
    ("patterns", "included"),
    [(None, True), (["get_.*"], True), (["get"], False), (["list_.*", "get_user"], True), ([], False)],
)
def test_a_filter_matches_whole_names(patterns: list[str] | None, included: bool) -> None:
    assert source(tool_filter=patterns).includes("get_user") is included


def test_an_exclusion_wins_over_a_filter() -> None:
    config = source(tool_filter=[".*"], tool_exclude=["delete_.*"])

    assert [name for name in ("get_user", "delete_user") if config.includes(name)] == ["get_user"]


@pytest.mark.req("CFG-18")
def test_a_filter_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"'\[' is not a regular expression"):
        source(tool_filter=["["])


@pytest.mark.req("CFG-19")
def test_bearer_needs_a_token() -> None:
    with pytest.raises(ValueError, match=r"auth_type=BEARER requires auth_config\.token"):
        source(auth_type="bearer")


@pytest.mark.req("CFG-20")
def test_an_api_key_must_be_given() -> None:
    with pytest.raises(ValueError, match=r"auth_type=API_KEY requires auth_config\.api_key"):
        source(auth_type="api_key")


@pytest.mark.req("CFG-12", "CFG-21")
def test_a_mode_of_utcp_does_not_fit_mcp() -> None:
    with pytest.raises(ValueError, match="utcp_mode is only valid for HTTP/UTCP transports"):
        source(transport="mcp", utcp_mode="base_url")


@pytest.mark.req("CFG-22")
@pytest.mark.parametrize(
    "given",
    [
        {
            "name": "github",
            "transport": TransportType.MCP,
            "connection": "npx -y @modelcontextprotocol/server-github",
            "auth_type": AuthType.OAUTH2_USER,
        },
        {
            "name": "weather",
            "transport": TransportType.UTCP,
            "connection": "https://api.weather.com/.well-known/utcp.json",
            "utcp_mode": UtcpMode.MANUAL_URL,
        },
        {
            "name": "stripe",
            "transport": TransportType.HTTP,
            "connection": "https://api.stripe.com/v1",
            "utcp_mode": UtcpMode.BASE_URL,
            "auth_type": AuthType.BEARER,
            "auth_config": {"token": "${STRIPE_SECRET_KEY}"},
        },
    ],
    ids=lambda given: given["name"],
)
def test_the_documented_examples_are_valid(given: dict[str, Any]) -> None:
    config = ExternalToolConfig(**given)

    assert {key: getattr(config, key) for key in given} == given


def test_camel_case_is_accepted_and_an_unknown_key_is_not() -> None:
    assert source(maxConcurrency=4).max_concurrency == 4
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        source(max_concurency=4)


def test_what_authenticates_a_source_is_not_in_its_repr() -> None:
    config = source(auth_type="bearer", auth_config={"token": "s3cret-token"})

    assert "s3cret-token" not in repr(config)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (HttpOptions, {"idempotency_header": "no header"}),
        (WebhookOptions, {"signature": {"secret": "s", "header": "X-Größe"}}),
        (WebhookOptions, {"signature": {"secret": "s", "timestamp_header": ""}}),
        (WebhookOptions, {"tools": {"t": {"idempotency_header": "a:b"}}}),
    ],
    ids=["source", "signature", "timestamp", "tool"],
)
def test_a_name_that_no_header_can_have_is_refused_at_once(model: type[ConfigModel], options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"header\n  String should match pattern"):
        source(options=options).read_options(model)
