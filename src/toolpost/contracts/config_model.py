"""Base of the configuration models, and a type for models that most processes do not load."""

# Real annotations: pydantic would compile each annotation in a string, a fifth of the time to load the models.
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, PrivateAttr
from pydantic_core import CoreSchema


def to_camel(name: str) -> str:
    """Return a key in camelCase; many times faster than pydantic's function."""
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
        """Return the model with all defaults; building no validator saves most of a short program's time."""
        return cls.model_construct()  # type: ignore[return-value]  # mypy's plug-in for pydantic loses the subclass


class SourceModel(ConfigModel):
    """Base of the two forms of a source; an unusable source is marked, and the others work."""

    _unusable: str = PrivateAttr(default="")

    @property
    def unusable(self) -> str:
        """Return the reason why the source cannot be used, or an empty string."""
        return self._unusable

    def left_out(self, reason: str) -> Self:
        """Copy the configuration, marked as unusable for this reason."""
        copy = self.model_copy()
        copy._unusable = reason  # noqa: SLF001 - a copy of itself
        return copy


class Deferred(NamedTuple):
    """Type of a field with models that `load` imports for the first validator; used in `Annotated[list, ...]`."""

    load: Callable[[], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self.load())
