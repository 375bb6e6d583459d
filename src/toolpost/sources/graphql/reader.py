"""Schemas from wherever they are: a server's introspection, or a file with one or with GraphQL's own language."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphql import GraphQLError, build_client_schema, build_schema, get_introspection_query

from toolpost.contracts.errors import ConfigError, ToolSchemaError, ToolTimeoutError, ToolValidationError
from toolpost.schema.jsontypes import is_object
from toolpost.sources.graphql.introspection import sound
from toolpost.sources.graphql.operations import SELECTION, Planner
from toolpost.sources.graphql.texts import shortened
from toolpost.sources.graphql.written import SelectionError
from toolpost.web.contents import looks_like_json, parsed_json

if TYPE_CHECKING:
    from graphql import GraphQLSchema

    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.sources.graphql.operations import Operation

_FILE_BYTES = 64 * 1024 * 1024
_MOST_PROBLEMS = 20
_LONGEST = 300
_SHALLOW = 5  # enough for [[T!]!]!, and within the depth that careful servers allow


class Reader:
    """The schema of one source, and the operations in it; it gives up when the source's time to connect is over."""

    introspection = (
        get_introspection_query(specified_by_url=True, input_value_deprecation=True, one_of=True),
        get_introspection_query(),
        get_introspection_query(type_depth=_SHALLOW),
    )

    def __init__(self, config: ExternalToolConfig) -> None:
        self._config = config
        self._until = time.monotonic() + config.connect_timeout_s
        self._planner: Planner | None = None
        self.problems: list[str] = []
        self.operations: list[Operation] = []

    def read_file(self, file: str) -> None:
        """Read the schema that an operator wrote down; ConfigError names the file."""
        what = f"graphql.schema_file {file!r} of source {self._config.name!r}"
        raw = _bytes(file, what)
        try:
            if looks_like_json(raw) and is_object(known := parsed_json(raw)):
                return self.read_introspection(known.get("data", known))
            self._plan(build_schema(raw.decode(), assume_valid=True, assume_valid_sdl=True), [])
        except (GraphQLError, TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"{what} is no schema: {_reason(error)}") from error

    def read_introspection(self, data: Any) -> None:
        """Read what a server says of itself."""
        schema = data.get("__schema") if is_object(data) else None
        if not is_object(schema):
            raise ToolSchemaError(f"source {self._config.name!r}: the introspection has no __schema")
        introspection, problems = sound(schema)
        try:
            built = build_client_schema(introspection, assume_valid=True)  # type: ignore[arg-type]
        except (GraphQLError, TypeError, ValueError, RecursionError) as error:
            what = f"the schema of source {self._config.name!r}"
            raise ToolSchemaError(f"{what} cannot be used: {_reason(error)}") from error
        self._plan(built, problems)

    def selected(self, operation: Operation, text: str) -> Operation:
        """The operation with the selection of one call."""
        if self._planner is None:
            raise ConfigError(f"source {self._config.name!r} was not read yet")
        try:
            return self._planner.selected(operation, text)
        except SelectionError as error:
            raise ToolValidationError(f"$.{SELECTION}: {error}") from error

    def late(self) -> ToolTimeoutError:
        """What is told when the time is over."""
        what = f"the schema of source {self._config.name!r} was not read within {self._config.connect_timeout_s:g} s"
        return ToolTimeoutError(f"{what}; raise connect_timeout_s, or write a smaller one into graphql.schema_file")

    def _check(self) -> None:
        if time.monotonic() > self._until:
            raise self.late()

    def _plan(self, schema: GraphQLSchema, problems: list[str]) -> None:
        options = self._config.graphql
        planner = Planner(schema, depth=options.depth, selections=options.selections)
        operations, more = planner.plan(self._config.includes, self._check)
        every = [*more, *problems]
        left = len(every) - _MOST_PROBLEMS
        self.problems = [*every[:_MOST_PROBLEMS], f"and {left} more"] if left > 0 else every
        self._planner, self.operations = planner, operations


def _bytes(file: str, what: str) -> bytes:
    path = Path(file).expanduser()
    try:
        if path.stat().st_size > _FILE_BYTES:
            raise ConfigError(f"{what} is larger than {_FILE_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error.strerror}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return shortened(str(error), _LONGEST)
