"""Files among the variables of a GraphQL operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from graphql import (
    GraphQLField,
    GraphQLInputObjectType,
    GraphQLNamedType,
    GraphQLScalarType,
    GraphQLSchema,
    GraphQLType,
)

from toolpost.contracts.errors import ToolValidationError
from toolpost.http.encoding import UnsendableError
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.files import File, FormPart, file_media_type, find_artifact_id, parse_file
from toolpost.sources.graphql.types import UPLOAD, item_type, named_type, type_of, unwrap_non_null


class UploadArguments:
    """The arguments of a schema that take files."""

    def __init__(self, schema: GraphQLSchema) -> None:
        self._types_with_uploads = _types_with_uploads(schema.type_map)

    def arguments(self, field: GraphQLField) -> dict[str, GraphQLType]:
        """Return the types of a field's arguments that are or contain uploads."""
        kinds = {name: type_of(inner) for name, inner in field.args.items()} if self._types_with_uploads else {}
        return {name: kind for name, kind in kinds.items() if named_type(kind).name in self._types_with_uploads}


def _types_with_uploads(types: Mapping[str, GraphQLNamedType]) -> set[str]:
    """Return the upload scalar and transitively the input types that contain it."""
    if not isinstance(types.get(UPLOAD), GraphQLScalarType):
        return set()
    used_by: dict[str, set[str]] = {}
    for owner in types.values():
        if isinstance(owner, GraphQLInputObjectType):
            for part in owner.fields.values():
                used_by.setdefault(named_type(type_of(part)).name, set()).add(owner.name)
    names, waiting = {UPLOAD}, [UPLOAD]
    while waiting:
        new = used_by.get(waiting.pop(), set()) - names
        names |= new
        waiting += new
    return names


class MultipartVariables(NamedTuple):
    """Variables with null in place of each file, and the files by their path."""

    variables: dict[str, Any]
    files: dict[str, Any]

    @property
    def artifact_ids(self) -> list[str]:
        """Return the ids of the artifacts among the files, each once."""
        ids = (find_artifact_id(value) for value in self.files.values())
        return list(dict.fromkeys(one for one in ids if one is not None))

    def form_parts(self, artifacts: Mapping[str, File]) -> dict[str, FormPart]:
        numbered = enumerate(self.files.items())
        return {path: _form_part(str(number), path, value, artifacts) for number, (path, value) in numbered}


def _form_part(name: str, path: str, value: Any, artifacts: Mapping[str, File]) -> FormPart:
    try:
        file = parse_file(value, artifacts)
    except UnsendableError as error:
        raise ToolValidationError(f"$.{path.partition('.')[2]}: {error}") from error
    return FormPart(name, file.data, file_media_type(file), file.name or name)


def split_files(variables: dict[str, Any], kinds: Mapping[str, GraphQLType]) -> MultipartVariables:
    """Separate files from the variables; `kinds` are the types of the variables that may contain files."""
    files: dict[str, Any] = {}
    names = [name for name in kinds if name in variables]
    replaced = {name: _extract_files(variables[name], kinds[name], f"variables.{name}", files) for name in names}
    return MultipartVariables({**variables, **replaced}, files)


def _extract_files(value: Any, kind: GraphQLType, path: str, files: dict[str, Any]) -> Any:
    kind = unwrap_non_null(kind) or kind
    item = item_type(kind)
    if item is not None and is_array(value):
        return [_extract_files(one, item, f"{path}.{at}", files) for at, one in enumerate(value)]
    if isinstance(kind, GraphQLInputObjectType) and is_object(value):
        fields = kind.fields
        return {
            name: _extract_files(one, type_of(fields[name]), f"{path}.{name}", files) if name in fields else one
            for name, one in value.items()
        }
    if value is None or not isinstance(kind, GraphQLScalarType) or kind.name != UPLOAD:
        return value
    files[path] = value
    return None
