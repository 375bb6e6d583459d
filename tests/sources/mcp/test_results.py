"""What a tool brings back: data as data, text as text, bytes as artifacts, and an error never as a success."""

import base64
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.sources.mcp.rogues import Rogue, answering, config_by, rogue_by, text, tool, toolbox
from toolpost import RetryPolicy, model_text
from toolpost.errors import (
    ToolAuthError,
    ToolCircuitOpenError,
    ToolClientError,
    ToolOutputError,
    ToolRateLimitError,
    ToolServerError,
)

pytestmark = pytest.mark.programs

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
WAV = b"RIFF" + bytes(range(200)) + b"WAVE"
OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
HTTP = ["http-legacy-json", "http-modern-json"]


def image(data: bytes = PNG, kind: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": kind}


async def call(tmp_path: Path, result: dict[str, Any], **more: Any) -> Any:
    rogue = Rogue(tmp_path, answering("t", result, **more))
    async with toolbox(rogue.config()) as box:
        return await box.call("srv.t")


async def kept(box: Any, outcome: Any) -> list[tuple[str, bytes]]:
    artifacts = box.store.artifacts
    refs = [await artifacts.info(one, tenant="local") for one in outcome.artifacts]
    return [(ref.media_type, await artifacts.read(ref.id, tenant="local")) for ref in refs]


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ({**text('{"n": 1}'), "structuredContent": {"n": 2}}, {"n": 2}),
        ({"content": [], "structuredContent": {"n": 2}}, {"n": 2}),
        (text('{"n": 1}'), {"n": 1}),
        (text("[1, 2]"), [1, 2]),
        (text("plain"), "plain"),
        (text("{not json}"), "{not json}"),
        (text('{"n": 1} and more'), '{"n": 1} and more'),
        (text("one", "two"), "one\ntwo"),
        (text('{"n": 1}', '{"n": 2}'), '{"n": 1}\n{"n": 2}'),
        (text('{"n": 1}', ""), '{"n": 1}\n'),
    ],
)
async def test_data_comes_before_text_and_one_json_text_is_data(
    tmp_path: Path, result: dict[str, Any], content: Any
) -> None:
    outcome = await call(tmp_path, result)
    assert outcome.content == content


async def test_the_text_beside_data_is_kept(tmp_path: Path) -> None:
    outcome = await call(tmp_path, {**text("two", "lines"), "structuredContent": {"n": 2}})
    assert outcome.text == "two\nlines"


async def test_no_content_is_a_success_without_content(tmp_path: Path) -> None:
    outcome = await call(tmp_path, {"content": []})
    assert (outcome.status, outcome.content or None) == ("completed", None)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (image(), ("image/png", PNG)),
        ({**image(WAV, "audio/wav"), "type": "audio"}, ("audio/wav", WAV)),
        (
            {
                "type": "resource",
                "resource": {
                    "uri": "file:///a.bin",
                    "mimeType": "application/octet-stream",
                    "blob": base64.b64encode(WAV).decode(),
                },
            },
            ("application/octet-stream", WAV),
        ),
    ],
    ids=["image", "audio", "blob"],
)
async def test_bytes_become_an_artifact_and_not_text(
    tmp_path: Path, block: dict[str, Any], expected: tuple[str, bytes]
) -> None:
    rogue = Rogue(tmp_path, answering("t", {"content": [block]}))
    async with toolbox(rogue.config()) as box:
        outcome = await box.call("srv.t")
        found = await kept(box, outcome)
    assert found == [expected]
    assert base64.b64encode(expected[1]).decode() not in json.dumps(outcome.content)
    assert outcome.artifacts[0] in json.dumps(outcome.content)


async def test_text_and_several_images_are_all_kept(tmp_path: Path) -> None:
    blocks = [*text("before")["content"], image(), image(WAV, "image/webp"), *text("after")["content"]]
    rogue = Rogue(tmp_path, answering("t", {"content": blocks}))
    async with toolbox(rogue.config()) as box:
        outcome = await box.call("srv.t")
        found = await kept(box, outcome)
    shown = json.dumps(outcome.content)
    assert found == [("image/png", PNG), ("image/webp", WAV)]
    assert all(one in shown for one in ("before", "after", *outcome.artifacts))


async def test_data_with_an_image_keeps_both(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, answering("t", {"content": [image()], "structuredContent": {"n": 1}}))
    async with toolbox(rogue.config()) as box:
        outcome = await box.call("srv.t")
        found = await kept(box, outcome)
    assert found == [("image/png", PNG)]
    assert outcome.content["n"] == 1 or '"n": 1' in json.dumps(outcome.content)


@pytest.mark.parametrize("content", [[], [image()], text("")["content"]], ids=["nothing", "image", "blank"])
async def test_a_model_reads_data_that_came_without_words(tmp_path: Path, content: list[dict[str, Any]]) -> None:
    outcome = await call(tmp_path, {"content": content, "structuredContent": {"answer": 42}})
    assert '{"answer": 42}' in model_text(outcome)


async def test_a_model_reads_what_a_link_leads_to_and_where_a_text_is_from(tmp_path: Path) -> None:
    embedded = {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "hello"}}
    link = {"type": "resource_link", "uri": "db://7", "name": "the table", "description": "all that was sold"}
    read = model_text(await call(tmp_path, {"content": [embedded, link]}))
    assert all(one in read for one in ("file:///a.txt:\nhello", "db://7", "the table", "all that was sold"))


async def test_an_image_that_is_not_base64_is_reported(tmp_path: Path) -> None:
    outcome = await call(tmp_path, {"content": [{**image(), "data": "bm90!!!!"}]})
    assert isinstance(outcome.error, ToolOutputError)


async def test_an_embedded_text_and_a_link_stay_what_they_are(tmp_path: Path) -> None:
    embedded = {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "hello"}}
    link = {"type": "resource_link", "uri": "http://127.0.0.1:1/x.csv", "name": "the table", "mimeType": "text/csv"}
    outcome = await call(tmp_path, {"content": [embedded, link]})
    shown = json.dumps(outcome.content)
    assert outcome.artifacts == ()
    assert all(one in shown for one in ("hello", "file:///a.txt", "http://127.0.0.1:1/x.csv", "the table", "text/csv"))


async def test_content_of_a_kind_that_no_one_knows_is_handed_on_as_it_is(tmp_path: Path) -> None:
    outcome = await call(tmp_path, {"content": [{"type": "hologram", "voxels": 7}]})
    assert outcome.content == [{"type": "hologram", "voxels": 7}]


@pytest.mark.parametrize(
    "result",
    [
        text("the branch is protected"),
        {**text("the branch is protected"), "structuredContent": {"n": 1}},
        {"content": [*text("the branch is protected")["content"], image()]},
    ],
)
@pytest.mark.req("DEF-07", "KMCP-04")
async def test_an_error_that_the_tool_reports_is_a_failure(tmp_path: Path, result: dict[str, Any]) -> None:
    rogue = Rogue(tmp_path, answering("t", {**result, "isError": True}, safe=True, outputSchema=OBJECT))
    async with toolbox(rogue.config()) as box:
        outcome = await box.call("srv.t")
    assert type(outcome.error) is ToolClientError
    assert "the branch is protected" in str(outcome.error)
    assert len(rogue.calls("t")) == 1


@pytest.mark.parametrize("result", [{"content": []}, {"content": [], "structuredContent": {"why": "quota"}}])
async def test_an_error_without_a_text_is_a_failure_too(tmp_path: Path, result: dict[str, Any]) -> None:
    outcome = await call(tmp_path, {**result, "isError": True})
    assert isinstance(outcome.error, ToolClientError)
    assert str(outcome.error).strip()


@pytest.mark.parametrize("way", ["stdio-legacy", "stdio-modern"])
@pytest.mark.parametrize(
    "result", [{**text("x"), "structuredContent": {"n": "one"}}, {"content": [], "structuredContent": {}}, text("x")]
)
@pytest.mark.req("CONV-10")
async def test_a_result_that_breaks_the_output_schema_is_a_failure_where_outputs_are_strict(
    tmp_path: Path, way: str, result: dict[str, Any]
) -> None:
    with rogue_by(way, tmp_path, answering("t", result, outputSchema=OBJECT), tool("echo")) as rogue:
        async with toolbox(config_by(way, rogue, outputs="strict")) as box:
            outcome = await box.call("srv.t")
            after = await box.call("srv.echo")
    assert isinstance(outcome.error, ToolOutputError)
    assert (after.status, rogue.greetings) == ("completed", 1)


async def test_structured_content_that_breaks_the_output_schema_is_handed_on_with_a_note(tmp_path: Path) -> None:
    outcome = await call(tmp_path, {**text("x"), "structuredContent": {"n": "one"}}, outputSchema=OBJECT)

    assert outcome.content == {"n": "one"}
    assert outcome.meta["output_issues"] == ['$.n: expected integer, got string "one"']
    assert "[This result violates the output schema of the tool: $.n: expected integer" in model_text(outcome)


@pytest.mark.req("CONV-10")
async def test_a_result_that_fits_the_output_schema_is_the_data(tmp_path: Path) -> None:
    outcome = await call(tmp_path, {**text("x"), "structuredContent": {"n": 1, "more": [2]}}, outputSchema=OBJECT)
    assert outcome.content == {"n": 1, "more": [2]}


async def test_a_broken_output_schema_is_reported_and_not_used(tmp_path: Path) -> None:
    broken = answering("t", text("x"), outputSchema={"type": "object", "properties": {"n": {"type": "nmuber"}}})
    rogue = Rogue(tmp_path, broken)
    async with toolbox(rogue.config()) as box:
        (problem,) = box.problems
        outcome = await box.call("srv.t")
    assert "'srv.t'" in problem
    assert "nmuber" in problem
    assert outcome.status == "completed"


@pytest.mark.parametrize("way", HTTP)
@pytest.mark.parametrize("status", [401, 403])
async def test_credentials_refused_in_the_middle_are_reported_and_not_tried_again(
    tmp_path: Path, way: str, status: int
) -> None:
    refuse = [{"status": status, "method": "tools/call", "after": 1}]
    with rogue_by(way, tmp_path, tool("look", safe=True), refuse=refuse) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            first, second = await box.call("srv.look"), await box.call("srv.look")
    assert first.status == "completed"
    assert isinstance(second.error, ToolAuthError)
    assert second.error.status_code == status
    assert len(rogue.calls("look")) == 2


@pytest.mark.parametrize("way", HTTP)
async def test_credentials_refused_at_the_door_are_reported(tmp_path: Path, way: str) -> None:
    with rogue_by(way, tmp_path, tool("look"), refuse=[{"status": 401}]) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            (state,) = box.report
    assert not state.ok
    assert "401" in state.error


@pytest.mark.parametrize(("way", "headers"), [(HTTP[0], {"Retry-After": "1"}), (HTTP[1], {})])
@pytest.mark.req("RES-08")
async def test_a_server_that_asks_for_air_is_given_it(tmp_path: Path, way: str, headers: dict[str, str]) -> None:
    refuse = [{"status": 429, "method": "tools/call", "times": 1, "headers": headers}]
    with rogue_by(way, tmp_path, tool("look", safe=True), refuse=refuse) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            outcome = await box.call("srv.look")
    first, second = (entry["at"] for entry in rogue.received("tools/call"))
    assert outcome.status == "completed"
    assert second - first >= 0.95


@pytest.mark.parametrize("way", HTTP)
@pytest.mark.req("RES-08")
async def test_a_wait_beyond_the_deadline_is_reported_at_once(tmp_path: Path, way: str) -> None:
    refuse = [{"status": 429, "method": "tools/call", "headers": {"Retry-After": "177"}}]
    with rogue_by(way, tmp_path, tool("look", safe=True), refuse=refuse) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            outcome = await box.call("srv.look")
    assert isinstance(outcome.error, ToolRateLimitError)
    assert outcome.error.retry_after_seconds == 177
    assert len(rogue.calls("look")) == 1


@pytest.mark.parametrize("way", HTTP)
async def test_a_busy_server_is_asked_again_only_where_that_is_safe(tmp_path: Path, way: str) -> None:
    refuse = [{"status": 503, "method": "tools/call", "times": 3}]
    with rogue_by(way, tmp_path, tool("look", safe=True), tool("pay"), refuse=refuse) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            paid, looked = await box.call("srv.pay"), await box.call("srv.look")
    assert isinstance(paid.error, ToolServerError)
    assert paid.error.status_code == 503
    assert looked.status == "completed"
    assert (len(rogue.calls("pay")), len(rogue.calls("look"))) == (1, 3)


@pytest.mark.req("RES-01")
async def test_waits_between_tries_grow_and_the_last_error_is_reported(tmp_path: Path) -> None:
    policy = RetryPolicy(max_attempts=4, wait_exponential_min_s=0.2, wait_exponential_max_s=0.4)
    refuse = [{"status": 503, "method": "tools/call"}]
    with rogue_by("http-modern-json", tmp_path, tool("look", safe=True), refuse=refuse) as rogue:
        async with toolbox(config_by("http-modern-json", rogue, retry_policy=policy)) as box:
            outcome = await box.call("srv.look")
    at = [entry["at"] for entry in rogue.received("tools/call")]
    waits = [later - earlier for earlier, later in pairwise(at)]
    assert isinstance(outcome.error, ToolServerError)
    assert len(at) == 4
    assert all(wait >= least for wait, least in zip(waits, [0.1, 0.2, 0.2], strict=True))


@pytest.mark.parametrize(("retried", "calls"), [([503], 2), ([502], 1)])
@pytest.mark.req("DEF-08")
async def test_a_status_is_retried_only_if_it_is_on_the_list(tmp_path: Path, retried: list[int], calls: int) -> None:
    refuse = [{"status": 503, "method": "tools/call", "times": 1}]
    with rogue_by("http-legacy-json", tmp_path, tool("look", safe=True), refuse=refuse) as rogue:
        policy = RetryPolicy(retry_on_status=retried)
        async with toolbox(config_by("http-legacy-json", rogue, retry_policy=policy)) as box:
            await box.call("srv.look")
    assert len(rogue.calls("look")) == calls


@pytest.mark.parametrize("way", ["http-legacy-sse", "http-modern-json", "sse"])
@pytest.mark.req("NODE-11", "DEF-02")
async def test_credentials_and_headers_travel_with_every_request(tmp_path: Path, way: str) -> None:
    secret: dict[str, Any] = {"auth_type": "bearer", "auth_config": {"token": "t-7"}, "headers": {"X-Team": "blue"}}
    with rogue_by(way, tmp_path, tool("look")) as rogue:
        async with toolbox(config_by(way, rogue, **secret)) as box:
            outcome = await box.call("srv.look")
    seen = [entry["headers"] for entry in rogue.log if "headers" in entry]
    assert outcome.status == "completed"
    assert {(headers.get("authorization"), headers.get("x-team")) for headers in seen} == {("Bearer t-7", "blue")}


@pytest.mark.req("RES-07", "GEN-04")
async def test_a_source_that_keeps_failing_is_left_alone_for_a_while_and_the_others_are_not(tmp_path: Path) -> None:
    ill = {"refuse": [{"status": 503, "method": "tools/call"}]}
    with (
        rogue_by("http-modern-json", tmp_path, tool("look", safe=True), **ill) as rogue,
        rogue_by("http-legacy-json", tmp_path, tool("look", safe=True), name="well") as other,
    ):
        once = RetryPolicy(max_attempts=1)
        sources = [config_by("http-modern-json", rogue, retry_policy=once), config_by("http-legacy-json", other)]
        async with toolbox(*sources) as box:
            failed = [await box.call("srv.look") for _ in range(6)]
            well = await box.call("well.look")
    assert [type(outcome.error) for outcome in failed] == [ToolServerError] * 5 + [ToolCircuitOpenError]
    assert len(rogue.calls("look")) == 5
    assert well.status == "completed"
