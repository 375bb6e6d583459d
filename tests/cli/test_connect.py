"""`toolpost tools connect`: shown, agreed to, written, tried."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.program import Run
from tests.cli.terminal import at_a_terminal
from tests.sources.graphql.serving import library
from tests.sources.openapi.test_source import described, folder, little_shop
from tests.sources.webhook.boxes import by_path, said
from tests.wire.site import Site
from toolpost.connecting.presets import PACKAGES

SERVER = Path(__file__).with_name("small_server.py")
SMALL = ("--", sys.executable, str(SERVER))
SECRET = "s3cret-of-the-small-one"


@pytest.fixture(autouse=True)
def _only_what_a_test_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in PACKAGES.values():
        for name in package.reads:
            monkeypatch.delenv(name, raising=False)


def _sources(home: Path) -> dict[str, dict]:
    return {source["name"]: source for source in yaml.safe_load((home / "toolpost.yaml").read_text())["sources"]}


@pytest.mark.req("CLI-02")
def test_a_preset_is_shown_in_one_version_and_nothing_is_written_in_a_dry_run(toolpost: Run, home: Path) -> None:
    before = (home / "toolpost.yaml").read_text()
    done = toolpost("tools", "connect", "github", "--dry-run")

    exact = "npx -y @modelcontextprotocol/server-github@2025.4.8"
    assert done.code == 0
    assert f"github starts this program on this machine:\n  {exact}\n" in done.out
    assert f"connection: {exact}\n" in done.out
    assert "github needs a token: set GITHUB_PERSONAL_ACCESS_TOKEN" in done.err
    assert "with the redirect URI http://127.0.0.1:21917/callback/github" in done.err
    assert "set GITHUB_CLIENT_ID and GITHUB_CLIENT_SECRET of an OAuth app" in done.err
    assert (home / "toolpost.yaml").read_text() == before


@pytest.mark.programs
@pytest.mark.req("CLI-02")
def test_a_server_is_written_and_its_tools_are_shown(toolpost: Run, home: Path) -> None:
    done = toolpost("tools", "connect", "--name", "small", "--yes", *SMALL)

    assert done.code == 0
    assert "small.greet" in done.out
    assert "Greet someone." in done.out
    assert _sources(home)["small"] == {
        "name": "small",
        "transport": "mcp",
        "connection": f"{sys.executable} {SERVER}",
    }
    assert toolpost("tools", "call", "small.greet", "--args", '{"name": "Ann"}').code == 3  # nobody trusts it


@pytest.mark.programs
@pytest.mark.req("CLI-02")
def test_a_secret_is_used_now_and_a_variable_is_written(
    toolpost: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = toolpost("tools", "connect", "--env", f"SMALL_TOKEN={SECRET}", "--json", "--yes", *SMALL)

    assert (done.code, done.json["status"], done.json["written"]) == (0, "ok", True)
    assert {"small_server.greet", "small_server.has_token"} <= {tool["name"] for tool in done.json["tools"]}
    variable = {"name": "SMALL_SERVER_SMALL_TOKEN", "stands_for": "env SMALL_TOKEN of 'small_server'", "set": False}
    assert done.json["variables"] == [variable]
    assert done.json["source"]["env"] == ["SMALL_TOKEN"]
    assert _sources(home)["small_server"]["env"] == {"SMALL_TOKEN": "${SMALL_SERVER_SMALL_TOKEN}"}
    assert "Set SMALL_SERVER_SMALL_TOKEN to it." in done.err
    assert SECRET not in done.out + done.err + (home / "toolpost.yaml").read_text()

    monkeypatch.setenv("SMALL_SERVER_SMALL_TOKEN", SECRET)
    (home / "toolpost.yaml").write_text((home / "toolpost.yaml").read_text() + "policy: exploratory\n")
    assert "true" in toolpost("tools", "call", "small_server.has_token").out


@pytest.mark.programs
def test_a_server_that_cannot_be_connected_stays_in_the_file_and_that_is_reported(toolpost: Run, home: Path) -> None:
    done = toolpost("tools", "connect", "--name", "small", "--env", "SMALL_TOKEN=wrong-s3cret", "--yes", *SMALL)
    again = toolpost("tools", "connect", "no-such-program --flag", "--yes", "--force", "--json")

    assert done.code == 1
    assert "'small' is in toolpost.yaml now, but cannot be connected" in done.err
    assert "refused: [redacted]" in done.err
    assert "`toolpost config check --connect` tries again, `toolpost tools disconnect small` removes it." in done.err
    assert "wrong-s3cret" not in done.out + done.err
    assert (again.code, again.json["status"], again.json["written"]) == (1, "failed", True)
    assert again.json["error"]["error_code"] == "connection_failed"
    assert "no-such-program is not on the PATH" in again.err
    assert list(_sources(home)) == ["local", "small", "no-such-program"]


@pytest.mark.programs
def test_the_address_of_an_api_is_recognised(toolpost: Run, home: Path) -> None:
    with little_shop() as shop:
        done = toolpost("tools", "connect", f"{shop}/openapi.json", "--name", "shop", "--yes")
    assert done.code == 0
    assert "a REST API" in done.err
    assert "shop.get_item" in done.out
    assert _sources(home)["shop"]["transport"] == "http"


@pytest.mark.programs
def test_a_graphql_api_is_recognised(toolpost: Run, home: Path) -> None:
    with library() as books:
        done = toolpost("tools", "connect", books, "--name", "books", "--yes")
    assert done.code == 0
    assert "a GraphQL API" in done.err
    assert _sources(home)["books"]["transport"] == "graphql"


@pytest.mark.programs
def test_a_utcp_manual_is_recognised(toolpost: Run, home: Path) -> None:
    (home / "served").mkdir()
    call = {"call_template_type": "http", "url": "http://127.0.0.1:9/add", "http_method": "POST"}
    manual = {
        "utcp_version": "1.0.0",
        "manual_version": "1.0.0",
        "tools": [{"name": "add", "tool_call_template": call}],
    }
    (home / "served" / "utcp").write_text(json.dumps(manual))
    with folder(home / "served") as files:
        done = toolpost("tools", "connect", f"{files}/utcp", "--name", "sums", "--yes")
    assert "a UTCP manual" in done.err
    assert _sources(home)["sums"]["transport"] == "utcp"


@pytest.mark.programs
async def test_the_key_of_an_n8n_is_written_as_a_variable_for_its_api_alone(child: Run, home: Path) -> None:
    page = b'<html><head><meta name="n8n:config:rest-endpoint" content="cmVzdA=="></head></html>'
    flows = by_path(workflows=said(200, {"data": []}), page=said(200, page, **{"content-type": "text/html"}))
    async with Site(flows) as site:
        key = "X-N8N-API-KEY: n8n_api_5f2c81d0"
        words = ("tools", "connect", site.url, "--name", "flows", "--header", key, "--yes")
        done = await asyncio.to_thread(child, *words)
    assert "an n8n" in done.err
    written = _sources(home)["flows"]
    assert (written["transport"], written["options"]["kind"], written["auth_type"]) == ("webhook", "n8n", "api_key")
    assert "headers" not in written
    assert "5f2c81d0" not in (home / "toolpost.yaml").read_text()


def test_the_document_of_an_api_may_be_a_file(toolpost: Run, home: Path) -> None:
    (home / "notes.json").write_text(json.dumps(described("https://example.com")))
    done = toolpost("tools", "connect", "notes.json", "--yes")
    assert done.code == 0
    assert "notes.look" in done.out
    assert _sources(home)["notes"]["transport"] == "http"


@pytest.mark.programs
def test_no_one_is_asked_without_a_terminal(toolpost: Run, child: Run, home: Path) -> None:
    before = (home / "toolpost.yaml").read_text()
    done = child("tools", "connect", "everything", given="y\n")
    as_json = toolpost("tools", "connect", "everything", "--json")

    assert done.code == 1
    assert "server-everything@" in done.out
    assert "add --yes" in done.err
    assert (as_json.code, as_json.json["error"]["error_code"]) == (1, "confirmation_needed")
    assert (home / "toolpost.yaml").read_text() == before


@pytest.mark.programs
@pytest.mark.parametrize(("typed", "code"), [(b"n\n", 1), (b"\n", 1), (b"\x03", 130)])
def test_a_person_at_a_terminal_may_say_no(home: Path, typed: bytes, code: int) -> None:
    before = (home / "toolpost.yaml").read_text()
    done = at_a_terminal(home, {"[y/N] ": typed}, "tools", "connect", "everything")

    assert done.code == code
    assert "npx -y @modelcontextprotocol/server-everything@" in done.out
    assert (home / "toolpost.yaml").read_text() == before


@pytest.mark.programs
def test_an_interruption_before_the_confirmation_reports_that_nothing_was_written(home: Path) -> None:
    done = at_a_terminal(home, {"[y/N] ": b"\x03"}, "tools", "connect", "everything")

    assert (done.code, "interrupted; nothing was written to toolpost.yaml" in done.out) == (130, True)


@pytest.mark.programs
def test_an_interrupted_connection_reports_the_content_of_the_file(home: Path) -> None:
    silent = ("--", sys.executable, "-c", "import time; time.sleep(600)")
    done = at_a_terminal(
        home, {"[y/N] ": b"y\n", "starting silent": b"\x03"}, "tools", "connect", "--name", "silent", *silent
    )

    assert done.code == 130
    assert "interrupted; 'silent' is in toolpost.yaml now and is not connected." in done.out
    assert "`toolpost tools disconnect silent` removes it." in done.out
    assert "silent" in _sources(home)


@pytest.mark.programs
def test_a_person_at_a_terminal_may_say_yes(home: Path) -> None:
    done = at_a_terminal(
        home, {"[y/N] ": b"y\n"}, "tools", "connect", "--name", "brief", "--", sys.executable, "-c", "pass"
    )

    assert (done.code, "cannot be connected" in done.out) == (1, True)
    assert _sources(home)["brief"]["connection"] == f"{sys.executable} -c pass"


@pytest.mark.parametrize(
    ("what", "name", "connection"),
    [
        (["--transport", "sse", "https://mcp.linear.app/mcp"], "linear", "https://mcp.linear.app/mcp"),
        (["--transport", "sse", "http://127.0.0.1:9/mcp"], "127-0-0-1", "http://127.0.0.1:9/mcp"),
        (["npx -y @acme/server-notes@1.2.3 'a b'"], "notes", "npx -y @acme/server-notes@1.2.3 'a b'"),
        (["--", "npx", "-y", "@stripe/mcp@0.3.3"], "stripe", "npx -y @stripe/mcp@0.3.3"),
        (["--", "uvx", "mcp-server-time==1"], "time", "uvx mcp-server-time==1"),
        (["--", "docker", "run", "-i", "--rm", "mcp/github:1"], "github", "docker run -i --rm mcp/github:1"),
        (["--", "python", "-m", "acme_tools"], "acme_tools", "python -m acme_tools"),
        (["/opt/acme/bin/acme-mcp --all"], "acme", "/opt/acme/bin/acme-mcp --all"),
        (["filesystem", "/srv", "/my notes"], "filesystem", "npx -y {filesystem} /srv '/my notes'"),
    ],
)
def test_a_name_is_made_from_what_is_connected(toolpost: Run, what: list[str], name: str, connection: str) -> None:
    done = toolpost("tools", "connect", "--dry-run", "--json", *what)

    pinned = f"{PACKAGES['filesystem'].name}@{PACKAGES['filesystem'].version}"
    assert done.json["source"]["name"] == name
    assert done.json["source"]["connection"] == connection.format(filesystem=pinned)
    assert (done.json["status"], done.json["written"], done.json["tools"]) == ("dry_run", False, [])


def test_a_relative_path_goes_with_the_folder_that_it_is_meant_in(toolpost: Run, home: Path) -> None:
    (home / "sub").mkdir()
    here = toolpost("tools", "connect", "filesystem", ".", "--dry-run")
    there = toolpost("tools", "connect", "everything", "--cwd", "sub", "--dry-run")

    assert "    cwd: .\n" in here.out
    assert "    cwd: sub\n" in there.out
    assert f"in the folder {home / 'sub'}" in there.out


def test_a_document_in_a_file_takes_the_header_as_the_credential(toolpost: Run, home: Path) -> None:
    (home / "weather.json").write_text(json.dumps({"openapi": "3.1.0", "info": {"title": "W", "version": "1"}}))

    done = toolpost("tools", "connect", "weather.json", "--dry-run", "--header", f"Authorization: Bearer {SECRET}")

    assert done.code == 0
    assert "auth_type: bearer\n    auth_config:\n      token: ${WEATHER_AUTHORIZATION}\n" in done.out
    assert SECRET not in done.out + done.err


@pytest.mark.parametrize(
    ("file", "option", "message"),
    [
        ("tools.py", ("--header", "X-Key: a"), "tools.py does not describe an API; only requests have headers"),
        ("tools.py", ("--env", "A=b"), "only a program has one"),
        ("tools.py", ("--cwd", "."), "only a program has one"),
        ("tools.py", ("--transport", "sse"), "only an MCP server has one, and this is a file"),
    ],
)
def test_what_a_file_has_no_use_for_is_refused(toolpost: Run, file: str, option: tuple[str, str], message: str) -> None:
    done = toolpost("tools", "connect", file, "--dry-run", *option)

    assert done.code == 2
    assert message in done.err


def test_headers_and_logins_of_a_url_are_kept_out_of_the_file(toolpost: Run) -> None:
    done = toolpost(
        *("tools", "connect", "https://ann:zzz-login@far.example/mcp?apiKey=zzz-query", "--name", "far", "--dry-run"),
        *("--header", "Authorization: Bearer zzz-head", "--header", "X-Team: blue", "--header", "X-Key: ${MINE}"),
        *("--transport", "sse"),
    )

    source = yaml.safe_load(done.out[done.out.index("sources:") :])["sources"][0]
    assert source == {
        "name": "far",
        "transport": "mcp",
        "connection": "https://far.example/mcp?apiKey=${FAR_API_KEY}",
        "headers": {"Authorization": "Bearer ${FAR_AUTHORIZATION}", "X-Team": "blue", "X-Key": "${MINE}"},
        "auth_type": "basic",
        "auth_config": {"username": "ann", "password": "${FAR_PASSWORD}"},
        "options": {"transport": "sse"},
    }
    assert "zzz" not in done.out + done.err


def test_a_variable_that_is_referred_to_must_be_set(toolpost: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (home / "toolpost.yaml").read_text()
    done = toolpost("tools", "connect", "postgres", "--yes")
    given = toolpost("tools", "connect", "postgres", "--env", "DATABASE_URL=postgres://a:pw-zzz@db/x", "--dry-run")
    monkeypatch.setenv("DATABASE_URL", "postgres://db/x")
    handed_on = toolpost("tools", "connect", "postgres", "--dry-run")

    assert done.code == 1
    assert "variables that are not set: DATABASE_URL; set them first, or give --env DATABASE_URL=..." in done.err
    assert (home / "toolpost.yaml").read_text() == before
    assert "'postgres://a:${POSTGRES_DATABASE_URL_PASSWORD}@db/x'" in given.out
    assert "pw-zzz" not in given.out + given.err
    assert "server-postgres@0.6.2 '${DATABASE_URL}'" in handed_on.out


def test_a_preset_hands_on_the_variables_that_its_server_reads(toolpost: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_PERSONAL_ACCESS_TOKEN", "zzz-token")
    done = toolpost("tools", "connect", "github", "--env", "EXTRA", "--dry-run")

    assert "      GITHUB_PERSONAL_ACCESS_TOKEN: ${GITHUB_PERSONAL_ACCESS_TOKEN}\n      EXTRA: ${EXTRA}\n" in done.out
    assert "zzz" not in done.out + done.err


@pytest.mark.req("CLI-02")
def test_a_preset_whose_people_sign_in_is_written_with_all_that_a_sign_in_needs(
    toolpost: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_CLIENT_ID", "id-1")
    monkeypatch.setenv("GITHUB_CLIENT_SECRET", "zzz-secret")
    done = toolpost("tools", "connect", "github", "--dry-run", "--json")
    shown = toolpost("tools", "connect", "github", "--dry-run")

    written = yaml.safe_load(shown.out.partition("sources:\n")[2])[0]
    assert json.loads(done.out)["source"]["auth_type"] == "oauth2_user"
    assert written["auth_config"] == {
        "provider": "github",
        "client_id": "${GITHUB_CLIENT_ID}",
        "client_secret": "env:GITHUB_CLIENT_SECRET",
        "scopes": ["repo"],
        "token_env": "GITHUB_PERSONAL_ACCESS_TOKEN",
    }
    assert "toolpost accounts connect github" in shown.err
    assert "zzz" not in done.out + done.err + shown.out + shown.err


@pytest.mark.req("CLI-02")
def test_a_preset_without_any_credential_is_not_written(toolpost: Run, home: Path) -> None:
    before = (home / "toolpost.yaml").read_text()
    done = toolpost("tools", "connect", "github", "--yes")

    assert done.code == 1
    assert "variables that are not set: GITHUB_PERSONAL_ACCESS_TOKEN" in done.err
    assert (home / "toolpost.yaml").read_text() == before


@pytest.mark.parametrize(
    ("what", "code", "told"),
    [
        ("google-drive", "preset_unavailable", "the package @anthropic/mcp-server-google-drive is not on npm"),
        ("gthub", "preset_unknown", "Unknown preset: gthub. Available: ['github', 'filesystem', "),
    ],
)
def test_what_cannot_be_had_is_reported(toolpost: Run, what: str, code: str, told: str) -> None:
    done = toolpost("tools", "connect", what, "--json")

    assert (done.code, done.json["error"]["error_code"]) == (1, code)
    assert told in done.json["error"]["message"]


def test_a_name_that_is_taken_is_refused(toolpost: Run) -> None:
    done = toolpost("tools", "connect", "everything", "--name", "local", "--yes")

    assert done.code == 1
    assert "toolpost.yaml already has a source named 'local'; give another name with --name" in done.err


def test_a_package_without_a_version_is_reported(toolpost: Run) -> None:
    loose = toolpost("tools", "connect", "npx -y @acme/notes", "--dry-run")
    fixed = toolpost("tools", "connect", "npx -y @acme/notes@1.0.0", "--dry-run")

    assert "@acme/notes has no version, so every start runs the newest one" in loose.err
    assert "has no version" not in fixed.err


def test_nothing_hides_in_what_is_shown(toolpost: Run) -> None:
    done = toolpost("tools", "connect", "--dry-run", "--", "run", "a\nenvironment: none", "\u202egood")

    assert "  run 'a\\nenvironment: none' '\\u202egood'\n" in done.out


def test_a_file_that_nothing_can_be_added_to_is_left_and_the_text_is_given(toolpost: Run, home: Path) -> None:
    (home / "toolpost.yaml").write_text("{policy: audit}\n")

    done = toolpost("tools", "connect", "everything", "--yes")

    assert done.code == 1
    assert "paste the new part in an editor" in done.err
    assert "sources:\n  - name: everything\n" in done.err
    assert (home / "toolpost.yaml").read_text() == "{policy: audit}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["everything", "--env", "=x"],
        ["everything", "--env", "zzz-token"],
        ["everything", "--header", "A: b"],
        ["everything", "--transport", "sse"],
        ["everything", "--cwd", "no-such-folder"],
        ["everything", "--name", "a.b"],
        ["https://a.example", "--header", "no colon"],
        ["https://a.example", "--env", "A=b"],
        ["https://a.example", "--transport", "stdio"],
        ["https://a.example", "--header", "Authorization:", "zzz-token"],
        ["https://", "--dry-run"],
        ["run 'x"],
        [""],
    ],
)
def test_a_wrong_command_line_is_reported(toolpost: Run, arguments: list[str]) -> None:
    done = toolpost("tools", "connect", *arguments)

    assert (done.code, done.out) == (2, "")
    assert "Error: " in done.err
    assert "zzz" not in done.err


@pytest.mark.programs
def test_what_a_server_claims_is_shown_and_counts_only_with_trust(toolpost: Run, home: Path) -> None:
    shut = toolpost("tools", "connect", "--name", "shut", "--yes", *SMALL)
    believed = toolpost("tools", "connect", "--name", "small", "--yes", "--trust", *SMALL)

    assert "small.greet" in believed.out
    assert "reads only" in believed.out
    assert "shut is not trusted" in shut.err
    assert ("trust" in _sources(home)["shut"], _sources(home)["small"]["trust"]) == (False, True)
    assert set(json.loads((home / "toolpost.lock").read_text())["sources"]) == {"small"}


@pytest.mark.programs
def test_a_trusted_server_is_called_unasked_and_its_pins_hold(
    toolpost: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--name", "small", "--env", f"SMALL_TOKEN={SECRET}", "--yes", "--trust", "--json")
    done = toolpost("tools", "connect", *words, *SMALL)
    monkeypatch.setenv("SMALL_TOKEN", SECRET)

    assert (done.code, done.json["trusted"]) == (0, True)
    assert {"tool": "small.greet", "claims": "reads only"} in done.json["claims"]
    assert "Hello, Ann!" in toolpost("tools", "call", "small.greet", "--args", '{"name": "Ann"}').out
    assert "small" not in toolpost("lock", "--check").out  # the tools of tools.py are not pinned yet
    assert toolpost("lock", "--yes").code == 0
    assert toolpost("lock", "--check").code == 0
    assert SECRET not in (home / "toolpost.lock").read_text()


@pytest.mark.programs
@pytest.mark.parametrize(("typed", "trusted"), [(b"y\n", True), (b"n\n", False)])
def test_a_person_is_asked_whether_a_source_is_trusted(home: Path, typed: bytes, trusted: bool) -> None:
    answers = {"connect it once? [y/N] ": b"y\n", "Trust small?": typed}
    done = at_a_terminal(home, answers, "tools", "connect", "--name", "small", *SMALL)
    assert done.code == 0
    assert _sources(home)["small"].get("trust", False) is trusted
    assert (home / "toolpost.lock").exists() is trusted


def test_a_dry_run_names_the_variables_that_a_server_inherits_and_those_that_are_withheld(
    toolpost: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/ssl/corp.pem")
    monkeypatch.setenv("HTTPS_PROXY", "http://ann:hunter2@proxy.example")
    (home / "toolpost.yaml").write_text("sources:\n  - {name: srv, transport: mcp, connection: python server.py}\n")

    shown = toolpost("tools", "connect", "filesystem", ".", "--dry-run")
    checked = toolpost("config", "check").out
    document = toolpost("config", "check", "--json").json

    assert "SSL_CERT_FILE" in shown.out.partition("with these variables of the environment: ")[2].partition("\n")[0]
    assert "HTTPS_PROXY" in shown.out.partition("without ")[2].partition(", which holds a login")[0]
    assert "hunter2" not in shown.out + checked
    assert "SSL_CERT_FILE" in checked
    assert ("SSL_CERT_FILE" in document["inherited"], document["withheld"]) == (True, ["HTTPS_PROXY"])
