"""The operations of a document: every method of every path, ready to be described and called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.schema.jsontypes import is_array, is_object
from toolpost.sources.openapi.description import as_markdown
from toolpost.sources.openapi.naming import Names, tool_name
from toolpost.sources.openapi.operation import Answer, Operation
from toolpost.sources.openapi.parameters import Listing, ParameterReader, merged
from toolpost.sources.openapi.references import Target
from toolpost.sources.openapi.request_bodies import BodyReader
from toolpost.sources.openapi.security_schemes import needs_of
from toolpost.sources.openapi.servers import default_servers, servers_of, swagger_servers
from toolpost.sources.openapi.upgrade import Inputs, media_types, upgraded_answer, upgraded_inputs
from toolpost.web.targets import pairs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolpost.schema.jsontypes import AnySchema
    from toolpost.sources.openapi.documents import Parsed
    from toolpost.sources.openapi.references import Library
    from toolpost.sources.openapi.schemas import SchemaReader

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")


class Found(NamedTuple):
    """An operation where it stands: its path, its method, and the layers of the path's own description."""

    path: str
    method: str
    operation: Target
    layers: list[Target]


class OperationReader:
    """Reads the operations of one document; what is broken is set aside and told of."""

    def __init__(
        self,
        first: Parsed,
        library: Library,
        *,
        inputs: SchemaReader,
        outputs: SchemaReader,
        address: str,
        problems: list[str],
    ) -> None:
        self._document = first.data
        self._is_swagger = first.dialect == "2.0"
        self._library = library
        self._address = address
        self._problems = problems
        self._inputs = inputs
        self._outputs = outputs
        self._parameters = ParameterReader(library, inputs, problems)
        self._bodies = BodyReader(library, inputs)
        self._names = Names()

    def read(self, definitions: Mapping[str, AnySchema], of_answers: Mapping[str, AnySchema]) -> list[Operation]:
        """Every operation, in the document's order."""
        return [self._operation(found, definitions, of_answers) for found in self._found()]

    def _found(self) -> Iterator[Found]:
        for path, item in self._paths():
            layers = self._layers(Target(item, self._library.root))
            if not layers:
                self._problems.append(f"path {path!r} is set aside: it is no description of a path, or refers to none")
            for method, operation in _methods(layers):
                target = self._library.resolved(*operation)
                if target is None or not is_object(target.node):
                    self._problems.append(f"{method.upper()} {path} is set aside: it is no description of an operation")
                else:
                    yield Found(path, method, target, layers)

    def _paths(self) -> Iterator[tuple[str, Any]]:
        """The paths, and Azure's that `paths` has no room for: the same but for what their query fixes."""
        for word in ("paths", "x-ms-paths"):
            paths = self._document.get(word)
            if is_object(paths):
                yield from ((path, item) for path, item in paths.items() if not path.startswith("x-"))

    def _layers(self, item: Target) -> list[Target]:
        """What describes a path: itself, and what it refers to."""
        if not is_object(item.node):
            return []
        reference = item.node.get("$ref")
        target = self._library.target(reference, item.base) if isinstance(reference, str) else None
        layers = [] if item.node.keys() == {"$ref"} else [item]
        return [*layers, target] if target is not None and is_object(target.node) else layers

    def _operation(
        self, found: Found, definitions: Mapping[str, AnySchema], of_answers: Mapping[str, AnySchema]
    ) -> Operation:
        node, base = found.operation
        names = Names()
        inputs = self._inputs_of(found)
        operation_id = node.get("operationId")
        return Operation(
            tool_name=self._names.take(tool_name(operation_id, found.method, found.path)),
            method=found.method.upper() if found.method in _METHODS else found.method,
            path=found.path,
            servers=self._servers(found),
            summary=_text(node.get("summary")),
            description=_text(node.get("description")),
            operation_id=operation_id if isinstance(operation_id, str) else None,
            tags=_texts(node.get("tags")),
            deprecated=node.get("deprecated") is True,
            parameters=self._parameters.read(found.path, inputs.parameters, names),
            body=self._bodies.read(inputs.body, names),
            answers=tuple(self._answers(node, base)),
            security=needs_of(node.get("security", self._document.get("security"))),
            definitions=definitions,
            answer_definitions=of_answers,
        )

    def _inputs_of(self, found: Found) -> Inputs:
        node, base = found.operation
        lists = [Target(holder.node.get("parameters"), holder.base) for holder in (found.operation, *found.layers)]
        listing = Listing.of(found.method, found.path, is_swagger=self._is_swagger)
        parameters = merged(lists, self._library, listing, self._problems)
        if "?" in found.path:
            fixed = {name for name, _ in pairs_of(found.path.partition("#")[0].partition("?")[2])}
            parameters = [one for one in parameters if one.node["in"] != "query" or one.node["name"] not in fixed]
        if self._is_swagger:
            return upgraded_inputs(parameters, media_types(node, self._document, "consumes"))
        body = node.get("requestBody")
        return Inputs(parameters, None if body is None else Target(body, base))

    def _servers(self, found: Found) -> tuple[str, ...]:
        node = found.operation.node
        if self._is_swagger:
            return swagger_servers(self._document, node.get("schemes", self._document.get("schemes")), self._address)
        for holder in (node, *(layer.node for layer in found.layers), self._document):
            if is_array(listed := holder.get("servers")) and listed:
                return servers_of(listed, self._address)
        return default_servers(self._address)

    def _answers(self, operation: dict[str, Any], base: str) -> Iterator[Answer]:
        answers = operation.get("responses")
        for status, given in answers.items() if is_object(answers) else ():
            target = self._library.resolved(given, base)
            if status.startswith("x-") or target is None or not is_object(target.node):
                continue
            node = target.node
            if self._is_swagger:
                node = upgraded_answer(node, media_types(operation, self._document, "produces"))
            yield Answer(
                status=status.upper() if status[1:].lower() == "xx" else status,
                description=_text(node.get("description")),
                content=self._content(node.get("content"), target.base),
                links=self._links(node.get("links"), target.base),
            )

    def _content(self, content: Any, base: str) -> dict[str, AnySchema | None]:
        schemas: dict[str, AnySchema | None] = {}
        for media_type, given in content.items() if is_object(content) else ():
            media = self._library.resolved(given, base)
            if media is None or not is_object(media.node) or "schema" not in media.node:
                schemas[media_type] = None
            else:
                schemas[media_type] = self._outputs.read(media.node["schema"], media.base)
        return schemas

    def _links(self, links: Any, base: str) -> dict[str, Any]:
        targets = {name: self._library.resolved(link, base) for name, link in links.items()} if is_object(links) else {}
        return {name: target.node for name, target in targets.items() if target is not None and is_object(target.node)}


def _methods(layers: list[Target]) -> Iterator[tuple[str, Target]]:
    """The methods of a path, each from the first layer that has it."""
    found: dict[str, Target] = {}
    for node, base in layers:
        more = node.get("additionalOperations")
        own = {name: node[name] for name in node if name in _METHODS}
        for name, operation in {**own, **(more if is_object(more) else {})}.items():
            found.setdefault(name, Target(operation, base))
    yield from found.items()


def _text(value: Any) -> str:
    return as_markdown(value).strip() if isinstance(value, str) else ""


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if is_array(value) else ()
