"""Sources and a router without a Toolbox: nothing is kept on disk and nobody is asked, all else holds."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from toolpost.auth.credentials import Authorizer
from toolpost.catalog.lock import DEFINITION, Lock
from toolpost.contracts.errors import PauseSignal, ToolPermissionError
from toolpost.contracts.outcomes import Completed, Failed, ToolResult
from toolpost.contracts.principal import Principal
from toolpost.policy.redaction import Redactor, redacted_logs
from toolpost.policy.rules import Policy
from toolpost.runtime.router import ToolRouter
from toolpost.stores.memory import MemoryStore
from toolpost.toolbox.source_manager import Sources
from toolpost.toolbox.source_registry import Lent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.sources import CredentialProvider


class Standalone:
    """Calls go down the same straight line as in a Toolbox: validated, limited, retried where that is safe."""

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
        self.sources = Sources(
            registry,
            authorizer,
            lent=Lent(servers=servers),
            redactor=self.redactor,
            tell=self.router.emitter.emit_source,
            lock=None if lock is None else Lock(Path(lock).absolute()),
        )

    async def call(
        self, name: str, arguments: Any, context: ToolContext | None, *, correlation_id: str = ""
    ) -> Completed:
        """Call a tool; what fails is raised, and so is a question to a person."""
        match await self._outcome(name, arguments, context, correlation_id):
            case Completed() as completed:
                return completed
            case Failed(error=error):
                raise error
            case paused if paused.question.key == DEFINITION:  # a yes here would pin nothing for good
                remedy = f"run `toolpost lock approve {paused.tool_name}` once you agree"
                told = f"{paused.tool_name!r} is set aside: {paused.question.payload['reason']}; {remedy}"
                raise ToolPermissionError(told, tool_name=paused.tool_name, code="definition_changed")
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
        """Let go of everything; safe to call twice."""
        await self.sources.close()
        await self.router.close()
        await self._store.close()
        self._closing.close()


def without_questions(config: ExternalToolConfig) -> ExternalToolConfig:
    """The source where there is no desk to answer at: its server is not offered a person to ask."""
    return config.model_copy(update={"mcp": config.mcp.model_copy(update={"elicitation": False})})


def _plain(arguments: Any) -> dict[str, Any]:
    """Arguments as JSON; what was left unset in a model is not sent."""
    if isinstance(arguments, BaseModel):
        return arguments.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return cast("dict[str, Any]", arguments) if arguments is not None else {}


def result_of(completed: Completed, *, started_at: float) -> ToolResult:
    """A completed call as the result of a tool."""
    return ToolResult.completed(completed.content, completed.text, started_at=started_at)
