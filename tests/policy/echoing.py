"""A service that repeats every secret it is sent, in whatever disguise it is asked for, and what is heard of it."""

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2

from tests.life_of_a_call.strict_service import StrictService
from tests.patient_settings import PatientSettings
from tests.policy.canaries import DISGUISES, canary
from tests.wire.site import Received, reply
from toolpost import Completed, Failed, Outcome, Paused, PendingAction, Principal, Settings, Toolbox
from toolpost.auth.consents import StartedSignIn
from toolpost.contracts.errors import ToolError
from toolpost.contracts.outcomes import outcome_to_dict

COUNTS = {"people": 200, "passwords": 300, "keys": 200, "clients": 100}
KINDS = {"people": ("access", "refresh"), "passwords": ("password",), "keys": ("API key",), "clients": ("client",)}
NAMES = list(DISGUISES)
REDIRECT = "http://127.0.0.1:9/oauth/callback"
AT_ONCE = 25
STATUSES = (400, 403, 404, 409, 422)  # after many of 500 and above a source is left alone


@dataclass
class EchoService(StrictService):
    """Its tokens are canaries, and it tells them all it knows."""

    minted_so_far: dict[str, int] = field(default_factory=dict[str, int])
    repeated: dict[str, int] = field(default_factory=dict[str, int])

    def minted(self, kind: str) -> str:
        number = self.minted_so_far[kind] = self.minted_so_far.get(kind, -1) + 1
        return canary(kind, number)

    async def _answer(self, received: Received, writer: asyncio.StreamWriter) -> None:
        handle = {"/say": self._echo, "/token-refusal": self._refuse}.get(urlsplit(received.path).path)
        if handle is None:
            await super()._answer(received, writer)
        else:
            writer.write(handle(received))
            await writer.drain()

    def _echo(self, received: Received) -> bytes:
        asked = json.loads(received.body)
        sent = "".join(received.all("authorization")).removeprefix("Bearer ") or "".join(received.all("x-api-key"))
        if not asked.get("password") and not any(sent == grant.access for grant in self.grants) and "sk-" not in sent:
            return reply(401, www_authenticate="Bearer")
        said = self._disguised(asked.get("password") or sent, asked["disguise"])
        if asked["status"] != 200:
            return _json({"title": "No", "detail": f"what was sent is {said} and that is wrong"}, asked["status"])
        padding = "word " * asked.get("padding", 0)
        return _json({"note": f"it is {said} to be exact", "padding": padding})

    def _refuse(self, received: Received) -> bytes:
        """A token endpoint that says which client it does not like."""
        form = dict(parse_qsl(received.body.decode()))
        basic = "".join(received.all("authorization")).removeprefix("Basic ")
        secret = form.get("client_secret") or base64.b64decode(basic).decode().partition(":")[2]
        number = int(form["client_id"]) if "client_id" in form else 0
        said = self._disguised(secret, NAMES[number % len(NAMES)])
        return _json({"error": "invalid_client", "error_description": f"the secret {said} is wrong"}, 401)

    def _disguised(self, secret: str, disguise: str) -> str:
        self.repeated[secret] = self.repeated.get(secret, 0) + 1
        return DISGUISES[disguise](secret)

    def document(self, folder: Path) -> Path:
        fields = {
            "disguise": {"type": "string"},
            "status": {"type": "integer"},
            "padding": {"type": "integer"},
            "password": {"type": "string"},
        }
        schema = {"type": "object", "properties": fields, "required": ["disguise", "status"]}
        body = {"required": True, "content": {"application/json": {"schema": schema}}}
        done = {"200": {"description": "Done."}}
        where = folder / "echo.json"
        document = {
            "openapi": "3.1.0",
            "info": {"title": "Echo", "version": "1"},
            "servers": [{"url": self.url}],
            "paths": {"/say": {"post": {"operationId": "say", "requestBody": body, "responses": done}}},
        }
        where.write_text(json.dumps(document))
        return where


@dataclass
class Heard:
    """What was told, by where, and the canaries that may be in none of it."""

    canaries: list[str]
    places: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    repeated: dict[str, int] = field(default_factory=dict[str, int])

    def note(self, place: str, *told: object) -> None:
        self.places.setdefault(place, []).extend(map(str, told))

    def outcome(self, outcome: Outcome, *, content: bool = True) -> None:
        """All that an agent gets; content that repeats the agent's own argument is the tool's to give."""
        match outcome:
            case Failed(error=error):
                self.note("errors", error, repr(error), error.args, json.dumps(error.to_dict()))
            case Paused(question=question):
                self.note("prompts", question.prompt, json.dumps(outcome_to_dict(outcome)))
            case Completed(artifacts=artifacts) if artifacts:
                self.note("previews", json.dumps(outcome.content), outcome.text, repr(outcome))
            case Completed():
                self.note("results", *([json.dumps(outcome.content), outcome.text, repr(outcome)] if content else []))


class Listener(logging.Handler):
    """Keeps every line that is logged, however unimportant."""

    def __init__(self, heard: Heard) -> None:
        super().__init__(logging.DEBUG)
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self._heard.note("logs", self.format(record))


def fly(folder: Path, role: str) -> Heard:
    """Let the canaries of one role fly through a Toolbox, and listen."""
    heard = Heard(canaries=[canary(kind, number) for kind in KINDS[role] for number in range(COUNTS[role])])
    root, listener = logging.getLogger(), Listener(heard)
    wanted = {root: logging.DEBUG, **{logging.getLogger(name): logging.WARNING for name in ("httpx2", "httpcore2")}}
    before = {logger: logger.level for logger in wanted}
    root.addHandler(listener)
    for logger, level in wanted.items():  # those of the browser itself are not heard
        logger.setLevel(level)
    try:
        asyncio.run(_fly(folder, role, heard))
    finally:
        root.removeHandler(listener)
        for logger, level in before.items():
            logger.setLevel(level)
    return heard


async def _fly(folder: Path, role: str, heard: Heard) -> None:
    async with EchoService() as service, httpx2.AsyncClient(trust_env=False, timeout=60) as browser:
        async with Toolbox(settings=_settings(service, folder, role), on_pending=_fail) as box:
            one = _flights(browser)[role]
            for start in range(0, COUNTS[role], AT_ONCE):
                numbers = range(start, min(COUNTS[role], start + AT_ONCE))
                await asyncio.gather(*(one(box, heard, number) for number in numbers))
            for tenant in ("acme", "local"):
                events = await box.events(user=f"{tenant}:ann", limit=1_000_000)
                heard.note("events", *(json.dumps(event.payload) for event in events))
            heard.note("reports", repr(box.report), *box.problems, repr(box.settings), repr(box))
        heard.repeated = service.repeated


def _settings(service: EchoService, folder: Path, role: str) -> Settings:
    return PatientSettings.model_validate(
        {
            "data_dir": folder / "data",
            "policy": [{"action": "ask", "sources": ["open"]}, {"action": "allow", "tools": ["*"]}],
            "sources": _sources(service, str(service.document(folder)), role),
            "accounts": {"redirect_uri": REDIRECT},
            "limits": {"inline_bytes": 2000},
        }
    )


def _sources(service: EchoService, document: str, role: str) -> list[dict[str, Any]]:
    def source(name: str, kind: str = "none", **auth: str) -> dict[str, Any]:
        return {"name": name, "transport": "http", "connection": document, "auth_type": kind, "auth_config": auth}

    if role == "people":
        return [source("mine", "oauth2_user", issuer=service.url)]
    if role == "passwords":
        return [source("open")]
    if role == "keys":
        return [source(f"key{n}", "api_key", api_key=canary("API key", n)) for n in range(COUNTS[role])]
    urls = {"auth_url": f"{service.url}/authorize", "token_url": f"{service.url}/token-refusal"}
    known = {**urls, "client_auth": "client_secret_post"}
    return [
        source(f"client{n}", "oauth2_user", **known, client_id=str(n), client_secret=canary("client", n))
        for n in range(COUNTS[role])
    ]


def _fail(_: PendingAction) -> None:
    """What fails here is logged."""
    raise RuntimeError("nobody answers the telephone")


def _asked(number: int, status: int, **more: Any) -> dict[str, Any]:
    return {"body": {"disguise": NAMES[number % len(NAMES)], "status": status, **more}}


def _flights(browser: httpx2.AsyncClient) -> dict[str, Callable[[Toolbox, Heard, int], Awaitable[None]]]:
    return {"people": partial(_person, browser), "keys": _key, "passwords": _password, "clients": _client}


async def _person(browser: httpx2.AsyncClient, box: Toolbox, heard: Heard, number: int) -> None:
    """Signs in for a call that waits, and then has tokens that come back in errors, results and previews."""
    user = f"acme:user{number}"
    paused = await box.call("mine.say", _asked(number, 200), user=user)
    assert isinstance(paused, Paused), paused
    heard.outcome(paused)
    begun = await box.accounts.connect("mine", Principal("acme", f"user{number}"))
    assert isinstance(begun, StartedSignIn)
    heard.canaries += (begun.state, paused.question.payload["state"])
    back = (await browser.get(begun.url)).headers["location"]
    await box.accounts.finish(
        dict(parse_qsl(urlsplit(back).query)), provider="mine", person=Principal("acme", f"user{number}")
    )
    for asked in (_asked(number, STATUSES[number % 5]), _asked(number, 200), _asked(number, 200, padding=500)):
        heard.outcome(await box.call("mine.say", asked, user=user))


async def _key(box: Toolbox, heard: Heard, number: int) -> None:
    for asked in (_asked(number, 500), _asked(number + 1, 200), _asked(number, 200, padding=500)):
        heard.outcome(await box.call(f"key{number}.say", asked, user="acme:ann"))


async def _password(box: Toolbox, heard: Heard, number: int) -> None:
    """Waits for a person's approval first, who is told what it is about."""
    for status in (STATUSES[number % 5], 200):
        asked = _asked(number, status, password=canary("password", number))
        paused = await box.call("open.say", asked, user="acme:ann")
        assert isinstance(paused, Paused), paused
        heard.outcome(paused)
        heard.outcome(await box.approve(paused.pending_id, by="acme:boss"), content=False)


async def _client(box: Toolbox, heard: Heard, number: int) -> None:
    """The issuer does not like the client, and says so to whoever comes back."""
    begun = await box.accounts.connect(f"client{number}", Principal("acme", "ann"))
    assert isinstance(begun, StartedSignIn)
    try:
        await box.accounts.finish(
            {"state": begun.state, "code": "any"}, provider=f"client{number}", person=Principal("acme", "ann")
        )
    except ToolError as refused:
        heard.note("errors", refused, repr(refused), json.dumps(refused.to_dict()))


def _json(told: dict[str, Any], status: int = 200) -> bytes:
    return reply(status, json.dumps(told).encode(), content_type="application/json")
