"""The models of toolpost.yaml: defaults, both spellings, and what does not fit together."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel, ValidationError

from toolpost.configuration.loading import parse_settings
from toolpost.configuration.settings import (
    SCHEMA_FILE,
    McpServerSettings,
    Settings,
    ToolsSettings,
    file_schema,
    parse_duration,
)
from toolpost.contracts.config_model import ConfigModel
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.source_kinds import TransportType
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
def test_defaults_are_the_same_whether_they_are_validated_or_not() -> None:
    models: list[type[ConfigModel]] = [
        model
        for model in ConfigModel.__subclasses__()
        if model.__module__.startswith("toolpost.")
        and not any(one.is_required() for one in model.model_fields.values())
    ]

    assert {Settings, ToolsSettings} <= set(models)
    for model in models:
        assert model.defaults() == model.model_validate({})
        assert model.defaults().model_dump() == model.model_validate({}).model_dump()


def test_settings_in_memory_are_the_same_whether_they_are_validated_or_not() -> None:
    quick, validated = parse_settings({"data_dir": None}), Settings.model_validate({"data_dir": None})

    assert quick == validated
    assert (quick.model_dump(), quick.model_fields_set) == (validated.model_dump(), validated.model_fields_set)


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


def test_a_key_of_google_without_an_engine_says_where_the_engine_comes_from() -> None:
    with pytest.raises(ConfigError, match="requires engine") as refused:
        parse_settings({"tools": {"webSearch": {"provider": "google", "apiKey": "AIza-0123456789"}}})
    assert "https://programmablesearchengine.google.com" in str(refused.value)
    assert "AIza-0123456789" not in str(refused.value)


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

    assert [(source.name, source.transport) for source in made.all_sources()] == [("a", "python"), ("b", "mcp")]


def test_settings_are_part_of_a_model_of_someone_else() -> None:
    class Application(BaseModel):
        name: str
        toolpost: Settings

    source = {"name": "own", "transport": "python", "connection": "./tools.py"}
    data = {"name": "shop", "toolpost": {"sources": [source], "overrides": {"own.add": {"hide": True}}}}

    made = Application.model_validate(data).toolpost

    assert [one.transport for one in made.sources] == [TransportType.PYTHON]
    assert made.overrides["own.add"].hide
    assert Application.model_json_schema()["$defs"]["Settings"]["properties"]["sources"]["type"] == "array"


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


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("500ms", 0.5), ("30s", 30), ("1.5m", 90), ("12 h", 43_200), (" 7d ", 604_800), ("5", 5), (2, 2), (0.25, 0.25)],
)
def test_a_number_with_a_unit_is_a_duration(written: str | float, seconds: float) -> None:
    assert parse_duration(written) == pytest.approx(seconds)


def test_a_number_without_a_unit_is_in_the_unit_that_the_place_says() -> None:
    assert parse_duration(30_000, bare="ms") == 30
    assert parse_duration("30000", bare="ms") == 30
    assert parse_duration("30s", bare="ms") == 30


@pytest.mark.parametrize("written", ["", "s", "soon", "3 weeks", "-1s", "1e3s", True, None, [5]])
def test_anything_else_is_refused_with_examples(written: object) -> None:
    with pytest.raises(ValueError, match="a number with a unit, such as 500ms, 30s"):
        parse_duration(written)


@pytest.mark.parametrize("written", [0, -1, "0s", float("nan"), float("inf")])
def test_no_time_at_all_and_endless_time_are_refused(written: object) -> None:
    with pytest.raises(ValueError, match="a duration above 0"):
        parse_duration(written)


def test_the_shipped_file_is_current() -> None:
    shipped = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))

    assert shipped == json.loads(json.dumps(file_schema())), "run: python -m tools.config_schema"


def test_it_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(file_schema())


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{data_dir: null, policy: audit, builtins: [read_file]}",
        "{dataDir: x, tools: {timeout: 30s, maxConcurrent: 3, max_concurrent: 3, webSearch: {apiKey: k}}}",
        "{sources: [{name: a, transport: python, connection: ./tools.py, auth_type: none, authConfig: {}}]}",
        "{policy: [{action: ask, sideEffects: [write]}], retention: {max_age: 30d}}",
    ],
)
def test_a_right_file_is_accepted(text: str) -> None:
    assert errors(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "{polcy: audit}",
        "{policy: paranoid}",
        "{tools: {timeout: soon}}",
        "{tools: {maxConcurrent: 0}}",
        "{sources: [{name: a}]}",
        "{policy: [{action: shrug}]}",
    ],
)
def test_a_wrong_file_is_not(text: str) -> None:
    assert errors(text) != []


def errors(text: str) -> list[Any]:
    return list(jsonschema.Draft202012Validator(file_schema()).iter_errors(yaml.safe_load(text)))
