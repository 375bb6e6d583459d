"""Value factories that `plugin.xml` registers with KNIME; only KNIME imports this module."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from toolpost.adapters import values
from toolpost.adapters.stored_tools import StoredTool

kt: Any = import_module("knime.api.types")  # has no types


class KnimeToolValueFactory(kt.PythonValueFactory):  # type: ignore[misc]  # the class of KNIME is Any
    """Tool values of every type in one column; since 0.1."""

    _factory: type[values.ToolValueFactory] = values.ToolValueFactory

    def __init__(self) -> None:
        kt.PythonValueFactory.__init__(self, StoredTool)
        factory = self._factory()
        self.encode, self.decode = factory.encode, factory.decode


class KnimeWorkflowToolValueFactory(KnimeToolValueFactory):
    """Deprecated: use KnimeToolValueFactory."""

    _factory = values.WorkflowToolValueFactory
