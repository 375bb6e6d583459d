"""Names of tools and prompts and URIs of resources, translated between clients and sources.

If several sources are served, names contain their source, so that none collide. A single source can be served under
its own names, like the server itself with a policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from toolpost.contracts.spec import ToolSpec
    from toolpost.gateway.views import View

_SCHEME = "toolpost://"
UI_SCHEME = "ui://"  # the only scheme that hosts of MCP Apps load
FLAT_PAGE = "ui/resourceUri"  # the older key of a page in `_meta`, before the `ui` object
_BETWEEN = "__"


class Origin(NamedTuple):
    """The source of an item, and its name or URI at that source."""

    source: str
    name: str


class Names:
    """Translate the names and URIs of a view."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._own: Mapping[str, ToolSpec] | None = None

    def show(self, view: View) -> None:
        """Translate for another view from now on."""
        self._view, self._own = view, None

    def catalog_changed(self) -> None:
        """Read the catalog again at the next lookup."""
        self._own = None

    @property
    def only(self) -> str | None:
        """The source that is served under its own names, or None."""
        return self._view.only

    def canonical(self, shown: str) -> str:
        """Return the canonical name of a tool; an unknown name is returned unchanged."""
        if self.only is None:
            return shown
        if self._own is None:
            self._own = self._view.shown()
        own = self._own.get(shown)
        return shown if own is None else own.name

    def find_tool(self, shown: str) -> ToolSpec | None:
        """Return a tool by the name that clients see."""
        name = self.canonical(shown)
        return self._view.spec(name) if self._view.has(name) else None

    def serves(self, source: str) -> bool:
        """Return whether a source is served."""
        return self.only is None or source == self.only

    def prompt(self, origin: Origin) -> str:
        """Return the name of a prompt as clients see it."""
        return origin.name if self.only is not None else f"{origin.source}{_BETWEEN}{origin.name}"

    def uri(self, origin: Origin) -> str:
        """Return the URI or URI template of a resource as clients see it."""
        if self.only is not None:
            return origin.name
        if origin.name.startswith(UI_SCHEME):
            return f"{UI_SCHEME}{origin.source}/{origin.name.removeprefix(UI_SCHEME)}"
        return f"{_SCHEME}{origin.source}/{origin.name}"

    def find_prompt(self, shown: str, prompts: Iterable[Origin]) -> Origin | None:
        """Return the prompt with this name for clients."""
        return next((origin for origin in prompts if self.prompt(origin) == shown), None)

    def find_uri(self, shown: str) -> Origin | None:
        """Return the source and URI of a resource from the URI that clients see; None for a URI without a source."""
        if self.only is not None:
            return Origin(self.only, shown)
        for scheme, inner in ((_SCHEME, ""), (UI_SCHEME, UI_SCHEME)):
            if shown.startswith(scheme):
                source, _, uri = shown.removeprefix(scheme).partition("/")
                return Origin(source, f"{inner}{uri}") if uri else None
        return None
