"""The official suite's scenarios that need no sign-in, against our client; `make conformance` runs all of them."""

import pytest

from conformance import runner

SCENARIOS = [
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "request-metadata",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
]
OF_BOTH_ERAS = ["tools_call", "json-schema-2020-12-preservation"]


@pytest.mark.parametrize("name", SCENARIOS)
async def test_our_client_passes(name: str) -> None:
    result = await runner.run_scenario(name)
    assert (result.verdict, result.passed) == ("passed", result.checks), result.trouble


@pytest.mark.parametrize("name", OF_BOTH_ERAS)
async def test_our_client_passes_in_the_stateless_protocol_too(name: str) -> None:
    result = await runner.run_scenario(name, spec_version="2026-07-28")
    assert (result.verdict, result.passed) == ("passed", result.checks), result.trouble


async def test_a_client_that_does_nothing_fails() -> None:
    result = await runner.run_scenario("tools_call", client="exec true")
    assert (result.verdict, result.passed) == ("failed", 0)


async def test_the_scenarios_without_sign_in_are_all_known_here() -> None:
    names = await runner.list_scenarios()
    skills = [name for name in names if name.startswith("sep-2640-")]  # an extension that is no concern of tools
    assert len(names) == 48
    assert [name for name in names if not name.startswith("auth/") and name not in skills] == SCENARIOS


def test_what_is_expected_to_fail_has_a_reason_and_news_is_told() -> None:
    expected = {"auth/dpop": "to come"}
    passed = runner.Result(scenario="auth/dpop", verdict="passed", passed=1, checks=1)
    failed = runner.Result(scenario="initialize", verdict="failed", checks=1, trouble="no handshake")
    idle = runner.Result(scenario="sep-2640-client-no-prefetch", verdict="not applicable")

    assert all(runner.expected_failures().values())
    assert runner.surprises([passed, failed, idle], expected) == [
        "auth/dpop passes now: take it out of conformance/expected.toml",
        "initialize failed:\nno handshake",
    ]
    assert runner.summary([passed, failed]) == "mcp client: 1 of 2"
    assert (
        runner.summary([passed, failed, idle]) == "mcp client: 1 of 3 (1 not applicable: sep-2640-client-no-prefetch)"
    )
