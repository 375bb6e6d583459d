"""An issuer and the API that takes its tokens, both as small as tests need them, and Toolboxes that use them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.patient_settings import PatientSettings
from tests.wire.site import Received, Site, reply
from toolpost import AuthType, ExternalToolConfig, Principal, Toolbox, TransportType
from toolpost.auth.consents import ConnectedAccount, StartedSignIn
from toolpost.configuration.settings import AccountSettings, NetworkSettings

ANN, BOB = "acme:ann", "acme:bob"
BACK = "http://127.0.0.1:9/callback"
Refuse = Callable[[str], bytes | None]


class SmallIssuer(Site):
    """Gives tokens to whoever asks and rotates refresh tokens; every other path is an API for those tokens."""

    def __init__(self) -> None:
        super().__init__(answer=self._answer)
        self.forms: list[dict[str, str]] = []
        self.ended: list[str] = []
        self.shown: list[str] = []
        self.good: set[str] = set()
        self.registered = 0
        self.issuers: list[str] = []
        self.says: bytes | None = None
        self.refuse: Refuse = lambda _: None
        self.before: Callable[[str], Awaitable[None]] | None = None

    async def _answer(self, received: Received, writer: asyncio.StreamWriter) -> None:
        match urlsplit(received.path).path:
            case "/.well-known/oauth-protected-resource":
                told = _json({"resource": self.url, "authorization_servers": self.issuers or [self.url]})
            case "/.well-known/oauth-authorization-server":
                told = _json(self._metadata())
            case "/register":
                self.registered += 1
                told = _json({**json.loads(received.body), "client_id": f"client-{self.registered}"}, 201)
            case "/device":
                codes = {"device_code": "canary-device", "user_code": "ABCD-EFGH", "expires_in": 60, "interval": 0.01}
                told = _json({**codes, "verification_uri": f"{self.url}/enter"})
            case "/revoke":
                self.ended.append(dict(parse_qsl(received.body.decode()))["token"])
                told = reply(200)
            case "/token":
                told = await self._token(dict(parse_qsl(received.body.decode())))
            case _:
                told = await self._api("".join(received.all("authorization")))
        writer.write(told)

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
        }

    async def _token(self, form: dict[str, str]) -> bytes:
        self.forms.append(form)
        if self.before is not None:
            await self.before(form["grant_type"])
        if self.says is not None:
            return self.says
        number = len(self.forms)
        self.good.add(f"Bearer canary-access-{self.port}-{number}")
        tokens = {"access_token": f"canary-access-{self.port}-{number}", "refresh_token": f"canary-refresh-{number}"}
        return _json({**tokens, "token_type": "Bearer", "expires_in": 3600})

    async def _api(self, shown: str) -> bytes:
        self.shown.append(shown)
        if self.before is not None:
            await self.before(shown)
        refused = self.refuse(shown)
        if refused is not None:
            return refused
        return _json({"ok": True}) if shown in self.good else reply(401, www_authenticate="Bearer")

    @property
    def renewals(self) -> int:
        return sum(form["grant_type"] == "refresh_token" for form in self.forms)

    def endpoints(self, **more: Any) -> dict[str, Any]:
        """What an operator writes who knows the endpoints."""
        known = {"auth_url": f"{self.url}/authorize", "token_url": f"{self.url}/token"}
        return {**known, "client_id": "app", "client_secret": "canary-of-the-client", **more}


def _json(told: dict[str, Any], status: int = 200) -> bytes:
    return reply(status, json.dumps(told).encode(), content_type="application/json")


def oauth_error(code: str, status: int = 400) -> bytes:
    return _json({"error": code}, status)


def source(name: str, api: Site, folder: Path, **auth: Any) -> ExternalToolConfig:
    """A source with one tool, `read`, for people's own accounts."""
    read = {"get": {"operationId": "read", "summary": "Read."}}
    document = {"openapi": "3.1.0", "info": {"title": name, "version": "1"}, "paths": {"/read": read}}
    place = folder / f"{name}.json"
    place.write_text(json.dumps({**document, "servers": [{"url": api.url}]}))
    return ExternalToolConfig(
        name=name, transport=TransportType.HTTP, connection=str(place), auth_type=AuthType.OAUTH2_USER, auth_config=auth
    )


def toolbox(folder: Path | None, *sources: ExternalToolConfig) -> Toolbox:
    settings = PatientSettings(
        data_dir=folder,
        policy="exploratory",
        sources=list(sources),
        accounts=AccountSettings(public_url="http://127.0.0.1:9"),
        network=NetworkSettings(allow_hosts=["127.0.0.1"]),  # an issuer that a document names is here, too
    )
    return Toolbox(settings=settings)


async def began(box: Toolbox, provider: str, user: str = ANN) -> dict[str, str]:
    """A sign-in for somebody at this machine: what the issuer is told."""
    begun = await box.accounts.connect(provider, Principal.parse(user), redirect_uri=BACK)
    assert isinstance(begun, StartedSignIn)
    return dict(parse_qsl(urlsplit(begun.url).query))


async def finish(box: Toolbox, brought: dict[str, str], provider: str = "notes", user: str = ANN) -> ConnectedAccount:
    """What a browser brings back from a service, where somebody is logged in."""
    finished: ConnectedAccount = await box.accounts.finish(brought, provider=provider, person=Principal.parse(user))
    return finished


async def connect(box: Toolbox, provider: str, user: str = ANN) -> ConnectedAccount:
    told = await began(box, provider, user)
    return await finish(box, {"state": told["state"], "code": "canary-code"}, provider, user)
