"""Sign-ins of people to services: started in a browser or by device code, and finished once, in any process.

A pending sign-in is stored sealed, and its authorization code is exchanged for tokens once.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import quote, urlsplit, urlunsplit

from msgspec import Struct
from msgspec.structs import asdict, replace

from toolpost.auth.issuer_registry import PROGRAM, program_key
from toolpost.auth.oauth.authorization import (
    TRANSACTION_TTL_S,
    SignInContext,
    Transaction,
    begin_authorization,
    exchange_code,
    read_callback,
    select_scopes,
)
from toolpost.auth.oauth.client import Client, obtain_client
from toolpost.auth.oauth.flow import CLIENT_REFUSED, Clock, Flow, problem_behind, run_flow
from toolpost.auth.oauth.grants import DeviceGrant, TokenSet, await_device, begin_device
from toolpost.auth.oauth.records import pack_record, unpack_record
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
    from toolpost.contracts.storage import TokenRow, TokenRows
    from toolpost.wire.client import HttpClient


INVITATION_TTL_S = 7 * 86_400.0
NO_CHALLENGE = AuthChallenge()
_PURGE_S = 60.0
_MOST = 100_000
# RFC 6749 section 5.2: errors about the client or the moment. The code was not looked at and may be sent again.
_CODE_UNTOUCHED = frozenset({"temporarily_unavailable", "server_error"})


class ConsentRequest(Struct, frozen=True, kw_only=True):
    """Whose consent is needed, for which tool, and the challenge of the refused request."""

    person: Principal
    challenge: AuthChallenge = NO_CHALLENGE
    trace_id: str = ""
    tool: str = ""


class StartedSignIn(NamedTuple):
    """The URL for the browser; URL and `state` are secrets of the person who signs in."""

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

    Issuers send browsers back to `redirect_uri` followed by the name of the service. With a `start_url`, people open an
    invitation there first, where the sign-in is bound to their browser.
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

    def register(self, service: Service) -> None:
        """Register a service that people can sign in to.

        Sources may share a service, but not if its tokens are for one address only: they would be sent to another.
        """
        other = self._services.get(service.provider)
        if other is not None:
            _refuse_other_service(service, other)
        self._services[service.provider] = service
        self._accounts.learn(plan_secrets(service.plan))

    def effective_challenge(self, service: Service, challenge: AuthChallenge = NO_CHALLENGE) -> AuthChallenge:
        """Return the challenge to answer: the given one, else the last refusal that a source of the service received.

        The operator's scopes replace those of the challenge, unless the server finds them insufficient.
        """
        refused = self.refusal(service.provider) if challenge == NO_CHALLENGE else None
        if refused is not None:
            challenge = challenge_of(refused)
        mine = service.plan.scopes
        return replace(challenge, scopes=mine) if mine and not challenge.wants_more_scopes else challenge

    @property
    def services(self) -> Mapping[str, Service]:
        """All registered services by name."""
        return self._services

    def service(self, provider: str) -> Service:
        """Return a registered service; ConfigError names those that exist."""
        service = self._services.get(provider)
        if service is None:
            names = ", ".join(sorted(self._services)) or "none"
            raise ConfigError(f"there is no service {provider!r} with accounts here; there are: {names}")
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
        """Start a sign-in; where no person is needed it is finished at once.

        Only the browser with the binding `browser` can finish the sign-in, which then uses up `invitation`.
        """
        uri = callback_url(redirect_uri or self.redirect_uri, service.provider)
        if not uri and service.attended:
            raise ConfigError(
                f"people cannot sign in to {service.display_name!r}: nothing says where their browsers come back to; "
                "write accounts.public_url, or give a redirect_uri, as `toolpost accounts connect` does"
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
        """Verify a callback, exchange its code and store the tokens; a ToolAuthError says what is wrong.

        `provider` is the service to whose address the browser came back, and `person` who is logged in there: nobody
        else's sign-in is finished. Only a callback that is right in everything uses the sign-in up.
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
            task.exception()  # The browser may be gone; then nobody else looks at it.

    async def invite(self, service: Service, request: ConsentRequest) -> str:
        """Create an invitation and return its URL."""
        secret, expires = secrets.token_urlsafe(32), self._accounts.clock() + INVITATION_TTL_S
        self._learn({secret}, until=expires)
        body = {
            "provider": service.provider,
            "person": list(request.person),
            "expires": expires,
            "challenge": asdict(request.challenge),
            "trace_id": request.trace_id,
            "tool": request.tool,
        }
        await self._purge()
        await self._rows.put(program_key("ticket", digest(secret)), body)
        return f"{self.start_url}?ticket={secret}"

    async def invitation(self, secret: str) -> Invitation:
        """Return the invitation of a secret; ToolAuthError when it is unknown or expired."""
        row = await self._rows.get(program_key("ticket", digest(secret)))
        if row is None or not row.body or float(row.body["expires"]) <= self._accounts.clock():
            message = "This link was used, or is too old. If the account is not connected, ask for the tool again."
            raise ToolAuthError(message, code="oauth_expired")
        return _read_invitation(row.body, secret)

    async def start(self, invitation: Invitation, *, browser: str) -> StartedSignIn | ConnectedAccount:
        """Start the sign-in of an invitation in the browser that opened it."""
        request = ConsentRequest(person=invitation.person, challenge=invitation.challenge, trace_id=invitation.trace_id)
        return await self.begin(
            self.service(invitation.provider), request, browser=browser, invitation=invitation.secret
        )

    async def forget(self, person: Principal) -> None:
        """Remove the sign-ins and invitations of a person, after the code exchanges that run for that person."""
        await self._sign_ins.forget(person)
        await self._drop_invitations(lambda body: bool(body) and Principal(*body["person"]) == person)
        if mine := [task for task, whose in self._exchanges.items() if whose == person]:
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
        """Remove expired sign-ins and invitations; at most once a minute, because all rows are read."""
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
        """Give secrets with an end to redaction."""
        self._accounts.learn(expiring(passed, until=until, now=self._accounts.clock()))


def callback_url(base: str, provider: str) -> str:
    """Return the callback URL of a service; empty without a base.

    Each service has its own (RFC 9700 section 4.4.2.2), because not all issuers name themselves in the answer: one that
    sends the person on to another's sign-in would otherwise receive the code that comes of it.
    """
    if not base:
        return ""
    parts = urlsplit(base)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{quote(provider, safe='')}"))


def _refuse_mix_up(started_at: str, came_from: str) -> None:
    if started_at == came_from:
        return
    raise ToolAuthError(
        f"The answer came back from {came_from!r}, but the sign-in was begun at {started_at!r}. It is not used: "
        "another server may have put itself in between.",
        code="oauth_issuer_mismatch",
    )


def _refuse_other_service(service: Service, other: Service) -> None:
    """Refuse two sources of one provider that are not the same service."""
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
    """Return where the tokens of a service are sent, and the resource that an operator names."""
    return service.plan.url, service.plan.resource


def _issued_by(service: Service) -> tuple[object, ...]:
    """Return who issues the tokens of a service, to which client, by which grant."""
    plan, server, own = service.plan, service.plan.server, service.plan.registered
    issuer = (plan.issuer, None if server is None else (server.issuer, server.token_endpoint))
    return (*issuer, None if own is None else own.id, service.attended, type(plan.grant))


def challenge_of(refused: ToolError) -> AuthChallenge:
    """Return the challenge of a refusal."""
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


def _read_invitation(data: Mapping[str, Any], secret: str) -> Invitation:
    return Invitation(
        provider=data["provider"],
        person=Principal(*data["person"]),
        expires=float(data["expires"]),
        challenge=_challenge(data["challenge"]),
        trace_id=data["trace_id"],
        tool=data["tool"],
        secret=secret,
    )


def _challenge(data: Mapping[str, Any]) -> AuthChallenge:
    fields = dict(data)
    scopes = fields.pop("scopes")
    return AuthChallenge(scopes=None if scopes is None else tuple(scopes), **fields)


async def start_device_sign_in(service: Service, accounts: Accounts, *, redirect_uri: str = "") -> DeviceGrant:
    """Request a device code for a person to enter (RFC 8628), registering a client first if needed."""
    if not service.attended:
        raise ToolAuthError(f"{service.display_name!r} asks nobody for consent: its tools can be called as they are.")
    plan = with_redirect_uri(service.current_plan(), callback_url(redirect_uri, service.provider))
    plan = await accounts.issuers.bind_client(service.provider, plan)
    clients = await accounts.issuers.clients(plan.profile.redirect_uris)
    flow = _request_device_code(service, plan, clients, accounts.clock)
    grant = await run_flow(flow, accounts.client_for(service))
    await accounts.issuers.keep_client(grant.client)
    codes = (grant.device_code.reveal(), grant.user_code)
    accounts.learn(expiring(codes, until=grant.expires, now=accounts.clock()))
    return grant


async def finish_device_sign_in(
    service: Service, accounts: Accounts, person: Principal, grant: DeviceGrant
) -> ConnectedAccount:
    """Poll until the device code was entered and store the tokens; ToolAuthError when the person declined."""
    tokens = await await_device(grant, accounts.client_for(service), clock=accounts.clock)
    await accounts.keep(service, person, tokens, server=grant.server, client=grant.client)
    return ConnectedAccount(person, service.provider)


def _request_device_code(
    service: Service, plan: SignInPlan, known: Mapping[str, Client], clock: Clock
) -> Flow[DeviceGrant]:
    trust = plan.trust
    if plan.server is not None and plan.registered is not None:
        return (
            yield from begin_device(
                plan.server, plan.registered, trust=trust, resource=service.resource, scopes=plan.scopes, clock=clock
            )
        )
    discovered = yield from discover(plan, NO_CHALLENGE, known=known)
    server, own = discovered.server, known.get(discovered.server.issuer)
    client = yield from obtain_client(server, plan.profile, registered=plan.registered, known=own, clock=clock)
    scopes = select_scopes(wished=plan.scopes, resource=discovered.metadata, server=server)
    return (
        yield from begin_device(server, client, trust=trust, resource=discovered.resource, scopes=scopes, clock=clock)
    )


class PendingSignIn(Struct, frozen=True, kw_only=True):
    """A transaction that waits for its callback; `invitation` is the digest of the invitation that it uses up."""

    transaction: Transaction
    invitation: str = ""
    version: int = 0  # of the row that it was read from, and so no part of what it is

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PendingSignIn):
            return NotImplemented
        return (self.transaction, self.invitation) == (other.transaction, other.invitation)

    def __hash__(self) -> int:
        return hash((self.transaction, self.invitation))


class PendingSignIns(Protocol):
    """Storage of pending sign-ins, shared by all processes that a callback may reach."""

    async def put(self, sign_in: PendingSignIn) -> None:
        """Store a sign-in under the digest of its state."""
        ...

    async def find(self, state: str) -> PendingSignIn | None:
        """Return the sign-in of a state without claiming it."""
        ...

    async def claim(self, sign_in: PendingSignIn) -> bool:
        """Remove a sign-in; True for exactly one of several callers."""
        ...

    async def purge(self, before: float) -> int:
        """Remove sign-ins that expired at or before a time, and return how many."""
        ...


class MemorySignIns:
    """Pending sign-ins of this process; beyond `most` the oldest are dropped."""

    def __init__(self, *, most: int = _MOST) -> None:
        self._most = most
        self._pending: dict[str, PendingSignIn] = {}

    def __len__(self) -> int:
        return len(self._pending)

    async def put(self, sign_in: PendingSignIn) -> None:
        self.add(sign_in)

    def add(self, sign_in: PendingSignIn) -> None:
        """Store a sign-in, where nothing can be awaited."""
        self._pending[digest(sign_in.transaction.state)] = sign_in
        while len(self._pending) > self._most:
            del self._pending[next(iter(self._pending))]

    async def find(self, state: str) -> PendingSignIn | None:
        return self._pending.get(digest(state))

    async def claim(self, sign_in: PendingSignIn) -> bool:
        """Remove a sign-in."""
        return self._pending.pop(digest(sign_in.transaction.state), None) is not None

    async def purge(self, before: float) -> int:
        """Remove expired sign-ins."""
        return self.drop_expired(before)

    def drop_expired(self, before: float) -> int:
        """Remove expired sign-ins, where nothing can be awaited."""
        expired = [name for name, one in self._pending.items() if one.transaction.expires <= before]
        for name in expired:
            del self._pending[name]
        return len(expired)


class SealedSignIns:
    """Pending sign-ins in the sealed rows of a store, for every process that shares the store.

    Each `kind` of row is its own set: a state of one cannot be redeemed at another.
    """

    def __init__(self, rows: TokenRows, *, kind: str = "sign-in") -> None:
        self._rows = rows
        self._kind = kind

    async def put(self, sign_in: PendingSignIn) -> None:
        body = {"transaction": pack_record(sign_in.transaction), "invitation": sign_in.invitation}
        await self._rows.put(program_key(self._kind, digest(sign_in.transaction.state)), body)

    async def find(self, state: str) -> PendingSignIn | None:
        row = await self._rows.get(program_key(self._kind, digest(state)))
        if row is None or not (record := _transaction_in(row)):
            return None
        transaction = unpack_record(Transaction, record)
        return PendingSignIn(transaction=transaction, invitation=row.body["invitation"], version=row.version)

    async def claim(self, sign_in: PendingSignIn) -> bool:
        """Remove a sign-in, unless another process claimed it since it was read."""
        key = program_key(self._kind, digest(sign_in.transaction.state))
        return await self._rows.remove(key, version=sign_in.version)

    async def purge(self, before: float) -> int:
        """Remove expired sign-ins, and rows that do not open."""
        rows = await self._rows.list(tenant=PROGRAM, user=self._kind)
        expired = [row for row in rows if float(_transaction_in(row).get("expires", 0.0)) <= before]
        return sum([await self._rows.remove(row.key, version=row.version) for row in expired])

    async def forget(self, person: Principal) -> None:
        """Remove all sign-ins of a person."""
        for row in await self._rows.list(tenant=PROGRAM, user=self._kind):
            caller = _transaction_in(row).get("caller", {})
            if (caller.get("tenant"), caller.get("user")) == person:
                await self._rows.remove(row.key, version=row.version)


async def find_sign_in(sign_ins: PendingSignIns, state: str) -> PendingSignIn:
    """Return the pending sign-in of a state; ToolAuthError when there is none."""
    pending = await sign_ins.find(state) if state else None
    if pending is None:
        raise _unknown_state()
    return pending


async def redeem(
    sign_ins: PendingSignIns,
    sign_in: PendingSignIn,
    parameters: Mapping[str, str],
    *,
    client: HttpClient,
    clock: Clock,
    browser: str = "",
    registered: Client | None = None,
) -> TokenSet:
    """Verify a callback, claim its sign-in and exchange the code for tokens.

    A callback that is not right in everything claims nothing, so that nobody can spoil another's sign-in. If the
    exchange fails before the issuer looked at the code, the sign-in is put back. `registered` takes the place of the
    stored client, where its secret is not stored with the sign-in.
    """
    transaction = sign_in.transaction
    code = read_callback(transaction, parameters, browser=browser, clock=clock)
    if not await sign_ins.claim(sign_in):
        raise _unknown_state()  # another callback with the same state was faster
    try:
        exchanged = transaction if registered is None else replace(transaction, client=registered)
        return await run_flow(exchange_code(exchanged, code, clock=clock), client)
    except (ToolError, asyncio.CancelledError) as failed:
        if not is_code_spent(failed, transaction):
            await sign_ins.put(sign_in)
        raise


def is_code_spent(failed: BaseException, transaction: Transaction) -> bool:
    """Return whether the issuer looked at the code before the exchange failed: a code serves once."""
    if not isinstance(failed, ToolAuthError):
        return False
    if failed.error_code == CLIENT_REFUSED:  # an operator can correct a client; a dynamic one is registered anew
        return transaction.client.origin != "registered"
    problem = problem_behind(failed)
    return problem is None or problem.code not in _CODE_UNTOUCHED


def digest(secret: str) -> str:
    """Return what a secret is looked up by, so that a stolen table does not hold the secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _unknown_state() -> ToolAuthError:
    return ToolAuthError("Invalid or expired OAuth state", code="oauth_state")


def _transaction_in(row: TokenRow) -> dict[str, Any]:
    """Return the stored transaction of a row; empty where the row does not open or holds something else."""
    transaction: dict[str, Any] = row.body.get("transaction", {})
    return transaction
