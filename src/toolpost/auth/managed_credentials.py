"""Credentials of users from an application's auth manager, for the sources of a Toolbox."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, cast, runtime_checkable

from toolpost.auth.account_counts import AccountCounts
from toolpost.auth.credentials import fingerprint
from toolpost.auth.oauth.flow import presentable
from toolpost.contracts.calls import AuthorizedCall, Credential, PermittedCall, RequestedCall
from toolpost.contracts.errors import ToolAuthError, ToolError
from toolpost.contracts.expiring_secret import AN_HOUR_S, expiring
from toolpost.contracts.questions import Question

_SENDABLE = re.compile(r"[!-~]+")
_REFUSED = 401


@runtime_checkable
class AuthManager(Protocol):
    """Source of users' tokens: two methods, async or not. `OAuthManager` is one."""

    def get_token(self, user_id: str, provider: str, /) -> Awaitable[str | None] | str | None:
        """Return a valid token of a user, or None."""
        ...

    def get_auth_request(
        self, provider: str, user_id: str, trace_id: str
    ) -> Awaitable[Mapping[str, Any]] | Mapping[str, Any]:
        """Return the sign-in request of a user, with its address as `auth_url`."""
        ...


class ManagedCredentials:
    """Implements `CredentialProvider` for one source of a Toolbox with any auth manager.

    The manager knows the caller as `tenant:user`. `learn` receives every token, for redaction.
    """

    def __init__(
        self,
        manager: AuthManager,
        provider: str,
        *,
        learn: Callable[[set[str]], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.provider = provider
        self.counts, self.tally = _shared_counts(manager)
        self.key = f"consent:{provider}"
        self._manager = manager
        self.learn = learn
        self._learned: dict[str, tuple[str, float]] = {}
        self._clock = clock

    async def credential(self, call: PermittedCall) -> Credential | Question:
        """Return the caller's credential or a consent question; raise ToolAuthError if an answer brought no token."""
        request = call.validated.request
        credential = await self.held(str(request.principal))
        if credential is not None:
            self._count_resumed(request)
            return credential
        if self.key in request.answers:
            raise self.not_completed()
        return await self._pause(request)

    async def renewed(self, call: AuthorizedCall, refused: ToolError) -> Credential | Question | None:
        """Return another credential than the rejected one, or a consent question; None if neither helps."""
        if refused.status_code != _REFUSED:
            return None
        credential = await self.held(str(call.request.principal))
        if credential is not None and credential != call.credential:
            return credential
        return None if self.key in call.request.answers else await self._pause(call.request)

    async def held(self, user_id: str) -> Credential | None:
        """Return the credential of a user, or None without a token."""
        token: object = await _settle(self._manager.get_token(user_id, self.provider))
        if not token:
            self.tally.missed(self.provider)
            return None
        if not isinstance(token, str) or not _SENDABLE.fullmatch(token):
            raise ToolAuthError(f"the token of {user_id!r} for {self.provider!r} cannot be sent in a header")
        self.tally.hit(self.provider)
        headers = {"Authorization": f"Bearer {token}"}
        self._learn_token(user_id, token, fingerprint(headers))
        return Credential(f"managed:{self.provider}:{user_id}", headers)

    async def question(self, user_id: str, trace_id: str) -> Question:
        """Return the consent question; its payload is for the user only."""
        request = await self._request(user_id, trace_id)
        state = request.get("state")
        if self.learn is not None and isinstance(state, str):
            self.learn(expiring({state}))
        name = presentable(str(request.get("display_name") or self.provider))
        return Question(
            kind="consent",
            prompt=f"{name} wants your consent. Sign in, and the call can resume.",
            reason="external_event",
            payload={**request, "pause_type": "oauth", "provider": self.provider},
            key=self.key,
            state={"asked_at": self._clock()},
        )

    def not_completed(self) -> ToolAuthError:
        """Return the error for a call that was resumed without a sign-in."""
        return ToolAuthError(f"OAuth for {self.provider} was not completed", code="oauth_not_completed")

    def _learn_token(self, user_id: str, token: str, mark: str) -> None:
        """Pass a token to redaction when it is new, and again while it is in use."""
        last_token, since = self._learned.get(user_id, ("", 0.0))
        now = self._clock()
        if self.learn is not None and (last_token != mark or not since <= now < since + AN_HOUR_S):
            self.learn(expiring({token}))
            self._learned[user_id] = (mark, now)

    async def _pause(self, request: RequestedCall) -> Question:
        question = await self.question(str(request.principal), _trace_of(request))
        self.tally.paused(self.provider)
        return question

    async def _request(self, user_id: str, trace_id: str) -> Mapping[str, Any]:
        try:
            request: object = await _settle(
                self._manager.get_auth_request(provider=self.provider, user_id=user_id, trace_id=trace_id)
            )
        except ToolError:
            raise
        except ValueError as refused:
            raise ToolAuthError(str(refused), cause=refused) from refused
        if not isinstance(request, Mapping):
            raise ToolAuthError(
                f"the auth manager returned no sign-in request for {self.provider!r}: "
                "get_auth_request must return a mapping"
            )
        return cast("Mapping[str, Any]", request)

    def _count_resumed(self, request: RequestedCall) -> None:
        """Record how long the call waited; the question contains its time, so this works in any process."""
        latest = list(request.answers)[-1:]  # earlier answers are already counted
        state: Any = request.answers[self.key].state if latest == [self.key] else None
        if isinstance(state, dict):
            asked_at = cast("dict[str, Any]", state).get("asked_at", self._clock())
            self.tally.resumed(max(0.0, self._clock() - float(asked_at)))


def _shared_counts(manager: object) -> tuple[AccountCounts, AccountCounts]:
    """Return the counts to show, and those to add to: a manager with counts updates them itself."""
    shared = getattr(manager, "counts", None)
    if isinstance(shared, AccountCounts):
        return shared, AccountCounts()
    counts = AccountCounts()
    return counts, counts


async def _settle(value: object) -> object:
    return await value if inspect.isawaitable(value) else value


def _trace_of(request: RequestedCall) -> str:
    """Return the trace ID that identifies the paused call for the application."""
    context = request.context
    if context is None:
        return request.run_id
    return str(context.tool_context.get("trace_id") or context.trace_id or request.run_id)
