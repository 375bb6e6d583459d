"""An MCP server over HTTP that lets only holders of its issuer's tokens in; the first line printed is its address.

It takes tokens of ISSUER for its own address (RFC 8707) and says so in a document (RFC 9728), which lies where only its
challenge tells. `publish` needs one more scope, and bernd is not shown it. POST /control changes what is taken:
`refuse` names a subject whose tokens so far are refused, `closed` refuses everybody's, `issuer` is another issuer. It
tells what was seen.
"""

import json
import os
import socket
import time
from typing import Any

import httpx2
import uvicorn
from fastmcp import FastMCP
from fastmcp.server.dependencies import get_http_headers
from fastmcp.server.middleware import Middleware
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

DOCUMENT = "/about/tokens"
LEEWAY_S = 60.0  # clocks differ: it is the client that knows first when a token ends
server: FastMCP[Any] = FastMCP("guarded")


@server.tool(annotations={"readOnlyHint": True})
def whoami() -> dict[str, Any]:
    """Whose token came with this very request, and in which session."""
    headers = get_http_headers(include_all=True)
    claims = guard.read(headers["authorization"])
    return {"sub": claims["sub"], "token": claims["jti"], "session": headers.get("mcp-session-id")}


@server.tool(annotations={"readOnlyHint": True})
def publish() -> str:
    """Something that not everybody may do."""
    return "published"


@server.prompt
def greet() -> str:
    """Greet whoever reads it."""
    return "Say hello."


class Discretion(Middleware):
    """Does not show everything to everybody."""

    async def on_list_tools(self, context: Any, call_next: Any) -> Any:
        """The tools for whoever asks."""
        listed = await call_next(context)
        who = guard.read(get_http_headers(include_all=True)["authorization"])["sub"]
        return [tool for tool in listed if (who, tool.name) != ("bernd", "publish")]


class Guard:
    """Judges tokens."""

    def __init__(self, address: str, issuer: str) -> None:
        self.address = address
        self.seen: dict[str, str] = {}
        self.refused: set[str] = set()
        self.strangers = 0
        self.closed = False
        self.trust(issuer)

    def trust(self, issuer: str) -> None:
        """Take the tokens of this issuer, and no others."""
        found: Any = httpx2.get(f"{issuer}/jwks", trust_env=False, timeout=60).json()
        self.issuer, self.keys = issuer, KeySet.import_key_set(found)

    def read(self, authorization: str) -> dict[str, Any]:
        """What a token says, also one that has ended since it was let in; nothing for one of somebody else's."""
        try:
            told: dict[str, Any] = jwt.decode(authorization.removeprefix("Bearer "), self.keys, ["RS256"]).claims
        except (JoseError, ValueError):
            return {}
        return told | {"sub": told.get("sub") or told["client_id"]}

    def claims(self, authorization: str) -> dict[str, Any]:
        """What a token says; an empty answer for one that is not taken."""
        told = self.read(authorization)
        if not told:
            return {}
        right = (told["iss"], told["aud"]) == (self.issuer, self.address) and told["exp"] > time.time() - LEEWAY_S
        if not right or self.closed or told["jti"] in self.refused:
            return {}
        self.seen[told["jti"]] = told["sub"]
        return told

    def refusal(self, authorization: str, body: bytes) -> tuple[int, str] | None:
        """Why a request is not let in, with the challenge that goes with it."""
        about = f'resource_metadata="{self.address.removesuffix("/mcp")}{DOCUMENT}"'
        claims = self.claims(authorization)
        self.strangers += not claims and bool(authorization)
        if not claims:
            return 401, f'Bearer scope="tools.read", {about}'
        if b'"publish"' in body and "tools.call" not in claims["scope"].split():
            return 403, f'Bearer error="insufficient_scope", scope="tools.call", {about}'
        return None

    def told(self) -> dict[str, Any]:
        """The document of this server."""
        scopes = ["tools.read", "tools.call"]
        return {"resource": self.address, "authorization_servers": [self.issuer], "scopes_supported": scopes}

    def control(self, body: bytes) -> dict[str, Any]:
        """Change what is taken, and tell what was seen."""
        wanted: dict[str, Any] = json.loads(body or b"{}")
        self.refused |= {token for token, subject in self.seen.items() if subject == wanted.get("refuse")}
        self.closed = wanted.get("closed", self.closed)
        if "issuer" in wanted:
            self.trust(wanted["issuer"])
        return {"seen": self.seen, "strangers": self.strangers}


guard: Guard


class Gate:
    """Stands before the server."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = await _body(receive)
        path, headers = scope["path"], dict(scope["headers"])
        if path in {DOCUMENT, "/control"}:
            await _answer(send, 200, guard.told() if path == DOCUMENT else guard.control(body))
            return
        refused = guard.refusal(headers.get(b"authorization", b"").decode(), body) if path == "/mcp" else None
        if refused is not None:
            await _answer(send, refused[0], {"error": "refused"}, refused[1])
            return
        pending = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Any:
            return pending.pop() if pending else await receive()

        await self.app(scope, again, send)


async def _body(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


async def _answer(send: Any, status: int, told: Any, challenge: str = "") -> None:
    headers = [(b"content-type", b"application/json")]
    if challenge:
        headers.append((b"www-authenticate", challenge.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(told).encode()})


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    guard = Guard(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", os.environ["ISSUER"])
    print(guard.address, flush=True)
    server.add_middleware(Discretion())
    app = Gate(server.http_app(path="/mcp"))
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
