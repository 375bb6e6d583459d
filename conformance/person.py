"""The person who signs in: says yes in a browser that is nothing but a follower of redirects."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

import httpx2

from toolpost import Outcome, Toolbox, ToolError
from toolpost.auth.consents import StartedSignIn
from toolpost.auth.oauth.authorization import callback_parameters
from toolpost.contracts.outcomes import outcome_to_dict
from toolpost.contracts.principal import Principal
from toolpost.contracts.sources import PersonalSource

USER = "conformance:driver"
SOURCE = "server"
REDIRECT_URI = "http://127.0.0.1:7777/callback"  # nothing listens there: the browser stops short of it
DOCUMENT_URL = "https://conformance-test.local/client-metadata.json"  # the suite's own, which it does not fetch
PATIENCE_S = 15.0
MOST_SIGN_INS = 3
MOST_REDIRECTS = 5


def account_of(scenario: str, context: Mapping[str, Any]) -> dict[str, Any]:
    """What an operator would write for a scenario, with what the suite tells of its clients."""
    given = {"legacy": True, **_renamed(context, _CLIENT)}
    if scenario.startswith("auth/client-credentials"):
        return {**given, "grant": "client_credentials"}
    if "valid_jwt" in context:
        return {**given, "grant": "jwt_bearer", "assertion": context["valid_jwt"]}
    if "idp_id_token" in context:
        return {**given, "grant": "enterprise", "identity_provider": _renamed(context, _IDENTITY_PROVIDER)}
    return given


_CLIENT = {
    "client_id": "client_id",
    "client_secret": "client_secret",
    "private_key_pem": "private_key",
    "signing_algorithm": "algorithm",
}
_IDENTITY_PROVIDER = {
    "idp_token_endpoint": "token_url",
    "idp_client_id": "client_id",
    "idp_id_token": "id_token",
}


def _renamed(context: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {ours: context[theirs] for theirs, ours in names.items() if theirs in context}


class Person:
    """Somebody with an account, in front of an open Toolbox."""

    def __init__(self, box: Toolbox) -> None:
        self._box = box

    async def connect(self) -> None:
        """Connect the account until the tools are listed; a server that wants more than it first said gets it."""
        for _ in range(MOST_SIGN_INS):
            heard = self._refusal()
            await self._sign_in()
            if await self._is_let_in(heard):
                return
            _say(f"not let in: {self._refusal()}")
        raise SystemExit(f"{MOST_SIGN_INS} times signed in, and still not let in")

    def _refusal(self) -> ToolError | None:
        source = self._box.sources.index.source(SOURCE)
        return source.refusal if isinstance(source, PersonalSource) else None

    async def _is_let_in(self, heard: ToolError | None) -> bool:
        """Whether the tools were listed, rather than the listing refused."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._box.registry.specs() and self._refusal() is heard:  # noqa: ASYNC110 - either may come
                await asyncio.sleep(0.01)
        return bool(self._box.registry.specs())

    async def _sign_in(self) -> None:
        begun = await self._box.accounts.connect(SOURCE, Principal.parse(USER))
        if isinstance(begun, StartedSignIn):
            await self._box.accounts.finish(await _visit(begun.url), provider=SOURCE, person=Principal.parse(USER))
        else:
            await self._box.accounts.on_connected(begun)

    async def settle(self, outcome: Outcome) -> None:
        """Consent to what a call asks for until it has ended; one that failed fails the scenario."""
        told: Mapping[str, Any] = outcome_to_dict(outcome)
        for _ in range(MOST_SIGN_INS):
            if told["status"] != "paused":
                break
            told = await self._consent(told["pending"]["id"])
        _say(f"{told['tool_name']}: {told}"[:300])
        if told["status"] != "completed":
            raise SystemExit(f"{told['tool_name']} did not complete: {told}")

    async def _consent(self, pending_id: str) -> Mapping[str, Any]:
        """Sign in as a question asks; the call goes on by itself, and this is what came of it."""
        desk = self._box.pending
        question = (await desk.get(pending_id, by=USER)).question
        _say(f"asked: {question.prompt}")
        brought = await _visit(str(question.payload["auth_url"]))
        await self._box.accounts.finish(brought, provider=SOURCE, person=Principal.parse(USER))
        async with asyncio.timeout(PATIENCE_S):
            while (ended := (await desk.get(pending_id, by=USER)).outcome) is None:  # noqa: ASYNC110 - it is kept, not told
                await asyncio.sleep(0.01)
        return ended


async def _visit(url: str) -> dict[str, str]:
    """What a browser brings back from where a URL leads."""
    async with httpx2.AsyncClient(follow_redirects=False, trust_env=False) as web:
        for _ in range(MOST_REDIRECTS):
            page = await web.get(url)
            url = page.headers.get("location", "")
            if url.startswith(REDIRECT_URI):
                return callback_parameters(url)
    raise SystemExit("the sign-in led nowhere")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
