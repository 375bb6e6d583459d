"""`toolpost accounts`: signing in from a terminal at oidc-provider, and letting accounts go again."""

import asyncio
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
import yaml

from tests.auth.oauth.provider import Browser, provider
from tests.cli.program import Done, Run, child_environment, warm_command
from tests.cli.terminal import at_a_terminal
from tests.parts import reserved_port
from tests.toolbox.signing_in import CLIENT, NotesApi, notes_source

pytestmark = [pytest.mark.usefixtures("home"), pytest.mark.programs]
CALL = ("tools", "call", "notes.read_note", "--args", '{"id": 7}')


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with provider(CLIENT) as issuer:
        yield issuer


@pytest.fixture
def api(issuer: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[NotesApi]:
    """The API on a loop of its own, for programs that run in this process."""
    monkeypatch.setenv("NOTES_CLIENT_SECRET", CLIENT["client_secret"])
    loop, api = asyncio.new_event_loop(), NotesApi(issuer)
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(api.__aenter__(), loop).result(60)
        yield api
        asyncio.run_coroutine_threadsafe(api.__aexit__(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def port() -> Iterator[int]:
    with reserved_port() as port:
        yield port


@pytest.fixture
def configured(api: NotesApi, home: Path) -> Path:
    configure(home, notes_source(api, home))
    return home


def configure(home: Path, source: dict[str, Any]) -> None:
    (home / "toolpost.yaml").write_text(yaml.safe_dump({"policy": "exploratory", "sources": [source]}))


class Terminal:
    """The program while it waits for somebody."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.err = ""

    def shows(self, pattern: str) -> str:
        """What stands in the first line of stderr that fits."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.err += line
            if found := re.search(pattern, line):
                return found[0]
        raise AssertionError(self.err)

    def done(self) -> Done:
        out, err = self._process.communicate(timeout=60)
        return Done(self._process.returncode, out, self.err + err)


@contextmanager
def terminal(home: Path, *arguments: str, **variables: str) -> Iterator[Terminal]:
    with subprocess.Popen(
        warm_command("accounts", *arguments, "--json"),
        cwd=home,
        env=child_environment(**{"DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": ""} | variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Terminal(process)
        finally:
            process.kill()


def come_back(url: str, *, says_yes: bool = True) -> httpx2.Response:
    """Sign in where the terminal says, and let the browser come back to it."""
    callback = parse_qs(urlsplit(url).query)["redirect_uri"][0]
    brought = asyncio.run(Browser(callback, says_yes=says_yes).visit(url))
    return httpx2.get(f"{callback}?{urlencode(brought)}", trust_env=False, timeout=60)


def connect(home: Path, *options: str) -> Done:
    with terminal(home, "connect", "notes", *options) as waiting:
        page = come_back(waiting.shows(r"http://\S+"))
        assert "Connected, you can close this page" in page.text
        return waiting.done()


def test_a_call_that_lacks_an_account_offers_to_sign_in_at_once(
    configured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.setenv(name, "")

    def sign_in(shown: str) -> bytes:
        come_back(re.findall(r"http://\S+", shown)[-1])
        return b""

    typed: dict[str, bytes | Callable[[str], bytes]] = {"sign in later: ": b"y\n", "Ctrl-C cancels": sign_in}
    done = at_a_terminal(configured, typed, *CALL)
    later = at_a_terminal(configured, {}, *CALL)

    assert (done.code, "completed: notes.read_note" in done.out) == (0, True), done.out
    assert (later.code, "sign in later" in later.out) == (0, False)


def test_an_account_is_connected_listed_and_let_go_again(configured: Path, toolpost: Run) -> None:
    before = toolpost("accounts", "list", "--json")
    done = connect(configured)
    listed = toolpost("accounts", "list", "--json")
    gone = toolpost("accounts", "disconnect", "notes", "--json")
    again = toolpost("accounts", "disconnect", "notes", "--json")

    assert [(one["provider"], one["status"]) for one in before.json] == [("notes", "missing")]
    assert (done.code, done.json["status"], done.json["went_on"]) == (0, "connected", [])
    assert (done.json["scopes"], done.json["tools"]) == (["tools.read"], ["notes.read_note", "notes.delete_note"])
    assert [one["status"] for one in listed.json] == ["connected"]
    assert (gone.code, gone.json["status"], gone.json["service_told"]) == (0, "disconnected", True)
    assert (again.code, again.json["error"]["error_code"]) == (1, "not_connected")


def test_a_call_that_waited_continues_once_its_person_has_signed_in(configured: Path, toolpost: Run) -> None:
    paused = toolpost(*CALL)
    assert (paused.code, "toolpost accounts connect notes" in paused.out) == (3, True)
    [question] = toolpost("pending", "list", "--json").json

    done = connect(configured)
    kept = toolpost("pending", "show", question["id"], "--json")
    again = toolpost(*CALL, "--json")

    [went_on] = done.json["went_on"]
    assert went_on == {"id": question["id"], "tool_name": "notes.read_note", "status": "completed"}
    assert kept.json["outcome"]["content"]["reader"] == "alice"
    assert (again.code, again.json["content"]["text"]) == (0, "remember the milk")


def test_the_address_is_opened_in_the_browser_of_the_person(configured: Path) -> None:
    keep = 'import sys; open("opened.txt", "w").write(sys.argv[1])'
    with terminal(configured, "connect", "notes", BROWSER=f"{sys.executable} -c '{keep}' %s") as waiting:
        shown = waiting.shows(r"http://\S+")
        come_back(shown)
        done = waiting.done()

    assert (done.code, (configured / "opened.txt").read_text()) == (0, shown)


def test_a_person_who_says_no_has_connected_nothing(configured: Path, toolpost: Run) -> None:
    with terminal(configured, "connect", "notes") as waiting:
        page = come_back(waiting.shows(r"http://\S+"), says_yes=False)
        done = waiting.done()
    listed = toolpost("accounts", "list", "--json")

    assert (page.status_code, done.code, done.json["error"]["error_code"]) == (403, 1, "oauth_denied")
    assert listed.json[0]["status"] == "missing"


@pytest.mark.req("OAUTH-25")
def test_who_does_not_know_the_state_spoils_nothing(configured: Path) -> None:
    with terminal(configured, "connect", "notes") as waiting:
        url = waiting.shows(r"http://\S+")
        callback = parse_qs(urlsplit(url).query)["redirect_uri"][0]
        with httpx2.Client(trust_env=False, timeout=60) as web:
            strays = [web.get(f"{callback}?{query}") for query in ("state=x&code=y", "", "a=1&" * 99)]
            strays += [web.get(callback.replace("/callback/notes", "/favicon.ico")), web.post(callback)]
        come_back(url)
        done = waiting.done()

    assert [stray.status_code for stray in strays] == [400, 400, 400, 404, 405]
    assert done.code == 0


def test_no_one_is_waited_for_longer_than_said(configured: Path) -> None:
    with terminal(configured, "connect", "notes", "--timeout", "300ms") as waiting:
        done = waiting.done()

    assert (done.code, done.json["error"]["error_code"]) == (1, "timeout")
    assert re.search(r"register it there, or choose the port with --port", done.out)


def test_a_port_can_be_chosen_and_must_be_free(configured: Path, toolpost: Run, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        refused = toolpost("accounts", "connect", "notes", "--port", str(port), "--json")
    done = connect(configured, "--port", str(port))

    assert (refused.code, refused.json["error"]["error_code"]) == (1, "port_taken")
    assert f"127.0.0.1%3A{port}%2Fcallback" in done.err


def test_a_terminal_without_a_browser_signs_in_by_a_code(configured: Path) -> None:
    with terminal(configured, "connect", "notes", "--device") as waiting:
        url = waiting.shows(r"http://\S+")
        code = waiting.shows(r"\w{4}-\w{4}")
        said = asyncio.run(Browser("").enter(url))
        done = waiting.done()

    assert "Sign-in Success" in said
    assert code in url
    assert (done.code, done.json["status"], done.json["scopes"]) == (0, "connected", ["tools.read"])


def test_a_program_that_no_one_registered_registers_once_for_all(
    api: NotesApi, home: Path, toolpost: Run, port: int
) -> None:
    configure(home, notes_source(api, home, client_id=None, client_secret=None))
    ids = []
    for user in ("acme:ann", "acme:bob"):
        with terminal(home, "connect", "notes", "--user", user, "--port", str(port)) as waiting:
            url = waiting.shows(r"http://\S+")
            ids += parse_qs(urlsplit(url).query)["client_id"]
            come_back(url)
            assert (waiting.done()).code == 0

    assert ids[0] == ids[1]
    for user in ("acme:ann", "acme:bob"):
        listed = toolpost("accounts", "list", "--user", user, "--json")
        assert listed.json[0]["status"] == "connected"


def test_a_service_that_cannot_be_told_is_said_to_know_still(api: NotesApi, home: Path, toolpost: Run) -> None:
    urls = {"auth_url": f"{api.issuer}/auth", "token_url": f"{api.issuer}/token"}
    configure(home, notes_source(api, home, issuer=None, **urls))
    connect(home)

    gone = toolpost("accounts", "disconnect", "notes")
    listed = toolpost("accounts", "list")

    assert (gone.code, "Revoke it in the settings of your account" in gone.err) == (1, True)
    assert "Notes of Ann & Co" in listed.out
    assert "toolpost accounts connect SERVICE" in listed.err


def test_forgetting_a_person_removes_all_of_theirs_and_nothing_of_others(configured: Path, toolpost: Run) -> None:
    for user in ("acme:ann", "acme:bob"):
        connect(configured, "--user", user)
    toolpost(*CALL, "--user", "acme:ann")

    unasked = toolpost("accounts", "forget", "acme:ann", "--json")
    done = toolpost("accounts", "forget", "acme:ann", "--yes", "--json")
    told = toolpost("accounts", "forget", "acme:ann", "--yes")

    assert (unasked.code, unasked.json["error"]["error_code"]) == (1, "confirmation_needed")
    assert (done.code, done.json["status"], done.json["services_told"]) == (0, "forgotten", {"notes": True})
    assert (told.code, "forgotten: acme:ann" in told.out) == (0, True)
    assert (toolpost(*CALL, "--user", "acme:ann")).code == 3
    assert (toolpost(*CALL, "--user", "acme:bob")).code == 0


def test_events_of_a_forgotten_person_say_nothing_any_more(toolpost: Run) -> None:
    args = ("--args", '{"a": 2, "b": 3}')
    called = toolpost("tools", "call", "local.add", *args, "--user", "acme:ann", "--json").json

    unasked = toolpost("accounts", "forget", "acme:ann")
    toolpost("accounts", "forget", "acme:ann", "--yes")
    [listed] = toolpost("runs", "list", "--user", "acme:bob", "--json").json
    events = toolpost("events", "--user", "acme:bob").out

    assert "Permanently erase all data of acme:ann" in unasked.err
    assert "To confirm, add --yes" in unasked.err
    assert (listed["run_id"], listed["user"], listed["status"]) == (called["run_id"], "", "completed")
    assert events.count("local.add  (forgotten)") == 3
    assert "acme:(forgotten)" in toolpost("runs", "list", "--user", "acme:bob").out
    assert toolpost("runs", "verify").code == 0


def test_no_one_is_no_person_to_forget(toolpost: Run) -> None:
    assert toolpost("accounts", "forget", "", "--yes").code == 2
    assert toolpost("accounts", "forget", "acme:", "--yes").code == 2


def test_without_services_there_is_nothing_to_list_and_still_someone_to_forget(toolpost: Run) -> None:
    assert toolpost("accounts", "list", "--json").json == []
    assert "No source uses accounts" in toolpost("accounts", "list").out
    assert toolpost("accounts", "forget", "acme:ann", "--yes", "--json").json["services_told"] == {}
    refused = toolpost("accounts", "connect", "notes", "--json")
    assert (refused.code, "auth_type: oauth2_user" in refused.out) == (1, True)


def test_a_service_that_is_not_there_is_reported_with_those_that_are(configured: Path, toolpost: Run) -> None:
    done = toolpost("accounts", "connect", "github", "--json")

    assert (done.code, "services with accounts: notes" in done.json["error"]["message"]) == (1, True)
