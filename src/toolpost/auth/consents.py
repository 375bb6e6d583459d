"""Sign-ins under way: begun in one browser, and finished once, in whatever process that browser comes back to."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.auth.bindings import PROGRAM, Binding, program_key
from toolpost.auth.oauth.authorization import (
    TRANSACTION_TTL_S,
    Caller,
    Transaction,
    begin_authorization,
    exchange_code,
    read_callback,
)
from toolpost.auth.oauth.challenge import Demand
from toolpost.auth.oauth.driver import run_flow
from toolpost.auth.oauth.handshake import Consent, Granted, sign_in
from toolpost.auth.oauth.records import packed, unpacked
from toolpost.contracts.errors import ConfigError, ToolAuthError
from toolpost.contracts.principal import Principal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.auth.accounts import Accounts
    from toolpost.auth.oauth.tokens import TokenSet
    from toolpost.auth.services import Service

TICKET_TTL_S = 7 * 86_400.0
_NO_DEMAND = Demand()
_UNKNOWN_STATE = "Invalid or expired OAuth state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Whose consent is wanted, for what, and what a refused request said would help."""

    person: Principal
    demand: Demand = _NO_DEMAND
    refused: TokenSet | None = None
    trace_id: str = ""


class Begun(NamedTuple):
    """Where to send a browser; `state` and the URL are secrets of the one who signs in."""

    url: str
    state: str
    scopes: tuple[str, ...]

    def __repr__(self) -> str:
        return "Begun()"


class Connected(NamedTuple):
    """Who has connected which account."""

    person: Principal
    provider: str
    trace_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """An invitation to sign in that lasts as long as the question; the sign-in itself begins when a browser comes."""

    provider: str
    person: Principal
    expires: float
    scopes: tuple[str, ...] | None = None
    trace_id: str = ""
    secret: str = field(default="", repr=False)


class Consents:
    """Begins and finishes sign-ins.

    `redirect_uri` is where issuers send browsers back to. With a `start_url` people are invited there first, where the
    sign-in is bound to their browser.
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

    def offer(self, service: Service) -> None:
        """Take in a service that people can sign in to."""
        self._services[service.provider] = service

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
        self, service: Service, wish: Wish, *, redirect_uri: str = "", browser: str = ""
    ) -> Begun | Connected:
        """Begin a sign-in; where no person is needed it is finished at once.

        `browser` is the binding of the browser that begins, and the only one that can finish.
        """
        uri = redirect_uri or self.redirect_uri
        if not uri:
            raise ConfigError(
                f"people cannot sign in to {service.display_name!r}: nothing says where their browsers come back to; "
                "write accounts.public_url, or connect with: toolpost accounts connect"
            )
        person = wish.person
        caller = Caller(
            redirect_uri=uri,
            tenant=person.tenant,
            user=person.user,
            browser=browser,
            provider=service.provider,
            trace_id=wish.trace_id,
        )
        step = await self._step(service, wish, caller)
        if isinstance(step, Granted):
            binding = Binding(server=step.server, client=step.client, resource=step.tokens.resource or "")
            await self._accounts.keep(service, person, binding=binding, tokens=step.tokens)
            return Connected(person, service.provider, wish.trace_id)
        transaction = step.transaction
        await self._purge()
        await self._rows.put(_transaction_key(transaction.state), {"transaction": json.loads(packed(transaction))})
        self._accounts.learn({transaction.state, transaction.verifier.reveal()})
        return Begun(step.url, transaction.state, transaction.scopes)

    async def finish(self, parameters: Mapping[str, str], *, browser: str = "") -> Connected:
        """Take what a browser brought back; a ToolAuthError says what is wrong with it.

        Only a callback that is right in everything uses the sign-in up, so that nobody can spoil another's.
        """
        key = _transaction_key(parameters.get("state", ""))
        row = await self._rows.get(key)
        if row is None or not row.body:
            raise ToolAuthError(_UNKNOWN_STATE, code="oauth_state")
        transaction = unpacked(Transaction, json.dumps(row.body["transaction"]).encode())
        code = read_callback(transaction, parameters, browser=browser, clock=self._accounts.clock)
        if not await self._rows.remove(key, version=row.version):
            raise ToolAuthError(_UNKNOWN_STATE, code="oauth_state")  # somebody else was faster with the same one
        caller = transaction.caller
        service = self.service(caller.provider)
        redeeming = exchange_code(transaction, code, clock=self._accounts.clock)
        tokens = await run_flow(redeeming, self._accounts.client_for(service))
        binding = Binding(server=transaction.server, client=transaction.client, resource=transaction.resource or "")
        person = Principal(caller.tenant, caller.user)
        await self._accounts.keep(service, person, binding=binding, tokens=tokens)
        return Connected(person, service.provider, caller.trace_id)

    async def invite(self, service: Service, wish: Wish) -> str:
        """A URL at which a browser can begin the sign-in, for as long as a question lasts."""
        secret = secrets.token_urlsafe(32)
        self._accounts.learn({secret})
        body = {
            "provider": service.provider,
            "person": list(wish.person),
            "expires": self._accounts.clock() + TICKET_TTL_S,
            "scopes": None if wish.demand.scopes is None else list(wish.demand.scopes),
            "trace_id": wish.trace_id,
        }
        await self._purge()
        await self._rows.put(program_key("ticket", _digest(secret)), body)
        return f"{self.start_url}?ticket={secret}"

    async def ticket(self, secret: str) -> Ticket:
        """What an invitation is for; ToolAuthError when it is none, or too old."""
        row = await self._rows.get(program_key("ticket", _digest(secret)))
        if row is None or not row.body or float(row.body["expires"]) <= self._accounts.clock():
            message = "This link is not valid any more. Ask for the tool again to get a new one."
            raise ToolAuthError(message, code="oauth_expired")
        told: Mapping[str, Any] = row.body
        return Ticket(
            provider=told["provider"],
            person=Principal(*told["person"]),
            expires=float(told["expires"]),
            scopes=None if told["scopes"] is None else tuple(told["scopes"]),
            trace_id=told["trace_id"],
            secret=secret,
        )

    async def start(self, ticket: Ticket, *, browser: str) -> Begun | Connected:
        """Begin the sign-in of an invitation in the browser that came."""
        service = self.service(ticket.provider)
        held = await self._accounts.held(service, ticket.person)
        demand = _NO_DEMAND if ticket.scopes is None else Demand(status=403, scopes=ticket.scopes)
        refused = held.tokens if held is not None and ticket.scopes is not None else None
        wish = Wish(person=ticket.person, demand=demand, refused=refused, trace_id=ticket.trace_id)
        return await self.begin(service, wish, browser=browser)

    async def _step(self, service: Service, wish: Wish, caller: Caller) -> Granted | Consent:
        plan = service.plan
        if plan.server is not None and plan.registered is not None and plan.grant == "code":
            request = begin_authorization(
                plan.server,
                plan.registered,
                caller,
                scopes=tuple(dict.fromkeys((*plan.scopes, *(wish.demand.scopes or ())))),
                ttl_s=self._ttl_s,
                clock=self._accounts.clock,
            )
            return Consent(url=request.url, transaction=request.transaction, client=plan.registered)
        flow = sign_in(
            plan,
            wish.demand,
            caller,
            tokens=wish.refused,
            clients=await self._accounts.bindings.clients(),
            clock=self._accounts.clock,
        )
        return await run_flow(flow, self._accounts.client_for(service))

    async def _purge(self) -> None:
        """Forget what nobody came back for."""
        now = self._accounts.clock()
        for kind in ("transaction", "ticket"):
            for row in await self._rows.list(tenant=PROGRAM, user=kind):
                if _expiry(row.body) <= now:
                    await self._rows.remove(row.key, version=row.version)


def _transaction_key(state: str) -> Any:
    return program_key("transaction", _digest(state))


def _digest(secret: str) -> str:
    """What a secret is looked up by: a stolen table does not hold it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _expiry(body: Mapping[str, Any]) -> float:
    inner = body.get("transaction", body)
    return float(inner.get("expires", 0.0))
