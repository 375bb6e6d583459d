"""A small API that takes the tokens of a real authorization server only, and a person who signs in with a browser."""

import asyncio
import html
import json
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode, urljoin

import httpx2
import uvicorn
from joserfc import jwk, jwt
from joserfc.errors import JoseError

from tests.auth.oauth.provider import Browser
from tests.patient_settings import PatientSettings
from tests.wire.site import Received, Site, reply
from toolpost import ExternalToolConfig, Paused, Toolbox
from toolpost.configuration.settings import AccountSettings
from toolpost.wire.http_server import HttpServer

CLIENT: dict[str, Any] = {
    "client_id": "toolpost",
    "client_secret": "s3cret-of-the-client",
    "application_type": "native",  # so that the port of a loopback redirect may differ (RFC 8252 section 7.3)
    "redirect_uris": ["http://127.0.0.1/oauth/callback/notes", "http://127.0.0.1/callback/notes"],
    "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
}
ANN = "acme:ann"
NOTE = {"id": 7, "text": "remember the milk"}


class NotesApi(Site):
    """An API for whoever a token of the issuer was given to; deleting takes one with another scope."""

    def __init__(self, issuer: str) -> None:
        super().__init__(answer=self._answer)
        self.issuer = issuer
        self.readers: list[str] = []

    async def __aenter__(self) -> Self:
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as web:
            self.keys = jwk.KeySet.import_key_set((await web.get(f"{self.issuer}/jwks")).json())
        return await super().__aenter__()

    async def _answer(self, received: Received, writer: asyncio.StreamWriter) -> None:
        claims = self._claims(received.all("authorization"))
        wanted = "tools.call" if received.method == "DELETE" else "tools.read"
        if not claims:
            writer.write(reply(401, www_authenticate="Bearer"))
        elif wanted not in claims["scope"].split():
            writer.write(reply(403, www_authenticate=f'Bearer error="insufficient_scope", scope="{wanted}"'))
        else:
            self.readers.append(claims["sub"])
            told = json.dumps({**NOTE, "reader": claims["sub"]}).encode()
            writer.write(reply(200, told, content_type="application/json"))

    def _claims(self, sent: list[str]) -> dict[str, Any]:
        try:
            claims = jwt.decode("".join(sent).removeprefix("Bearer "), self.keys).claims
        except (JoseError, ValueError):
            return {}
        return claims if claims["aud"] == self.url else {}

    def document(self) -> dict[str, Any]:
        number = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
        read = {"operationId": "read_note", "summary": "Read one note.", "parameters": [number]}
        delete = {"operationId": "delete_note", "summary": "Delete one note.", "parameters": [number]}
        return {
            "openapi": "3.1.0",
            "info": {"title": "Notes", "version": "1"},
            "servers": [{"url": self.url}],
            "paths": {"/notes/{id}": {"get": read, "delete": delete}},
        }


def notes_source(api: NotesApi, folder: Path, **auth: Any) -> dict[str, Any]:
    """The API as a source for people's own accounts."""
    document = folder / "notes.json"
    document.write_text(json.dumps(api.document()))
    given = {
        "issuer": api.issuer,
        "client_id": "toolpost",
        "client_secret": "env:NOTES_CLIENT_SECRET",
        "resource": api.url,
        "scopes": ["tools.read", "offline_access"],
        "display_name": "Notes of Ann & Co",
        **auth,
    }
    return {
        "name": "notes",
        "transport": "http",
        "connection": str(document),
        "auth_type": "oauth2_user",
        "auth_config": {key: value for key, value in given.items() if value is not None},
    }


def toolbox(source: dict[str, Any], public_url: str | None, folder: Path | None = None, **accounts: Any) -> Toolbox:
    settings = PatientSettings(
        data_dir=folder,
        policy="exploratory",
        sources=[ExternalToolConfig(**source)],
        accounts=AccountSettings(public_url=public_url, **accounts),
    )
    return Toolbox(settings=settings)


def logged_in(scope: Any) -> str:
    """Whom a host has at a browser: the one whom `X-User` names, else Ann."""
    return dict(scope["headers"]).get(b"x-user", ANN.encode()).decode()


class Program(NamedTuple):
    """A Toolbox that people reach with browsers."""

    box: Toolbox
    api: NotesApi
    url: str

    async def asks(self, *, user: str = ANN) -> tuple[str, str]:
        """A call that waits, and the link for its person."""
        outcome = await self.box.call("notes.read_note", {"id": 7}, user=user)
        assert isinstance(outcome, Paused)
        return outcome.pending_id, outcome.question.payload["auth_url"]


@contextmanager
def address() -> Iterator[tuple[str, socket.socket]]:
    """An address before anybody answers there."""
    with socket.create_server(("127.0.0.1", 0)) as place:
        yield f"http://127.0.0.1:{place.getsockname()[1]}", place


@asynccontextmanager
async def served(app: Any, place: socket.socket, **how: Any) -> AsyncIterator[None]:
    """An ASGI app behind a real server, with the access log that it writes by itself."""
    server = HttpServer(uvicorn.Config(app, lifespan="on", log_config=None, **how))
    serving = asyncio.create_task(server.serve(sockets=[place]))
    try:
        async with asyncio.timeout(60):
            while not server.started:
                await asyncio.sleep(0.01)
        yield
    finally:
        server.stop()
        await serving


class Person:
    """Somebody with a browser that keeps its cookies; at the service they say yes, or no."""

    def __init__(self, *, says_yes: bool = True) -> None:
        # Nothing here is on TLS, and reading the world's certificates takes longer than all that this browser does.
        self.web = httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=60, verify=False)
        self.says_yes = says_yes

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.web.aclose()

    async def opens(self, link: str) -> httpx2.Response:
        """The page behind a link; one that only takes its query away is shown at its new address."""
        page = await self.web.get(link)
        address = page.headers.get("location", "")
        return await self.web.get(urljoin(link, address)) if address.startswith("?") else page

    async def presses(self, page: httpx2.Response, **changed: str) -> httpx2.Response:
        """Press the only button of a page."""
        form = re.search(r'<form method="post" action="([^"]+)">', page.text)
        assert form, page.text
        fields = {name: html.unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', page.text)}
        return await self.web.post(urljoin(str(page.url), form[1]), data={**fields, **changed})

    async def walks(self, sent: httpx2.Response, callback: str) -> str:
        """Sign in where the browser was sent; the address to come back to."""
        assert sent.status_code == 303, sent.text
        brought = await Browser(callback, says_yes=self.says_yes).visit(sent.headers["location"])
        return f"{callback}?{urlencode(brought)}"

    async def connects(self, link: str) -> httpx2.Response:
        """All the way, from the link to the last page."""
        sent = await self.presses(await self.opens(link))
        return await self.opens(await self.walks(sent, f"{link.partition('/start?')[0]}/callback/notes"))


async def outcome_of(box: Toolbox, pending_id: str, *, by: str) -> Any:
    """What came of a call that waited, once it has gone on."""
    async with asyncio.timeout(60):
        while (action := await box.pending.get(pending_id, by=by)).outcome is None:
            await asyncio.sleep(0.01)
    return action.outcome
