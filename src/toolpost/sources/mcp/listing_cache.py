"""Cache of the last listings of an MCP server, and the tools that are known before a user has signed in."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.errors import ToolAuthError, ToolError
from toolpost.contracts.source_kinds import AuthType
from toolpost.contracts.sources import SourceHealth
from toolpost.schema.json_values import cooperative_decoder, is_array, is_object
from toolpost.sources.base import BaseSource
from toolpost.sources.mcp.listing import ToolListing, add_utility_tools
from toolpost.sources.mcp.options import McpOptions
from toolpost.sources.mcp.tools import ServerTool, build_tools

if TYPE_CHECKING:
    from toolpost.stores.encryption import CacheFolder

_MAX_USERS = 64
_TOOLS_FROM_CACHE = SourceHealth(
    "up", "its tools are those that were listed last; a call requires its caller to sign in"
)
_NO_TOOLS_KNOWN = SourceHealth(
    "down", "no user has signed in yet, so its tools are not known: toolpost accounts connect"
)


class AnonymousListing:
    """Listings of a server that may require a user's credential; `refusal` is its last 401 or 403."""

    def __init__(self, source: BaseSource, listings: CacheFolder | None) -> None:
        config = self._config = source.config
        self._source = source
        self._cache = ListingCache(listings, config.name, target=config.connection)
        self.requires_account = False
        self.refusal: ToolError | None = None

    @property
    def health(self) -> SourceHealth:
        """Health of a source whose server lists tools only for accounts."""
        known = self._cache.has_tools or self._config.read_options(McpOptions).declared_tools
        return _TOOLS_FROM_CACHE if known else _NO_TOOLS_KNOWN

    def note_refusal(self, error: ToolError) -> bool:
        """Record a refusal that means an account is required; False for any other error."""
        if self._config.auth_type is not AuthType.OAUTH2_USER or not isinstance(error, ToolAuthError):
            return False
        self.refusal, self.requires_account = error, True
        return True

    def save(self, listing: ToolListing, *, key: str) -> None:
        self._cache.save(listing.raw, listing.offers, key=key)

    def known_tools(self) -> tuple[list[ServerTool], list[str]]:
        """Build the cached tools, else the declared ones; also return the problems of skipped ones."""
        cached = self._cache.load()
        if not cached.tools:
            cached = CachedListing(self._config.read_options(McpOptions).declared_tools, [])
        return build_cached_tools(cached, self._source)

    def saved_tools(self) -> tuple[list[ServerTool], list[str]]:
        """Build the cached tools; also return the problems of skipped ones."""
        return build_cached_tools(self._cache.load(), self._source)


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
        """Merge the cached listings of all credentials; of two tools with the same name the later one is used."""
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
                if data is not None:
                    text = data.decode()
                    self._listings = _parse_listings(cooperative_decoder(text).decode(text), self._target)
        return self._listings

    def _write(self, listings: dict[str, CachedListing]) -> None:
        if self._folder is not None:
            entries = {key: listing._asdict() for key, listing in listings.items()}
            self._folder.write(self._name, json.dumps({"target": self._target, "listings": entries}).encode())


class CachedListing(NamedTuple):
    """Tools as a server listed them, and what else it offers: `resources`, `prompts`."""

    tools: list[Any]
    offers: list[str]


def _parse_listings(document: object, target: str) -> dict[str, CachedListing]:
    """Parse the cached listings; none when they are of another server with the same name."""
    parsed: dict[str, CachedListing] = {}
    listings = document.get("listings") if is_object(document) and document.get("target") == target else None
    for key, listing in (listings if is_object(listings) else {}).items():
        tools, offers = (listing.get("tools"), listing.get("offers")) if is_object(listing) else (None, None)
        if is_array(tools) and is_array(offers):
            parsed[key] = CachedListing(tools, [str(offer) for offer in offers])
    return parsed


def build_cached_tools(listed: CachedListing, source: BaseSource) -> tuple[list[ServerTool], list[str]]:
    """Build the tools of an earlier listing; also return the problems of skipped ones."""
    tools, problems = build_tools(listed.tools, source)
    for tool in tools:
        tool.has_header_arguments = True  # unknown until a session has read the schema: its first call registers them
    return add_utility_tools(tools, listed.offers, source), problems
