"""A command brings in no more sources than it needs, and tells nothing of the others."""

import socket
from pathlib import Path

import pytest
import yaml

from tests.cli.program import Run

OTHER = '''
from pathlib import Path

from toolpost import ToolContext, tool

with Path(__file__).with_name("started.txt").open("a") as file:
    file.write(f"{__name__.rpartition('_')[2]}\\n")


@tool(side_effects="pure")
def hello() -> str:
    """Say hello."""
    return "hello"


@tool(side_effects="write", destructive=True)
def unlock(door: str) -> str:
    """Unlock a door."""
    return f"{door} is open"


@tool(
    side_effects="write",
    destructive=True,
    input_schema={
        "type": "object",
        "properties": {"digits": {"type": "string", "writeOnly": True}},
        "required": ["digits"],
    },
)
def dial(digits: str) -> int:
    """Dial a number that is nobody's business."""
    return len(digits)


@tool(side_effects="pure")
async def relay(ctx: ToolContext) -> str:
    """Let a tool of another source speak."""
    return (await ctx.call("other.hello")).content
'''
LIBRARY = '''
from toolpost import tool


@tool(side_effects="pure")
def look_up(query: str) -> list[dict[str, str]]:
    """Look something up."""
    return [{"title": query, "url": f"https://example.org/{query}", "snippet": "found"}]
'''
SOURCES = [
    {"name": "other", "transport": "python", "connection": "./other.py"},
    {"name": "third", "transport": "python", "connection": "./third.py"},
    {"name": "odd", "transport": "python", "connection": "./odd.py"},
]


@pytest.fixture(autouse=True)
def several(home: Path) -> None:
    """Two sources that leave a mark when they start, and one that leaves it and fails."""
    for name in ("other", "third"):
        (home / f"{name}.py").write_text(OTHER)
    (home / "odd.py").write_text(f"{OTHER}\nimport no_such_module_at_all\n")
    (home / "toolpost.yaml").write_text(yaml.safe_dump({"sources": SOURCES}))


def started(home: Path) -> list[str]:
    """The sources that were started since the last look."""
    marks = home / "started.txt"
    names = marks.read_text().split() if marks.exists() else []
    marks.unlink(missing_ok=True)
    return sorted(names)


@pytest.mark.parametrize(
    "words",
    ["events", "runs list", "pending list", "pending list --json", "accounts list", "accounts forget acme:ann --yes"],
)
def test_what_the_store_alone_answers_starts_no_source(toolpost: Run, home: Path, words: str) -> None:
    done = toolpost(*words.split())

    assert (done.code, started(home)) == (0, [])
    assert "odd" not in done.err


@pytest.mark.parametrize("words", ["runs show run_x", "runs cancel run_x", "events --run run_x", "pending show ask_x"])
def test_what_is_not_in_the_store_starts_no_source_either(toolpost: Run, home: Path, words: str) -> None:
    assert (toolpost(*words.split()).code, started(home)) == (1, [])


@pytest.mark.parametrize(
    ("words", "sources"),
    [
        ("tools call third.hello", ["third"]),
        ("tools call third__hello", ["third"]),
        ("tools show other.relay", ["other"]),
        ("tools show json_parse", []),
        ("tools list --source other", ["other"]),
        ("tools export --utcp --source other", ["other"]),
    ],
)
def test_a_tool_needs_its_own_source_alone(toolpost: Run, home: Path, words: str, sources: list[str]) -> None:
    done = toolpost(*words.split())

    assert (done.code, started(home)) == (0, sources)
    assert "odd" not in done.err


def test_a_built_in_tool_needs_no_source(toolpost: Run, home: Path) -> None:
    done = toolpost("tools", "call", "base64_encode", "--args", '{"text": "x"}', "--json")

    assert (done.code, started(home)) == (0, [])


def test_a_name_that_is_not_found_so_is_looked_for_everywhere(toolpost: Run, home: Path) -> None:
    done = toolpost("tools", "call", "thrd.hello", "--json")

    assert done.json["error"]["message"] == 'Tool "thrd.hello" not found. Did you mean "third.hello"?'
    assert started(home) == ["odd", "other", "third"]
    assert "source 'odd' is skipped: " in done.err


def test_a_source_that_failed_is_not_started_again(toolpost: Run, home: Path) -> None:
    done = toolpost("tools", "show", "odd.hello")

    assert (done.code, started(home)) == (1, ["odd"])
    assert "no_such_module_at_all" in done.err


def test_a_tool_that_may_call_others_finds_them(toolpost: Run) -> None:
    assert toolpost("tools", "call", "third.relay", "--json").json["content"] == "hello"


@pytest.mark.programs
def test_a_tool_that_may_call_others_waits_for_none_that_it_does_not_call(toolpost: Run, home: Path) -> None:
    silent = {"name": "silent", "transport": "mcp", "connection": "sleep 1000"}
    (home / "toolpost.yaml").write_text(yaml.safe_dump({"sources": [silent, *SOURCES[:2]]}))

    done = toolpost("tools", "call", "third.relay", "--json")

    assert (done.json["content"], "silent" in done.err) == ("hello", False)


def test_a_source_without_such_a_tool_is_the_only_one_asked(toolpost: Run, home: Path) -> None:
    done = toolpost("tools", "call", "third.helo", "--json")

    assert done.json["error"]["message"] == 'Tool "third.helo" not found. Did you mean "third.hello"?'
    assert started(home) == ["third"]


def test_a_built_in_tool_finds_the_tool_that_provides_for_it(toolpost: Run, home: Path) -> None:
    (home / "library.py").write_text(LIBRARY)
    library = {"name": "library", "transport": "python", "connection": "./library.py"}
    tools = {"web_search": {"chain": [{"provider": "mcp", "tool": "library.look_up"}]}}
    (home / "toolpost.yaml").write_text(
        yaml.safe_dump({"policy": "exploratory", "sources": [library], "tools": tools, "builtins": ["web_search"]})
    )

    done = toolpost("tools", "call", "web_search", "--args", '{"query": "tea"}', "--json")

    assert (done.code, "https://example.org/tea" in done.out) == (0, True)


@pytest.mark.parametrize(("verb", "told"), [("approve", "front is open\n"), ("deny", "denied: ")])
def test_an_answer_starts_the_source_of_its_question(toolpost: Run, home: Path, verb: str, told: str) -> None:
    asked = toolpost("tools", "call", "third.unlock", "--args", '{"door": "front"}', "--json").json["pending"]["id"]
    started(home)

    done = toolpost("pending", verb, asked)

    assert (done.code, done.out.startswith(told), started(home)) == (0, True, ["third"])


def test_what_a_schema_marks_as_secret_is_masked_by_the_one_source_that_knows(toolpost: Run, home: Path) -> None:
    asked = toolpost("tools", "call", "third.dial", "--args", '{"digits": "0049-1"}', "--json").json["pending"]["id"]
    started(home)

    told = [toolpost("pending", "show", asked), toolpost("pending", "list", "--json")]

    assert started(home) == ["third", "third"]
    assert not [done for done in told if "0049-1" in done.out or "[redacted]" not in done.out]
    assert (toolpost("pending", "list").code, started(home)) == (0, [])


def test_a_secret_of_a_source_that_is_not_started_is_not_reported(toolpost: Run, home: Path) -> None:
    silent = {
        "name": "api",
        "transport": "http",
        "connection": "http://127.0.0.1:9/",
        "headers": {"X-Api-Key": "k-1234"},
    }
    (home / "toolpost.yaml").write_text(yaml.safe_dump({"sources": [*SOURCES, silent]}))
    asked = toolpost("tools", "call", "other.unlock", "--args", '{"door": "k-1234"}', "--json").json["pending"]["id"]

    shown = toolpost("pending", "show", asked, "--json")

    assert shown.json["arguments"] == {"door": "[redacted]"}


@pytest.mark.parametrize("words", ["tools list", "tools export --utcp"])
def test_a_source_that_is_not_there_is_reported_with_the_nearest_name(toolpost: Run, home: Path, words: str) -> None:
    off = {"name": "quiet", "transport": "python", "connection": "./other.py", "enabled": False}
    (home / "toolpost.yaml").write_text(yaml.safe_dump({"sources": [*SOURCES, off]}))

    near = toolpost(*words.split(), "--source", "thrid", "--json")
    far = toolpost(*words.split(), "--source", "nope")
    turned_off = toolpost(*words.split(), "--source", "quiet")

    assert (near.code, near.json["error"]["error_code"]) == (1, "source_not_found")
    assert near.json["error"]["message"] == "unknown source 'thrid'; did you mean 'third'?"
    assert (far.code, "there are: odd, other, quiet, third" in far.err) == (1, True)
    assert (turned_off.code, "enabled: false" in turned_off.err) == (1, True)
    assert started(home) == []


@pytest.mark.parametrize(
    ("transport", "options"), [("mcp", {}), ("mcp", {"options": {"transport": "sse"}}), ("http", {}), ("graphql", {})]
)
def test_where_no_one_answers_the_address_is_named_without_its_query(
    toolpost: Run, home: Path, transport: str, options: dict[str, object]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}/here"
    source = {"name": "gone", "transport": transport, "connection": f"{address}?code=shrouded", **options}
    (home / "toolpost.yaml").write_text(yaml.safe_dump({"sources": [source]}))

    listed, looked = toolpost("tools", "list"), toolpost("doctor", "--json")

    for told in (listed.err, looked.out):
        assert f"is the server at {address} running, and is the address right?" in told
        assert "shrouded" not in told
    assert "source 'gone' is skipped: " in listed.err
