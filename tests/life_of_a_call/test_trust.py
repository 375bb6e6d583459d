"""What a server says of its own tools: it makes calls stricter, and looser only where the operator trusts it."""

from itertools import product
from typing import Any

import pytest
from fastmcp import FastMCP

from tests.patient_settings import PatientSettings
from toolpost import (
    Completed,
    ExternalToolConfig,
    MCPManager,
    Paused,
    Toolbox,
    ToolNode,
    ToolRegistry,
)
from toolpost.configuration.loading import load_settings

HINTS = list(product((None, True, False), (None, True, False)))  # readOnlyHint, destructiveHint
POLICIES = ["exploratory", "standard", "regulated", "audit"]


def server(*hints: tuple[bool | None, bool | None], **more: bool) -> FastMCP[Any]:
    """A server with a tool for each pair of hints."""
    made: FastMCP[Any] = FastMCP("srv")
    for read_only, destructive in hints:
        given = {"readOnlyHint": read_only, "destructiveHint": destructive, **more}
        claimed = {name: hint for name, hint in given.items() if hint is not None}
        made.tool(lambda: "done", name=_name(read_only, destructive), annotations=claimed)
    return made


def _name(read_only: bool | None, destructive: bool | None) -> str:
    return f"read_{read_only}_destroy_{destructive}"


def box(made: FastMCP[Any], policy: Any, **options: Any) -> Any:
    source = ExternalToolConfig(name="srv", transport="mcp", connection="memory:server", **options)
    settings = PatientSettings(data_dir=None, builtins="none", policy=policy, sources=[source])
    return Toolbox(settings=settings, servers={"srv": made})


async def unasked(made: FastMCP[Any], policy: Any, **options: Any) -> set[tuple[bool | None, bool | None]]:
    """The hints with which a call ran although nobody was asked."""
    async with box(made, policy, **options) as opened:
        outcomes = {hints: await opened.call(f"srv.{_name(*hints)}") for hints in HINTS}
    assert {type(outcome) for outcome in outcomes.values()} <= {Completed, Paused}
    return {hints for hints, outcome in outcomes.items() if isinstance(outcome, Completed)}


@pytest.mark.parametrize("policy", POLICIES)
async def test_no_hint_of_a_server_that_is_not_trusted_lets_a_call_run_unasked(policy: str) -> None:
    ran = await unasked(server(*HINTS, idempotentHint=True, openWorldHint=False), policy)
    assert ran == (set(HINTS) if policy == "exploratory" else set())


@pytest.mark.parametrize("policy", POLICIES)
async def test_the_hints_of_a_trusted_server_count_and_contradictory_ones_are_destructive(policy: str) -> None:
    ran = await unasked(server(*HINTS), policy, trust=True)
    reads = {(True, None), (True, False)}
    harmless = {*reads, (None, False), (False, False)}
    assert ran == {"exploratory": {*HINTS}, "standard": harmless, "regulated": reads, "audit": set()}[policy]


@pytest.mark.parametrize(
    ("hints", "reason"),
    [
        ((True, None), "only its own source, which is not trusted, says that it is harmless"),
        ((None, False), "only its own source, which is not trusted, says that it is harmless"),
        ((None, None), "its effects are not declared"),
        ((True, True), "it is marked destructive"),
    ],
)
async def test_the_question_says_whose_word_does_not_count(hints: tuple[bool | None, bool | None], reason: str) -> None:
    async with box(server(hints), "standard") as opened:
        asked = await opened.call(f"srv.{_name(*hints)}")
    assert isinstance(asked, Paused)
    assert asked.question.prompt.endswith(f"Approval is required: {reason}.")


@pytest.mark.parametrize("trust", [True, False])
async def test_a_tool_that_reads_only_and_destroys_is_destructive_and_never_repeated(trust: bool) -> None:
    async with box(server((True, True), idempotentHint=True), "standard", trust=trust) as opened:
        spec = opened.registry.find(f"srv.{_name(True, True)}").spec
    assert (spec.side_effects, spec.replay, spec.safety.destructive) == ("external", "unsafe", True)


async def test_what_the_operator_says_of_a_tool_wins_over_what_its_server_says() -> None:
    named = _name(True, True)
    harmless = {named: {"side_effects": "read", "destructive": False}}
    async with box(server((True, True)), "standard", overrides=harmless) as opened:
        outcome = await opened.call(f"srv.{named}")
    assert outcome.content == "done"


async def test_a_node_believes_a_server_only_where_it_is_trusted() -> None:
    found = {}
    for trust in (True, False):
        config = ExternalToolConfig(name="srv", transport="mcp", connection="memory:server", trust=trust)
        async with ToolNode(config, ToolRegistry(), server=server((True, None))) as node:
            found[trust] = node.get_tools()[0].spec.replay
    assert found == {True: "idempotent", False: "unsafe"}


async def test_a_manager_believes_a_server_only_where_it_is_trusted() -> None:
    manager = MCPManager()
    hub = "memory:tests.life_of_a_call.test_trust:HUB"
    shut, believed = (
        ExternalToolConfig(name=name, transport="mcp", connection=hub, trust=trust)
        for name, trust in (("shut", False), ("believed", True))
    )
    await manager.connect_all([shut, believed])
    found = {name: manager.list_tools(name)[0].spec.side_effects for name in ("shut", "believed")}
    await manager.disconnect_all()
    assert found == {"shut": "external", "believed": "read"}


def test_trust_is_one_word_in_a_file_for_both_ways_to_write_a_server(tmp_path: Any) -> None:
    (tmp_path / "toolpost.yaml").write_text(
        "sources: [{name: a, transport: mcp, connection: run, trust: true}]\n"
        "tools: {mcpServers: [{name: b, command: run, trust: true}, {name: c, command: run}]}\n"
    )
    loaded = load_settings(tmp_path / "toolpost.yaml")
    assert [source.trust for source in loaded.settings.all_sources()] == [True, True, False]


HUB = server((True, None))
