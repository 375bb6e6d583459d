"""ModelRegistry: the models of arguments and results, by the name of their tool."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter

__all__ = ["ModelRegistry"]


class AnyArguments(BaseModel):
    """Replaces `BaseModel` itself, which accepts any arguments."""

    model_config = ConfigDict(extra="allow")


class _Models(NamedTuple):
    args_model: type[BaseModel]
    out_model: type[BaseModel]


class ModelRegistry:
    """Models of arguments and results; a name is registered once."""

    def __init__(self) -> None:
        self._models: dict[str, _Models] = {}

    def register(self, name: str, args_model: type[BaseModel], out_model: type[BaseModel]) -> None:
        """Add the models of a tool; ValueError if the name is taken. `BaseModel` itself accepts any arguments."""
        if name in self._models:
            raise ValueError(f"Node {name!r} already registered; give one of the two another name")
        for model in (args_model, out_model):
            candidate: type = model
            if not issubclass(candidate, BaseModel):
                raise TypeError(f"{model!r} of {name!r} is not a pydantic model; derive it from BaseModel")
        self._models[name] = _Models(_concrete(args_model), _concrete(out_model))

    def unregister(self, name: str) -> None:
        """Remove the models of a tool, if they are there."""
        self._models.pop(name, None)

    def has(self, name: str) -> bool:
        """Return whether the models of a tool are registered."""
        return name in self._models

    def models(self, name: str) -> tuple[type[BaseModel], type[BaseModel]]:
        """Return the models of a tool; KeyError if there are none."""
        if name not in self._models:
            raise KeyError(f"Node {name!r} not registered; call register({name!r}, args_model, out_model) first")
        return self._models[name]

    def adapters(self, name: str) -> tuple[TypeAdapter[Any], TypeAdapter[Any]]:
        """Return validators of arguments and results; KeyError if there are none."""
        args_model, out_model = self.models(name)
        return TypeAdapter(args_model), TypeAdapter(out_model)


def _concrete(model: type[BaseModel]) -> type[BaseModel]:
    return AnyArguments if model is BaseModel else model
