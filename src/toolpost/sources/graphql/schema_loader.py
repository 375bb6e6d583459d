"""Load the schema of a GraphQL source from introspection or a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from graphql import GraphQLError, GraphQLSchema, build_client_schema, build_schema, get_introspection_query

from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError, ToolSchemaError, ToolTimeoutError, ToolValidationError
from toolpost.http.content import looks_like_json, parse_json
from toolpost.schema.json_values import is_object
from toolpost.sources.graphql.introspection import sanitize_introspection
from toolpost.sources.graphql.operations import SELECTION_ARGUMENT, GraphqlOperation, OperationBuilder
from toolpost.sources.graphql.options import GraphqlOptions
from toolpost.sources.graphql.selections import SelectionError
from toolpost.sources.graphql.types import truncate

_MAX_FILE_BYTES = 64 * 1024 * 1024
_MAX_PROBLEMS = 20
_MAX_REASON_CHARS = 300
_SHALLOW_TYPE_DEPTH = 5  # enough for [[T!]!]!, and within common depth limits of servers


class SchemaLoader:
    """Loader of the schema and the operations of one source, within `connect_timeout_s`."""

    introspection_queries = (
        get_introspection_query(specified_by_url=True, input_value_deprecation=True, one_of=True),
        get_introspection_query(),
        get_introspection_query(type_depth=_SHALLOW_TYPE_DEPTH),
    )

    def __init__(self, config: ExternalToolConfig) -> None:
        self._config = config
        self._deadline = time.monotonic() + config.connect_timeout_s
        self._builder: OperationBuilder | None = None
        self.problems: list[str] = []
        self.operations: list[GraphqlOperation] = []

    def read_file(self, file: str) -> None:
        """Load the schema from a file; raise a ConfigError that names the file."""
        what = f"options.schema_file {file!r} of source {self._config.name!r}"
        raw = _read_bytes(file, what)
        try:
            if looks_like_json(raw) and is_object(document := parse_json(raw)):
                return self.read_introspection(document.get("data", document))
            self._build_operations(build_schema(raw.decode(), assume_valid=True, assume_valid_sdl=True), [])
        except (GraphQLError, TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"{what} is not a schema: {_reason(error)}") from error

    def read_introspection(self, data: Any) -> None:
        schema = data.get("__schema") if is_object(data) else None
        if not is_object(schema):
            raise ToolSchemaError(f"source {self._config.name!r}: the introspection has no __schema")
        introspection, problems = sanitize_introspection(schema)
        try:
            built = build_client_schema(introspection, assume_valid=True)  # type: ignore[arg-type]
        except (GraphQLError, TypeError, ValueError, RecursionError) as error:
            what = f"the schema of source {self._config.name!r}"
            raise ToolSchemaError(f"{what} cannot be used: {_reason(error)}") from error
        self._build_operations(built, problems)

    def with_selection(self, operation: GraphqlOperation, text: str) -> GraphqlOperation:
        """Return the operation with a caller's selection; raise ToolValidationError when it is invalid."""
        if self._builder is None:
            raise ConfigError(f"source {self._config.name!r} was not read yet")
        try:
            return self._builder.with_selection(operation, text)
        except SelectionError as error:
            raise ToolValidationError(f"$.{SELECTION_ARGUMENT}: {error}") from error

    def timeout_error(self) -> ToolTimeoutError:
        what = f"the schema of source {self._config.name!r} was not read within {self._config.connect_timeout_s:g} s"
        return ToolTimeoutError(f"{what}; raise connect_timeout_s, or write a smaller one to options.schema_file")

    def _check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            raise self.timeout_error()

    def _build_operations(self, schema: GraphQLSchema, problems: list[str]) -> None:
        options = self._config.read_options(GraphqlOptions)
        builder = OperationBuilder(schema, depth=options.depth, selections=options.selections)
        operations, more = builder.build(self._config.includes, self._check_deadline)
        every = [*more, *problems]
        left = len(every) - _MAX_PROBLEMS
        self.problems = [*every[:_MAX_PROBLEMS], f"and {left} more"] if left > 0 else every
        self._builder, self.operations = builder, operations


def _read_bytes(file: str, what: str) -> bytes:
    path = Path(file).expanduser()
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ConfigError(f"{what} is larger than {_MAX_FILE_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error.strerror}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return truncate(str(error), _MAX_REASON_CHARS)
