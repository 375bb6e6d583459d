"""What a look at an address or a file makes of a plan: the kind of source that is there, or nothing to write."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolpost.auth.static import static_credential, with_environment
from toolpost.cli.output import Output
from toolpost.cli.proposal import is_remote, needed
from toolpost.cli.target import Plan
from toolpost.contracts.config import AuthType, ExternalToolConfig, McpTransport, TransportType
from toolpost.contracts.errors import ToolError
from toolpost.contracts.options import WebhookOptions
from toolpost.policy.redaction import Redactor
from toolpost.toolbox.concealment import is_secret_variable
from toolpost.toolbox.recognition import Recognised, names_a_document, recognise, recognise_file, step_below

_N8N_KEY = "n8n lists its workflows for those who have a key; give it with --header 'X-N8N-API-KEY: ...'"
_TRANSPORTS = {"openapi": TransportType.HTTP, "utcp": TransportType.UTCP, "graphql": TransportType.GRAPHQL}
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
_NOT_A_KEY = frozenset({"authorization", "cookie", "proxy-authorization"})


def refusal(what: Sequence[str]) -> ToolError | None:
    """Why what is wanted cannot be connected, where its writing alone tells."""
    first = what[0]
    if first.lower().startswith(("ws://", "wss://")):
        told = "a WebSocket does not tell which messages it takes, so that nothing can be written for it"
        advice = "declare them by hand, in a source with `transport: websocket` (docs/websockets.md)"
        return ToolError(f"{told}; {advice}", code="messages_undeclared")
    if len(what) == 1 and names_a_document(first) and not Path(first).expanduser().is_file():
        return ToolError(f"there is no file {first!r}", code="file_missing")
    return None


def is_described(source: ExternalToolConfig) -> bool:
    """Whether a file on this machine describes the source; nothing is started then."""
    return source.transport in (TransportType.HTTP, TransportType.UTCP) and not is_remote(source)


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
    found = await recognise(filled.connection, {**filled.headers, **static_credential(filled).headers})
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


def _by_file(source: ExternalToolConfig) -> ExternalToolConfig:
    """The source that a file describes, by what is in it; the file is named so that any folder will do."""
    found, file = recognise_file(source.connection), source.connection
    if found.kind in _NO_SOURCE:
        raise ToolError(f"{file} {_NO_SOURCE[found.kind].format(file=file)}", code="not_recognised")
    if found.kind not in _TRANSPORTS:
        told = f"{file} is neither the document of an API nor a UTCP manual ({found.because})"
        raise ToolError(f"{told}; a program is given with its whole command: 'python {file}'", code="not_recognised")
    return source.model_copy(update={"transport": _TRANSPORTS[found.kind]})


def _not_recognised(found: Recognised) -> str:
    tried = ", ".join(address.partition("?")[0] for address in found.tried)
    return (
        f"what is at {tried.partition(',')[0]} was not recognised, and nothing was written: {found.because}. "
        f"Tried: {tried}. Give the address of an API's document, or say that it is an MCP server all the same: "
        "--transport streamable_http, or sse."
    )


def _as_found(source: ExternalToolConfig, found: Recognised) -> ExternalToolConfig:
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
