"""ReactPlanner, which also takes nodes and the registry of their models, and what it returns."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toolpost.agents.catalogs import Catalog
from toolpost.agents.planner import ReactPlanner as _ReactPlanner
from toolpost.agents.results import PlannerFinish, PlannerPause
from toolpost.compat.penguiflow.catalog import build_catalog
from toolpost.compat.penguiflow.node import Node
from toolpost.compat.penguiflow.registry import ModelRegistry
from toolpost.contracts.chat import ChatModel
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ConfigError

__all__ = ["PlannerFinish", "PlannerPause", "ReactPlanner", "ToolContext"]


class PenguiflowPlanner(_ReactPlanner):
    """Let a model call the tools of a catalog, or of nodes and functions, until it can answer."""

    def __init__(
        self,
        llm: str | ChatModel,
        *,
        catalog: Catalog = (),
        nodes: Iterable[Node | Callable[..., Any]] = (),
        registry: ModelRegistry | None = None,
        **options: Any,
    ) -> None:
        if tools := build_catalog(nodes, registry or ModelRegistry()):
            if not isinstance(catalog, Sequence):
                raise ConfigError("nodes stand beside a list of tools; give them to the Toolbox or registry instead")
            catalog = [*tools, *catalog]
        super().__init__(catalog=catalog, llm=llm, **options)


ReactPlanner = PenguiflowPlanner  # as penguiflow calls it
