"""References to variables, `${NAME}`, in values that were given in code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, SecretStr

from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

Model = TypeVar("Model", bound=BaseModel)
# `$${` is a literal `${`, and `${{` begins an expression of a workflow.
_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[^{}]+)\}")


class VariableFiller:
    """Replace references by the values of variables, at any depth of a model.

    `used` contains the values, `missing` the variables that are not set, with the place of the first reference.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.used: set[str] = set()
        self.missing: dict[str, str] = {}

    def fill_model(self, model: Model, *, without: Collection[str] = (), place: str = "") -> Model:
        """Return the model itself if it has no reference, else a copy; defaults contain none and are skipped."""
        changes: dict[str, Any] = {}
        for name in model.model_fields_set.difference(without):
            value = getattr(model, name)
            filled = self.fill(value, f"{place}.{name}" if place else name)
            if filled is not value:
                changes[name] = filled
        return model.model_copy(update=changes) if changes else model

    def fill(self, value: Any, place: str) -> Any:
        """Return the value itself if it has no reference, else a copy."""
        if isinstance(value, str):
            return self._fill_text(value, place) if "${" in value else value
        if isinstance(value, SecretStr):
            text = value.get_secret_value()
            return SecretStr(self._fill_text(text, place)) if "${" in text else value
        if isinstance(value, BaseModel):
            return self.fill_model(value, place=place)
        if is_object(value):
            pairs = {key: self.fill(inner, f"{place}.{key}") for key, inner in value.items()}
            return pairs if any(pairs[key] is not value[key] for key in pairs) else value
        if is_array(value):
            filled = [self.fill(item, f"{place}[{number}]") for number, item in enumerate(value)]
            return filled if any(new is not old for new, old in zip(filled, value, strict=True)) else value
        return value

    def _fill_text(self, text: str, place: str) -> str:
        def replaced(match: re.Match[str]) -> str:
            name = match["name"]
            if name is None:
                return "${"
            value = self._environ.get(name)
            if value is None:
                self.missing.setdefault(name, place)
                return match[0]
            if value:
                self.used.add(value)
            return value

        return _REFERENCE.sub(replaced, text)
