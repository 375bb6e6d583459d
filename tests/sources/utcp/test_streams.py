"""Answers that come bit by bit: events and lines are progress, and all of them the result."""

from typing import Any

import pytest

from tests.sources.utcp.app import PICTURE
from tests.sources.utcp.serving import App, manual, source, tool, toolbox
from tests.wire.site import Site, reply
from toolpost import EventCode
from toolpost.errors import ToolOutputError

pytestmark = pytest.mark.programs


def events(app: App, **fields: Any) -> dict[str, Any]:
    return {**app.http("/events", **fields), "call_template_type": "sse"}


def stream(app: App, path: str, **fields: Any) -> dict[str, Any]:
    return {**app.http(path, **fields), "call_template_type": "streamable_http"}


async def called(template: dict[str, Any], arguments: dict[str, Any], **options: Any) -> Any:
    async with toolbox(source(manual(tool("t", template, outputs={"type": "object"})), **options)) as box:
        return await box.call("m.t", arguments)


async def test_the_data_of_all_events_is_the_result(app: App) -> None:
    outcome = await called(events(app), {"count": 2})

    assert outcome.content == [{"n": 0}, {"n": 1}, "the\nend"]


async def test_only_events_of_the_wanted_type_are_taken(app: App) -> None:
    outcome = await called(events(app, event_type="odd"), {"count": 4})

    assert outcome.content == [{"n": 1}, {"n": 3}]


async def test_each_event_is_reported_while_the_call_runs(app: App) -> None:
    async with toolbox(source(manual(tool("t", events(app))))) as box:
        outcome = await box.call("m.t", {"count": 1})
        stored = await box.store.events.read(run_id=outcome.run_id)

    told = [event.payload["text"] for event in stored if event.code is EventCode.SUBAGENT_ACTION]
    assert told == ['{"n":0}', "the\nend"]


async def test_a_stream_that_continues_gives_what_came_in_its_time(app: App) -> None:
    outcome = await called(events(app), {"count": 1, "endless": 1}, timeout_s=1.0)

    assert outcome.content == [{"n": 0}, "the\nend"]
    assert "was cut off" in outcome.text
    assert "was cut off" in outcome.meta["note"]


async def test_a_plain_tool_whose_answer_is_a_stream_gives_what_came_too(app: App) -> None:
    async with toolbox(source(manual(tool("t", app.http("/events"))), timeout_s=1.0)) as box:
        outcome = await box.call("m.t", {"count": 1, "endless": 1})

    assert [event["data"] for event in outcome.content] == [{"n": 0}, "the\nend"]
    assert "was cut off" in outcome.meta["note"]


async def test_events_are_asked_for_whatever_else_the_manual_accepts() -> None:
    async with Site(reply(body=b"data: 1\n\n", content_type="text/event-stream")) as site:
        await called({"call_template_type": "sse", "url": site.url, "headers": {"accept": "*/*"}}, {})

    assert site.last.all("accept") == ["text/event-stream"]


async def test_something_else_than_events_is_reported(app: App) -> None:
    outcome = await called({**events(app), "url": f"{app.address}/echo"}, {})

    assert isinstance(outcome.error, ToolOutputError)
    assert "application/json where events were promised" in str(outcome.error)


@pytest.mark.parametrize("kind", ["sse", "streamable_http"])
async def test_a_stream_that_is_refused_is_a_failure(app: App, kind: str) -> None:
    outcome = await called({**app.http("/status/404"), "call_template_type": kind}, {})

    assert outcome.error.status_code == 404


async def test_lines_are_a_list_wherever_the_pieces_break(app: App) -> None:
    outcome = await called(stream(app, "/lines"), {})

    assert outcome.content == [{"n": 1}, {"n": "ü"}, 3]


async def test_bytes_in_pieces_are_an_artifact(app: App) -> None:
    async with toolbox(source(manual(tool("t", stream(app, "/picture"))))) as box:
        outcome = await box.call("m.t", {})
        kept = await box.store.artifacts.read(outcome.artifacts[0], tenant="local")

    assert kept == PICTURE


async def test_the_time_that_a_manual_gives_is_the_tools_own(app: App) -> None:
    tools = [tool("long", stream(app, "/lines", timeout=90_000)), tool("usual", stream(app, "/lines"))]
    async with toolbox(source(manual(*tools))) as box:
        times = [box.registry.find(name).spec.timeout_s for name in ("m.long", "m.usual")]

    assert times == [90.0, None]


async def test_a_token_for_a_stream_is_renewed_too(app: App) -> None:
    template = stream(app, "/guarded", auth=app.oauth("s3cret-s3cret"))
    async with toolbox(source(manual(tool("t", template)))) as box:
        first = await box.call("m.t", {})
        app.expire()
        after = await box.call("m.t", {})

    assert first.content[0].keys() == after.content[0].keys() == {"token"}
    assert after.content != first.content


async def test_a_text_in_pieces_is_a_text(app: App) -> None:
    app.publish("note", b"plain text")

    outcome = await called(stream(app, "/published/note"), {})

    assert outcome.content == ["plain text"]  # it says that it is JSON, and is not


async def test_a_line_without_end_is_given_up_and_no_one_waits_for_it(app: App) -> None:
    outcome = await called(stream(app, "/endless-line"), {})

    assert outcome.error.error_code == "response_too_large"
