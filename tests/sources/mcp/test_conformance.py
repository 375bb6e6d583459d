"""The official suite's scenarios against our client: all without a sign-in, and of those with one some of each kind.

`make conformance` runs all of them.
"""

import shlex

import pytest

from conformance import runner
from tests import warm

pytestmark = pytest.mark.programs

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
SIGN_INS = [
    "auth/metadata-default",
    "auth/basic-cimd",
    "auth/scope-step-up",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/authorization-server-migration",
    "auth/client-credentials-jwt",
    "auth/enterprise-managed-authorization",
    "auth/dpop-nonce",
    "auth/wif-jwt-bearer",
]
REFUSALS = {
    "auth/scope-retry-limit": "which was requested but not granted",
    "auth/resource-mismatch": "is for another resource",
    "auth/iss-wrong-issuer": "The callback is not from",
    "auth/metadata-issuer-mismatch": "names another issuer",
}
OF_BOTH_ERAS = ["tools_call", "json-schema-2020-12-preservation"]


def client() -> str:
    """Our client, which has imported everything already."""
    return f"exec {shlex.join(warm.command(runner.HERE / 'driver.py'))}"


@pytest.mark.parametrize("name", [*SCENARIOS, *SIGN_INS])
async def test_our_client_passes(name: str) -> None:
    result = await runner.run_scenario(name, client=client())
    assert (result.verdict, result.passed) == ("passed", result.checks), result.trouble


@pytest.mark.parametrize(("name", "reason"), REFUSALS.items(), ids=REFUSALS)
async def test_our_client_refuses_a_server_that_is_not_as_it_must_be(name: str, reason: str) -> None:
    result = await runner.run_scenario(name, client=client())
    assert (result.verdict, result.passed) == ("passed", result.checks), result.trouble
    assert reason in result.output  # the suite would also be content with a client that fell over


@pytest.mark.parametrize("name", OF_BOTH_ERAS)
async def test_our_client_passes_in_the_stateless_protocol_too(name: str) -> None:
    result = await runner.run_scenario(name, client=client(), spec_version="2026-07-28")
    assert (result.verdict, result.passed) == ("passed", result.checks), result.trouble


async def test_a_client_that_does_nothing_fails() -> None:
    result = await runner.run_scenario("tools_call", client="exec true")
    assert (result.verdict, result.passed) == ("failed", 0)


async def test_all_scenarios_are_known_here_and_none_is_expected_to_fail() -> None:
    names = await runner.list_scenarios()
    expected = runner.Expected.read("client")
    skipped = [name for name in names if name in expected.skipped]
    assert (len(names), len(skipped), expected.failing) == (48, 4, {})
    assert [name for name in names if not name.startswith("auth/") and name not in skipped] == SCENARIOS
    assert {*SIGN_INS, *REFUSALS} < set(names)


async def test_a_scenario_that_the_suite_skips_is_not_taken_for_a_passed_one() -> None:
    result = await runner.run_scenario("sep-2640-client-no-prefetch", client=client())
    assert (result.verdict, result.passed, result.checks) == ("skipped", 0, 0)
    assert "OVERALL: PASSED" in result.output


def test_news_is_reported_and_the_last_line_says_what_the_count_is_worth() -> None:
    expected = runner.Expected(failing={"auth/dpop": "to come"}, skipped={"sep-2640-client-no-prefetch": "skills"})
    passed = runner.Result(scenario="auth/dpop", verdict="passed", passed=1, checks=1)
    failed = runner.Result(scenario="initialize", verdict="failed", checks=1, output="no handshake")
    idle = runner.Result(scenario="sep-2640-client-no-prefetch", verdict="skipped")
    odd = runner.Result(scenario="auth/iss-supported", verdict="skipped")

    assert runner.surprises([passed, failed, idle, odd], expected) == [
        "auth/dpop passes now: take it out of conformance/expected.toml",
        "initialize failed:\nno handshake",
        "auth/iss-supported was skipped by the suite: find out why, and write it into conformance/expected.toml",
    ]
    assert runner.summary([passed, failed]) == "mcp client: 1 of 2"
    assert runner.summary([passed, idle]) == (
        "mcp client: 2 of 2 (1 of them with nothing but skipped checks: sep-2640-client-no-prefetch)"
    )
