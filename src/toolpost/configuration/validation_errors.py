"""Describe the errors of a configuration for its author: the key as written, the expectation, the value."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

from toolpost.configuration.document import Keys, key_text, kind_of
from toolpost.configuration.settings import PlacedError
from toolpost.contracts.config_model import Deferred
from toolpost.contracts.nearest_names import nearest
from toolpost.schema.json_values import is_array
from toolpost.schema.violations import plain_message

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_SECRET_KEY = re.compile(r"^(env|auth_?config)$|key|token|secret|password", re.IGNORECASE)
_MAX_SHOWN = 60  # characters of a wrong value that a message quotes


def describe_errors(
    errors: Iterable[PlacedError], data: Mapping[str, Any], shown: str, secrets: Collection[str]
) -> str:
    """Describe every error of a validation in one text: the key, the expectation, the value, and never a secret."""
    messages = [
        _ErrorMessage(details, placed, data, shown).text() for placed in errors for details in placed.error.errors()
    ]
    texts = [_without(text, secrets) for text in dict.fromkeys(messages)]
    if len(texts) == 1:
        return texts[0]
    return "\n".join([f"{shown} has {len(texts)} errors:", *(f"- {text}" for text in texts)])


class _ErrorMessage:
    """Build the message of one pydantic error."""

    def __init__(self, details: ErrorDetails, placed: PlacedError, data: Mapping[str, Any], shown: str) -> None:
        self._details = details
        self._keys = _written_keys(details, placed.keys, data)
        self._model = _model_at(placed.model, details["loc"][:-1])
        self._shown = shown

    def text(self) -> str:
        match self._details["type"]:
            case "extra_forbidden":
                return self._unknown_key()
            case "missing":
                return f"key {key_text(self._keys)!r} is missing in {self._shown}"
            case "value_error":
                return self._describe_expectation(str(self._details.get("ctx", {}).get("error")))
            case _:
                # Pydantic appends how it tried to read the value; the expectation comes first.
                expected = re.split(r", (?:unable|got|not) ", plain_message(self._details["msg"]))[0]
                return self._describe_expectation(expected)

    def _describe_expectation(self, expected: str) -> str:
        if expected.startswith("must "):
            return f"{self._place()} {expected}, got {self._got()}{self._hint()}"
        return f"{self._place()}: {expected.removeprefix(f'{key_text(self._keys)}: ')}"

    def _place(self) -> str:
        return f"{key_text(self._keys)!r} in {self._shown}" if self._keys else self._shown

    def _unknown_key(self) -> str:
        *parents, key = self._keys
        spellings = dict(_spellings(self._model))
        if key in spellings:
            twin = f"{key_text((*parents, spellings[key]))!r}"
            return f"key {key_text(self._keys)!r} in {self._shown} is given twice, also as {twin}; keep one"
        near = nearest(str(key), spellings, cutoff=0.5)
        hint = f"did you mean {key_text((*parents, near))!r}?" if near else self._all_keys(parents)
        return f"unknown key {key_text(self._keys)!r} in {self._shown}; {hint}"

    def _all_keys(self, parents: list[str | int]) -> str:
        where = f"{key_text(tuple(parents))!r}" if parents else "the file"
        return f"{where} takes {', '.join(self._model.model_fields)}"

    def _got(self) -> str:
        value = self._details["input"]
        if isinstance(value, dict | list) or value is None or any(_SECRET_KEY.search(str(key)) for key in self._keys):
            return kind_of(value)
        text = repr(value)
        return f"{kind_of(value)} of {len(text)} characters" if len(text) > _MAX_SHOWN else text

    def _hint(self) -> str:
        numeric = isinstance(self._details["input"], int | float)
        return "; put it in quotes" if self._details["type"] == "string_type" and numeric else ""


def _written_keys(details: ErrorDetails, parents: Keys, data: Any) -> Keys:
    """Return the keys of an error as written: pydantic adds the tags of unions and reports camelCase in snake_case."""
    keys: list[str | int] = []
    for part in (*parents, *details["loc"]):
        key = _written_key(part, data)
        if key is not None:
            keys.append(key)
            data = data[key]
    if details["type"] == "missing":
        keys.append(details["loc"][-1])
    return tuple(keys)


def _written_key(part: str | int, data: Any) -> str | int | None:
    if isinstance(part, int):
        return part if is_array(data) and part < len(data) else None
    if not isinstance(data, Mapping):
        return None
    camel = re.sub(r"_([a-z])", lambda match: match[1].upper(), part)
    return next((key for key in (part, camel) if key in data), None)


def _model_at(model: type[BaseModel], loc: Keys) -> type[BaseModel]:
    for part in loc:
        field = next((f for name, f in model.model_fields.items() if part in (name, f.alias)), None)
        if field is not None:
            deferred = [part.load() for part in field.metadata if isinstance(part, Deferred)]
            model = next(chain.from_iterable(map(_models, [field.annotation, *deferred])), model)
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _spellings(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Yield every key of a model with its other spelling."""
    for name, field in model.model_fields.items():
        alias = field.alias or name
        yield name, alias
        yield alias, name


def _without(text: str, secrets: Collection[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
