"""Views: the tools that a client of the gateway sees and can call, and the names they are shown under."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Unpack

from toolpost.configuration.settings import PLAIN_VIEWS
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.spec import SafetyProfile, ToolSpec
from toolpost.toolbox.views import CALL, OWN, SelectedTools

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.configuration.settings import ViewSettings
    from toolpost.contracts.outcomes import Outcome
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.views import CallOptions

    Shown = Mapping[str, ToolSpec]


class View:
    """The tools of an open Toolbox that clients see: every tool, or three tools that search, describe and call them.

    Clients cannot find or call other tools. If the view shows one source unchanged, under its own names, `only` is that
    source. With `links_large`, the structured content of a large result is a reference to its artifact.
    """

    def __init__(self, box: Toolbox, name: str, settings: ViewSettings) -> None:
        only = settings.selection()
        try:
            self.tools = SelectedTools(box, only)  # regardless of how they are shown
        except KeyError as error:
            raise ConfigError(f"views.{name}.collection: {error.args[0]}") from error
        self.name = name
        self.links_large = settings.large_results == "link"
        self.only = settings.sources[0] if settings.names == "own" and settings.sources else None
        self._registry = box.registry
        self._principals = settings.principals
        self._search = box.search_view(**only) if settings.show == "search" else None

    def is_for(self, user: str) -> bool:
        """Return whether the view is visible to a caller, `tenant:user`."""
        return self._principals is None or any(fnmatchcase(user, pattern) for pattern in self._principals)

    def shown(self) -> Shown:
        """Return the specs of the listed tools by the names that clients use."""
        if self.only is not None:
            specs = [entry.spec for entry in self.tools.entries()]
            return {
                str(spec.extra.get("remote_name", spec.name)): spec for spec in specs if not spec.extra.get("helper")
            }
        if self._search is None:
            to_model = self._registry.model_name
            return {to_model(entry.spec.name): entry.spec for entry in self.tools.entries()}
        return {
            tool.name: _own_spec(tool.name, tool.description, tool.parameters) for tool in self._search.definitions()
        }

    def is_own(self, name: str) -> bool:
        """Return whether this is one of the three tools of a search view."""
        return self._search is not None and name in OWN

    def has(self, tool_name: str) -> bool:
        """Return whether this tool can be called, or was called, through the view."""
        return self.tools.has(tool_name)

    def spec(self, tool_name: str) -> ToolSpec:
        """Return the spec of a tool; only its name for the tools of a search view and for removed tools."""
        return self._registry.find(tool_name).spec if self._registry.has(tool_name) else ToolSpec(name=tool_name)

    def unwrap(self, name: str, arguments: Any) -> tuple[str, Any]:
        """Return the tool and arguments of a call, taken out of `call_tool` in a search view."""
        return (name, arguments) if self._search is None else self._search.unwrap(name, arguments)

    async def call(self, name: str, arguments: dict[str, Any] | None, **options: Unpack[CallOptions]) -> Outcome:
        """Call a tool; a tool outside the view is not found."""
        callee = self.tools if self._search is None else self._search
        return await callee.call(name, arguments, **options)


def _own_spec(name: str, description: str, schema: dict[str, Any]) -> ToolSpec:
    if name == CALL:  # it can call any tool
        return ToolSpec(name=name, description=description, input_schema=schema, side_effects="external")
    safety = SafetyProfile(destructive=False)
    return ToolSpec(name=name, description=description, input_schema=schema, side_effects="pure", safety=safety)


def make_views(box: Toolbox, default: str | None = None) -> dict[str, View]:
    """Create the views of a Toolbox's settings by name; `default` replaces the default view of the settings.

    Raise ConfigError if a view names an unknown collection or `default` does not exist.
    """
    settings = box.settings
    if default is not None and default != settings.view:
        known = {**PLAIN_VIEWS, **settings.views}
        if default not in known:
            raise ConfigError(f"unknown view {default!r}; there are: {', '.join(known)}; add it to `views`")
        settings = settings.model_copy(update={"view": default})
    return {name: View(box, name, given) for name, given in settings.all_views().items()}


def default_view(box: Toolbox, default: str | None = None) -> View:
    """Create the view for clients that name none."""
    return make_views(box, default)[default or box.settings.view]
