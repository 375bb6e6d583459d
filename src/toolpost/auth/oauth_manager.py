"""OAuthManager: user sign-ins for applications that handle callbacks and resume paused calls themselves.

A façade over the authorization requests, pending sign-ins, code exchange and token vault of accounts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from msgspec.structs import replace

from toolpost.auth.account_counts import AccountCounts
from toolpost.auth.oauth.authorization import TRANSACTION_TTL_S, SignInContext, begin_authorization
from toolpost.auth.oauth.client import AUTH_METHODS, AuthMethod, Client
from toolpost.auth.oauth.flow import problem_behind
from toolpost.auth.oauth.metadata import ServerMetadata, configured_server, is_loopback_url
from toolpost.auth.pending_sign_ins import (
    MemorySignIns,
    PendingSignIn,
    PendingSignIns,
    find_sign_in,
    is_code_spent,
    redeem,
)
from toolpost.auth.providers import KNOWN_PROVIDERS
from toolpost.auth.secret import Secret, secret_from
from toolpost.auth.token_stores import InMemoryTokenStore
from toolpost.contracts import errors
from toolpost.contracts.expiring_secret import expiring
from toolpost.contracts.storage import TokenStore
from toolpost.wire.client import HttpClient
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.targets import parse_target

CallbackCause = Literal["state_invalid", "expired", "other_user", "other_issuer", "denied", "provider", "unreachable"]
_UNANSWERED = (
    errors.ToolConnectionError,
    errors.ToolTimeoutError,
    errors.ToolServerError,
    errors.ToolRateLimitError,
    errors.ToolPermissionError,
)
_log = logging.getLogger("toolpost.auth")


class OAuthCallbackError(ValueError):
    """A callback that connected no account; `again` says whether the same callback may be retried."""

    def __init__(self, message: str, *, cause: CallbackCause, again: bool = False) -> None:
        super().__init__(message)
        self.cause = cause
        self.again = again


@dataclass(frozen=True, slots=True)
class OAuthProviderConfig:
    """The OAuth client that an operator registered at a provider.

    `client_secret` may be a reference (`env:NAME`, `file:PATH`, `keyring:SERVICE/NAME`); without a secret the client is
    public. Servers that do not support `pkce` ignore it. With an `issuer`, callbacks of other issuers are rejected.
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
        for member in ("auth_url", "token_url", "client_id", "redirect_uri", "scopes"):
            if "${" in str(getattr(self, member)):  # only the secret may be a reference
                raise errors.ConfigError(
                    f"{member} of OAuth provider {self.name!r} has a `${{`; pass the value itself, as from os.environ"
                )
        for place in ("auth_url", "token_url", "redirect_uri"):
            try:
                parse_target(getattr(self, place))
            except errors.ToolPermissionError as refused:
                reason = str(refused).partition(" is refused: ")[2]
                raise errors.ConfigError(f"{place} of OAuth provider {self.name!r} is invalid: {reason}") from None
        if not self.redirect_uri.lower().startswith("https:") and not is_loopback_url(self.redirect_uri):
            raise errors.ConfigError(f"redirect_uri of OAuth provider {self.name!r} must be https, or on this machine")
        if self.client_auth not in AUTH_METHODS:
            raise errors.ConfigError(
                f"client_auth of OAuth provider {self.name!r} is one of: {', '.join(AUTH_METHODS)}"
            )

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
        endpoints = KNOWN_PROVIDERS.get(provider)
        if endpoints is None:
            names = ", ".join(KNOWN_PROVIDERS)
            raise errors.ConfigError(f"no endpoints are known for OAuth provider {provider!r}; there are: {names}")
        return cls(
            name=provider,
            display_name=endpoints.display_name,
            auth_url=endpoints.auth_url,
            token_url=endpoints.token_url,
            client_id=client_id,
            client_secret=client_secret,
            redirect_uri=redirect_uri,
            scopes=list(scopes),
            client_auth=endpoints.client_auth or "client_secret_post",
            issuer=endpoints.issuer or None,
        )

    def server(self) -> ServerMetadata:
        """Return the metadata of the authorization server."""
        return configured_server(
            authorization_endpoint=self.auth_url, token_endpoint=self.token_url, issuer=self.issuer
        )

    def client(self) -> Client:
        """Return the client with its secret read; ConfigError if it is missing."""
        secret: Secret | str | None = self.client_secret
        if not isinstance(secret, Secret):
            secret = secret_from(secret, allow_plain=True) if secret else None
        return Client(id=self.client_id, secret=secret, auth_method=self.client_auth if secret else "none")


class OAuthManager:
    """Sign-ins of users at OAuth providers, for applications that resume paused calls themselves.

    1. A tool calls `get_token`, which returns None if its user has not signed in.
    2. It calls `get_auth_request` for the URL that the user must open.
    3. It pauses with that request.
    4. The user consents in a browser, which is redirected to `redirect_uri` with a code.
    5. The application passes code and state to `handle_callback`, which stores the token. With several providers, it
       also passes the provider of that `redirect_uri`.
    6. The application resumes the paused call.
    7. The tool runs again and finds the token.

    If `pending` and `token_store` are in a shared store, the callback may reach another process. Only access tokens and
    their expiry are stored; the accounts of a Toolbox also refresh and revoke tokens. `learn` receives every token, for
    redaction.
    """

    def __init__(
        self,
        providers: Mapping[str, OAuthProviderConfig],
        token_store: TokenStore | None = None,
        *,
        pending: PendingSignIns | None = None,
        ttl_s: float = TRANSACTION_TTL_S,
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
        """Return a valid token of a user, or None."""
        token = await self.token_store.get(user_id, provider)
        if token is None:
            self.counts.missed(provider)
        else:
            self.counts.hit(provider)
        return token

    async def get_auth_request(self, provider: str, user_id: str, trace_id: str = "") -> dict[str, Any]:
        """Start a sign-in and return the payload of a pause: `display_name`, `auth_url`, `scopes` and `state`.

        URL and state are secrets of that user: do not show them to a model, a log or an event.
        """
        sign_in, shown = self.begin(provider, user_id, trace_id)
        await self._purge()
        await self._pending.put(sign_in)
        return shown

    def begin(self, provider: str, user_id: str, trace_id: str = "") -> tuple[PendingSignIn, dict[str, Any]]:
        """Return a sign-in, for callers that store it by other means, and the result of `get_auth_request`."""
        config = self._provider(provider)
        if not user_id:
            raise ValueError("user_id required to begin a sign-in")
        request = begin_authorization(
            config.server(),
            replace(config.client(), secret=None),  # read again when the code is exchanged, and not stored
            SignInContext(redirect_uri=config.redirect_uri, user=user_id, provider=provider, trace_id=trace_id),
            scopes=tuple(config.scopes),
            pkce=config.pkce,
            ttl_s=self._ttl_s,
            clock=self._clock,
        )
        self.counts.paused(provider)
        return PendingSignIn(transaction=request.transaction), {
            "display_name": config.display_name,
            "auth_url": request.url,
            "scopes": list(config.scopes),
            "state": request.transaction.state,
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
        """Exchange the code of a callback, store the token and return (user_id, trace_id) to resume with.

        Raise OAuthCallbackError, a ValueError, if the callback is invalid. Pass `user_id`, the user signed in to the
        application in that browser, so that no account is connected through another user's link. Pass `iss`, `error`
        and `error_description` if the callback has them. With several providers, pass the `provider` of the
        `redirect_uri`: an issuer that forwards the user to the sign-in of another one would otherwise receive its code.
        """
        fields = {"state": state, "code": code, "iss": iss, "error": error, "error_description": error_description}
        parameters = {name: value for name, value in fields.items() if value}
        if iss is not None:
            parameters["iss"] = iss
        try:
            signed_in = await self._finish(parameters, provider=provider, user_id=user_id)
        except BaseException as failed:
            self.counts.callback(getattr(failed, "cause", "interrupted"))
            raise
        self.counts.callback()
        return signed_in

    async def _finish(
        self, parameters: Mapping[str, str], *, provider: str | None, user_id: str | None
    ) -> tuple[str, str]:
        try:
            pending = await find_sign_in(self._pending, parameters.get("state", ""))
        except errors.ToolAuthError as failed:
            raise _callback_error(failed, again=False) from None
        caller = pending.transaction.caller
        config = self._provider(caller.provider)
        self._check(pending, config, parameters, provider=provider, user_id=user_id)
        registered, network = config.client(), self._network.for_source(config.token_url)
        try:
            async with HttpClient(network) as client:
                tokens = await redeem(
                    self._pending, pending, parameters, client=client, clock=self._clock, registered=registered
                )
        except errors.ConfigError:
            raise
        except errors.ToolError as failed:
            again = failed.error_code == "oauth_issuer_mismatch" or not is_code_spent(failed, pending.transaction)
            if not again:
                await self._pending.claim(pending)
            raise _callback_error(failed, again=again) from failed
        token = tokens.access_token.reveal()
        if self._learn:
            self._learn(expiring({token}, until=tokens.expires_at, now=self._clock()))
        await self.token_store.store(caller.user, caller.provider, token, tokens.expires_at)
        self.counts.resumed(max(0.0, self._clock() - pending.transaction.created))
        return caller.user, caller.trace_id

    def _check(
        self,
        pending: PendingSignIn,
        config: OAuthProviderConfig,
        parameters: Mapping[str, str],
        *,
        provider: str | None,
        user_id: str | None,
    ) -> None:
        """Reject a callback of another user or provider; the valid one may still arrive."""
        caller = pending.transaction.caller
        if user_id is not None and user_id != caller.user:
            message = "The sign-in was started by another user. Call the tool again, and open your own link."
            raise OAuthCallbackError(message, cause="other_user", again=True)
        names_issuer = config.issuer is not None and "iss" in parameters  # RFC 9207 section 2.4
        if provider is None and len(self.providers) > 1 and not names_issuer:
            message = (
                "There are several OAuth providers: "
                "pass the provider of the redirect_uri of this callback (provider=...)."
            )
            raise OAuthCallbackError(message, cause="other_issuer", again=True)
        if provider not in {None, caller.provider}:
            where = config.issuer or caller.provider
            message = f"The callback is not from {where!r}, where the sign-in was started. It is not used."
            raise OAuthCallbackError(message, cause="other_issuer", again=True)
        if not {"code", "error"} & parameters.keys():
            raise OAuthCallbackError("The callback contains no code", cause="provider", again=True)

    def _provider(self, provider: str) -> OAuthProviderConfig:
        config = self.providers.get(provider)
        if config is None:
            raise ValueError(f"Unknown OAuth provider: {provider}")
        return config

    def due_purge(self) -> float | None:
        """Return the time before which expired sign-ins are deleted; None before the next purge is due.

        They are deleted some time after they expire: until then, a late callback gets the error that it is late.
        """
        now = self._clock()
        if now < self._purge_at:
            return None
        self._purge_at = now + self._ttl_s / 10
        return now - self._ttl_s

    async def _purge(self) -> None:
        before = self.due_purge()
        if before is None:
            return
        try:
            await self._pending.purge(before)
        except errors.StoreError as failed:
            _log.warning("expired sign-ins could not be deleted: %s", failed)


def _refuse_shared_redirects(providers: Mapping[str, OAuthProviderConfig]) -> None:
    """Reject a shared redirect URI: it identifies the issuer of a callback (RFC 9700 section 4.4.2.2)."""
    provider_of: dict[str, str] = {}
    for name, config in sorted(providers.items()):
        other = provider_of.setdefault(config.redirect_uri, name)
        if other != name:
            raise errors.ConfigError(
                f"OAuth providers {other!r} and {name!r} have the same redirect_uri; give each a separate one"
            )


def _callback_error(failed: errors.ToolError, *, again: bool) -> OAuthCallbackError:
    """Return the public error of a failed callback."""
    problem = problem_behind(failed)
    if problem is not None:
        cause: CallbackCause = "denied" if failed.error_code == "oauth_denied" else "provider"
        return OAuthCallbackError(f"OAuth error: {problem.message}", cause=cause, again=again)
    match failed.error_code:
        case "oauth_state":
            return OAuthCallbackError(str(failed), cause="state_invalid")
        case "oauth_expired":
            return OAuthCallbackError("OAuth request expired", cause="expired")
        case "oauth_issuer_mismatch":
            return OAuthCallbackError(str(failed), cause="other_issuer", again=again)
        case _:
            cause = "unreachable" if isinstance(failed, _UNANSWERED) else "provider"
            return OAuthCallbackError(str(failed), cause=cause, again=again)
