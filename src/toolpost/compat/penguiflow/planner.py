"""ReactPlanner, which also takes nodes and the registry of their models, and its result types."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from toolpost.agents.catalogs import Catalog
from toolpost.agents.planner import ReactPlanner as _ReactPlanner
from toolpost.agents.results import PlannerFinish, PlannerPause
from toolpost.compat.penguiflow.catalog import build_catalog
from toolpost.compat.penguiflow.node import Node
from toolpost.compat.penguiflow.registry import ModelRegistry
from toolpost.configuration.settings import Settings
from toolpost.contracts.chat import ChatModel
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ConfigError
from toolpost.toolbox.box import Toolbox
from toolpost.toolbox.views import SearchView

__all__ = ["PlannerFinish", "PlannerPause", "ReactPlanner", "ToolContext"]

_POLICY = "exploratory"


class PenguiflowPlanner(_ReactPlanner):
    """Let a model call the tools of a catalog, or of nodes and functions, until it can answer.

    Calls run without approval, as in penguiflow, unless `settings` have a `policy` or the catalog is a Toolbox.
    """

    def __init__(
        self,
        llm: str | ChatModel,
        *,
        catalog: Catalog = (),
        nodes: Iterable[Node | Callable[..., Any]] = (),
        registry: ModelRegistry | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if tools := build_catalog(nodes, registry or ModelRegistry()):
            if not isinstance(catalog, Sequence):
                raise ConfigError(
                    "nodes can be combined only with a list of tools; register them in the Toolbox or registry instead"
                )
            catalog = [*tools, *catalog]
        if not isinstance(catalog, Toolbox | SearchView):
            settings = _with_policy(settings)
        super().__init__(catalog=catalog, llm=llm, settings=settings, **options)


def _with_policy(settings: Settings | Mapping[str, Any] | None) -> Settings | Mapping[str, Any]:
    """Return settings with their explicit policy, else `exploratory`."""
    if isinstance(settings, Settings):
        is_given = "policy" in settings.model_fields_set
        return settings if is_given else settings.model_copy(update={"policy": _POLICY})
    return {"policy": _POLICY, **(settings or {})}


ReactPlanner = PenguiflowPlanner  # as penguiflow calls it
