"""Tools of an MCP server: listing them, caching the listing, and keeping it current."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import threading
import time
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from mcp.client.subscriptions import listen

from toolpost.catalog.names import canonical_name
from toolpost.catalog.specs import effects_from_claims, read_annotations
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ToolAuthError, ToolError, ToolSchemaError
from toolpost.contracts.source_kinds import AuthType
from toolpost.contracts.sources import ServerContents, SourceHealth
from toolpost.contracts.spec import SafetyProfile, ToolCategory, ToolSpec, ToolTarget
from toolpost.schema.json_values import cooperative_decoder, is_array, is_object
from toolpost.schema.schema_checks import check_schema
from toolpost.schema.secrets import drop_secrets
from toolpost.sources.mcp.contents import declared_kinds, list_contents
from toolpost.sources.mcp.endpoint import describe_server, is_remote
from toolpost.sources.mcp.errors import to_tool_error
from toolpost.sources.mcp.metadata import MAX_TOOL_META, passed_meta
from toolpost.sources.mcp.session import McpSession, items_of
from toolpost.transports.base import BaseSource, SourceTool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from toolpost.sources.mcp.callbacks import SessionCallbacks
    from toolpost.stores.sealing import CacheFolder

_MAX_DESCRIPTION_LENGTH = 32_768


class ServerTool(SourceTool):
    """One tool of an MCP server.

    `remote_name` is its name on the server; `has_header_arguments` says that some arguments are also sent as headers.
    """

    __slots__ = ("has_header_arguments", "remote_name")

    def __init__(self, spec: ToolSpec, remote_name: str, server: BaseSource) -> None:
        super().__init__(spec, server)
        self.remote_name = remote_name
        self.has_header_arguments = False


def build_tools(raw_tools: Iterable[Any], source: BaseSource) -> tuple[list[ServerTool], list[str]]:
    """Build the tools of a listing; report broken tools and duplicate names as problems."""
    tools: dict[str, ServerTool] = {}
    problems: list[str] = []
    config = source.config
    target, remote = server_targets(config), is_remote(config)
    for raw in raw_tools:
        name = raw.get("name") if is_object(raw) else None
        if not isinstance(name, str) or not name:
            problems.append(f"source {config.name!r} lists a tool without a name; it is set aside")
            continue
        if not config.includes(name):
            continue
        canonical = canonical_name(config.name, name)
        if canonical in tools:
            first = tools[canonical].remote_name
            text = f"Duplicate tool name '{canonical}' in ToolNode '{config.name}': the server lists {first!r}"
            problems.append(f"{text} and {name!r}; the first one is kept")
            continue
        try:
            spec = _spec(canonical, raw, config, problems, target(f"tool {name!r}"), remote=remote)
            tools[canonical] = ServerTool(spec, name, source)
        except ToolSchemaError as error:
            problems.append(f"tool {name!r} of source {config.name!r} is set aside: {error}")
    return list(tools.values()), problems


def _spec(
    canonical: str,
    raw: dict[str, Any],
    config: ExternalToolConfig,
    problems: list[str],
    target: ToolTarget,
    *,
    remote: bool,
) -> ToolSpec:
    effects, replay, safety = effects_from_claims(
        read_annotations(raw.get("annotations")), trusted=config.trust, remote=remote
    )
    extra: dict[str, Any] = {"source": "mcp", "namespace": config.name, "remote_name": raw["name"]}
    extra |= {key: raw[key] for key in ("title", "annotations", "icons") if raw.get(key)}
    if meta := passed_meta(raw.get("_meta"), most=MAX_TOOL_META):
        extra["meta"] = meta
    return ToolSpec(
        name=canonical,
        description=_description(raw, config),
        category=ToolCategory.MCP,
        input_schema=_input_schema(raw, canonical),
        output_schema=_output_schema(raw, canonical, problems),
        side_effects=effects,
        replay=replay,
        safety=safety,
        tags=("mcp", config.name),
        source=config.name,
        origin=config.name,
        extra=extra,
        target=target,
    )


def _description(raw: dict[str, Any], config: ExternalToolConfig) -> str:
    text = raw.get("description")
    description = text[:_MAX_DESCRIPTION_LENGTH] if isinstance(text, str) else ""
    return f"[{config.name}] {description}" if config.mcp.name_in_descriptions else description


def server_targets(config: ExternalToolConfig) -> Callable[[str], ToolTarget]:
    """Return a function that builds the target of a request to one server."""
    server = describe_server(config)
    detail = ToolTarget.of(
        "mcp", server, cwd=config.cwd, env=drop_secrets(config.env)
    ).detail  # built once for all tools
    return lambda what: ToolTarget("mcp", f"{what} of {server}", detail)


def _input_schema(raw: dict[str, Any], canonical: str) -> dict[str, Any]:
    schema = raw.get("inputSchema")
    if schema is None:
        return {"type": "object", "properties": {}}
    if not is_object(schema):
        raise ToolSchemaError(f"its inputSchema is a {type(schema).__name__}, not an object", tool_name=canonical)
    return schema


def _output_schema(raw: dict[str, Any], canonical: str, problems: list[str]) -> dict[str, Any] | None:
    """Return the output schema; drop and report an invalid one, because the tool can still be called."""
    schema = raw.get("outputSchema")
    if schema is None:
        return None
    try:
        check_schema(schema, tool_name=canonical, role="output")
    except ToolSchemaError as error:
        problems.append(f"the output schema of {canonical!r} is not used: {error}")
        return None
    return schema if is_object(schema) else None


_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_ONE_URI: dict[str, Any] = {
    "type": "object",
    "properties": {"uri": {"type": "string", "description": "The resource's address, as resources_list shows it"}},
    "required": ["uri"],
    "additionalProperties": False,
}
_ONE_PROMPT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "The prompt's name, as prompts_list shows it"},
        "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["name"],
    "additionalProperties": False,
}
_OFFERED = {
    "resources": (
        ("resources_list", "List the resources of {} and the templates for more.", _NO_ARGUMENTS),
        ("resources_read", "Read one resource of {}.", _ONE_URI),
    ),
    "prompts": (
        ("prompts_list", "List the prompts of {}.", _NO_ARGUMENTS),
        ("prompts_get", "Fill in one prompt of {}.", _ONE_PROMPT),
    ),
}


class UtilityTool(ServerTool):
    """A tool over a server's resources or prompts."""

    __slots__ = ()


def utility_tools(offers: Sequence[str], source: BaseSource) -> list[UtilityTool]:
    """Build the utility tools for what the server offers."""
    config = source.config
    return [
        UtilityTool(_utility_spec(name, text, schema, config), name, source)
        for kind, tools in _OFFERED.items()
        if kind in offers
        for name, text, schema in tools
        if config.includes(name)
    ]


def _utility_spec(name: str, text: str, schema: dict[str, Any], config: ExternalToolConfig) -> ToolSpec:
    remote = is_remote(config)
    return ToolSpec(
        name=f"{config.name}.{name}",
        description=text.format(config.name),
        category=ToolCategory.MCP,
        input_schema=schema,
        side_effects="read",
        safety=SafetyProfile(network=remote, destructive=False, open_world=remote),
        tags=("mcp", config.name),
        source=config.name,
        origin=config.name,
        extra={"source": "mcp", "namespace": config.name, "helper": True},
        target=server_targets(config)(name),
    )


_MAX_PROBE_WAIT_S = 2.0  # after that, what the server declares besides tools is believed
_MAX_TTL_MS = 24 * 3600 * 1000
_MAX_USERS = 64
_TOOLS_FROM_CACHE = SourceHealth("up", "its tools are those that were listed last; a call asks its caller to sign in")
_NO_TOOLS_KNOWN = SourceHealth(
    "down", "nobody has signed in yet, so its tools are not known: toolpost accounts connect"
)


class ToolListing(NamedTuple):
    """The tools of a server; `ttl_s` is how long the server says that they stay valid.

    `raw` are the usable tools as the server listed them, `offers` the kinds of what it has besides tools, and
    `contents` are these things; None where listing them takes long.
    """

    tools: list[ServerTool]
    problems: list[str]
    ttl_s: float | None
    raw: list[Any]
    offers: list[str]
    contents: ServerContents | None


async def list_tools(session: McpSession, source: BaseSource) -> ToolListing:
    """List the server's tools, page by page, and add utility tools for its resources and prompts."""
    pages, contents = await _fetch(session)
    # In a thread: a server may list thousands of tools.
    return await asyncio.to_thread(_read_pages, session, source, pages, contents)


def _read_pages(
    session: McpSession, source: BaseSource, pages: list[dict[str, Any]], contents: ServerContents | None
) -> ToolListing:
    offers = declared_kinds(session) if contents is None else _offered(contents)
    raw = list(chain.from_iterable(items_of(page, "tools") for page in pages))
    tools, problems = build_tools(raw, source)
    if pages and pages[-1].get("nextCursor"):
        problems.append(f"source {source.name!r} lists tools without end; the first {len(raw)} are kept")
    if session.client_session.modern:
        tools = [tool for tool in tools if _register_headers(session, tool, source.name, problems)]
    if len(tools) < len(raw):
        names = {tool.remote_name for tool in tools}
        raw = [one for one in raw if is_object(one) and one.get("name") in names]
    all_tools = _add_utility_tools(tools, offers, source)
    return ToolListing(all_tools, problems, _ttl(pages), raw, offers, contents)


def _offered(contents: ServerContents) -> list[str]:
    """Return the kinds of which there is at least one."""
    found = {"resources": contents.resources or contents.templates, "prompts": contents.prompts}
    return [kind for kind, items in found.items() if items]


async def _fetch(session: McpSession) -> tuple[list[dict[str, Any]], ServerContents | None]:
    """Request the pages of tools and, at the same time, what the server has besides tools."""
    capabilities = session.client_session.server_capabilities
    asks = capabilities is None or capabilities.tools is not None or capabilities == type(capabilities)()
    probe = asyncio.get_running_loop().create_task(list_contents(session))
    try:
        pages = await session.list_pages("tools/list") if asks else []
        in_time, _ = await asyncio.wait([probe], timeout=_MAX_PROBE_WAIT_S)
        return pages, probe.result() if in_time else None
    finally:
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)


def build_cached_tools(listed: CachedListing, source: BaseSource) -> tuple[list[ServerTool], list[str]]:
    """Build the tools of an earlier listing; also return the problems of those left out."""
    tools, problems = build_tools(listed.tools, source)
    for tool in tools:
        tool.has_header_arguments = True  # unknown until a session has read the schema: its first call registers them
    return _add_utility_tools(tools, listed.offers, source), problems


def _add_utility_tools(tools: list[ServerTool], offers: list[str], source: BaseSource) -> list[ServerTool]:
    """Add the utility tools; a tool of the server with the same name has precedence."""
    names = {tool.spec.name for tool in tools}
    more = utility_tools(offers, source)
    return [*tools, *(tool for tool in more if tool.spec.name not in names)]


def _register_headers(session: McpSession, tool: ServerTool, source: str, problems: list[str]) -> bool:
    """Register a tool's header arguments; False when they are invalid and the tool must not be offered."""
    reason = session.client_session.register_header_arguments(tool.remote_name, tool.spec.input_schema)
    tool.has_header_arguments = session.client_session.has_header_arguments(tool.remote_name)
    if reason is not None:
        problems.append(f"tool {tool.remote_name!r} of source {source!r} is set aside: {reason}")
    return reason is None


def _ttl(pages: list[dict[str, Any]]) -> float | None:
    values = [page.get("ttlMs") for page in pages]
    ttls = [min(ttl, _MAX_TTL_MS) / 1000 for ttl in values if isinstance(ttl, int | float) and ttl > 0]
    return min(ttls) if ttls else None


class CachedListing(NamedTuple):
    """Tools as a server listed them, and what else it offers: `resources`, `prompts`."""

    tools: list[Any]
    offers: list[str]


class ListingCache:
    """Cache of one server's last listings, in a folder if there is one; unreadable files are ignored.

    `target` separates servers that were configured under one name, one after the other. A server may list different
    tools per person. The cache keeps one listing per credential, so that a sign-in does not remove another's tools.
    """

    def __init__(self, folder: CacheFolder | None, name: str, *, target: str = "") -> None:
        self._folder = folder
        self._name = f"{name}.json"
        self._target = hashlib.sha256(target.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self._listings: dict[str, CachedListing] | None = None
        self._lock = threading.Lock()  # saved and loaded in threads

    def save(self, tools: Sequence[Any], offers: Sequence[str], *, key: str = "") -> None:
        """Store the listing of a credential in place of its last one."""
        with self._lock:
            listings, listing = self._read(), CachedListing(list(tools), list(offers))
            if listings.get(key) == listing:
                return
            listings.pop(key, None)
            listings[key] = listing
            for oldest in list(listings)[:-_MAX_USERS]:
                del listings[oldest]
            self._write(listings)

    @property
    def has_tools(self) -> bool:
        """Whether any listing has tools."""
        return any(listing.tools for listing in list(self._read().values()))

    def load(self) -> CachedListing:
        """Merge the cached listings of all credentials; of two tools with one name the later one counts."""
        with self._lock:
            newest_first = list(reversed(self._read().values()))
        tools: dict[Any, Any] = {}
        for listing in newest_first:
            for tool in listing.tools:
                tools.setdefault(tool.get("name") if is_object(tool) else None, tool)
        return CachedListing(
            list(tools.values()), sorted({offer for listing in newest_first for offer in listing.offers})
        )

    def _read(self) -> dict[str, CachedListing]:
        if self._listings is None:
            self._listings = {}
            data = None if self._folder is None else self._folder.read(self._name)
            with contextlib.suppress(ValueError, RecursionError):
                self._listings = {} if data is None else _parse_listings(_decode(data), self._target)
        return self._listings

    def _write(self, listings: dict[str, CachedListing]) -> None:
        if self._folder is not None:
            entries = {key: listing._asdict() for key, listing in listings.items()}
            self._folder.write(self._name, json.dumps({"target": self._target, "listings": entries}).encode())


def _decode(data: bytes) -> Any:
    text = data.decode()
    return cooperative_decoder(text).decode(text)


def _parse_listings(document: object, target: str) -> dict[str, CachedListing]:
    """Parse the cached listings; none when they are of another server with the same name."""
    parsed: dict[str, CachedListing] = {}
    listings = document.get("listings") if is_object(document) and document.get("target") == target else None
    for key, listing in (listings if is_object(listings) else {}).items():
        tools, offers = (listing.get("tools"), listing.get("offers")) if is_object(listing) else (None, None)
        if is_array(tools) and is_array(offers):
            parsed[key] = CachedListing(tools, [str(offer) for offer in offers])
    return parsed


class AnonymousListing:
    """Remembers whether the server lists tools without a user's credential. `refusal` is its last 401 or 403."""

    def __init__(self, source: BaseSource, listings: CacheFolder | None) -> None:
        config = self._config = source.config
        self._source = source
        self._cache = ListingCache(listings, config.name, target=config.connection)
        self.requires_account = False
        self.refusal: ToolError | None = None

    @property
    def health(self) -> SourceHealth:
        """Health of a source whose server lists tools only for accounts."""
        known = self._cache.has_tools or self._config.mcp.declared_tools
        return _TOOLS_FROM_CACHE if known else _NO_TOOLS_KNOWN

    def note_refusal(self, error: ToolError) -> bool:
        """Record a refusal that means an account is required; False for any other error."""
        if self._config.auth_type is not AuthType.OAUTH2_USER or not isinstance(error, ToolAuthError):
            return False
        self.refusal, self.requires_account = error, True
        return True

    def save(self, listing: ToolListing, *, key: str) -> None:
        """Cache a listing for times when the server refuses to list."""
        self._cache.save(listing.raw, listing.offers, key=key)

    def known_tools(self) -> tuple[list[ServerTool], list[str]]:
        """Build the cached tools, else the declared ones; also return the problems of those left out."""
        return build_cached_tools(self._known_listing(), self._source)

    def saved_tools(self) -> tuple[list[ServerTool], list[str]]:
        """Build the cached tools; also return the problems of those left out."""
        return build_cached_tools(self._cache.load(), self._source)

    def _known_listing(self) -> CachedListing:
        """Return the cached listing, else the tools that an operator declared."""
        cached = self._cache.load()
        return cached if cached.tools else CachedListing(self._config.mcp.declared_tools, [])


_FIRST_BACKOFF_S = 0.2
_MAX_BACKOFF_S = 60.0
_MIN_TTL_S = 1.0
_MIN_PAUSE_S = 0.2
_MAX_PAUSE_S = 30.0


class ConnectionMonitor:
    """Background task of a source that keeps its session open and its tools current."""

    def __init__(
        self,
        callbacks: SessionCallbacks,
        connect: Callable[[], Awaitable[McpSession]],
        list_tools: Callable[[McpSession], Awaitable[ToolListing]],
        *,
        anonymous: AnonymousListing,
        poll_s: float,
    ) -> None:
        self._callbacks = callbacks
        self._connect = connect
        self._list = list_tools
        self._poll_s = poll_s
        self._anonymous = anonymous
        self._task: asyncio.Task[None] | None = None
        self._last: tuple[McpSession, float | None] | None = None  # the session that was listed, for so many seconds
        self._refreshed_at = 0.0
        self._pause_s = _MIN_PAUSE_S
        self._subscription: tuple[McpSession, asyncio.Task[None]] | None = None
        self.health = SourceHealth("connecting")

    def resume_from(self, session: McpSession, listing: ToolListing) -> None:
        """Start from a listing that was just made."""
        self._last = (session, listing.ttl_s)
        self.health = SourceHealth("up")

    def start(self) -> None:
        """Start the task, once."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop the task and the subscription."""
        self._unsubscribe()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                session, ttl_s = self._last or await self._refresh()
            except Exception as raised:  # noqa: BLE001 - whatever fails, the next try may work
                failures += 1
                error = to_tool_error(raised)
                if self._anonymous.note_refusal(error):
                    await self._publish_known_tools()
                    return  # further anonymous requests would be refused again
                self._set_health(SourceHealth("down", error.message))
                wait = min(_MAX_BACKOFF_S, _FIRST_BACKOFF_S * 2.0 ** min(failures, 20))
                await asyncio.sleep(max(wait, error.retry_after_s or 0.0))
                continue
            failures = 0
            self._set_health(SourceHealth("up"))
            await self._wait_for_change(session, ttl_s)
            await self._throttle()
            self._last = None
            if session.is_closed:
                self._set_health(SourceHealth("down", "the connection broke"))

    async def _publish_known_tools(self) -> None:
        """Publish the tools known without a listing."""
        tools, problems = await asyncio.to_thread(self._anonymous.known_tools)
        if tools:
            await self._callbacks.publish_tools(tools, problems)

    async def _throttle(self) -> None:
        """Delay the next refresh, longer each time, when a server changes all the time."""
        since = time.monotonic() - self._refreshed_at
        if since < self._pause_s:
            await asyncio.sleep(self._pause_s - since)
            self._pause_s = min(_MAX_PAUSE_S, self._pause_s * 2)
        else:
            self._pause_s = _MIN_PAUSE_S
        self._refreshed_at = time.monotonic()

    async def _refresh(self) -> tuple[McpSession, float | None]:
        """Connect if needed, list the tools, and publish them; return how long they stay valid."""
        session = await self._connect()
        self._callbacks.list_changed.clear()
        listing = await self._list(session)
        await self._callbacks.publish_tools(listing.tools, listing.problems)
        return session, listing.ttl_s

    def _set_health(self, health: SourceHealth) -> None:
        if health != self.health:
            self.health = health
            self._callbacks.publish_health(health)

    async def _wait_for_change(self, session: McpSession, ttl_s: float | None) -> None:
        """Wait until the session ends, the tools change, or the next poll is due."""
        loop = asyncio.get_running_loop()
        self._subscribe(session)
        waits: set[asyncio.Task[Any]] = {
            loop.create_task(session.closed.wait()),
            loop.create_task(self._callbacks.list_changed.wait()),
        }
        ttl = self._poll_s if ttl_s is None else max(_MIN_TTL_S, ttl_s)
        try:
            await asyncio.wait(waits, timeout=ttl, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def _subscribe(self, session: McpSession) -> None:
        """Subscribe to a session's changes, once; a subscription ends with its session."""
        if self._subscription is None or self._subscription[0] is not session:
            self._unsubscribe()
            self._subscription = (session, asyncio.get_running_loop().create_task(self._listen(session)))

    def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription[1].cancel()

    async def _listen(self, session: McpSession) -> None:
        """Keep a subscription where protocol and server have it; resubscribe after it ended."""
        lists = _subscribable_lists(session)
        if not (session.client_session.modern and lists):
            return
        pause_s, subscribed = _MIN_PAUSE_S, False
        while True:
            since = time.monotonic()
            subscribed = await self._receive_changes(session, lists) or subscribed
            if not subscribed:  # refused: polling alone finds changes
                return
            lasted = time.monotonic() - since > _MAX_PAUSE_S
            pause_s = _MIN_PAUSE_S if lasted else min(self._poll_s, pause_s * 2)
            await asyncio.sleep(pause_s)

    async def _receive_changes(self, session: McpSession, lists: frozenset[str]) -> bool:
        """Receive changes until the subscription ends; return whether the server accepted it."""
        subscribed = False
        with contextlib.suppress(Exception):  # the next try or poll reports a lasting failure
            async with listen(
                session.client_session,
                tools_list_changed="tools" in lists,
                resources_list_changed="resources" in lists,
                prompts_list_changed="prompts" in lists,
            ) as events:
                subscribed = True
                self._callbacks.list_changed.set()  # changes before the subscription were not announced
                async for _ in events:
                    self._callbacks.list_changed.set()
        return subscribed


def _subscribable_lists(session: McpSession) -> frozenset[str]:
    """Return the lists whose changes the server declares to announce."""
    capabilities = session.client_session.server_capabilities
    declared = {kind: getattr(capabilities, kind, None) for kind in ("tools", "resources", "prompts")}
    return frozenset(kind for kind, one in declared.items() if one is not None and one.list_changed)
