"""Sign-ins of users at services, started in a browser and finished once, in any process that shares the store."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from msgspec import Struct
from msgspec.structs import replace

from toolpost.auth.issuer_registry import PROGRAM, program_key
from toolpost.auth.oauth.authorization import TRANSACTION_TTL_S, SignInContext, begin_authorization
from toolpost.auth.oauth.challenges import AuthChallenge, parse_auth_challenge
from toolpost.auth.oauth.flow import CLIENT_REFUSED, run_flow
from toolpost.auth.oauth.records import pack_record, unpack_record
from toolpost.auth.oauth.sign_in import ConsentRedirect, TokenGrant, scopes_to_keep, sign_in
from toolpost.auth.pending_sign_ins import EncryptedSignIns, PendingSignIn, digest, find_sign_in, redeem
from toolpost.auth.secret import revealed
from toolpost.auth.services import Service, plan_secrets
from toolpost.contracts.errors import ConfigError, ToolAuthError, ToolError
from toolpost.contracts.expiring_secret import expiring
from toolpost.contracts.principal import Principal
from toolpost.contracts.records import represent
from toolpost.wire.messages import Headers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.auth.accounts import Accounts
    from toolpost.auth.oauth.sign_in import SignInPlan

INVITATION_TTL_S = 7 * 86_400.0
NO_CHALLENGE = AuthChallenge()
_PURGE_S = 60.0


class ConsentRequest(Struct, frozen=True, kw_only=True):
    """The user who must consent, the tool, and the challenge of the rejected request."""

    person: Principal
    challenge: AuthChallenge = NO_CHALLENGE
    trace_id: str = ""
    tool: str = ""


class StartedSignIn(NamedTuple):
    """The URL for the browser; URL and `state` are secrets of the user who signs in."""

    url: str
    state: str
    scopes: tuple[str, ...]

    def __repr__(self) -> str:
        return "StartedSignIn()"


class ConnectedAccount(NamedTuple):
    """The account that a sign-in connected."""

    person: Principal
    provider: str
    trace_id: str = ""


class Invitation(Struct, frozen=True, kw_only=True):
    """A link that starts a sign-in when a browser opens it; valid as long as the consent question."""

    provider: str
    person: Principal
    expires: float
    challenge: AuthChallenge = NO_CHALLENGE
    trace_id: str = ""
    tool: str = ""
    secret: str = ""

    def __repr__(self) -> str:
        return represent(self, without=("secret",))


class Consents:
    """Start and finish sign-ins.

    Issuers redirect browsers to `redirect_uri` followed by the name of the service. With a `start_url`, users open an
    invitation there first, which binds the sign-in to their browser. `refusal` returns the last rejection that a source
    of a service received.
    """

    def __init__(
        self,
        accounts: Accounts,
        *,
        redirect_uri: str = "",
        start_url: str = "",
        ttl_s: float = TRANSACTION_TTL_S,
        refusal: Callable[[str], ToolError | None] = lambda _provider: None,
    ) -> None:
        self.redirect_uri = redirect_uri
        self.start_url = start_url
        self._accounts = accounts
        self._rows = accounts.rows
        self._ttl_s = ttl_s
        self._services: dict[str, Service] = {}
        self._purge_at = 0.0
        self._sign_ins = EncryptedSignIns(accounts.rows, kind="transaction")
        self._exchanges: dict[asyncio.Task[None], Principal] = {}
        self._refusal = refusal

    def register(self, service: Service) -> None:
        """Register a service that users can sign in to.

        Sources may share a service, unless its tokens are valid for a single address: they would be sent to another.
        """
        other = self._services.get(service.provider)
        if other is not None:
            _refuse_other_service(service, other)
        self._services[service.provider] = service
        self._accounts.learn(plan_secrets(service.plan))

    def effective_challenge(self, service: Service, challenge: AuthChallenge = NO_CHALLENGE) -> AuthChallenge:
        """Return the challenge to answer: the given one, else the last rejection that a source of the service received.

        The operator's scopes replace those of the challenge, unless they are insufficient for the server.
        """
        refused = self._refusal(service.provider) if challenge == NO_CHALLENGE else None
        if refused is not None:
            challenge = challenge_of(refused)
        mine = service.plan.scopes
        return replace(challenge, scopes=mine) if mine and not challenge.wants_more_scopes else challenge

    @property
    def services(self) -> Mapping[str, Service]:
        """All registered services by name."""
        return self._services

    def service(self, provider: str) -> Service:
        """Return a registered service; raise ConfigError with the known names."""
        service = self._services.get(provider)
        if service is None:
            names = ", ".join(sorted(self._services)) or "none"
            raise ConfigError(f"unknown service {provider!r}; services with accounts: {names}")
        return service

    async def begin(
        self,
        service: Service,
        request: ConsentRequest,
        *,
        redirect_uri: str = "",
        browser: str = "",
        invitation: str = "",
    ) -> StartedSignIn | ConnectedAccount:
        """Start a sign-in; if no user is needed, finish it immediately.

        Only the browser with the binding `browser` can finish the sign-in, which then consumes `invitation`.
        """
        uri = callback_url(redirect_uri or self.redirect_uri, service.provider)
        if not uri and service.attended:
            raise ConfigError(
                f"users cannot sign in to {service.display_name!r}: there is nowhere to redirect their browsers; "
                "set accounts.public_url, or pass a redirect_uri, as `toolpost accounts connect` does"
            )
        step = await self._step(service, request, _caller(service, request, uri, browser))
        if isinstance(step, TokenGrant):
            await self._accounts.keep(service, request.person, step.tokens, server=step.server, client=step.client)
            return ConnectedAccount(request.person, service.provider, request.trace_id)
        transaction = replace(step.transaction, expires=step.transaction.created + self._ttl_s)
        await self._purge()
        await self._accounts.issuers.keep_client(step.client)
        await self._sign_ins.put(
            PendingSignIn(transaction=transaction, invitation=digest(invitation) if invitation else "")
        )
        self._accounts.learn(revealed(one for one in (step.client.secret, step.client.private_key) if one))
        passed = {transaction.state} | revealed([transaction.verifier] if transaction.verifier else [])
        self._learn(passed, until=transaction.expires)
        return StartedSignIn(step.url, transaction.state, transaction.scopes)

    async def finish(
        self, parameters: Mapping[str, str], *, provider: str, person: Principal, browser: str = ""
    ) -> ConnectedAccount:
        """Verify a callback, exchange its code and store the tokens; raise ToolAuthError if it is invalid.

        `provider` is the service of the redirect address, and `person` the logged-in user: sign-ins of other users are
        rejected. Only a callback that is valid in every respect consumes the sign-in.
        """
        pending = await find_sign_in(self._sign_ins, parameters.get("state", ""))
        caller = pending.transaction.caller
        owner = Principal(caller.tenant, caller.user)
        if person != owner:  # following another user's link would connect this user's account to that user
            raise ToolAuthError("The sign-in is for another user than the one who is logged in.", code="oauth_person")
        if caller.provider != provider:
            raise ToolAuthError(
                f"The callback is from {provider!r}, but the sign-in was started at {caller.provider!r}. It is not "
                "used, because another server may have intercepted the sign-in.",
                code="oauth_issuer_mismatch",
            )
        # A code is valid once, so a started exchange is completed even if the browser disconnects.
        task = asyncio.ensure_future(self._exchange(pending, parameters, browser))
        self._exchanges[task] = owner
        task.add_done_callback(self._end_exchange)
        await asyncio.shield(task)
        return ConnectedAccount(owner, caller.provider, caller.trace_id)

    async def _exchange(self, pending: PendingSignIn, parameters: Mapping[str, str], browser: str) -> None:
        """Exchange the code of a callback, store the tokens and remove the invitation."""
        transaction, accounts = pending.transaction, self._accounts
        caller = transaction.caller
        service = self.service(caller.provider)
        client = accounts.client_for(service)
        try:
            tokens = await redeem(
                self._sign_ins, pending, parameters, client=client, clock=accounts.clock, browser=browser
            )
        except ToolAuthError as refused:
            if refused.error_code == CLIENT_REFUSED:
                await accounts.issuers.forget_client(transaction.client)
            raise
        person = Principal(caller.tenant, caller.user)
        await accounts.keep(service, person, tokens, server=transaction.server, client=transaction.client)
        if pending.invitation:
            await self._rows.remove(program_key("ticket", pending.invitation))

    def _end_exchange(self, task: asyncio.Task[None]) -> None:
        del self._exchanges[task]
        if not task.cancelled():
            task.exception()  # retrieved here, because the browser may be gone

    async def invite(self, service: Service, request: ConsentRequest) -> str:
        """Create an invitation and return its URL."""
        secret, expires = secrets.token_urlsafe(32), self._accounts.clock() + INVITATION_TTL_S
        self._learn({secret}, until=expires)
        invitation = Invitation(
            provider=service.provider,
            person=request.person,
            expires=expires,
            challenge=request.challenge,
            trace_id=request.trace_id,
            tool=request.tool,
        )
        await self._purge()
        await self._rows.put(program_key("ticket", digest(secret)), pack_record(invitation))
        return f"{self.start_url}?ticket={secret}"

    async def invitation(self, secret: str) -> Invitation:
        """Return the invitation of a secret; raise ToolAuthError if it is unknown or expired."""
        row = await self._rows.get(program_key("ticket", digest(secret)))
        if row is None or not row.body or float(row.body["expires"]) <= self._accounts.clock():
            message = "This link was used or has expired. If the account is not connected, call the tool again."
            raise ToolAuthError(message, code="oauth_expired")
        return unpack_record(Invitation, {**row.body, "secret": secret})

    async def start(self, invitation: Invitation, *, browser: str) -> StartedSignIn | ConnectedAccount:
        """Start the sign-in of an invitation in the browser that opened it."""
        request = ConsentRequest(person=invitation.person, challenge=invitation.challenge, trace_id=invitation.trace_id)
        return await self.begin(
            self.service(invitation.provider), request, browser=browser, invitation=invitation.secret
        )

    async def forget(self, person: Principal) -> None:
        """Delete the sign-ins and invitations of a user, after the running code exchanges of that user."""
        await self._sign_ins.forget(person)
        await self._drop_invitations(lambda body: bool(body) and Principal(*body["person"]) == person)
        if mine := [task for task, owner in self._exchanges.items() if owner == person]:
            await asyncio.wait(mine)  # each has a deadline

    async def _step(
        self, service: Service, request: ConsentRequest, caller: SignInContext
    ) -> TokenGrant | ConsentRedirect:
        challenge = self.effective_challenge(service, request.challenge)
        account = await self._accounts.held(service, request.person)
        tokens = None if account is None else account.tokens
        plan = with_redirect_uri(service.current_plan(), caller.redirect_uri)
        plan = await self._accounts.issuers.bind_client(service.provider, plan)
        self._learn(plan_secrets(plan))
        if plan.server is not None and plan.registered is not None and plan.grant == "code":
            scopes = (*scopes_to_keep(challenge, tokens), *(challenge.scopes or ()))
            started = begin_authorization(
                plan.server,
                plan.registered,
                caller,
                resource=service.resource,
                scopes=tuple(dict.fromkeys(scopes)),
                ttl_s=self._ttl_s,
                clock=self._accounts.clock,
            )
            return ConsentRedirect(url=started.url, transaction=started.transaction, client=plan.registered)
        clients = await self._accounts.issuers.clients(plan.profile.redirect_uris)
        flow = sign_in(plan, challenge, caller, tokens=tokens, clients=clients, clock=self._accounts.clock)
        return await run_flow(flow, self._accounts.client_for(service))

    async def _purge(self) -> None:
        """Delete expired sign-ins and invitations, at most once a minute, because this reads all rows."""
        now = self._accounts.clock()
        if self._purge_at - _PURGE_S <= now < self._purge_at:
            return
        self._purge_at = now + _PURGE_S
        await self._sign_ins.purge(now)
        await self._drop_invitations(lambda body: not body or float(body["expires"]) <= now)

    async def _drop_invitations(self, over: Callable[[Mapping[str, Any]], bool]) -> None:
        for row in await self._rows.list(tenant=PROGRAM, user="ticket"):
            if over(row.body):
                await self._rows.remove(row.key, version=row.version)

    def _learn(self, passed: set[str], *, until: float | None = None) -> None:
        self._accounts.learn(expiring(passed, until=until, now=self._accounts.clock()))


def callback_url(base: str, provider: str) -> str:
    """Return the callback URL of a service; empty without a base.

    Each service has a separate one (RFC 9700 section 4.4.2.2), because not all issuers name themselves in the callback:
    an issuer that forwards the user to the sign-in of another one would otherwise receive the other's code.
    """
    if not base:
        return ""
    parts = urlsplit(base)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{quote(provider, safe='')}"))


def _refuse_other_service(service: Service, other: Service) -> None:
    if _issued_by(other) != _issued_by(service):
        raise ConfigError(
            f"two sources with the accounts of {service.provider!r} differ in issuer, client or grant: write the same "
            "into the auth_config of both, or give each a separate provider"
        )
    if _audience_of(other) != _audience_of(service) and not (service.plan.server and other.plan.server):
        raise ConfigError(
            f"two sources with the accounts of {service.provider!r} have different addresses, but tokens are valid for "
            "one: write the same auth_config.resource into both, or give each a separate provider"
        )


def _audience_of(service: Service) -> tuple[str, str | None]:
    return service.plan.url, service.plan.resource


def _issued_by(service: Service) -> tuple[object, ...]:
    plan, server, own = service.plan, service.plan.server, service.plan.registered
    issuer = (plan.issuer, None if server is None else (server.issuer, server.token_endpoint))
    return (*issuer, None if own is None else own.id, service.attended, type(plan.grant))


def challenge_of(refused: ToolError) -> AuthChallenge:
    """Return the challenge of a rejection."""
    headers = Headers(tuple(("WWW-Authenticate", challenge) for challenge in refused.challenges))
    return parse_auth_challenge(refused.status_code or NO_CHALLENGE.status, headers)


def with_redirect_uri(plan: SignInPlan, redirect_uri: str) -> SignInPlan:
    """Return the plan with this redirect URI as the only one of its client."""
    if not redirect_uri or redirect_uri in plan.profile.redirect_uris:
        return plan
    return replace(plan, profile=replace(plan.profile, redirect_uris=(redirect_uri,)))


def _caller(service: Service, request: ConsentRequest, redirect_uri: str, browser: str) -> SignInContext:
    return SignInContext(
        redirect_uri=redirect_uri,
        tenant=request.person.tenant,
        user=request.person.user,
        browser=browser,
        provider=service.provider,
        trace_id=request.trace_id,
    )
