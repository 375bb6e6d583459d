"""Whether a server lets strangers in to list its tools, and what is known of them where it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.contracts.config import AuthType
from toolpost.contracts.errors import ToolAuthError
from toolpost.contracts.sources import SourceHealth
from toolpost.sources.mcp.listing import known_tools
from toolpost.sources.mcp.memory import Listed, ListingMemory

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.errors import ToolError
    from toolpost.sources.mcp.listing import Listing
    from toolpost.sources.mcp.tools import ServerTool, ToolServer
    from toolpost.stores.cache_folder import CacheFolder

_WAITING = SourceHealth("up", "its tools are those that were listed last; a call asks its caller to sign in")
_UNLISTED = SourceHealth("down", "nobody has signed in yet, so its tools are not known: toolpost accounts connect")


class Door:
    """The way in for those without an account; `refusal` is what was said when it was last found shut."""

    def __init__(
        self, config: ExternalToolConfig, server: ToolServer, *, remote: bool, listings: CacheFolder | None
    ) -> None:
        self._config = config
        self._server = server
        self._remote = remote
        self._memory = ListingMemory(listings, config.name, target=config.connection)
        self.is_shut = False
        self.refusal: ToolError | None = None

    @property
    def health(self) -> SourceHealth:
        """How a source is doing whose server lets no strangers in."""
        return _WAITING if self._known().tools else _UNLISTED

    def found_shut(self, error: ToolError) -> bool:
        """Whether an error means that only people with accounts are let in, who will come by themselves."""
        if self._config.auth_type is not AuthType.OAUTH2_USER or not isinstance(error, ToolAuthError):
            return False
        self.refusal, self.is_shut = error, True
        return True

    def remember(self, listing: Listing, *, by: str) -> None:
        """Keep what was listed, for the next who are not let in."""
        self._memory.keep(listing.raw, listing.offers, by=by)

    def tools(self) -> tuple[list[ServerTool], list[str]]:
        """The tools that are known without going in, and what was left out of them and why."""
        return known_tools(self._known(), self._config, self._server, remote=self._remote)

    def recalled(self) -> tuple[list[ServerTool], list[str]]:
        """The tools that were listed last, for anybody, and what was left out of them and why."""
        return known_tools(self._memory.recall(), self._config, self._server, remote=self._remote)

    def _known(self) -> Listed:
        """What was listed last, else what an operator declared."""
        recalled = self._memory.recall()
        return recalled if recalled.tools else Listed(self._config.mcp.declared_tools, [])
