"""`toolpost tools`: list, show and call."""

import json
import shlex
from pathlib import Path

import pytest

from tests import warm
from tests.cli.program import Run
from tests.cli.terminal import at_a_terminal

CALL_KEYS = {"status", "call_id", "content", "error", "pending", "artifacts"}
SLOW_FIRST = {"slow": "slow", "a": "tools"}
LIST_KEYS = {
    "name",
    "description",
    "source",
    "category",
    "side_effects",
    "replay",
    "input_schema",
    "output_schema",
    "tags",
}


@pytest.mark.req("CLI-01")
def test_the_list_holds_every_tool_with_its_contract(toolpost: Run) -> None:
    done = toolpost("tools", "list", "--json")

    tools = {tool["name"]: tool for tool in done.json}
    assert done.code == 0
    assert {"local.add", "local.wipe", "artifact_read", "artifact_search"} <= set(tools)
    assert set(tools["local.add"]) >= LIST_KEYS
    assert tools["local.add"]["description"] == "Add two numbers."
    assert tools["local.add"]["input_schema"]["required"] == ["a", "b"]


@pytest.mark.req("CLI-01")
@pytest.mark.parametrize(
    ("option", "value", "name"),
    [("--source", "local", "local.add"), ("--tag", "math", "local.add"), ("--category", "data", "artifact_read")],
)
def test_the_list_can_be_narrowed(toolpost: Run, option: str, value: str, name: str) -> None:
    everything = {tool["name"] for tool in toolpost("tools", "list", "--json").json}
    narrowed = {tool["name"] for tool in toolpost("tools", "list", option, value, "--json").json}

    assert name in narrowed
    assert narrowed < everything
    assert toolpost("tools", "list", "--tag", "nobody-has-it", "--json").json == []


@pytest.mark.req("FRAME-08")
def test_the_list_counts_the_tokens_of_definitions(toolpost: Run) -> None:
    as_json = toolpost("tools", "list", "--tokens", "--json").json
    shown = toolpost("tools", "list", "--tokens", "--source", "local")

    assert all(tool["tokens"] > 0 and tool["tokenizer"] == "estimate" for tool in as_json)
    assert "Tokens" in shown.out
    total = sum(tool["tokens"] for tool in as_json if tool["source"] == "local")
    assert f"All definitions together: {total:,} tokens (estimated, 4.5 characters each)." in shown.err


@pytest.mark.req("MISC-25")
def test_tools_are_searched_by_what_they_do(toolpost: Run) -> None:
    found = toolpost("tools", "search", "sum", "of", "numbers", "--source", "local", "--limit", "1", "--json")
    shown = toolpost("tools", "search", "add")
    missed = toolpost("tools", "search", "nmbers")

    assert [tool["name"] for tool in found.json] == ["local.add"]
    assert "Add two numbers." in shown.out
    assert (missed.out, missed.code) == ("", 0)
    assert "No tools match 'nmbers'. Did you mean 'numbers'?" in missed.err
    assert "no collection 'none-such'" in toolpost("tools", "search", "add", "--collection", "none-such").err


@pytest.mark.parametrize("command", ["show", "call"])
def test_a_tool_of_a_source_that_is_down_is_not_said_to_be_missing(toolpost: Run, home: Path, command: str) -> None:
    gone = "{name: gone, transport: http, connection: 'http://127.0.0.1:9/api.json'}"
    (home / "toolpost.yaml").write_text(f"builtins: none\nsources: [{gone}]\n")
    done = toolpost("tools", command, "gone.find", "--json")

    assert (done.code, done.json["error"]["error_code"]) == (1, "source_down")
    assert "source 'gone' is down" in done.json["error"]["message"]


def test_the_list_goes_by_the_order_of_the_sources_however_slow_one_is(toolpost: Run, home: Path) -> None:
    (home / "slow.py").write_text(f"import time\ntime.sleep(0.5)\n{(home / 'tools.py').read_text()}")
    named = [f"{{name: {name}, transport: python, connection: ./{file}.py}}" for name, file in SLOW_FIRST.items()]
    (home / "toolpost.yaml").write_text(f"builtins: none\nsources: [{', '.join(named)}]\n")

    sources = [tool["source"] for tool in toolpost("tools", "list", "--json").json]

    assert list(dict.fromkeys(sources)) == ["slow", "a"]
    assert sources == sorted(sources, reverse=True)


def test_the_tools_of_a_collection_are_listed(toolpost: Run, home: Path) -> None:
    with (home / "toolpost.yaml").open("a") as file:
        file.write("collections: {sums: [local.add, 'tag:math']}\n")
    listed = toolpost("tools", "list", "--collection", "sums", "--json")
    unknown = toolpost("tools", "list", "--collection", "sum", "--json")

    assert [tool["name"] for tool in listed.json] == ["local.add"]
    assert "no collection 'sum'; there are: " in unknown.json["error"]["message"]
    assert "did you mean 'file_tools'?" in toolpost("tools", "list", "--collection", "fil_tools").err
    assert "sums" in unknown.json["error"]["message"]
    assert "No tools match." in toolpost("tools", "list", "--tag", "nobody-has-it").err


@pytest.mark.programs
@pytest.mark.parametrize("columns", [40, 80])
def test_at_a_narrow_terminal_ids_and_words_stay_whole(home: Path, columns: int) -> None:
    later = {"decide later: ": b"\n"}
    asked = at_a_terminal(home, later, "tools", "call", "local.wipe", "--args", '{"name": "disk"}', columns=columns)
    shown = at_a_terminal(home, {}, "pending", "list", columns=columns).out.replace("\r\n", "\n")

    name = asked.out.partition("pending approve ")[2].partition("`")[0]
    assert f"{name}\n  Status     open\n  Tool       local.wipe\n" in shown
    assert "Approval is required: it is marked destructive.\n" in shown


@pytest.mark.req("CLI-01", "NRT-05")
def test_people_get_a_table_and_the_next_step(toolpost: Run) -> None:
    done = toolpost("tools", "list")

    assert "local.wipe" in done.out
    assert "write, destructive" in done.out
    assert "toolpost tools show NAME" in done.err


def test_one_tool_is_shown_whole(toolpost: Run) -> None:
    assert toolpost("tools", "show", "local.add", "--json").json["tags"] == ["math"]
    assert "Add two numbers." in toolpost("tools", "show", "local.add").out


def test_an_unknown_tool_is_reported_with_the_nearest_name(toolpost: Run) -> None:
    shown = toolpost("tools", "show", "local.ad", "--json")
    called = toolpost("tools", "call", "local.ad", "--json")

    for done in (shown, called):
        assert done.code == 1
        assert set(done.json) >= CALL_KEYS
        assert done.json["status"] == "failed"
        assert done.json["error"]["message"] == 'Tool "local.ad" not found. Did you mean "local.add"?'


def test_a_call_prints_its_outcome(toolpost: Run) -> None:
    done = toolpost("tools", "call", "local.add", "--args", '{"a": 2, "b": 3}', "--json")

    assert done.code == 0
    assert set(done.json) >= CALL_KEYS
    assert (done.json["status"], done.json["content"], done.json["error"]) == ("completed", 5, None)


@pytest.mark.programs
def test_arguments_come_from_a_file_or_from_stdin_too(home: Path, toolpost: Run, child: Run) -> None:
    (home / "args.json").write_text('{"a": 2, "b": 3}')

    assert toolpost("tools", "call", "local.add", "--args", "@args.json").out == "5\n"
    assert child("tools", "call", "local.add", "--args", "-", given='{"a": 20, "b": 3}').out == "23\n"


@pytest.mark.parametrize("args", ['{"a": "2", "b": 3}', '{"a": 2}', '{"a": 2, "b": 3, "c": 4}', "[2, 3]", "5", "null"])
def test_refused_arguments_are_a_failed_call(toolpost: Run, args: str) -> None:
    done = toolpost("tools", "call", "local.add", "--args", args, "--json")

    assert done.code == 1
    assert done.json["error"]["error_code"] == "validation_failed"


def test_people_learn_why_a_call_failed_and_what_to_do(toolpost: Run) -> None:
    done = toolpost("tools", "call", "local.add", "--args", '{"a": 2}')

    assert (done.code, done.out) == (1, "")
    assert "failed: Parameter validation failed" in done.err
    assert "`toolpost tools show local.add` shows its arguments." in done.err


def test_a_call_that_takes_too_long_fails(toolpost: Run) -> None:
    done = toolpost("tools", "call", "local.wait", "--args", '{"seconds": 60}', "--timeout", "50ms", "--json")

    assert (done.code, done.json["error"]["error_code"]) == (1, "timeout")


def test_a_destructive_call_pauses_and_says_how_to_continue(toolpost: Run, home: Path) -> None:
    done = toolpost("tools", "call", "local.wipe", "--args", '{"name": "disk"}', "--json")
    told = toolpost("tools", "call", "local.wipe", "--args", '{"name": "disk"}')

    assert (done.code, done.json["status"]) == (3, "paused")
    assert done.json["pending"]["kind"] == "approval"
    assert told.code == 3
    assert "toolpost pending approve " in told.out
    assert not (home / "wiped.txt").exists()


def test_the_same_key_gives_the_same_answer(toolpost: Run) -> None:
    def call(a: int) -> tuple[int, dict]:
        args = json.dumps({"a": a, "b": 1})
        done = toolpost("tools", "call", "local.add", "--args", args, "--idempotency-key", "k1", "--json")
        return done.code, done.json

    first, again, other = call(1), call(1), call(2)

    assert first[1]["call_id"] == again[1]["call_id"]
    assert (other[0], other[1]["error"]["type"]) == (1, "ToolConflictError")


@pytest.mark.programs
def test_what_a_tool_prints_never_mixes_with_the_answer(child: Run) -> None:
    done = child("tools", "call", "local.noisy", "--json")

    assert done.json["content"] == "quiet"
    assert "printed" in done.err
    assert "echoed" in done.err


def test_what_a_tool_returns_cannot_command_the_terminal(toolpost: Run) -> None:
    done = toolpost("tools", "call", "local.styled")

    assert done.out == "\N{REPLACEMENT CHARACTER}[2Jall \N{REPLACEMENT CHARACTER}good\n"


def test_a_large_result_names_its_artifact(toolpost: Run) -> None:
    done = toolpost("tools", "call", "local.large", "--json")
    told = toolpost("tools", "call", "local.large")

    assert len(done.json["artifacts"]) == 1
    assert "artifact_read" in told.err


def test_a_source_that_fails_is_reported_and_the_others_work(toolpost: Run, home: Path) -> None:
    (home / "broken.py").write_text("import no_such_module_at_all\n")
    (home / "toolpost.yaml").write_text(
        "sources:\n"
        "- {name: local, transport: python, connection: ./tools.py}\n"
        "- {name: odd, transport: python, connection: ./broken.py}\n"
    )

    called = toolpost("tools", "call", "local.add", "--args", '{"a": 2, "b": 3}', "--json")
    done = toolpost("tools", "list", "--json")

    assert (called.code, called.json["content"], called.err) == (0, 5, "")
    assert (done.code, [one["name"] for one in done.json][-1][:6]) == (4, "local.")
    assert done.err.count("source 'odd' is skipped: ") == 1
    assert "no_such_module_at_all" in done.err


def test_a_required_source_that_fails_stops_the_command(toolpost: Run, home: Path) -> None:
    (home / "toolpost.yaml").write_text(
        "sources: [{name: odd, transport: python, connection: ./gone.py, required: true}]\n"
    )

    done = toolpost("tools", "list", "--json")

    assert (done.code, done.json["error"]["error_code"]) == (1, "config_invalid")
    assert "required source 'odd' failed" in done.json["error"]["message"]


BUSY = '''
from toolpost import tool
from toolpost.contracts.errors import ToolServerError


@tool(side_effects="write")
def busy() -> str:
    """Have no time."""
    raise ToolServerError("too many requests", status_code=429, retry_after_s=7)
'''


def test_people_learn_how_long_to_wait_and_one_tool_is_no_tools(toolpost: Run, home: Path) -> None:
    (home / "tools.py").write_text(BUSY)
    (home / "toolpost.yaml").write_text(
        "policy: exploratory\nsources: [{name: local, transport: python, connection: ./tools.py}]\n"
    )

    called = toolpost("tools", "call", "local.busy")
    listed = toolpost("tools", "list", "--source", "local")

    assert (called.code, "failed: too many requests (retry after 7 s)" in called.err) == (1, True)
    assert listed.err.startswith("1 tool. ")
    assert "python, 1 tool" in toolpost("doctor").out
    assert "python, 1 tools" not in toolpost("doctor").out


ACCEPTING = '''
from toolpost import ToolResult, tool

@tool(side_effects="read")
def later() -> ToolResult:
    """Take an order."""
    return ToolResult(success=True, result=None, content_text="Taken, but it may not be done yet.")
'''


def test_what_is_said_beside_an_empty_result_is_shown(toolpost: Run, home: Path) -> None:
    (home / "tools.py").write_text(ACCEPTING)

    done = toolpost("tools", "call", "local.later")

    assert (done.code, done.out.strip()) == (0, "null")
    assert "Taken, but it may not be done yet." in done.err


@pytest.mark.programs
def test_helpers_for_resources_are_listed_and_not_counted_as_tools(toolpost: Run, home: Path) -> None:
    (home / "server.py").write_text(
        "from fastmcp import FastMCP\n"
        "server = FastMCP('res')\n"
        "server.tool(lambda: 1, name='one')\n"
        "server.resource('data://x')(lambda: 'x')\n"
        "server.run(show_banner=False)\n"
    )
    server = shlex.join(warm.command(home / "server.py"))
    (home / "toolpost.yaml").write_text(f"sources: [{{name: res, transport: mcp, connection: {server}, cwd: .}}]\n")

    done = toolpost("tools", "list", "--source", "res")

    assert "res.resources_read" in done.out
    assert "1 tool, and 2 for resources and prompts." in done.err


def test_without_sources_a_list_needs_no_store(toolpost: Run, home: Path) -> None:
    (home / "toolpost.yaml").write_text("overrides: {sleep: {hide: true}, nobody: {hide: true}}\n")
    (home / ".toolpost").mkdir()
    (home / ".toolpost" / "toolpost.db").write_text("this is no database")

    listed = toolpost("tools", "list", "--json")
    found = toolpost("tools", "search", "current", "time", "--json")

    names = {tool["name"] for tool in listed.json}
    assert (listed.code, found.code) == (0, 0)
    assert ("current_time" in names, "sleep" in names) == (True, False)
    assert "'nobody'" in listed.err
    assert found.json[0]["name"] == "current_time"


def test_a_search_continues_page_by_page(toolpost: Run, home: Path) -> None:
    functions = "".join(
        f'@tool(side_effects="pure")\ndef refund_{number}() -> str:\n    """Refund a payment."""\n    return ""\n\n'
        for number in range(5)
    )
    (home / "tools.py").write_text(f"from toolpost import tool\n\n{functions}")
    search = ("tools", "search", "refund", "payment", "--limit", "2", "--source", "local")

    first = toolpost(*search)
    pages = [toolpost(*search, "--page", str(number), "--json").json for number in (1, 2, 3, 4)]

    assert "For more, add --page 2." in first.err
    assert [len(page) for page in pages] == [2, 2, 1, 0]
    assert len({spec["name"] for page in pages for spec in page}) == 5
    assert "Page 4" in toolpost(*search, "--page", "4").err
