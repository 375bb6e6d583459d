"""Credentials of users from an application's auth manager, and counts of sign-ins.

An auth manager knows people's tokens by user id and provider. `ManagedCredentials` serves the sources of a Toolbox;
`UserCredentials` serves the calls of a ToolNode, which pause by way of their context.
"""

from __future__ import annotations

import inspect
import re
import secrets
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, cast, runtime_checkable

from toolpost.auth.credentials import fingerprint
from toolpost.auth.oauth.flow import presentable
from toolpost.contracts.calls import AuthorizedCall, Credential, PermittedCall, RequestedCall
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ConfigError, PauseSignal, ToolAuthError, ToolError
from toolpost.contracts.expiring_secret import AN_HOUR_S, expiring
from toolpost.contracts.principal import LOCAL_TENANT
from toolpost.contracts.questions import Question
from toolpost.contracts.sources import CredentialProvider

_SENDABLE = re.compile(r"[!-~]+")
_REFUSED = 401
_MOST_TIMES = 10_000
_NOTHING: Mapping[str, Any] = {}


class AccountCounts:
    """Count pauses by service, callbacks by cause, token hits and misses, and the time until calls resume.

    One set is shared by all that serve the same accounts: an `OAuthManager`, and the nodes and sources that use it.
    """

    def __init__(self) -> None:
        self._pauses: Counter[str] = Counter()
        self._callbacks: Counter[str] = Counter()
        self._hits: Counter[str] = Counter()
        self._misses: Counter[str] = Counter()
        self._resumes = 0
        self._resumed_s: deque[float] = deque(maxlen=_MOST_TIMES)

    def paused(self, provider: str) -> None:
        """Count a call that paused for consent."""
        self._pauses[provider] += 1

    def callback(self, cause: str = "success") -> None:
        """Count a callback; `cause` is the error code of one that failed."""
        self._callbacks[cause] += 1

    def hit(self, provider: str) -> None:
        """Count a call that found a token."""
        self._hits[provider] += 1

    def missed(self, provider: str) -> None:
        """Count a call that found no token."""
        self._misses[provider] += 1

    def resumed(self, after_s: float) -> None:
        """Record how long a call waited before it resumed."""
        self._resumes += 1
        self._resumed_s.append(after_s)

    def dump(self) -> dict[str, Any]:
        """Return all that was counted as plain data, for `add` in another process."""
        tallies = {name: dict(tally) for name, tally in self._tallies().items()}
        return {**tallies, "resumes": self._resumes, "resumed_s": list(self._resumed_s)}

    def add(self, counted: Mapping[str, Any]) -> None:
        """Add what another set has counted, as `dump` returns it."""
        for name, tally in self._tallies().items():
            tally.update(counted[name])
        self._resumes += counted["resumes"]
        self._resumed_s.extend(counted["resumed_s"])

    def _tallies(self) -> dict[str, Counter[str]]:
        return {
            "pauses": self._pauses,
            "callbacks": self._callbacks,
            "token_hits": self._hits,
            "token_misses": self._misses,
        }

    def snapshot(self) -> dict[str, Any]:
        """Return all counts as plain data; times in seconds."""
        lookups = sum(self._hits.values()) + sum(self._misses.values())
        return {
            **{name: dict(tally) for name, tally in self._tallies().items()},
            "resumes": self._resumes,
            "token_hit_rate": sum(self._hits.values()) / lookups if lookups else None,
            "time_to_resume_s": {f"p{share}": _quantile(self._resumed_s, share / 100) for share in (50, 95, 99)},
        }


@runtime_checkable
class AuthManager(Protocol):
    """Source of users' tokens: two methods, async or not. `OAuthManager` is one."""

    def get_token(self, user_id: str, provider: str, /) -> Awaitable[str | None] | str | None:
        """Return a valid token of a user, or None."""
        ...

    def get_auth_request(
        self, provider: str, user_id: str, trace_id: str
    ) -> Awaitable[Mapping[str, Any]] | Mapping[str, Any]:
        """Return what a person who must sign in is shown; `auth_url` is where."""
        ...


class ManagedCredentials:
    """Fulfils `CredentialProvider` for one source of a Toolbox with any auth manager.

    The manager knows the caller as `tenant:user`. `learn` is given every token, so that redaction knows it.
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
        self.counts, self.tally = _shared_counts(manager, counts)
        self.key = f"consent:{provider}"
        self._manager = manager
        self.learn = learn
        self._learned: dict[str, tuple[str, float]] = {}
        self._clock = clock

    async def credential(self, call: PermittedCall) -> Credential | Question:
        """Return the caller's credential or a consent question; ToolAuthError if that did not lead to a token."""
        request = call.validated.request
        credential = await self.held(str(request.principal))
        if credential is not None:
            self._count_resumed(request)
            return credential
        if self.key in request.answers:
            raise self.not_completed()
        return await self._ask(request)

    async def renewed(self, call: AuthorizedCall, refused: ToolError) -> Credential | Question | None:
        """Return another credential than the refused one, or a consent question; None when neither helps."""
        if refused.status_code != _REFUSED:
            return None
        credential = await self.held(str(call.request.principal))
        if credential is not None and credential != call.credential:
            return credential
        return None if self.key in call.request.answers else await self._ask(call.request)

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
        """Return the consent question; its payload is for the person alone."""
        request = await self._request(user_id, trace_id)
        state = request.get("state")
        if self.learn is not None and isinstance(state, str):
            self.learn(expiring({state}))
        name = presentable(str(request.get("display_name") or self.provider))
        return Question(
            kind="consent",
            prompt=f"{name} wants your consent. Sign in, and the call can go on.",
            reason="external_event",
            payload={**request, "pause_type": "oauth", "provider": self.provider},
            key=self.key,
            state={"asked_at": self._clock()},
        )

    def not_completed(self) -> ToolAuthError:
        """Return the error for a call that went on without a sign-in."""
        return ToolAuthError(f"OAuth for {self.provider} was not completed", code="oauth_not_completed")

    def _learn_token(self, user_id: str, token: str, mark: str) -> None:
        """Give a token to redaction when it is new, and again while it is in use."""
        last_token, since = self._learned.get(user_id, ("", 0.0))
        now = self._clock()
        if self.learn is not None and (last_token != mark or not since <= now < since + AN_HOUR_S):
            self.learn(expiring({token}))
            self._learned[user_id] = (mark, now)

    async def _ask(self, request: RequestedCall) -> Question:
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
            raise ToolAuthError(f"the auth manager says nothing of how to sign in to {self.provider!r}")
        return cast("Mapping[str, Any]", request)

    def _count_resumed(self, request: RequestedCall) -> None:
        """Record how long the call waited; the question holds its time, so that any process can tell."""
        latest = list(request.answers)[-1:]  # an answer that was given before has been counted
        state: Any = request.answers[self.key].state if latest == [self.key] else None
        if isinstance(state, dict):
            asked_at = cast("dict[str, Any]", state).get("asked_at", self._clock())
            self.tally.resumed(max(0.0, self._clock() - float(asked_at)))


def _shared_counts(manager: object, counts: AccountCounts | None) -> tuple[AccountCounts, AccountCounts]:
    """Return the counts to show, and those to add to: a manager with counts counts by itself, so nothing is added."""
    shared = getattr(manager, "counts", None)
    if isinstance(shared, AccountCounts):
        return shared, AccountCounts()
    own = counts or AccountCounts()
    return own, own


class CallCredentials:
    """Fulfils `CredentialProvider` with the credential that each call was given when it started."""

    def __init__(self) -> None:
        self._credentials: dict[str, Credential] = {}

    @contextmanager
    def use(self, credential: Credential) -> Generator[str]:
        """Give a credential to the one call with the correlation id that is yielded."""
        correlation_id = f"own_{secrets.token_hex(12)}"
        self._credentials[correlation_id] = credential
        try:
            yield correlation_id
        finally:
            del self._credentials[correlation_id]

    async def credential(self, call: PermittedCall) -> Credential:
        """Return the credential that this call was given."""
        credential = self._credentials.get(call.validated.request.correlation_id)
        if credential is None:
            raise ToolAuthError("nobody signed in for this call")
        return credential


class UserCredentials:
    """Credentials of the users of a ToolNode, each with an account of their own.

    `provider` serves the node's source: with what each call was given, or with an application's own provider.
    """

    def __init__(
        self,
        config: ExternalToolConfig,
        manager: AuthManager | CredentialProvider | None,
        learn: Callable[[set[str]], None],
    ) -> None:
        self._config = config
        self._manager = manager
        self._managed: ManagedCredentials | None = None
        self._asked_at: OrderedDict[str, float] = OrderedDict()
        self.counts = AccountCounts()
        self.calls = CallCredentials()
        self.provider: CredentialProvider = self.calls
        if isinstance(manager, AuthManager):
            self._managed = ManagedCredentials(manager, config.name, learn=learn)
            self.counts = self._managed.counts
        elif manager is not None:
            self.provider = manager

    async def discovery_config(self, ctx: ToolContext | None) -> ExternalToolConfig:
        """Return the configuration that lists tools: with the operator's token, the user's, or without any."""
        auth_config = dict(self._config.auth_config)
        operators: Any = auth_config.pop("discovery_auth", None)
        if operators is not None:
            auth_config["discovery"] = _token_in(operators, self._config.name)
        elif self._managed is not None and (credential := await self._find_credential(self._managed, ctx)) is not None:
            auth_config["discovery"] = credential.headers["Authorization"].removeprefix("Bearer ")
        return self._config.model_copy(update={"auth_config": auth_config})

    async def credential(self, ctx: ToolContext | None, *, refused: Credential | None = None) -> Credential | None:
        """Return the credential of a context's user, another than a refused one; without a token the call pauses.

        None where an application's own provider serves the call.
        """
        managed = self._managed
        if managed is None:
            if self._manager is None:
                name = self._config.name
                raise ToolAuthError(f"ToolNode '{name}' requires user OAuth but no auth_manager was provided")
            user_of(ctx)
            return None
        user_id, trace_id = user_of(ctx)
        credential = await managed.held(user_id)
        if credential is not None and credential != refused:
            if (asked_at := self._asked_at.pop(user_id, None)) is not None:
                managed.tally.resumed(time.monotonic() - asked_at)
            return credential
        if isinstance(ctx, ToolContext) and ctx.has_answer(managed.key):
            raise managed.not_completed()
        await self._pause(managed, ctx, await managed.question(user_id, trace_id), user_id)
        credential = await managed.held(user_id)
        if credential is None or credential == refused:
            raise managed.not_completed()
        return credential

    async def _find_credential(self, managed: ManagedCredentials, ctx: ToolContext | None) -> Credential | None:
        try:
            user_id, _ = user_of(ctx)
        except ToolAuthError:
            return None
        return await managed.held(user_id)

    async def _pause(self, managed: ManagedCredentials, ctx: Any, question: Question, user_id: str) -> None:
        try:
            if isinstance(ctx, ToolContext):
                await ctx.pause(
                    question.reason, question.payload, prompt=question.prompt, kind="consent", key=question.key
                )
            else:
                await ctx.pause(question.reason, dict(question.payload))
        except PauseSignal:
            managed.tally.paused(self._config.name)
            self._asked_at.setdefault(user_id, time.monotonic())
            while len(self._asked_at) > _MOST_TIMES:
                self._asked_at.popitem(last=False)
            raise


def may_list_later(config: ExternalToolConfig, refused: ToolError) -> bool:
    """Return whether a listing that failed may succeed once a user has signed in."""
    needs_token = "token_env" in config.auth_config  # without its token such a server may not even start
    return "discovery" not in config.auth_config and (isinstance(refused, ToolAuthError) or needs_token)


def _token_in(value: Any, name: str) -> str:
    token = cast("dict[str, Any]", value).get("token") if isinstance(value, dict) else value
    if not isinstance(token, str) or not token:
        raise ConfigError(f"auth_config.discovery_auth of {name!r} is a table with a token: {{token: ...}}")
    return token


def user_of(ctx: Any) -> tuple[str, str]:
    """Return the user of a context, as `tenant:user` where it names a tenant, and its trace id."""
    inner: Mapping[str, Any] = getattr(ctx, "tool_context", None) or _NOTHING
    user_id: Any = getattr(ctx, "user_id", None) or inner.get("user_id")
    if not user_id:
        raise ToolAuthError("user_id required in tool_context for OAuth")
    trace_id = str(inner.get("trace_id") or getattr(ctx, "trace_id", "") or "")
    return _within(getattr(ctx, "tenant_id", None), str(user_id)), trace_id


def _within(tenant: str | None, user_id: str) -> str:
    """Qualify a user with a tenant: two tenants may each have an `ann`."""
    if tenant in {None, "", LOCAL_TENANT} or user_id.startswith(f"{tenant}:"):
        return user_id
    if ":" in f"{tenant}{user_id}":
        raise ToolAuthError(f"user {user_id!r} is not of the tenant {tenant!r}; give the one or the other")
    return f"{tenant}:{user_id}"


def own_context(ctx: Any) -> ToolContext:
    """Return a ToolContext for the same user, where another planner gave a context of its own."""
    if isinstance(ctx, ToolContext):
        return ctx
    user_id, trace_id = user_of(ctx)
    return ToolContext(user_id=user_id, trace_id=trace_id, llm_context=getattr(ctx, "llm_context", None))


async def _settle(value: object) -> object:
    """Return what a method returned, awaited if it is awaitable."""
    return await value if inspect.isawaitable(value) else value


def _trace_of(request: RequestedCall) -> str:
    """Return the trace id by which the application finds the paused call."""
    context = request.context
    if context is None:
        return request.run_id
    return str(context.tool_context.get("trace_id") or context.trace_id or request.run_id)


def _quantile(values: Collection[float], share: float) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
