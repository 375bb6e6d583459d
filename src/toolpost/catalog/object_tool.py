"""Objects with `name`, `description`, `category`, `parameters` and `execute` as tools."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeGuard

from toolpost.catalog.code_target import code_target
from toolpost.contracts.errors import ToolSchemaError
from toolpost.contracts.outcomes import ToolResult, now_ms
from toolpost.contracts.spec import CustomTool, ToolCategory, ToolSpec
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.spec import JsonSchema

_MEMBERS = ("name", "description", "category", "parameters", "execute")


def missing_members(value: object) -> list[str]:
    """Return the members of a custom tool that an object lacks."""
    return [name for name in _MEMBERS if not hasattr(value, name)]


def is_custom_tool(value: object) -> TypeGuard[CustomTool]:
    """Return whether a value is a custom tool; its class is not one."""
    if isinstance(value, type) or missing_members(value):
        return False
    return isinstance(getattr(value, "name", None), str) and callable(getattr(value, "execute", None))


class ObjectTool:
    """A custom tool with the `spec` of its members.

    `parameters` is a JSON Schema, or a type whose schema pydantic can generate, such as a model. The side
    effects are `write`; an object with a `spec` can declare others.
    """

    def __init__(self, given: CustomTool) -> None:
        self.given = given
        self.spec = ToolSpec(
            name=given.name,
            description=str(given.description or ""),
            category=ToolCategory(given.category),
            input_schema=_schema_of(given.name, given.parameters),
            target=code_target(given.execute),
        )

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the object's own `execute`."""
        started = now_ms()
        value: Any = self.given.execute(params, context)
        if inspect.isawaitable(value):
            value = await value
        if isinstance(value, ToolResult):
            return value
        if is_object(value) and isinstance(value.get("success"), bool):  # a result written as a mapping
            error = value.get("error")
            return ToolResult(
                success=value["success"],
                result=value.get("result"),
                error=None if error is None else str(error),
                started_at=started,
                completed_at=now_ms(),
            )
        return ToolResult.completed(value, started_at=started)


def _schema_of(name: str, parameters: Any) -> JsonSchema:
    if is_object(parameters):
        return parameters
    if not isinstance(parameters, type):
        raise ToolSchemaError(f"parameters of {name!r} is a JSON Schema or a type, not {type(parameters).__name__}")
    from pydantic import TypeAdapter  # noqa: PLC0415 - pydantic is slow to import, and few tools need it here

    from toolpost.schema.pydantic_types import schema_of  # noqa: PLC0415

    return schema_of(TypeAdapter(parameters), "validation")
