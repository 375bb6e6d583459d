"""Where browsers connect accounts: behind a real server, at oidc-provider, for an API that takes its tokens."""

import asyncio
import logging
import re
import socket
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx2
import pytest
from fastapi import FastAPI

from tests.auth.oauth.provider import Browser, provider
from tests.toolbox.signing_in import (
    ANN,
    CLIENT,
    NOTE,
    NotesApi,
    Person,
    Program,
    address,
    logged_in,
    notes_source,
    outcome_of,
    served,
    toolbox,
)
from toolpost import Completed, ConfigError, ExternalToolConfig, Failed, Paused, Principal, Settings, Toolbox
from toolpost.auth.consents import ConnectedAccount
from toolpost.auth.oauth.authorization import browser_binding
from toolpost.configuration.settings import AccountSettings
from toolpost.errors import ToolAuthError, ToolPermissionError
from toolpost.toolbox.callback_app import callback_app

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with provider(CLIENT) as issuer:
        yield issuer


@pytest.fixture
def place() -> Iterator[tuple[str, socket.socket]]:
    with address() as found:
        yield found


@pytest.fixture
async def api(issuer: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NotesApi]:
    monkeypatch.setenv("NOTES_CLIENT_SECRET", CLIENT["client_secret"])
    async with NotesApi(issuer) as api:
        yield api


@pytest.fixture
async def here(api: NotesApi, place: tuple[str, socket.socket], tmp_path: Path) -> AsyncIterator[Program]:
    url, listening = place
    source, data = notes_source(api, tmp_path), tmp_path / "data"
    async with toolbox(source, url, data) as box, served(callback_app(box, identify=logged_in), listening):
        yield Program(box, api, url)


@pytest.fixture
async def ann() -> AsyncIterator[Person]:
    async with Person() as ann:
        yield ann


@pytest.mark.req("AUTHS-04", "OAUTH-19", "MET-03")
async def test_a_call_waits_for_its_person_and_then_finishes_automatically(here: Program, ann: Person) -> None:
    began = time.monotonic()
    asked = await here.box.call("notes.read_note", {"id": 7}, user=ANN)
    assert isinstance(asked, Paused)
    payload = asked.question.payload
    assert {key: value for key, value in payload.items() if key != "auth_url"} == {
        "pause_type": "oauth",
        "provider": "notes",
        "display_name": "Notes of Ann & Co",
        "scopes": ["tools.read", "offline_access"],
    }
    assert "Notes of Ann & Co" in asked.question.prompt

    last = await ann.connects(payload["auth_url"])
    outcome = await outcome_of(here.box, asked.pending_id, by=ANN)

    assert (last.status_code, outcome["status"]) == (200, "completed")
    assert "Connected, you can close this page" in last.text
    assert (outcome["call_id"], outcome["content"]) == (asked.call_id, {**NOTE, "reader": "alice"})
    assert time.monotonic() - began < 60


@pytest.mark.req("MET-05", "MET-07", "MET-08")
async def test_the_next_call_asks_no_one_and_all_of_it_is_counted(here: Program, ann: Person) -> None:
    pending_id, link = await here.asks()
    await ann.connects(link)
    await outcome_of(here.box, pending_id, by=ANN)

    again = await here.box.call("notes.read_note", {"id": 7}, user=ANN)
    stray = await ann.opens(f"{here.url}/oauth/callback/notes?state=nobody&code=c")

    assert isinstance(again, Completed)
    assert (here.api.readers, stray.status_code) == (["alice", "alice"], 400)
    counted = here.box.accounts.counts.snapshot()
    assert (counted["pauses"], counted["callbacks"]) == ({"notes": 1}, {"success": 1, "oauth_state": 1})
    assert (counted["token_hits"], counted["token_misses"]) == ({"notes": 2}, {"notes": 1})
    assert counted["token_hit_rate"] == pytest.approx(2 / 3)
    assert all(0 < seconds < 60 for seconds in counted["time_to_resume_s"].values())


@pytest.mark.req("OAUTH-24")
async def test_an_account_is_its_users_own_whatever_others_of_the_tenant_do(here: Program, ann: Person) -> None:
    pending_id, link = await here.asks()
    with pytest.raises(ToolPermissionError):
        await here.box.answer(pending_id, "connected", by="acme:bob")
    await ann.connects(link)
    await outcome_of(here.box, pending_id, by=ANN)

    for other in ("acme:bob", "other:ann", "local:ann"):
        assert isinstance(await here.box.call("notes.read_note", {"id": 7}, user=other), Paused)


async def test_a_call_that_needs_more_waits_for_a_grant_that_has_it(here: Program, ann: Person) -> None:
    _, link = await here.asks()
    await ann.connects(link)
    asked = await here.box.call("notes.delete_note", {"id": 7}, user=ANN)
    assert isinstance(asked, Paused)
    assert "tools.call" in (await ann.opens(asked.question.payload["auth_url"])).text

    await here.box.accounts.on_connected(ConnectedAccount(Principal("acme", "ann"), "notes"))
    await here.box.recovery.sweep()
    assert (await here.box.pending.get(asked.pending_id, by=ANN)).status == "open"
    await ann.connects(asked.question.payload["auth_url"])

    assert (await outcome_of(here.box, asked.pending_id, by=ANN))["status"] == "completed"


async def test_the_first_page_says_who_asks_for_what_and_holds_nothing_foreign(here: Program, ann: Person) -> None:
    _, link = await here.asks()

    page = await ann.opens(link)

    for told in ("Notes of Ann &amp; Co", ANN, "notes.read_note", "tools.read", "Continue"):
        assert told in page.text
    assert not re.search(r"<script|<img|<link|src=|https?:", page.text)
    rules = page.headers["content-security-policy"]
    assert rules.startswith("default-src 'none'; style-src 'sha256-")
    assert "frame-ancestors 'none'" in rules
    assert (page.headers["referrer-policy"], page.headers["cache-control"]) == ("strict-origin", "no-store")
    assert (page.headers["x-frame-options"], page.headers["x-content-type-options"]) == ("DENY", "nosniff")


async def test_the_button_gives_the_browser_a_cookie_and_sends_it_to_the_service(here: Program, ann: Person) -> None:
    _, link = await here.asks()

    sent = await ann.presses(await ann.opens(link))

    cookie = sent.headers["set-cookie"]
    assert re.fullmatch(r"toolpost=[\w-]{43}; Path=/oauth; HttpOnly; SameSite=Lax", cookie)
    assert (sent.status_code, sent.headers["cache-control"]) == (303, "no-store")
    target = urlsplit(sent.headers["location"])
    assert f"{target.scheme}://{target.netloc}" == here.api.issuer
    asked = {name: value for name, [value] in parse_qs(target.query).items()}
    assert (asked["code_challenge_method"], asked["redirect_uri"]) == ("S256", f"{here.url}/oauth/callback/notes")
    assert cookie.partition("=")[2].partition(";")[0] not in sent.headers["location"]


@pytest.mark.req("OAUTH-25")
async def test_another_browser_cannot_finish_what_this_one_began(here: Program, ann: Person) -> None:
    pending_id, link = await here.asks()
    sent = await ann.presses(await ann.opens(link))
    back = await ann.walks(sent, f"{here.url}/oauth/callback/notes")

    async with Person() as stranger:
        without = await stranger.opens(back)
        await stranger.opens(link)  # now with a cookie, but of its own
        wrong = await stranger.opens(back)
    mine = await ann.opens(back)

    assert (without.status_code, wrong.status_code, mine.status_code) == (403, 403, 200)
    assert "Another browser started this sign-in" in wrong.text
    assert (await outcome_of(here.box, pending_id, by=ANN))["status"] == "completed"


@pytest.mark.req("OAUTH-25")
async def test_a_callback_counts_once_and_only_with_its_own_state(here: Program, ann: Person) -> None:
    _, link = await here.asks()
    sent = await ann.presses(await ann.opens(link))
    back = await ann.walks(sent, f"{here.url}/oauth/callback/notes")

    wrong = await ann.opens(re.sub(r"state=[^&]+", "state=x", back))
    first, replayed = await ann.opens(back), await ann.opens(back)

    assert (wrong.status_code, first.status_code, replayed.status_code) == (400, 200, 400)
    assert "not in progress" in wrong.text
    assert "It may have been finished before" in replayed.text


async def test_an_answer_of_another_issuer_is_not_used(here: Program, ann: Person) -> None:
    _, link = await here.asks()
    sent = await ann.presses(await ann.opens(link))
    back = await ann.walks(sent, f"{here.url}/oauth/callback/notes")

    mixed_up = await ann.opens(re.sub(r"iss=[^&]+", urlencode({"iss": "https://evil.example"}), back))

    assert mixed_up.status_code == 400
    assert "came from another issuer" in mixed_up.text
    assert (await ann.opens(back)).status_code == 200


async def test_a_person_who_declines_sees_that_and_may_change_their_mind(here: Program) -> None:
    pending_id, link = await here.asks()
    async with Person(says_yes=False) as ann:
        declined = await ann.connects(link)
        waiting = await here.box.pending.get(pending_id, by=ANN)
        ann.says_yes = True
        connected = await ann.connects(link)

    assert (declined.status_code, waiting.status, connected.status_code) == (403, "open", 200)
    assert "Nothing was connected" in declined.text
    assert (await outcome_of(here.box, pending_id, by=ANN))["status"] == "completed"
    assert here.box.accounts.counts.snapshot()["callbacks"] == {"oauth_denied": 1, "success": 1}


async def test_two_tabs_of_one_browser_may_both_be_finished(here: Program, ann: Person) -> None:
    pending_id, link = await here.asks()
    tabs = [await ann.opens(link), await ann.opens(link)]
    sent = [await ann.presses(tab) for tab in tabs]
    backs = [await ann.walks(one, f"{here.url}/oauth/callback/notes") for one in sent]

    last = [await ann.opens(back) for back in backs]

    assert [page.status_code for page in last] == [200, 200]
    assert (await outcome_of(here.box, pending_id, by=ANN))["status"] == "completed"
    assert here.api.readers == ["alice"]


async def test_a_link_that_was_used_is_used_up(here: Program, ann: Person) -> None:
    _, link = await here.asks()
    page = await ann.opens(link)
    await ann.connects(link)

    assert (await ann.opens(link)).status_code == 410
    assert (await ann.presses(page)).status_code == 410


async def test_what_a_forgotten_person_was_invited_to_or_began_is_over(here: Program, ann: Person) -> None:
    _, link = await here.asks()
    _, of_bob = await here.asks(user="acme:bob")
    sent = await ann.presses(await ann.opens(link))
    back = await ann.walks(sent, f"{here.url}/oauth/callback/notes")

    await here.box.accounts.forget(Principal("acme", "ann"))

    assert [(await ann.opens(url)).status_code for url in (link, back)] == [410, 400]
    ann.web.headers["x-user"] = "acme:bob"
    assert (await ann.opens(of_bob)).status_code == 200


@pytest.mark.req("OAUTH-26")
async def test_who_takes_longer_than_the_operator_allows_is_too_late(
    api: NotesApi, place: tuple[str, socket.socket], tmp_path: Path, ann: Person
) -> None:
    url, listening = place
    source = notes_source(api, tmp_path)
    async with toolbox(source, url, sign_in_ttl="1ms") as box, served(callback_app(box, identify=logged_in), listening):
        _, link = await Program(box, api, url).asks()
        late = await ann.connects(link)

    assert AccountSettings().sign_in_ttl == 600
    assert late.status_code == 410
    assert "has expired" in late.text


async def test_another_site_cannot_press_the_button(here: Program, ann: Person) -> None:
    _, link = await here.asks()
    page = await ann.opens(link)
    form = {"ticket": link.partition("ticket=")[2], "check": "0" * 64}

    async with httpx2.AsyncClient(trust_env=False, timeout=60) as bare:
        without_cookie = await bare.post(f"{here.url}/oauth/start", data=form)
    guessed = await ann.presses(page, check="0" * 64)
    _, another = await here.asks()
    crossed = await ann.presses(page, ticket=another.partition("ticket=")[2])

    assert [one.status_code for one in (without_cookie, guessed, crossed)] == [403, 403, 403]
    assert (await ann.presses(page)).status_code == 303


async def test_nothing_that_a_browser_brings_is_shown_as_it_is(here: Program, ann: Person) -> None:
    _, link = await here.asks()
    sent = await ann.presses(await ann.opens(link))
    state = parse_qs(urlsplit(sent.headers["location"]).query)["state"][0]
    nasty = "<script>alert(1)</script>"
    told = {"state": state, "iss": here.api.issuer, "error": "server_error", "error_description": nasty}

    shown = await ann.opens(f"{here.url}/oauth/callback/notes?{urlencode(told)}")

    assert shown.status_code == 502
    assert nasty not in shown.text
    assert "&lt;script&gt;" in shown.text
    for odd in ("?ticket=" + nasty, f"?ticket=a&ticket={nasty}", "?" + "a=1&" * 99, "?ticket=" + "x" * 20_000):
        assert nasty not in (await ann.opens(f"{here.url}/oauth/start{odd}")).text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/oauth", 404),
        ("GET", "/", 404),
        ("GET", "/oauth/start/", 404),
        ("HEAD", "/oauth/start", 405),
        ("PUT", "/oauth/start", 405),
        ("POST", "/oauth/callback/notes", 405),
        ("GET", "/oauth/start", 410),
        ("GET", "/oauth/start?ticket=unknown", 410),
        ("GET", "/oauth/start?ticket=a&ticket=b", 400),
        ("GET", "/oauth/start?" + "a=1&" * 99, 400),
        ("GET", "/oauth/callback/notes", 400),
        ("GET", "/oauth/callback/notes?" + "x" * 20_000, 400),
        ("POST", "/oauth/start", 415),
    ],
)
async def test_what_is_not_served_is_refused_plainly(here: Program, method: str, path: str, status: int) -> None:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as web:
        answer = await web.request(method, f"{here.url}{path}")

    assert (answer.status_code, answer.headers["cache-control"]) == (status, "no-store")
    assert ("allow" in answer.headers) is (status == 405)


async def test_a_form_that_is_too_long_is_not_read(here: Program) -> None:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as web:
        answer = await web.post(f"{here.url}/oauth/start", data={"ticket": "x" * 20_000})

    assert answer.status_code == 413


@pytest.mark.req("OAUTH-31")
async def test_neither_ticket_nor_state_nor_code_is_logged(
    here: Program, ann: Person, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpcore2").setLevel(logging.WARNING)  # the browser's own
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    pending_id, link = await here.asks()
    sent = await ann.presses(await ann.opens(link))
    back = await ann.walks(sent, f"{here.url}/oauth/callback/notes")
    await ann.opens(back)
    await outcome_of(here.box, pending_id, by=ANN)

    brought = parse_qs(urlsplit(back).query)
    secrets = [link.partition("ticket=")[2], brought["state"][0], brought["code"][0]]
    assert '"GET /oauth/callback/notes HTTP/1.1" 200' in caplog.text
    assert [secret for secret in secrets if secret in caplog.text] == []


async def test_a_host_that_knows_who_is_logged_in_lets_only_them_use_a_link(
    api: NotesApi, place: tuple[str, socket.socket], tmp_path: Path
) -> None:
    async def identify(scope: Any) -> str | None:
        return dict(scope["headers"]).get(b"x-user", b"").decode() or None

    url, listening = place
    async with (
        toolbox(notes_source(api, tmp_path), url) as box,
        served(callback_app(box, identify=identify), listening),
    ):
        _, link = await Program(box, api, url).asks()
        async with Person() as ann, Person() as bob:
            nobody = await ann.opens(link)
            bob.web.headers["x-user"] = "acme:bob"
            wrong = await bob.opens(link)
            ann.web.headers["x-user"] = ANN
            page = await ann.opens(link)
            ann.web.headers["x-user"] = "acme:bob"
            changed = await ann.presses(page)
            ann.web.headers["x-user"] = ANN
            right = await ann.connects(link)

    assert [one.status_code for one in (nobody, wrong, changed, right)] == [403, 403, 403, 200]
    assert "for another user" in wrong.text
    assert link.partition("ticket=")[2] not in wrong.text


async def test_a_host_that_knows_who_is_logged_in_lets_no_one_else_finish_what_they_began(
    api: NotesApi, place: tuple[str, socket.socket], tmp_path: Path, ann: Person
) -> None:
    url, listening = place
    logged_in = [ANN]
    app_of = partial(callback_app, identify=lambda _: logged_in[0])
    async with toolbox(notes_source(api, tmp_path), url) as box, served(app_of(box), listening):
        pending_id, link = await Program(box, api, url).asks()
        back = await ann.walks(await ann.presses(await ann.opens(link)), f"{url}/oauth/callback/notes")
        refused: list[httpx2.Response] = []
        for logged_in[0] in ("acme:bob", "other:ann", ""):
            refused.append(await ann.opens(back))
        waiting = await box.pending.get(pending_id, by=ANN)
        logged_in[0] = ANN
        right = await ann.opens(back)

    assert [(page.status_code, "for another user" in page.text) for page in refused] == [(403, True)] * 3
    assert (waiting.status, right.status_code) == ("open", 200)


async def test_a_link_straight_to_the_service_connects_only_the_one_it_is_for(
    api: NotesApi, place: tuple[str, socket.socket], tmp_path: Path, ann: Person
) -> None:
    url, listening = place
    callback = f"{url}/oauth/callback"
    source = notes_source(api, tmp_path)
    app_of = partial(callback_app, identify=logged_in)
    async with toolbox(source, None, redirect_uri=callback) as box, served(app_of(box), listening):
        pending_id, link = await Program(box, api, url).asks()
        assert link.startswith(api.issuer)
        brought = await Browser(callback).visit(link)
        ann.web.headers["x-user"] = "acme:bob"
        page = await ann.opens(f"{callback}/notes?{urlencode(brought)}")
        with pytest.raises(ToolAuthError, match="for another user"):
            await box.accounts.finish(brought, provider="notes", person=Principal("acme", "bob"))
        await box.accounts.finish(brought, provider="notes", person=Principal("acme", "ann"))
        outcome = await outcome_of(box, pending_id, by=ANN)

    assert (page.status_code, "for another user" in page.text) == (403, True)
    assert outcome["status"] == "completed"


@pytest.mark.req("FUT-14")
@pytest.mark.parametrize("mounted", ["/oauth", "/tools", "/tools/oauth"])
async def test_it_works_wherever_a_host_mounts_it(
    api: NotesApi, place: tuple[str, socket.socket], tmp_path: Path, ann: Person, mounted: str
) -> None:
    url, listening = place
    client = notes_source(api, tmp_path, client_id=None, client_secret=None)  # one that registers itself
    async with toolbox(client, f"{url}{mounted.removesuffix('/oauth')}") as box:
        host = FastAPI()
        host.mount(mounted, callback_app(box, identify=logged_in))
        async with served(host, listening):
            pending_id, link = await Program(box, api, url).asks()
            page = await ann.opens(link)
            last = await ann.connects(link)
            outcome = await outcome_of(box, pending_id, by=ANN)

    assert f"Path={mounted.removesuffix('/oauth')}/oauth;" in page.headers["set-cookie"]
    assert (last.status_code, outcome["status"]) == (200, "completed")


@pytest.mark.req("OAUTH-23")
async def test_a_sign_in_may_end_in_another_process_than_the_one_that_asked(
    api: NotesApi, place: tuple[str, socket.socket], tmp_path: Path, ann: Person
) -> None:
    url, listening = place
    source, data = notes_source(api, tmp_path), tmp_path / "data"
    async with toolbox(source, url, data) as first:
        pending_id, link = await Program(first, api, url).asks()
    async with toolbox(source, url, data) as second, served(callback_app(second, identify=logged_in), listening):
        await ann.connects(link)
        outcome = await outcome_of(second, pending_id, by=ANN)
    async with toolbox(source, url, data) as third:
        again = await third.call("notes.read_note", {"id": 7}, user=ANN)

    assert (outcome["status"], again.status) == ("completed", "completed")


@pytest.mark.req("OAUTH-18", "OAUTH-20")
async def test_a_host_may_take_the_callback_itself_and_say_when_the_call_continues(here: Program, ann: Person) -> None:
    early, _ = await here.asks()
    not_yet = await here.box.answer(early, by=ANN)
    pending_id, link = await here.asks()
    sent = await ann.presses(await ann.opens(link))
    back = await ann.walks(sent, f"{here.url}/oauth/callback/notes")

    brought = dict(parse_qsl(urlsplit(back).query))
    await here.box.accounts.consents.finish(
        brought,
        provider="notes",
        person=Principal("acme", "ann"),
        browser=browser_binding(ann.web.cookies["toolpost"]),
    )
    outcome = await here.box.answer(pending_id, by=ANN)

    assert isinstance(not_yet, Failed)
    assert str(not_yet.error) == "OAuth for notes was not completed"
    assert isinstance(outcome, Completed)


async def test_over_https_the_cookie_is_for_https_alone(api: NotesApi, tmp_path: Path) -> None:
    async with toolbox(notes_source(api, tmp_path), "https://tools.example") as box:
        _, link = await Program(box, api, "").asks()
        transport = httpx2.ASGITransport(callback_app(box, identify=logged_in))
        async with httpx2.AsyncClient(transport=transport) as web:
            page = await web.get(link)

    assert link.startswith("https://tools.example/oauth/start?ticket=")
    assert re.search(r"^__Host-toolpost=[\w-]{43}; Path=/; .*; Secure$", page.headers["set-cookie"])


async def test_a_service_that_cannot_be_reached_is_reported_without_details(
    api: NotesApi, place: tuple[str, socket.socket], tmp_path: Path, ann: Person
) -> None:
    url, listening = place
    source = notes_source(api, tmp_path, issuer="http://127.0.0.1:9", client_secret=None)
    async with toolbox(source, url) as box, served(callback_app(box, identify=logged_in), listening):
        _, link = await Program(box, api, url).asks()
        failed = await ann.presses(await ann.opens(link))

    assert failed.status_code == 502
    assert "127.0.0.1:9" not in failed.text


async def test_without_accounts_there_is_nothing_to_connect(place: tuple[str, socket.socket]) -> None:
    url, listening = place
    async with (
        Toolbox() as box,
        served(callback_app(box, identify=logged_in), listening),
        httpx2.AsyncClient(trust_env=False, timeout=60) as web,
    ):
        answers = [await web.get(f"{url}/oauth/{path}") for path in ("start?ticket=x", "callback/notes?code=c&state=s")]

    assert [(answer.status_code, "There are no accounts here" in answer.text) for answer in answers] == [
        (404, True)
    ] * 2
    assert "code=c" not in "".join(answer.text for answer in answers)


async def test_servers_learn_that_it_lives_and_sockets_are_closed() -> None:
    told: list[str] = []
    waiting: asyncio.Queue[Any] = asyncio.Queue()

    async def send(message: Any) -> None:
        told.append(message["type"])

    app = callback_app(Toolbox(), identify=logged_in)
    for kind in ("lifespan.startup", "lifespan.shutdown"):
        waiting.put_nowait({"type": kind})
    await app({"type": "lifespan"}, waiting.get, send)
    await app({"type": "websocket", "path": "/oauth/start"}, waiting.get, send)

    assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]


async def test_a_source_for_peoples_own_accounts_may_come_while_the_toolbox_is_open(
    api: NotesApi, place: tuple[str, socket.socket], tmp_path: Path
) -> None:
    url, listening = place
    settings = Settings(data_dir=None, policy="exploratory", accounts=AccountSettings(public_url=url))
    async with Toolbox(settings=settings) as box, served(callback_app(box, identify=logged_in), listening):
        with pytest.raises(ConfigError, match="no source uses accounts of users"):
            _ = box.accounts
        await box.sources.add(ExternalToolConfig(**notes_source(api, tmp_path)))
        pending_id, link = await Program(box, api, url).asks()
        async with Person() as ann:
            await ann.connects(link)

        done = await outcome_of(box, pending_id, by=ANN)
        [state] = await box.accounts.states(Principal.parse(ANN))
    assert (done["status"], state.status) == ("completed", "connected")
