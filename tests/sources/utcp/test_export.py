"""Our catalog as a manual: others load it and call by it, and so do we."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sources.utcp.serving import App, asked_of_utcp, in_file, source, toolbox
from toolpost import Settings, Toolbox, ToolSpec
from toolpost.schema.validator import compile_validator
from toolpost.sources.utcp.export import (
    Route,
    command_route,
    export_manual,
    http_route,
    make_portable,
    serialize_manual,
)

TOOLS = """
from toolpost import tool


@tool(side_effects="pure")
async def add(a: int, b: int = 1) -> int:
    \"\"\"Add two numbers; it costs $5 and knows ${NOTHING}.\"\"\"
    return a + b
"""
TOOLPOST = str(Path(sys.executable).with_name("toolpost"))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(TOOLS)
    path = tmp_path / "toolpost.yaml"
    path.write_text(
        "data_dir: null\nbuiltins: none\nsources: [{name: mine, transport: python, connection: ./tools.py}]\n"
    )
    return path


def in_text(manual: dict[str, Any], kind: str) -> dict[str, Any]:
    template = {"name": "toolpost", "call_template_type": "text", "content": serialize_manual(manual)}
    return {"manual_call_templates": [{**template, "allowed_communication_protocols": [kind]}]}


async def exported(config: Path) -> dict[str, Any]:
    route = command_route((TOOLPOST,), config=str(config))
    async with Toolbox.open(config) as box:
        return export_manual(box.registry.specs(), route)


@pytest.mark.programs
@pytest.mark.req("GEN-06")
async def test_others_load_our_manual_and_call_by_it(config: Path) -> None:
    manual = await exported(config)
    calls = [
        ("toolpost.mine__add", {"arguments": '{"a": 2, "b": 3}'}),
        ("toolpost.mine__add", {"arguments": '{"a": "x"}'}),
    ]

    answer = asked_of_utcp(in_text(manual, "cli"), *calls)

    assert answer["tools"] == ["toolpost.mine__add"]
    assert answer["answers"][0]["content"] == 5
    assert answer["answers"][1]["error"]["error_code"] == "validation_failed"


@pytest.mark.programs
async def test_we_load_it_too(config: Path, tmp_path: Path) -> None:
    manual = await exported(config)
    async with toolbox(source(in_file(tmp_path, manual), timeout_s=60)) as box:
        spec = box.registry.find("m.mine__add").spec
        outcome = await box.call("m.mine__add", {"arguments": json.dumps({"a": 2, "b": 3})})
        failed = await box.call("m.mine__add", {"arguments": "{}"})

    assert outcome.content["content"] == 5
    assert failed.error.error_code == "command_failed"
    assert spec.description == "Add two numbers; it costs $5 and knows ${NOTHING}."
    assert spec.input_schema["properties"]["arguments"]["contentSchema"]["required"] == ["a"]


@pytest.mark.programs
async def test_tools_behind_an_address_are_called_by_post(app: App) -> None:
    spec = ToolSpec(name="mine.add", input_schema={"type": "object", "properties": {"a": True}})
    manual = export_manual([spec], http_route(f"{app.address}/echo", headers={"X-Via": "utcp"}))

    [theirs] = asked_of_utcp(in_text(manual, "http"), ("toolpost.mine__add", {"body": {"a": 1}}))["answers"]
    async with toolbox(source(manual)) as box:
        ours = await box.call("m.mine__add", {"body": {"a": 1}})

    for answer in (theirs, ours.content):
        assert (answer["method"], answer["path"], json.loads(answer["body"])) == ("POST", "/echo/mine.add", {"a": 1})
        assert answer["headers"]["x-via"] == "utcp"


def test_a_schema_is_written_so_that_every_reader_takes_it() -> None:
    schema = {
        "properties": {"a": True, "b": {"items": False}, "properties": {"enum": [True, None]}},
        "additionalProperties": False,
        "anyOf": [True, {"not": True}],
        "default": True,
    }

    assert make_portable(schema) == {
        "properties": {"a": {}, "b": {"items": {"not": {}}}, "properties": {"enum": [True, None]}},
        "additionalProperties": False,
        "anyOf": [{}, {"not": {}}],
        "default": True,
    }


def test_no_dollar_sign_stands_in_the_text_and_all_are_in_the_manual() -> None:
    spec = ToolSpec(name="x", description="$5", input_schema={"$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}})
    manual = export_manual([spec], command_route())

    assert "$" not in serialize_manual(manual)
    assert json.loads(serialize_manual(manual)) == manual


@pytest.mark.programs
def test_the_command_prints_a_manual(config: Path) -> None:
    done = subprocess.run(
        [TOOLPOST, "tools", "export", "--utcp", "--config", str(config)], capture_output=True, text=True, check=True
    )
    [tool] = json.loads(done.stdout)["tools"]

    [step] = tool["tool_call_template"]["commands"]
    assert step["command"].startswith("toolpost tools call mine.add --config /")
    assert tool["description"].startswith("Add two numbers")


@pytest.mark.programs
def test_the_command_wants_to_know_the_format(config: Path) -> None:
    done = subprocess.run([TOOLPOST, "tools", "export"], capture_output=True, text=True, check=False, cwd=config.parent)

    assert done.returncode == 2
    assert "--utcp" in done.stderr


@pytest.mark.programs
@pytest.mark.parametrize("address", ["example.org", "ftp://example.org", "https://example.org/?key=1"])
def test_the_command_takes_only_an_address_that_others_can_be_below(config: Path, address: str) -> None:
    command = [TOOLPOST, "tools", "export", "--utcp", "--config", str(config), "--address", address]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert "--address" in done.stderr


@pytest.mark.programs
async def test_a_catalog_of_everything_is_a_manual_that_loads(config: Path) -> None:
    async with Toolbox(settings=Settings(data_dir=None, builtins="all")) as box:
        manual = export_manual(box.registry.specs(), command_route((TOOLPOST,)))

    answer = asked_of_utcp(in_text(manual, "cli"))

    assert answer["tools"] == sorted(f"toolpost.{tool['name']}" for tool in manual["tools"])
    assert answer["tools"]


DEEP = {
    "type": "object",
    "$defs": {"A": {"type": "object", "properties": {"n": {"type": "integer"}, "more": {"$ref": "#/$defs/A"}}}},
    "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/properties/a"}, "self": {"$ref": "#"}},
}


@pytest.mark.parametrize("route", [command_route(), http_route("https://a.example")], ids=["command", "address"])
async def test_what_a_schema_refers_to_is_found_in_the_manual(route: Route) -> None:
    spec = ToolSpec(name="mine.deep", input_schema=DEEP, output_schema={"$ref": "#/$defs/A", "$defs": DEEP["$defs"]})
    manual = export_manual([spec], route)
    [exported] = manual["tools"]
    async with toolbox(source(manual)) as box:
        assert box.problems == []

    for schema in (exported["inputs"], exported["outputs"]):
        assert "A" in schema["$defs"]
        compile_validator(schema)
    whole = (
        exported["inputs"]["properties"].get("body") or exported["inputs"]["properties"]["arguments"]["contentSchema"]
    )
    assert whole["properties"]["self"]["$ref"].startswith("#/properties/")


@pytest.mark.programs
def test_the_command_hands_on_its_user_and_what_its_configuration_needs(config: Path) -> None:
    config.write_text(config.read_text().replace("./tools.py}", "./tools.py, env: {K: '${EXPORT_TOKEN}'}}"))
    words = ["tools", "export", "--utcp", "--config", str(config), "--user", "acme:ida"]
    env = {**os.environ, "EXPORT_TOKEN": "t-12345"}
    done = subprocess.run([TOOLPOST, *words], capture_output=True, text=True, check=True, env=env)
    [exported] = json.loads(done.stdout)["tools"]
    template = exported["tool_call_template"]

    assert "--user acme:ida --json" in template["commands"][0]["command"]
    assert {"PATH", "EXPORT_TOKEN"} <= {*template["inherit_env_vars"]}
    assert "t-12345" not in done.stdout
