"""An issuer and its API in one that forgive nothing: codes and refresh tokens are good once, effects are counted."""

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.wire.site import Received, Site, reply

SCOPE = "bank"
TOOLS = {"look": ("get", "/balance"), "put": ("put", "/standing"), "pay": ("post", "/payments")}


@dataclass
class Grant:
    """What one consent brought; used up twice, it is over."""

    client: str
    access: str
    refresh: str
    over: bool = False


@dataclass
class StrictService(Site):
    """Lives in another process than those that are killed.

    A code or a refresh token that comes twice ends its grant (RFC 6749 section 4.1.2, RFC 9700 section 4.14.2).
    """

    lifetime_s: int = 3600
    clients: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    codes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    redeemed: dict[str, Grant] = field(default_factory=dict[str, Grant])
    grants: list[Grant] = field(default_factory=list[Grant])
    refusals: list[str] = field(default_factory=list[str])
    effects: list[str] = field(default_factory=list[str])
    reads: int = 0

    def __post_init__(self) -> None:
        self.answer = self._answer

    async def _answer(self, received: Received, writer: asyncio.StreamWriter) -> None:
        routes: dict[tuple[str, str], Callable[[Received], bytes]] = {
            ("GET", "/.well-known/oauth-authorization-server"): self._metadata,
            ("POST", "/register"): self._register,
            ("GET", "/authorize"): self._authorize,
            ("POST", "/token"): self._token,
            ("GET", "/balance"): self._api,
            ("PUT", "/standing"): self._api,
            ("POST", "/payments"): self._api,
        }
        handle = routes.get((received.method, urlsplit(received.path).path))
        writer.write(reply(404) if handle is None else handle(received))
        await writer.drain()

    def minted(self, kind: str) -> str:
        """A new token, access or refresh."""
        return f"{kind}-{secrets.token_urlsafe(24)}"

    def _metadata(self, _: Received) -> bytes:
        return _json(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "registration_endpoint": f"{self.url}/register",
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
                "authorization_response_iss_parameter_supported": True,
            }
        )

    def _register(self, received: Received) -> bytes:
        client = f"client-{len(self.clients)}"
        self.clients[client] = json.loads(received.body)["redirect_uris"]
        return _json({"client_id": client, "redirect_uris": self.clients[client]}, status=201)

    def _authorize(self, received: Received) -> bytes:
        """The person says yes at once."""
        asked = dict(parse_qsl(urlsplit(received.path).query))
        if asked["redirect_uri"] not in self.clients[asked["client_id"]] or asked["code_challenge_method"] != "S256":
            return reply(400)
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        back = urlencode({"code": code, "state": asked["state"], "iss": self.url})
        return reply(302, location=f"{asked['redirect_uri']}?{back}")

    def _token(self, received: Received) -> bytes:
        form = dict(parse_qsl(received.body.decode()))
        granted = self._redeem(form) if form["grant_type"] == "authorization_code" else self._refresh(form)
        if isinstance(granted, str):
            self.refusals.append(granted)
            return _json({"error": "invalid_grant", "error_description": granted}, status=400)
        told = {"access_token": granted.access, "refresh_token": granted.refresh, "scope": SCOPE}
        return _json({**told, "token_type": "Bearer", "expires_in": self.lifetime_s})

    def _redeem(self, form: dict[str, str]) -> Grant | str:
        code = form["code"]
        if code in self.redeemed:
            self.redeemed[code].over = True
            return "the code was used before"
        asked = self.codes[code]
        proof = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        if proof != asked["code_challenge"] or any(form[name] != asked[name] for name in ("client_id", "redirect_uri")):
            return "the code is somebody else's"
        self.redeemed[code] = grant = Grant(form["client_id"], self.minted("access"), self.minted("refresh"))
        self.grants.append(grant)
        return grant

    def _refresh(self, form: dict[str, str]) -> Grant | str:
        token = form["refresh_token"]
        for grant in self.grants:
            if token == grant.refresh and not grant.over:
                grant.access, grant.refresh = self.minted("access"), self.minted("refresh")
                return grant
        return "the refresh token was used before"

    def _api(self, received: Received) -> bytes:
        sent = "".join(received.all("authorization"))
        if not any(sent == f"Bearer {grant.access}" and not grant.over for grant in self.grants):
            return reply(401, www_authenticate="Bearer")
        if received.method == "GET":
            self.reads += 1
            return _json({"balance": 100})
        key = "".join(received.all("idempotency-key")) or f"no key, {len(self.effects)}"
        if key not in self.effects and not (received.method == "PUT" and self.effects):
            self.effects.append(key)
        return _json({"payments": len(self.effects)})

    def source(self, folder: Path, *, idempotency_header: str | None = None) -> dict[str, Any]:
        """The API as a source for people's own accounts."""
        body = {"content": {"application/json": {"schema": {"type": "object"}}}}
        paths: dict[str, Any] = {}
        for name, (method, path) in TOOLS.items():
            sent = {} if method == "get" else {"requestBody": body}
            paths[path] = {method: {"operationId": name, "responses": {"200": {"description": "Done."}}, **sent}}
        document = {
            "openapi": "3.1.0",
            "info": {"title": "Bank", "version": "1"},
            "servers": [{"url": self.url}],
            "paths": paths,
        }
        where = folder / "bank.json"
        where.write_text(json.dumps(document))
        return {
            "name": "bank",
            "transport": "http",
            "connection": str(where),
            "auth_type": "oauth2_user",
            "auth_config": {"issuer": self.url, "scopes": [SCOPE]},
            "options": {"idempotency_header": idempotency_header},
        }


def _json(told: dict[str, Any], *, status: int = 200) -> bytes:
    return reply(status, json.dumps(told).encode(), content_type="application/json")
