"""The users of a node whose calls act for one person at a time: each travels with that person's own token."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolpost.auth.account_counts import AccountCounts
from toolpost.auth.managed import AuthManager, ManagedCredentials
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ConfigError, PauseSignal, ToolAuthError
from toolpost.contracts.principal import LOCAL_TENANT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping

    from toolpost.contracts.calls import Credential, PermittedCall
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.errors import ToolError
    from toolpost.contracts.outcomes import Completed
    from toolpost.contracts.questions import Question
    from toolpost.contracts.sources import CredentialProvider
    from toolpost.policy.redaction import Redactor

    Run = Callable[[str, Any, ToolContext | None], Awaitable[Completed]]


class HandedCredentials:
    """Fulfils `CredentialProvider` with what each call was handed as it began."""

    def __init__(self) -> None:
        self._handed: dict[str, Credential] = {}

    @contextmanager
    def during(self, credential: Credential) -> Generator[str]:
        """Hand a credential to the one call with this correlation id."""
        ticket = f"own_{secrets.token_hex(12)}"
        self._handed[ticket] = credential
        try:
            yield ticket
        finally:
            del self._handed[ticket]

    async def credential(self, call: PermittedCall) -> Credential:
        """What this very call was handed."""
        handed = self._handed.get(call.validated.request.correlation_id)
        if handed is None:
            raise ToolAuthError("nobody signed in for this call")
        return handed


class Consent:
    """Gets a person's token by way of the context of the call that needs it."""

    def __init__(self, managed: ManagedCredentials) -> None:
        self._managed = managed

    async def credential(self, ctx: ToolContext | None, *, refused: Credential | None = None) -> Credential:
        """The token of the user of a context, another than a refused one; without one the call pauses."""
        user_id, trace_id = user_of(ctx)
        held = await self._managed.held(user_id)
        if held is not None and held != refused:
            return held
        asked = await self._managed.question(user_id, trace_id)
        await self._pause(ctx, asked)
        held = await self._managed.held(user_id)
        if held is None or held == refused:
            raise self._managed.not_completed()
        return held

    async def look(self, ctx: ToolContext | None) -> Credential | None:
        """The token of the user of a context, if there is one; nobody is asked."""
        try:
            user_id, _ = user_of(ctx)
        except ToolAuthError:
            return None
        return await self._managed.held(user_id)

    async def _pause(self, ctx: Any, asked: Question) -> None:
        try:
            if isinstance(ctx, ToolContext):
                await ctx.pause(asked.reason, asked.payload, prompt=asked.prompt, kind="consent", key=asked.key)
            else:
                await ctx.pause(asked.reason, dict(asked.payload))
        except PauseSignal:
            self._managed.counts.paused(self._managed.provider)
            raise


class Listing(NamedTuple):
    """How a node lists its tools: with a token of somebody's, or as a stranger."""

    config: ExternalToolConfig
    is_stranger: bool

    def may_wait(self, refused: ToolError) -> bool:
        """Whether a listing that failed can be had once somebody has signed in."""
        needs_token = "token_env" in self.config.auth_config  # without its token such a server may not even start
        return self.is_stranger and (isinstance(refused, ToolAuthError) or needs_token)


class People:
    """The users of a node, each with an account of their own.

    `provider` lends their credentials to calls: those that calls were handed, or whatever an application's own
    provider has.
    """

    def __init__(
        self, config: ExternalToolConfig, manager: AuthManager | CredentialProvider | None, redactor: Redactor
    ) -> None:
        self._config = config
        self._consent: Consent | None = None
        self._manager = manager
        self.handed = HandedCredentials()
        self.counts = AccountCounts()
        self.provider: CredentialProvider = self.handed
        if isinstance(manager, AuthManager):
            managed = ManagedCredentials(manager, config.name, learn=redactor.learn, counts=self.counts)
            self._consent = Consent(managed)
        elif manager is not None:
            self.provider = manager

    async def listing(self, ctx: ToolContext | None) -> Listing:
        """How to list the tools: with the operator's token for that, with that of the user, or as a stranger."""
        given = dict(self._config.auth_config)
        operators: Any = given.pop("discovery_auth", None)
        if operators is not None:
            given["discovery"] = _token_in(operators, self._config.name)
        elif self._consent is not None and (held := await self._consent.look(ctx)) is not None:
            given["discovery"] = held.headers["Authorization"].removeprefix("Bearer ")
        return Listing(self._config.model_copy(update={"auth_config": given}), "discovery" not in given)

    async def credential(self, ctx: ToolContext | None, *, refused: Credential | None = None) -> Credential | None:
        """What a call is handed; None where an application's own provider lends it."""
        if self._consent is not None:
            return await self._consent.credential(ctx, refused=refused)
        if self._manager is None:
            name = self._config.name
            raise ToolAuthError(f"ToolNode '{name}' requires user OAuth but no auth_manager was provided")
        user_of(ctx)
        return None


def _token_in(given: Any, name: str) -> str:
    token = cast("dict[str, Any]", given).get("token") if isinstance(given, dict) else given
    if not isinstance(token, str) or not token:
        raise ConfigError(f"auth_config.discovery_auth of {name!r} is a table with a token: {{token: ...}}")
    return token


def user_of(ctx: Any) -> tuple[str, str]:
    """Whom a context is for, as `tenant:user` where it names a tenant, and its trace; a user must be there."""
    inner: Mapping[str, Any] = getattr(ctx, "tool_context", None) or _NOTHING
    user_id: Any = getattr(ctx, "user_id", None) or inner.get("user_id")
    if not user_id:
        raise ToolAuthError("user_id required in tool_context for OAuth")
    return _within(getattr(ctx, "tenant_id", None), str(user_id)), str(
        inner.get("trace_id") or getattr(ctx, "trace_id", "") or ""
    )


def _within(tenant: str | None, user_id: str) -> str:
    """A user by the name that no other tenant's has; two tenants may each have an `ann`."""
    if tenant in {None, "", LOCAL_TENANT} or user_id.startswith(f"{tenant}:"):
        return user_id
    if ":" in f"{tenant}{user_id}":
        raise ToolAuthError(f"user {user_id!r} is not of the tenant {tenant!r}; give the one or the other")
    return f"{tenant}:{user_id}"


def own_context(ctx: Any) -> ToolContext:
    """A context of ours for the same user, where another planner gave one of its own."""
    if isinstance(ctx, ToolContext):
        return ctx
    user_id, trace_id = user_of(ctx)
    return ToolContext(user_id=user_id, trace_id=trace_id, llm_context=getattr(ctx, "llm_context", None))


_NOTHING: Mapping[str, Any] = {}
