"""Parse the documents that a connection leads to, and UTCP manuals into tools with unique names.

Tools that cannot be used are reported one by one.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from msgspec import Struct, field
from msgspec.structs import replace

from toolpost.auth.secret import parse_env
from toolpost.catalog.names import canonical_name
from toolpost.contracts.errors import ConfigError, ToolClientError
from toolpost.contracts.records import represent
from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import SCHEMA_MAPS, as_object, cooperative_decoder, is_array, is_object

# Manuals that are fetched by a message: their tools use the same connection unless they say otherwise.
_TEMPLATE_INHERITING_KINDS = frozenset({"tcp", "udp", "websocket"})
_HASH_CHARS = 6
_NOT_IN_NAME = re.compile(r"\W")
_VALUE_KEYWORDS = frozenset({"enum", "examples", "default", "const"})
DocumentKind = Literal["manual", "openapi", "client", "template"]
_MAX_BYTES = 64 * 1024 * 1024
# YAML is slow to parse, and its aliases may expand to far more data than the text holds.
_MAX_YAML_CHARS = 8 * 1024 * 1024
_MAX_NODES = 500_000
_MAX_DEPTH = 200
_OPENAPI = ("openapi", "swagger")
_OTHER_FORMATS = {
    "mcpServers": "a list of MCP servers; connect those with transport: mcp",
    "__schema": "a GraphQL schema; connect it with transport: graphql",
    "asyncapi": "AsyncAPI, which describes messages",
    "paths": "an OpenAPI document whose version is missing; add `openapi: 3.1.0`",
    "manuals": "a client configuration, but its key is manual_call_templates, not manuals",
    "$schema": "a JSON Schema",
}
_YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ManualTool(Struct, frozen=True, kw_only=True):
    """A tool as its manual describes it, with the variables of `template` unfilled.

    `name` is its name in the source: the last part of `full_name`, or more of it where two tools share that part.
    """

    full_name: str
    name: str = ""
    description: str = ""
    inputs: JsonSchema = field(default_factory=lambda: {"type": "object"})
    outputs: JsonSchema | None = None
    tags: tuple[str, ...] = ()
    template: Mapping[str, Any]

    def __repr__(self) -> str:
        return represent(self, without=("template",))

    @property
    def kind(self) -> str:
        """Kind of the call template."""
        return str(self.template.get("call_template_type"))


class Manual(Struct, frozen=True, kw_only=True):
    """Tools of a manual and where it came from.

    `remote` is the URL of a manual from another machine, `operator_url` the URL that the operator wrote for it.
    `allowed` are the kinds of call templates that the operator allows, None for the default of `allows`.
    """

    name: str
    kind: str
    tools: tuple[ManualTool, ...] = ()
    problems: tuple[str, ...] = ()
    remote: str | None = None
    operator_url: str = ""
    folder: Path | None = None
    allowed: frozenset[str] | None = None
    variables: tuple[Mapping[str, Any], ...] = ()

    def __repr__(self) -> str:
        return represent(self, without=("variables",))

    def allows(self, kind: str) -> bool:
        """Return whether tools may be of this kind; by default, a remote manual may only use its own kind."""
        if self.allowed:
            return kind in self.allowed
        return self.remote is None or kind == self.kind


def manual_name(name: str) -> str:
    """Normalize the name of a manual, which prefixes its tools and variables."""
    return _NOT_IN_NAME.sub("_", name)


def parse_manual(data: Mapping[str, Any], manual: Manual, template: Mapping[str, Any] | None = None) -> Manual:
    """Return the manual with its tools; a broken tool is skipped and reported.

    `template` is the call template of the manual itself.
    """
    tools: dict[str, ManualTool] = {}
    problems: list[str] = []
    default = template if manual.kind in _TEMPLATE_INHERITING_KINDS else None
    for number, item in enumerate(data["tools"]):
        try:
            tool = _parse_tool(item, manual.name, number, default)
        except ConfigError as error:
            problems.append(str(error))
            continue
        if tool.full_name in tools:
            problems.append(f"tool {tool.full_name!r} is there twice; the second is left out")
        tools.setdefault(tool.full_name, tool)
    return replace(manual, tools=_assign_names(tools.values(), manual.name), problems=tuple(problems))


def _assign_names(tools: Iterable[ManualTool], manual: str) -> tuple[ManualTool, ...]:
    """Name the tools uniquely: by the last part of the name, else by the full name, else with a hash."""
    listed = list(tools)
    names = [tool.full_name.rpartition(".")[2] for tool in listed]
    for qualify in (_full_name, _with_digest):
        counts = Counter(map(_catalog_name, names))
        pairs = zip(listed, names, strict=True)
        names = [name if counts[_catalog_name(name)] == 1 else qualify(tool.full_name, manual) for tool, name in pairs]
    return tuple(replace(tool, name=name) for tool, name in zip(listed, names, strict=True))


def _full_name(full_name: str, manual: str) -> str:
    return full_name.removeprefix(f"{manual}.").replace(".", "_")


def _with_digest(full_name: str, manual: str) -> str:
    digest = hashlib.sha256(full_name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    return f"{_full_name(full_name, manual)}_{digest}"


def qualify_duplicates(manuals: Sequence[Manual]) -> list[Manual]:
    """Prefix the names of tools that several manuals of a source share with the manual's name."""
    # All of them, so that a manual that is added later does not take over a name in use.
    for qualify in (_with_manual, _with_manual_and_digest):
        counts = Counter(_catalog_name(tool.name) for manual in manuals for tool in manual.tools)
        duplicates = {name for name, count in counts.items() if count > 1}
        manuals = [
            replace(
                manual,
                tools=tuple(
                    qualify(tool, manual) if _catalog_name(tool.name) in duplicates else tool for tool in manual.tools
                ),
            )
            for manual in manuals
        ]
    return [*manuals]


def _with_manual(tool: ManualTool, manual: Manual) -> ManualTool:
    return replace(tool, name=f"{manual.name}_{tool.name}")


def _with_manual_and_digest(tool: ManualTool, manual: Manual) -> ManualTool:
    return replace(tool, name=f"{manual.name}_{_with_digest(tool.full_name, manual.name)}")


def _catalog_name(name: str) -> str:
    """Return the form of a name by which the catalog compares it."""
    return canonical_name("", name)


def _parse_tool(item: Any, manual: str, number: int, default: Mapping[str, Any] | None) -> ManualTool:
    if not is_object(item) or not isinstance(item.get("name"), str) or not item["name"].strip("."):
        raise ConfigError(f"tool number {number + 1} is left out: it has no name")
    name = item["name"]
    template = item.get("tool_call_template") or default
    if not is_object(template) or not isinstance(template.get("call_template_type"), str):
        raise ConfigError(f"tool {name!r} is left out: it has no tool_call_template with a call_template_type")
    inputs, outputs = item.get("inputs"), item.get("outputs")
    tags = item.get("tags")
    return ManualTool(
        full_name=name if name.startswith(f"{manual}.") else f"{manual}.{name}",
        description=str(item.get("description") or ""),
        inputs=_object_schema(as_object(inputs)),
        outputs=_drop_nulls(outputs) or None if is_object(outputs) else None,
        tags=tuple(map(str, tags)) if is_array(tags) else (),
        template=template,
    )


def _object_schema(inputs: dict[str, Any]) -> JsonSchema:
    schema = _drop_nulls(inputs)
    return schema if "type" in schema else {"type": "object", **schema}


def _drop_nulls(schema: Mapping[str, Any]) -> JsonSchema:
    """Drop the keywords of a schema that are null, which programs write for absent ones."""
    return {key: _drop_nested_nulls(key, value) for key, value in schema.items() if value is not None}


def _drop_nested_nulls(key: str, value: Any) -> Any:
    if key in _VALUE_KEYWORDS:
        return value
    if is_object(value):
        if key in SCHEMA_MAPS:
            return {name: _drop_nulls(part) if is_object(part) else part for name, part in value.items()}
        return _drop_nulls(value)
    if is_array(value):
        return [_drop_nulls(part) if is_object(part) else part for part in value]
    return value


class UtcpDocument(NamedTuple):
    """A parsed document, its kind, and the text that it was parsed from."""

    kind: DocumentKind
    data: dict[str, Any]
    text: str


def parse_document(raw: str | bytes, label: str) -> UtcpDocument:
    """Parse a document and detect its kind; a ConfigError says what an unknown document looks like."""
    text = _decode(raw, label)
    data = _parse(text, label)
    if is_array(data) and data and all(is_object(item) and "tool_call_template" in item for item in data):
        data = {"tools": data}
    if not is_object(data):
        what = "a list" if is_array(data) else "text" if isinstance(data, str) else "a single value"
        raise ConfigError(f"{label} is not a UTCP manual: it holds {what}, not keys and values")
    kind = _detect_kind(data, label)
    if kind != "openapi":  # the OpenAPI source has its own limits
        _check_size(data, label, max_nodes=max(_MAX_NODES, len(text)))
    return UtcpDocument(kind, data, text)


def _decode(raw: str | bytes, label: str) -> str:
    if len(raw) > _MAX_BYTES:
        raise ConfigError(f"{label} is larger than {_MAX_BYTES // 2**20} MiB, more than any manual needs")
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{label} is not UTF-8 text; a manual is JSON or YAML") from None
    body = text.strip()
    if not body:
        raise ConfigError(f"{label} is empty; give a UTCP manual")
    if body[0] == "<":
        raise ConfigError(f"{label} looks like a web page, not like a UTCP manual; give the manual's own address")
    return body


def _detect_kind(data: dict[str, Any], label: str) -> DocumentKind:
    if "manual_call_templates" in data:
        return "client"
    if is_array(data.get("tools")):
        return "manual"
    if any(key in data for key in _OPENAPI):
        return "openapi"
    if isinstance(data.get("call_template_type"), str):
        return "template"
    if "utcp_version" in data:
        raise ConfigError(f"{label} is a UTCP manual without a list of tools; it needs `tools`")
    looks = next((kind for key, kind in _OTHER_FORMATS.items() if key in data), "")
    keys = ", ".join(repr(str(key)[:40]) for key in list(data)[:5]) or "none"
    hint = f"it looks like {looks}" if looks else f"'utcp_version' and 'tools' are not among its keys ({keys})"
    raise ConfigError(f"{label} is not a UTCP manual: {hint}")


def _parse(body: str, label: str) -> Any:
    fault = ""
    if body[0] in "{[":
        try:
            return cooperative_decoder(body, parse_constant=str).decode(body)
        except RecursionError:
            raise ConfigError(f"{label} is nested too deeply") from None
        except ValueError as error:
            fault = f"it is not JSON: {error}"
    if len(body) > _MAX_YAML_CHARS:
        raise ConfigError(f"{label} cannot be read: {fault or 'it is too long for YAML; write it as JSON'}")
    try:
        return yaml.load(body, Loader=_YAML_LOADER)  # noqa: S506 - a safe loader, in C where there is one
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = fault or " ".join(f"it is neither JSON nor YAML: {error}".split())
        raise ConfigError(f"{label} cannot be read: {reason[:300]}") from None


def _check_size(data: dict[str, Any], label: str, *, max_nodes: int) -> None:
    """Refuse data that is nested too deeply, or that YAML aliases expand to too many nodes."""
    pending: list[tuple[dict[str, Any] | list[Any], int]] = [(data, 0)]
    count = 0
    while pending:
        part, depth = pending.pop()
        count += len(part)
        if count > max_nodes or depth > _MAX_DEPTH:
            problem = "is nested too deeply, or repeats itself by name too often"
            raise ConfigError(f"{label} {problem}; write it out as plain JSON")
        children = part.values() if is_object(part) else part
        pending += [(child, depth + 1) for child in children if is_object(child) or is_array(child)]


class ClientConfig(NamedTuple):
    """Call templates of manuals, their variables in order of precedence, and the files that variables came from."""

    templates: list[dict[str, Any]]
    variables: tuple[Mapping[str, Any], ...]
    files: tuple[Path, ...]

    def __repr__(self) -> str:
        return f"ClientConfig({len(self.templates)} manuals)"


async def load_client_config(data: Mapping[str, Any], folder: Path | None, label: str) -> ClientConfig:
    """Load a client configuration and its .env files, whose paths are relative to `folder`."""
    templates = data.get("manual_call_templates")
    if not is_array(templates) or not templates or not all(map(_is_template, templates)):
        raise ConfigError(f"{label}: manual_call_templates is a list of call templates, each with call_template_type")
    variables = data.get("variables")
    loaders = data.get("load_variables_from")
    files = tuple(_env_file(loader, folder, label) for loader in (loaders if is_array(loaders) else ()))
    loaded = [parse_env(await read_text(file)) for file in files]
    return ClientConfig(templates, (as_object(variables), *loaded), files)


def _is_template(item: Any) -> bool:
    return is_object(item) and isinstance(item.get("call_template_type"), str)


def _env_file(loader: Any, folder: Path | None, label: str) -> Path:
    if not is_object(loader) or loader.get("variable_loader_type") != "dotenv":
        raise ConfigError(f"{label}: load_variables_from knows variable_loader_type dotenv and no other")
    return resolve_path(str(loader.get("env_file_path") or ".env"), folder)


def resolve_path(location: str, folder: Path | None) -> Path:
    """Resolve a path of a document relative to the document's folder."""
    path = Path(location).expanduser()
    return path if path.is_absolute() or folder is None else folder / path


async def read_text(path: Path) -> str:
    """Read a UTF-8 file of limited size."""
    try:
        raw = await asyncio.to_thread(_read, path)
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise ToolClientError(f"{str(path)!r} cannot be read: {error.strerror}; check its path", cause=error) from error
    except UnicodeDecodeError as error:
        raise ToolClientError(f"{str(path)!r} is not UTF-8 text", cause=error) from error


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        raw = file.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        raise OSError(None, f"it is larger than {_MAX_BYTES // 2**20} MiB")
    return raw
