"""What a look at an address or a file makes of a plan: the kind of source that is there, or nothing to write."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolpost.auth.credentials import static_credential, with_environment
from toolpost.cli.output import Output
from toolpost.cli.proposal import is_remote, needed
from toolpost.cli.target import Plan
from toolpost.configuration.secret_extraction import is_secret_variable
from toolpost.connecting.endpoint_detection import Detection, detect_endpoint, detect_file, step_below
from toolpost.connecting.presets import PACKAGES
from toolpost.contracts.config import AuthType, ExternalToolConfig, McpTransport, TransportType
from toolpost.contracts.errors import ToolError
from toolpost.contracts.options import WebhookOptions
from toolpost.policy.redaction import Redactor

_N8N_KEY = "n8n lists its workflows for those who have a key; give it with --header 'X-N8N-API-KEY: ...'"
_TRANSPORTS = {"openapi": TransportType.HTTP, "utcp": TransportType.UTCP, "graphql": TransportType.GRAPHQL}
_OF_FILES = frozenset({TransportType.HTTP, TransportType.UTCP, TransportType.PYTHON})
_WORDS = {
    "mcp": "an MCP server",
    "openapi": "a REST API",
    "utcp": "a UTCP manual",
    "graphql": "a GraphQL API",
    "n8n": "an n8n",
}
_NO_SOURCE = {
    "graphql": "is the schema of a GraphQL API and does not say where that is; connect its URL, and if it does not"
    " tell its schema itself, name the file in graphql.schema_file (docs/graphql.md)",
    "servers": "lists the MCP servers of another program; `toolpost import {file}` takes them over",
}
_BEARER = "bearer "
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_NO_NAME = re.compile(r"[/\\.:]")
_HOST = re.compile(r"localhost\b|[\w.-]+:\d|([\w-]+\.){2}|[\w-]+\.[\w-]+/")
_IMPORTS_US = re.compile(rb"^\s*(from|import)\s+toolpost\b", re.MULTILINE)
_NOT_A_KEY = frozenset({"authorization", "cookie", "proxy-authorization"})


def refusal(what: Sequence[str]) -> ToolError | None:
    """Why what is wanted cannot be connected, where its writing alone tells."""
    first = what[0]
    scheme = first.lower().partition("://")[0] if _SCHEME.match(first) else ""
    if scheme in ("ws", "wss"):
        told = "a WebSocket does not tell which messages it takes, so that nothing can be written for it"
        advice = "declare them by hand, in a source with `transport: websocket` (docs/websockets.md)"
        return ToolError(f"{told}; {advice}", code="messages_undeclared")
    if scheme in ("http", "https"):
        return None
    if scheme:
        told = f"nothing is connected at {scheme}://; give an address with http:// or https://, or the path of a file"
        return ToolError(told, code="scheme_unknown")
    return _missing(first) if len(what) == 1 and len(first.split()) == 1 else None


def is_described(source: ExternalToolConfig) -> bool:
    """Whether a file on this machine is, or describes, the source; no program is started then."""
    return source.transport in _OF_FILES and not is_remote(source)


def is_asked(source: ExternalToolConfig) -> bool:
    """Whether its address is asked what is there; who says how an MCP server is spoken to has said it."""
    return is_remote(source) and source.mcp.transport is McpTransport.AUTO


async def looked_at(plan: Plan, output: Output) -> Plan:
    """The plan for what is really there; ToolError where that is not known."""
    source = plan.source
    if is_described(source):
        return replace(plan, source=_by_file(source), notes=())
    if not is_asked(source):
        return plan
    filled = with_environment(source, {**os.environ, **plan.secrets()})
    found = await detect_endpoint(filled.connection, {**filled.headers, **static_credential(filled).headers})
    redactor = Redactor(values_of(plan))
    if found.kind not in _WORDS:
        raise ToolError(redactor.text(_not_recognised(found)), code="not_recognised")
    output.note(f"{source.name}: {_WORDS[found.kind]} ({redactor.text(found.because)}).")
    if found.kind == "n8n":
        return replace(
            plan, source=_as_n8n(source), notes=(*plan.notes, _N8N_KEY) if not source.headers else plan.notes
        )
    return replace(plan, source=_as_found(source, found))


def values_of(plan: Plan) -> list[str]:
    """Everything that the server gets from variables; what it says about them may quote them."""
    environ = {**os.environ, **plan.secrets()}
    return [environ[name] for name in needed([plan.source], {}) if name in environ]


def _missing(word: str) -> ToolError | None:
    """What to say of a word that is written as a path or an address, and leads to nothing."""
    path = Path(word).expanduser()
    if word in PACKAGES or path.is_file() or shutil.which(word) is not None:
        return None
    if path.is_dir():
        return ToolError(f"{word!r} is a folder; give a file in it, or a command", code="file_missing")
    if not _NO_NAME.search(word):
        return None
    advice = f"; for an address write http://{word}, or https://" if _HOST.match(word) else ""
    return ToolError(f"there is no file {word!r}{advice}", code="file_missing")


def _by_file(source: ExternalToolConfig) -> ExternalToolConfig:
    """The source that a file describes, by what is in it; the file is named so that any folder will do."""
    found, file = detect_file(source.connection), source.connection
    if found.kind in _NO_SOURCE:
        raise ToolError(f"{file} {_NO_SOURCE[found.kind].format(file=file)}", code="not_recognised")
    if Path(file).suffix == ".py":
        return _by_python(source)
    if found.kind not in _TRANSPORTS:
        told = f"{file} is neither the document of an API nor a UTCP manual ({found.because})"
        raise ToolError(f"{told}; a program is given with its whole command: 'python {file}'", code="not_recognised")
    return source.model_copy(update={"transport": _TRANSPORTS[found.kind]})


def _by_python(source: ExternalToolConfig) -> ExternalToolConfig:
    """Tools in Python by their import; an MCP server in Python is a program."""
    file = source.connection
    if _IMPORTS_US.search(Path(file).expanduser().read_bytes()):
        return source.model_copy(update={"transport": TransportType.PYTHON})
    told = f"{file} has no tools: nothing of toolpost is imported there to mark functions with, such as `tool`"
    raise ToolError(f"{told}; if it is an MCP server, give its whole command: 'python {file}'", code="not_recognised")


def _not_recognised(found: Detection) -> str:
    tried = ", ".join(address.partition("?")[0] for address in found.tried)
    return (
        f"what is at {tried.partition(',')[0]} was not recognised, and nothing was written: {found.because}. "
        f"Tried: {tried}. Give the address of an API's document, or say that it is an MCP server all the same: "
        "--transport streamable_http, or sse."
    )


def _as_found(source: ExternalToolConfig, found: Detection) -> ExternalToolConfig:
    changes: dict[str, Any] = {"transport": _TRANSPORTS.get(found.kind, TransportType.MCP)}
    if found.below:
        changes["connection"] = step_below(source.connection, found.below)
    if found.kind == "openapi":
        changes |= _credential(source)
    return source.model_copy(update=changes)


def _credential(source: ExternalToolConfig) -> dict[str, Any]:
    """A header that is a credential, as one: an API's document says which operations get it, and where."""
    secret = [name for name in source.headers if is_secret_variable(name)]
    if source.auth_type is not AuthType.NONE or len(secret) != 1:
        return {}
    name, value = secret[0], source.headers[secret[0]]
    rest = {key: other for key, other in source.headers.items() if key != name}
    if name.lower() == "authorization" and value.lower().startswith(_BEARER):
        token = value[len(_BEARER) :].strip()
        return {"headers": rest, "auth_type": AuthType.BEARER, "auth_config": {"token": token}}
    if name.lower() in _NOT_A_KEY:
        return {}
    return {"headers": rest, "auth_type": AuthType.API_KEY, "auth_config": {"api_key": value, "header": name}}


def _as_n8n(source: ExternalToolConfig) -> ExternalToolConfig:
    """n8n's key is for its API alone, so that it is a credential and no header of every request."""
    changes: dict[str, Any] = {"transport": TransportType.WEBHOOK, "webhook": WebhookOptions(kind="n8n")}
    key = next((name for name in source.headers if name.lower() == "x-n8n-api-key"), None)
    if key is not None:
        changes["headers"] = {name: value for name, value in source.headers.items() if name != key}
        changes["auth_type"] = AuthType.API_KEY
        changes["auth_config"] = {"api_key": source.headers[key], "header": "X-N8N-API-KEY"}
    return source.model_copy(update=changes)
