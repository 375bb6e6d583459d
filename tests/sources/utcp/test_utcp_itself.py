"""The packages of UTCP themselves, by the same manuals: what they call right, we call with the same result."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sources.utcp.serving import App, asked_of_utcp, cli, in_file, manual, source, tool, toolbox

pytestmark = pytest.mark.programs

# What a client says of itself, and how the answer may come.
_CLIENTS_OWN = {"user-agent", "accept", "accept-encoding", "content-length", "connection"}


def by_text(document: dict[str, Any], name: str = "m", **fields: Any) -> dict[str, Any]:
    """A client's configuration with a manual in it."""
    kinds = sorted({one["tool_call_template"]["call_template_type"] for one in document["tools"]})
    content = json.dumps(document).replace("$", "\\u0024")
    template = {"name": name, "call_template_type": "text", "content": content}
    return {"manual_call_templates": [{**template, "allowed_communication_protocols": kinds}], **fields}


def plain(answer: Any) -> Any:
    """An answer without what clients say of themselves."""
    if not isinstance(answer, dict) or "headers" not in answer:
        return answer
    headers = {name: value for name, value in answer["headers"].items() if name not in _CLIENTS_OWN}
    body = answer["body"]
    return {**answer, "headers": headers, "body": json.loads(body) if body[:1] == "{" else body}


async def both(folder: Path, config: dict[str, Any], *calls: tuple[str, dict[str, Any]]) -> list[tuple[Any, Any]]:
    """What they answer, and what we do."""
    theirs = asked_of_utcp(config, *((f"m.{name}", arguments) for name, arguments in calls))["answers"]
    async with toolbox(source(in_file(folder, config))) as box:
        ours = [await box.call(f"m.{name}", arguments) for name, arguments in calls]
    assert [outcome.status for outcome in ours] == ["completed"] * len(calls)
    return [(plain(one), plain(other.content)) for one, other in zip(theirs, ours, strict=True)]


@pytest.mark.req("GEN-06", "UTCP-02")
async def test_http_calls_come_to_the_same(app: App, tmp_path: Path) -> None:
    key = {"auth_type": "api_key", "api_key": "Bearer ${KEY}", "var_name": "Authorization"}
    query_key = {"auth_type": "api_key", "api_key": "k", "var_name": "key", "location": "query"}
    cookie_key = {"auth_type": "api_key", "api_key": "k", "var_name": "key", "location": "cookie"}
    basic = {"auth_type": "basic", "username": "a", "password": "b"}
    document = manual(
        tool("path", app.http("/echo/{id}/{part}")),
        tool("post", app.http("/echo", http_method="POST", header_fields=["X-Given"], headers={"X-Fixed": "f"})),
        tool("put", app.http("/echo", http_method="PUT", body_field="data", content_type="text/plain")),
        tool("delete", app.http("/echo", http_method="DELETE", auth=key)),
        tool("in_query", app.http("/echo", auth=query_key)),
        tool("in_cookie", app.http("/echo", auth=cookie_key)),
        tool("basic", app.http("/echo", auth=basic)),
        tool("moved", app.http("/moved")),
    )
    config = by_text(document, variables={"m_KEY": "k"})

    found = await both(
        tmp_path,
        config,
        ("path", {"id": "a b/c?ü", "part": 7, "q": "x&y=z", "many": ["1", "2"]}),
        ("post", {"body": {"a": [1, None, "ü"]}, "X-Given": "g", "page": 2}),
        ("put", {"data": "as it is"}),
        ("delete", {"id": 1}),
        ("in_query", {"q": "x"}),
        ("in_cookie", {}),
        ("basic", {}),
        ("moved", {}),
    )

    for theirs, ours in found:
        assert ours == theirs


async def test_a_client_with_a_token_is_let_in_by_both(app: App, tmp_path: Path) -> None:
    config = by_text(manual(tool("guarded", app.http("/guarded", auth=app.oauth("s3cret-s3cret")))))

    [(theirs, ours)] = await both(tmp_path, config, ("guarded", {}))

    assert theirs.keys() == ours.keys() == {"token"}


async def test_streams_come_to_the_same(app: App, tmp_path: Path) -> None:
    sse = {**app.http("/events"), "call_template_type": "sse"}
    lines = {**app.http("/lines"), "call_template_type": "streamable_http"}
    whole = {**app.http("/openapi.json"), "call_template_type": "streamable_http"}
    tools = [tool("sse", sse), tool("odd", {**sse, "event_type": "odd"}), tool("lines", lines), tool("json", whole)]
    calls = [("sse", {"count": "3"}), ("odd", {"count": "4"}), ("lines", {}), ("json", {})]

    for theirs, ours in await both(tmp_path, by_text(manual(*tools)), *calls):
        assert ours == theirs


async def test_commands_come_to_the_same(tmp_path: Path) -> None:
    document = manual(
        tool("word", cli("echo UTCP_ARG_a_UTCP_END \"<UTCP_ARG_a_UTCP_END>\" '[UTCP_ARG_a_UTCP_END]'")),
        tool("json", cli("""printf '{"a": "%s"}' UTCP_ARG_a_UTCP_END""")),
        tool(
            "steps",
            cli(
                {"command": "echo one", "append_to_final_output": True},
                "echo two",
                {"command": "echo UTCP_ARG_a_UTCP_END", "append_to_final_output": True},
            ),
        ),
        tool("stderr", cli("echo only here >&2")),
    )
    calls = [("word", {"a": "$(id) 'x'"}), ("json", {"a": "x"}), ("steps", {"a": "three"}), ("stderr", {})]

    for theirs, ours in await both(tmp_path, by_text(document), *calls):
        assert ours == theirs


async def test_messages_and_texts_come_to_the_same(app: App, tmp_path: Path) -> None:
    document = manual(
        tool("ws", app.websocket(message={"q": "UTCP_ARG_q_UTCP_ARG"}, response_format="json", protocol="chat")),
        tool("raw", app.websocket(message="say UTCP_ARG_q_UTCP_ARG")),
        tool("text", {"call_template_type": "text", "content": "hello"}),
    )

    found = await both(tmp_path, by_text(document), ("ws", {"q": '"x"'}), ("raw", {"q": "y"}), ("text", {}))

    assert json.loads(found[0][0]["said"]) == json.loads(found[0][1]["said"]) == {"q": '"x"'}
    assert found[1][0] == found[1][1]
    assert found[2] == ("hello", "hello")


async def test_names_are_the_same(app: App, tmp_path: Path) -> None:
    config = by_text(
        manual(tool("get", app.http("/echo")), tool("m.put", app.http("/echo")), tool("x.y", app.http("/")))
    )

    theirs = asked_of_utcp(config)["tools"]
    async with toolbox(source(in_file(tmp_path, config))) as box:
        ours = sorted(spec.extra["remote_name"] for spec in box.registry.specs() if spec.source == "m")

    assert ours == theirs


async def test_where_they_go_wrong_we_do_not(app: App, tmp_path: Path) -> None:
    document = manual(
        tool("flag", app.http("/echo")),
        tool("fails", cli("echo out; exit 3")),
        tool("wants", cli("echo UTCP_ARG_a_UTCP_END")),
        tool("there", cli("cd /tmp", "pwd")),
    )
    calls = [("flag", {"x": True}), ("fails", {}), ("wants", {}), ("there", {})]

    theirs = asked_of_utcp(by_text(document), *((f"m.{name}", arguments) for name, arguments in calls))["answers"]
    async with toolbox(source(in_file(tmp_path, document))) as box:
        ours = [await box.call(f"m.{name}", arguments) for name, arguments in calls]

    assert theirs[0]["raised"] == "TypeError"
    assert theirs[1:3] == ["out", "MISSING_ARG_a"]
    assert theirs[3] != "/tmp"
    assert ours[0].content["query"] == {"x": ["true"]}
    assert [ours[1].status, ours[2].error.error_code] == ["failed", "validation_failed"]
    assert ours[3].content == "/tmp"
