"""Brings the configured sources into the catalog and keeps them there; one that fails or is slow delays no other."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from toolpost.auth.credentials import (
    discovery_credential,
    named_secrets,
    secrets_of,
    static_credential,
    substituted,
    with_environment,
)
from toolpost.auth.secret import read_env_file
from toolpost.configuration.document import MIN_SECRET
from toolpost.configuration.lint import SourceListing
from toolpost.connecting.presets import with_token_variable
from toolpost.contracts.config import AuthType
from toolpost.contracts.errors import ConfigError, ToolConnectionError, ToolError, ToolSourceDownError
from toolpost.contracts.events import EventCode
from toolpost.contracts.sources import LiveSource, RecallingSource
from toolpost.policy.redaction import Redactor, one_line
from toolpost.toolbox.source_registry import Lent, make_source
from toolpost.toolbox.source_tools import Pinning, Shelf, bare_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from toolpost.auth.credentials import Authorizer
    from toolpost.catalog.lock import Lock, Pin
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.calls import Credential
    from toolpost.contracts.config import ExternalToolConfig, ToolOverride
    from toolpost.contracts.sources import CredentialProvider, SourceHealth, ToolSource
    from toolpost.contracts.tool import Tool
    from toolpost.toolbox.source_registry import Factory

    Lend = Callable[[ExternalToolConfig], CredentialProvider]
    Tell = Callable[[str, EventCode, Mapping[str, Any]], None]

_LEVELS = {"debug": 10, "info": 20, "notice": 20, "warning": 30, "error": 40}
_LONGEST_LOG = 4000


_CONNECTING = "it is still connecting; a call to one of its tools waits for it"
_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """How a source fares: its tools, or why it has none.

    A source is `connecting` until it has answered for the first time. Its tools may be there before, from its last
    listing; where they are not, it is not `ok` yet.
    """

    name: str
    transport: str
    ok: bool
    tools: int = 0
    error: str | None = None
    state: Literal["up", "connecting", "down"] = "up"


class _Member:
    """One source, its shelf in the catalog, the task that connects it, and why it could not be brought in."""

    def __init__(self, config: ExternalToolConfig, shelf: Shelf, turn: _Turn) -> None:
        self.config = config
        self.shelf = shelf
        self.turn = turn
        self.source: ToolSource | None = None
        self.task: asyncio.Task[None] | None = None
        self.error: str | None = None
        self.fault: ToolError | None = None
        self.failures = 0
        self.retry_at = 0.0
        self.at_turn = False  # it has tools, and waits for those of the sources before it
        self.filled = asyncio.Event()
        self.filling = asyncio.Lock()  # one listing after the other
        self.answered = False

    @property
    def connecting(self) -> bool:
        """Whether it has not answered yet."""
        return not self.answered and self.task is not None and not self.task.done()

    def failed(self, fault: ToolError, redactor: Redactor) -> None:
        """Remember why it could not be brought in, and when trying again is worth it."""
        fault.conceal(redactor.message)
        self.fault, self.error, self.answered = fault, str(fault), True
        self.failures += 1
        self.retry_at = time.monotonic() + min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2.0 ** (self.failures - 1))

    def came_up(self) -> None:
        """Forget what was wrong."""
        self.fault, self.error, self.failures, self.answered = None, None, 0, True

    @property
    def can_retry(self) -> bool:
        """Whether a call may try to connect it again; live sources do so themselves, and wrong settings stay wrong."""
        retryable = self.fault is not None and not isinstance(self.fault, ConfigError)
        return retryable and not isinstance(self.source, LiveSource) and time.monotonic() >= self.retry_at

    def state(self, redactor: Redactor) -> SourceState:
        source, error = self.source, self.error
        if error is None and isinstance(source, LiveSource) and source.health.state == "down":
            error = redactor.redact(source.health.detail)
        state: Literal["up", "connecting", "down"] = "up" if error is None else "down"
        if self.connecting:
            state, error = "connecting", None if self.filled.is_set() else _CONNECTING
        return SourceState(
            name=self.config.name,
            transport=self.config.transport.value,
            ok=error is None,
            tools=self.shelf.offered if error is None else 0,
            error=error,
            state=state,
        )

    def listing(self, authorizer: Authorizer) -> SourceListing:
        config, source = self.config, self.source
        personal = config.auth_type is AuthType.OAUTH2_USER or authorizer.provides(config.name)
        up = not isinstance(source, LiveSource) or source.health.state == "up"
        sure = up and not personal and not self.connecting and self.error is None
        return SourceListing(config, tuple(self.shelf.tools), tuple(self.shelf.problems), sure)


class _Turn:
    """When a source's tools may enter the catalog: after those of the sources before it that came in time."""

    def __init__(self, before: Sequence[_Turn] = ()) -> None:
        self._before = before
        self._over = asyncio.Event()

    async def come(self) -> None:
        """Wait for those before."""
        for turn in self._before:
            await turn.wait()

    async def wait(self) -> None:
        """Wait until it is over."""
        await self._over.wait()

    def end(self) -> None:
        """Let the next ones in."""
        self._over.set()


class Sources:
    """The sources of one Toolbox; it hears from those that change and exchanges their tools without a gap.

    With `resolve`, `${VAR}` in a configuration is filled in; one that came from a file has that behind it. `lend`
    makes who lends people's own tokens for a source. Tools that differ from `lock` are set aside; `secrets` are those
    of the whole configuration.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        authorizer: Authorizer,
        *,
        factories: Mapping[str, Factory] | None = None,
        overrides: Mapping[str, ToolOverride] | None = None,
        lent: Lent | None = None,
        resolve: bool = True,
        redactor: Redactor | None = None,
        tell: Tell = lambda _name, _code, _facts: None,
        lend: Lend | None = None,
        lock: Lock | None = None,
        secrets: frozenset[str] = frozenset(),
    ) -> None:
        self._registry = registry
        self._authorizer = authorizer
        self._factories = factories or {}
        self._overrides = overrides or {}
        self._lent = lent or Lent()
        self._resolve = resolve
        self._redactor = redactor or Redactor()
        self._tell = tell
        self._lend = lend
        self._lock = lock
        self._secrets = secrets
        self._members: dict[str, _Member] = {}
        self._connecting: set[str] = set()
        self._started = False
        self.files: frozenset[tuple[str, str]] = frozenset()  # what sources read to find their tools, and which did
        self._withdrawn = False
        self.joining = False  # while the tools of a source come in for the first time, which is no change of them

    @property
    def states(self) -> list[SourceState]:
        """How each source fares now."""
        return [member.state(self._redactor) for member in self._members.values()]

    @property
    def problems(self) -> list[str]:
        """Which tools were left out of the catalog, and why, and what of the others is not checked."""
        shelves = [member.shelf for member in self._members.values()]
        problems = [problem for shelf in shelves for problem in (*shelf.problems, *shelf.held, *shelf.unchecked)]
        return [self._redactor.redact(problem) for problem in problems]

    @property
    def left_out(self) -> list[str]:
        """Which sources are down, and why."""
        return [f"source {one.name!r} is left out: {one.error}" for one in self.states if one.state == "down"]

    @property
    def listings(self) -> list[SourceListing]:
        """What each source has, under the names from before any override."""
        return [member.listing(self._authorizer) for member in self._members.values()]

    def pins(self, name: str) -> dict[str, Pin]:
        """The definitions of one source's tools as they are now, by their names within it."""
        shelf = self._members[name].shelf
        if shelf.pinning is None:
            return {}
        return {bare_name(tool): shelf.pinning.pin(tool) for tool in shelf.tools.values()}

    def collisions(self, name: str) -> dict[str, str]:
        """The tools of one source whose names were taken, and by whom."""
        return self._members[name].shelf.collisions

    def source(self, name: str) -> ToolSource | None:
        """The source of this name, if it is open."""
        member = self._members.get(name)
        return None if member is None else member.source

    async def load_all(self, configs: Sequence[ExternalToolConfig], *, wait_s: float | None = None) -> None:
        """Connect all at once; only a required one that fails may stop everything.

        Those that are not required are waited for `wait_s` seconds at most, and not at all where their last listing is
        known; they join when they are there. Their tools are listed in the order of the configuration, whoever answers
        first: a model is shown the same list every time, and of two tools with one name the same one wins.
        """
        members: list[_Member] = []
        for config in configs:
            if config.enabled:
                turn = _Turn([member.turn for member in members])
                members.append(self._enter(config, turn, rank=len(self._members) + 1))
        for member in members:
            self._begin(member)
        try:
            await _until_started(members, wait_s)
        finally:
            self._started = True
            for member in members:
                member.turn.end()
        for member in members:
            if member.at_turn:  # it answered in time, and only waited for others
                await member.filled.wait()

    async def load(self, config: ExternalToolConfig) -> None:
        """Connect one source and wait for it."""
        if config.enabled:
            member = self._enter(config, _Turn())
            await self._begin(member)

    def _enter(self, config: ExternalToolConfig, turn: _Turn, *, rank: int = 0) -> _Member:
        if config.name in self._members:
            raise ConfigError(f"two sources are named {config.name!r}; rename one of them")
        shelf = Shelf(self._registry, config, self._overrides, rank=rank)
        member = self._members[config.name] = _Member(config, shelf, turn)
        return member

    def _begin(self, member: _Member) -> asyncio.Task[None]:
        """Connect a source in a task of its own."""
        member.answered = False
        self._connecting.add(member.config.name)
        member.task = asyncio.get_running_loop().create_task(self._bring_in(member))
        return member.task

    async def _bring_in(self, member: _Member) -> None:
        """Bring a source's tools in when its turn has come; one that is late is told of."""
        config = member.config
        try:
            await self._connect(member)
        except ToolError as error:
            member.failed(error, self._redactor)
            if config.required:
                raise ConfigError(f"required source {config.name!r} failed: {member.error}", cause=error) from error
        finally:
            member.turn.end()
            self._connecting.discard(config.name)
        if self._started:
            code = EventCode.SOURCE_UP if member.error is None else EventCode.SOURCE_DOWN
            self._tell(config.name, code, {"state": "down" if member.error else "up", "detail": member.error or ""})
        if isinstance(member.source, LiveSource):
            member.source.watch(self)

    async def _connect(self, member: _Member) -> None:
        try:
            source = member.source or self._made(member)
            if isinstance(source, RecallingSource) and (known := await source.recall()):
                await self._fill(member, known)
            await self._fill(member, await source.discover(), answered=True)
        except ToolError:
            raise
        except (Exception, SystemExit) as raised:
            raise ToolConnectionError(f"{type(raised).__name__}: {raised}", cause=raised) from raised

    def _made(self, member: _Member) -> ToolSource:
        if member.config.unusable:
            raise ConfigError(member.config.unusable)
        given = with_token_variable(member.config)
        config = self._with_env_file(with_environment(given) if self._resolve else given)
        member.config = config
        filled_in = substituted(given, config, os.environ)
        self._redactor.learn(secrets_of(config) | filled_in)
        self._authorizer.entrust(config.name, named_secrets(config))
        if self._lock is not None:
            member.shelf.pinning = Pinning(self._lock, config, self._secrets | filled_in)
        credential = _credential(config, self._authorizer, self._lend)
        member.source = make_source(config, credential, self._lent, self._factories)
        return member.source

    def _with_env_file(self, config: ExternalToolConfig) -> ExternalToolConfig:
        """The source with the variables of its file, which `env` has precedence over; their values are secrets."""
        if config.env_file is None:
            return config
        try:
            found = read_env_file(Path(config.env_file))
        except FileNotFoundError:
            raise ConfigError(f"env_file {config.env_file!r} does not exist") from None
        self._redactor.learn({value for value in found.values() if len(value) >= MIN_SECRET})
        return config.model_copy(update={"env": {**found, **config.env}})

    async def _fill(self, member: _Member, found: Sequence[Tool], *, answered: bool = False) -> None:
        """Put a source's tools into the catalog when its turn has come."""
        async with member.filling:
            # It takes a while for hundreds of tools.
            await asyncio.to_thread(member.shelf.prepare, member.source, found)
            member.at_turn = True
            await member.turn.come()
            if answered:
                member.came_up()
            self._learn_manual(member)
            self.files = self.files.union((file, member.config.name) for file in getattr(member.source, "files", ()))
            self._put(member, found, getattr(member.source, "problems", ()))
        member.turn.end()

    def _learn_manual(self, member: _Member) -> None:
        """Learn the secrets that a source found in what describes its tools."""
        secrets: set[str] = getattr(member.source, "secrets", set[str]())
        self._redactor.learn(secrets)
        name = member.config.name
        self._authorizer.entrust(name, self._authorizer.entrusted(name) | secrets)

    def _put(self, member: _Member, found: Sequence[Tool], problems: Sequence[str]) -> None:
        self.joining = not member.filled.is_set()
        try:
            if not self._withdrawn:  # a listing may still be prepared in a thread while the tools are taken out
                member.shelf.fill(member.source, found, problems)
        finally:
            self.joining = False
            member.filled.set()

    async def settled(self, names: Collection[str] | None = None) -> None:
        """Wait until these sources, or all, have connected or failed to."""
        tasks = [member.task for member in self._members.values() if names is None or member.config.name in names]
        pending = [task for task in tasks if task is not None and not task.done()]
        if pending:
            await asyncio.wait(pending)

    def is_connecting(self, tool_name: str) -> bool:
        """Whether a tool that is not in the catalog may yet come, with its source."""
        member = self._of_tool(tool_name)
        return member is not None and member.connecting

    def is_stale(self, tool_name: str) -> bool:
        """Whether a tool is in the catalog from an earlier listing, while the server that runs it is connecting."""
        if not self._connecting:
            return False
        member = self._of_tool(tool_name)
        return member is not None and member.connecting and isinstance(member.source, LiveSource)

    def may_have(self, tool_name: str) -> bool:
        """Whether a tool that is not in the catalog is of a source that is connecting or down."""
        member = self._of_tool(tool_name)
        return member is not None and member.state(self._redactor).state != "up"

    async def wait_for_tool(self, tool_name: str, *, within_s: float) -> None:
        """Wait for the source of a tool; ToolSourceDownError when it is down or takes longer."""
        member = self._of_tool(tool_name)
        if member is None:
            return
        if member.can_retry:
            self._begin(member)
        if member.connecting and member.task is not None:
            await asyncio.wait([member.task], timeout=within_s)
        state = member.state(self._redactor)
        if state.state == "connecting":
            told = f"source {state.name!r} is still connecting after {within_s:.1f} s; call again, or give it longer"
            raise ToolSourceDownError(told, tool_name=tool_name)
        if state.state == "down":
            category = member.fault.category if isinstance(member.fault, ConfigError) else None
            raise ToolSourceDownError(
                f"source {state.name!r} is down: {state.error}", tool_name=tool_name, category=category
            )

    def _of_tool(self, tool_name: str) -> _Member | None:
        """The source that a tool belongs to by its name, as people or models write it."""
        member = self._members.get(tool_name.partition(".")[0])
        if member is not None or "." in tool_name:
            return member
        found = [one for name, one in self._members.items() if tool_name.startswith(f"{name}__")]
        return max(found, key=lambda one: len(one.config.name), default=None)

    async def tools_found(self, source: ToolSource, tools: Sequence[Tool], problems: Sequence[str]) -> None:
        """A source says what it offers from now on; of two listings at once the later one stays."""
        member = self._members[source.name]
        async with member.filling:
            await asyncio.to_thread(member.shelf.prepare, source, tools)
            member.came_up()
            self._put(member, tools, problems)

    def state_changed(self, source: ToolSource, state: SourceHealth) -> None:
        """A source came up or went down."""
        code = EventCode.SOURCE_UP if state.state == "up" else EventCode.SOURCE_DOWN
        self._tell(source.name, code, {"state": state.state, "detail": self._redactor.redact(state.detail)})

    def logged(self, source: ToolSource, level: str, text: str) -> None:
        """A source's other side wrote to its log."""
        told = one_line(self._redactor.excerpt(text, _LONGEST_LOG))
        transport = self._members[source.name].config.transport.value
        log = logging.getLogger(f"toolpost.sources.{transport}")
        log.log(_LEVELS.get(level, logging.ERROR), "%s: %s", source.name, told)
        self._tell(source.name, EventCode.SOURCE_LOGGED, {"level": level, "text": told})

    def withdraw(self) -> None:
        """Take all tools out of the catalog, which goes on without them."""
        self._withdrawn = True
        for member in self._members.values():
            member.shelf.clear()

    async def close(self) -> None:
        """Close every source, all at once; one that fails to close does not keep the others open."""
        tasks = [member.task for member in self._members.values() if member.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        opened = [member.source for member in self._members.values() if member.source is not None]
        await asyncio.gather(*(source.close() for source in opened), return_exceptions=True)
        for member in self._members.values():
            member.source = None


async def _until_started(members: Sequence[_Member], wait_s: float | None) -> None:
    """Wait for the required sources, and for the others until the time is over or a required one has failed."""
    loop = asyncio.get_running_loop()
    required = {member.task for member in members if member.task is not None and member.config.required}
    others = [member for member in members if not member.config.required]
    waits = {loop.create_task(_ready(member, whole=wait_s is None)) for member in others}
    try:
        late = await _first_of({*required, *waits}, timeout=wait_s) & required
        await _first_of(late, timeout=None)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def _first_of(tasks: set[asyncio.Task[None]], *, timeout: float | None) -> set[asyncio.Task[None]]:  # noqa: ASYNC109 - what asyncio.wait calls it
    """Wait for all, or raise what the first one raises; those that are not done in time are returned."""
    if not tasks:
        return tasks
    done, late = await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()
    return late


async def _ready(member: _Member, *, whole: bool) -> None:
    """Wait until a source has tools in the catalog or has failed; or, `whole`, until it has really answered."""
    if whole and member.task is not None:
        await asyncio.wait([member.task])
    else:
        await member.turn.wait()


def _credential(config: ExternalToolConfig, authorizer: Authorizer, lend: Lend | None) -> Credential:
    """What a source lists its tools with; calls for people with accounts of their own travel with those."""
    if config.auth_type is AuthType.OAUTH2_USER:
        if lend is not None and not authorizer.provides(config.name):
            authorizer.provide(config.name, lend(config))
        return discovery_credential(config)
    credential = static_credential(config)
    authorizer.share(config.name, credential)
    return credential
