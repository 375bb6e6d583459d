"""What a look at an address or a file makes of a plan: the kind of source that is there, or nothing to write."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from toolpost.auth.credentials import static_credential, with_environment
from toolpost.cli.output import Output
from toolpost.cli.proposal import is_remote, needed
from toolpost.cli.target import Plan
from toolpost.connecting.endpoint_detection import GRAPHQL_SCHEMA, SERVER_LIST, Endpoint, detect_file, detect_url
from toolpost.connecting.presets import PACKAGES
from toolpost.contracts.config import ExternalToolConfig, McpTransport
from toolpost.contracts.errors import ToolError
from toolpost.policy.redaction import Redactor
from toolpost.transports.registry import find_transport

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_NO_NAME = re.compile(r"[/\\.:]")
_HOST = re.compile(r"localhost\b|[\w.-]+:\d|([\w-]+\.){2}|[\w-]+\.[\w-]+/")


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
    return "file" in find_transport(source.transport).forms and not is_remote(source)


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
    found = await detect_url(filled.connection, {**filled.headers, **static_credential(filled).headers})
    redactor = Redactor(values_of(plan))
    if found.transport is None or found.detection is None:
        raise ToolError(redactor.text(_not_recognised(found)), code="not_recognised")
    output.note(f"{source.name}: {found.detection.label} ({redactor.text(found.because)}).")
    configured = found.transport.configure(source, found.detection)
    advice = found.transport.advice(configured)
    return replace(plan, source=configured, notes=(*plan.notes, advice) if advice else plan.notes)


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
    if found.transport is not None and found.detection is not None:
        return found.transport.configure(source, found.detection)
    if found.because.startswith((GRAPHQL_SCHEMA, SERVER_LIST.partition("`")[0])):
        raise ToolError(f"{file} {found.because}", code="not_recognised")
    if Path(file).suffix == ".py":
        told = f"{file} has no tools: nothing of toolpost is imported there to mark functions with, such as `tool`"
        remedy = f"if it is an MCP server, give its whole command: 'python {file}'"
        raise ToolError(f"{told}; {remedy}", code="not_recognised")
    told = f"{file} is neither the document of an API nor a UTCP manual ({found.because})"
    raise ToolError(f"{told}; a program is given with its whole command: 'python {file}'", code="not_recognised")


def _not_recognised(found: Endpoint) -> str:
    tried = ", ".join(address.partition("?")[0] for address in found.tried)
    return (
        f"what is at {tried.partition(',')[0]} was not recognised, and nothing was written: {found.because}. "
        f"Tried: {tried}. Give the address of an API's document, or say that it is an MCP server all the same: "
        "--transport streamable_http, or sse."
    )
