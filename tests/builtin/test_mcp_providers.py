"""Tools of real MCP servers in the place of providers: whatever shape they answer in, and however they fail."""

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import parts, warm
from tests.builtin.recorded import KEY, recorded
from tests.patient_settings import PatientSettings
from tests.wire.site import Site
from toolpost import Toolbox
from toolpost.configuration.settings import Settings
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.events import EventCode, StoredEvent
from toolpost.contracts.outcomes import Completed, Failed, Outcome

pytestmark = pytest.mark.programs

LIBRARIAN = Path(__file__).with_name("librarian.py")
PAIR = ["https://tea.example/", "https://pots.example/"]


@pytest.fixture(scope="module")
def library() -> Iterator[str]:
    """The address of one server for all tests that leave it standing."""
    with warm.served(LIBRARIAN, "web") as url:
        yield url


def settings(connection: str, tools: dict[str, Any], **more: Any) -> Settings:
    source: dict[str, Any] = {"name": "library", "transport": "mcp", "connection": connection, "connect_timeout_s": 60}
    source |= {"trust": True, "retry_policy": {"max_attempts": 1}}
    facts = {"data_dir": None, "builtins": ["web_search", "web_fetch", "artifact_read"], "sources": [source]}
    return PatientSettings.model_validate({**facts, "tools": tools, **more})


def link(tool: str, **facts: Any) -> dict[str, Any]:
    return {"provider": "mcp", "tool": f"library.{tool}", "timeoutS": 60, **facts}


async def searched(connection: str, *links: dict[str, Any], **more: Any) -> tuple[Outcome, list[StoredEvent]]:
    async with Toolbox(settings=settings(connection, {"webSearch": {"chain": [*links]}}, **more)) as box:
        outcome = await box.call("web_search", {"query": "tea", "limit": 3}, run_id="r1", timeout_s=100)
        return outcome, await box.events(run_id="r1")


@pytest.mark.req("NPRV-02", "NPRV-03", "FUT-15")
@pytest.mark.parametrize("tool", ["search", "search_documents", "search_words"])
async def test_a_server_is_read_whatever_shape_it_answers_in(library: str, tool: str) -> None:
    outcome, events = await searched(library, link(tool))

    assert isinstance(outcome, Completed)
    assert [one["url"] for one in outcome.content["results"]] == PAIR
    assert [one["title"] for one in outcome.content["results"]] == ["Tea & time", "Pots"]
    assert outcome.content["results"][0]["content"] == "All about tea, the leaf that wasn't picked"
    assert {event.payload["tool_name"] for event in events} == {"web_search", f"library.{tool}"}
    assert outcome.meta["origin"] == f"library.{tool}"


async def test_a_server_learns_how_many_are_wanted_by_the_name_that_it_has_for_it(library: str) -> None:
    outcome, _ = await searched(library, link("search", arguments={"count": "max_results"}))

    assert isinstance(outcome, Completed)
    assert len(outcome.content["results"]) == 3


@pytest.mark.req("FUT-15")
@pytest.mark.parametrize(
    ("tool", "facts", "code"),
    [
        ("missing", {}, "tool_not_found"),
        ("odd", {}, "answer_unreadable"),
        ("empty", {}, "answer_unreadable"),
        ("broken", {}, "tool_reported_error"),
        ("slow", {"timeoutS": 0.5}, "timeout"),
        ("search", {"arguments": {"query": "q"}}, "validation_failed"),
        ("burn", {}, "provider_paused"),
    ],
)
async def test_a_server_that_fails_is_passed_over_and_that_is_an_event(
    library: str, tool: str, facts: dict[str, Any], code: str
) -> None:
    async with Site(answer=recorded("brave/found")) as there:
        brave = {"provider": "brave", "apiKey": KEY, "url": there.url}
        outcome, events = await searched(library, link(tool, **facts), brave)

    assert isinstance(outcome, Completed)
    assert (outcome.content["provider"], [one["url"] for one in outcome.content["results"]]) == ("brave", PAIR)
    fallen = [event.payload for event in events if event.code is EventCode.FALLBACK_USED]
    assert [(one["provider"], one["next"], one["error_code"]) for one in fallen] == [(f"library.{tool}", "brave", code)]


@pytest.mark.parametrize(
    ("start", "tool", "code"),
    [
        (lambda: warm.command(LIBRARIAN), "gone", "connection_failed"),
        (lambda: [sys.executable, "-c", "raise SystemExit(1)"], "search", "source_down"),
    ],
    ids=["ends in the middle", "never starts"],
)
async def test_a_server_that_is_gone_is_passed_over(start: Callable[[], list[str]], tool: str, code: str) -> None:
    async with Site(answer=recorded("brave/found")) as there:
        brave = {"provider": "brave", "apiKey": KEY, "url": there.url}
        outcome, events = await searched(shlex.join(start()), link(tool), brave)

    assert isinstance(outcome, Completed)
    assert outcome.content["provider"] == "brave"
    fallen = [event.payload for event in events if event.code is EventCode.FALLBACK_USED]
    assert [(one["next"], one["error_code"]) for one in fallen] == [("brave", code)]


async def test_a_tool_that_a_rule_forbids_stops_no_chain(library: str) -> None:
    rules = [{"tools": ["library.search"], "action": "deny"}, {"tools": ["*"], "action": "allow"}]
    refused, _ = await searched(library, link("search"), policy=rules)
    outcome, _ = await searched(library, link("search"), link("search_words"), policy=rules)

    assert isinstance(refused, Failed)
    assert refused.error.error_code == "provider_refused"
    assert isinstance(outcome, Completed)
    assert outcome.content["provider"] == "library.search_words"


@pytest.mark.req("NPRV-01", "FUT-15")
async def test_a_server_reads_pages_and_long_ones_whole(library: str) -> None:
    network, chain = {"allow_ip_literals": True}, [link("fetch")]  # a name would have to be looked up
    async with Toolbox(settings=settings(library, {"webFetch": {"chain": chain}}, network=network)) as box:
        outcome = await box.call("web_fetch", {"url": "https://93.184.215.14/", "offset": 79_900}, timeout_s=100)

    assert isinstance(outcome, Completed)
    assert outcome.content["content"].endswith("tea the end")
    assert (outcome.content["next_offset"], outcome.content["provider"]) == (None, "library.fetch")


@pytest.mark.req("DEF-13")
async def test_a_server_is_not_handed_an_address_that_the_guard_refuses(library: str) -> None:
    async with Toolbox(settings=settings(library, {"webFetch": {"chain": [link("fetch")]}})) as box:
        outcome = await box.call("web_fetch", {"url": "http://169.254.169.254/latest/"}, run_id="r1")
        events = await box.events(run_id="r1")

    assert isinstance(outcome, Failed)
    assert str(outcome.error).startswith("Permission denied: ")
    assert {event.payload.get("tool_name") for event in events} == {"web_fetch"}


@pytest.mark.req("NPRV-02", "FUT-15")
async def test_a_server_that_others_wrote_is_a_store(tmp_path: Path) -> None:
    graph = {"env": {"MEMORY_FILE_PATH": str(tmp_path / "graph.jsonl")}, "name": "graph", "transport": "mcp"}
    tools = {"retrieval": {"chain": [{"provider": "mcp", "tool": "graph.search_nodes", "timeoutS": 60}]}}
    facts = {"data_dir": None, "policy": "exploratory", "builtins": ["retrieve"], "tools": tools}
    source = {**graph, "connection": parts.memory(), "connect_timeout_s": 60}
    known = {"name": "Sencha", "entityType": "tea", "observations": ["Steep at 80 °C.", "Two minutes."]}
    async with Toolbox(settings=PatientSettings.model_validate({**facts, "sources": [source]})) as box:
        made = await box.call("graph.create_entities", {"entities": [known]})
        outcome = await box.call("retrieve", {"query": "Sencha"}, timeout_s=100)

    assert isinstance(made, Completed)
    assert isinstance(outcome, Completed)
    (chunk,) = outcome.content["chunks"]
    assert (chunk["id"], chunk["text"]) == ("Sencha", "Steep at 80 °C.\nTwo minutes.")
    assert outcome.meta["trust"] == "untrusted"


@pytest.mark.parametrize("tool", ["web_search", "web_fetch", "retrieve"])
async def test_a_tool_that_asks_providers_is_none_itself(tool: str) -> None:
    own = Settings.model_validate(
        {"data_dir": None, "builtins": "all", "tools": {"webSearch": {"chain": [{"provider": "mcp", "tool": tool}]}}}
    )
    with pytest.raises(ConfigError, match="uses providers itself"):
        async with Toolbox(settings=own):
            pass
