"""Servers that ask back: a person, the chat model, or for the folders they may know of."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.patient_settings import PatientSettings
from tests.sources.mcp.programs import inquirer
from toolpost import Completed, Failed, Paused, Toolbox
from toolpost.cli import main
from toolpost.errors import ToolClientError, ToolValidationError

pytestmark = pytest.mark.programs

ME = "local:ann"
ERAS = pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])


def toolbox(*sources: Any, folder: Path | None = None, **given: Any) -> Any:
    return Toolbox(settings=PatientSettings(data_dir=folder, policy="exploratory", sources=list(sources)), **given)


@ERAS
async def test_a_persons_answers_reach_the_server_one_after_the_other(protocol: str) -> None:
    async with toolbox(inquirer(protocol=protocol)) as box:
        first = await box.call("srv.book", {}, user=ME)
        second = await box.answer(first.pending_id, {"name": "Bo"}, by=ME)
        done = await box.answer(second.pending_id, {"seat": "aisle"}, by=ME)
    assert isinstance(first, Paused)
    assert first.question.prompt == "srv asks: Who travels?"
    assert second.question.prompt == "srv asks: Which seat?"
    assert done.content == {"who": {"name": "Bo", "guests": 2}, "seat": {"seat": "aisle"}}


@ERAS
async def test_calls_at_once_whose_server_asks_the_same_wait_for_one_answer(protocol: str) -> None:
    async with toolbox(inquirer(protocol=protocol)) as box:
        pauses = await asyncio.gather(*(box.call("srv.book", {}, user=ME) for _ in range(3)))
        later = await box.call("srv.book", {}, user=ME)
        waiting = await box.pending.list(by=ME)
        second = await box.answer(waiting[0].id, {"name": "Bo"}, by=ME)
        done = await box.answer(second.pending_id, {"seat": "aisle"}, by=ME)
    assert [pause.pending_id for pause in (*pauses, later)] == [waiting[0].id] * 4
    assert len(waiting) == 1
    assert done.content["who"]["name"] == "Bo"


@ERAS
async def test_an_answer_that_does_not_fit_can_be_given_again(protocol: str) -> None:
    async with toolbox(inquirer(protocol=protocol)) as box:
        asked = await box.call("srv.book", {}, user=ME)
        with pytest.raises(ToolValidationError, match="name"):
            await box.answer(asked.pending_id, {"name": 5}, by=ME)
        again = await box.answer(asked.pending_id, {"name": "Bo", "guests": 3}, by=ME)
    assert isinstance(again, Paused)


@ERAS
async def test_a_persons_no_is_reported_to_the_server(protocol: str) -> None:
    async with toolbox(inquirer(protocol=protocol)) as box:
        asked = await box.call("srv.book", {}, user=ME)
        outcome = await box.deny(asked.pending_id, by=ME)
    assert outcome.content == "no booking: decline"


@ERAS
async def test_a_person_is_sent_to_a_web_page(protocol: str) -> None:
    async with toolbox(inquirer(protocol=protocol)) as box:
        asked = await box.call("srv.visit", {}, user=ME)
        done = await box.answer(asked.pending_id, by=ME)
    [request] = asked.question.payload["requests"].values()
    assert request["url"] == "https://example.com/pay"
    assert done.content == "accept"


@ERAS
async def test_a_server_that_refuses_until_a_page_was_visited_is_called_again_then(protocol: str) -> None:
    async with toolbox(inquirer(protocol=protocol)) as box:
        asked = await box.call("srv.toll", {}, user=ME)
        done = await box.answer(asked.pending_id, by=ME)
    assert asked.question.prompt == "srv asks: Pay first"
    assert done.content == "passed"


@ERAS
async def test_no_one_is_sent_to_what_is_no_web_page(protocol: str) -> None:
    async with toolbox(inquirer(protocol=protocol, env={"PAGE": "javascript:alert(1)"})) as box:
        outcome = await box.call("srv.visit", {}, user=ME)
    assert isinstance(outcome, Failed)
    assert "not a web page" in str(outcome.error)


async def test_the_state_of_the_server_comes_back_exactly_and_is_shown_to_no_one(tmp_path: Path) -> None:
    async with toolbox(inquirer(protocol="2026-07-28"), folder=tmp_path / "data") as box:
        asked = await box.call("srv.book", {}, user=ME)
        told = await box.store.events.read()
        listed = await box.pending.get(asked.pending_id, by=ME)
    assert asked.question.state is None
    assert "request_state" not in json.dumps([dict(event.payload) for event in told])
    assert listed.question.state["request_state"] == "{}"
    assert "request_state" not in repr(listed)


async def test_a_question_of_a_modern_server_is_answered_after_everything_was_restarted(tmp_path: Path) -> None:
    source, ledger = inquirer(protocol="2026-07-28", env={"LEDGER": str(tmp_path / "ledger")}), tmp_path / "ledger"
    async with toolbox(source, folder=tmp_path / "data") as box:
        first = await box.call("srv.book", {}, user=ME)
    async with toolbox(source, folder=tmp_path / "data") as box:
        second = await box.answer(first.pending_id, {"name": "Bo"}, by=ME)
    async with toolbox(source, folder=tmp_path / "data") as box:
        done = await box.answer(second.pending_id, {"seat": "window"}, by=ME)
    assert isinstance(done, Completed)
    assert len(ledger.read_text().splitlines()) == 1


async def test_an_older_server_that_was_restarted_meanwhile_is_not_asked_again_blindly(tmp_path: Path) -> None:
    source = inquirer(protocol="legacy")
    async with toolbox(source, folder=tmp_path / "data") as box:
        asked = await box.call("srv.book", {}, user=ME)
    async with toolbox(source, folder=tmp_path / "data") as box:
        outcome = await box.answer(asked.pending_id, {"name": "Bo"}, by=ME)
    assert isinstance(outcome, Paused)
    assert outcome.question.kind == "unknown"


async def test_an_older_server_whose_tool_repeats_safely_is_asked_again_and_given_the_known_answers(
    tmp_path: Path,
) -> None:
    source = inquirer(protocol="legacy", env={"SAFE": "1"}).model_copy(update={"trust": True})
    async with toolbox(source, folder=tmp_path / "data") as box:
        asked = await box.call("srv.book", {}, user=ME)
    assert asked.question.payload["held"] is True
    async with toolbox(source, folder=tmp_path / "data") as box:
        second = await box.answer(asked.pending_id, {"name": "Bo"}, by=ME)
        done = await box.answer(second.pending_id, {"seat": "aisle"}, by=ME)
    assert second.question.prompt == "srv asks: Which seat?"
    assert done.content["who"]["name"] == "Bo"


async def test_on_an_older_session_no_one_is_asked_for_someone_else() -> None:
    async with toolbox(inquirer(protocol="legacy")) as box:
        outcomes = await box.call_many([("srv.book", {})], user="local:ann")
        others = await box.call("srv.visit", {}, user="local:bob")
    assert [type(outcome) for outcome in outcomes] == [Paused]
    assert others.question.prompt == "srv asks: Please pay"


async def test_a_server_that_may_not_ask_is_not_reported_that_it_could() -> None:
    async with toolbox(inquirer(protocol="legacy", elicitation=False)) as box:
        outcome = await box.call("srv.book", {}, user=ME)
    assert isinstance(outcome, Failed)


class Parrot:
    """A chat model that repeats."""

    async def complete(self, messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> dict[str, Any]:
        return {"role": "assistant", "content": f"you said: {messages[-1]['content']}"}


@pytest.mark.req("FUT-02")
@ERAS
async def test_a_server_may_ask_the_chat_model_where_that_is_switched_on(protocol: str) -> None:
    async with toolbox(inquirer(protocol=protocol, sampling=True), chat_model=Parrot()) as box:
        outcome = await box.call("srv.consult", {}, user=ME)
    assert outcome.content == "you said: How are you?"


@ERAS
async def test_sampling_is_off_by_default(protocol: str) -> None:
    async with toolbox(inquirer(protocol=protocol), chat_model=Parrot()) as box:
        outcome = await box.call("srv.consult", {}, user=ME)
    assert isinstance(outcome.error, ToolClientError)


@ERAS
async def test_a_server_learns_the_folders_that_it_may_know_of(protocol: str, tmp_path: Path) -> None:
    async with toolbox(inquirer(protocol=protocol, roots=[str(tmp_path)])) as box:
        outcome = await box.call("srv.where", {}, user=ME)
    assert outcome.content == f"['{tmp_path.as_uri()}']"


def test_a_question_is_answered_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = inquirer(protocol="2026-07-28")
    sources = [{"name": "srv", "transport": "mcp", "connection": source.connection}]
    (tmp_path / "toolpost.yaml").write_text(json.dumps({"policy": "exploratory", "sources": sources}))
    monkeypatch.chdir(tmp_path)
    main(["tools", "call", "srv.book", "--json"])
    pending = json.loads(capsys.readouterr().out)["pending"]["id"]
    main(["pending", "answer", pending, json.dumps({"name": "Bo"}), "--json"])
    assert json.loads(capsys.readouterr().out)["pending"]["prompt"] == "srv asks: Which seat?"
