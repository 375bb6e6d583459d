"""Nodes, parameters, schemas and tables."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pandas as pd

from knime.api.types import default_factory  # type: ignore[import-not-found]


class InvalidParametersError(Exception):
    """The user has to change the settings of a node."""


class NodeType(Enum):
    SOURCE = "Source"
    PREDICTOR = "Predictor"


def category(**about: str) -> str:
    return f"{about['path']}/{about['level_id']}"


def node(**about: Any) -> Callable[[type], type]:
    def decorate(cls: type) -> type:
        if not (cls.__doc__ or "").strip():
            raise ValueError("a node is described by its docstring")
        cls.about = {**about, "id": cls.__name__}  # type: ignore[attr-defined]
        return cls

    return decorate


def _port(kind: str, name: str, description: str) -> Callable[[type], type]:
    def decorate(cls: type) -> type:
        setattr(cls, kind, [(name, description), *getattr(cls, kind, [])])
        return cls

    return decorate


def input_table(name: str, description: str) -> Callable[[type], type]:
    return _port("inputs", name, description)


def output_table(name: str, description: str) -> Callable[[type], type]:
    return _port("outputs", name, description)


class StringParameter:
    """A setting of a node, read and set as an attribute."""

    def __init__(
        self,
        label: str,
        description: str,
        default_value: Any = None,
        *,
        enum: list[str] | None = None,
        choices: Callable[[Any], list[str]] | None = None,
        column_filter: Callable[[Any], bool] | None = None,
    ) -> None:
        self.label, self.description, self.default = label, description, default_value
        self.enum, self.choices, self.column_filter = enum, choices, column_filter

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self if owner is None else getattr(owner, self._name, self.default)

    def __set__(self, owner: Any, value: Any) -> None:
        if self.enum is not None and value not in self.enum:
            raise ValueError(f"{self.label}: {value!r} is none of {self.enum}")
        setattr(owner, self._name, value)


MultilineStringParameter = ColumnParameter = BoolParameter = StringParameter


@dataclass(frozen=True)
class LogicalType:
    """The type of a column: a class for which a value factory is registered, or text."""

    value_type: type


def logical(value_type: type) -> LogicalType:
    return LogicalType(default_factory(value_type).compatible_type)


def string() -> LogicalType:
    return LogicalType(str)


@dataclass(frozen=True)
class Column:
    ktype: LogicalType
    name: str


@dataclass(frozen=True)
class Schema:
    columns: tuple[Column, ...]

    @classmethod
    def from_columns(cls, columns: list[Column]) -> "Schema":
        return cls(tuple(columns))

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)


class Table:
    """A table whose columns are stored as KNIME would: values of logical types by their factories."""

    def __init__(self, schema: Schema, stored: dict[str, list[Any]]) -> None:
        self.schema = schema
        self.stored = stored

    @classmethod
    def from_pandas(cls, frame: pd.DataFrame) -> "Table":
        columns, stored = [], {}
        for name in frame.columns:
            cells = frame[name].tolist()
            values = [cell for cell in cells if cell is not None]
            is_text = bool(values) and all(isinstance(value, str) for value in values)
            kind = string() if is_text or not values else logical(type(values[0]))
            columns.append(Column(kind, name))
            stored[name] = cells if kind == string() else [default_factory(kind.value_type).encode(c) for c in cells]
        return cls(Schema.from_columns(columns), stored)

    def to_pandas(self) -> pd.DataFrame:
        decoded = {}
        for column in self.schema:
            cells = self.stored[column.name]
            if column.ktype != string():
                cells = [default_factory(column.ktype.value_type).decode(cell) for cell in cells]
            decoded[column.name] = pd.Series(cells, dtype=object)
        return pd.DataFrame(decoded)
