"""User sign-ins for tools: the URL that a person opens, and the callback that turns its code into a token."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from toolpost.auth.account_counts import AccountCounts
from toolpost.auth.oauth.authorization import Caller, begin_authorization
from toolpost.auth.oauth.client import AUTH_METHODS, Client
from toolpost.auth.oauth.driver import run_flow
from toolpost.auth.oauth.endpoint import ask_endpoint
from toolpost.auth.oauth.metadata import configured_server
from toolpost.auth.oauth.refusals import presentable, problem_of
from toolpost.auth.oauth.tokens import TokenWish, read_tokens
from toolpost.auth.oauth.trust import is_loopback
from toolpost.auth.providers import KNOWN_PROVIDERS
from toolpost.auth.secret import Secret, secret_from
from toolpost.auth.sign_ins import MemorySignIns, PendingSignIn
from toolpost.auth.token_store import InMemoryTokenStore
from toolpost.contracts.errors import (
    ConfigError,
    StoreError,
    ToolConnectionError,
    ToolError,
    ToolPermissionError,
    ToolRateLimitError,
    ToolServerError,
    ToolTimeoutError,
)
from toolpost.contracts.passing import passing
from toolpost.wire.client import HttpClient
from toolpost.wire.guard import parse_target
from toolpost.wire.network import NetworkPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolpost.auth.oauth.client import AuthMethod
    from toolpost.auth.oauth.flow import Flow, Reply
    from toolpost.auth.oauth.metadata import ServerMetadata
    from toolpost.auth.oauth.tokens import TokenSet
    from toolpost.auth.sign_ins import PendingSignIns
    from toolpost.contracts.storage import TokenStore
    from toolpost.wire.headers import Pairs

SIGN_IN_TTL_S = 600.0

CallbackCause = Literal["state_invalid", "expired", "other_user", "other_issuer", "denied", "provider", "unreachable"]

_PKCE = frozenset({"code_challenge", "code_challenge_method"})
# RFC 6749 section 5.2: said of us or of the moment, so the code was not looked at and may be shown again.
_NOT_ABOUT_THE_CODE = frozenset({"invalid_client", "unauthorized_client", "temporarily_unavailable", "server_error"})
_UNANSWERED = (ToolConnectionError, ToolTimeoutError, ToolServerError, ToolRateLimitError, ToolPermissionError)
_log = logging.getLogger("toolpost.auth")


class OAuthCallbackError(ValueError):
    """A callback that did not connect an account; `again` says whether the same one may be tried once more."""

    def __init__(self, message: str, *, cause: CallbackCause, again: bool = False) -> None:
        super().__init__(message)
        self.cause = cause
        self.again = again


@dataclass(frozen=True, slots=True)
class OAuthProviderConfig:
    """A service with accounts, as its operator registered us there.

    `client_secret` may be a reference (`env:NAME`, `file:PATH`, `keyring:SERVICE/NAME`); without one the client is
    public. `pkce` is ignored by servers that do not know it. With an `issuer`, callbacks that name another are refused.
    """

    name: str
    display_name: str
    auth_url: str
    token_url: str
    client_id: str
    client_secret: str | Secret = field(repr=False)
    redirect_uri: str
    scopes: list[str] = field(default_factory=list[str])
    pkce: bool = field(default=True, kw_only=True)
    client_auth: AuthMethod = field(default="client_secret_post", kw_only=True)
    issuer: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for place in ("auth_url", "token_url", "redirect_uri"):
            try:
                parse_target(getattr(self, place))
            except ToolPermissionError as refused:
                said = str(refused).partition(" is refused: ")[2]
                raise ConfigError(f"{place} of OAuth provider {self.name!r} cannot be used: {said}") from None
        if not self.redirect_uri.lower().startswith("https:") and not is_loopback(self.redirect_uri):
            raise ConfigError(f"redirect_uri of OAuth provider {self.name!r} must be https, or on this machine")
        if self.client_auth not in AUTH_METHODS:
            raise ConfigError(f"client_auth of OAuth provider {self.name!r} is one of: {', '.join(AUTH_METHODS)}")

    @classmethod
    def known(
        cls,
        provider: str,
        *,
        client_id: str,
        client_secret: str | Secret,
        redirect_uri: str,
        scopes: Sequence[str] = (),
    ) -> Self:
        """Build the configuration of a service whose endpoints ship with the library, such as `github`."""
        found = KNOWN_PROVIDERS.get(provider)
        if found is None:
            names = ", ".join(KNOWN_PROVIDERS)
            raise ConfigError(f"no endpoints are known for OAuth provider {provider!r}; there are: {names}")
        return cls(
            name=provider,
            display_name=found.display_name,
            auth_url=found.auth_url,
            token_url=found.token_url,
            client_id=client_id,
            client_secret=client_secret,
            redirect_uri=redirect_uri,
            scopes=list(scopes),
            client_auth=found.client_auth or "client_secret_post",
            issuer=found.issuer or None,
        )

    def server(self) -> ServerMetadata:
        """The service as flows see it."""
        return configured_server(
            authorization_endpoint=self.auth_url, token_endpoint=self.token_url, issuer=self.issuer
        )

    def client(self) -> Client:
        """What we are there; ConfigError when the secret is not where it should be."""
        given = self.client_secret
        secret = given if isinstance(given, Secret) else secret_from(given, allow_plain=True) if given else None
        return Client(id=self.client_id, secret=secret, auth_method=self.client_auth if secret else "none")


class OAuthManager:
    """Knows who has signed in where, and how to.

    1. A tool asks `get_token`: None when its user has not signed in.
    2. It asks `get_auth_request` for the URL that the person must open.
    3. It pauses with that.
    4. The person consents in a browser, which comes back to `redirect_uri` with a code.
    5. The application hands code and state to `handle_callback`, which keeps the token; with several providers also
       the one whose `redirect_uri` it was.
    6. The application resumes what was paused.
    7. The tool runs again, and finds the token.

    With `pending` in a shared store and such a `token_store`, the callback may reach another process. Only access
    tokens and their expiry are kept: whoever wants them renewed gives people accounts of a Toolbox instead.
    `learn` is given every secret that passes, so that whoever redacts knows it.
    """

    def __init__(
        self,
        providers: Mapping[str, OAuthProviderConfig],
        token_store: TokenStore | None = None,
        *,
        pending: PendingSignIns | None = None,
        ttl_s: float = SIGN_IN_TTL_S,
        network: NetworkPolicy | None = None,
        learn: Callable[[set[str]], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not ttl_s > 0:
            raise ValueError(f"ttl_s must be more than 0 seconds, not {ttl_s!r}")
        _refuse_shared_redirects(providers)
        self.providers = providers
        self.token_store: TokenStore = InMemoryTokenStore(clock=clock) if token_store is None else token_store
        self.counts = AccountCounts()
        self._pending: PendingSignIns = MemorySignIns() if pending is None else pending
        self._ttl_s = ttl_s
        self._network = network or NetworkPolicy()
        self._learn = learn
        self._clock = clock
        self._purge_at = 0.0

    def __repr__(self) -> str:
        return f"OAuthManager(providers={sorted(self.providers)}, token_store={type(self.token_store).__name__})"

    async def get_token(self, user_id: str, provider: str) -> str | None:
        """A valid token of a user, or None."""
        token = await self.token_store.get(user_id, provider)
        if token is None:
            self.counts.missed(provider)
        else:
            self.counts.hit(provider)
        return token

    async def get_auth_request(self, provider: str, user_id: str, trace_id: str = "") -> dict[str, Any]:
        """What a pause shows to a person: `display_name`, `auth_url`, `scopes` and `state`.

        The URL and the state are secrets of that person: not for a model, a log or an event.
        """
        config = self._provider(provider)
        if not user_id:
            raise ValueError("user_id required to begin a sign-in")
        scopes = tuple(config.scopes)
        caller = Caller(redirect_uri=config.redirect_uri, user=user_id, provider=provider, trace_id=trace_id)
        begun = begin_authorization(config.server(), config.client(), caller, scopes=scopes, clock=self._clock)
        transaction = begun.transaction
        await self._purge()
        sign_in = PendingSignIn(
            user_id=user_id,
            trace_id=trace_id,
            provider=provider,
            created_at=transaction.created,
            verifier=transaction.verifier if config.pkce else None,
        )
        await self._pending.put(transaction.state, sign_in)
        self.counts.paused(provider)
        return {
            "display_name": config.display_name,
            "auth_url": begun.url if config.pkce else _without(begun.url, _PKCE),
            "scopes": list(scopes),
            "state": transaction.state,
        }

    async def handle_callback(
        self,
        code: str,
        state: str,
        *,
        provider: str | None = None,
        user_id: str | None = None,
        iss: str | None = None,
        error: str = "",
        error_description: str = "",
    ) -> tuple[str, str]:
        """Redeem the code that a browser brought back, and keep the token; returns (user_id, trace_id) to resume with.

        OAuthCallbackError, a ValueError, says what is wrong. Give `user_id`, who is signed in to the application in
        that browser, so that nobody's account is connected by a link that somebody else made; and `iss`, `error` and
        `error_description` where the callback has them. Where there are several providers, `provider` is the one to
        whose `redirect_uri` the browser came back: one that sends the person on to another's sign-in would otherwise
        be handed the code that comes of it.
        """
        sign_in = await self._claimed(state)
        answer = _Answer(provider, user_id, iss, error, error_description)
        try:
            tokens = await self._redeemed(sign_in, code, answer)
        except BaseException as failed:
            if getattr(failed, "again", True):
                await self._pending.put(state, sign_in)
            self.counts.callback(getattr(failed, "cause", "interrupted"))
            raise
        await self._keep(sign_in, tokens)
        self.counts.callback()
        return sign_in.user_id, sign_in.trace_id

    async def _claimed(self, state: str) -> PendingSignIn:
        """The sign-in that a state belongs to; from here on nobody else has it."""
        sign_in = await self._pending.claim(state) if state else None
        if sign_in is None:
            self.counts.callback("state_invalid")
            raise OAuthCallbackError("Invalid or expired OAuth state", cause="state_invalid")
        if self._clock() - sign_in.created_at > self._ttl_s:
            self.counts.callback("expired")
            raise OAuthCallbackError("OAuth request expired", cause="expired")
        return sign_in

    async def _keep(self, sign_in: PendingSignIn, tokens: TokenSet) -> None:
        token = tokens.access_token.reveal()
        if self._learn:
            self._learn(passing({token}, until=tokens.expires_at, now=self._clock()))
        await self.token_store.store(sign_in.user_id, sign_in.provider, token, tokens.expires_at)

    async def _redeemed(self, sign_in: PendingSignIn, code: str, answer: _Answer) -> TokenSet:
        config = self._provider(sign_in.provider)
        _check(answer, sign_in, config, alone=len(self.providers) == 1)
        if not code:
            raise OAuthCallbackError("The browser came back without a code", cause="provider", again=True)
        flow = _exchange(config, sign_in, code, clock=self._clock)
        try:
            async with HttpClient(self._network.for_source(config.token_url)) as client:
                return await run_flow(flow, client)
        except ConfigError:
            raise
        except _UNANSWERED as failed:
            raise OAuthCallbackError(str(failed), cause="unreachable", again=True) from failed
        except ToolError as failed:
            raise OAuthCallbackError(str(failed), cause="provider") from failed

    def _provider(self, provider: str) -> OAuthProviderConfig:
        config = self.providers.get(provider)
        if config is None:
            raise ValueError(f"Unknown OAuth provider: {provider}")
        return config

    async def _purge(self) -> None:
        """Forget what nobody came back for; a while after it expired, so that latecomers are told the right thing."""
        now = self._clock()
        if now < self._purge_at:
            return
        self._purge_at = now + self._ttl_s / 10
        try:
            await self._pending.purge(now - 2 * self._ttl_s)
        except StoreError as failed:
            _log.warning("sign-ins that expired could not be removed: %s", failed)


class _Answer(NamedTuple):
    """What came with a code, or in place of one, and where."""

    provider: str | None
    user_id: str | None
    iss: str | None
    error: str
    description: str


def _refuse_shared_redirects(providers: Mapping[str, OAuthProviderConfig]) -> None:
    """RFC 9700 section 4.4.2.2: by its address it is known from whom an answer comes."""
    known: dict[str, str] = {}
    for name, config in sorted(providers.items()):
        other = known.setdefault(config.redirect_uri, name)
        if other != name:
            raise ConfigError(
                f"OAuth providers {other!r} and {name!r} have the same redirect_uri; give each one of its own"
            )


def _check(answer: _Answer, sign_in: PendingSignIn, config: OAuthProviderConfig, *, alone: bool) -> None:
    """Refuse what another person or another server brought; the right one may still come."""
    if answer.user_id is not None and answer.user_id != sign_in.user_id:
        said = "The sign-in was begun by another user. Ask for the tool again, and open your own link."
        raise OAuthCallbackError(said, cause="other_user", again=True)
    names_issuer = config.issuer is not None and answer.iss is not None  # RFC 9207 section 2.4
    if answer.provider is None and not alone and not names_issuer:
        said = (
            "There are several OAuth providers: say which one's redirect_uri the browser came back to (provider=...)."
        )
        raise OAuthCallbackError(said, cause="other_issuer", again=True)
    if answer.provider not in {None, sign_in.provider} or (names_issuer and answer.iss != config.issuer):
        where = config.issuer or sign_in.provider
        said = f"The answer does not come from {where!r}, where the sign-in was begun. It is not used."
        raise OAuthCallbackError(said, cause="other_issuer", again=True)
    if answer.error:
        cause: CallbackCause = "denied" if answer.error == "access_denied" else "provider"
        told = presentable(answer.description) or presentable(answer.error)
        raise OAuthCallbackError(f"OAuth error: {told}", cause=cause)


def _exchange(
    config: OAuthProviderConfig, sign_in: PendingSignIn, code: str, *, clock: Callable[[], float]
) -> Flow[TokenSet]:
    """The code for tokens; what the server says of the code ends the sign-in."""
    server, client, began = config.server(), config.client(), clock()
    form: Pairs = (("grant_type", "authorization_code"), ("code", code), ("redirect_uri", config.redirect_uri))
    hidden = [code, *([client.secret.reveal()] if client.secret else [])]
    if sign_in.verifier is not None:
        form = (*form, ("code_verifier", sign_in.verifier.reveal()))
        hidden.append(sign_in.verifier.reveal())
    reply: Reply = yield from ask_endpoint(config.token_url, server, client, form, clock=clock)
    problem = problem_of(reply, secrets=hidden)
    if problem.code:
        again = problem.code in _NOT_ABOUT_THE_CODE or reply.status == 429 or reply.status >= 500
        raise OAuthCallbackError(f"OAuth error: {problem.told}", cause="provider", again=again)
    wish = TokenWish(
        issuer=server.issuer, client_id=client.id, scopes=tuple(config.scopes), began=began, secrets=tuple(hidden)
    )
    return read_tokens(reply, wish)


def _without(url: str, names: frozenset[str]) -> str:
    parts = urlsplit(url)
    kept = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] not in names]
    return urlunsplit(parts._replace(query=urlencode(kept)))
