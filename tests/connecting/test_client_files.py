"""The ecosystem's own files: every dialect is read, nothing is dropped in silence, no secret is copied."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost import ConfigError
from toolpost.connecting.client_files import (
    ImportedServers,
    fit_name,
    read_lenient_json,
    read_servers,
    strict_json,
    usual_places,
)
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.source_kinds import AuthType, McpTransport
from toolpost.sources.mcp.options import McpOptions

Read = Callable[..., ImportedServers]


def mcp_transport(source: ExternalToolConfig) -> McpTransport:
    return source.read_options(McpOptions).transport


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def write_and_read(document: Any, *, name: str = ".mcp.json", **environ: str) -> ImportedServers:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(document if isinstance(document, str) else json.dumps(document))
        return read_servers(file, environ=environ)

    return write_and_read


def _servers(**servers: Any) -> dict[str, Any]:
    return {"mcpServers": servers}


def test_a_project_s_file_is_read(read: Read) -> None:
    found = read(
        _servers(
            files={"command": "npx", "args": ["-y", "server-files", "/my notes"], "env": {"LOG": "debug", "N": 3}},
            docs={"type": "http", "url": "https://docs.example/mcp", "headers": {"X-Team": "blue"}},
            old={"type": "sse", "url": "https://old.example/sse", "disabled": True},
        )
    )

    files, docs, old = found.sources
    assert shlex.split(files.connection) == ["npx", "-y", "server-files", "/my notes"]
    assert (files.env, files.cwd, mcp_transport(files)) == ({"LOG": "debug", "N": "3"}, None, McpTransport.AUTO)
    assert (docs.connection, docs.headers) == ("https://docs.example/mcp", {"X-Team": "blue"})
    assert mcp_transport(docs) is McpTransport.STREAMABLE_HTTP
    assert (mcp_transport(old), old.enabled) == (McpTransport.SSE, False)
    assert (found.notes, found.variables) == ((), ())


def test_an_editor_s_file_with_comments_and_inputs_is_read(read: Read, tmp_path: Path) -> None:
    found = read(
        """{
          // servers of this workspace
          "inputs": [{"type": "promptString", "id": "api-key", "description": "Key of the API", "password": true},],
          "servers": {
            "local": {"type": "stdio", "command": "${workspaceFolder}/run", "args": ["${workspaceFolderBasename}"],
                      "env": {"KEY": "${input:api-key}", "HOST": "${env:DB_HOST}"}},
            "far": {"type": "http", "url": "https://far.example/mcp", "headers": {"X-Key": "${input:api-key}"}},
          },
        }""",
        name=".vscode/mcp.json",
    )

    local, far = found.sources
    assert shlex.split(local.connection) == [f"{tmp_path}/run", tmp_path.name]
    assert local.env == {"KEY": "${API_KEY}", "HOST": "${DB_HOST}"}
    assert far.headers == {"X-Key": "${API_KEY}"}
    assert [(variable.name, variable.stands_for) for variable in found.variables] == [("API_KEY", "Key of the API")]
    assert found.notes == ("local: the input 'api-key' of the editor is now the variable API_KEY",)


@pytest.mark.parametrize(
    ("name", "document", "connection", "transport"),
    [
        (
            "mcp_config.json",
            _servers(a={"serverUrl": "https://a.example/mcp"}),
            "https://a.example/mcp",
            McpTransport.AUTO,
        ),
        (
            ".gemini/settings.json",
            {"theme": "dark", **_servers(a={"httpUrl": "https://a.example/mcp", "trust": False})},
            "https://a.example/mcp",
            McpTransport.STREAMABLE_HTTP,
        ),
        (
            "zed/settings.json",
            {"vim_mode": True, "context_servers": {"a": {"source": "custom", "command": "run", "args": ["x"]}}},
            "run x",
            McpTransport.AUTO,
        ),
        (
            "zed/settings.json",
            {"context_servers": {"a": {"command": {"path": "run", "args": ["x"], "env": {}}}}},
            "run x",
            McpTransport.AUTO,
        ),
        ("settings.json", {"mcp": {"servers": {"a": {"command": "run"}}}}, "run", McpTransport.AUTO),
        (
            "mcp-config.json",
            _servers(a={"type": "local", "command": "run", "args": [], "tools": ["*"]}),
            "run",
            McpTransport.AUTO,
        ),
        (
            "cline.json",
            _servers(a={"transport": {"type": "streamableHttp", "url": "https://a.example/mcp"}}),
            "https://a.example/mcp",
            McpTransport.STREAMABLE_HTTP,
        ),
        ("claude_desktop_config.json", _servers(a={"command": "run 'a b' c"}), "run 'a b' c", McpTransport.AUTO),
        ("other.json", _servers(a={"command": ["run", "a b"], "args": ["c"]}), "run 'a b' c", McpTransport.AUTO),
    ],
)
def test_every_program_s_own_dialect_is_read(
    read: Read, name: str, document: Any, connection: str, transport: McpTransport
) -> None:
    found = read(document, name=name)

    assert [(source.connection, mcp_transport(source)) for source in found.sources] == [(connection, transport)]
    assert found.notes == ()


def test_secrets_that_are_written_out_are_not_copied(read: Read) -> None:
    found = read(
        _servers(
            gh={"command": "run", "args": ["--api-key", "zzz-arg"], "env": {"GITHUB_TOKEN": "zzz-env"}},
            far={"url": "https://far.example/mcp?apiKey=zzz-query", "headers": {"Authorization": "Bearer zzz-head"}},
            login={"url": "https://ann:zzz-login@login.example/mcp"},
        ),
        name="claude_desktop_config.json",
    )

    gh, far, login = found.sources
    assert gh.env == {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}
    assert shlex.split(gh.connection) == ["run", "--api-key", "${GH_API_KEY}"]
    assert far.connection == "https://far.example/mcp?apiKey=${FAR_API_KEY}"
    assert far.headers == {"Authorization": "Bearer ${FAR_AUTHORIZATION}"}
    assert (login.connection, login.auth_type) == ("https://login.example/mcp", AuthType.BASIC)
    assert login.auth_config == {"username": "ann", "password": "${LOGIN_PASSWORD}"}
    assert "zzz" not in repr(found) + "".join(source.model_dump_json() for source in found.sources)


def test_two_different_secrets_of_one_name_stay_apart(read: Read) -> None:
    found = read(
        _servers(
            one={"command": "run", "env": {"API_KEY": "first"}},
            two={"command": "run", "env": {"API_KEY": "second"}},
            three={"command": "run", "env": {"API_KEY": "first"}},
        )
    )

    assert [source.env["API_KEY"] for source in found.sources] == ["${API_KEY}", "${TWO_API_KEY}", "${API_KEY}"]


@pytest.mark.parametrize(
    ("written", "meant", "told"),
    [
        ("${A}", "${A}", ""),
        ("${env:A}", "${A}", ""),
        ("x-${A}-${env:B}", "x-${A}-${B}", ""),
        ("${SET:-other}", "${SET}", "SET must be set; its default is not imported"),
        ("${UNSET:-other}", "other", "UNSET is not set, so its default is written instead of it"),
        ("${MY_TOKEN:-hunter2}", "${MY_TOKEN}", "MY_TOKEN must be set; its default is not imported"),
        ("${file:/etc/x}", "$${file:/etc/x}", "the placeholder ${file:/etc/x} is unknown"),
        ("$A", "$A", ""),
        ("${open", "$${open", "the placeholder ${open is unknown"),
    ],
)
def test_references_become_those_that_are_understood_here(read: Read, written: str, meant: str, told: str) -> None:
    found = read(_servers(srv={"command": "run", "env": {"X": written}}), SET="value")

    assert found.sources[0].env == {"X": meant}
    assert told in "\n".join(found.notes)
    assert bool(found.notes) == bool(told)


def test_one_program_writes_variables_without_braces(read: Read) -> None:
    found = read(_servers(srv={"command": "run", "env": {"X": "$A", "Y": "a$B"}}), name=".gemini/settings.json")

    assert found.sources[0].env == {"X": "${A}", "Y": "a$B"}


def test_a_relative_path_means_the_folder_of_the_project(read: Read, tmp_path: Path) -> None:
    (tmp_path / "server.py").touch()
    found = read(
        _servers(
            named={"command": "python", "args": ["server.py"]},
            written={"command": "./run"},
            given={"command": "run", "cwd": "sub"},
            variable={"command": "run", "cwd": "${env:PROJECT}/sub"},
            none={"command": "run", "args": ["gone.py"]},
        ),
        name=".cursor/mcp.json",
    )

    here, sub = str(tmp_path), str(tmp_path / "sub")
    assert [source.cwd for source in found.sources] == [here, here, sub, "${PROJECT}/sub", None]


def test_limits_are_taken_over_and_permissions_are_not(read: Read) -> None:
    found = read(
        _servers(
            one={"command": "run", "timeout": 45_000, "includeTools": ["a.b"], "excludeTools": ["c"], "trust": True},
            two={"command": "run", "timeout": 3600, "disabledTools": ["d"], "alwaysAllow": ["e"], "enabled": False},
            three={"command": "run", "timeout": 60, "description": "Sixty"},
        )
    )

    one, two, three = found.sources
    assert (one.timeout_s, one.tool_filter, one.tool_exclude) == (45.0, [r"a\.b"], ["c"])
    assert (two.timeout_s, two.tool_exclude, two.enabled) == (300.0, ["d"], False)
    assert (three.timeout_s, three.description) == (60.0, "Sixty")
    assert "one: trust skipped: `policy` decides which calls run without approval" in found.notes
    assert "two: alwaysAllow skipped: `policy` decides which calls run without approval" in found.notes
    assert "two: the timeout 3600 becomes 300 s" in found.notes


def test_what_no_one_knows_is_reported(read: Read) -> None:
    server = {"command": "run", "envFile": ".env", "timeout": "soon", "headers": {"A": "b"}, "env": {"N": None}}
    found = read({"x": 1, **_servers(srv=server)})

    assert found.notes == (
        "'x' beside 'mcpServers' skipped: unknown key",
        "srv: headers are skipped: a command has none",
        "srv: env N skipped: null is not a value",
        "srv: 'timeout' skipped: unknown key",
    )


def test_the_file_of_variables_that_an_editor_starts_a_server_with_is_taken_over(read: Read, tmp_path: Path) -> None:
    files = {"a": "${workspaceFolder}/keys.env", "b": "keys.env", "c": "${KEYS}/x"}
    found = read(_servers(**{name: {"command": "run", "envFile": file} for name, file in files.items()}))

    keys = str(tmp_path / "keys.env")
    assert [source.env_file for source in found.sources] == [keys, keys, "${KEYS}/x"]
    assert not found.notes


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("npx", "it is not a JSON object"),
        ({}, "it has neither a command nor an address"),
        ({"type": "ws", "url": "wss://a.example"}, "its transport 'ws' is not supported"),
        ({"url": "ftp://a.example"}, "its address is not an http or https URL"),
        ({"type": "stdio", "url": "https://a.example"}, "its transport is stdio, and it has no command"),
        ({"command": "run", "args": "x y"}, "its args are not a list"),
        ({"command": "run 'x"}, "its command cannot be split into words: No closing quotation"),
        ({"command": " "}, "its command is empty"),
        ({"source": "extension", "settings": {}}, "an extension of the editor starts it"),
    ],
)
def test_a_server_that_cannot_be_a_source_is_reported_and_the_others_are_read(read: Read, entry: Any, why: str) -> None:
    found = read(_servers(odd=entry, fine={"command": "run"}))

    assert [source.name for source in found.sources] == ["fine"]
    assert found.notes == (f"odd: skipped, because {why}",)


def test_names_are_made_fit_and_stay_apart(read: Read) -> None:
    found = read(_servers(**{"my server": {"command": "a"}, "my.server": {"command": "b"}, "äö": {"command": "c"}}))

    assert [source.name for source in found.sources] == ["my-server", "my-server-2", "server"]
    assert len(found.notes) == 3
    assert fit_name("_a b_") == "a-b"


def test_both_a_command_and_an_address_go_by_the_type(read: Read) -> None:
    both = {"command": "run", "url": "https://a.example/mcp"}
    found = read(_servers(started=both, called={**both, "type": "http"}))

    assert [source.connection for source in found.sources] == ["run", "https://a.example/mcp"]


@pytest.mark.parametrize("document", [[], {}, {"theme": "dark"}, {"mcp": {}}])
def test_a_file_without_servers_is_reported(read: Read, document: Any) -> None:
    with pytest.raises(ConfigError, match="contains no MCP servers"):
        read(document)


@pytest.mark.parametrize("document", ["{", '{"mcpServers": []}'])
def test_a_broken_file_is_reported_by_its_name(read: Read, tmp_path: Path, document: str) -> None:
    with pytest.raises(ConfigError, match=str(tmp_path / ".mcp.json")):
        read(document)


def test_projects_with_servers_of_their_own_are_reported(read: Read) -> None:
    projects = {"/a": {"mcpServers": {"x": {"command": "y"}}}, "/b": {"mcpServers": {}}}
    found = read({"projects": projects, **_servers(srv={"command": "run"})}, name=".claude.json")

    assert found.notes == ("servers of the projects '/a' are skipped",)


def test_files_are_found_in_the_folder_and_in_the_usual_places(tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    expected = [
        project / ".mcp.json",
        project / ".vscode/mcp.json",
        home / ".codeium/windsurf/mcp_config.json",
        home / ".config/Claude/claude_desktop_config.json",
    ]
    for path in [*expected, home / "other.json"]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    assert usual_places(project, environ={"HOME": str(home)}) == expected


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mcp.json"


def test_comments_and_trailing_commas_are_read_over_but_not_within_texts(file: Path) -> None:
    file.write_text(
        """\ufeff{
          // "url": "https://old.example",
          "url": "https://a.example//b", /* two
          lines */ "glob": "/* no comment */ , ]",
          "quote": "\\" // still text",
          "list": [1, 2, /* last */ ],
        }"""
    )

    assert read_lenient_json(file) == {
        "url": "https://a.example//b",
        "glob": "/* no comment */ , ]",
        "quote": '" // still text',
        "list": [1, 2],
    }


@given(VALUES)
def test_what_is_strict_already_stays_as_it_is(value: object) -> None:
    written = json.dumps(value, ensure_ascii=False, indent=1)

    assert strict_json(written) == written


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{\n  // fine\n  "a": 1\n  "b": 2\n}', "line 4, column 3"),
        ('{"a": [1, 2,, 3]}', "line 1, column 13"),
        ('{\n"a": "open\n}', "line 2, column 11"),
        ("{ /* never closed", "line 1, column"),
        ("", "line 1, column 1"),
    ],
)
def test_a_mistake_is_reported_by_file_line_and_column(file: Path, text: str, place: str) -> None:
    file.write_text(text)

    with pytest.raises(ConfigError, match="this is not JSON") as caught:
        read_lenient_json(file)

    assert str(caught.value).startswith(f"{file}, {place}")


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b'{"a": 1, "a": 2}', "key 'a' is given twice"),
        (b'{"a": "\xff"}', "is not UTF-8 text (byte 7)"),
        (b"[" * 100_000, "is nested too deeply"),
        (b" " * (32 * 1024 * 1024 + 1), "is larger than"),
    ],
)
def test_what_cannot_be_read_is_reported(file: Path, raw: bytes, told: str) -> None:
    file.write_bytes(raw)

    with pytest.raises(ConfigError) as caught:
        read_lenient_json(file)

    assert told in str(caught.value)


def test_a_file_that_is_not_there_is_reported(file: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        read_lenient_json(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_lenient_json(file.parent)
