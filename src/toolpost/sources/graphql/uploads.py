"""File uploads among the variables (GraphQL multipart request specification)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from graphql import GraphQLInputObjectType, GraphQLScalarType

from toolpost.contracts.errors import ToolValidationError
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.graphql.type_utils import item_type, named_type, type_of, unwrap_non_null
from toolpost.web.encoding import FormPart, UnsendableError
from toolpost.web.files import choose_media_type as media_type_of
from toolpost.web.files import find_artifact_id, parse_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphql import GraphQLField, GraphQLNamedType, GraphQLSchema, GraphQLType

    from toolpost.web.files import File

UPLOAD = "Upload"  # the conventional name of the scalar


class MultipartVariables(NamedTuple):
    """Variables with null in place of each file, and the files by their path."""

    variables: dict[str, Any]
    files: dict[str, Any]

    @property
    def artifact_ids(self) -> list[str]:
        """Return the ids of the artifacts among the files, each once."""
        found = (find_artifact_id(value) for value in self.files.values())
        return list(dict.fromkeys(one for one in found if one is not None))

    def form_parts(self, artifacts: Mapping[str, File]) -> dict[str, FormPart]:
        """Return the files as form parts, by their path."""
        numbered = enumerate(self.files.items())
        return {path: _form_part(str(number), path, value, artifacts) for number, (path, value) in numbered}


class UploadArguments:
    """Finds the arguments of a schema that take files."""

    def __init__(self, schema: GraphQLSchema) -> None:
        self._types_with_uploads = _types_with_uploads(schema.type_map)

    def arguments(self, field: GraphQLField) -> dict[str, GraphQLType]:
        """Return the types of a field's arguments that are or contain uploads."""
        kinds = {name: type_of(inner) for name, inner in field.args.items()} if self._types_with_uploads else {}
        return {name: kind for name, kind in kinds.items() if named_type(kind).name in self._types_with_uploads}


def split_files(variables: dict[str, Any], kinds: Mapping[str, GraphQLType]) -> MultipartVariables:
    """Separate files from the variables; `kinds` are the types of the variables that may contain files."""
    files: dict[str, Any] = {}
    names = [name for name in kinds if name in variables]
    replaced = {name: _extract_files(variables[name], kinds[name], f"variables.{name}", files) for name in names}
    return MultipartVariables({**variables, **replaced}, files)


def _types_with_uploads(types: Mapping[str, GraphQLNamedType]) -> set[str]:
    """Return the upload scalar and transitively the input types that contain it."""
    if not isinstance(types.get(UPLOAD), GraphQLScalarType):
        return set()
    used_by: dict[str, set[str]] = {}
    for owner in types.values():
        if isinstance(owner, GraphQLInputObjectType):
            for part in owner.fields.values():
                used_by.setdefault(named_type(type_of(part)).name, set()).add(owner.name)
    found, waiting = {UPLOAD}, [UPLOAD]
    while waiting:
        new = used_by.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def _extract_files(value: Any, kind: GraphQLType, path: str, files: dict[str, Any]) -> Any:
    kind = unwrap_non_null(kind) or kind
    item = item_type(kind)
    if item is not None and is_array(value):
        return [_extract_files(one, item, f"{path}.{at}", files) for at, one in enumerate(value)]
    if isinstance(kind, GraphQLInputObjectType) and is_object(value):
        known = kind.fields
        return {
            name: _extract_files(one, type_of(known[name]), f"{path}.{name}", files) if name in known else one
            for name, one in value.items()
        }
    if value is None or not isinstance(kind, GraphQLScalarType) or kind.name != UPLOAD:
        return value
    files[path] = value
    return None


def _form_part(name: str, path: str, value: Any, artifacts: Mapping[str, File]) -> FormPart:
    try:
        file = parse_file(value, artifacts)
    except UnsendableError as error:
        raise ToolValidationError(f"$.{path.partition('.')[2]}: {error}") from error
    return FormPart(name, file.data, media_type_of(file), file.name or name)
