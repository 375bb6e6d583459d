"""Show the tools of one request to a model as its provider accepts them, and convert the calls in both directions."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolpost.contracts.spec import ToolDefinition
from toolpost.schema.json_values import is_object
from toolpost.schema.provider_dialects import Provider
from toolpost.schema.provider_schemas import CompiledTools, ToolCompiler
from toolpost.schema.provider_view import alias_of

UNPARSED = "unparsed"
"""The only argument of an earlier call with arguments that were not an object."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_logger = logging.getLogger(__name__)


class ToolViews:
    """Views of the tools of a model's requests; schemas that were compiled before are reused."""

    def __init__(self, provider: Provider) -> None:
        self._compiler = ToolCompiler(provider)
        self._logged: set[str] = set()

    def view(self, tools: Sequence[Mapping[str, Any]]) -> ToolView:
        """Compile tools in the format of Chat Completions. One that cannot be shown is logged once."""
        view = ToolView(tools, self._compiler)
        for left_out in view.compiled.left_out:
            if left_out.name not in self._logged:
                self._logged.add(left_out.name)
                _logger.warning("tool %r is left out: %s: %s", *left_out)
        return view


class ToolView:
    """The tools of one request as a provider accepts them, and the conversion of calls in both directions."""

    def __init__(self, tools: Sequence[Mapping[str, Any]], compiler: ToolCompiler) -> None:
        """Compile tools in the format of Chat Completions."""
        functions: list[Mapping[str, Any]] = [tool["function"] for tool in tools]
        names = {str(function["name"]) for function in functions}
        self._aliases: dict[str, str] = {}
        self._names: dict[str, str] = {}
        definitions: list[ToolDefinition] = []
        for function in functions:
            name = str(function["name"])
            shown = name if _TOOL_NAME.fullmatch(name) else alias_of(name, {*names, *self._names})
            self._aliases[name], self._names[shown] = shown, name
            description = str(function.get("description") or "")
            definitions.append(ToolDefinition(shown, description, function.get("parameters") or {}))
        self.compiled: CompiledTools = compiler.compile(definitions)

    @property
    def definitions(self) -> list[ToolDefinition]:
        """The tools that the provider accepts."""
        return self.compiled.definitions

    def is_plain(self, shown: str) -> bool:
        """Return whether the arguments of a tool need no conversion; `shown` is its name for the model."""
        schema = self.compiled.schemas.get(shown)
        return schema is None or schema.is_plain

    def real_name(self, shown: str) -> str:
        """Return the name of a tool by its name for the model; an unknown name is returned unchanged."""
        return self._names.get(shown, shown)

    def call_to_model(self, name: str, arguments: Any) -> tuple[str, dict[str, Any]]:
        """Return the name and the arguments of an earlier call in the form for the model.

        Arguments that are not a JSON object are wrapped in one, because providers reject other histories.
        """
        shown = self._aliases.get(name) or (name if _TOOL_NAME.fullmatch(name) else alias_of(name, ()))
        schema, values = self.compiled.schemas.get(shown), _parsed(arguments)
        return shown, values if schema is None or UNPARSED in values else schema.to_model(values)

    def call_from_model(self, shown: str, arguments: str) -> tuple[str, str]:
        """Return the real name and arguments of a call; text that is not JSON is unchanged."""
        name, schema = self.real_name(shown), self.compiled.schemas.get(shown)
        return name, arguments if schema is None or schema.is_plain else _convert(schema.from_model, arguments)


def _parsed(arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            return {UNPARSED: arguments}
    return arguments if is_object(arguments) else {UNPARSED: arguments}


def _convert(change: Callable[[Any], Any], text: str) -> str:
    try:
        return json.dumps(change(json.loads(text)), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
