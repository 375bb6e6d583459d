"""Toolbox: one catalog of tools and one safe way to call them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from msgspec.structs import asdict, replace

from toolpost.contracts.calls import writable
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.events import EventCode, EventFilter, RunFilter, RunSummary, StoredEvent
from toolpost.contracts.principal import Principal, PrincipalCache
from toolpost.runtime.concurrency import map_concurrent

# Modules that only import Toolbox start fast: the parts, with the models of the settings, come with the first instance.
if TYPE_CHECKING:
    from toolpost.auth.user_credentials import AccountCounts
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.configuration.loading import LoadedSettings
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.chat import ChatModel
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.questions import Decision, OnPending
    from toolpost.contracts.sources import CredentialProvider
    from toolpost.contracts.spec import CustomTool, Tool, ToolSpec
    from toolpost.contracts.storage import EventSink, Store
    from toolpost.policy.redaction import Redactor
    from toolpost.runtime.executor import ToolExecutor
    from toolpost.runtime.model_messages import ToolCallAnswers
    from toolpost.runtime.pending import PendingActions
    from toolpost.runtime.recovery import Recovery
    from toolpost.runtime.router import ToolRouter
    from toolpost.toolbox.accounts import AccountManager
    from toolpost.toolbox.local_tools import WebProviders
    from toolpost.toolbox.reload import Reload
    from toolpost.toolbox.source_manager import SourceManager, SourceState
    from toolpost.toolbox.views import SearchView
    from toolpost.toolbox.wiring import WebhooksOnDemand

T = TypeVar("T")


class OpenPart(Generic[T]):
    """An attribute that a Toolbox has while it is open; before that, reading it says so."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, box: object, owner: type | None = None) -> T:
        # Only reached while the instance has no attribute of this name.
        if self._name == "accounts" and "router" in vars(box):
            raise ConfigError("no source here is for people's own accounts; give one auth_type: oauth2_user")
        raise RuntimeError(f"open the Toolbox first: `async with` gives it its {self._name}")


class Toolbox:
    """One catalog of tools and one safe way to call them.

    Use a Toolbox as an async context manager. The catalog has `tools`, those of the sources in `settings`, and the
    built-in tools that `builtins` names: `all`, `none`, or names of tools and collections; without `builtins` the
    settings decide, whose default in code is none. By default everything is stored in SQLite in `.toolpost`, and
    destructive calls wait for approval. `settings` is an object, or a mapping with the keys of the file.

    While the Toolbox is open, `registry`, `store`, `router` and `pending` are its parts, `accounts` connects users' own
    accounts, `report` has the state of each source, and `problems` lists what was left out and why, sources that
    are down included. `credentials` are providers of users' own credentials by source, `chat_model` answers sampling
    requests of sources, and `servers` are MCP server objects of this process by the name of their source.
    `on_pending`, a function or a coroutine function, is called for every pending action. `sinks` receive events on
    the event loop and must return at once.
    """

    store: OpenPart[Store] = OpenPart()
    router: OpenPart[ToolRouter] = OpenPart()
    pending: OpenPart[PendingActions] = OpenPart()
    recovery: OpenPart[Recovery] = OpenPart()
    redactor: OpenPart[Redactor] = OpenPart()
    sources: OpenPart[SourceManager] = OpenPart()
    webhooks: OpenPart[WebhooksOnDemand] = OpenPart()
    providers: OpenPart[WebProviders] = OpenPart()
    accounts: OpenPart[AccountManager] = OpenPart()
    report: OpenPart[LiveList[SourceState]] = OpenPart()
    problems: OpenPart[LiveList[str]] = OpenPart()

    def __init__(
        self,
        *,
        tools: Sequence[Tool | CustomTool] = (),
        settings: Settings | Mapping[str, Any] | None = None,
        builtins: Sequence[str] | str | None = None,
        on_pending: OnPending | None = None,
        sinks: Sequence[EventSink] = (),
        credentials: Mapping[str, CredentialProvider] | None = None,
        chat_model: ChatModel | None = None,
        servers: Mapping[str, Any] | None = None,
    ) -> None:
        from toolpost.catalog.registry import ToolRegistry, as_tool  # noqa: PLC0415 - as said above, here and below
        from toolpost.configuration.loading import fill_settings, parse_settings  # noqa: PLC0415
        from toolpost.configuration.settings import Settings  # noqa: PLC0415
        from toolpost.toolbox.local_tools import with_builtins  # noqa: PLC0415
        from toolpost.toolbox.wiring import ToolboxInputs  # noqa: PLC0415

        given = settings if isinstance(settings, Settings) else parse_settings(settings or {})
        own_settings, secrets = fill_settings(given)
        self.settings: Settings = with_builtins(own_settings, builtins)
        self.config_path: Path | None = None
        self.registry = ToolRegistry()
        self._inputs: ToolboxInputs = ToolboxInputs(
            settings=self.settings,
            registry=self.registry,
            tools=[as_tool(tool) for tool in tools],
            sinks=sinks,
            on_pending=on_pending,
            secrets=secrets,
            credentials=credentials or {},
            chat_model=chat_model,
            servers=servers or {},
        )
        self._exit = AsyncExitStack()
        self._principals = PrincipalCache()
        self._reloading = asyncio.Lock()
        self._only: Collection[str] | None = None
        self._builtins: Sequence[str] | str | None = None

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
        only: Collection[str] | None = None,
    ) -> Toolbox:
        """Create a Toolbox from a file, by default `toolpost.yaml` of the working folder, or else the defaults.

        The other arguments are those of `Toolbox()`. As on the command line, built-in tools are included unless the
        file or `builtins` says otherwise. With `only`, no other source of the file is connected or reported.
        """
        from toolpost.configuration.loading import LoadedSettings, load_settings, with_only  # noqa: PLC0415
        from toolpost.toolbox.local_tools import with_builtins  # noqa: PLC0415

        if not isinstance(config, LoadedSettings):
            config = load_settings(None if config is None else Path(config))
        loaded = replace(config, settings=with_builtins(config.settings, builtins))
        box = cls(
            tools=tools,
            on_pending=on_pending,
            sinks=sinks,
            credentials=credentials,
            chat_model=chat_model,
            servers=servers,
        )
        box.settings, box.config_path = loaded.settings, loaded.path
        box._only, box._builtins = only, builtins
        used = loaded if only is None else with_only(loaded, only)
        names = {source.name for source in loaded.settings.all_sources()}
        absent = frozenset(names.difference(names if only is None else only))
        box._inputs = box._inputs._replace(
            settings=used.settings, config=loaded.path, secrets=used.secrets, absent=absent, resolved=True
        )
        return box

    async def __aenter__(self) -> Self:
        if "router" in vars(self):
            raise RuntimeError("this Toolbox was opened before; make a new one for every `async with`")
        from toolpost.toolbox.wiring import open_parts  # noqa: PLC0415

        try:
            parts = await open_parts(self._inputs, self._exit)
        except BaseException:
            await self._exit.aclose()
            raise
        parts.router.inflight.bind()
        opened: dict[str, object] = {
            "store": parts.store,
            "router": parts.router,
            "pending": parts.pending,
            "recovery": parts.recovery,
            "redactor": parts.redactor,
            "sources": parts.sources,
            "webhooks": parts.webhooks,
            "providers": parts.providers,
            "report": LiveList(lambda: parts.sources.states),
            "problems": LiveList(
                lambda: [
                    *parts.problems(self._inputs.settings),
                    *parts.sources.left_out,
                    *parts.sources.problems,
                    *parts.webhooks.problems,
                ]
            ),
        }
        vars(self).update(opened)
        parts.accounts.on_open = lambda manager: vars(self).update(accounts=manager)
        if parts.accounts.manager is not None:
            parts.accounts.on_open(parts.accounts.manager)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    def account_counts(self) -> AccountCounts:
        """Return the counts of all sign-ins of this Toolbox together.

        They are those of its own accounts, of the auth managers in `credentials`, and of the nodes whose tools it has.
        """
        from toolpost.auth.user_credentials import AccountCounts  # noqa: PLC0415

        accounts = vars(self).get("accounts")
        counting = [accounts, *self._inputs.credentials.values(), *self.registry.list()]
        sets = {id(one): one for each in counting if isinstance(one := getattr(each, "counts", None), AccountCounts)}
        together = AccountCounts()
        for one in sets.values():
            together.add(one.dump())
        return together

    async def use_providers(
        self, *, web_search: Mapping[str, Any] | None = None, web_fetch: Mapping[str, Any] | None = None
    ) -> None:
        """Exchange the providers of web_search or web_fetch, from the next call on; calls in progress finish.

        The mappings have the keys of `tools.webSearch` and `tools.webFetch` of the configuration. ConfigError, and no
        change, when they are wrong.
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
        """Apply other settings while the Toolbox is open, by default those that its file has now; return what changed.

        Sources that differ are added, replaced as `sources.replace` does, and removed; policy, approvals, collections,
        overrides of sources' tools, views, webhooks, and the providers of web_search and web_fetch are applied, too.
        `restart` of the result names what else differs. ConfigError, and no change at all, when the file is wrong.
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
                await self.webhooks.apply(applied, self.pending)
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
                await self.sources.settled(names)
        return [state for state in self.report if names is None or state.name in names]

    async def wait_for_tool(self, name: str) -> None:
        """Wait for a tool whose source is connecting; ToolSourceDownError when the source is down."""
        await self.router.await_tool(name)

    def executor(self, bus: EventSink, *, registry: ToolRegistry | None = None) -> ToolExecutor:
        """Create an executor that sends the events of its calls to the host's own bus.

        With a `registry` it runs the tools in that one, under the same policy, limits and journal.
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

        The arguments are a mapping, or JSON text as models write it. An error, text that is no JSON included, is a
        `Failed`, not an exception. With an `idempotency_key` the call runs once, and a repeated call returns its
        outcome, also after a pause. `run_id` groups calls into one run. `context` is passed to the tool beside its
        arguments; if it names a user, the call is for that user, and `user` must not be another.

        A call that is repeated while it waits for a person returns the same pause: for the same user, tool and
        arguments, in the same `session` (default: the run of `run_id`). Calls with an `idempotency_key` are the same
        only if the key is.
        """
        principals = self._principals
        return self.router.call(
            name,
            arguments,
            principals[user] if context is None else principals.within(context.user_id, context.tenant_id, user),
            run_id,
            timeout_s,
            idempotency_key,
            context,
            session=session,
        )

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

        A call that is listed twice is meant twice: where it waits for a person, there are two pending actions.
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
    ) -> ToolCallAnswers:
        """Run the tool calls of a model's reply concurrently, and build the messages that answer them.

        `reply` is a response of OpenAI's Chat Completions or Responses or Anthropic's Messages, as the client's object
        or as plain data. Append the reply to the conversation, then `messages`. Every call has a message, also a
        failed or paused one. Without calls both lists are empty; a reply of unknown shape raises TypeError.
        """
        from toolpost.runtime.model_messages import read_tool_calls  # noqa: PLC0415

        tool_calls = read_tool_calls(reply)
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
        """Create a view for a model that finds the tools it needs, for catalogs that are too large to be shown.

        Nothing but the tools that the arguments select, as for `ToolRegistry.search`, is found or can be called.
        `limit` is how many tools a search finds unless the model asks for more.
        """
        selection = {"collection": collection, "sources": sources, "tags": tags, "patterns": patterns, "where": where}
        from toolpost.toolbox.views import SearchView  # noqa: PLC0415

        return SearchView(self, limit=limit, only={key: value for key, value in selection.items() if value is not None})

    async def approve(self, pending_id: str, *, by: str, changes: Sequence[Mapping[str, Any]] | None = None) -> Outcome:
        """Approve a pending action and return the outcome of the call.

        `changes` is a JSON Patch of its exact arguments: `[{"op": "replace", "path": "/to", "value": "bob"}]`.
        Like `deny` and `answer`, raises PendingNotFoundError when `by`, a user of the tenant, has no such pending
        action, and ToolConflictError when it was answered before, has expired, or the tool has changed.
        """
        return await self.pending.approve(pending_id, by=by, changes=changes)

    def accept_definition(self, name: str, *, by: str, expected: str | None = None) -> None:
        """Accept the changed definition of a tool, which all tenants share, and continue the calls that wait for it.

        `by` is the operator, a user of the tenant `local`. `expected` is the `hash` in the payload of the question: if
        the tool has changed again since, ToolConflictError. ToolPermissionError if `by` is of another tenant.
        """
        self.pending.accept_definition(name, by=by, expected=expected)

    async def deny(self, pending_id: str, *, by: str, reason: str = "") -> Outcome:
        """Deny a pending action; its call fails."""
        return await self.pending.deny(pending_id, by=by, reason=reason)

    async def answer(
        self, pending_id: str, value: Any = None, *, by: str, decision: Decision = "answer", reason: str = ""
    ) -> Outcome:
        """Answer a question of a tool, or report the result of an interrupted call."""
        return await self.pending.answer(pending_id, value, by=by, decision=decision, reason=reason)

    async def cancel(self, target_id: str, *, by: str) -> bool:
        """Cancel a call or a run, in whatever process it runs; return False when there is none of that id."""
        tenant, target_id = Principal.parse(by).tenant, writable(target_id)
        stopped = self.router.inflight.cancel(target_id, tenant=tenant)
        closed = await self.recovery.cancel_waiting(target_id, tenant=tenant)
        elsewhere = await _is_under_way(self.store, target_id, tenant)
        if elsewhere:
            await self.store.cancels.request(target_id, tenant=tenant, by=by)
        return bool(stopped or closed or elsewhere)

    async def runs(
        self,
        *,
        user: str | None = None,
        limit: int = 50,
        only: RunFilter | None = None,
        all_tenants: bool = False,
    ) -> list[RunSummary]:
        """Return the newest runs of the user's tenant; `only` filters by user, caller, time and status.

        `all_tenants` is for the operator.
        """
        tenant = None if all_tenants else self._principals[user].tenant
        return await self.store.events.runs(tenant=tenant, limit=limit, only=only)

    async def run(self, run_id: str, *, user: str | None = None) -> RunSummary | None:
        """Return a run of the user's tenant, or None."""
        return await self.store.events.run(writable(run_id), tenant=self._principals[user].tenant)

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
    """Give calls that are listed more than once a session each, the same whenever the list is called again."""
    counts: Counter[tuple[str, str]] = Counter()
    numbered: list[tuple[str, Mapping[str, Any] | str | None, str | None]] = []
    for name, arguments in calls:
        same = (name, repr(arguments))
        numbered.append((name, arguments, f"{run_id or ''}#{counts[same]}" if counts[same] else None))
        counts[same] += 1
    return numbered


async def _is_under_way(store: Store, target_id: str, tenant: str) -> bool:
    """Return whether a run of this tenant, or a call with effects, has begun and not ended."""
    run = await store.events.run(target_id, tenant=tenant)
    if run is not None:
        return run.status not in ("completed", "failed")
    entry = await store.journal.find(target_id, "")
    return entry is not None and not entry.done and entry.principal.tenant == tenant


class LiveList(Sequence[T], Generic[T]):
    """A read-only list that is computed on every access."""

    __slots__ = ("_make",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, make: Callable[[], list[T]]) -> None:
        self._make = make

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self._make()[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._make())  # computed once for the whole list, not for each item

    def __len__(self) -> int:
        return len(self._make())

    def __eq__(self, other: object) -> bool:
        return self._make() == (other._make() if isinstance(other, LiveList) else other)

    def __repr__(self) -> str:
        return repr(self._make())
