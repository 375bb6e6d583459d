"""Requests as no browser would send them, straight to the callback app."""

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.toolbox.signing_in import toolbox
from tests.wire.site import Received, Site, reply
from toolpost import Paused, Toolbox

FORM = (b"content-type", b"application/x-www-form-urlencoded")
TOKENS = {"access_token": "of-ann", "token_type": "Bearer", "expires_in": 600}
Pairs = Iterable[tuple[bytes, bytes]]


class Shown(NamedTuple):
    """One answer of the app."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def cookie(self) -> bytes:
        """What the browser would send from now on."""
        return self.headers["set-cookie"].partition(";")[0].encode()

    @property
    def form(self) -> dict[str, str]:
        found = re.findall(r'name="(\w+)" value="([^"]*)"', self.text)
        return {name: html.unescape(value) for name, value in found}

    @property
    def state(self) -> str:
        return parse_qs(urlsplit(self.headers["location"]).query)["state"][0]


class Issuer(Site):
    """A service that says yes to whatever it is asked for, once it may answer."""

    def __init__(self) -> None:
        super().__init__(answer=self._answer)
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def _answer(self, received: Received, writer: asyncio.StreamWriter) -> None:
        self.asked.set()
        await self.may_answer.wait()
        writer.write(reply(200, json.dumps(TOKENS).encode(), content_type="application/json"))
        await writer.drain()


@asynccontextmanager
async def opened(issuer: Site, folder: Path, public_url: str = "http://localhost:9") -> AsyncIterator[Toolbox]:
    """A Toolbox whose only source needs an account at the service."""
    document = folder / "notes.json"
    read = {"operationId": "read_note", "summary": "Read the note."}
    about = {"openapi": "3.1.0", "info": {"title": "Notes", "version": "1"}, "servers": [{"url": issuer.url}]}
    document.write_text(json.dumps({**about, "paths": {"/note": {"get": read}}}))
    source = {
        "name": "notes",
        "transport": "http",
        "connection": str(document),
        "auth_type": "oauth2_user",
        "auth_config": {"auth_url": f"{issuer.url}/auth", "token_url": f"{issuer.url}/token", "client_id": "me"},
    }
    async with toolbox(source, public_url) as box:
        yield box


async def ticket(box: Toolbox) -> str:
    """The secret of a fresh link for acme:ann."""
    outcome = await box.call("notes.read_note", user="acme:ann")
    assert isinstance(outcome, Paused)
    return str(outcome.question.payload["auth_url"]).partition("?ticket=")[2]


async def sent(
    app: Any,
    path: str,
    *,
    query: bytes = b"",
    root: str = "",
    headers: Pairs = (),
    form: Mapping[str, str] | None = None,
    messages: list[dict[str, Any]] | None = None,
) -> Shown:
    """What the app answers to one request."""
    body = {"type": "http.request", "body": urlencode(form or {}).encode()}
    coming = iter(messages or [body])
    said: list[Any] = []

    async def receive() -> dict[str, Any]:
        if (message := next(coming, None)) is None:
            await asyncio.Event().wait()
        assert message is not None
        return message

    async def send(message: Any) -> None:
        said.append(message)

    posted = form is not None or messages is not None
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "method": "POST" if posted else "GET",
        "path": path,
        "root_path": root,
        "query_string": query,
        "headers": [*headers, *([FORM] if posted else [])],
    }
    await app(scope, receive, send)
    head = {name.decode(): value.decode() for name, value in said[0]["headers"]}
    return Shown(said[0]["status"], head, b"".join(one.get("body", b"") for one in said[1:]).decode())


async def begun(app: Any, secret: str) -> tuple[Shown, bytes]:
    """The redirect that the button leads to, and the cookie of the browser."""
    page = await sent(app, "/oauth/start", query=f"ticket={secret}".encode())
    cookie = (b"cookie", page.cookie)
    return await sent(app, "/oauth/start", headers=[cookie], form=page.form), page.cookie
