"""Toolbox: one catalog of tools and one safe way to call them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from msgspec.structs import asdict, replace

from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.events import EventCode, EventFilter, RunFilter, RunSummary, StoredEvent
from toolpost.contracts.ids import writable
from toolpost.contracts.principal import Principal, PrincipalCache
from toolpost.runtime.concurrency import map_concurrent

# The parts, with the models of the settings, are imported with the first instance: importing Toolbox alone is fast.
if TYPE_CHECKING:
    from toolpost.auth.account_counts import AccountCounts
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.configuration.loading import LoadedSettings
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.chat import ChatModel
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.jobs import Engine
    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.questions import Decision, OnPending, Question
    from toolpost.contracts.sources import CredentialProvider
    from toolpost.contracts.spec import CustomTool, Tool, ToolSpec
    from toolpost.contracts.storage import EventSink, Store
    from toolpost.policy.redaction import Redactor
    from toolpost.runtime.executor import ToolExecutor
    from toolpost.runtime.jobs import JobRunner
    from toolpost.runtime.model_messages import ToolCallAnswers
    from toolpost.runtime.pending import PendingActions
    from toolpost.runtime.recovery import Recovery
    from toolpost.runtime.router import ToolRouter
    from toolpost.schema.provider_schemas import CompiledTools
    from toolpost.toolbox.accounts import AccountManager
    from toolpost.toolbox.local_tools import WebProviders
    from toolpost.toolbox.on_demand import WebhooksOnDemand
    from toolpost.toolbox.reload import Reload
    from toolpost.toolbox.source_index import SourceState
    from toolpost.toolbox.source_manager import SourceManager
    from toolpost.toolbox.views import SearchView
    from toolpost.toolbox.wiring import ToolboxInputs, ToolboxParts

T = TypeVar("T")


class OpenPart(Generic[T]):
    """An attribute of a Toolbox that reads the part of the same name; RuntimeError before the Toolbox is open."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, box: Toolbox, owner: type | None = None) -> T:
        part: T = getattr(box.opened(self._name), self._name)
        return part


class Toolbox:
    """One catalog of tools and one safe way to call them.

    Use a Toolbox as an async context manager. The catalog contains `tools`, the tools of the sources in `settings`, and
    the built-in tools selected by `builtins`: "all", "none", or a list of tool and collection names. If `builtins` is
    omitted, the settings decide; in code they default to none. By default everything is stored in SQLite
    in `.toolpost`, and destructive calls require approval. `settings` is an object, or a mapping with the keys of the
    file. With `only`, no other source of the settings is connected or reported.

    While the Toolbox is open, `registry`, `store`, `router` and `pending` are its parts, `accounts` connects accounts
    of users, `report` contains the state of each source, and `problems` lists the tools and sources that were skipped,
    with the reason, including sources that are down. `credentials` are providers of users' credentials by source,
    `chat_model` answers sampling requests of sources, and `servers` are MCP server objects of this process by the name
    of their source. `on_pending`, a function or a coroutine function, is called for every pending action. `sinks`
    receive events on the event loop and must not block. `store` is an open store that replaces the one of the settings;
    its owner closes it after the Toolbox. `clock` replaces the time and the random numbers, in a simulation.
    """

    store: OpenPart[Store] = OpenPart()
    router: OpenPart[ToolRouter] = OpenPart()
    pending: OpenPart[PendingActions] = OpenPart()
    recovery: OpenPart[Recovery] = OpenPart()
    engine: OpenPart[Engine] = OpenPart()
    jobs: OpenPart[JobRunner] = OpenPart()
    redactor: OpenPart[Redactor] = OpenPart()
    sources: OpenPart[SourceManager] = OpenPart()
    webhooks: OpenPart[WebhooksOnDemand] = OpenPart()
    providers: OpenPart[WebProviders] = OpenPart()

    def __init__(
        self,
        *,
        tools: Sequence[Tool | CustomTool] = (),
        settings: Settings | LoadedSettings | Mapping[str, Any] | None = None,
        builtins: Sequence[str] | str | None = None,
        on_pending: OnPending | None = None,
        sinks: Sequence[EventSink] = (),
        credentials: Mapping[str, CredentialProvider] | None = None,
        chat_model: ChatModel | None = None,
        servers: Mapping[str, Any] | None = None,
        store: Store | None = None,
        only: Collection[str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        from toolpost.catalog.registry import ToolRegistry, as_tool  # noqa: PLC0415 - as said above, here and below
        from toolpost.configuration.loading import LoadedSettings, in_code, with_only  # noqa: PLC0415
        from toolpost.toolbox.local_tools import with_builtins  # noqa: PLC0415
        from toolpost.toolbox.wiring import ToolboxInputs  # noqa: PLC0415

        is_loaded = isinstance(settings, LoadedSettings)
        loaded = settings if isinstance(settings, LoadedSettings) else in_code(settings)
        loaded = replace(loaded, settings=with_builtins(loaded.settings, builtins))
        used = loaded if only is None else with_only(loaded, only)
        names = frozenset(source.name for source in loaded.settings.all_sources())
        self.settings: Settings = loaded.settings
        self.config_path: Path | None = loaded.path
        self.registry = ToolRegistry()
        self._inputs: ToolboxInputs = ToolboxInputs(
            settings=used.settings,
            registry=self.registry,
            config=loaded.path,
            tools=[as_tool(tool) for tool in tools],
            sinks=sinks,
            on_pending=on_pending,
            secrets=used.secrets,
            absent=names.difference(names if only is None else only),
            credentials=credentials or {},
            chat_model=chat_model,
            servers=servers or {},
            store=store,
            resolved=is_loaded,
            clock=clock,
        )
        self._exit = AsyncExitStack()
        self._principals = PrincipalCache()
        self._reloading = asyncio.Lock()
        self._only = only
        self._builtins = builtins if is_loaded else None  # for files that are loaded later
        self._parts: ToolboxParts | None = None

    @classmethod
    def open(
        cls,
        config: str | Path | LoadedSettings | None = None,
        *,
        tools: Sequence[Tool | CustomTool] = (),
        builtins: Sequence[str] | str | None = None,
        on_pending: OnPending | None = None,
        sinks: Sequence[EventSink] = (),
        credentials: Mapping[str, CredentialProvider] | None = None,
        chat_model: ChatModel | None = None,
        servers: Mapping[str, Any] | None = None,
        store: Store | None = None,
        only: Collection[str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Toolbox:
        """Create a Toolbox from a file, by default `toolpost.yaml` of the working folder, or else the defaults.

        The other arguments are those of `Toolbox()`. As on the command line, all built-in tools are included unless the
        file or `builtins` selects others.
        """
        from toolpost.configuration.loading import LoadedSettings, load_settings  # noqa: PLC0415

        if not isinstance(config, LoadedSettings):
            config = load_settings(None if config is None else Path(config))
        return cls(
            tools=tools,
            settings=config,
            builtins=builtins,
            on_pending=on_pending,
            sinks=sinks,
            credentials=credentials,
            chat_model=chat_model,
            servers=servers,
            store=store,
            only=only,
            clock=clock,
        )

    async def __aenter__(self) -> Self:
        if self._parts is not None:
            raise RuntimeError("this Toolbox was opened before; make a new one for every `async with`")
        from toolpost.toolbox.wiring import open_parts  # noqa: PLC0415

        try:
            self._parts = await open_parts(self._inputs, self._exit)
        except BaseException:
            await self._exit.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    def opened(self, part: str) -> ToolboxParts:
        """Return the parts; RuntimeError that names the `part` if the Toolbox was not opened."""
        if self._parts is None:
            raise RuntimeError(f"open the Toolbox first: `async with` gives it its {part}")
        return self._parts

    @property
    def accounts(self) -> AccountManager:
        """The accounts of users; ConfigError if no source uses them."""
        manager = self.opened("accounts").accounts.manager
        if manager is None:
            hint = "set auth_type: oauth2_user on a source"
            raise ConfigError(f"no source uses accounts of users; {hint}", code="no_accounts")
        return manager

    @property
    def report(self) -> list[SourceState]:
        """The current state of each source."""
        return self.opened("report").sources.index.states

    @property
    def problems(self) -> list[str]:
        """The tools and sources that are skipped now, with the reason, including sources that are down."""
        return self.opened("problems").problems(self._inputs.settings)

    def account_counts(self) -> AccountCounts:
        """Return the sum of all sign-in counts: of the accounts, of `credentials` and of nodes in the catalog."""
        from toolpost.auth.account_counts import AccountCounts  # noqa: PLC0415

        accounts = None if self._parts is None else self._parts.accounts.manager
        counting = [accounts, *self._inputs.credentials.values(), *self.registry.list()]
        sets = {id(one): one for each in counting if isinstance(one := getattr(each, "counts", None), AccountCounts)}
        together = AccountCounts()
        for one in sets.values():
            together.add(one.dump())
        return together

    async def use_providers(
        self, *, web_search: Mapping[str, Any] | None = None, web_fetch: Mapping[str, Any] | None = None
    ) -> None:
        """Replace the providers of web_search or web_fetch from the next call on; calls in progress finish.

        The mappings have the keys of `tools.webSearch` and `tools.webFetch` of the configuration. If they are invalid,
        raise ConfigError and change nothing.
        """
        from toolpost.configuration.literal_secrets import literal_secrets  # noqa: PLC0415
        from toolpost.configuration.loading import fill_settings, parse_settings  # noqa: PLC0415

        given = {"web_search": web_search, "web_fetch": web_fetch}
        named = {key: value for key, value in given.items() if value is not None}
        filled, secrets = fill_settings(parse_settings({"tools": named}))
        async with self._reloading:
            now: Settings = self._inputs.settings
            tools = now.tools.model_copy(update={key: getattr(filled.tools, key) for key in named})
            applied = now.model_copy(update={"tools": tools})
            self.redactor.learn({*secrets, *literal_secrets(filled)})
            await self.providers.apply(applied)
            self._inputs = self._inputs._replace(settings=applied)
            self.settings = applied

    async def reload(self, config: str | Path | LoadedSettings | None = None) -> Reload:
        """Apply new settings to the open Toolbox and return a summary of the changes.

        By default, read them from the Toolbox's configuration file. Sources are added, replaced (as by
        `sources.replace`) and removed; policy, approvals, collections, tool overrides, views, webhooks, and the
        providers of web_search and web_fetch are updated. `restart` in the result names settings that differ but need a
        restart. If the file is invalid, raise ConfigError and change nothing.
        """
        from toolpost.configuration.loading import LoadedSettings, load_settings, with_only  # noqa: PLC0415
        from toolpost.toolbox.local_tools import with_builtins  # noqa: PLC0415
        from toolpost.toolbox.reload import apply_settings  # noqa: PLC0415

        if not isinstance(config, LoadedSettings):
            config = await asyncio.to_thread(load_settings, self.config_path if config is None else Path(config))
        loaded = replace(config, settings=with_builtins(config.settings, self._builtins))
        used = loaded if self._only is None else with_only(loaded, self._only)
        async with self._reloading:
            applied, reload = await apply_settings(
                used,
                self._inputs.settings,
                registry=self.registry,
                router=self.router,
                sources=self.sources,
                providers=self.providers,
            )
            if "webhooks" in reload.applied:
                await self.webhooks.apply(applied)
            self._inputs = self._inputs._replace(settings=applied)
            self.settings = applied
        if reload:
            self.router.emitter.emit_config(EventCode.CONFIG_APPLIED, asdict(reload))
        return reload

    async def wait_for_sources(
        self, names: Collection[str] | None = None, *, timeout_s: float | None = None
    ) -> list[SourceState]:
        """Wait until these sources, or all, have connected or failed, and return their states.

        Opening waits at most `startup_wait_s` for sources that are not required; a call waits for its own source.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.sources.index.settled(names)
        return [state for state in self.report if names is None or state.name in names]

    async def wait_for_tool(self, name: str) -> None:
        """Wait for a tool of a connecting source; ToolSourceDownError if the source is down."""
        await self.router.await_tool(name)

    def executor(self, bus: EventSink, *, registry: ToolRegistry | None = None) -> ToolExecutor:
        """Create an executor that sends the events of its calls to the host's bus.

        With a `registry` it runs the tools of that registry, under the same policy, limits and journal.
        """
        from toolpost.runtime.executor import ToolExecutor  # noqa: PLC0415

        router = self.router.for_host(bus, registry=registry)
        return ToolExecutor(router, bus, max_concurrent=self.settings.tools.max_concurrent)

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        user: str | None = None,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        run_id: str | None = None,
        context: ToolContext | None = None,
        session: str | None = None,
    ) -> Coroutine[Any, Any, Outcome]:
        """Call a tool by name for `user`, written `tenant:user` (default: the local user).

        The arguments are a mapping, or JSON text as models write it. Errors, including arguments that are not valid
        JSON, are returned as `Failed`, not raised. With an `idempotency_key`, the call runs once; repeating it returns
        the stored outcome, even after a pause. `run_id` groups calls into one run. `context` is passed to the tool. If
        `context` names a user, the call runs for that user, and `user` must be the same or omitted.

        Repeating a paused call returns the same pause if user, tool, arguments and `session` (default: the run of
        `run_id`) are equal. Calls with an `idempotency_key` are the same only if their keys are equal.
        """
        principals = self._principals
        # Reading `self.router` takes 0.25 us more, 4 % of a native call (measured 2026-11).
        return (self._parts or self.opened("router")).router.call(
            name,
            arguments,
            principal=principals[user]
            if context is None
            else principals.within(context.user_id, context.tenant_id, user),
            run_id=run_id,
            timeout_s=timeout_s,
            idempotency_key=idempotency_key,
            context=context,
            session=session,
        )

    async def would_ask(
        self, name: str, arguments: Mapping[str, Any] | str | None = None, *, user: str | None = None
    ) -> Question | None:
        """Return the approval question that a call would pause with; None if it would run, or fail, without one.

        Nothing runs and nothing is stored. A call that requires no approval may still pause when it runs, for a sign-in
        or for a question of the tool.
        """
        from toolpost.runtime.arguments import read_arguments  # noqa: PLC0415

        given: Any = read_arguments(arguments) if isinstance(arguments, str) else arguments
        values: Any = {} if given is None else given
        if not isinstance(values, Mapping):
            return None
        try:
            await self.wait_for_tool(name)
            explained = await self.router.explainer.explain(
                name, cast("Mapping[str, Any]", values), principal=self._principals[user]
            )
        except ToolError:  # the call fails with it
            return None
        return explained.question if explained.verdict.action == "ask" else None

    async def call_many(
        self,
        calls: Sequence[tuple[str, Mapping[str, Any] | str | None]],
        *,
        user: str | None = None,
        max_parallel: int | None = None,
        run_id: str | None = None,
        context: ToolContext | None = None,
    ) -> list[Outcome]:
        """Call several tools concurrently, at most `limits.absolute_max_parallel`; return the outcomes in order.

        A call that is listed twice runs twice: if it requires approval, there are two pending actions.
        """
        most = self.settings.limits.absolute_max_parallel
        numbered = _number_repeated(calls, run_id)
        return await map_concurrent(
            numbered,
            lambda one: self.call(one[0], one[1], user=user, run_id=run_id, context=context, session=one[2]),
            max_concurrency=min(max_parallel or most, most),
        )

    async def answer_tool_calls(
        self,
        reply: object,
        *,
        user: str | None = None,
        max_parallel: int | None = None,
        run_id: str | None = None,
        context: ToolContext | None = None,
        compiled: CompiledTools | None = None,
    ) -> ToolCallAnswers:
        """Run the tool calls of a model's reply concurrently, and build the messages that answer them.

        `reply` is a response of OpenAI's Chat Completions or Responses or Anthropic's Messages, as the client's object
        or as plain data. Append the reply to the conversation, then `messages`. Every call has a message, including
        failed and paused ones. Without calls both lists are empty; a reply of unknown shape raises TypeError.
        `compiled` are the tools of the request, if a `ToolCompiler` has rewritten them: arguments are converted back.
        """
        from toolpost.runtime.model_messages import read_tool_calls  # noqa: PLC0415

        tool_calls = read_tool_calls(reply, compiled)
        wanted = [(call.name, call.arguments) for call in tool_calls.calls]
        return tool_calls.answered(
            await self.call_many(wanted, user=user, max_parallel=max_parallel, run_id=run_id, context=context)
        )

    def search_view(
        self,
        *,
        limit: int = 5,
        collection: str | None = None,
        sources: Collection[str] | None = None,
        tags: Collection[str] | None = None,
        patterns: Collection[str] | None = None,
        where: Callable[[ToolSpec], bool] | None = None,
    ) -> SearchView:
        """Create a view that lets a model search the catalog instead of listing every tool.

        The arguments select tools as in `ToolRegistry.search`. Only the selected tools can be found and called. `limit`
        is the default number of search results; the model can request more.
        """
        selection = {"collection": collection, "sources": sources, "tags": tags, "patterns": patterns, "where": where}
        from toolpost.toolbox.views import SearchView  # noqa: PLC0415

        return SearchView(self, limit=limit, only={key: value for key, value in selection.items() if value is not None})

    async def approve(self, pending_id: str, *, by: str, changes: Sequence[Mapping[str, Any]] | None = None) -> Outcome:
        """Approve a pending action, run its call, and return the outcome.

        `changes` is a JSON Patch of its exact arguments: `[{"op": "replace", "path": "/to", "value": "bob"}]`.
        Like `deny` and `answer`, raise PendingNotFoundError if the action does not exist in the tenant of `by`, and
        ToolConflictError if it is already answered, has expired, or the tool has changed.
        """
        return await self.pending.approve(pending_id, by=by, changes=changes)

    def accept_definition(self, name: str, *, by: str, expected: str | None = None) -> None:
        """Accept the changed definition of a tool for all tenants, and resume the calls that wait for it.

        `by` is the operator, a user of the tenant `local`; for another tenant, raise ToolPermissionError. `expected` is
        the `hash` in the payload of the question: if the tool has changed since then, raise ToolConflictError.
        """
        self.pending.accept_definition(name, by=by, expected=expected)

    async def deny(self, pending_id: str, *, by: str, reason: str = "") -> Outcome:
        """Deny a pending action; its call fails."""
        return await self.pending.deny(pending_id, by=by, reason=reason)

    async def answer(
        self, pending_id: str, value: Any = None, *, by: str, decision: Decision = "answer", reason: str = ""
    ) -> Outcome:
        """Answer a question of a tool, or report the outcome of an interrupted call."""
        return await self.pending.answer(pending_id, value, by=by, decision=decision, reason=reason)

    async def cancel(self, target_id: str, *, by: str) -> bool:
        """Cancel a call or a run in any process of the data folder; return False if there is none of that ID."""
        from toolpost.runtime.job_runs import cancelled_job  # noqa: PLC0415

        tenant, target_id = Principal.parse(by).tenant, writable(target_id)
        stopped = self.router.inflight.cancel(target_id, tenant=tenant)
        closed = await self.recovery.cancel_waiting(target_id, tenant=tenant)
        queued = await self.engine.cancel(target_id, tenant=tenant, outcome=cancelled_job(target_id))
        elsewhere = await _is_running(self.store, target_id, tenant)
        if elsewhere:
            await self.store.cancels.request(target_id, tenant=tenant, by=by)
        return bool(stopped or closed or queued or elsewhere)

    async def runs(
        self,
        *,
        user: str | None = None,
        limit: int = 50,
        only: RunFilter | None = None,
        all_tenants: bool = False,
    ) -> list[RunSummary]:
        """Return the newest runs of the user's tenant; `only` filters by tool, user, caller, time and status.

        `all_tenants` is for the operator.
        """
        tenant = None if all_tenants else self._principals[user].tenant
        return await self.store.events.runs(tenant=tenant, limit=limit, only=only)

    async def run(self, run_id: str, *, user: str | None = None) -> RunSummary | None:
        """Return a run of the user's tenant, or None. A run whose job waits in a queue is running."""
        from toolpost.runtime.job_runs import find_run  # noqa: PLC0415

        return await find_run(self.store, writable(run_id), tenant=self._principals[user].tenant)

    async def events(
        self,
        *,
        user: str | None = None,
        run_id: str | None = None,
        after: int = 0,
        limit: int = 1000,
        only: EventFilter | None = None,
        newest: bool = False,
        all_tenants: bool = False,
    ) -> list[StoredEvent]:
        """Return events of the tenant's runs, oldest first; `after` is the id of the last event already seen.

        `only` filters by tools, types, time, user and caller; `newest` returns the last `limit` events. `all_tenants`
        is for the operator.
        """
        tenant = None if all_tenants else self._principals[user].tenant
        run = None if run_id is None else writable(run_id)
        return await self.store.events.read(
            tenant=tenant, run_id=run, after=after, limit=limit, only=only, newest=newest
        )


def _number_repeated(
    calls: Sequence[tuple[str, Mapping[str, Any] | str | None]], run_id: str | None
) -> list[tuple[str, Mapping[str, Any] | str | None, str | None]]:
    """Give repeated calls distinct sessions, which are the same if the list is called again."""
    counts: Counter[tuple[str, str]] = Counter()
    numbered: list[tuple[str, Mapping[str, Any] | str | None, str | None]] = []
    for name, arguments in calls:
        same = (name, repr(arguments))
        numbered.append((name, arguments, f"{run_id or ''}#{counts[same]}" if counts[same] else None))
        counts[same] += 1
    return numbered


async def _is_running(store: Store, target_id: str, tenant: str) -> bool:
    """Return whether a run of this tenant, or a call with effects, is still running."""
    run = await store.events.run(target_id, tenant=tenant)
    if run is not None:
        return run.status not in ("completed", "failed")
    entry = await store.journal.find(target_id, "")
    return entry is not None and not entry.done and entry.principal.tenant == tenant
