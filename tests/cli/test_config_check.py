"""`toolpost config check`: what is wrong, what is only told, and with which code it leaves."""

import json
from pathlib import Path

import pytest

from tests.cli.program import Run

ROLES = "server: {oidc: {issuer: 'https://login.example', audience: a, roles: {%s]}}"
SOURCE = "sources: [{name: local, transport: python, connection: ./tools.py, overrides: {%s}}]\n"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("policy: [{action: deny, tools: [wrte_file]}]", "policy rule 1: no tool is called 'wrte_file'; did you mean"),
        ("overrides: {http_gett: {hide: true}}", "overrides: no tool is called 'http_gett'; did you mean 'http_get'?"),
        (SOURCE % "wpie: {hide: true}", "overrides: none of its tools is called 'wpie'; did you mean 'wipe'?"),
    ],
    ids=["deny", "hide", "hide of a source"],
)
def test_a_guard_that_guards_nothing_is_wrong(toolpost: Run, home: Path, written: str, said: str) -> None:
    (home / "toolpost.yaml").write_text(written)

    done = toolpost("config", "check", "--connect", "--json")
    told = toolpost("config", "check", "--connect")

    assert (done.code, told.code, done.json["status"], done.json["warnings"]) == (1, 1, "failed", [])
    assert said in done.json["problems"][0]
    assert "error: " in told.err
    assert "The configuration has errors; see above." in told.err


@pytest.mark.parametrize(
    "written",
    [
        "policy: [{action: allow, sources: [loacl]}]",
        "overrides: {http_gett: {timeout_s: 3}}",
        SOURCE % "wpie: {timeout_s: 3}",
        "collections: {bad: [nosuch]}",
        "tools: {webSearch: {provider: brave}}",
        "tools: {webSearch: {chain: [{provider: mcp, tool: nosuch.tool}]}}",
        ROLES % "both: {scopes: [call, answer]}}, person_clients: [portal",
        ROLES % "boss: {scopes: [answer]}}, person_clients: [",
    ],
)
def test_what_only_does_nothing_is_a_warning(toolpost: Run, home: Path, written: str) -> None:
    (home / "toolpost.yaml").write_text(written)

    done = toolpost("config", "check", "--connect", "--json")
    told = toolpost("config", "check", "--connect")

    assert (done.code, told.code, done.json["status"]) == (0, 0, "ok")
    assert done.json["warnings"] == done.json["problems"]
    assert f"warning: {done.json['warnings'][0]}" in told.err
    assert "The configuration is valid." in told.err


def test_a_source_that_does_not_answer_is_reported_with_its_address(toolpost: Run, home: Path) -> None:
    (home / "toolpost.yaml").write_text(
        "sources:\n  - {name: one, transport: python, connection: ./one.py}\n"
        '  - {name: gone, transport: http, connection: "http://127.0.0.1:9/api.json?page=1"}\n'
    )
    (home / "one.py").write_text(
        "from toolpost import tool\n\n\n@tool(side_effects='pure')\ndef f() -> int:\n    return 1\n"
    )

    done = toolpost("config", "check", "--connect")

    assert (done.code, "ok: python, 1 tool " in done.out) == (1, True)
    assert "is the server at http://127.0.0.1:9/api.json running" in " ".join(done.out.split())


def test_a_tool_that_a_manual_gets_wrong_is_a_warning(toolpost: Run, home: Path) -> None:
    call = {"call_template_type": "http", "url": "https://shop.example/items", "http_method": "GET"}
    tools = [{"name": "good", "tool_call_template": call}, {"name": "bad", "tool_call_template": {**call, "url": 5}}]
    (home / "manual.json").write_text(json.dumps({"utcp_version": "1.0.1", "manual_version": "1", "tools": tools}))
    (home / "toolpost.yaml").write_text("sources: [{name: far, transport: utcp, connection: ./manual.json}]\n")

    done = toolpost("config", "check", "--connect", "--json")

    assert [source["tools"] for source in done.json["sources"]] == [1]
    assert "bad" in done.json["warnings"][0]
    assert (done.code, done.json["status"]) == (0, "ok")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("builtins: run_command", "a list of tool names and collections, such as [all, run_command], got 'run_"),
        ("builtins: [run_comand]", "no built-in tool 'run_comand'; did you mean 'run_command'? There are: artifact_"),
        ("builtins: [retrieve]", "no built-in tool 'retrieve' until tools.retrieval.chain names a store"),
        ("builtins: [none]", "write builtins: none without a list"),
        ("builtins: [qqqq]", "no built-in tool 'qqqq'; there are: artifact_read"),
    ],
)
def test_a_built_in_tool_that_there_is_not_is_reported_with_the_nearest(
    toolpost: Run, home: Path, written: str, said: str
) -> None:
    (home / "toolpost.yaml").write_text(written)

    done = toolpost("config", "check", "--connect", "--json")

    assert done.code == 1
    assert said in done.json["error"]["message"]


def test_all_and_some_more_can_be_had(toolpost: Run, home: Path) -> None:
    (home / "toolpost.yaml").write_text("builtins: [all, run_command]")

    names = {tool["name"] for tool in toolpost("tools", "list", "--json").json}

    assert {"run_command", "command_output", "read_file", "web_search"} <= names


def test_a_wrong_key_of_a_sign_in_is_reported_with_the_nearest(toolpost: Run, home: Path) -> None:
    source = (
        "{name: far, transport: mcp, connection: 'https://far.example/mcp', auth_type: oauth2_user, auth_config: %s}"
    )
    (home / "toolpost.yaml").write_text(f"sources: [{source % '{isuer: https://a.example}'}]")

    done = toolpost("config", "check", "--connect")

    assert done.code == 1
    assert "has no key 'isuer'; did you mean 'issuer'? There are: " in done.out + done.err


def test_a_source_whose_variable_is_not_set_is_wrong_and_one_that_is_turned_off_is_not(
    toolpost: Run, home: Path
) -> None:
    sources = [
        {"name": "lacking", "transport": "python", "connection": "./${NOBODY_SET_THIS}.py"},
        {"name": "idle", "transport": "python", "connection": "./${NOR_THIS}.py", "enabled": False},
    ]
    (home / "toolpost.yaml").write_text(json.dumps({"sources": sources}))

    done = toolpost("config", "check", "--json")

    assert (done.code, done.json["status"], done.json["disabled"]) == (1, "failed", ["idle"])
    [lacking] = done.json["sources"]
    assert lacking["error"].startswith("environment variable is not set: NOBODY_SET_THIS")
