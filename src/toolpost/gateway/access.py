"""Access to the gateway: ASGI middleware that checks the host, authenticates the caller and limits its requests."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from toolpost.auth.caller_tokens import claim_at, role_names
from toolpost.contracts.callers import (
    KEY_ID,
    KEY_PREFIX,
    OBSERVE,
    OPERATOR_ID,
    SCOPES,
    SESSION_PREFIX,
    Caller,
    CallerScope,
)
from toolpost.contracts.errors import ToolAuthError, ToolError
from toolpost.contracts.limits import Rate
from toolpost.contracts.principal import Principal, has_control
from toolpost.gateway.problems import Problem, ProblemResponse, problem_of
from toolpost.runtime.slots import SharedSlots, WaitingLine
from toolpost.wire.addresses import is_loopback
from toolpost.wire.http_server import AUTHENTICATED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from toolpost.auth.caller_tokens import CallerTokens
    from toolpost.configuration.settings import OidcSettings
    from toolpost.console.app import ConsoleApp
    from toolpost.contracts.limits import LimitStore
    from toolpost.contracts.storage import CallerKeyStore
    from toolpost.gateway.sessions import Sessions
    from toolpost.runtime.concurrency import BackgroundTasks

CALLER = "toolpost.caller"
OPEN_REQUESTS = "toolpost.open_requests"  # the key of the function that releases a request, in its scope
METADATA = "/.well-known/oauth-protected-resource"
AGENT_CARD = "/.well-known/agent-card.json"
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_THIS_MACHINE = "this machine"
_FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip"})
SESSIONS = "/api/v1/sessions"
REDEEM = f"{SESSIONS}/redeem"
SIGN_IN_START, SIGN_IN_CALLBACK = "/sign-in/start", "/sign-in/callback"
DOWNLOADS = "/api/v1/downloads"  # with a token instead of a bearer
APPS = "/api/v1/apps"
IDENTITY = "/api/v1/identity"
SIGN_INS_PER_MINUTE = 10
_SIGN_IN_RATE = Rate.per_minute(SIGN_INS_PER_MINUTE)
_SIGN_INS = frozenset({("POST", SESSIONS), ("POST", REDEEM), ("GET", SIGN_IN_START)})
_OPEN = frozenset(
    {
        "/healthz",
        "/readyz",
        "/openapi.json",
        AGENT_CARD,
        REDEEM,
        SIGN_IN_START,
        SIGN_IN_CALLBACK,
        DOWNLOADS,
        APPS,
        IDENTITY,
    }
)
_OF_AGENTS = ("/mcp/", "/a2a")
METRICS, STATUS = "/metrics", "/api/v1/status"
_OBSERVED = frozenset({METRICS, STATUS})  # all that a caller with only the scope `observe` can request
_OF_PROGRAMS = frozenset({"call", "observe"})  # scopes of keys that no person uses
_OPEN_BELOW = (METADATA, "/oauth/")
_HOST = re.compile(rb"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?")
_SINGLE = (b"host", b"origin", b"authorization")
_HEADER_BYTES, _HEADERS = 32 * 1024, 100
_NOT_KNOWN = "the bearer is not known here: it is wrong, revoked or expired"
_NO_USER = "the token does not contain a valid user and tenant"
_SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
_OPEN_LIMIT = "open requests"
_ADVANCE_S = 1.0  # a process counts requests in advance for as long, and reports those that were not sent
_MOST_CALLERS = 4096  # in the memory of this process


class Access:
    """ASGI middleware that passes requests of known callers to `mcp` or `app`, with the caller in the scope.

    Requests for files and pages of the `console` need no caller. `limits` counts the requests of each caller, and the
    sign-ins of each address, in all processes. Valid hosts are that of `public_url` and the names of this machine.
    `/mcp` needs the scope `call`; REST operations check scopes themselves. The bearer is removed from the request. The
    open requests of callers other than the operator are limited, because each of them, above all an event stream,
    occupies a connection. 401 responses refer clients to `metadata_url`, which names the issuer of tokens (RFC 9728).
    """

    def __init__(
        self,
        app: ASGIApp,
        callers: Callers,
        *,
        public_url: str = "",
        limits: CallerLimits,
        mcp: ASGIApp,
        console: ConsoleApp | None = None,
        metadata_url: str | None = None,
    ) -> None:
        self._app = app
        self._mcp = mcp
        self._console = console
        self._callers = callers
        self._origin = _parse_origin(public_url)
        self._hosts = _LOOPBACK | frozenset(() if self._origin is None else {self._origin[1]})
        self._limits = limits
        self._metadata = [] if metadata_url is None else [f'resource_metadata="{metadata_url}"']

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                named = {name.lower() for name, _ in headers}
                message = {**message, "headers": headers + [one for one in _SECURITY_HEADERS if one[0] not in named]}
            await send(message)

        refused = await self._refusal(scope)
        if refused is not None:
            await refused(scope, receive, send_with_headers)
            return
        uses = self._callers.uses
        use = uses.begin(scope[CALLER]) if scope.get(OPEN_REQUESTS) is not None else None  # not the operator
        try:
            await self._app_for(scope)(scope, receive, send_with_headers)
        finally:
            if use is not None:
                uses.end(use)
            open_requests: SharedSlots | None = scope.pop(OPEN_REQUESTS, None)  # a download sets it later
            if open_requests is not None:
                open_requests.release()

    def _app_for(self, scope: Scope) -> ASGIApp:
        if scope["path"] == "/mcp":  # most requests: they skip the middleware and the routes of `app`
            return self._mcp
        return self._console if self._console is not None and self._is_for_console(scope) else self._app

    def _is_for_console(self, scope: Scope) -> bool:
        """Return whether the console serves a request; it only has files and pages."""
        return self._console is not None and scope["method"] in ("GET", "HEAD") and self._console.serves(scope)

    async def admits(self, scope: Scope) -> bool:
        """Return whether a request would pass the checks of host, caller and scope, without counting it."""
        try:
            _check_scopes(await self._identify(scope, self._read_headers(scope)), scope["method"], scope["path"])
        except (Problem, ToolError):
            return False
        return True

    async def _refusal(self, scope: Scope) -> ProblemResponse | None:
        """Put the caller into the scope, or return the response that rejects the request."""
        try:
            headers = self._read_headers(scope)
            path: str = scope["path"]
            if (scope["method"], path) in _SIGN_INS:
                await self._limits.count_sign_in(_address_of(scope))
            if path in _OPEN or path.startswith(_OPEN_BELOW) or self._is_for_console(scope):
                return None
            caller = await self._identify(scope, headers)
            scope[OPEN_REQUESTS] = await self._check(caller, scope["method"], path)
        except Problem as problem:
            return problem.response()
        except ToolError as error:
            return problem_of(error)
        scope[CALLER] = caller
        scope[AUTHENTICATED] = True
        scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
        return None

    def _read_headers(self, scope: Scope) -> dict[bytes, bytes]:
        """Return the headers of a request; raise Problem for another host or a page of another origin."""
        found: list[tuple[bytes, bytes]] = list(scope["headers"])
        if len(found) > _HEADERS or sum(len(name) + len(value) for name, value in found) > _HEADER_BYTES:
            raise Problem(431, "headers_too_large", "the request has too many headers, or its headers are too long")
        headers = dict(found)
        if len(headers) < len(found) and any(sum(name == one for name, _ in found) > 1 for one in _SINGLE):
            raise Problem(400, "repeated_header", "Host, Origin and Authorization may be sent only once")
        host, port = _parse_host(headers.get(b"host", b""))
        if host not in self._hosts:
            raise Problem(421, "unknown_host", "this host name is not served here; set server.public_url")
        origin = headers.get(b"origin")
        if origin is not None and not self._is_own(origin, host, port):
            raise Problem(403, "foreign_origin", "pages of other sites may not send requests here")
        return headers

    def _is_own(self, origin: bytes, host: str, port: int | None) -> bool:
        """Return whether an origin is that of `public_url`, or this machine at the port of the request."""
        scheme, _, authority = origin.partition(b"://")
        named, at = _parse_host(authority)
        sent_by = (scheme, named, _port(scheme, at))
        if sent_by == self._origin:
            return True
        is_local = host in _LOOPBACK and named in _LOOPBACK
        return is_local and sent_by[0] == b"http" and sent_by[2] == _port(b"http", port)

    async def _identify(self, scope: Scope, headers: dict[bytes, bytes]) -> Caller:
        kind, _, bearer = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if kind.lower() != "bearer" or not bearer.strip():
            raise self._unauthorized("send `Authorization: Bearer TOKEN`")
        try:
            return await self._callers.identify(bearer.strip(), is_local=is_local_client(scope))
        except ToolAuthError as error:
            if error.error_code != "invalid_token":
                raise Problem(503, error.error_code, error.message, headers={"Retry-After": "5"}) from None
            raise self._unauthorized(error.message, 'error="invalid_token"') from None

    def _unauthorized(self, detail: str, *parts: str) -> Problem:
        challenge = " ".join(["Bearer", ", ".join([*parts, *self._metadata])]).strip()
        return Problem(401, "invalid_token", detail, headers={"WWW-Authenticate": challenge})

    async def _check(self, caller: Caller, method: str, path: str) -> SharedSlots | None:
        """Count a request as open; raise Problem if its caller exceeds a limit or lacks the scope.

        The operator has no limits.
        """
        if caller.id == OPERATOR_ID:
            return None
        open_requests = await self._limits.admit(caller.id)
        try:
            _check_scopes(caller, method, path)
        except Problem:
            open_requests.release()
            raise
        return open_requests


class CallerLimits:
    """Limits the requests of each caller, and the sign-ins of each address.

    A caller that was idle for a minute can send all requests of a minute without a pause.
    """

    def __init__(
        self,
        limits: LimitStore,
        background: BackgroundTasks,
        *,
        requests_per_minute: int,
        concurrent_requests: int,
    ) -> None:
        self._limits = limits
        self._line = WaitingLine(limits, background)
        self._rate = Rate.per_minute(requests_per_minute)
        # A request to SQLite for each request costs a busy gateway some hundred µs: it gives up the interpreter lock,
        # and the thread that writes events takes it (measured 2026-11).
        self._advance = max(1, int(_ADVANCE_S / self._rate.interval_s))
        self._most_open = concurrent_requests
        self._callers = OrderedDict[str, _Caller]()

    async def admit(self, caller_id: str) -> SharedSlots:
        """Count a request, and return what its end releases; raise Problem if the caller exceeds a limit."""
        caller = self._find(caller_id)
        wait_s = await self._count(caller)
        if wait_s:
            after = {"Retry-After": str(max(1, round(wait_s)))}
            raise Problem(429, "too_many_requests", "this caller sends too many requests", headers=after)
        if not await caller.open_requests.try_acquire():
            raise self._too_many_open()
        return caller.open_requests

    async def admit_download(self, who: str) -> SharedSlots:
        """Count a download as an open request of the caller with the digest `who`, like `admit`."""
        slots = SharedSlots(f"{_OPEN_LIMIT} {who}", self._most_open, self._line)
        if not await slots.try_acquire():
            raise self._too_many_open()
        return slots

    def _too_many_open(self) -> Problem:
        detail = f"this caller has {self._most_open} open requests, including event streams and downloads"
        return Problem(429, "too_many_requests", detail, headers={"Retry-After": "5"})

    async def count_sign_in(self, address: str) -> None:
        """Count a sign-in; raise Problem if the address has sent too many."""
        wait_s = await self._limits.take(_limit_name("sign-ins", address), _SIGN_IN_RATE)
        if wait_s:
            detail = f"an address can try to sign in {SIGN_INS_PER_MINUTE} times a minute"
            raise Problem(429, "too_many_requests", detail, headers={"Retry-After": str(max(1, round(wait_s)))})

    def _find(self, caller_id: str) -> _Caller:
        caller = self._callers.get(caller_id)
        if caller is None:
            slots = SharedSlots(_limit_name(_OPEN_LIMIT, caller_id), self._most_open, self._line)
            caller = self._callers[caller_id] = _Caller(_limit_name("requests", caller_id), slots, _Counted())
            if len(self._callers) > _MOST_CALLERS:
                self._callers.popitem(last=False)
        self._callers.move_to_end(caller_id)
        return caller

    async def _count(self, caller: _Caller) -> float:
        """Count a request; return 0, or the seconds until the caller can send it."""
        counted, now = caller.counted, asyncio.get_running_loop().time()
        if counted.left and now < counted.until:
            counted.left -= 1
            return 0.0
        unsent, counted.left, wait_s = counted.left, 0, 0.0
        for count in dict.fromkeys((self._advance, 1)):
            wait_s = await self._limits.take(caller.requests, self._rate, count=count, returned=unsent)
            if not wait_s:
                counted.left += count - 1
                counted.until = now + _ADVANCE_S
                return 0.0
        counted.left += unsent
        return wait_s


class _Counted:
    """Requests that were counted in advance, and until when they can be sent."""

    __slots__ = ("left", "until")

    def __init__(self) -> None:
        self.left = 0
        self.until = 0.0


class _Caller(NamedTuple):
    requests: str
    open_requests: SharedSlots
    counted: _Counted


class KeyUse:
    """The last use of a key, and the number of its open requests."""

    __slots__ = ("at", "open")

    def __init__(self) -> None:
        self.at = 0.0
        self.open = 0


class KeyUses:
    """The last use of each key in this process, by any interface, or by a console session that the key opened.

    A key with an open request, such as an event stream, is in use.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._uses: dict[str, KeyUse] = {}  # by credential

    def note(self, caller: Caller) -> None:
        """Note a request."""
        credential = caller.credential or caller.id
        if credential.startswith(KEY_ID):
            use = self._uses.get(credential)
            if use is None:
                use = self._uses[credential] = KeyUse()
            use.at = self._clock()

    def begin(self, caller: Caller) -> KeyUse | None:
        """Note that a request is open until `end`; return None for a caller without a key."""
        use = self._uses.get(caller.credential or caller.id)
        if use is not None:
            use.open += 1
        return use

    def end(self, use: KeyUse) -> None:
        """Note the end of a request."""
        use.open -= 1
        use.at = self._clock()

    def current(self) -> dict[str, float]:
        """Return when each key was last used in this process."""
        now = self._clock()
        return {name.removeprefix(KEY_ID): now if use.open else use.at for name, use in self._uses.items()}

    def forget(self, key_id: str) -> None:
        """Forget the uses of a revoked key."""
        self._uses.pop(f"{KEY_ID}{key_id}", None)


class Callers:
    """Authenticate callers by their bearer: the operator's token, a key, a token of the issuer, or a console session.

    Requests with the data folder's `token` run as the principal `operator`.
    """

    def __init__(
        self,
        *,
        operator: Principal,
        token: str,
        keys: CallerKeyStore,
        sessions: Sessions,
        oidc: OidcSettings | None = None,
        tokens: CallerTokens | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.operator = operator_caller(operator)
        self.token = token
        self.sessions = sessions
        self.uses = KeyUses(clock)
        self._expected = token.encode()
        self._keys = keys
        self._oidc = oidc
        self.tokens = tokens
        self._clock = clock

    async def identify(self, bearer: str, *, is_local: bool) -> Caller:
        """Return the caller of a bearer, or raise ToolAuthError. The operator's token is valid only on this machine."""
        caller = await self._find(bearer, is_local=is_local)
        self.uses.note(caller)
        return caller

    async def _find(self, bearer: str, *, is_local: bool) -> Caller:
        if hmac.compare_digest(bearer.encode(), self._expected):
            if is_local:
                return self.operator
            raise ToolAuthError("the operator's token is for this machine; create a key", code="invalid_token")
        if bearer.startswith(KEY_PREFIX):
            return await self._by_key(bearer)
        if bearer.startswith(SESSION_PREFIX):
            return await self.sessions.identify(bearer, is_local=is_local)
        if self.tokens is not None and self._oidc is not None and bearer.count(".") == 2:
            return caller_of(await self.tokens.verify(bearer), self._oidc)
        raise ToolAuthError(_NOT_KNOWN, code="invalid_token")

    async def _by_key(self, bearer: str) -> Caller:
        key_id, _, secret = bearer.removeprefix(KEY_PREFIX).partition("_")
        key = await self._keys.find(key_id) if key_id.isascii() else None
        digest = hashlib.sha256(secret.encode("utf-8", "replace")).digest()
        known = hmac.compare_digest(digest, b"" if key is None else key.digest)
        if key is None or not known or (key.expires_at is not None and key.expires_at <= self._clock()):
            raise ToolAuthError(_NOT_KNOWN, code="invalid_token")
        is_agents = not key.person and not key.scopes.isdisjoint(_OF_PROGRAMS)
        return Caller(
            f"{KEY_ID}{key.id}",
            key.principal,
            frozenset() if key.person else key.scopes,
            person=not is_agents,
            interactive=key.interactive,
            grants=frozenset() if is_agents else key.scopes,
            expires_at=key.expires_at,
        )


def operator_caller(principal: Principal) -> Caller:
    """Return the caller with the token of the data folder, who has all rights."""
    everything = frozenset(SCOPES)
    return Caller(OPERATOR_ID, principal, everything, interactive=True, grants=everything)


def caller_of(claims: Mapping[str, Any], oidc: OidcSettings) -> Caller:
    """Return the caller named by the claims of a token; raise ToolAuthError without a user or a tenant."""
    user = claim_at(claims, oidc.user_claim)
    tenant = oidc.tenant if oidc.tenant_claim is None else claim_at(claims, oidc.tenant_claim)
    if not isinstance(user, str) or not isinstance(tenant, str) or ":" in tenant:
        raise ToolAuthError(_NO_USER, code="invalid_token")
    try:
        principal = Principal.parse(f"{tenant}:{user}")
    except ValueError:
        raise ToolAuthError(_NO_USER, code="invalid_token") from None
    roles = [oidc.roles[name] for name in role_names(claim_at(claims, oidc.roles_claim)) if name in oidc.roles]
    answers = (pattern for role in roles if "answer" in role.scopes for pattern in role.tools)
    scopes = frozenset[CallerScope]().union(*(role.scopes for role in roles))
    clients = {claims[name] for name in ("azp", "client_id") if isinstance(claims.get(name), str)}
    is_person = bool(clients) and clients <= set(oidc.person_clients)
    subject = claims.get("sub", user)
    if not isinstance(subject, str) or has_control(subject):
        raise ToolAuthError(_NO_USER, code="invalid_token")
    return Caller(
        f"{oidc.issuer} {subject}",
        principal,
        scopes,
        tuple(dict.fromkeys(answers)),
        person=is_person,
        grants=scopes - OBSERVE if is_person else frozenset(),
        expires_at=claims["exp"],
    )


def _check_scopes(caller: Caller, method: str, path: str) -> None:
    if not caller.scopes and caller.grants:  # the key of a person
        if (method, path) == ("POST", SESSIONS):
            return
        detail = f"this key only opens a console session: send it with POST {SESSIONS}, or sign in to the console"
        raise Problem(403, "key_of_a_person", detail)
    if not caller.scopes:  # a token without a configured role
        raise insufficient_scope(*SCOPES)
    if caller.scopes == OBSERVE and (method not in ("GET", "HEAD") or path not in _OBSERVED):
        raise insufficient_scope("call", "answer", "admin")
    is_agents = path == "/mcp" or path.startswith(_OF_AGENTS)
    if is_agents and caller.is_session:
        raise Problem(403, "session_of_a_person", "a console session is for a person; give the agent a key of its own")
    if is_agents and not path.startswith("/a2a") and "call" not in caller.scopes:
        raise insufficient_scope("call")


def is_local_client(scope: Scope) -> bool:
    """Return whether a request comes from this machine, and not from a proxy on it."""
    return _address_of(scope) == _THIS_MACHINE and not any(name in _FORWARDED for name, _ in scope["headers"])


def _address_of(scope: Scope) -> str:
    """Return the address of the client. A program on this machine can choose among many, so they are one."""
    client: Any = scope.get("client")
    if client is None:
        return ""
    address: str = client[0]
    return _THIS_MACHINE if address in _LOOPBACK or is_loopback(address) else address


def _limit_name(kind: str, who: str) -> str:
    """Return the name of a limit; the store contains neither callers nor addresses."""
    return f"{kind} {caller_digest(who)}"


def caller_digest(who: str) -> str:
    """Return a name of a caller or an address that does not contain it."""
    return hashlib.blake2b(who.encode(), digest_size=16).hexdigest()


def insufficient_scope(*scopes: str) -> Problem:
    """Return the problem for a caller with none of these scopes; the challenge names the first."""
    challenge = {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scopes[0]}"'}
    needed = " or ".join(map(repr, scopes))
    return Problem(403, "insufficient_scope", f"this needs a caller with the scope {needed}", headers=challenge)


def _parse_host(header: bytes) -> tuple[str, int | None]:
    """Return host and port of a Host header; an empty host if the header is invalid (RFC 9110, 7.2)."""
    match = _HOST.fullmatch(header)
    if match is None:
        return "", None
    name = (match[1] or match[2]).decode("ascii").lower()
    return name, int(match[3]) if match[3] else None


def _port(scheme: bytes, port: int | None) -> int:
    return port or (443 if scheme == b"https" else 80)


def _parse_origin(url: str) -> tuple[bytes, str, int] | None:
    parts = urlsplit(url)
    scheme = parts.scheme.encode()
    return None if parts.hostname is None else (scheme, parts.hostname, _port(scheme, parts.port))
