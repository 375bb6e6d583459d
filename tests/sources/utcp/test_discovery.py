"""Where manuals come from, and what is said of what is none."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sources.utcp.serving import App, cli, in_file, manual, names, source, tool, toolbox
from toolpost import ConfigError, ExternalToolConfig, ToolNode, ToolRegistry

# Each name stands for ten of the one before.
LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdef", "bcdefg", strict=True)
)


async def error_of(one: ExternalToolConfig) -> str:
    async with toolbox(one) as box:
        [state] = box.report
    assert not state.ok
    assert state.tools == 0
    return str(state.error)


@pytest.mark.programs
@pytest.mark.req("UTCP-01", "UTCP-02")
@pytest.mark.parametrize("mode", ["auto", "manual_url"])
async def test_a_manual_is_read_from_its_address(app: App, mode: str) -> None:
    app.publish("a.json", manual(tool("get", app.http("/echo"))))
    app.publish("b", manual(tool("get", app.http("/echo"))))
    for path in ("/published/a.json", "/b/utcp"):
        async with toolbox(source(f"{app.address}{path}", utcp_mode=mode)) as box:
            outcome = await box.call("m.get", {"a": 1})
        assert outcome.content["query"] == {"a": ["1"]}


@pytest.mark.programs
@pytest.mark.req("UTCP-01")
@pytest.mark.parametrize("path", ["/published/gone.json", "/gone/utcp", "/.well-known/utcp"])
async def test_an_address_that_says_it_is_a_manual_must_be_one(app: App, path: str) -> None:
    assert "404" in await error_of(source(f"{app.address}{path}"))


@pytest.mark.programs
@pytest.mark.req("UTCP-03", "UTCP-06")
@pytest.mark.parametrize("mode", ["auto", "base_url"])
async def test_an_address_without_a_manual_is_itself_a_tool(app: App, mode: str) -> None:
    async with toolbox(source(f"{app.address}/echo", utcp_mode=mode)) as box:
        outcome = await box.call("m.call", {"body": {"x": [1]}, "page": 2})
        told = box.problems
        spec = box.registry.find("m.call").spec

    sent = outcome.content
    assert (sent["method"], sent["body"], sent["query"]) == ("POST", '{"x":[1]}', {"page": ["2"]})
    assert spec.extra["remote_name"] == "m.call"
    assert bool(told) == (mode == "auto")


@pytest.mark.programs
@pytest.mark.req("UTCP-06")
async def test_a_manual_is_looked_for_before_an_address_is_taken_for_a_tool(app: App) -> None:
    url = app.publish("anything", manual(tool("get", app.http("/echo"))))
    async with toolbox(source(url)) as box:
        assert names(box) == {"m.get"}


@pytest.mark.programs
async def test_who_is_not_let_in_does_not_guess(app: App) -> None:
    assert "401" in await error_of(source(f"{app.address}/status/401"))


@pytest.mark.programs
async def test_the_operators_headers_and_credential_reach_the_manual(app: App) -> None:
    given = {"auth_type": "bearer", "auth_config": {"token": "let-me-in"}}

    told = await error_of(source(f"{app.address}/status/403?x=/utcp", utcp_mode="manual_url", **given))

    assert "you sent [redacted]" in told


@pytest.mark.programs
@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump], ids=["json", "yaml"])
async def test_a_manual_is_read_from_a_file_or_a_text(app: App, tmp_path: Path, write: Any) -> None:
    text = write(manual(tool("get", app.http("/echo"))))
    (tmp_path / "manual.yaml").write_text(text)
    for connection in (text, tmp_path / "manual.yaml"):
        async with toolbox(source(connection)) as box:
            outcome = await box.call("m.get", {"a": 1})
        assert outcome.content["query"] == {"a": ["1"]}


@pytest.mark.programs
@pytest.mark.req("CONV-05")
async def test_a_tool_goes_by_the_last_part_of_its_name_and_keeps_the_whole(app: App) -> None:
    tools = [
        tool("shop.items.get", app.http("/echo")),
        tool("m.put", app.http("/echo")),
        tool("x.hidden", app.http("/")),
    ]
    async with toolbox(source(manual(*tools), tool_filter=["get", "put"])) as box:
        specs = {spec.name: spec.extra["remote_name"] for spec in box.registry.specs() if spec.source == "m"}

    assert specs == {"m.get": "m.shop.items.get", "m.put": "m.put"}


@pytest.mark.programs
@pytest.mark.req("CONV-10")
async def test_what_a_manual_says_of_a_tool_is_kept(app: App) -> None:
    inputs = {"properties": {"a": {"type": "integer", "title": None, "enum": [1, None]}}, "required": None, "$id": None}
    one = tool("t", app.http("/echo"), inputs=inputs, outputs={"type": "object", "const": None}, tags=["x", "y"])
    async with toolbox(source(manual(one))) as box:
        spec = box.registry.find("m.t").spec
        refused = await box.call("m.t", {"a": "one"})

    assert spec.input_schema == {"type": "object", "properties": {"a": {"type": "integer", "enum": [1, None]}}}
    assert spec.output_schema == {"type": "object"}
    assert spec.tags == ("utcp", "m", "x", "y")
    assert refused.error.error_code == "validation_failed"


@pytest.mark.programs
@pytest.mark.req("GEN-09", "NODE-06")
async def test_a_node_calls_the_tools_of_a_manual(app: App) -> None:
    config = source(manual(tool("shop.get", app.http("/echo"))))
    async with ToolNode(config=config, registry=ToolRegistry()) as node:
        result = await node.call("m.get", {"a": 1})

    assert result["query"] == {"a": ["1"]}


@pytest.mark.programs
async def test_a_clients_configuration_names_manuals_and_variables(app: App, tmp_path: Path) -> None:
    url = app.publish("remote", manual(tool("remote", app.http("/echo", headers={"x-key": "${KEY}"}))))
    (tmp_path / "local.yaml").write_text(yaml.safe_dump(manual(tool("local", cli("echo $NAME")))))
    (tmp_path / "vars.env").write_text("# mine\nexport local_NAME='Ann'\n")
    config = {
        "variables": {"my__api_KEY": "k-123"},
        "load_variables_from": [{"variable_loader_type": "dotenv", "env_file_path": "vars.env"}],
        "manual_call_templates": [
            {"name": "my_api", "call_template_type": "http", "url": url, "http_method": "GET"},
            {"name": "local", "call_template_type": "file", "file_path": "local.yaml"},
        ],
    }
    async with toolbox(source(in_file(tmp_path, config))) as box:
        remote = await box.call("m.remote", {})
        local = await box.call("m.local", {})

    assert remote.content["headers"]["x-key"] == "k-123"
    assert local.content == "Ann"


@pytest.mark.programs
async def test_one_manual_that_fails_does_not_take_the_others_along(app: App, tmp_path: Path) -> None:
    broken = {"name": "broken", "call_template_type": "http", "url": f"{app.address}/gone"}
    works = {
        "name": "works",
        "call_template_type": "text",
        "content": json.dumps(manual(tool("get", app.http("/echo")))),
    }
    async with toolbox(source(in_file(tmp_path, {"manual_call_templates": [broken, works]}))) as box:
        assert names(box) == {"m.get"}
        assert "manual 'broken' is skipped" in box.problems[0]

    assert "404" in await error_of(source(in_file(tmp_path, {"manual_call_templates": [broken]})))


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (b"<html>no</html>", "web page"),
        (b"", "is empty"),
        (b'{"utcp_version": "1.0", "tools": [', "cannot be read"),
        (b'{"utcp_version": "1.0"}', "without a list of tools"),
        (b"[1, 2]", "a list"),
        (b'"hello"', "text"),
        (b'{"mcpServers": {}}', "transport: mcp"),
        (b'{"manuals": ["x"]}', "manual_call_templates"),
        (b'{"a": 1, "b": 2}', "'a', 'b'"),
        (b'{"manual_call_templates": [{"name": "x"}]}', "call_template_type"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"[" * 5000, "nested too deeply"),
        (b'{"tools": [' + b'{"a":' * 500 + b"1" + b"}" * 500 + b"]}", "nested too deeply"),
        (f"{LAUGHS}tools: *g", "repeat too much"),
    ],
    ids=range(14),
)
async def test_an_invalid_manual_is_reported_by_name(tmp_path: Path, document: bytes | str, told: str) -> None:
    (tmp_path / "manual.json").write_bytes(document.encode() if isinstance(document, str) else document)

    error = await error_of(source(tmp_path / "manual.json"))

    assert "manual.json" in error
    assert told in error


def with_template(kind: str, **fields: Any) -> dict[str, Any]:
    return {"name": "x", "tool_call_template": {"call_template_type": kind, **fields}}


@pytest.mark.programs
@pytest.mark.parametrize(
    ("item", "told"),
    [
        (7, "it has no name"),
        ({"description": "nameless"}, "tool number 1 is skipped: it has no name"),
        ({"name": "x"}, "no tool_call_template"),
        (with_template("smoke_signal"), "'smoke_signal'"),
        (with_template("http"), "url"),
        (with_template("http", url="ftp://x/y"), "http and https"),
        (with_template("http", url="https://{host}/y"), "host"),
        (with_template("http", url="https://a@b/"), "credentials"),
        (with_template("http", url="https://a/", http_method="BREW"), "http_method"),
        (with_template("http", url="https://a/", auth={"auth_type": "magic"}), "magic"),
        (with_template("cli", commands=[]), "commands"),
    ],
    ids=range(11),
)
async def test_a_broken_tool_is_left_out_and_the_rest_works(app: App, item: Any, told: str) -> None:
    async with toolbox(source(manual(item, tool("ok", app.http("/echo"))))) as box:
        [problem] = box.problems
        outcome = await box.call("m.ok", {})

    assert told in problem
    assert outcome.status == "completed"
    assert told in await error_of(source(manual(item)))


async def test_a_server_that_is_away_is_an_error() -> None:
    assert "127.0.0.1:9" in await error_of(source("http://127.0.0.1:9/utcp"))


async def test_a_file_that_is_not_there_is_reported() -> None:
    assert "the file './gone.json' does not exist" in await error_of(source("./gone.json"))


async def test_a_required_manual_stops_the_start() -> None:
    with pytest.raises(ConfigError, match=r"gone\.json"):
        async with toolbox(source("./gone.json", required=True)):
            pass


@pytest.mark.programs
async def test_an_empty_manual_is_an_error_and_an_emptied_one_is_not(app: App) -> None:
    told = await error_of(source(manual()))
    async with toolbox(source(manual(tool("t", app.http("/echo"))), tool_exclude=["t"])) as box:
        [state] = box.report

    assert "the manual has no tools" in told
    assert state.ok


async def test_tools_whose_names_end_alike_go_by_more_of_them() -> None:
    ends = ["items.get", "orders.get", "orders.list"]
    tools = [tool(name, {"call_template_type": "text", "content": name}) for name in ends]
    async with toolbox(source(manual(*tools))) as box:
        found = names(box)
        outcome = await box.call("m.orders_get", {})

    assert found == {"m.items_get", "m.orders_get", "m.list"}
    assert outcome.content == "orders.get"


async def test_tools_whose_names_are_the_same_in_the_catalog_stay_apart() -> None:
    tools = [tool(name, {"call_template_type": "text", "content": name}) for name in ("a b", "a/b", "a_c")]
    async with toolbox(source(manual(*tools))) as box:
        found, problems = names(box), list(box.problems)
        contents = {(await box.call(name, {})).content for name in found}

    assert problems == []
    assert contents == {"a b", "a/b", "a_c"}
    assert "m.a_c" in found
    assert "m.a_b" not in found


async def test_tools_of_one_name_in_two_manuals_go_by_their_manuals_names(tmp_path: Path) -> None:
    def named(name: str, *tools: str) -> dict[str, Any]:
        texts = [tool(one, {"call_template_type": "text", "content": f"{one} of {name}"}) for one in tools]
        return {"name": name, "call_template_type": "text", "content": json.dumps(manual(*texts))}

    config = {"manual_call_templates": [named("shop", "get", "list"), named("bank", "get", "pay")]}
    async with toolbox(source(in_file(tmp_path, config))) as box:
        found, problems = names(box), list(box.problems)
        outcome = await box.call("m.bank_get", {})

    assert (found, problems) == ({"m.shop_get", "m.bank_get", "m.list", "m.pay"}, [])
    assert outcome.content == "get of bank"


@pytest.mark.programs
@pytest.mark.parametrize(
    "template",
    [
        {"call_template_type": "http", "url": "{app}/status/404?k=${KEY}", "headers": {"authorization": "${KEY}"}},
        {"call_template_type": "http", "url": "{app}/echo/${KEY}"},
        {"call_template_type": "http", "url": "{app}/none/${KEY}"},
        {"call_template_type": "cli", "commands": [{"command": "echo tried $KEY >&2; exit 3"}]},
        {"call_template_type": "websocket", "url": "ws://127.0.0.1:1/${KEY}"},
    ],
    ids=["answer", "no manual", "path", "command", "websocket"],
)
async def test_an_error_of_finding_tells_no_secret(app: App, tmp_path: Path, template: dict[str, Any]) -> None:
    given = json.loads(json.dumps({"name": "far", **template}).replace("{app}", app.address))
    config = {"manual_call_templates": [given], "variables": {"KEY": "s3cret-key"}}

    assert "s3cret" not in await error_of(source(in_file(tmp_path, config), connect_timeout_s=5))


@pytest.mark.programs
async def test_what_a_variable_holds_is_not_filled_again(tmp_path: Path) -> None:
    inner = json.dumps(manual(tool("t", {"call_template_type": "text", "content": "hi"})))
    template = {"name": "far", **cli('printf %s "$MANUAL"', env_vars={"MANUAL": "${MANUAL}", "NOTE": "${NOTE}"})}
    variables = {"MANUAL": inner, "NOTE": "costs ${FIVE}"}
    config = {"manual_call_templates": [template], "variables": variables}
    async with toolbox(source(in_file(tmp_path, config))) as box:
        assert names(box) == {"m.t"}
