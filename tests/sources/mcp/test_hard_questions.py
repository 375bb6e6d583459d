"""Questions of servers when something else goes wrong: nobody answers for another, and nothing happens twice."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.patient_settings import PatientSettings
from tests.sources.mcp.programs import inquirer, until
from tests.sources.mcp.rogues import answering, config_by, rogue_by, tool
from toolpost import Failed, Toolbox, ToolContext
from toolpost.errors import PauseSignal, ToolClientError, ToolOutputError

pytestmark = pytest.mark.programs

ME = "local:ann"


def toolbox(*sources: Any, folder: Path | None = None) -> Any:
    return Toolbox(settings=PatientSettings(data_dir=folder, policy="exploratory", sources=list(sources)))


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_a_person_who_will_not_visit_the_page_ends_the_call(tmp_path: Path, protocol: str) -> None:
    ledger = tmp_path / "ledger"
    async with toolbox(inquirer(protocol=protocol, env={"LEDGER": str(ledger)})) as box:
        asked = await box.call("srv.toll", {}, user=ME)
        outcome = await box.deny(asked.pending_id, by=ME)
    assert isinstance(outcome, Failed)
    assert lines(ledger) == []


async def test_an_answer_counts_for_the_very_question_that_was_asked(tmp_path: Path) -> None:
    ledger, data = tmp_path / "ledger", tmp_path / "data"
    given = {"LEDGER": str(ledger), "SAFE": "1"}
    before, after = (
        inquirer(protocol="legacy", env={**given, "VICTIM": victim}).model_copy(update={"trust": True})
        for victim in ("draft", "everything")
    )
    async with toolbox(before, folder=data) as box:
        asked = await box.call("srv.delete", {}, user=ME)
    async with toolbox(after, folder=data) as box:
        again = await box.answer(asked.pending_id, {}, by=ME)
    assert again.question.prompt == "srv asks: Delete everything?"
    assert "everything: accept" not in lines(ledger)


async def test_a_call_that_was_given_up_cannot_ask_someone_else(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with toolbox(inquirer(protocol="legacy", env={"LEDGER": str(ledger)})) as box:
        bob = await box.call("srv.nag", {}, user="local:bob", timeout_s=1)
        ann = await box.call("srv.idle", {}, user=ME)
    assert isinstance(bob, Failed)
    assert ann.content == "waited"
    assert lines(ledger) == ["nagged: cancel"]


async def test_leave_to_run_again_counts_once(tmp_path: Path) -> None:
    source, data = inquirer(protocol="legacy"), tmp_path / "data"
    async with toolbox(source, folder=data) as box:
        asked = await box.call("srv.book", {}, user=ME)
    async with toolbox(source, folder=data) as box:
        unknown = await box.answer(asked.pending_id, {"name": "Bo"}, by=ME)
        seat = await box.answer(unknown.pending_id, by=ME, decision="rerun")
    async with toolbox(source, folder=data) as box:
        again = await box.answer(seat.pending_id, {"seat": "aisle"}, by=ME)
    assert (unknown.question.kind, seat.question.prompt) == ("unknown", "srv asks: Which seat?")
    assert again.question.kind == "unknown"


async def test_a_held_call_that_is_cancelled_is_cancelled_at_the_server(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with toolbox(inquirer(protocol="legacy", env={"LEDGER": str(ledger)})) as box:
        asked = await box.call("srv.book", {}, user=ME)
        await box.cancel(asked.run_id, by=ME)
        await until(lambda: lines(ledger) == ["cancelled"])
        other = await box.call("srv.visit", {}, user="local:bob", timeout_s=20)
    assert other.status == "completed"


@pytest.mark.parametrize("refusal", [{"status": 404}, {"status": 400, "body": "unknown session label"}])
async def test_a_refusal_that_only_sounds_like_a_lost_session_is_not_repeated(
    tmp_path: Path, refusal: dict[str, Any]
) -> None:
    refuse = [{**refusal, "method": "tools/call"}]
    with rogue_by("http-legacy-json", tmp_path, tool("pay"), refuse=refuse) as rogue:
        async with toolbox(config_by("http-legacy-json", rogue)) as box:
            outcome = await box.call("srv.pay")
    assert isinstance(outcome.error, ToolClientError)
    assert len(rogue.calls("pay")) == 1


async def test_a_result_of_a_kind_that_no_one_knows_is_no_success(tmp_path: Path) -> None:
    odd = answering("odd", {"resultType": "failed", "content": []})
    with rogue_by("stdio-modern", tmp_path, odd) as rogue:
        async with toolbox(config_by("stdio-modern", rogue)) as box:
            outcome = await box.call("srv.odd")
    assert isinstance(outcome.error, ToolOutputError)


async def test_text_that_is_almost_json_stays_text(tmp_path: Path) -> None:
    odd = answering("odd", {"content": [{"type": "text", "text": '{"a": NaN}'}]})
    with rogue_by("stdio-legacy", tmp_path, odd) as rogue:
        async with toolbox(config_by("stdio-legacy", rogue)) as box:
            outcome = await box.call("srv.odd")
    assert outcome.content == '{"a": NaN}'


async def test_tools_that_break_and_recover_come_back(tmp_path: Path) -> None:
    with rogue_by("stdio-legacy", tmp_path, tool("echo"), tool("other")) as rogue:
        async with toolbox(config_by("stdio-legacy", rogue, options={"poll_s": 1})) as box:
            rogue.plan(tools=[tool("echo", {"type": "nonsense"}), tool("other")])
            await until(lambda: not box.registry.has("srv.echo"))
            rogue.plan(tools=[tool("echo", {"type": "object", "title": "mended"}), tool("other")])
            await until(lambda: box.registry.has("srv.echo"))
            outcome = await box.call("srv.echo")
    assert outcome.status == "completed"


async def test_two_calls_of_one_person_are_each_answered(tmp_path: Path) -> None:
    async with toolbox(inquirer(protocol="legacy")) as box:
        first, second = await asyncio.gather(*(box.call("srv.book", {}, user=ME, run_id=f"run_{n}") for n in range(2)))
        answered = [await box.answer(one.pending_id, {"name": "Bo"}, by=ME) for one in (first, second)]
    assert [one.question.prompt for one in answered] == ["srv asks: Which seat?"] * 2


async def test_a_tool_that_is_run_without_a_router_is_not_held_for_an_answer(tmp_path: Path) -> None:
    ledger, params = tmp_path / "ledger", dict[str, Any]()
    async with toolbox(inquirer(protocol="legacy", env={"LEDGER": str(ledger)})) as box:
        book = box.registry.find("srv.book").tool
        for _ in range(2):
            with pytest.raises(PauseSignal):
                await book.execute(params, ToolContext())
        await until(lambda: lines(ledger) == ["cancelled", "cancelled"])
