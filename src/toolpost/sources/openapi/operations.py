"""Read the operations of a document: parameters, bodies, servers and security requirements; convert Swagger 2."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import urljoin, urlsplit

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import AnySchema, as_object, is_array, is_object
from toolpost.sources.openapi import models
from toolpost.sources.openapi.documents import DocumentRegistry, ParsedDocument, ResolvedNode
from toolpost.sources.openapi.naming import UniqueNames, argument_name, html_to_markdown, tool_name
from toolpost.sources.openapi.schemas import SchemaReader
from toolpost.web.content import parse_media_type
from toolpost.web.requests import FILE, split_query

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
_SWAGGER_FLOWS = {"application": "clientCredentials", "accessCode": "authorizationCode"}
# Flows that need no user first.
_FLOWS = ("clientCredentials", "password", "authorizationCode", "deviceAuthorization", "implicit")
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_BYTES = "application/octet-stream"
# Keywords of a parameter that do not belong to its schema.
_OF_PARAMETER = frozenset({"name", "in", "description", "required", "collectionFormat", "allowEmptyValue", "schema"})
_PARAMETER_KEYS = ("name", "in", "description", "required", "allowEmptyValue")
# `tsv` has no counterpart in OpenAPI 3.
_SWAGGER_STYLES: dict[str, dict[str, Any]] = {
    "csv": {"explode": False},
    "tsv": {"explode": False},
    "ssv": {"style": "spaceDelimited", "explode": False},
    "pipes": {"style": "pipeDelimited", "explode": False},
    "multi": {"explode": True},
}
_DELIMITERS = {"ssv": " ", "tsv": "\t", "pipes": "|"}
# Keyword for the separators of lists within a list (Swagger 2); OpenAPI 3 has none.
ITEM_DELIMITERS = "x-item-delimiters"
DEEPEST_LIST = 5
_SCALARS = ("string", "number", "integer", "boolean")
_FORM_STYLES = ("form", "spaceDelimited", "pipeDelimited", "deepObject")
BodyFormat = Literal["json", "multipart", "form", "text", "binary", "any"]
_ORDER: tuple[BodyFormat, ...] = ("json", "multipart", "form", "text", "binary", "any")
_ANYTHING = ("*/*", "application/*", "")


class _OperationNode(NamedTuple):
    """Node of an operation in the document: path, method, and the path items that apply."""

    path: str
    method: str
    operation: ResolvedNode
    path_items: list[ResolvedNode]


class OperationReader:
    """Reads the operations of one document; skips invalid ones and records problems."""

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
        """Read all operations in document order."""
        return [self._operation(endpoint, definitions, response_definitions) for endpoint in self._operation_nodes()]

    def _operation_nodes(self) -> Iterator[_OperationNode]:
        for path, item in self._paths():
            path_items = self._path_items(ResolvedNode(item, self._registry.root))
            if not path_items:
                self._problems.append(f"path {path!r} is set aside: it is no description of a path, or refers to none")
            for method, operation in _methods(path_items):
                target = self._registry.resolve(*operation)
                if target is None or not is_object(target.node):
                    self._problems.append(f"{method.upper()} {path} is set aside: it is no description of an operation")
                else:
                    yield _OperationNode(path, method, target, path_items)

    def _paths(self) -> Iterator[tuple[str, Any]]:
        """Yield `paths` and Azure's `x-ms-paths`, whose keys also fix query parameters."""
        for word in ("paths", "x-ms-paths"):
            paths = self._document.get(word)
            if is_object(paths):
                yield from ((path, item) for path, item in paths.items() if not path.startswith("x-"))

    def _path_items(self, item: ResolvedNode) -> list[ResolvedNode]:
        """Return the path item and the one that it references."""
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
            tags=_texts(node.get("tags")),
            deprecated=node.get("deprecated") is True,
            parameters=self._parameters.read(endpoint.path, inputs.parameters, names),
            body=self._bodies.read(inputs.body, names),
            responses=tuple(self._responses(node, base)),
            security=_parse_security(node.get("security", self._document.get("security"))),
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


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if is_array(value) else ()


def _merge_parameters(
    lists: Iterable[ResolvedNode], registry: DocumentRegistry, places: tuple[str, ...]
) -> tuple[list[ResolvedNode], list[str]]:
    """Merge parameter lists; the first of the same name and location wins. Also return what is wrong with others."""
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
    """Return why a parameter is invalid, or an empty string."""
    name, place = node["name"], node.get("in")
    if not isinstance(name, str) or not name.strip():
        return "a parameter is left out: its name is no text"
    if place is None:
        return f"parameter {name[:100]!r} does not say what it is `in` ({', '.join(places)})"
    if place not in (*places, _WHOLE_QUERY):
        return f"parameter {name[:100]!r} is in {str(place)[:100]!r}, which is no place ({', '.join(places)})"
    if place == "header" and not models.HEADER_NAME.fullmatch(name):
        return f"a parameter is left out: no header can be named {name[:100]!r}"
    return ""


def _describe_nameless(parameter: Any) -> str:
    reference = parameter.get("$ref") if is_object(parameter) else None
    reason = f"the reference {str(reference)[:200]!r} leads nowhere" if reference else "it has no name"
    return f"a parameter is left out: {reason}"


class _ParameterReader:
    """Reads the parameters of operations."""

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
            _path_parameter(name) for spelling, name in placeholders.items() if declared.isdisjoint((spelling, name))
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
            self._problems.append(f"the query string {name[:100]!r} is left out: only a form with named fields is sent")
            return
        for name, node in properties.items():
            needed = is_array(required) and name in required
            yield ResolvedNode({"name": name, "in": "query", "schema": node, "required": needed}, schema.base)

    def _parameter(self, target: ResolvedNode, argument: str) -> models.Parameter:
        node = target.node
        location = cast("models.Location", node["in"])
        schema, content_type = self._read_content(node, target.base)
        style = _style(node, location)
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


def _path_parameter(name: str) -> ResolvedNode:
    return ResolvedNode({"name": name, "in": "path", "required": True, "schema": {"type": "string"}}, "")


def _name_arguments(sent: Sequence[ResolvedNode], names: UniqueNames) -> dict[int, str]:
    """Assign argument names, by identity of the parameter's node."""
    arguments: dict[int, str] = {}
    for location in _LOCATIONS:
        for node in (target.node for target in sent if target.node["in"] == location):
            name = argument_name(node["name"])
            arguments[id(node)] = names.reserve(f"{name}_{location}" if names.is_taken(name) else name)
    return arguments


def _style(node: dict[str, Any], location: models.Location) -> models.Style:
    styles = _STYLES[location]
    style = node.get("style")
    return style if style in styles else styles[0]


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
    """Return the default of a server variable, or its first enum value."""
    variable = variables.get(name) if is_object(variables) else None
    if not is_object(variable):
        return None
    options = variable.get("enum")
    value = variable.get("default", options[0] if is_array(options) and options else None)
    return str(value) if isinstance(value, str | int | float) else None


def parse_security_schemes(
    document: dict[str, Any], registry: DocumentRegistry, address: str
) -> dict[str, models.SecurityScheme]:
    """Read the security schemes by name; skip invalid ones."""
    schemes: dict[str, models.SecurityScheme] = {}
    for name, declared in _scheme_nodes(document):
        target = registry.resolve(declared, registry.root)
        if target is not None and is_object(target.node):
            scheme = _scheme(name, target.node, address)
            if scheme is not None:
                schemes[name] = scheme
    return schemes


def _scheme_nodes(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    components = document.get("components")
    for holder, word in ((components, "securitySchemes"), (document, "securityDefinitions")):
        declared = holder.get(word) if is_object(holder) else None
        if is_object(declared):
            yield from declared.items()


def _scheme(name: str, node: dict[str, Any], address: str) -> models.SecurityScheme | None:
    kind = node.get("type")
    if kind == "basic":
        return models.SecurityScheme(name=name, type="http", scheme="basic")
    if kind == "apiKey":
        location = node.get("in")
        if location not in ("query", "header", "cookie") or not isinstance(node.get("name"), str):
            return None
        return models.SecurityScheme(name=name, type="apiKey", location=location, parameter=node["name"])
    if kind == "http":
        return models.SecurityScheme(name=name, type="http", scheme=str(node.get("scheme", "")).lower())
    if kind == "oauth2":
        flows = _flows(node)
        return models.SecurityScheme(name=name, type="oauth2", flows=flows, token_url=_token_url(flows, address))
    if kind == "openIdConnect":
        return models.SecurityScheme(
            name=name, type="openIdConnect", flows={"openIdConnectUrl": node.get("openIdConnectUrl")}
        )
    return models.SecurityScheme(name=name, type="mutualTLS") if kind == "mutualTLS" else None


def _flows(node: dict[str, Any]) -> dict[str, Any]:
    """Return the OAuth flows, with the one flow of Swagger 2 converted to OpenAPI 3."""
    flows = node.get("flows")
    if is_object(flows):
        return {name: flow for name, flow in flows.items() if is_object(flow)}
    flow = node.get("flow")
    if not isinstance(flow, str):
        return {}
    definition = {word: node[word] for word in ("authorizationUrl", "tokenUrl", "scopes") if word in node}
    return {_SWAGGER_FLOWS.get(flow, flow): definition}


def _token_url(flows: dict[str, Any], address: str) -> str | None:
    for name in _FLOWS:
        url = flows.get(name, {}).get("tokenUrl")
        if isinstance(url, str) and url:
            try:
                return urljoin(address, url)
            except ValueError:
                return None
    return None


def _parse_security(declared: Any) -> tuple[tuple[models.SecurityRequirement, ...], ...]:
    """Parse a `security` list; an empty object in it is an alternative without credentials."""
    if not is_array(declared):
        return ()
    return tuple(
        tuple(models.SecurityRequirement(scheme=name, scopes=_texts(scopes)) for name, scopes in alternative.items())
        for alternative in declared
        if is_object(alternative)
    )


class OperationInputs(NamedTuple):
    """Parameters and request body of an operation."""

    parameters: list[ResolvedNode]
    body: ResolvedNode | None


def convert_inputs(swagger_parameters: Sequence[ResolvedNode], consumes: Sequence[str]) -> OperationInputs:
    """Separate the parameters from the body and from form fields, which are parameters in Swagger 2."""
    fields = [target for target in swagger_parameters if target.node.get("in") == "formData"]
    whole = next((target for target in swagger_parameters if target.node.get("in") == "body"), None)
    others = [target for target in swagger_parameters if target.node.get("in") not in ("formData", "body")]
    parameters = [ResolvedNode(_parameter(target.node), target.base) for target in others]
    if whole is not None:
        return OperationInputs(parameters, ResolvedNode(_body(whole.node, consumes), whole.base))
    return OperationInputs(parameters, ResolvedNode(_form(fields, consumes), fields[0].base) if fields else None)


def _parameter(node: dict[str, Any]) -> dict[str, Any]:
    common: dict[str, Any] = {word: node[word] for word in _PARAMETER_KEYS if word in node}
    return {**common, "schema": _schema(node), **_swagger_style(node)}


def _schema(node: dict[str, Any]) -> dict[str, Any]:
    schema = node.get("schema")
    if is_object(schema):
        return schema
    return {word: value for word, value in node.items() if word not in _OF_PARAMETER}


def _swagger_style(node: dict[str, Any]) -> dict[str, Any]:
    if node.get("type") != "array":
        return {}
    style = _SWAGGER_STYLES.get(str(node.get("collectionFormat", "csv")), {"explode": False})
    inner = "".join(_inner_delimiters(node.get("items")))
    return {**style, ITEM_DELIMITERS: inner} if inner else style


def _inner_delimiters(items: Any) -> Iterator[str]:
    """Yield the delimiters of nested lists, outermost first; nested lists cannot be repeated as `multi`."""
    for _ in range(DEEPEST_LIST):
        if not is_object(items) or items.get("type") != "array":
            return
        yield _DELIMITERS.get(str(items.get("collectionFormat")), ",")
        items = items.get("items")


def _body(node: dict[str, Any], consumes: Sequence[str]) -> dict[str, Any]:
    # Form types apply to form fields only; with a whole body they are a mistake.
    offered = [name for name in consumes if body_format(name) not in ("form", "multipart")] or [_JSON]
    return {
        "description": node.get("description"),
        "required": node.get("required"),
        "content": {name: {"schema": node.get("schema", {})} for name in offered},
    }


def _form(fields: Sequence[ResolvedNode], consumes: Sequence[str]) -> dict[str, Any]:
    nodes = [field.node for field in fields if isinstance(field.node.get("name"), str)]
    schema = {
        "type": "object",
        "properties": {node["name"]: _field(node) for node in nodes},
        "required": [node["name"] for node in nodes if node.get("required") is True],
    }
    encoding = {node["name"]: style for node in nodes if (style := _swagger_style(node))}
    media_type = _form_type(nodes, consumes)
    return {
        "required": bool(schema["required"]),
        "content": {media_type: {"schema": schema, "encoding": encoding}},
    }


def _field(node: dict[str, Any]) -> dict[str, Any]:
    schema = {**_schema(node), "description": node.get("description", "")}
    return {**schema, "type": "string", "format": "binary"} if node.get("type") == "file" else schema


def _form_type(nodes: Sequence[dict[str, Any]], consumes: Sequence[str]) -> str:
    if any(node.get("type") == "file" for node in nodes):
        return _MULTIPART
    kinds = {body_format(name) for name in consumes}
    return _MULTIPART if "multipart" in kinds and "form" not in kinds else _FORM


def convert_response(node: dict[str, Any], produces: Sequence[str]) -> dict[str, Any]:
    """Convert a response: its schema by media type."""
    schema = node.get("schema")
    if schema is None:
        return {"description": node.get("description")}
    is_file = is_object(schema) and schema.get("type") == "file"
    offered = [name for name in produces if not is_file or body_format(name) != "json"] or [
        _BYTES if is_file else _JSON
    ]
    return {"description": node.get("description"), "content": {name: {"schema": schema} for name in offered}}


def list_media_types(operation: dict[str, Any], document: dict[str, Any], word: str) -> list[str]:
    """Return what an operation consumes or produces: its own list or the document's."""
    for holder in (operation, document):
        listed = holder.get(word)
        if is_array(listed):
            return [name for name in listed if isinstance(name, str)] or [_JSON]
    return [_JSON]


class BodyReader:
    """Reads the request bodies of operations."""

    def __init__(self, registry: DocumentRegistry, schemas: SchemaReader) -> None:
        self._registry = registry
        self._schemas = schemas

    def read(self, body: ResolvedNode | None, names: UniqueNames) -> models.RequestBody | None:
        """Read the body in the preferred media type; None if there is none."""
        target = self._registry.resolve(*body) if body is not None else None
        if target is None or not is_object(target.node):
            return None
        content = target.node.get("content")
        name = choose_media_type(content) if is_object(content) else None
        if name is None or not is_object(content):
            return None
        media = self._registry.resolve(content[name], target.base)
        rules = media.node if media is not None and is_object(media.node) else {}
        description = target.node.get("description")
        schema, parts = self._schema_and_encodings(name, rules, media.base if media is not None else target.base)
        return models.RequestBody(
            argument=names.reserve("body_" if names.is_taken("body") else "body"),
            content_type=name,
            schema=schema,
            required=target.node.get("required") is True,
            description=html_to_markdown(description) if isinstance(description, str) else "",
            parts=parts,
        )

    def _schema_and_encodings(
        self, name: str, media: dict[str, Any], base: str
    ) -> tuple[AnySchema, Mapping[str, models.FieldEncoding]]:
        node = media.get("schema", {})
        match body_format(name):
            case "form" | "multipart":
                return self._form(node, base, media.get("encoding"))
            case "binary":
                return FILE, {}
            case "text":
                return _text_schema(self._schemas.read(node, base), name), {}
            case "any" if self._is_file(node, base):
                return FILE, {}
            case _:
                return self._schemas.read(node, base), {}

    def _form(self, node: Any, base: str, encoding: Any) -> tuple[AnySchema, Mapping[str, models.FieldEncoding]]:
        layers = list(self._object_schemas(ResolvedNode(node, base)))
        if not layers or not _has_fields(layers[0].node):
            return self._undeclared_form(node, base)
        fields = {name: ResolvedNode(field, layer.base) for layer in layers for name, field in _properties(layer.node)}
        encodings = as_object(encoding)
        parts = {name: self._part(field, encodings.get(name)) for name, field in fields.items()}
        files = {name for name, part in parts.items() if part.is_file}
        non_default = {name: part for name, part in parts.items() if part != models.FieldEncoding()}
        if not files:
            return self._schemas.read(node, base), non_default
        schemas = [self._with_files(layer, files) for layer in layers]
        return schemas[0] if len(schemas) == 1 else {"type": "object", "allOf": schemas}, non_default

    def _undeclared_form(self, node: Any, base: str) -> tuple[AnySchema, Mapping[str, models.FieldEncoding]]:
        """Return the schema of a form without declared fields; binary ones get a field `file`."""
        if not self._is_file(node, base):
            return {"type": "object"}, {}
        return {"type": "object", "properties": {"file": FILE}}, {"file": models.FieldEncoding(is_file=True)}

    def _object_schemas(self, target: ResolvedNode) -> Iterator[ResolvedNode]:
        """Yield the object schemas of a form: itself and its `allOf` members, each once."""
        seen: set[int] = set()
        waiting = [target]
        while waiting:
            schema = self._registry.resolve(*waiting.pop())
            if schema is None or not is_object(schema.node) or id(schema.node) in seen:
                continue
            seen.add(id(schema.node))
            yield schema
            members = schema.node.get("allOf")
            waiting += [ResolvedNode(member, schema.base) for member in reversed(members)] if is_array(members) else []

    def _with_files(self, layer: ResolvedNode, files: set[str]) -> AnySchema:
        """Convert one object schema without `allOf`, with its file fields as FILE."""
        alone = {word: value for word, value in layer.node.items() if word != "allOf"}
        schema = self._schemas.read(alone, layer.base)
        properties = schema.get("properties") if is_object(schema) else None
        if is_object(properties):
            properties.update({name: _file_schema(properties[name]) for name in files & properties.keys()})
        return schema

    def _part(self, field: ResolvedNode, encoding: Any) -> models.FieldEncoding:
        rules = as_object(encoding)
        content_type, style, explode = rules.get("contentType"), rules.get("style"), rules.get("explode")
        style = style if style in _FORM_STYLES else "form"
        is_file = self._is_file(*field, content_type=content_type if isinstance(content_type, str) else None)
        return models.FieldEncoding(
            content_type=content_type if isinstance(content_type, str) else None,
            style=cast("models.Style", style),
            explode=explode if isinstance(explode, bool) else style == "form",
            headers=_headers(rules.get("headers")),
            is_file=is_file,
            item_delimiters=str(rules.get(ITEM_DELIMITERS, "")),
        )

    def _is_file(self, node: Any, base: str, *, content_type: str | None = None, depth: int = 0) -> bool:
        """Return whether a schema is binary, or a list of binary values."""
        target = self._registry.resolve(node, base)
        if target is None or not is_object(target.node):
            return False
        node = target.node
        if node.get("type") == "array":
            inner = node.get("items") if depth < DEEPEST_LIST else None
            return self._is_file(inner, target.base, content_type=content_type, depth=depth + 1)
        kind = node.get("type", "string")
        if kind in ("file", "binary"):
            return True
        if kind not in ("string", ["string"], ["string", "null"]) or "contentEncoding" in node:
            return False
        if node.get("format") in ("binary", "file"):
            return True
        named = content_type or node.get("contentMediaType")
        return isinstance(named, str) and all(body_format(one) == "binary" for one in named.split(","))


def _has_fields(node: dict[str, Any]) -> bool:
    kind = node.get("type", "object")
    return kind == "object" or (is_array(kind) and "object" in kind)


def _properties(node: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    properties = node.get("properties")
    return iter(properties.items() if is_object(properties) else ())


def _file_schema(schema: AnySchema) -> JsonSchema:
    """Return the FILE schema, or a list of it, with the field's description."""
    if not is_object(schema):
        return FILE
    if schema.get("type") == "array":
        return {**schema, "items": FILE}
    description = schema.get("description")
    return {**FILE, "description": f"{description}\n{FILE['description']}"} if description else FILE


def _text_schema(schema: AnySchema, name: str) -> AnySchema:
    """Return the schema of a text body: scalars, lines, YAML values, or a string."""
    if is_object(schema) and schema.get("type") in _SCALARS:
        return schema
    match parse_media_type(name).kind:
        case "yaml":
            return {"anyOf": [schema, {"type": "string"}]}
        case "lines":
            return {"anyOf": [{"type": "array"}, {"type": "string"}]}
        case _:
            description = schema.get("description") if is_object(schema) else None
            return {"type": "string", **({"description": description} if description else {})}


def _headers(declared: Any) -> dict[str, str]:
    """Return the headers of a form field with a constant or default value."""
    headers: dict[str, str] = {}
    for name, header in declared.items() if is_object(declared) else ():
        schema = header.get("schema") if is_object(header) else None
        value = (schema.get("const") or schema.get("default")) if is_object(schema) else None
        if isinstance(value, str) and name.lower() != "content-type":
            headers[name] = value
    return headers


def body_format(name: str) -> BodyFormat:
    """Return the format of a media type: value, form, text or bytes."""
    media_type = parse_media_type(name)
    if media_type.essence in _ANYTHING:
        return "any"
    match media_type.kind:
        case "json" | "multipart" | "form" | "binary":
            return media_type.kind
        case _:
            return "text"


def choose_media_type(names: Iterable[str]) -> str | None:
    """Choose a media type: JSON, multipart, form, text, bytes, anything, in this order."""
    return min(names, key=_rank, default=None)


def _rank(name: str) -> tuple[int, int]:
    form = body_format(name)
    if form != "json":
        return _ORDER.index(form), 0
    # Of the patch formats, only a merge patch has the shape of the document.
    return 0, {"application/json": 0, "application/merge-patch+json": 1}.get(parse_media_type(name).essence, 2)
