"""Over https, with a neighbour under the same domain who would like to be taken for the program."""

import socket
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from fastapi import FastAPI, Response

from tests.browser.conftest import Newcomer
from tests.browser.visitor import Visitor, heading
from tests.toolbox.signing_in import ANN, NotesApi, Program, logged_in, notes_source, outcome_of, served, toolbox
from tests.wire.certificates import Authority
from toolpost.toolbox.callback_app import callback_app

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs]
HOST, NEIGHBOUR, DOMAIN = "app.tools.localhost", "evil.tools.localhost", "tools.localhost"
PLANTED = "p" * 43


def served_safely(app: FastAPI, listening: socket.socket, folder: Path) -> AbstractAsyncContextManager[None]:
    Authority(folder).server(HOST)
    key = folder / f"{HOST}.pem"
    return served(app, listening, ssl_certfile=key, ssl_keyfile=key)


def planting() -> FastAPI:
    """A host whose neighbour under the same domain hands out cookies for both of them."""
    host = FastAPI()

    @host.get("/plant")
    def plant(response: Response) -> str:
        for name in ("toolpost", "__Host-toolpost"):
            cookie = f"{name}={PLANTED}; Domain={DOMAIN}; Path=/; Secure"
            response.headers.append("Set-Cookie", cookie)
        return "planted"

    return host


async def test_a_neighbour_cannot_plant_the_cookie_that_a_sign_in_is_bound_to(
    api: NotesApi, place: tuple[str, socket.socket], newcomer: Newcomer, tmp_path: Path
) -> None:
    port = place[1].getsockname()[1]
    url, host = f"https://{HOST}:{port}", planting()
    source = notes_source(api, tmp_path, client_id=None, client_secret=None)
    async with toolbox(source, url) as box, served_safely(host, place[1], tmp_path):
        host.mount("/oauth", callback_app(box, identify=logged_in))
        ann: Visitor = await newcomer(ignore_https_errors=True, base_url=url)
        await ann.opens(f"https://{NEIGHBOUR}:{port}/plant")
        pending_id, link = await Program(box, api, url).asks()
        tab = await ann.connects(link)
        outcome = await outcome_of(box, pending_id, by=ANN)

        mine = {cookie["name"]: cookie for cookie in await ann.context.cookies(url)}
    assert mine["toolpost"]["value"] == PLANTED
    assert mine["__Host-toolpost"]["value"] != PLANTED
    assert (mine["__Host-toolpost"]["domain"], mine["__Host-toolpost"]["secure"]) == (HOST, True)
    assert await heading(tab) == "Connected, you can close this page"
    assert (outcome["status"], ann.complaints) == ("completed", [])
