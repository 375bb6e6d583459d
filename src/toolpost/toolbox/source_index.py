"""The sources of one Toolbox by name, and the state of each; calls wait here for sources that are connecting."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from toolpost.configuration.lint import SourceListing
from toolpost.contracts.errors import ConfigError, ToolError, ToolSourceDownError
from toolpost.contracts.source_kinds import AuthType
from toolpost.contracts.sources import ContentSource, LiveSource, ToolSource
from toolpost.toolbox.idle_sources import ApprovedSource
from toolpost.toolbox.source_tools import bare_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence

    from toolpost.auth.credentials import SourceAccess
    from toolpost.catalog.lock import Pin
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.policy.redaction import Redactor
    from toolpost.toolbox.source_tools import SourceTools

ConnectionState: TypeAlias = Literal["up", "connecting", "down", "idle"]


class SourceIndex:
    """The sources of one Toolbox by name.

    The index is created before the router, which waits here for the tools of connecting sources. The source manager
    fills it.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.by_name: dict[str, ManagedSource] = {}
        self.connecting: set[str] = set()  # sources that calls may have to wait for

    @property
    def states(self) -> list[SourceState]:
        """The current state of each source."""
        return [managed.state(self._redactor) for managed in self.by_name.values()]

    @property
    def problems(self) -> list[str]:
        """Tools that are skipped or blocked and why, and patterns that are not checked."""
        filled = [(managed.tools.listing, managed.tools.held) for managed in self.by_name.values()]
        problems = [problem for listing, held in filled for problem in (*listing.problems, *held, *listing.unchecked)]
        return [self._redactor.redact(problem) for problem in problems]

    @property
    def left_out(self) -> list[str]:
        """Sources that are down, and why."""
        return [f"source {one.name!r} is skipped: {one.error}" for one in self.states if one.state == "down"]

    @property
    def listings(self) -> list[SourceListing]:
        """The listing of each source, under the names before any override."""
        return [managed.listing() for managed in self.by_name.values()]

    @property
    def open_configs(self) -> list[ExternalToolConfig]:
        """The configurations of all sources except those of table rows."""
        return [managed.config for managed in self.by_name.values() if not managed.from_rows]

    def find(self, name: str) -> ManagedSource:
        """Return the source of this name; ConfigError if there is none."""
        managed = self.by_name.get(name)
        if managed is None:
            raise ConfigError(f"there is no source {name!r}; there are: {', '.join(self.by_name) or 'none'}")
        return managed

    def source(self, name: str) -> ToolSource | None:
        """Return the open source of this name, if any."""
        managed = self.by_name.get(name)
        return None if managed is None else managed.source

    def content_sources(self) -> dict[str, ContentSource]:
        """Return the sources with resources and prompts, by name."""
        sources = {name: managed.source for name, managed in self.by_name.items()}
        return {name: source for name, source in sources.items() if isinstance(source, ContentSource)}

    def pins(self, name: str) -> dict[str, Pin]:
        """Return the current definitions of a source's tools, by their names within the source."""
        tools = self.by_name[name].tools
        if tools.pins is None:
            return {}
        return {bare_name(tool): tools.pins.pin(tool) for tool in tools.listing.tools.values()}

    def collisions(self, name: str) -> Mapping[str, str]:
        """Return the tools of a source that collided with other names, with the problem."""
        return self.by_name[name].tools.listing.collisions

    def start(self, managed: ManagedSource) -> asyncio.Task[None]:
        """Start the task that connects a source."""
        managed.answered = False
        self.connecting.add(managed.config.name)
        managed.task = asyncio.get_running_loop().create_task(managed.connect(managed))
        return managed.task

    async def settled(self, names: Collection[str] | None = None) -> None:
        """Wait until these sources, or all, have connected or failed to."""
        tasks = [managed.task for managed in self.by_name.values() if names is None or managed.config.name in names]
        pending = [task for task in tasks if task is not None and not task.done()]
        if pending:
            await asyncio.wait(pending)

    def is_connecting(self, tool_name: str) -> bool:
        """Return whether a tool that is not in the catalog may come from a source that is connecting."""
        managed = self._source_of(tool_name)
        return managed is not None and (managed.connecting or managed.is_placeholder)

    def is_stale(self, tool_name: str) -> bool:
        """Return whether a tool is in the catalog from a cached listing or a table, not yet from its server."""
        if not self.connecting:
            return False
        managed = self._source_of(tool_name)
        if managed is None:
            return False
        return managed.is_placeholder or (managed.connecting and isinstance(managed.source, LiveSource))

    def may_have(self, tool_name: str) -> bool:
        """Return whether a tool that is not in the catalog belongs to a source that is not up."""
        managed = self._source_of(tool_name)
        return managed is not None and managed.state(self._redactor).state != "up"

    async def wait_for_tool(self, tool_name: str, *, within_s: float) -> None:
        """Wait for the source of a tool; retry a source that is down if its backoff is over."""
        managed = self._source_of(tool_name)
        if managed is None:
            return
        if managed.can_retry:
            self.start(managed)
        if managed.connecting and managed.task is not None:
            await asyncio.wait([managed.task], timeout=within_s)
        state = managed.state(self._redactor)
        if state.state == "connecting":
            message = (
                f"source {state.name!r} is still connecting after {within_s:.1f} s; call again, or increase the timeout"
            )
            raise ToolSourceDownError(message, tool_name=tool_name)
        if state.state == "down":
            category = managed.fault.category if isinstance(managed.fault, ConfigError) else None
            raise ToolSourceDownError(
                f"source {state.name!r} is down: {state.error}", tool_name=tool_name, category=category
            )

    def _source_of(self, tool_name: str) -> ManagedSource | None:
        """Find the source of a tool by the canonical or the model name of the tool."""
        managed = self.by_name.get(tool_name.partition(".")[0])
        if managed is not None or "." in tool_name:
            return managed
        sources = [one for name, one in self.by_name.items() if tool_name.startswith(f"{name}__")]
        return max(sources, key=lambda one: len(one.config.name), default=None)


class SourceState(Struct, frozen=True, kw_only=True):
    """The state of a source: the number of its tools, or the error.

    A source is `connecting` until its first answer. Its tools may be in the catalog before that, from a cached
    listing; if they are not, the source is not `ok` yet. An `idle` source connects with the first call to its tools.
    """

    name: str
    transport: str
    ok: bool
    tools: int = 0
    error: str | None = None
    state: ConnectionState = "up"


class ManagedSource:
    """One source, its tools in the catalog, the task that connects it, and its last error.

    Its tools enter the catalog once every event of `before` is set: `entered` of the sources before it. `connect`
    connects the source and records the result here.
    """

    _CONNECTING = "it is still connecting; a call to one of its tools waits for it"
    _FIRST_RETRY_S = 1.0
    _LONGEST_RETRY_S = 60.0

    def __init__(
        self,
        config: ExternalToolConfig,
        tools: SourceTools,
        access: SourceAccess,
        connect: Callable[[ManagedSource], Coroutine[None, None, None]],
        *,
        before: Sequence[asyncio.Event] = (),
        declared: bool = False,
    ) -> None:
        self.config = config
        self.tools = tools
        self.access = access
        self.connect = connect
        self.before = before
        self.given = config  # before variables are substituted
        self.declared = declared  # by the configuration, not added by a program
        self.is_placeholder = False  # the catalog has the tools that table rows describe; the server listed none yet
        self.from_rows = False  # added for table rows, and used for these alone
        self.from_data = False  # the address, too, comes from data
        self.entered = asyncio.Event()  # also set when the source failed, or startup is over
        self.source: ToolSource | None = None
        self.task: asyncio.Task[None] | None = None
        self.error: str | None = None
        self.fault: ToolError | None = None
        self.failures = 0
        self.retry_at = 0.0
        self.changed_at = time.time()  # when it came up or went down
        self.last_error_at: float | None = None
        self.listed = False  # the source has listed tools, and may wait for the sources before it
        self.filled = asyncio.Event()
        self.filling = asyncio.Lock()  # serializes listings
        self.answered = False

    @property
    def connecting(self) -> bool:
        """Whether the source has not answered yet."""
        return not self.answered and self.task is not None and not self.task.done()

    @property
    def is_idle(self) -> bool:
        """Whether the source waits for the first call before it connects."""
        waits = isinstance(self.source, ApprovedSource) and not self.source.is_connected
        return waits or self._may_start

    @property
    def _may_start(self) -> bool:
        """Whether the first call connects the source, without further approval."""
        return self.is_placeholder and self.task is None

    def mark_down(self, fault: ToolError, redactor: Redactor) -> None:
        """Record why connecting failed, and back off exponentially."""
        fault.conceal(redactor.message)
        self.fault, self.error, self.answered = fault, str(fault), True
        self.note_state(is_up=False)
        self.failures += 1
        backoff_s = min(self._LONGEST_RETRY_S, self._FIRST_RETRY_S * 2.0 ** (self.failures - 1))
        self.retry_at = time.monotonic() + backoff_s

    def mark_up(self) -> None:
        """Clear the error and the backoff; the tools are now those that the source listed."""
        self.is_placeholder = False
        if self.error is not None or not self.answered:
            self.note_state(is_up=True)
        self.fault, self.error, self.failures, self.answered = None, None, 0, True

    def note_state(self, *, is_up: bool) -> None:
        """Record when the source came up or went down."""
        self.changed_at = time.time()
        self.last_error_at = self.last_error_at if is_up else self.changed_at

    @property
    def can_retry(self) -> bool:
        """Whether a call may connect the source.

        A live source reconnects itself, and invalid settings stay invalid.
        """
        if self._may_start:
            return True
        retryable = self.fault is not None and not isinstance(self.fault, ConfigError)
        return retryable and not isinstance(self.source, LiveSource) and time.monotonic() >= self.retry_at

    def state(self, redactor: Redactor) -> SourceState:
        """Return the current state, with the error redacted."""
        source, error = self.source, self.error
        if error is None and isinstance(source, LiveSource) and source.health.state == "down":
            error = redactor.redact(source.health.detail)
        state: ConnectionState = "up" if error is None else "down"
        if self.is_idle:
            state = "idle"
        elif self.connecting:
            state, error = "connecting", None if self.filled.is_set() else self._CONNECTING
        return SourceState(
            name=self.config.name,
            transport=str(self.config.transport),
            ok=error is None,
            tools=self.tools.listing.offered if error is None else 0,
            error=error,
            state=state,
        )

    def listing(self) -> SourceListing:
        """Return the tools that the source listed; they are sure if no user or retry can add others."""
        config, source = self.config, self.source
        personal = config.auth_type is AuthType.OAUTH2_USER or self.access.provider is not None
        up = not isinstance(source, LiveSource) or source.health.state == "up"
        sure = up and not personal and not self.connecting and self.error is None
        listing = self.tools.listing
        return SourceListing(config, tuple(listing.tools), tuple(listing.problems), sure)
