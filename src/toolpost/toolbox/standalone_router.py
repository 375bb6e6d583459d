"""Run the calls of sources without a Toolbox, through the same pipeline."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace
from pydantic import BaseModel

from toolpost.auth.credentials import Authorizer
from toolpost.catalog.lock import DEFINITION, Lock
from toolpost.catalog.registry import ToolRegistry
from toolpost.contracts import errors
from toolpost.contracts.context import ToolContext
from toolpost.contracts.events import RunEvent
from toolpost.contracts.outcomes import Completed, Failed, Outcome, pause_signal
from toolpost.contracts.principal import Principal
from toolpost.contracts.sources import CredentialProvider
from toolpost.contracts.storage import ArtifactRef
from toolpost.policy.log_redaction import redacted_logs
from toolpost.policy.redaction import Redactor
from toolpost.policy.rules import Policy
from toolpost.runtime.router import CallLimits, ToolRouter
from toolpost.sources.base import Services
from toolpost.stores.memory.store import MemoryStore
from toolpost.toolbox.source_factory import SourceFactory
from toolpost.toolbox.source_manager import SourceManager
from toolpost.toolbox.source_tools import Catalog, Pinning
from toolpost.wire.network import NetworkPolicy


class StandaloneRouter:
    """Run calls through the same pipeline as a Toolbox: validation, limits, safe retries.

    Calls find their tools in `registry`. Sources register them in `catalog`, by default the registry itself.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        catalog: Catalog | None = None,
        servers: Mapping[str, Any] | None = None,
        credentials: Mapping[str, CredentialProvider] | None = None,
        redactor: Redactor | None = None,
        lock: str | Path | None = None,
        network: NetworkPolicy | None = None,
    ) -> None:
        authorizer = Authorizer(credentials)
        self._store = MemoryStore()
        self.redactor = redactor or Redactor()
        self.router = ToolRouter.create(
            registry,
            store=self._store,
            policy=Policy("exploratory"),
            authorizer=authorizer,
            redactor=self.redactor,
            limits=CallLimits(inline_bytes=sys.maxsize),  # the caller stores large results
            joins_repeated=False,  # the caller prompts the user, and calls again
        )
        self._closing = ExitStack()
        self._closing.enter_context(redacted_logs(self.redactor))
        factory = SourceFactory(
            redactor=self.redactor,
            emit=self.router.emitter.emit_source,
            services=Services(servers=servers or {}, network=network or NetworkPolicy()),
            pinning=Pinning(None if lock is None else Lock(Path(lock).absolute())),
        )
        self.sources = SourceManager(catalog or registry, authorizer, factory, finish_calls=self.router.inflight.finish)

    async def call(
        self, name: str, arguments: Any, context: ToolContext | None, *, correlation_id: str = ""
    ) -> Completed:
        """Call a tool; raise its error, or PauseSignal for a question to a user."""
        match await self._outcome(name, arguments, context, correlation_id):
            case Completed() as completed:
                return await self._with_moved_artifacts(completed, context)
            case Failed(error=error):
                raise error
            case paused if paused.question.key == DEFINITION:  # an approval here could not be stored in the lock file
                remedy = f"to accept the change, run `toolpost lock approve {paused.tool_name}`"
                message = f"{paused.tool_name!r} is blocked: {paused.question.payload['reason']}; {remedy}"
                raise errors.ToolPermissionError(message, tool_name=paused.tool_name, code="definition_changed")
            case paused:
                raise pause_signal(paused)

    async def _with_moved_artifacts(self, completed: Completed, context: ToolContext | None) -> Completed:
        """Store the files of a result with the parent call, if any."""
        if not completed.artifacts or not isinstance(context, ToolContext) or not context.is_running:
            return completed
        encoded = json.dumps([completed.content, completed.text])
        for artifact_id in completed.artifacts:
            ref, data = await self.read_artifact(artifact_id)
            moved = await context.save_artifact(data, media_type=ref.media_type, name=ref.name)
            encoded = encoded.replace(artifact_id, moved)
        content, text = json.loads(encoded)
        return replace(completed, content=content, text=text)

    async def read_artifact(self, artifact_id: str) -> tuple[ArtifactRef, bytes]:
        """Return a stored file and its reference; KeyError if there is none."""
        artifacts = self._store.artifacts
        data = await artifacts.read(artifact_id, tenant=None)
        ref = await artifacts.info(artifact_id, tenant=None)
        if ref is None:
            raise KeyError(artifact_id)
        return ref, data

    async def _outcome(self, name: str, arguments: Any, context: ToolContext | None, correlation_id: str) -> Outcome:
        tenant = (context.tenant_id if context else None) or "local"
        user = (context.user_id if context else None) or "local"
        call_id = self.router.new_id("call")
        with self._relayed(call_id, context):
            return await self.router.call(
                name,
                _plain(arguments),
                principal=Principal(tenant, user),
                context=context,
                correlation_id=correlation_id,
                call_id=call_id,
            )

    def _relayed(self, call_id: str, context: ToolContext | None) -> AbstractContextManager[None]:
        """Forward the progress and the stream of a call to its parent call, if any."""
        if not isinstance(context, ToolContext) or not context.is_running:
            return nullcontext()

        def receive(event: RunEvent) -> None:
            facts = event.facts
            if "fraction" in facts:
                context.progress(facts["text"], fraction=facts["fraction"])
            else:
                context.stream(json.loads(facts["value"]) if "value" in facts else facts["text"])

        return self.router.emitter.relay_progress(receive, call_id=call_id)

    async def close(self) -> None:
        """Close sources, router and store; safe to call twice."""
        await self.sources.close()
        await self.router.close()
        await self._store.close()
        self._closing.close()


def _plain(arguments: Any) -> dict[str, Any]:
    """Return arguments as JSON; unset fields of a model are not sent."""
    if isinstance(arguments, BaseModel):
        return arguments.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return cast("dict[str, Any]", arguments) if arguments is not None else {}
