"""A router with sources but without a Toolbox: nothing is stored on disk and no question is asked."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from toolpost.auth.credentials import Authorizer
from toolpost.catalog.lock import DEFINITION, Lock
from toolpost.contracts.errors import PauseSignal, ToolPermissionError
from toolpost.contracts.outcomes import Completed, Failed
from toolpost.contracts.principal import Principal
from toolpost.policy.redaction import Redactor, redacted_logs
from toolpost.policy.rules import Policy
from toolpost.runtime.router import ToolRouter
from toolpost.stores.memory import MemoryStore
from toolpost.toolbox.source_manager import SourceManager
from toolpost.transports.base import Services

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.sources import CredentialProvider


class StandaloneRouter:
    """Run calls through the same pipeline as a Toolbox: validation, limits, safe retries."""

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        servers: Mapping[str, Any] | None = None,
        credentials: Mapping[str, CredentialProvider] | None = None,
        redactor: Redactor | None = None,
        lock: str | Path | None = None,
    ) -> None:
        authorizer = Authorizer(credentials)
        self._store = MemoryStore()
        self.redactor = redactor or Redactor()
        self.router = ToolRouter(
            registry,
            store=self._store,
            policy=Policy("exploratory"),
            authorizer=authorizer,
            redactor=self.redactor,
        )
        self._closing = ExitStack()
        self._closing.enter_context(redacted_logs(self.redactor))
        self.sources = SourceManager(
            registry,
            authorizer,
            services=Services(servers=servers or {}),
            redactor=self.redactor,
            emit=self.router.emitter.emit_source,
            lock=None if lock is None else Lock(Path(lock).absolute()),
        )

    async def call(
        self, name: str, arguments: Any, context: ToolContext | None, *, correlation_id: str = ""
    ) -> Completed:
        """Call a tool; raise its error, or PauseSignal for a question to a user."""
        match await self._outcome(name, arguments, context, correlation_id):
            case Completed() as completed:
                return completed
            case Failed(error=error):
                raise error
            case paused if paused.question.key == DEFINITION:  # an approval here could not be stored in the lock file
                remedy = f"run `toolpost lock approve {paused.tool_name}` once you agree"
                message = f"{paused.tool_name!r} is set aside: {paused.question.payload['reason']}; {remedy}"
                raise ToolPermissionError(message, tool_name=paused.tool_name, code="definition_changed")
            case paused:
                raise PauseSignal(paused.question, pending_id=paused.pending_id)

    async def _outcome(self, name: str, arguments: Any, context: ToolContext | None, correlation_id: str) -> Outcome:
        tenant = (context.tenant_id if context else None) or "local"
        user = (context.user_id if context else None) or "local"
        return await self.router.call(
            name,
            _plain(arguments),
            principal=Principal(tenant, user),
            context=context,
            correlation_id=correlation_id,
        )

    async def close(self) -> None:
        """Close sources, router and store; safe to call twice."""
        await self.sources.close()
        await self.router.close()
        await self._store.close()
        self._closing.close()


def without_elicitation(config: ExternalToolConfig) -> ExternalToolConfig:
    """Return the configuration without elicitation, for callers that cannot answer questions."""
    return config.model_copy(update={"mcp": config.mcp.model_copy(update={"elicitation": False})})


def _plain(arguments: Any) -> dict[str, Any]:
    """Return arguments as JSON; unset fields of a model are not sent."""
    if isinstance(arguments, BaseModel):
        return arguments.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return cast("dict[str, Any]", arguments) if arguments is not None else {}
