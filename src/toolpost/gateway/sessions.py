"""Console sessions: a person opens one with a ticket, a key or a token, and the console sends its bearer.

A session may both call and answer, because a person uses it. What an agent holds opens no session: a key with the scope
`call`, or a token of a client that is not for people.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from typing import TYPE_CHECKING, NamedTuple

from toolpost.contracts.callers import (
    KEY_ID,
    OPERATOR_ID,
    SCOPES,
    SESSION_ID,
    SESSION_PREFIX,
    TICKET_PREFIX,
    Caller,
    CallerSession,
    SignInTicket,
)
from toolpost.contracts.errors import ToolAuthError
from toolpost.contracts.events import EventCode
from toolpost.contracts.ids import IdMaker
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.gateway.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.storage import CallerKeyStore, SessionStore
    from toolpost.runtime.event_emitter import EventEmitter

TICKET_S = 120.0
IDLE_S, LONGEST_S = 12 * 3600.0, 7 * 86_400.0
_USE_EVERY_S = 60.0  # a session that is used is written at most this often
_SIGN_IN_AGAIN = "sign in again"
_UNKNOWN = f"this session is not known here: it has ended, or the bearer is wrong; {_SIGN_IN_AGAIN}"
_NEW_TICKET = "`toolpost open` makes a new one"


class OpenedSession(NamedTuple):
    """A new session, and the bearer that is sent for it, which is never stored."""

    session: CallerSession
    token: str

    def __repr__(self) -> str:
        return f"OpenedSession({self.session!r})"


class Sessions:
    """Open, identify and end the console sessions of a gateway.

    `gateway` identifies this run of the gateway in all of its workers: a session on the loopback interface, or of the
    operator, ends with it. Another program may use the port afterwards, and would receive the bearer. Sessions of the
    operator run as the principal `operator`.
    """

    def __init__(
        self,
        sessions: SessionStore,
        keys: CallerKeyStore,
        emitter: EventEmitter,
        *,
        gateway: str,
        operator: Principal,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sessions = sessions
        self._keys = keys
        self._emitter = emitter
        self._gateway = gateway
        self._operator = operator
        self._clock = clock

    async def open(self, caller: Caller, *, on_loopback: bool) -> OpenedSession:
        """Open a session for the person who has this caller's bearer; raise Problem for the credential of an agent.

        `on_loopback` is whether the browser uses an address of this machine.
        """
        _check_person(caller)
        return await self._open(_ticket_of(caller, self._clock())[0], on_loopback=on_loopback)

    async def issue_ticket(self, caller: Caller) -> tuple[SignInTicket, str]:
        """Store a ticket that opens one session of a caller; return it with its text, which is never stored."""
        return await issue_ticket(self._sessions, caller, now=self._clock())

    async def redeem(self, text: str, *, is_local: bool, on_loopback: bool) -> OpenedSession:
        """Open the session of a ticket; raise Problem if it is unknown, expired or used.

        The operator's ticket is valid only on this machine (`is_local`), like the operator's token.
        """
        ticket_id, digest = _split(text, TICKET_PREFIX)
        found = await self._sessions.find_ticket(ticket_id) if ticket_id else None
        if found is None or not hmac.compare_digest(digest, found[0].digest):
            raise self._refused("unknown", 401, f"this ticket is not known here; {_NEW_TICKET}")
        ticket, is_used = found
        tenant = ticket.principal.tenant
        if is_used:
            raise self._refused("used", 410, f"this ticket was used before; {_NEW_TICKET}", tenant)
        if ticket.expires_at <= self._clock():
            detail = f"this ticket has expired: it is valid for {TICKET_S:g} seconds; {_NEW_TICKET}"
            raise self._refused("expired", 410, detail, tenant)
        if ticket.credential == OPERATOR_ID and not is_local:
            detail = "the operator's ticket is for this machine; elsewhere sign in with a key or with the issuer"
            raise self._refused("not_local", 403, detail, tenant)
        if not await self._sessions.use_ticket(ticket):
            raise self._refused("used", 410, f"this ticket was used before; {_NEW_TICKET}", tenant)
        return await self._open(ticket, on_loopback=on_loopback)

    def _refused(self, reason: str, status: int, detail: str, tenant: str = LOCAL_TENANT) -> Problem:
        self._emitter.emit_refused_ticket(reason, tenant=tenant)
        return Problem(status, f"ticket_{reason}", detail)

    async def _open(self, ticket: SignInTicket, *, on_loopback: bool) -> OpenedSession:
        now, secret = self._clock(), secrets.token_urlsafe(32)
        longest = now + LONGEST_S
        is_operators = ticket.credential == OPERATOR_ID
        session = CallerSession(
            id=IdMaker(secure=True).random_part(),
            principal=self._operator if is_operators else ticket.principal,
            scopes=ticket.scopes,
            answers=ticket.answers,
            digest=hashlib.sha256(secret.encode()).digest(),
            credential=ticket.credential,
            created_at=now,
            used_at=now,
            expires_at=longest if ticket.session_expires_at is None else min(longest, ticket.session_expires_at),
            gateway=self._gateway if on_loopback or is_operators else "",
        )
        await self._sessions.add(session)
        self._emitter.emit_session(EventCode.SESSION_CREATED, session, expires_at=session.expires_at)
        return OpenedSession(session, f"{SESSION_PREFIX}{session.id}_{secret}")

    async def identify(self, bearer: str, *, is_local: bool) -> Caller:
        """Return the caller of a session's bearer; raise ToolAuthError for one that is unknown or has ended."""
        session_id, digest = _split(bearer, SESSION_PREFIX)
        session = await self._sessions.find(session_id) if session_id else None
        if session is None or not hmac.compare_digest(digest, session.digest):
            raise ToolAuthError(_UNKNOWN, code="invalid_token")
        if reason := await self._end_of(session):
            await self.end(session, reason)
            raise ToolAuthError(f"this session has ended ({reason}); {_SIGN_IN_AGAIN}", code="invalid_token")
        if session.credential == OPERATOR_ID and not is_local:
            raise ToolAuthError("the operator's session is for this machine; sign in with a key", code="invalid_token")
        now = self._clock()
        if now - session.used_at > _USE_EVERY_S:
            await self._sessions.use(session, at=now)
        return caller_of_session(session)

    async def _end_of(self, session: CallerSession) -> str:
        """Return why a session has ended, or an empty string."""
        now = self._clock()
        if now >= session.expires_at:
            return "expired"
        if now >= session.used_at + IDLE_S:
            return "not used"
        if session.gateway not in ("", self._gateway):
            return "the gateway was restarted"
        if session.credential.startswith(KEY_ID):
            key = await self._keys.find(session.credential.removeprefix(KEY_ID))
            if key is None or (key.expires_at is not None and key.expires_at <= now):
                return "its key was revoked"
        return ""

    async def is_current(self, caller: Caller) -> bool:
        """Return whether a caller's key, token or session is still valid, for a response that lasts."""
        if caller.is_session:
            session = await self._sessions.find(caller.id.removeprefix(SESSION_ID))
            return session is not None and not await self._end_of(session)
        if caller.id.startswith(KEY_ID) and await self._keys.find(caller.id.removeprefix(KEY_ID)) is None:
            return False
        return caller.expires_at is None or caller.expires_at > self._clock()

    async def end(self, session: CallerSession, reason: str, *, by: str | None = None) -> None:
        """Remove a session and emit why it ended."""
        await self._sessions.remove(session.id)
        facts = {} if by is None else {"by": by}
        self._emitter.emit_session(EventCode.SESSION_ENDED, session, reason=reason, **facts)

    async def list(self, caller: Caller) -> list[CallerSession]:
        """Return the sessions that a caller may see and end: those of the user, with `admin` those of the tenant."""
        user = None if "admin" in caller.scopes else caller.principal.user
        found = await self._sessions.list(tenant=caller.principal.tenant, user=user)
        return [session for session in found if not await self._end_of(session)]


async def issue_ticket(sessions: SessionStore, caller: Caller, *, now: float) -> tuple[SignInTicket, str]:
    """Store a ticket that opens one session of a caller in any gateway on this store; return it with its text."""
    _check_person(caller)
    ticket, text = _ticket_of(caller, now)
    await sessions.add_ticket(ticket)
    return ticket, text


def caller_of_session(session: CallerSession) -> Caller:
    """Return the caller of a session."""
    return Caller(
        f"{SESSION_ID}{session.id}",
        session.principal,
        session.scopes,
        session.answers,
        expires_at=ends_at(session),
        credential=session.credential,
    )


def ends_at(session: CallerSession) -> float:
    """Return when a session ends if it is not used."""
    return min(session.expires_at, session.used_at + IDLE_S)


def _check_person(caller: Caller) -> None:
    if caller.is_session:
        detail = "a session does not open another one; sign in with a ticket, a key or the issuer"
        raise Problem(403, "already_a_session", detail)
    if not caller.grants:
        detail = (
            "this bearer may be an agent's, so it cannot open a console session; "
            "the operator makes a key for a person with `toolpost keys create NAME --person`"
        )
        raise Problem(403, "not_a_person", detail)


def _ticket_of(caller: Caller, now: float) -> tuple[SignInTicket, str]:
    """Return a ticket for a session with the rights that a caller's bearer grants, and the text of the ticket."""
    ticket_id, secret = IdMaker(secure=True).random_part(), secrets.token_urlsafe(32)
    ticket = SignInTicket(
        id=ticket_id,
        principal=caller.principal,
        scopes=frozenset(scope for scope in SCOPES if scope in caller.grants),
        answers=caller.answers,
        digest=hashlib.sha256(secret.encode()).digest(),
        credential=caller.id,
        expires_at=now + TICKET_S,
        session_expires_at=caller.expires_at,
    )
    return ticket, f"{TICKET_PREFIX}{ticket_id}_{secret}"


def _split(text: str, prefix: str) -> tuple[str, bytes]:
    """Return the id in a bearer or ticket, empty if it is invalid, and the digest of its secret."""
    id_, _, secret = text.removeprefix(prefix).partition("_")
    is_valid = text.startswith(prefix) and id_.isascii() and id_.isalnum()
    return id_ if is_valid else "", hashlib.sha256(secret.encode("utf-8", "replace")).digest()
