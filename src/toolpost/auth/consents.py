"""Sign-ins of people to services: started in a browser or by device code, and finished once, in any process."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from toolpost.auth.code_exchange import PendingSignIn, SealedSignIns, digest, find_sign_in, redeem
from toolpost.auth.issuer_registry import PROGRAM, IssuerBinding, program_key
from toolpost.auth.oauth.authorization import TRANSACTION_TTL_S, SignInContext, begin_authorization, select_scopes
from toolpost.auth.oauth.client import obtain_client
from toolpost.auth.oauth.flow import CLIENT_REFUSED, run_flow
from toolpost.auth.oauth.grants import await_device, begin_device
from toolpost.auth.oauth.sign_in import (
    AuthChallenge,
    ConsentRedirect,
    TokenGrant,
    discover,
    parse_auth_challenge,
    scopes_to_keep,
    sign_in,
)
from toolpost.auth.secret import revealed
from toolpost.auth.services import plan_secrets
from toolpost.contracts.errors import ConfigError, ToolAuthError
from toolpost.contracts.passing import passing
from toolpost.contracts.principal import Principal
from toolpost.wire.requests import Headers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.auth.accounts import Accounts
    from toolpost.auth.oauth.client import Client
    from toolpost.auth.oauth.flow import Clock, Flow
    from toolpost.auth.oauth.grants import DeviceGrant
    from toolpost.auth.oauth.sign_in import SignInPlan
    from toolpost.auth.services import Service
    from toolpost.contracts.errors import ToolError

INVITATION_TTL_S = 7 * 86_400.0
NO_CHALLENGE = AuthChallenge()
_PURGE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentRequest:
    """Whose consent is wanted, and what a refused request said would help."""

    person: Principal
    challenge: AuthChallenge = NO_CHALLENGE
    trace_id: str = ""
    tool: str = ""


class StartedSignIn(NamedTuple):
    """Where to send a browser; `state` and the URL are secrets of the one who signs in."""

    url: str
    state: str
    scopes: tuple[str, ...]

    def __repr__(self) -> str:
        return "StartedSignIn()"


class ConnectedAccount(NamedTuple):
    """Who has connected which account."""

    person: Principal
    provider: str
    trace_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """An invitation to sign in that lasts as long as the question; the sign-in itself begins when a browser comes."""

    provider: str
    person: Principal
    expires: float
    challenge: AuthChallenge = NO_CHALLENGE
    trace_id: str = ""
    tool: str = ""
    secret: str = field(default="", repr=False)


class Consents:
    """Begins and finishes sign-ins.

    Issuers send browsers back to `redirect_uri`, with the name of the service behind it. With a `start_url` people are
    invited there first, where the sign-in is bound to their browser.
    """

    def __init__(
        self, accounts: Accounts, *, redirect_uri: str = "", start_url: str = "", ttl_s: float = TRANSACTION_TTL_S
    ) -> None:
        self.redirect_uri = redirect_uri
        self.start_url = start_url
        self._accounts = accounts
        self._rows = accounts.rows
        self._ttl_s = ttl_s
        self._services: dict[str, Service] = {}
        self._purge_at = 0.0
        self._sign_ins = SealedSignIns(accounts.rows, kind="transaction")
        self._exchanges: dict[asyncio.Task[None], Principal] = {}
        self.refusal: Callable[[str], ToolError | None] = lambda _: None

    def offer(self, service: Service) -> None:
        """Take in a service that people can sign in to.

        Sources may share one, but not where tokens are for one address only: these would travel to another.
        """
        other = self._services.get(service.provider)
        if other is not None:
            _refuse_strangers(service, other)
        self._services[service.provider] = service
        self._accounts.learn(plan_secrets(service.plan))

    def settled(self, service: Service, challenge: AuthChallenge = NO_CHALLENGE) -> AuthChallenge:
        """What to ask for: without a challenge, what the sources of a service heard last when they were refused.

        The scopes that an operator wrote are asked for in place of those that a stranger is told; only a server that
        does not find them enough gets its own.
        """
        refused = self.refusal(service.provider) if challenge == NO_CHALLENGE else None
        if refused is not None:
            challenge = challenge_of(refused)
        mine = service.plan.scopes
        return replace(challenge, scopes=mine) if mine and not challenge.wants_more_scopes else challenge

    @property
    def services(self) -> Mapping[str, Service]:
        """All that were taken in, by name."""
        return self._services

    def service(self, provider: str) -> Service:
        """One of them; ConfigError names the others."""
        found = self._services.get(provider)
        if found is None:
            known = ", ".join(sorted(self._services)) or "none"
            raise ConfigError(f"there is no service {provider!r} with accounts here; there are: {known}")
        return found

    async def begin(
        self,
        service: Service,
        wish: ConsentRequest,
        *,
        redirect_uri: str = "",
        browser: str = "",
        ticket: str = "",
    ) -> StartedSignIn | ConnectedAccount:
        """Begin a sign-in; where no person is needed it is finished at once.

        `browser` is the binding of the browser that begins, and the only one that can finish; that uses up `ticket`.
        """
        uri = callback_url(redirect_uri or self.redirect_uri, service.provider)
        if not uri and service.attended:
            raise ConfigError(
                f"people cannot sign in to {service.display_name!r}: nothing says where their browsers come back to; "
                "write accounts.public_url, or connect with: toolpost accounts connect"
            )
        step = await self._step(service, wish, _caller(service, wish, uri, browser))
        if isinstance(step, TokenGrant):
            resource = step.tokens.resource or ""
            binding = IssuerBinding(
                provider=service.provider, server=step.server, client=step.client, resource=resource
            )
            await self._accounts.keep(service, wish.person, binding=binding, tokens=step.tokens)
            return ConnectedAccount(wish.person, service.provider, wish.trace_id)
        transaction = replace(step.transaction, expires=step.transaction.created + self._ttl_s)
        await self._purge()
        await self._accounts.issuers.keep_client(step.client)
        await self._sign_ins.put(PendingSignIn(transaction=transaction, invitation=digest(ticket) if ticket else ""))
        self._accounts.learn(_secrets_of(step.client))
        passed = {transaction.state} | revealed([transaction.verifier] if transaction.verifier else [])
        self._learn(passed, until=transaction.expires)
        return StartedSignIn(step.url, transaction.state, transaction.scopes)

    async def finish(
        self, parameters: Mapping[str, str], *, provider: str, person: Principal, browser: str = ""
    ) -> ConnectedAccount:
        """Take what a browser brought back; a ToolAuthError says what is wrong with it.

        `provider` is the service to whose address the browser came back, and `person` who is logged in there: nobody
        else's sign-in is finished. Only a callback that is right in everything uses the sign-in up, so that nobody can
        spoil another's. It is then carried out whether or not the browser waits for it: a code serves once.
        """
        pending = await find_sign_in(self._sign_ins, parameters.get("state", ""))
        caller = pending.transaction.caller
        owner = Principal(caller.tenant, caller.user)
        if person != owner:  # who follows somebody else's link would lend them their account
            raise ToolAuthError("The sign-in is for another user than the one who is logged in.", code="oauth_person")
        _refuse_mix_up(caller.provider, provider)
        # A code serves once, so an exchange that started is completed whether or not the browser waits.
        task = asyncio.ensure_future(self._exchange(pending, parameters, browser))
        self._exchanges[task] = owner
        task.add_done_callback(self._exchanged)
        await asyncio.shield(task)
        return ConnectedAccount(owner, caller.provider, caller.trace_id)

    async def _exchange(self, pending: PendingSignIn, parameters: Mapping[str, str], browser: str) -> None:
        """Exchange the code of a callback and store the tokens; the invitation that led there is used up."""
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
        binding = IssuerBinding(
            provider=service.provider,
            server=transaction.server,
            client=transaction.client,
            resource=transaction.resource or "",
        )
        await accounts.keep(service, Principal(caller.tenant, caller.user), binding=binding, tokens=tokens)
        if pending.invitation:
            await self._rows.remove(program_key("ticket", pending.invitation))

    def _exchanged(self, task: asyncio.Task[None]) -> None:
        del self._exchanges[task]
        if not task.cancelled():
            task.exception()  # The browser may be gone; then nobody else looks at it.

    async def invite(self, service: Service, wish: ConsentRequest) -> str:
        """A URL at which a browser can begin the sign-in, for as long as a question lasts."""
        secret, expires = secrets.token_urlsafe(32), self._accounts.clock() + INVITATION_TTL_S
        self._learn({secret}, until=expires)
        body = {
            "provider": service.provider,
            "person": list(wish.person),
            "expires": expires,
            "challenge": asdict(wish.challenge),
            "trace_id": wish.trace_id,
            "tool": wish.tool,
        }
        await self._purge()
        await self._rows.put(program_key("ticket", digest(secret)), body)
        return f"{self.start_url}?ticket={secret}"

    async def ticket(self, secret: str) -> Invitation:
        """What an invitation is for; ToolAuthError when it is none, or too old."""
        row = await self._rows.get(program_key("ticket", digest(secret)))
        if row is None or not row.body or float(row.body["expires"]) <= self._accounts.clock():
            message = "This link was used, or is too old. If the account is not connected, ask for the tool again."
            raise ToolAuthError(message, code="oauth_expired")
        return _ticket(row.body, secret)

    async def start(self, ticket: Invitation, *, browser: str) -> StartedSignIn | ConnectedAccount:
        """Begin the sign-in of an invitation in the browser that came."""
        wish = ConsentRequest(person=ticket.person, challenge=ticket.challenge, trace_id=ticket.trace_id)
        return await self.begin(self.service(ticket.provider), wish, browser=browser, ticket=ticket.secret)

    async def forget(self, person: Principal) -> None:
        """Give up the sign-ins and invitations of a person; one whose code is being redeemed here is finished first."""
        await self._sign_ins.forget(person)
        await self._drop_invitations(lambda body: bool(body) and Principal(*body["person"]) == person)
        if mine := [task for task, whose in self._exchanges.items() if whose == person]:
            await asyncio.wait(mine)  # each has a deadline

    async def _step(
        self, service: Service, wish: ConsentRequest, caller: SignInContext
    ) -> TokenGrant | ConsentRedirect:
        challenge = self.settled(service, wish.challenge)
        held = await self._accounts.held(service, wish.person)
        tokens = None if held is None else held.tokens
        plan = with_redirect_uri(service.current_plan(), caller.redirect_uri)
        plan = await self._accounts.issuers.tied(service.provider, plan)
        self._learn(plan_secrets(plan))
        if plan.server is not None and plan.registered is not None and plan.grant == "code":
            asked = (*scopes_to_keep(challenge, tokens), *(challenge.scopes or ()))
            request = begin_authorization(
                plan.server,
                plan.registered,
                caller,
                resource=service.resource,
                scopes=tuple(dict.fromkeys(asked)),
                ttl_s=self._ttl_s,
                clock=self._accounts.clock,
            )
            return ConsentRedirect(url=request.url, transaction=request.transaction, client=plan.registered)
        known = await self._accounts.issuers.clients(plan.profile.redirect_uris)
        flow = sign_in(plan, challenge, caller, tokens=tokens, clients=known, clock=self._accounts.clock)
        return await run_flow(flow, self._accounts.client_for(service))

    async def _purge(self) -> None:
        """Forget what nobody came back for; now and then, because all are looked at."""
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
        """Let whoever redacts know what is a secret for a while."""
        self._accounts.learn(passing(passed, until=until, now=self._accounts.clock()))


def callback_url(base: str, provider: str) -> str:
    """Where one service sends browsers back to; nowhere without a base.

    Each has an address of its own (RFC 9700 section 4.4.2.2), because not all issuers say in the answer who they are:
    one that sends the person on to another's sign-in would otherwise be handed the code that comes of it.
    """
    if not base:
        return ""
    parts = urlsplit(base)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{quote(provider, safe='')}"))


def _refuse_mix_up(begun_at: str, came_from: str) -> None:
    if begun_at == came_from:
        return
    raise ToolAuthError(
        f"The answer came back from {came_from!r}, but the sign-in was begun at {begun_at!r}. It is not used: "
        "another server may have put itself in between.",
        code="oauth_issuer_mismatch",
    )


def _refuse_strangers(service: Service, other: Service) -> None:
    """Two sources of one name must be of one service."""
    if _issued_by(other) != _issued_by(service):
        raise ConfigError(
            f"two sources with the accounts of {service.provider!r} differ in issuer, client or grant: write the same "
            "into the auth_config of both, or give each a provider of its own"
        )
    if _meant_for(other) != _meant_for(service) and not (service.plan.server and other.plan.server):
        raise ConfigError(
            f"two sources with the accounts of {service.provider!r} have different addresses, and tokens are for "
            "one: write the same auth_config.resource into both, or give each a provider of its own"
        )


def _meant_for(service: Service) -> tuple[str, str | None]:
    """Where the tokens of a service go, and the name that an operator gave to that."""
    return service.plan.url, service.plan.resource


def _issued_by(service: Service) -> tuple[object, ...]:
    """Whose tokens a service has, for whom, and how they are got."""
    plan, server, own = service.plan, service.plan.server, service.plan.registered
    issuer = (plan.issuer, None if server is None else (server.issuer, server.token_endpoint))
    return (*issuer, None if own is None else own.id, service.attended, type(plan.grant))


def challenge_of(refused: ToolError) -> AuthChallenge:
    """What a refusal says would help."""
    headers = Headers(tuple(("WWW-Authenticate", challenge) for challenge in refused.challenges))
    return parse_auth_challenge(refused.status_code or NO_CHALLENGE.status, headers)


def with_redirect_uri(plan: SignInPlan, redirect_uri: str) -> SignInPlan:
    """The plan of a client whose browsers come back to this address, whatever others use."""
    if not redirect_uri or redirect_uri in plan.profile.redirect_uris:
        return plan
    return replace(plan, profile=replace(plan.profile, redirect_uris=(redirect_uri,)))


def _secrets_of(client: Client) -> set[str]:
    return revealed(secret for secret in (client.secret, client.private_key) if secret)


def _caller(service: Service, wish: ConsentRequest, redirect_uri: str, browser: str) -> SignInContext:
    return SignInContext(
        redirect_uri=redirect_uri,
        tenant=wish.person.tenant,
        user=wish.person.user,
        browser=browser,
        provider=service.provider,
        trace_id=wish.trace_id,
    )


def _ticket(told: Mapping[str, Any], secret: str) -> Invitation:
    return Invitation(
        provider=told["provider"],
        person=Principal(*told["person"]),
        expires=float(told["expires"]),
        challenge=_challenge(told["challenge"]),
        trace_id=told["trace_id"],
        tool=told["tool"],
        secret=secret,
    )


def _challenge(told: Mapping[str, Any]) -> AuthChallenge:
    fields = dict(told)
    scopes = fields.pop("scopes")
    return AuthChallenge(scopes=None if scopes is None else tuple(scopes), **fields)


async def start_device_sign_in(service: Service, accounts: Accounts, *, redirect_uri: str = "") -> DeviceGrant:
    """A code for the person to enter; where we must register first, it is as a client that comes back to here."""
    if not service.attended:
        raise ToolAuthError(f"{service.display_name!r} asks nobody for consent: its tools can be called as they are.")
    plan = with_redirect_uri(service.current_plan(), callback_url(redirect_uri, service.provider))
    plan = await accounts.issuers.tied(service.provider, plan)
    known = await accounts.issuers.clients(plan.profile.redirect_uris)
    asking = _asking(service, plan, known, accounts.clock)
    grant = await run_flow(asking, accounts.client_for(service))
    await accounts.issuers.keep_client(grant.client)
    codes = (grant.device_code.reveal(), grant.user_code)
    accounts.learn(passing(codes, until=grant.expires, now=accounts.clock()))
    return grant


async def finish_device_sign_in(
    service: Service, accounts: Accounts, person: Principal, grant: DeviceGrant
) -> ConnectedAccount:
    """Wait until the code was entered and keep what that brought; ToolAuthError when the person said no."""
    tokens = await await_device(grant, accounts.client_for(service), clock=accounts.clock)
    binding = IssuerBinding(
        provider=service.provider, server=grant.server, client=grant.client, resource=grant.resource or ""
    )
    await accounts.keep(service, person, binding=binding, tokens=tokens)
    return ConnectedAccount(person, service.provider)


def _asking(service: Service, plan: SignInPlan, known: Mapping[str, Client], clock: Clock) -> Flow[DeviceGrant]:
    trust = plan.trust
    if plan.server is not None and plan.registered is not None:
        return (
            yield from begin_device(
                plan.server, plan.registered, trust=trust, resource=service.resource, scopes=plan.scopes, clock=clock
            )
        )
    found = yield from discover(plan, NO_CHALLENGE, known=known)
    server, own = found.server, known.get(found.server.issuer)
    client = yield from obtain_client(server, plan.profile, registered=plan.registered, known=own, clock=clock)
    scopes = select_scopes(wished=plan.scopes, resource=found.metadata, server=server)
    return (yield from begin_device(server, client, trust=trust, resource=found.resource, scopes=scopes, clock=clock))
