"""Brings the configured sources into the catalog and keeps them there; one that fails leaves the others alone."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.auth.static import (
    discovery_credential,
    secrets_of,
    static_credential,
    substituted,
    with_environment,
)
from toolpost.contracts.config import AuthType
from toolpost.contracts.errors import ConfigError, ToolConnectionError, ToolError
from toolpost.contracts.events import EventCode
from toolpost.contracts.sources import LiveSource
from toolpost.policy.redaction import Redactor
from toolpost.toolbox.factories import Lent, make_source
from toolpost.toolbox.presets import with_token_variable
from toolpost.toolbox.shelf import Shelf

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from toolpost.auth.authorizer import Authorizer
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.calls import Credential
    from toolpost.contracts.config import ExternalToolConfig, ToolOverride
    from toolpost.contracts.sources import CredentialProvider, SourceHealth, ToolSource
    from toolpost.contracts.tool import Tool
    from toolpost.toolbox.factories import Factory

    Lend = Callable[[ExternalToolConfig], CredentialProvider]
    Tell = Callable[[str, EventCode, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """How a source fares: its tools, or why it has none."""

    name: str
    transport: str
    ok: bool
    tools: int = 0
    error: str | None = None


class Listing(NamedTuple):
    """What a source was found to have, and whether that is all: others may show only to whoever signs in."""

    config: ExternalToolConfig
    tools: tuple[str, ...]
    problems: tuple[str, ...]
    sure: bool

    @property
    def bare(self) -> tuple[str, ...]:
        """The names within the source."""
        return tuple(name.partition(".")[2] for name in self.tools)


class _Member:
    """One source, its shelf in the catalog, and why it could not be brought in."""

    def __init__(self, config: ExternalToolConfig, shelf: Shelf) -> None:
        self.config = config
        self.shelf = shelf
        self.source: ToolSource | None = None
        self.error: str | None = None

    def state(self, redactor: Redactor) -> SourceState:
        source, error = self.source, self.error
        if error is None and isinstance(source, LiveSource) and source.health.state == "down":
            error = redactor.told(source.health.detail)
        return SourceState(
            name=self.config.name,
            transport=self.config.transport.value,
            ok=error is None,
            tools=self.shelf.offered if error is None else 0,
            error=error,
        )

    def listing(self, authorizer: Authorizer) -> Listing:
        config, source = self.config, self.source
        personal = config.auth_type is AuthType.OAUTH2_USER or authorizer.provides(config.name)
        up = not isinstance(source, LiveSource) or source.health.state == "up"
        sure = up and not personal and self.error is None
        return Listing(config, tuple(self.shelf.tools), tuple(self.shelf.problems), sure)


class _Turn:
    """When a source's tools may enter the catalog: after those of the sources before it."""

    def __init__(self, before: Sequence[asyncio.Event] = ()) -> None:
        self._before = before
        self.over = asyncio.Event()

    async def come(self) -> None:
        for over in self._before:
            await over.wait()

    async def used_by(self, load: Coroutine[Any, Any, None]) -> None:
        try:
            await load
        finally:
            self.over.set()


def _turns(count: int) -> list[_Turn]:
    turns: list[_Turn] = []
    for _ in range(count):
        turns.append(_Turn([turn.over for turn in turns]))
    return turns


class Sources:
    """The sources of one Toolbox; it hears from those that change and exchanges their tools without a gap.

    With `resolve`, `${VAR}` in a configuration is filled in; one that came from a file has that behind it. `lend`
    makes who lends people's own tokens for a source.
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
        self._members: dict[str, _Member] = {}

    @property
    def states(self) -> list[SourceState]:
        """How each source fares now."""
        return [member.state(self._redactor) for member in self._members.values()]

    @property
    def problems(self) -> list[str]:
        """What was left out of the catalog, and why, and what of it is not checked."""
        shelves = [member.shelf for member in self._members.values()]
        problems = [problem for shelf in shelves for problem in (*shelf.problems, *shelf.unchecked)]
        return [self._redactor.told(problem) for problem in problems]

    @property
    def listings(self) -> list[Listing]:
        """What each source has, under the names from before any override."""
        return [member.listing(self._authorizer) for member in self._members.values()]

    def collisions(self, name: str) -> dict[str, str]:
        """The tools of one source whose names were taken, and by whom."""
        return self._members[name].shelf.collisions

    def source(self, name: str) -> ToolSource | None:
        """The source of this name, if it is open."""
        member = self._members.get(name)
        return None if member is None else member.source

    def tools(self, name: str) -> list[Tool]:
        """The tools of one source that are in the catalog."""
        member = self._members.get(name)
        return [] if member is None else list(member.shelf.tools.values())

    async def load_all(self, configs: Sequence[ExternalToolConfig]) -> None:
        """Bring all in at once, so that a slow one delays nobody; only a required one may stop everything.

        Their tools enter the catalog in the order of the configuration, whoever answers first: a model is shown the
        same list every time, and of two tools with one name the same one wins.
        """
        enabled = [config for config in configs if config.enabled]
        turns = _turns(len(enabled))
        loads = [turn.used_by(self.load(config, turn)) for config, turn in zip(enabled, turns, strict=True)]
        results = await asyncio.gather(*loads, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def load(self, config: ExternalToolConfig, turn: _Turn | None = None) -> None:
        """Bring one source in, its tools when its turn has come."""
        if not config.enabled:
            return
        if config.name in self._members:
            raise ConfigError(f"two sources are named {config.name!r}; rename one of them")
        shelf = Shelf(self._registry, config, self._overrides)
        member = self._members[config.name] = _Member(config, shelf)
        try:
            await self._connect(member, turn or _Turn())
        except ToolError as error:
            member.error = self._redactor.told(str(error))
            if config.required:
                raise ConfigError(f"required source {config.name!r} failed: {member.error}", cause=error) from error
        if isinstance(member.source, LiveSource):
            member.source.watch(self)

    async def _connect(self, member: _Member, turn: _Turn) -> None:
        try:
            given = with_token_variable(member.config)
            config = with_environment(given) if self._resolve else given
            member.config = config
            self._redactor.learn(secrets_of(config) | substituted(given, config, os.environ))
            credential = _credential(config, self._authorizer, self._lend)
            member.source = make_source(config, credential, self._lent, self._factories)
            found = await member.source.discover()
            await turn.come()
            self._redactor.learn(getattr(member.source, "secrets", ()))
            member.shelf.fill(member.source, found, getattr(member.source, "problems", ()))
        except ToolError:
            raise
        except (Exception, SystemExit) as raised:
            raise ToolConnectionError(f"{type(raised).__name__}: {raised}", cause=raised) from raised

    def tools_found(self, source: ToolSource, tools: Sequence[Tool], problems: Sequence[str]) -> None:
        """A source says what it offers from now on."""
        member = self._members[source.name]
        member.error = None
        member.shelf.fill(source, tools, problems)

    def state_changed(self, source: ToolSource, state: SourceHealth) -> None:
        """A source came up or went down."""
        code = EventCode.SOURCE_UP if state.state == "up" else EventCode.SOURCE_DOWN
        self._tell(source.name, code, {"state": state.state, "detail": self._redactor.told(state.detail)})

    def logged(self, source: ToolSource, level: str, text: str) -> None:
        """A source's other side wrote to its log."""
        self._tell(source.name, EventCode.SOURCE_LOGGED, {"level": level, "text": text})

    def withdraw(self) -> None:
        """Take all tools out of the catalog, which goes on without them."""
        for member in self._members.values():
            member.shelf.clear()

    async def close(self) -> None:
        """Close every source, all at once; one that fails to close does not keep the others open."""
        opened = [member.source for member in self._members.values() if member.source is not None]
        await asyncio.gather(*(source.close() for source in opened), return_exceptions=True)
        for member in self._members.values():
            member.source = None


def _credential(config: ExternalToolConfig, authorizer: Authorizer, lend: Lend | None) -> Credential:
    """What a source lists its tools with; calls for people with accounts of their own travel with those."""
    if config.auth_type is AuthType.OAUTH2_USER:
        if lend is not None and not authorizer.provides(config.name):
            authorizer.provide(config.name, lend(config))
        return discovery_credential(config)
    credential = static_credential(config)
    authorizer.share(config.name, credential)
    return credential
