"""The models of toolpost.yaml: defaults, both spellings, and what does not fit together."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from toolpost.configuration.settings import McpServerSettings, Settings
from toolpost.contracts.config import TransportType
from toolpost.contracts.storage import Retention


def settings(**given: Any) -> Settings:
    return Settings.model_validate(given)


@pytest.mark.req("PCFG-01", "PCFG-02", "PCFG-04")
def test_nothing_given_is_a_safe_machine_of_its_own() -> None:
    made = Settings()

    assert (made.data_dir, made.policy, made.builtins, made.sources) == (Path(".toolpost"), "standard", "none", [])
    assert (made.tools.timeout, made.tools.timeout_s, made.tools.max_concurrent) == (30_000, 30.0, 3)
    assert made.tools.allowed_paths == [Path("data")]
    assert made.tools.web_search.max_results == 10
    assert (made.network.allow_hosts, made.network.allow_private) == ([], False)
    assert (made.limits.inline_bytes, made.limits.absolute_max_parallel, made.limits.retry_budget) == (32_768, 50, 0.1)
    assert made.limits.pending_ttl == 7 * 86_400
    assert made.retention.to_retention() == Retention()


@pytest.mark.req("PCFG-01")
@pytest.mark.parametrize(("written", "ms"), [(30_000, 30_000), ("30s", 30_000), ("30000ms", 30_000), (1500, 1500)])
def test_a_timeout_is_in_milliseconds_unless_it_says_otherwise(written: str | int, ms: int) -> None:
    assert settings(tools={"timeout": written}).tools.timeout == ms


def test_both_spellings_of_a_key_are_read() -> None:
    camel = settings(dataDir="x", tools={"maxConcurrent": 5, "allowedPaths": ["a"]}, limits={"inlineBytes": 10})
    snake = settings(data_dir="x", tools={"max_concurrent": 5, "allowed_paths": ["a"]}, limits={"inline_bytes": 10})

    assert camel == snake


@pytest.mark.req("PCFG-02")
def test_the_agents_own_key_for_the_limit_is_the_same_limit() -> None:
    assert settings(agent={"maxConcurrentTools": 7}).tools.max_concurrent == 7
    assert settings(agent={"maxConcurrentTools": 7}, tools={"maxConcurrent": 7}).tools.max_concurrent == 7


@pytest.mark.req("PCFG-02")
def test_two_different_numbers_for_one_limit_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"tools.maxConcurrent is 2 and agent.maxConcurrentTools is 7"):
        settings(agent={"maxConcurrentTools": 7}, tools={"maxConcurrent": 2})


@pytest.mark.parametrize("wrong", [0, -1, True, "many"])
def test_a_limit_is_a_whole_number_from_one(wrong: object) -> None:
    with pytest.raises(ValidationError, match="maxConcurrent"):
        settings(tools={"maxConcurrent": wrong})


def test_the_key_of_a_search_provider_is_not_shown() -> None:
    made = settings(tools={"webSearch": {"provider": "tavily", "apiKey": "tvly-123"}})

    assert "tvly-123" not in repr(made)
    assert made.tools.web_search.api_key is not None
    assert made.tools.web_search.api_key.get_secret_value() == "tvly-123"


@pytest.mark.req("PCFG-05")
def test_a_local_mcp_server_becomes_a_source_with_its_whole_command() -> None:
    server = McpServerSettings(
        name="files", command="npx", args=["-y", "server", "/my data"], env={"A": "b"}, cwd="/srv", enabled=False
    )

    config = server.to_external_config()

    assert (config.name, config.transport, config.connection) == (
        "files",
        TransportType.MCP,
        "npx -y server '/my data'",
    )
    assert (config.env, config.cwd, config.enabled) == ({"A": "b"}, "/srv", False)


@pytest.mark.req("PCFG-05")
@pytest.mark.parametrize("transport", ["sse", "streamable_http"])
def test_a_remote_mcp_server_becomes_a_source_with_its_address(transport: str) -> None:
    server = McpServerSettings.model_validate(
        {"name": "far", "transport": transport, "url": "http://localhost:3000/sse"}
    )

    assert server.to_external_config().connection == "http://localhost:3000/sse"
    assert server.to_external_config().enabled


@pytest.mark.req("PCFG-05")
@pytest.mark.parametrize(("transport", "needed"), [("stdio", "command"), ("sse", "url"), ("streamable_http", "url")])
def test_an_mcp_server_that_cannot_be_reached_is_refused(transport: str, needed: str) -> None:
    with pytest.raises(ValidationError, match=f"transport={transport} requires {needed}"):
        McpServerSettings.model_validate({"name": "x", "transport": transport})


@pytest.mark.req("CFG-08")
def test_two_sources_of_one_name_are_refused_and_both_are_named() -> None:
    one = {"name": "github", "transport": "http", "connection": "https://a.test"}
    server = {"name": "github", "command": "x"}

    with pytest.raises(ValidationError, match=r"sources\[0\] and sources\[1\] are both named 'github'"):
        settings(sources=[one, one])
    with pytest.raises(ValidationError, match=r"sources\[0\] and tools.mcpServers\[0\] are both named 'github'"):
        settings(sources=[one], tools={"mcpServers": [server]})


def test_all_sources_are_those_of_both_lists() -> None:
    made = settings(
        sources=[{"name": "a", "transport": "python", "connection": "json"}],
        tools={"mcpServers": [{"name": "b", "command": "x"}]},
    )

    assert [(source.name, source.transport.value) for source in made.all_sources()] == [("a", "python"), ("b", "mcp")]


def test_a_policy_is_a_template_or_rules_as_plain_data() -> None:
    rules = [{"tools": ["repo.*"], "side_effects": ["write"], "action": "ask", "reason": "we look first"}]

    assert settings(policy="audit").policy_data() == "audit"
    assert settings(policy=rules).policy_data() == rules
    assert settings(policy=[{"action": "deny"}]).policy_data() == [{"tools": ["*"], "action": "deny", "reason": ""}]


def test_retention_is_read_with_units() -> None:
    made = settings(retention={"max_age": "30d", "max_artifact_mb": 1.5})

    assert made.retention.to_retention() == Retention(max_age_s=30 * 86_400, max_artifact_bytes=1_572_864)


def test_a_host_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"10\.0\.0\.0/99"):
        settings(network={"allow_hosts": ["10.0.0.0/99"]})


def test_settings_do_not_change() -> None:
    made = Settings()

    with pytest.raises(ValidationError, match="frozen"):
        made.policy = "audit"  # type: ignore[misc]
