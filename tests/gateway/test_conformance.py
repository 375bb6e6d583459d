"""The official suite's scenarios of servers: a fixture directly, and behind the gateway, with old and new servers.

`make conformance` runs all of them.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from conformance import runner
from conformance.fixture import serving_fixture, serving_gateway

pytestmark = pytest.mark.programs

DIRECTLY = ["server-session-lifecycle", "http-header-validation", "server-sse-polling"]
THROUGH = [
    "server-stateless",
    "tools-call-with-logging",
    "tools-call-with-progress",
    "json-schema-2020-12",
    "prompts-get-embedded-resource",
    "resources-unsubscribe",
    "tasks-mrtr-input",
    "tasks-mrtr-composition",
    "input-required-result-multiple-input-requests",
    "input-required-result-non-tool-request",
    "input-required-result-tampered-state",
]
BEFORE_AN_OLD_SERVER = [
    "tools-call-sampling",
    "tools-call-elicitation",
    "resources-templates-read",
    "completion-complete",
    "input-required-result-basic-sampling",
]


async def passes(name: str, url: str) -> None:
    result = await runner.run_server_scenario(name, url)
    assert (result.verdict, result.passed) == ("passed", result.checks), result.trouble


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def test_a_server_with_our_parts_passes(stack: AsyncExitStack) -> None:
    url = await stack.enter_async_context(serving_fixture())
    for name in DIRECTLY:
        await passes(name, url)


@pytest.mark.req("FUT-01", "FUT-02")
async def test_a_server_behind_the_gateway_passes(stack: AsyncExitStack) -> None:
    url = await stack.enter_async_context(serving_fixture())
    front = await stack.enter_async_context(serving_gateway(url))
    for name in THROUGH:
        await passes(name, front)


async def test_a_server_of_the_older_protocol_behind_the_gateway_passes(stack: AsyncExitStack) -> None:
    url = await stack.enter_async_context(serving_fixture())
    front = await stack.enter_async_context(serving_gateway(url, protocol="legacy"))
    for name in BEFORE_AN_OLD_SERVER:
        await passes(name, front)


async def test_all_scenarios_of_servers_are_known_and_none_is_expected_to_fail() -> None:
    names = await runner.list_scenarios("server")
    direct, through = (runner.Expected.read(subject) for subject in ("server", "gateway"))

    assert (len(names), direct.failing, through.failing) == (65, {}, {})
    assert {*DIRECTLY, *THROUGH, *BEFORE_AN_OLD_SERVER, *direct.skipped, *through.skipped} <= set(names)


async def test_a_server_that_is_not_there_fails() -> None:
    async with asyncio.timeout(60):
        result = await runner.run_server_scenario("ping", "http://127.0.0.1:9/mcp")

    assert result.verdict == "failed"
    assert runner.summary([result], "gateway") == "mcp server through the gateway: 0 of 1"
