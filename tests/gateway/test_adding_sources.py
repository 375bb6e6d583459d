"""Sources over REST: detected, planned, tried, added to the file, changed and removed again; secrets stay out of it."""

import json
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.gateway.serving import Served, listening, served
from tests.sources.mcp.programs import SERVERS, mirror

SECRET = "sk-live-0123456789abcdef"
TOOLS = '''
from toolpost import tool


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="write", destructive=True)
async def drop(name: str) -> str:
    """Drop a table."""
    return name
'''
API = {"name": "api", "transport": "mcp"}
CONFIG = """# our gateway
data_dir: ./data
builtins: none
policy:
  - {action: deny, tools: [local.drop]}
sources:
  - name: local  # our tools
    transport: python
    connection: ./tools.py
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "more.py").write_text(TOOLS)
    (tmp_path / "toolpost.yaml").write_text(CONFIG)
    return tmp_path


@pytest.fixture
async def gate(home: Path) -> AsyncIterator[Served]:
    async with served(home / "data", config=home / "toolpost.yaml") as gate:
        yield gate


def more(home: Path, **fields: Any) -> dict[str, Any]:
    return {"name": "more", "transport": "python", "connection": str(home / "more.py"), **fields}


class Requested:
    """An application that records the paths of its requests."""

    def __init__(self) -> None:
        self.paths = list[str]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        self.paths.append(scope["path"])
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body"})


def silent() -> str:
    return shlex.join([sys.executable, "-c", "import time; time.sleep(600)"])


async def sent(gate: Served, method: str, path: str, body: Any = None, **options: Any) -> Any:
    answer = await gate.http.request(method, f"/api/v1{path}", json=body, **options)
    assert answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


async def refused(gate: Served, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, str, str]:
    answer = await gate.http.request(method, f"/api/v1{path}", json=body, **options)
    problem = answer.json()
    return answer.status_code, problem["code"], problem["detail"]


async def test_a_source_states_where_it_goes_and_how_it_is(gate: Served) -> None:
    await gate.http.post("/api/v1/tools/local.add", json={"a": 1, "b": 2})
    (local,) = await sent(gate, "GET", "/sources")

    assert (local["name"], local["state"], local["tools"], local["runs_code"]) == ("local", "up", 2, True)
    assert (local["declared"], local["enabled"], local["trust"]) == (True, True, False)
    assert (local["breaker"], local["failures"], local["next_try_at"]) == (
        {"state": "closed", "retry_in_s": None},
        0,
        None,
    )
    assert local["target"].endswith("tools.py")
    assert local["since"] > 0


async def test_a_source_that_is_down_states_when_it_is_tried_again(gate: Served) -> None:
    dead = {"name": "dead", "transport": "mcp", "connection": f"http://127.0.0.1:9/?api_key={SECRET}"}
    shown = await sent(gate, "POST", "/sources", dead)

    assert (shown["state"], shown["declared"], shown["failures"]) == ("down", False, 1)
    assert shown["next_try_at"] > shown["last_error_at"]
    assert SECRET not in str(shown)


@pytest.mark.req("WEB-12")
async def test_an_added_source_is_written_to_the_file_and_removed_from_it(gate: Served, home: Path) -> None:
    added = await sent(gate, "POST", "/sources?persist=yes", more(home))
    written = yaml.safe_load((home / "toolpost.yaml").read_text())
    called = await gate.http.post("/api/v1/tools/more.add", json={"a": 1, "b": 2})
    await sent(gate, "DELETE", "/sources/more?persist=yes")

    assert (added["state"], added["declared"], called.json()) == ("up", True, 3)
    assert written["sources"][1] == more(home)
    assert (home / "toolpost.yaml").read_text() == CONFIG
    assert [one["name"] for one in await sent(gate, "GET", "/sources")] == ["local"]


async def test_a_source_is_switched_off_and_on_and_trusted_in_the_file(gate: Served, home: Path) -> None:
    off = await sent(gate, "PATCH", "/sources/local", {"enabled": False})
    lost = await gate.http.post("/api/v1/tools/local.add", json={"a": 1, "b": 2})
    on = await sent(gate, "PATCH", "/sources/local", {"enabled": True, "trust": True})
    text = (home / "toolpost.yaml").read_text()

    assert (off["state"], off["enabled"], lost.status_code) == ("disabled", False, 404)
    assert (on["state"], on["enabled"], on["trust"]) == ("up", True, True)
    assert "# our gateway" in text
    assert "name: local  # our tools" in text
    assert yaml.safe_load(text)["sources"][0] == {
        "name": "local",
        "trust": True,
        "enabled": True,
        "transport": "python",
        "connection": "./tools.py",
    }


async def test_only_sources_of_the_file_are_changed_in_it(gate: Served, home: Path) -> None:
    await sent(gate, "POST", "/sources", more(home))

    assert (await refused(gate, "PATCH", "/sources/more", {"trust": True}))[:2] == (409, "not_declared")
    assert (await refused(gate, "DELETE", "/sources/more?persist=yes"))[:2] == (409, "not_declared")
    assert (await refused(gate, "PATCH", "/sources/none", {"trust": True}))[:2] == (404, "source_not_found")
    assert (home / "toolpost.yaml").read_text() == CONFIG


async def test_a_gateway_without_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text(TOOLS)
    async with served(tmp_path / "data") as gate:
        status, code, detail = await refused(gate, "POST", "/sources?persist=yes", more(tmp_path))

    assert (status, code) == (409, "no_config_file")
    assert "toolpost new" in detail


@pytest.mark.parametrize(
    "entry",
    [
        {**API, "connection": "https://api.example/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}},
        {**API, "connection": f"https://api.example/mcp?api_key={SECRET}"},
        {**API, "connection": f"npx server --token {SECRET}"},
        {**API, "connection": "npx server", "env": {"API_TOKEN": SECRET}},
        {**API, "connection": "https://api.example", "auth_type": "bearer", "auth_config": {"token": SECRET}},
    ],
)  # fmt: skip
async def test_a_secret_never_reaches_the_file_or_the_answer(gate: Served, home: Path, entry: dict[str, Any]) -> None:
    answer = await gate.http.post("/api/v1/sources?persist=yes", json=entry)

    assert (answer.status_code, answer.json()["code"]) == (422, "literal_secret")
    assert "${API_" in answer.json()["detail"]
    assert SECRET not in answer.text
    assert (home / "toolpost.yaml").read_text() == CONFIG


async def test_a_variable_that_is_not_set_is_named_with_the_place_to_set_it(gate: Served, home: Path) -> None:
    entry = {
        "name": "api",
        "transport": "mcp",
        "connection": "https://api.example",
        "headers": {"X-Key": "${NO_SUCH_KEY}"},
    }
    for path, body in (("/sources?persist=yes", entry), ("/sources/try", {"source": entry})):
        status, code, detail = await refused(gate, "POST", path, body)

        assert (status, code) == (409, "variable_unset")
        assert "NO_SUCH_KEY" in detail
        assert ".env" in detail
    assert (home / "toolpost.yaml").read_text() == CONFIG


@pytest.mark.parametrize(
    ("setting", "by_key", "by_operator"), [("operator", 403, 201), ("admin", 201, 201), ("never", 403, 403)]
)
async def test_who_may_add_a_program_is_a_setting(home: Path, setting: str, by_key: int, by_operator: int) -> None:
    console = f"server: {{console: {{commands: {setting}}}}}\n"
    (home / "toolpost.yaml").write_text(CONFIG + console)
    async with served(home / "data", config=home / "toolpost.yaml") as gate:
        admin = await gate.key("local:ann", "admin")
        key_answer = await gate.http.post("/api/v1/sources", json=more(home), headers=admin)
        if by_key == 201:
            await sent(gate, "DELETE", "/sources/more")
        answer = await gate.http.post("/api/v1/sources", json=more(home))

    assert (key_answer.status_code, answer.status_code) == (by_key, by_operator)
    for one in (key_answer, answer):
        if one.status_code == 403:
            assert one.json()["code"] == "commands_not_allowed"
            assert "toolpost tools connect" in one.json()["detail"]


@pytest.mark.programs
async def test_an_admin_key_may_add_a_url(gate: Served) -> None:
    admin = await gate.key("local:ann", "admin")
    with mirror() as server:
        shown = await sent(
            gate, "POST", "/sources", {"name": "m", "transport": "mcp", "connection": server}, headers=admin
        )

    assert (shown["state"], shown["runs_code"]) == ("up", False)


@pytest.mark.req("WEB-12")
async def test_a_command_is_planned_without_being_started(gate: Served, home: Path) -> None:
    marker = home / "started"
    words = shlex.join([sys.executable, "-c", f"open({str(marker)!r}, 'w')", "--token", SECRET])
    plan = await sent(
        gate, "POST", "/sources/plan", {"what": words, "name": "shop", "env": {"API_KEY": SECRET, "MODE": "fast"}}
    )

    assert plan["command"]["argv"][0] == sys.executable
    assert plan["command"]["argv"][-1] == "${SHOP_TOKEN}"
    assert plan["command"]["env_names"] == ["API_KEY", "MODE"]
    assert [(one["name"], one["set"]) for one in plan["variables"]] == [("SHOP_TOKEN", False)]
    assert yaml.safe_load(plan["yaml"])["sources"] == [plan["source"]]
    assert "SHOP_TOKEN is not set" in plan["missing"]
    assert SECRET not in json.dumps(plan)
    assert not marker.exists()


async def test_presets_are_listed_for_the_operator_and_planned(gate: Served) -> None:
    presets = {one["name"]: one for one in await sent(gate, "GET", "/presets")}
    refused = await gate.http.get("/api/v1/presets", headers=await gate.key("acme:bot", "call"))
    plan = await sent(gate, "POST", "/sources/plan", {"what": "github"})

    assert presets["github"]["reads"]
    assert refused.status_code == 403
    assert plan["source"]["name"] == "github"
    assert plan["command"]["argv"][0] == "npx"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"what": "githbu"}, 404, "github"),
        ({"what": "https://a.example", "env": {"A": "b"}}, 422, "$.env"),
        ({"what": "npx x", "headers": {"A": "b"}}, 422, "$.headers"),
        ({"what": "npx x", "name": "a b"}, 422, "$.name"),
        ({"what": "ws://a.example"}, 409, "transport: websocket"),
        ({"what": " "}, 422, "$.what"),
        ({"what": "./missing.json"}, 404, "does not exist"),
    ],
)
async def test_what_cannot_be_planned_is_explained(gate: Served, body: Any, status: int, words: str) -> None:
    answer = await refused(gate, "POST", "/sources/plan", body)

    assert answer[0] == status
    assert words in answer[2]


@pytest.mark.programs
async def test_a_url_is_detected_and_planned(gate: Served) -> None:
    with mirror() as server:
        found = await sent(gate, "POST", "/sources/detect", {"what": server, "headers": {"X-Key": SECRET}})
        plan = await sent(gate, "POST", "/sources/plan", {"what": server, "name": "m"})
    lost = await sent(gate, "POST", "/sources/detect", {"what": "http://127.0.0.1:9/"})

    assert (found["status"], found["transport"], found["next"]) == ("recognized", "mcp", [])
    assert SECRET not in json.dumps(found)
    assert (plan["source"]["transport"], plan["command"]) == ("mcp", None)
    assert (lost["status"], lost["transport"]) == ("unknown", None)
    assert lost["tried"] == [{"url": "http://127.0.0.1:9/", "answer": "connection_failed"}]
    assert lost["next"]


async def test_a_try_lists_tools_with_verdicts_and_adds_nothing(gate: Served, home: Path) -> None:
    tried = await sent(gate, "POST", "/sources/try", {"source": more(home)})
    tools = {one["name"]: one for one in tried["tools"]}

    assert tried["problems"] == []
    assert (tools["more.add"]["verdict"]["action"], tools["more.drop"]["verdict"]["action"]) == ("allow", "ask")
    assert tools["more.drop"]["said_by"] == "code"
    assert [one["name"] for one in await sent(gate, "GET", "/sources")] == ["local"]
    assert (home / "toolpost.yaml").read_text() == CONFIG


@pytest.mark.programs
async def test_a_try_shows_claims_and_uses_a_value_once(gate: Served) -> None:
    with mirror(SECRET) as server:
        entry = {
            "name": "m",
            "transport": "mcp",
            "connection": server,
            "headers": {"Authorization": "Bearer ${M_TOKEN}"},
        }
        answer = await gate.http.post("/api/v1/sources/try", json={"source": entry, "values": {"M_TOKEN": SECRET}})

    assert answer.status_code == 200, answer.text
    assert answer.json()["tools"]
    assert SECRET not in answer.text
    assert all(one["hash"].startswith("sha256:") for one in answer.json()["tools"])


@pytest.mark.programs
async def test_a_server_that_never_answers_is_a_problem_with_the_next_step(gate: Served) -> None:
    entry = {"name": "mute", "transport": "mcp", "connection": silent(), "connect_timeout_s": 0.5}
    status, code, detail = await refused(gate, "POST", "/sources/try", {"source": entry})

    assert (status, code) == (504, "source_timeout")
    assert "nothing was added" in detail
    assert "connect_timeout_s" in detail


@pytest.mark.programs
async def test_a_program_that_ends_is_a_problem_with_its_stderr(gate: Served) -> None:
    program = shlex.join([sys.executable, "-c", "import sys; sys.exit('no such region')"])
    status, code, detail = await refused(
        gate, "POST", "/sources/try", {"source": {"name": "gone", "transport": "mcp", "connection": program}}
    )

    assert (status, code) == (502, "source_failed")
    assert "no such region" in detail


@pytest.mark.programs
async def test_the_log_of_a_source_has_its_stderr(gate: Served) -> None:
    program = shlex.join(
        ["/bin/sh", "-c", f"echo booting with $TOKEN >&2; exec {shlex.join(warm.command(SERVERS / 'inquirer.py'))}"]
    )
    entry = {"name": "srv", "transport": "mcp", "connection": program, "env": {"TOKEN": SECRET}}
    await sent(gate, "POST", "/sources", entry)
    log = await sent(gate, "GET", "/sources/srv/log")

    assert "booting with" in log["stderr"]
    assert SECRET not in json.dumps(log)
    assert [line["type"] for line in log["lines"]] == ["SOURCE_UP"]


async def test_the_log_of_a_source_is_not_for_other_tenants(gate: Served) -> None:
    own, elsewhere = await gate.key("local:ann", "answer"), await gate.key("beta:ann", "answer", "admin")
    await sent(gate, "GET", "/sources/local/log", headers=own)
    status, code, _ = await refused(gate, "GET", "/sources/local/log", headers=elsewhere)

    assert (status, code) == (403, "operator_required")


async def test_a_key_in_a_url_is_masked_in_what_was_tried(gate: Served) -> None:
    async with listening(Requested()) as url:
        found = await sent(gate, "POST", "/sources/detect", {"what": f"{url}/x?api_key={SECRET}"})

    assert found["tried"]
    assert SECRET not in json.dumps(found)


@pytest.mark.parametrize("path", ["/sources/detect", "/sources/plan"])
async def test_a_url_is_detected_by_the_proxy_of_the_configuration(home: Path, path: str) -> None:
    (home / "toolpost.yaml").write_text(f"{CONFIG}network:\n  proxy: http://127.0.0.1:1\n")
    async with (
        served(home / "data", config=home / "toolpost.yaml") as gate,
        listening(requested := Requested()) as url,
    ):
        await gate.http.post(f"/api/v1{path}", json={"what": url})

    assert requested.paths == []


async def test_a_file_of_another_program_is_planned_and_not_imported(gate: Served, home: Path) -> None:
    servers = {"mcpServers": {"shop": {"command": "npx", "args": ["shop-server"], "env": {"SHOP_TOKEN": SECRET}}}}
    plan = await sent(gate, "POST", "/sources/import", {"file": json.dumps(servers), "name": ".mcp.json"})
    status, code, detail = await refused(gate, "POST", "/sources/import", {"file": "[1]"})

    assert [one["name"] for one in plan["sources"]] == ["shop"]
    assert plan["sources"][0]["runs_code"] is True
    assert [one["name"] for one in plan["variables"]] == ["SHOP_TOKEN"]
    assert SECRET not in json.dumps(plan)
    assert (status, code) == (422, "not_recognised")
    assert "/tmp" not in detail
    assert (home / "toolpost.yaml").read_text() == CONFIG


@pytest.mark.parametrize("path", ["/sources/detect", "/sources/plan", "/sources/try", "/sources/import"])
async def test_preparing_a_source_is_for_the_operator(gate: Served, path: str) -> None:
    admin_elsewhere = await gate.key("acme:ann", "admin")
    agent = await gate.key("acme:bot", "call")
    for key in (admin_elsewhere, agent):
        assert (await gate.http.post(f"/api/v1{path}", json={}, headers=key)).status_code == 403


async def test_who_may_enable_a_program_is_the_same_setting(gate: Served) -> None:
    await sent(gate, "PATCH", "/sources/local", {"enabled": False})
    admin = await gate.key("local:ann", "admin")
    answer = await gate.http.patch("/api/v1/sources/local", json={"enabled": True}, headers=admin)
    state = await sent(gate, "GET", "/sources/local")

    assert (answer.status_code, answer.json()["code"]) == (403, "commands_not_allowed")
    assert state["state"] == "disabled"


async def test_who_may_start_a_program_again_is_the_same_setting(gate: Served) -> None:
    admin = await gate.key("local:ann", "admin")
    answer = await gate.http.post("/api/v1/sources/local/reload", headers=admin)
    own = await gate.http.post("/api/v1/sources/local/reload")

    assert (answer.status_code, answer.json()["code"]) == (403, "commands_not_allowed")
    assert own.status_code == 200
