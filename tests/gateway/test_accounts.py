"""A person signs in at a real authorization server through the gateway, and the waiting call goes on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestParams, ElicitRequestURLParams, ElicitResult

from tests.auth.oauth.provider import Browser, provider
from tests.gateway.serving import serving, whole_app
from tests.patient_settings import PatientSettings
from tests.toolbox.signing_in import ANN, CLIENT, NotesApi, Person, address, notes_source, outcome_of, toolbox
from toolpost import Toolbox
from toolpost.gateway.http import open_callers

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with provider(CLIENT) as issuer:
        yield issuer


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_clients_user_signs_in_and_the_call_continues(
    issuer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, era: Literal["legacy", "auto"]
) -> None:
    async def sign_in(context: Any, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestURLParams)
        async with Person() as ann:
            page = await ann.connects(params.url)
        assert page.status_code == 200
        return ElicitResult(action="accept")

    monkeypatch.setenv("NOTES_CLIENT_SECRET", CLIENT["client_secret"])
    with address() as (url, listening):
        folder, api = tmp_path / "data", NotesApi(issuer)
        async with (
            api,
            toolbox(notes_source(api, tmp_path), url, folder) as box,
            open_callers(box, folder, ANN, host="127.0.0.1") as callers,
            serving(whole_app(box, callers, url), listening),
            httpx2.AsyncClient(
                headers={"Authorization": f"Bearer {(folder / 'token').read_text()}"}, timeout=60
            ) as http,
            Client(
                streamable_http_client(f"{url}/mcp", http_client=http), mode=era, elicitation_callback=sign_in
            ) as client,
        ):
            result = await client.call_tool("notes__read_note", {"id": 7})

    assert "remember the milk" in str(result.content)
    assert len(api.readers) == 1


async def test_a_front_end_starts_and_finishes_a_sign_in_and_lets_the_account_go(
    issuer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTES_CLIENT_SECRET", CLIENT["client_secret"])
    page = "http://127.0.0.1/callback"  # of the front end, which hands on what the browser brings
    with address() as (url, listening):
        folder, api = tmp_path / "data", NotesApi(issuer)
        async with (
            api,
            toolbox(notes_source(api, tmp_path), url, folder) as box,
            open_callers(box, folder, ANN, host="127.0.0.1") as callers,
            serving(whole_app(box, callers, url), listening),
            httpx2.AsyncClient(base_url=f"{url}/api/v1", timeout=60, trust_env=False) as http,
        ):
            http.headers["Authorization"] = f"Bearer {(folder / 'token').read_text()}"
            call = {"tool": "notes.read_note", "arguments": {"id": 7}}
            asked = (await http.post("/calls", json=call)).json()
            card = (await http.get(f"/pending/{asked['pending']['id']}")).json()
            before = (await http.get("/accounts")).json()
            started = (await http.post("/accounts/notes/sign-in", json={"redirect_uri": page})).json()
            brought = await Browser(f"{page}/notes").visit(started["url"])
            forged = {"parameters": {**brought, "state": "made-up"}}
            refused = await http.post("/accounts/notes/callback", json=forged)
            finished = await http.post("/accounts/notes/callback", json={"parameters": brought})
            outcome = await outcome_of(box, asked["pending"]["id"], by=ANN)  # the call resumes in the background
            after = (await http.get("/accounts")).json()
            users = (await http.get("/accounts/users")).json()
            gone = [(await http.delete("/accounts/notes")).status_code for _ in range(2)]
            strange = await http.post("/accounts/nowhere/sign-in", json={})

    assert (asked["status"], started["status"]) == ("paused", "started")
    assert (card["kind"], card["payload"]["provider"]) == ("consent", "notes")
    assert "/oauth/start" not in str(card)  # a link without its secret would lead nowhere
    assert finished.json() == {"status": "connected", "provider": "notes", "url": None}
    assert 400 <= refused.status_code < 500
    assert refused.headers["content-type"] == "application/problem+json"
    assert [one["provider"] for one in before + after] == ["notes", "notes"]
    assert before != after
    assert [(one["user"], one["provider"], one["status"]) for one in users] == [(ANN, "notes", "connected")]
    assert "token" not in str(users)
    assert (before[0]["sources"], before[0]["waiting"]) == (["notes"], [asked["pending"]["id"]])
    assert before[0]["tools"] > 0
    assert (after[0]["status"], after[0]["waiting"]) == ("connected", [])
    assert isinstance(before[0]["requested_scopes"], list)
    assert "remember the milk" in str(outcome)
    assert (gone, strange.status_code) == ([204, 404], 404)


async def test_a_browser_that_comes_back_finds_the_console_where_no_one_is_known(tmp_path: Path) -> None:
    """Its page finishes the sign-in with its own bearer; it is another page where the console is not built."""
    with address() as (url, listening):
        async with (
            Toolbox(settings=PatientSettings(data_dir=tmp_path / "data")) as box,
            open_callers(box, tmp_path / "data", ANN, host="127.0.0.1") as callers,
            serving(whole_app(box, callers, "https://tools.example"), listening),
            httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False, headers={"Host": "tools.example"}) as http,
        ):
            path = "/oauth/callback/notes?state=s&code=the-code"
            page = await http.get(path, headers={"Accept": "text/html"})
            start = await http.get("/", headers={"Accept": "text/html"})
            program = await http.get(path, headers={"Accept": "application/json"})

    assert (page.status_code, page.headers["content-type"]) == (start.status_code, start.headers["content-type"])
    assert page.headers["content-type"].startswith("text/html")
    assert "the-code" not in page.text
    assert program.headers["content-type"] == "application/problem+json"
