"""Read the operations of a document: parameters, bodies, responses and servers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import urljoin, urlsplit

from toolpost.http.encoding import split_query
from toolpost.schema.json_values import AnySchema, as_object, is_array, is_object
from toolpost.sources.openapi import models
from toolpost.sources.openapi.documents import ParsedDocument
from toolpost.sources.openapi.markdown import html_to_markdown
from toolpost.sources.openapi.naming import UniqueNames, argument_name, tool_name
from toolpost.sources.openapi.references import DocumentRegistry, ResolvedNode
from toolpost.sources.openapi.request_bodies import ITEM_DELIMITERS, BodyReader, choose_media_type
from toolpost.sources.openapi.schemas import SchemaReader
from toolpost.sources.openapi.security_schemes import list_strings, parse_security
from toolpost.sources.openapi.swagger2 import OperationInputs, convert_inputs, convert_response, list_media_types

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
# On a name clash, the earlier location keeps the plain argument name.
_LOCATIONS: tuple[models.Location, ...] = ("path", "query", "header", "cookie")
_PLACES = ("query", "path", "header", "cookie")
_SWAGGER_PLACES = ("query", "path", "header", "formData", "body")
_WHOLE_QUERY = "querystring"
_STYLES: dict[models.Location, tuple[models.Style, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
# OpenAPI 3 §4.8.12.2: parameter declarations of these headers are ignored.
_NOT_PARAMETERS = frozenset({"accept", "content-type", "authorization"})
_TEMPLATE = re.compile(r"\{([^{}]+)\}")
_BEST_FIRST = ("https", "http")


class OperationReader:
    """Reader of the operations of one document; invalid ones are skipped and recorded as problems."""

    def __init__(
        self,
        first: ParsedDocument,
        registry: DocumentRegistry,
        *,
        inputs: SchemaReader,
        outputs: SchemaReader,
        address: str,
        problems: list[str],
    ) -> None:
        self._document = first.data
        self._is_swagger = first.dialect == "2.0"
        self._registry = registry
        self._address = address
        self._problems = problems
        self._inputs = inputs
        self._outputs = outputs
        self._parameters = _ParameterReader(registry, inputs, problems)
        self._bodies = BodyReader(registry, inputs)
        self._names = UniqueNames()

    def read(
        self, definitions: Mapping[str, AnySchema], response_definitions: Mapping[str, AnySchema]
    ) -> list[models.ApiOperation]:
        return [self._operation(endpoint, definitions, response_definitions) for endpoint in self._operation_nodes()]

    def _operation_nodes(self) -> Iterator[_OperationNode]:
        for path, item in self._paths():
            path_items = self._path_items(ResolvedNode(item, self._registry.root))
            if not path_items:
                self._problems.append(f"path {path!r} is skipped: it is not a path item, or its reference is broken")
            for method, operation in _methods(path_items):
                target = self._registry.resolve(*operation)
                if target is None or not is_object(target.node):
                    self._problems.append(f"{method.upper()} {path} is skipped: it is not an operation object")
                else:
                    yield _OperationNode(path, method, target, path_items)

    def _paths(self) -> Iterator[tuple[str, Any]]:
        """Yield `paths` and Azure's `x-ms-paths`; keys of the latter also contain query parameters."""
        for word in ("paths", "x-ms-paths"):
            paths = self._document.get(word)
            if is_object(paths):
                yield from ((path, item) for path, item in paths.items() if not path.startswith("x-"))

    def _path_items(self, item: ResolvedNode) -> list[ResolvedNode]:
        if not is_object(item.node):
            return []
        reference = item.node.get("$ref")
        target = self._registry.lookup(reference, item.base) if isinstance(reference, str) else None
        path_items = [] if item.node.keys() == {"$ref"} else [item]
        return [*path_items, target] if target is not None and is_object(target.node) else path_items

    def _operation(
        self,
        endpoint: _OperationNode,
        definitions: Mapping[str, AnySchema],
        response_definitions: Mapping[str, AnySchema],
    ) -> models.ApiOperation:
        node, base = endpoint.operation
        names = UniqueNames()
        inputs = self._read_inputs(endpoint)
        operation_id = node.get("operationId")
        return models.ApiOperation(
            tool_name=self._names.reserve(tool_name(operation_id, endpoint.method, endpoint.path)),
            method=endpoint.method.upper() if endpoint.method in _METHODS else endpoint.method,
            path=endpoint.path,
            servers=self._servers(endpoint),
            summary=_text(node.get("summary")),
            description=_text(node.get("description")),
            operation_id=operation_id if isinstance(operation_id, str) else None,
            tags=list_strings(node.get("tags")),
            deprecated=node.get("deprecated") is True,
            parameters=self._parameters.read(endpoint.path, inputs.parameters, names),
            body=self._bodies.read(inputs.body, names),
            responses=tuple(self._responses(node, base)),
            security=parse_security(node.get("security", self._document.get("security"))),
            definitions=definitions,
            response_definitions=response_definitions,
        )

    def _read_inputs(self, endpoint: _OperationNode) -> OperationInputs:
        node, base = endpoint.operation
        lists = [
            ResolvedNode(holder.node.get("parameters"), holder.base)
            for holder in (endpoint.operation, *endpoint.path_items)
        ]
        parameters, faults = _merge_parameters(lists, self._registry, _SWAGGER_PLACES if self._is_swagger else _PLACES)
        self._problems += [f"{endpoint.method.upper()} {endpoint.path}: {fault}" for fault in faults]
        if "?" in endpoint.path:
            fixed = {name for name, _ in split_query(endpoint.path.partition("#")[0].partition("?")[2])}
            parameters = [one for one in parameters if one.node["in"] != "query" or one.node["name"] not in fixed]
        if self._is_swagger:
            return convert_inputs(parameters, list_media_types(node, self._document, "consumes"))
        body = node.get("requestBody")
        return OperationInputs(parameters, None if body is None else ResolvedNode(body, base))

    def _servers(self, endpoint: _OperationNode) -> tuple[str, ...]:
        node = endpoint.operation.node
        if self._is_swagger:
            return _swagger_servers(self._document, node.get("schemes", self._document.get("schemes")), self._address)
        for holder in (node, *(layer.node for layer in endpoint.path_items), self._document):
            if is_array(listed := holder.get("servers")) and listed:
                return _resolve_servers(listed, self._address)
        return _resolve_servers([{"url": "/"}], self._address)  # the root of the document's host

    def _responses(self, operation: dict[str, Any], base: str) -> Iterator[models.ApiResponse]:
        answers = operation.get("responses")
        for status, response in answers.items() if is_object(answers) else ():
            target = self._registry.resolve(response, base)
            if status.startswith("x-") or target is None or not is_object(target.node):
                continue
            node = target.node
            if self._is_swagger:
                node = convert_response(node, list_media_types(operation, self._document, "produces"))
            yield models.ApiResponse(
                status=status.upper() if status[1:].lower() == "xx" else status,
                description=_text(node.get("description")),
                content=self._content(node.get("content"), target.base),
                links=self._links(node.get("links"), target.base),
            )

    def _content(self, content: Any, base: str) -> dict[str, AnySchema | None]:
        schemas: dict[str, AnySchema | None] = {}
        for media_type, value in content.items() if is_object(content) else ():
            media = self._registry.resolve(value, base)
            if media is None or not is_object(media.node) or "schema" not in media.node:
                schemas[media_type] = None
            else:
                schemas[media_type] = self._outputs.read(media.node["schema"], media.base)
        return schemas

    def _links(self, links: Any, base: str) -> dict[str, Any]:
        targets = {name: self._registry.resolve(link, base) for name, link in links.items()} if is_object(links) else {}
        return {name: target.node for name, target in targets.items() if target is not None and is_object(target.node)}


def _methods(path_items: list[ResolvedNode]) -> Iterator[tuple[str, ResolvedNode]]:
    """Yield the methods of a path, each from the first path item that has it."""
    operations: dict[str, ResolvedNode] = {}
    for node, base in path_items:
        more = node.get("additionalOperations")
        own = {name: node[name] for name in node if name in _METHODS}
        for name, operation in {**own, **as_object(more)}.items():
            operations.setdefault(name, ResolvedNode(operation, base))
    yield from operations.items()


def _text(value: Any) -> str:
    return html_to_markdown(value).strip() if isinstance(value, str) else ""


def _merge_parameters(
    lists: Iterable[ResolvedNode], registry: DocumentRegistry, places: tuple[str, ...]
) -> tuple[list[ResolvedNode], list[str]]:
    """Merge parameter lists; the first of the same name and location wins. Also return the faults of invalid ones."""
    faults: list[str] = []
    parameters: dict[tuple[str, str], ResolvedNode] = {}
    for listed, base in lists:
        for parameter in listed if is_array(listed) else ():
            target = registry.resolve(parameter, base)
            node: dict[str, Any] = target.node if target is not None and is_object(target.node) else {}
            fault = _find_fault(node, places) if "name" in node else _describe_nameless(parameter)
            if target is None or fault:
                faults.append(fault)
            else:
                parameters.setdefault((node["in"], node["name"]), target)
    return list(parameters.values()), faults


def _find_fault(node: dict[str, Any], places: tuple[str, ...]) -> str:
    name, place = node["name"], node.get("in")
    if not isinstance(name, str) or not name.strip():
        return "a parameter is skipped: its name is not a string"
    if place is None:
        return f"parameter {name[:100]!r} has no `in` ({', '.join(places)})"
    if place not in (*places, _WHOLE_QUERY):
        return f"parameter {name[:100]!r} is in {str(place)[:100]!r}, which is not a location ({', '.join(places)})"
    if place == "header" and not models.HEADER_NAME.fullmatch(name):
        return f"a parameter is skipped: {name[:100]!r} is not a valid header name"
    return ""


def _describe_nameless(parameter: Any) -> str:
    reference = parameter.get("$ref") if is_object(parameter) else None
    reason = f"the reference {str(reference)[:200]!r} is broken" if reference else "it has no name"
    return f"a parameter is skipped: {reason}"


class _ParameterReader:
    def __init__(self, registry: DocumentRegistry, schemas: SchemaReader, problems: list[str]) -> None:
        self._registry = registry
        self._schemas = schemas
        self._problems = problems

    def read(self, path: str, parameters: Sequence[ResolvedNode], names: UniqueNames) -> tuple[models.Parameter, ...]:
        """Read the parameters in document order; undeclared path placeholders get one too.

        Placeholders for several segments are `{+name}` or `{name*}`; the parameter may use either spelling.
        """
        placeholders = {spelling: spelling.strip("+*") for spelling in _TEMPLATE.findall(path.partition("#")[0])}
        sent = [target for target in self._expand_querystring(parameters) if _is_sent(target.node, placeholders)]
        declared = {target.node["name"] for target in sent if target.node["in"] == "path"}
        sent += [
            ResolvedNode({"name": name, "in": "path", "required": True, "schema": {"type": "string"}}, "")
            for spelling, name in placeholders.items()
            if declared.isdisjoint((spelling, name))
        ]
        arguments = _name_arguments(sent, names)
        return tuple(self._parameter(target, arguments[id(target.node)]) for target in sent)

    def _expand_querystring(self, parameters: Sequence[ResolvedNode]) -> Iterator[ResolvedNode]:
        """Yield the parameters; a `querystring` form becomes one parameter per field."""
        for target in parameters:
            if target.node.get("in") == _WHOLE_QUERY:
                yield from self._fields(target)
            else:
                yield target

    def _fields(self, target: ResolvedNode) -> Iterator[ResolvedNode]:
        content = target.node.get("content")
        media = self._registry.resolve(next(iter(content.values()), None) if is_object(content) else None, target.base)
        form = media.node.get("schema") if media is not None and is_object(media.node) else None
        schema = self._registry.resolve(form, media.base if media is not None else target.base)
        rules: dict[str, Any] = schema.node if schema is not None and is_object(schema.node) else {}
        properties, required = rules.get("properties"), rules.get("required")
        if schema is None or not is_object(properties):
            name = target.node["name"]
            self._problems.append(
                f"the query string {name[:100]!r} is skipped: only a form with named fields is supported"
            )
            return
        for name, node in properties.items():
            needed = is_array(required) and name in required
            yield ResolvedNode({"name": name, "in": "query", "schema": node, "required": needed}, schema.base)

    def _parameter(self, target: ResolvedNode, argument: str) -> models.Parameter:
        node = target.node
        location = cast("models.Location", node["in"])
        schema, content_type = self._read_content(node, target.base)
        styles = _STYLES[location]
        style = node.get("style")
        style = style if style in styles else styles[0]
        explode = node.get("explode")
        description = node.get("description")
        return models.Parameter(
            name=node["name"],
            location=location,
            argument=argument,
            schema=schema,
            required=location == "path" or node.get("required") is True,
            description=html_to_markdown(description) if isinstance(description, str) else "",
            style=style,
            explode=explode if isinstance(explode, bool) else style == "form",
            allow_reserved=node.get("allowReserved") is True,
            allow_empty=node.get("allowEmptyValue") is True,
            content_type=content_type,
            deprecated=node.get("deprecated") is True,
            item_delimiters=str(node.get(ITEM_DELIMITERS, "")),
        )

    def _read_content(self, node: dict[str, Any], base: str) -> tuple[AnySchema, str | None]:
        """Return the schema of a parameter, and its media type if it uses `content`."""
        content = node.get("content")
        if not is_object(content) or not content:
            return self._schemas.read(node.get("schema", {}), base), None
        media_type = choose_media_type(content)
        media = content[media_type] if media_type is not None else None
        schema = self._schemas.read(media.get("schema", {}), base) if is_object(media) else {}
        return schema, media_type


def _is_sent(node: dict[str, Any], placeholders: Mapping[str, str]) -> bool:
    location, name = node.get("in"), node["name"]
    if location == "path":
        return name in placeholders or name in placeholders.values()
    if location == "header":
        return name.lower() not in _NOT_PARAMETERS
    return location in ("query", "cookie")


def _name_arguments(sent: Sequence[ResolvedNode], names: UniqueNames) -> dict[int, str]:
    arguments: dict[int, str] = {}
    for location in _LOCATIONS:
        for node in (target.node for target in sent if target.node["in"] == location):
            name = argument_name(node["name"])
            arguments[id(node)] = names.reserve(f"{name}_{location}" if names.is_taken(name) else name)
    return arguments


def _resolve_servers(listed: Any, address: str) -> tuple[str, ...]:
    """Return the absolute URLs of a server list; relative ones resolve against the document's URL."""
    urls = [_server(server, address) for server in listed if is_object(server)] if is_array(listed) else []
    return tuple(dict.fromkeys(url for url in urls if url is not None))


def _swagger_servers(document: dict[str, Any], schemes: Any, address: str) -> tuple[str, ...]:
    """Return the server URLs of a Swagger 2 document, https first."""
    own = urlsplit(address)
    remote = own.scheme in _BEST_FIRST
    host = document.get("host")
    if not isinstance(host, str) or not host:
        host = own.netloc.rpartition("@")[2] if remote else ""
    if not host:
        return ()
    named: Sequence[Any] = schemes if is_array(schemes) else []
    usable = [scheme for scheme in _BEST_FIRST if scheme in named] or [own.scheme if remote else "https"]
    path = document.get("basePath")
    path = path if isinstance(path, str) else ""
    return _resolve_servers([{"url": f"{scheme}://{host}/{path.strip('/')}"} for scheme in usable], address)


def _server(server: dict[str, Any], address: str) -> str | None:
    url = server.get("url")
    if not isinstance(url, str):
        return None
    variables = server.get("variables")
    filled = _TEMPLATE.sub(lambda match: _variable_value(variables, match[1]) or match[0], url.strip())
    try:
        whole = urljoin(address, filled)
        parts = urlsplit(whole)
    except ValueError:
        return None
    if _TEMPLATE.search(filled) or parts.scheme not in _BEST_FIRST or not parts.netloc:
        return None
    return whole.partition("#")[0].rstrip("/") or None


def _variable_value(variables: Any, name: str) -> str | None:
    variable = variables.get(name) if is_object(variables) else None
    if not is_object(variable):
        return None
    options = variable.get("enum")
    value = variable.get("default", options[0] if is_array(options) and options else None)
    return str(value) if isinstance(value, str | int | float) else None


class _OperationNode(NamedTuple):
    """Node of an operation in the document: path, method, and the path items that apply."""

    path: str
    method: str
    operation: ResolvedNode
    path_items: list[ResolvedNode]
