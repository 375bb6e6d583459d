"""Credentials of the users of a ToolNode, whose calls pause through their context."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from toolpost.auth.account_counts import AccountCounts
from toolpost.auth.managed_credentials import AuthManager, ManagedCredentials
from toolpost.contracts.calls import Credential, PermittedCall
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ConfigError, PauseSignal, ToolAuthError, ToolError
from toolpost.contracts.principal import LOCAL_TENANT
from toolpost.contracts.questions import Question
from toolpost.contracts.sources import CredentialProvider

_MOST_USERS = 10_000
_NOTHING: Mapping[str, Any] = {}


class CallCredentials:
    """Implements `CredentialProvider` with the credential that each call got when it started."""

    def __init__(self) -> None:
        self._credentials: dict[str, Credential] = {}

    @contextmanager
    def use(self, credential: Credential) -> Generator[str]:
        """Assign a credential to the call with the yielded correlation ID."""
        correlation_id = f"own_{secrets.token_hex(12)}"
        self._credentials[correlation_id] = credential
        try:
            yield correlation_id
        finally:
            del self._credentials[correlation_id]

    async def credential(self, call: PermittedCall) -> Credential:
        """Return the credential of this call."""
        credential = self._credentials.get(call.validated.request.correlation_id)
        if credential is None:
            raise ToolAuthError("no user has signed in for this call")
        return credential


class UserCredentials:
    """Credentials of the users of a ToolNode, each with a separate account.

    `provider` serves the node's source: with the credential of each call, or with a provider of the application.
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
        """Return the credential of a context's user, other than the rejected one; without a token, pause the call.

        Return None if a provider of the application serves the call.
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
            while len(self._asked_at) > _MOST_USERS:
                self._asked_at.popitem(last=False)
            raise


def may_list_later(config: ExternalToolConfig, refused: ToolError) -> bool:
    """Return whether a failed listing may succeed after a user has signed in."""
    needs_token = "token_env" in config.auth_config  # without its token the server may fail to start
    return "discovery" not in config.auth_config and (isinstance(refused, ToolAuthError) or needs_token)


def _token_in(value: Any, name: str) -> str:
    token = cast("dict[str, Any]", value).get("token") if isinstance(value, dict) else value
    if not isinstance(token, str) or not token:
        raise ConfigError(f"auth_config.discovery_auth of {name!r} must be a table with a token: {{token: ...}}")
    return token


def user_of(ctx: Any) -> tuple[str, str]:
    """Return the user of a context, as `tenant:user` if it names a tenant, and its trace ID."""
    inner: Mapping[str, Any] = getattr(ctx, "tool_context", None) or _NOTHING
    user_id: Any = getattr(ctx, "user_id", None) or inner.get("user_id")
    if not user_id:
        raise ToolAuthError("user_id required in tool_context for OAuth")
    trace_id = str(inner.get("trace_id") or getattr(ctx, "trace_id", "") or "")
    return _within(getattr(ctx, "tenant_id", None), str(user_id)), trace_id


def _within(tenant: str | None, user_id: str) -> str:
    """Qualify a user with a tenant: two tenants can have users of the same name."""
    if tenant in {None, "", LOCAL_TENANT} or user_id.startswith(f"{tenant}:"):
        return user_id
    if ":" in f"{tenant}{user_id}":
        raise ToolAuthError(f"user {user_id!r} does not belong to the tenant {tenant!r}; pass one of them")
    return f"{tenant}:{user_id}"


def own_context(ctx: Any) -> ToolContext:
    """Return a ToolContext for the same user if another planner passed its own context."""
    if isinstance(ctx, ToolContext):
        return ctx
    user_id, trace_id = user_of(ctx)
    return ToolContext(user_id=user_id, trace_id=trace_id, llm_context=getattr(ctx, "llm_context", None))
