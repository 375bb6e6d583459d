"""What is wrong with a configuration, in words: the key, what it should be, what it is, and never a secret."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

from toolpost.configuration.document import Keys, key_text, kind_of
from toolpost.schema.jsontypes import is_array
from toolpost.schema.pydantic_words import in_plain_words

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_SECRET_KEY = re.compile(r"^(env|auth_?config)$|key|token|secret|password", re.IGNORECASE)
_MAX_SHOWN = 60


def complaint(
    error: ValidationError, *, model: type[BaseModel], data: Mapping[str, Any], shown: str, secrets: Collection[str]
) -> str:
    """Everything that a failed validation found, as one text."""
    found = [_Finding(details, model, data, shown).text() for details in error.errors()]
    texts = [_without(text, secrets) for text in dict.fromkeys(found)]
    if len(texts) == 1:
        return texts[0]
    return "\n".join([f"{shown} is wrong in {len(texts)} places:", *(f"- {text}" for text in texts)])


class _Finding:
    """One error of pydantic's, put into words."""

    def __init__(self, details: ErrorDetails, model: type[BaseModel], data: Mapping[str, Any], shown: str) -> None:
        self._details = details
        self._keys = _written_keys(details, data)
        self._model = _model_at(model, details["loc"][:-1])
        self._shown = shown

    def text(self) -> str:
        match self._details["type"]:
            case "extra_forbidden":
                return self._unknown()
            case "missing":
                return f"key {key_text(self._keys)!r} is missing in {self._shown}"
            case "value_error":
                return self._told(str(self._details.get("ctx", {}).get("error")))
            case _:
                return self._told(_first_part(in_plain_words(self._details["msg"])))

    def _told(self, expected: str) -> str:
        if expected.startswith("must "):
            return f"{self._place()} {expected}, got {self._got()}{self._hint()}"
        return f"{self._place()}: {expected.removeprefix(f'{key_text(self._keys)}: ')}"

    def _place(self) -> str:
        return f"{key_text(self._keys)!r} in {self._shown}" if self._keys else self._shown

    def _unknown(self) -> str:
        *parents, key = self._keys
        spellings = dict(_spellings(self._model))
        if key in spellings:
            twin = f"{key_text((*parents, spellings[key]))!r}"
            return f"key {key_text(self._keys)!r} in {self._shown} is given twice, also as {twin}; keep one"
        near = difflib.get_close_matches(str(key), spellings, n=1, cutoff=0.5)
        hint = f"did you mean {key_text((*parents, near[0]))!r}?" if near else self._all_keys(parents)
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


def _first_part(text: str) -> str:
    """Pydantic adds how it tried to read a value; what was expected comes before that."""
    return re.split(r", (?:unable|got|not) ", text)[0]


def _written_keys(details: ErrorDetails, data: Any) -> Keys:
    """The keys of an error as they stand in the file: pydantic adds the names of alternatives, and drops camelCase."""
    keys: list[str | int] = []
    for part in details["loc"]:
        written = _written(part, data)
        if written is not None:
            keys.append(written)
            data = data[written]
    if details["type"] == "missing":
        keys.append(details["loc"][-1])
    return tuple(keys)


def _written(part: str | int, data: Any) -> str | int | None:
    if isinstance(part, int):
        return part if is_array(data) and part < len(data) else None
    if not isinstance(data, Mapping):
        return None
    camel = re.sub(r"_([a-z])", lambda found: found[1].upper(), part)
    return next((key for key in (part, camel) if key in data), None)


def _model_at(model: type[BaseModel], loc: Keys) -> type[BaseModel]:
    for part in loc:
        field = next((f for name, f in model.model_fields.items() if part in (name, f.alias)), None)
        if field is not None:
            model = next(_models(field.annotation), model)
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _spellings(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Every key that a model takes, with its other spelling."""
    for name, field in model.model_fields.items():
        alias = field.alias or name
        yield name, alias
        yield alias, name


def _without(text: str, secrets: Collection[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
