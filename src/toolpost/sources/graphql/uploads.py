"""Files among the variables of a query, which travel beside its JSON: the GraphQL multipart request specification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from graphql import GraphQLInputObjectType, GraphQLScalarType

from toolpost.contracts.errors import ToolValidationError
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.sources.graphql.kinds import item_type, named_type, never_null, type_of
from toolpost.web.encoding import UnsendableError
from toolpost.web.files import artifact_id_of, file_of
from toolpost.web.files import type_of as media_type_of
from toolpost.web.multipart import FormPart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphql import GraphQLField, GraphQLNamedType, GraphQLSchema, GraphQLType

    from toolpost.web.files import File

UPLOAD = "Upload"  # the name that servers give to files


class Parted(NamedTuple):
    """Variables with null in the place of every file, and the files by their places."""

    variables: dict[str, Any]
    files: dict[str, Any]

    @property
    def artifact_ids(self) -> list[str]:
        """The artifacts that the files are taken from, each once."""
        found = (artifact_id_of(value) for value in self.files.values())
        return list(dict.fromkeys(one for one in found if one is not None))

    def parts(self, artifacts: Mapping[str, File]) -> dict[str, FormPart]:
        """The files as parts of a body, by their places."""
        numbered = enumerate(self.files.items())
        return {place: _part(str(number), place, value, artifacts) for number, (place, value) in numbered}


class Uploads:
    """Where a schema takes files."""

    def __init__(self, schema: GraphQLSchema) -> None:
        self._holders = _holders(schema.type_map)

    def arguments(self, field: GraphQLField) -> dict[str, GraphQLType]:
        """The arguments of a field that are files or can hold some."""
        kinds = {name: type_of(inner) for name, inner in field.args.items()} if self._holders else {}
        return {name: kind for name, kind in kinds.items() if named_type(kind).name in self._holders}


def parted(variables: dict[str, Any], kinds: Mapping[str, GraphQLType]) -> Parted:
    """Take the files out of the variables; `kinds` are the types of those that can hold some."""
    files: dict[str, Any] = {}
    held = [name for name in kinds if name in variables]
    left = {name: _without(variables[name], kinds[name], f"variables.{name}", files) for name in held}
    return Parted({**variables, **left}, files)


def _holders(types: Mapping[str, GraphQLNamedType]) -> set[str]:
    """The file itself, the inputs that have one, those that have such an input, and so on."""
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


def _without(value: Any, kind: GraphQLType, place: str, files: dict[str, Any]) -> Any:
    kind = never_null(kind) or kind
    item = item_type(kind)
    if item is not None and is_array(value):
        return [_without(one, item, f"{place}.{at}", files) for at, one in enumerate(value)]
    if isinstance(kind, GraphQLInputObjectType) and is_object(value):
        known = kind.fields
        return {
            name: _without(one, type_of(known[name]), f"{place}.{name}", files) if name in known else one
            for name, one in value.items()
        }
    if value is None or not isinstance(kind, GraphQLScalarType) or kind.name != UPLOAD:
        return value
    files[place] = value
    return None


def _part(name: str, place: str, value: Any, artifacts: Mapping[str, File]) -> FormPart:
    try:
        file = file_of(value, artifacts)
    except UnsendableError as error:
        raise ToolValidationError(f"$.{place.partition('.')[2]}: {error}") from error
    return FormPart(name, file.data, media_type_of(file), file.name or name)
