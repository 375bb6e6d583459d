"""Base of the models of the configuration, and how a model names another one that most processes do not need."""

# Annotations are evaluated as they stand: of strings, pydantic would compile each, a fifth of the time to load models.
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, PrivateAttr
from pydantic_core import CoreSchema


def to_camel(name: str) -> str:
    """Return the spelling of a key in camelCase; pydantic's own function takes many times as long for each key."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


class ConfigModel(BaseModel):
    """Base of configuration models: snake_case or camelCase keys, no unknown keys."""

    model_config = ConfigDict(
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        frozen=True,
        defer_build=True,  # most processes validate few of these models
    )

    @classmethod
    def defaults(cls) -> Self:
        """Return the model with all defaults, for which no validator is built: that takes most of a short program."""
        return cls.model_construct()  # type: ignore[return-value]  # mypy's plug-in for pydantic loses the subclass


class SourceModel(ConfigModel):
    """Base of the two forms of a source; one that cannot be used is marked, so that the others work."""

    _unusable: str = PrivateAttr(default="")

    @property
    def unusable(self) -> str:
        """Return why the source cannot be used as it is configured; empty where it can."""
        return self._unusable

    def left_out(self, reason: str) -> Self:
        """Copy the configuration, marked as unusable for this reason."""
        copy = self.model_copy()
        copy._unusable = reason  # noqa: SLF001 - a copy of itself
        return copy


class Deferred(NamedTuple):
    """Type of a field whose models `load` imports, with the first validator; stands in `Annotated[list, ...]`."""

    load: Callable[[], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self.load())
