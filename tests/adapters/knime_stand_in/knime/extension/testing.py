"""Contexts of nodes under test, and the registration of an extension by its plugin.xml."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from knime.api.types import register_python_value_factory  # type: ignore[import-not-found]


@dataclass
class Credentials:
    username: str = ""
    password: str = ""
    second_authentication_factor: str | None = None


@dataclass
class TestingExecutionContext:
    credentials: dict[str, Credentials] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def get_credential_names(self) -> list[str]:
        return list(self.credentials)

    def get_credentials(self, name: str) -> Credentials:
        return self.credentials[name]

    def set_warning(self, message: str) -> None:
        self.warnings.append(message)


def register_extension(plugin_xml: Path) -> list[Any]:
    """Make and register the value factories of an extension; returns them."""
    made = []
    for module in ET.parse(plugin_xml).iter("Module"):
        home = import_module(module.attrib["moduleName"])
        for entry in module.iter("PythonValueFactory"):
            factory = getattr(home, entry.attrib["PythonClassName"])()
            is_default = entry.attrib["isDefaultPythonRepresentation"] == "true"
            register_python_value_factory(factory, entry.attrib["ValueTypeName"], is_default=is_default)
            made.append(factory)
    return made
