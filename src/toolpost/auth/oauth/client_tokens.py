"""Access tokens of the client-credentials grant (RFC 6749 section 4.4), cached per grant for the calls of a source."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

from toolpost.auth.oauth.client import Client
from toolpost.auth.oauth.flow import Clock, Flow, FlowResponse, json_object, parse_problem, presentable, run_flow
from toolpost.auth.oauth.metadata import ServerMetadata
from toolpost.auth.oauth.tokens import parse_access_token, parse_expiry, post_form, usable_until
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ToolAuthError, ToolConnectionError, ToolNodeError, ToolTimeoutError, from_status
from toolpost.contracts.records import represent
from toolpost.wire.messages import Pairs
from toolpost.wire.retry_after import parse_retry_after

if TYPE_CHECKING:
    from toolpost.wire.client import HttpClient


class ClientGrant(Struct, frozen=True, kw_only=True):
    """A client and the token that it requests; `label` names the token endpoint in errors.

    `method` says how the client authenticates. `extra` are further form fields, such as `audience`.
    """

    label: str
    token_url: str
    client_id: str
    client_secret: str
    scope: str = ""
    extra: Pairs = ()
    method: Literal["basic", "post"] = "basic"

    def __repr__(self) -> str:
        return represent(self, without=("client_secret",))

    @property
    def subject(self) -> str:
        """The token endpoint, as errors name it."""
        return f"The token endpoint of {self.label!r}"


class ClientToken(NamedTuple):
    """An access token with its authentication scheme; `usable_until` is infinite if the server names no expiry."""

    value: str
    scheme: str
    usable_until: float

    def __repr__(self) -> str:
        return f"ClientToken(scheme={self.scheme!r})"


class ClientTokens:
    """Token cache of one source, by grant; concurrent callers share one request."""

    def __init__(self, client: HttpClient, *, clock: Clock = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._tokens: dict[ClientGrant, ClientToken] = {}
        self._requests: dict[ClientGrant, asyncio.Task[ClientToken]] = {}

    async def token(self, grant: ClientGrant) -> ClientToken:
        """Return a valid token; callers that wait for the same request share its failure."""
        token = self._tokens.get(grant)
        if token is not None and token.usable_until > self._clock():
            return token
        request = self._requests.get(grant)
        if request is None:
            request = self._requests[grant] = asyncio.create_task(self._fetch(grant))
            request.add_done_callback(lambda done: self._store_token(grant, done))
        return await asyncio.shield(request)  # a cancelled caller does not cancel it for the others

    def forget(self, value: str) -> None:
        """Evict a rejected token; a newer token of the same grant stays."""
        self._tokens = {grant: token for grant, token in self._tokens.items() if token.value != value}

    async def close(self) -> None:
        """Cancel running requests."""
        requests = list(self._requests.values())
        for task in requests:
            task.cancel()
        for task in requests:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task

    def _store_token(self, grant: ClientGrant, done: asyncio.Task[ClientToken]) -> None:
        self._requests.pop(grant, None)
        if not done.cancelled() and done.exception() is None:
            self._tokens[grant] = done.result()

    async def _fetch(self, grant: ClientGrant) -> ClientToken:
        try:
            return await run_flow(request_client_token(grant, clock=self._clock), self._client)
        except (ToolConnectionError, ToolTimeoutError) as failed:  # nothing of the call itself was sent
            message = f"{grant.subject} returned no token: {failed}"
            raise ToolConnectionError(message, sent=False, category=failed.category, cause=failed) from failed


def request_client_token(grant: ClientGrant, *, clock: Clock = time.monotonic) -> Flow[ClientToken]:
    """Request a token for the client itself; raise ToolAuthError if the endpoint returns none that can be sent."""
    server = ServerMetadata(issuer=grant.token_url, token_endpoint=grant.token_url)
    client = Client(
        id=grant.client_id,
        secret=Secret(grant.client_secret),
        auth_method="client_secret_post" if grant.method == "post" else "client_secret_basic",
    )
    form: Pairs = (("grant_type", "client_credentials"), *grant.extra)
    began = clock()
    reply = yield from post_form(
        grant.token_url, server, client, (*form, ("scope", grant.scope)) if grant.scope else form, clock=clock
    )
    if reply.status != 200:
        raise _refusal(grant, reply)
    body = json_object(reply) or {}
    token = parse_access_token(body, grant.subject).reveal()
    # Unlike a user's token, this one is sent with any scheme that its server names.
    scheme = str(body.get("token_type") or "Bearer")
    expires = parse_expiry(body.get("expires_in") or None, began)
    return ClientToken(
        token,
        "Bearer" if scheme.lower() == "bearer" or not scheme.isalnum() else scheme,
        float("inf") if expires is None else usable_until(expires, began),
    )


def _refusal(grant: ClientGrant, reply: FlowResponse) -> ToolNodeError:
    secrets = [grant.client_secret]
    problem = parse_problem(reply, secrets=secrets)
    words = dict.fromkeys(word for word in (problem.code, problem.description) if word)
    reason = ": ".join(words) or presentable(reply.body.decode("utf-8", "replace"), secrets) or "no reason given"
    message = f"{grant.subject} refused: status {reply.status}, {reason}. Check its client_id and client_secret."
    if 400 <= reply.status < 500 and reply.status != 429:
        return ToolAuthError(message, status_code=401)
    error = from_status(reply.status, message)
    error.retry_after_s = parse_retry_after(reply.headers)
    return error
