"""Parse the documents of a connection, detect their kind, and load client configurations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from toolpost.auth.env_files import parse_env
from toolpost.contracts.errors import ConfigError, ToolClientError
from toolpost.schema.json_values import as_object, cooperative_decoder, is_array, is_object

DocumentKind = Literal["manual", "openapi", "client", "template"]
_MAX_BYTES = 64 * 1024 * 1024
# YAML is slow to parse, and its aliases may expand to far more data than the text.
_MAX_YAML_CHARS = 8 * 1024 * 1024
_MAX_NODES = 500_000
_MAX_DEPTH = 200
_OPENAPI = ("openapi", "swagger")
_OTHER_FORMATS = {
    "mcpServers": "a list of MCP servers; connect those with transport: mcp",
    "__schema": "a GraphQL schema; connect it with transport: graphql",
    "asyncapi": "AsyncAPI, which describes messages",
    "paths": "an OpenAPI document without a version; add `openapi: 3.1.0`",
    "manuals": "a client configuration, but its key is manual_call_templates, not manuals",
    "$schema": "a JSON Schema",
}
_YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class UtcpDocument(NamedTuple):
    """A parsed document, its kind, and the text that it was parsed from."""

    kind: DocumentKind
    data: dict[str, Any]
    text: str


def parse_document(raw: str | bytes, label: str) -> UtcpDocument:
    """Parse a document and detect its kind; a ConfigError names the format that an unknown document looks like."""
    text = _decode(raw, label)
    data = _parse(text, label)
    if is_array(data) and data and all(is_object(item) and "tool_call_template" in item for item in data):
        data = {"tools": data}
    if not is_object(data):
        what = "a list" if is_array(data) else "text" if isinstance(data, str) else "a single value"
        raise ConfigError(f"{label} is not a UTCP manual: it contains {what}, not keys and values")
    kind = _detect_kind(data, label)
    if kind != "openapi":  # the OpenAPI source has its own limits
        _check_size(data, label, max_nodes=max(_MAX_NODES, len(text)))
    return UtcpDocument(kind, data, text)


def _decode(raw: str | bytes, label: str) -> str:
    if len(raw) > _MAX_BYTES:
        raise ConfigError(f"{label} is larger than {_MAX_BYTES // 2**20} MiB, the limit for a manual")
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{label} is not UTF-8 text; a manual is JSON or YAML") from None
    body = text.strip()
    if not body:
        raise ConfigError(f"{label} is empty; use a UTCP manual")
    if body[0] == "<":
        raise ConfigError(
            f"{label} looks like a web page, not like a UTCP manual; use the address of the manual itself"
        )
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
            problem = "is nested too deeply, or its aliases repeat too much"
            raise ConfigError(f"{label} {problem}; write it as plain JSON")
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
    if (
        not is_array(templates)
        or not templates
        or not all(isinstance(as_object(template).get("call_template_type"), str) for template in templates)
    ):
        raise ConfigError(f"{label}: manual_call_templates is a list of call templates, each with call_template_type")
    variables = data.get("variables")
    loaders = data.get("load_variables_from")
    files = tuple(_env_file(loader, folder, label) for loader in (loaders if is_array(loaders) else ()))
    loaded = [parse_env(await read_text(file)) for file in files]
    return ClientConfig(templates, (as_object(variables), *loaded), files)


def _env_file(loader: Any, folder: Path | None, label: str) -> Path:
    if not is_object(loader) or loader.get("variable_loader_type") != "dotenv":
        raise ConfigError(f"{label}: load_variables_from knows variable_loader_type dotenv and no other")
    return resolve_path(str(loader.get("env_file_path") or ".env"), folder)


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


def resolve_path(location: str, folder: Path | None) -> Path:
    """Resolve a path of a document relative to the document's folder."""
    path = Path(location).expanduser()
    return path if path.is_absolute() or folder is None else folder / path
