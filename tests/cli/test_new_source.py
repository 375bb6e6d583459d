"""`toolpost tools connect` looks at an address or into a file, and writes what is there or nothing."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.program import Run
from tests.sources.graphql.serving import library
from tests.sources.mcp.programs import mirror
from tests.sources.openapi.test_source import described, little_shop
from tests.sources.webhook.boxes import by_path, said
from tests.wire.site import Site

TOKEN = "s3cr3t-tok-en"
MANUAL = {
    "utcp_version": "1.0.0",
    "manual_version": "1.0.0",
    "tools": [{"name": "add", "tool_call_template": {"call_template_type": "http", "url": "http://127.0.0.1:9/add"}}],
}


def written(home: Path, name: str) -> dict[str, Any]:
    sources = yaml.safe_load((home / "toolpost.yaml").read_text())["sources"]
    return next(source for source in sources if source["name"] == name)


def shown(text: str) -> dict[str, Any]:
    return yaml.safe_load(text[text.index("sources:\n") :].partition("\n\n")[0])["sources"][0]


def guarded_document(scheme: dict[str, Any]) -> dict[str, Any]:
    document = described("/")
    document["components"] = {"securitySchemes": {"Guard": scheme}}
    document["paths"]["/items/{id}"]["get"]["security"] = [{"Guard": []}]
    return document


@pytest.mark.programs
@pytest.mark.parametrize(
    ("header", "scheme", "auth"),
    [
        (
            f"Authorization: Bearer {TOKEN}",
            {"type": "http", "scheme": "bearer"},
            {"auth_type": "bearer", "auth_config": {"token": "${TOK_AUTHORIZATION}"}},
        ),
        (
            f"X-Shop-Key: {TOKEN}",
            {"type": "apiKey", "in": "header", "name": "X-Shop-Key"},
            {"auth_type": "api_key", "auth_config": {"api_key": "${TOK_X_SHOP_KEY}", "header": "X-Shop-Key"}},
        ),
    ],
    ids=["bearer", "api_key"],
)
async def test_a_header_that_is_a_credential_is_written_as_one_and_serves_its_scheme(
    child: Run, home: Path, monkeypatch: pytest.MonkeyPatch, header: str, scheme: dict[str, Any], auth: dict[str, Any]
) -> None:
    answers = {"openapi.json": said(200, guarded_document(scheme)), "7": said(200, {"ok": 1})}
    async with Site(by_path(**answers)) as site:
        connect = ("tools", "connect", f"{site.url}/openapi.json", "--name", "tok", "--yes")
        done = await asyncio.to_thread(child, *connect, "--header", header, "--header", "X-Team: blue")
        monkeypatch.setenv(auth["auth_config"].get("token", auth["auth_config"].get("api_key")).strip("${}"), TOKEN)
        called = await asyncio.to_thread(child, "tools", "call", "tok.look", "--args", '{"id": 7}')

    rest = {"name": "tok", "transport": "http", "connection": f"{site.url}/openapi.json", "headers": {"X-Team": "blue"}}
    assert (done.code, called.code) == (0, 0), done.err + called.err
    assert written(home, "tok") == {**rest, **auth}
    name, _, value = header.partition(": ")
    assert (site.last.path, site.last.all(name), site.last.all("X-Team")) == ("/items/7", [value], ["blue"])
    assert TOKEN not in done.out + done.err + (home / "toolpost.yaml").read_text()


@pytest.mark.programs
def test_a_dry_run_shows_what_the_real_run_writes(toolpost: Run, home: Path) -> None:
    before = (home / "toolpost.yaml").read_text()
    with little_shop() as shop, library() as books:
        for name, url, transport in (("shop", f"{shop}/openapi.json", "http"), ("books", books, "graphql")):
            dry = toolpost("tools", "connect", url, "--name", name, "--dry-run")
            as_json = toolpost("tools", "connect", url, "--name", name, "--dry-run", "--json")
            assert (home / "toolpost.yaml").read_text() == before
            real = toolpost("tools", "connect", url, "--name", name, "--yes")

            assert as_json.json["source"]["transport"] == transport
            assert shown(dry.out) == written(home, name)
            assert dry.out.strip() in real.out
            before = (home / "toolpost.yaml").read_text()


@pytest.mark.programs
def test_the_root_of_an_api_is_enough(toolpost: Run, home: Path) -> None:
    with little_shop() as shop:
        done = toolpost("tools", "connect", f"{shop}/", "--name", "shop", "--yes")
    assert (done.code, "shop.get_item" in done.out) == (0, True)
    assert f"a REST API (its document is at {shop}/openapi.json)" in done.err
    assert written(home, "shop") == {"name": "shop", "transport": "http", "connection": f"{shop}/"}


@pytest.mark.programs
def test_the_root_of_an_mcp_server_is_enough(toolpost: Run, home: Path) -> None:
    with mirror() as server:
        done = toolpost("tools", "connect", server.removesuffix("mcp"), "--name", "far", "--yes")
    assert done.code == 0
    assert written(home, "far") == {"name": "far", "transport": "mcp", "connection": server}


@pytest.mark.parametrize("more", [["--yes"], ["--dry-run"]], ids=["yes", "dry_run"])
def test_where_nothing_answers_nothing_is_written(toolpost: Run, home: Path, more: list[str]) -> None:
    before = (home / "toolpost.yaml").read_text()
    done = toolpost("tools", "connect", "http://127.0.0.1:1/openapi.json?key=zzz-key", "--json", *more)

    assert (done.code, done.json["error"]["error_code"]) == (1, "not_recognised")
    assert "http://127.0.0.1:1/openapi.json was not recognized, and nothing was written" in done.out
    assert "zzz" not in done.out + done.err
    assert (home / "toolpost.yaml").read_text() == before


@pytest.mark.programs
@pytest.mark.parametrize("status", [200, 401, 404])
async def test_what_does_not_say_what_it_is_is_not_written_unless_one_says_it(
    child: Run, home: Path, status: int
) -> None:
    before = (home / "toolpost.yaml").read_text()
    async with Site(said(status, {"hello": "world"})) as site:
        done = await asyncio.to_thread(child, "tools", "connect", site.url, "--yes")
        assert (home / "toolpost.yaml").read_text() == before
        told = ("tools", "connect", site.url, "--name", "told", "--transport", "streamable_http", "--yes")
        await asyncio.to_thread(child, *told)

    assert done.code == 1
    assert "was not recognized" in done.err
    assert all(f"{site.url}/{place}" in done.err for place in ("openapi.json", "mcp", "sse"))
    assert "--transport streamable_http" in done.err
    assert written(home, "told")["transport"] == "mcp"


def test_a_variable_that_a_header_refers_to_is_set_before_one_looks(toolpost: Run) -> None:
    done = toolpost("tools", "connect", "http://127.0.0.1:1/", "--header", "X-Key: ${NOT_SET_HERE}", "--dry-run")
    assert done.code == 1
    assert "variables that are not set: NOT_SET_HERE; set them first" in done.err
    assert "--env" not in done.err


@pytest.mark.parametrize(
    ("name", "content", "transport"),
    [("api.json", described("https://example.com"), "http"), ("sums.json", MANUAL, "utcp"), ("manual", MANUAL, "utcp")],
    ids=["openapi", "utcp", "no_suffix"],
)
def test_a_file_is_reported_by_its_content(
    toolpost: Run, home: Path, name: str, content: dict[str, Any], transport: str
) -> None:
    (home / "sub").mkdir()
    (home / "sub" / name).write_text(json.dumps(content))
    done = toolpost("tools", "connect", f"./sub/{name}", "--name", "mine", "--yes")

    assert done.code == 0, done.err
    assert f"mine is described by this file:\n  ./sub/{name}\n" in done.out
    assert "on the PATH" not in done.err
    assert written(home, "mine") == {"name": "mine", "transport": transport, "connection": f"./sub/{name}"}
    assert ("mine.look" if transport == "http" else "mine.add") in done.out


def test_a_file_is_found_from_the_folder_of_the_configuration(toolpost: Run, home: Path) -> None:
    (home / "there").mkdir()
    (home / "api.json").write_text(json.dumps(described("https://example.com")))
    done = toolpost("tools", "connect", "api.json", "--config", "there/own.yaml", "--yes")

    assert done.code == 0, done.err
    assert yaml.safe_load((home / "there" / "own.yaml").read_text())["sources"][0]["connection"] == f"{home}/api.json"


def test_a_file_of_python_tools_is_a_source_of_them(toolpost: Run, home: Path) -> None:
    (home / "sub").mkdir()
    (home / "tools.py").rename(home / "sub" / "mine.py")
    (home / "toolpost.yaml").unlink()
    done = toolpost("tools", "connect", "sub/mine.py", "--yes")

    assert done.code == 0, done.err
    assert "mine runs the Python in this file:\n  sub/mine.py\n" in done.out
    assert written(home, "mine") == {"name": "mine", "transport": "python", "connection": "./sub/mine.py"}
    assert toolpost("tools", "call", "mine.add", "--args", '{"a": 2, "b": 3}', "--json").json["content"] == 5


@pytest.mark.programs
async def test_an_address_that_does_not_speak_mcp_is_reported_without_the_traceback_of_a_library(child: Run) -> None:
    async with Site(by_path(hook=said(200, {"got": "it"}))) as site:
        options = ("--name", "hook", "--transport", "streamable_http", "--yes")
        done = await asyncio.to_thread(child, "tools", "connect", f"{site.url}/hook", *options)

    assert (done.code, "'hook' is in toolpost.yaml now, but cannot be connected" in done.err) == (1, True)
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("books.graphql", "type Query {\n  title: String\n}\n", "options.schema_file (docs/sources/graphql.md)"),
        ("mcp.json", '{"mcpServers": {"a": {"command": "a"}}}', "to use them, run `toolpost import mcp.json`"),
        ("other.json", '{"hello": "world"}', "neither an API document nor a UTCP manual"),
        ("server.py", "print(1)\n", "if it is an MCP server, give its whole command: 'python server.py'"),
    ],
)
def test_a_file_that_is_no_source_is_reported_as_what_it_is(
    toolpost: Run, home: Path, name: str, content: str, told: str
) -> None:
    before = (home / "toolpost.yaml").read_text()
    (home / name).write_text(content)
    done = toolpost("tools", "connect", name, "--yes")

    assert (done.code, told in done.err) == (1, True), done.err
    assert (home / "toolpost.yaml").read_text() == before


@pytest.mark.parametrize(
    ("what", "code", "told"),
    [
        ("./none.json", "file_missing", "the file './none.json' does not exist"),
        ("none.graphql", "file_missing", "the file 'none.graphql' does not exist"),
        ("tools/none", "file_missing", "the file 'tools/none' does not exist"),
        ("none.py", "file_missing", "the file 'none.py' does not exist"),
        (".", "file_missing", "'.' is a folder; give a file in it"),
        ("127.0.0.1:8801", "file_missing", "write http://127.0.0.1:8801, or https://"),
        ("localhost/openapi.json", "file_missing", "write http://localhost/openapi.json, or https://"),
        ("api.example.com", "file_missing", "write http://api.example.com, or https://"),
        ("ftp://127.0.0.1/x", "scheme_unknown", "give an address with http:// or https://"),
        ("ws://127.0.0.1:1/feed", "messages_undeclared", "write a source with `transport: websocket`: "),
        ("wss://a.example/feed", "messages_undeclared", "write a source"),
    ],
)
def test_an_address_that_cannot_be_read_is_reported_without_a_list_of_presets(
    toolpost: Run, what: str, code: str, told: str
) -> None:
    done = toolpost("tools", "connect", what, "--json")

    assert (done.code, done.json["error"]["error_code"]) == (1, code)
    assert told in done.json["error"]["message"]
    assert "preset" not in done.json["error"]["message"]
