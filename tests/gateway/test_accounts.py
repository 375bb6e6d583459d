"""A person signs in at a real authorization server through the gateway, and the waiting call goes on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestParams, ElicitRequestURLParams, ElicitResult

from tests.auth.oauth.provider import provider
from tests.gateway.serving import serving, whole_app
from tests.toolbox.signing_in import ANN, CLIENT, NotesApi, Person, address, notes_source, toolbox
from toolpost.gateway.http import open_callers

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with provider(CLIENT) as issuer:
        yield issuer


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_clients_user_signs_in_and_the_call_goes_on(
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
