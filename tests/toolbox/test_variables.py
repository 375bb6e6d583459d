"""Variables of a configuration: from the environment or `.env`, and what happens where one is not set."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.patient_settings import PatientSettings
from tests.wire.site import Site, reply
from toolpost import ConfigError, Failed, ReactPlanner, Settings, Toolbox
from toolpost.auth.env_files import parse_env
from toolpost.configuration.loading import load_settings
from toolpost.testing import ScriptedModel

TOOLS = """
from toolpost import tool

@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    return a + b
"""
GOOD = "  - {name: good, transport: python, connection: ./tools.py}\n"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("NOT_SET_HERE", raising=False)
    (tmp_path / "tools.py").write_text(TOOLS)

    def write(*sources: str, more: str = "") -> Path:
        path = tmp_path / "toolpost.yaml"
        path.write_text(f"data_dir: null\npolicy: exploratory\n{more}sources:\n{GOOD}{''.join(sources)}")
        return path

    return write


UNSET = [
    '  - {name: odd, transport: mcp, connection: run, env: {A_TOKEN: "${NOT_SET_HERE}"}}\n',
    '  - {name: odd, transport: mcp, connection: "${NOT_SET_HERE}"}\n',
    '  - {name: odd, transport: http, connection: https://x.example/a.json, timeout_s: "${NOT_SET_HERE}"}\n',
    'tools: {mcpServers: [{name: odd, command: run, args: ["${NOT_SET_HERE}"]}]}\n',
]


@pytest.mark.parametrize("source", UNSET)
async def test_an_unset_variable_takes_out_its_own_source_and_nothing_else(config: Any, source: str) -> None:
    async with Toolbox.open(config(source)) as box:
        good, odd = box.report
        outcome = await box.call("good.add", {"a": 1, "b": 2})
        refused = await box.call("odd.anything")
        problems = list(box.problems)
    assert (good.ok, odd.ok, outcome.status) == (True, False, "completed")
    assert "environment variable is not set: NOT_SET_HERE" in str(odd.error)
    assert [one for one in problems if "source 'odd' is skipped" in one and "NOT_SET_HERE" in one]
    assert isinstance(refused, Failed)
    assert (refused.error.error_code, refused.error.is_retryable) == ("source_down", False)


@pytest.mark.parametrize("source", UNSET)
async def test_a_source_that_is_switched_off_needs_no_variable(config: Any, source: str) -> None:
    async with Toolbox.open(config(source.replace("name: odd", "name: odd, enabled: false"))) as box:
        assert [state.name for state in box.report] == ["good"]
        assert not [one for one in box.problems if "odd" in one]


@pytest.mark.parametrize(
    ("source", "more"),
    [
        ('  - {name: odd, transport: mcp, connection: "${NOT_SET_HERE}", required: true}\n', ""),
        ('  - {name: "${NOT_SET_HERE}", transport: mcp, connection: run}\n', ""),
        ("", 'tools: {webSearch: {provider: brave, apiKey: "${NOT_SET_HERE}"}}\n'),
    ],
)
async def test_elsewhere_an_unset_variable_stops_the_start(config: Any, source: str, more: str) -> None:
    with pytest.raises(ConfigError, match="NOT_SET_HERE"):
        async with Toolbox.open(config(source, more=more)):
            pass


async def test_the_file_of_variables_beside_the_configuration_is_read(
    config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_BOTH", "of-the-environment")
    (tmp_path / ".env").write_text("NOT_SET_HERE=of-the-file\nFROM_BOTH=of-the-file\n")
    source = '  - {name: odd, transport: cli, connection: x, env: {A: "${NOT_SET_HERE}", B: "${FROM_BOTH}"}}\n'
    loaded = load_settings(config(source))
    async with Toolbox.open(loaded) as box:
        told = box.redactor.redact("it said of-the-file")
    assert loaded.settings.sources[1].env == {"A": "of-the-file", "B": "of-the-environment"}
    assert told == "it said [redacted]"


WRITTEN = r"""
# a comment
PLAIN=one two  # said beside it
export SHOUTED = "a\nb \"c\" # d"   # more
SINGLE='a\nb $X'
EMPTY=
no setting at all
PLAIN_HASH=a#b
"""


def test_a_file_of_variables_is_read_as_such_files_are_written() -> None:
    assert parse_env(WRITTEN) == {
        "PLAIN": "one two",
        "SHOUTED": 'a\nb "c" # d',
        "SINGLE": r"a\nb $X",
        "EMPTY": "",
        "PLAIN_HASH": "a#b",
    }


@pytest.mark.programs
async def test_a_command_is_started_with_the_variables_of_its_own_file(config: Any, tmp_path: Path) -> None:
    (tmp_path / "keys.env").write_text("KEY=s3cret-of-the-file\nMINE=1\n")
    shown = (
        "{name: sh, transport: cli, connection: env, env_file: keys.env, env: {MINE: own}, options: {tools: {all: {}}}}"
    )
    async with Toolbox.open(config(f"  - {shown}\n")) as box:
        outcome = await box.call("sh.all")
        told = str(await box.events())
    seen = str(getattr(outcome, "content", ""))
    assert "MINE=own" in seen
    assert "KEY=" in seen
    assert "s3cret-of-the-file" not in told


KEYED: dict[str, Any] = {"webSearch": {"provider": "brave", "apiKey": "${SEARCH_KEY}"}}
SEARCH_KEY = "brave-0123456789"


@pytest.mark.parametrize("form", ["mapping", "object", "chain"])
async def test_a_variable_in_settings_of_code_is_substituted(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_KEY", SEARCH_KEY)
    async with Site(reply(200, b"{}", content_type="application/json")) as there:
        link = {**KEYED["webSearch"], "url": there.url}
        tools = {"webSearch": {"chain": [link]} if form == "chain" else link}
        facts = {"data_dir": None, "policy": "exploratory", "tools": tools}
        settings: Any = facts if form == "mapping" else PatientSettings.model_validate(facts)
        async with Toolbox(settings=settings, builtins=["web_search"]) as box:
            await box.call("web_search", {"query": "tea"})
            assert SEARCH_KEY not in box.redactor.text(f"the key is {SEARCH_KEY}")
    assert there.last.all("x-subscription-token") == [SEARCH_KEY]


@pytest.mark.parametrize("form", [dict, Settings.model_validate])
def test_a_variable_in_settings_of_code_that_is_not_set_is_refused(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEARCH_KEY", raising=False)
    facts = {"data_dir": None, "tools": KEYED}
    said = r"environment variables are not set: SEARCH_KEY \(at tools.web_search.api_key\)"
    with pytest.raises(ConfigError, match=said):
        Toolbox(settings=form(facts))
    with pytest.raises(ConfigError, match=said):
        ReactPlanner(catalog=[], llm=ScriptedModel(), settings=form(facts))


def test_two_dollar_signs_mean_the_text_itself() -> None:
    made = Toolbox(settings={"data_dir": None, "tools": {"webSearch": {"provider": "brave", "apiKey": "$${A}"}}})
    assert made.settings.tools.web_search.api_key is not None
    assert made.settings.tools.web_search.api_key.get_secret_value() == "${A}"


async def test_a_variable_anywhere_in_a_source_of_code_is_substituted_or_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHOP_KEY", "shop-0123456789")
    async with Site(reply(200, b"{}", content_type="application/json")) as there:
        document = {
            "openapi": "3.1.0",
            "info": {"title": "shop", "version": "1"},
            "servers": [{"url": there.url}],
            "paths": {
                "/look": {
                    "get": {
                        "operationId": "look",
                        "parameters": [{"name": "key", "in": "query", "schema": {"type": "string"}}],
                        "responses": {"200": {"description": "done"}},
                    }
                }
            },
        }
        (tmp_path / "shop.json").write_text(json.dumps(document))
        source = {"name": "shop", "transport": "http", "connection": str(tmp_path / "shop.json")}
        fixed = {"look": {"fix": {"key": "${SHOP_KEY}"}}}
        unset = {**source, "name": "odd", "overrides": {"look": {"fix": {"key": "${NOT_SET_HERE}"}}}}
        settings = PatientSettings.model_validate(
            {"data_dir": None, "sources": [{**source, "overrides": fixed}, unset]}
        )
        async with Toolbox(settings=settings) as box:
            await box.wait_for_sources()
            await box.call("shop.look")
            good, odd = box.report
    assert there.last.path == "/look?key=shop-0123456789"
    assert "NOT_SET_HERE" in str(odd.error)
    assert good.ok
