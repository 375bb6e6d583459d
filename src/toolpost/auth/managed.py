"""Credentials from an auth manager: each caller's own token, or the question that gets one."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from toolpost.auth.account_counts import AccountCounts
from toolpost.auth.oauth.refusals import presentable
from toolpost.auth.static import fingerprint
from toolpost.contracts.calls import Credential
from toolpost.contracts.errors import ToolAuthError, ToolError
from toolpost.contracts.passing import AN_HOUR_S, passing
from toolpost.contracts.questions import Question

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolpost.contracts.calls import AuthorizedCall, PermittedCall, RequestedCall

_SENDABLE = re.compile(r"[!-~]+")
_REFUSED = 401


@runtime_checkable
class AuthManager(Protocol):
    """Whoever knows people's tokens: two methods, found by name, async or not. `OAuthManager` is one."""

    def get_token(self, user_id: str, provider: str, /) -> Awaitable[str | None] | str | None:
        """A valid token of a user, or None."""
        ...

    def get_auth_request(
        self, provider: str, user_id: str, trace_id: str
    ) -> Awaitable[Mapping[str, Any]] | Mapping[str, Any]:
        """What a person is shown who must sign in first; `auth_url` is where."""
        ...


class ManagedCredentials:
    """Fulfils `CredentialProvider` for one source of a Toolbox with any auth manager.

    The manager knows the caller as `tenant:user`. `learn` is given every token that passes, so that whoever redacts
    knows it; a Toolbox has one once it is open.
    """

    def __init__(
        self,
        manager: AuthManager,
        provider: str,
        *,
        learn: Callable[[set[str]], None] | None = None,
        counts: AccountCounts | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.provider = provider
        self.counts = counts or AccountCounts()
        self.key = f"consent:{provider}"
        self._manager = manager
        self.learn = learn
        self._learned: dict[str, tuple[str, float]] = {}
        self._clock = clock

    async def credential(self, call: PermittedCall) -> Credential | Question:
        """The caller's token, or the question that gets one; ToolAuthError when that was answered in vain."""
        request = call.validated.request
        held = await self.held(str(request.principal))
        if held is not None:
            self._count_resumed(request)
            return held
        if self.key in request.answers:
            raise self.not_completed()
        return await self._ask(request)

    async def renewed(self, call: AuthorizedCall, refused: ToolError) -> Credential | Question | None:
        """Another token than the one that was refused, or the question that gets one; None when nothing helps."""
        if refused.status_code != _REFUSED:
            return None
        held = await self.held(str(call.request.principal))
        if held is not None and held != call.credential:
            return held
        return None if self.key in call.request.answers else await self._ask(call.request)

    async def held(self, user_id: str) -> Credential | None:
        """What a user's calls travel with, if there is a token."""
        found: object = await _settled(self._manager.get_token(user_id, self.provider))
        if not found:
            self.counts.missed(self.provider)
            return None
        if not isinstance(found, str) or not _SENDABLE.fullmatch(found):
            raise ToolAuthError(f"the token of {user_id!r} for {self.provider!r} cannot be sent in a header")
        self.counts.hit(self.provider)
        headers = {"Authorization": f"Bearer {found}"}
        self._tell(user_id, found, fingerprint(headers))
        return Credential(f"managed:{self.provider}:{user_id}", headers)

    async def question(self, user_id: str, trace_id: str) -> Question:
        """The question that gets a token; its payload is for the person alone."""
        told = await self._request(user_id, trace_id)
        state = told.get("state")
        if self.learn is not None and isinstance(state, str):
            self.learn(passing({state}))
        name = presentable(str(told.get("display_name") or self.provider))
        return Question(
            kind="consent",
            prompt=f"{name} wants your consent. Sign in, and the call can go on.",
            reason="external_event",
            payload={**told, "pause_type": "oauth", "provider": self.provider},
            key=self.key,
            state={"asked_at": self._clock()},
        )

    def not_completed(self) -> ToolAuthError:
        """What to say when a person went on without signing in."""
        return ToolAuthError(f"OAuth for {self.provider} was not completed", code="oauth_not_completed")

    def _tell(self, user_id: str, token: str, mark: str) -> None:
        """Let whoever redacts know a token when it is new, and while it is in use."""
        known, since = self._learned.get(user_id, ("", 0.0))
        now = self._clock()
        if self.learn is not None and (known != mark or not since <= now < since + AN_HOUR_S):
            self.learn(passing({token}))
            self._learned[user_id] = (mark, now)

    async def _ask(self, request: RequestedCall) -> Question:
        asked = await self.question(str(request.principal), _trace_of(request))
        self.counts.paused(self.provider)
        return asked

    async def _request(self, user_id: str, trace_id: str) -> Mapping[str, Any]:
        try:
            told: object = await _settled(
                self._manager.get_auth_request(provider=self.provider, user_id=user_id, trace_id=trace_id)
            )
        except ToolError:
            raise
        except ValueError as refused:
            raise ToolAuthError(str(refused), cause=refused) from refused
        if not isinstance(told, Mapping):
            raise ToolAuthError(f"the auth manager says nothing of how to sign in to {self.provider!r}")
        return cast("Mapping[str, Any]", told)

    def _count_resumed(self, request: RequestedCall) -> None:
        """How long the call waited; its time is kept with the question, so that any process can tell."""
        latest = list(request.answers)[-1:]  # an answer that was given before has been counted
        state: Any = request.answers[self.key].state if latest == [self.key] else None
        if isinstance(state, dict):
            asked_at = cast("dict[str, Any]", state).get("asked_at", self._clock())
            self.counts.resumed(max(0.0, self._clock() - float(asked_at)))


async def _settled(value: object) -> object:
    """What a method returned, awaited if it must be."""
    return await value if inspect.isawaitable(value) else value


def _trace_of(request: RequestedCall) -> str:
    """What the application finds the paused call by."""
    context = request.context
    if context is None:
        return request.run_id
    return str(context.tool_context.get("trace_id") or context.trace_id or request.run_id)
