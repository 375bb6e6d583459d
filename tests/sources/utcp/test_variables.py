"""Variables of call templates: who may set them, and what is none."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sources.utcp.serving import App, cli, in_file, manual, names, source, tool, toolbox
from toolpost.policy.secret_shapes import MASK

pytestmark = pytest.mark.programs


def keyed(app: App, key: str = "${API_KEY}") -> dict[str, Any]:
    return app.http("/echo", auth={"auth_type": "api_key", "api_key": key, "var_name": "x-key"})


async def key_sent(path: Path, **options: Any) -> Any:
    async with toolbox(source(path, **options)) as box:
        outcome = await box.call("m.t", {})
    return outcome.content["headers"]["x-key"]


@pytest.mark.req("UTCP-04", "UTCP-05")
@pytest.mark.parametrize(
    "options",
    [
        {"options": {"variables": {"API_KEY": "k-12345"}}},
        {"options": {"variables": {"m_API_KEY": "k-12345"}}},
        {"env": {"API_KEY": "k-12345"}},
        {"env": {"API_KEY": "${KEY_OF_MINE}"}},
        {"auth_config": {"API_KEY": "k-12345"}},
        {"auth_config": {"API_KEY": "${KEY_OF_MINE}"}},
        {"env": {"API_KEY": "other"}, "options": {"variables": {"API_KEY": "k-12345"}}},
    ],
    ids=["variables", "by_manual", "env", "env_filled_in", "auth_config", "auth_config_filled_in", "variables_first"],
)
async def test_an_operator_sets_a_variable(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setenv("KEY_OF_MINE", "k-12345")

    assert await key_sent(in_file(tmp_path, manual(tool("t", keyed(app)))), **options) == "k-12345"


@pytest.mark.parametrize("written", ["$API_KEY", "${API_KEY}"])
async def test_the_environment_is_asked_by_the_manuals_own_key(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.setenv("m_API_KEY", "from-outside")

    assert await key_sent(in_file(tmp_path, manual(tool("t", keyed(app, written))))) == "from-outside"


async def test_an_underscore_of_the_manuals_name_is_doubled(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.dumps(manual(tool("t", keyed(app))))
    template = {"name": "my-api_2", "call_template_type": "text", "content": content}
    monkeypatch.setenv("my__api__2_API_KEY", "doubled")

    assert await key_sent(in_file(tmp_path, {"manual_call_templates": [template]})) == "doubled"


async def test_nothing_else_of_the_environment_can_be_read_by_a_manual(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "somebody-elses")
    tools = [tool("t", keyed(app)), tool("ok", app.http("/echo"))]
    async with toolbox(source(in_file(tmp_path, manual(*tools)))) as box:
        assert names(box) == {"m.ok"}


async def test_a_tool_whose_variables_are_missing_is_left_out_and_they_are_named(app: App, tmp_path: Path) -> None:
    template = {**keyed(app), "url": f"{app.address}/${{ROOM}}/$FLOOR"}
    tools = [tool("broken", template), tool("ok", app.http("/echo"))]
    async with toolbox(source(in_file(tmp_path, manual(*tools)))) as box:
        [told] = box.problems
        works = await box.call("m.ok", {})

    assert "'m.broken'" in told
    assert "ROOM, FLOOR, API_KEY" in told
    assert "options.variables" in told
    assert "m_ROOM" in told
    assert works.status == "completed"


async def test_a_dollar_sign_elsewhere_is_only_a_dollar_sign(app: App, tmp_path: Path) -> None:
    described = tool(
        "t",
        app.http("/echo?$top=5&price=$5", headers={"X-Ref": "$ref"}),
        inputs={
            "properties": {"a": {"$ref": "#/$defs/A", "description": "${NOT_ONE}"}},
            "$defs": {"A": {"type": "string"}},
        },
    )
    described["description"] = "It costs $5 or ${MORE}."
    async with toolbox(source(in_file(tmp_path, manual(described)))) as box:
        spec = box.registry.find("m.t").spec
        outcome = await box.call("m.t", {"a": "x"})

    assert spec.description == "It costs $5 or ${MORE}."
    assert spec.input_schema["properties"]["a"]["$ref"] == "#/$defs/A"
    assert outcome.content["query"] == {"$top": ["5"], "price": ["$5"], "a": ["x"]}
    assert outcome.content["headers"]["x-ref"] == "$ref"


async def test_a_variable_is_not_reported_when_a_call_fails(app: App, tmp_path: Path) -> None:
    auth = {"auth_type": "api_key", "api_key": "Bearer ${TOKEN}", "var_name": "Authorization"}
    path = in_file(tmp_path, manual(tool("t", app.http("/status/${STATUS}", auth=auth))))
    variables = {"TOKEN": "s3cret-token", "STATUS": "403"}
    async with toolbox(source(path, options={"variables": variables})) as box:
        outcome = await box.call("m.t", {})

    assert "you sent" in str(outcome.error)
    assert "s3cret-token" not in str(outcome.error)
    assert "/status/${STATUS}" in str(outcome.error)


async def test_secrets_that_an_answer_repeats_are_in_no_result_and_no_event(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("m_API_KEY", "k3y-of-the-environment")
    monkeypatch.setenv("OUR_TOKEN", "t0ken-handed-on")
    fixed = app.http("/echo", headers={"Authorization": "Bearer b3arer-written"})
    script = {**cli("printenv OUR_TOKEN"), "inherit_env_vars": ["OUR_TOKEN"]}
    tools = [tool("keyed", keyed(app)), tool("fixed", fixed), tool("script", script)]
    allowed = {"allowed_communication_protocols": ["http", "cli"]}
    async with toolbox(source(in_file(tmp_path, manual(*tools)), options=allowed)) as box:
        results = [(await box.call(f"m.{name}", {})).content for name in ("keyed", "fixed", "script")]
        told = str([event.payload for event in await box.events()])

    for result, secret in zip(results, ("k3y-of", "b3arer-written", "t0ken-handed-on"), strict=True):
        assert MASK in str(result)
        assert secret not in f"{result} {told}"


async def test_a_number_may_be_a_variable(app: App, tmp_path: Path) -> None:
    template = {"name": "x", "call_template_type": "text", "content": json.dumps(manual(tool("t", keyed(app))))}
    config = {"manual_call_templates": [template], "variables": {"API_KEY": 12345}}

    assert await key_sent(in_file(tmp_path, config)) == "12345"


@pytest.mark.parametrize(
    "line",
    ["API_KEY=k-1 # a comment", "export API_KEY='k-1'  # one more", 'API_KEY="k-1"', "API_KEY=k-1"],
    ids=["comment", "quoted", "double", "plain"],
)
async def test_a_file_of_variables_may_have_comments(app: App, tmp_path: Path, line: str) -> None:
    (tmp_path / "x.env").write_text(f"# all of them\n{line}\n")
    template = {"name": "x", "call_template_type": "text", "content": json.dumps(manual(tool("t", keyed(app))))}
    loaders = [{"variable_loader_type": "dotenv", "env_file_path": "x.env"}]
    config = {"manual_call_templates": [template], "load_variables_from": loaders}

    assert await key_sent(in_file(tmp_path, config)) == "k-1"
