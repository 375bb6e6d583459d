"""Discover the manuals of a connection: a URL, a file, a text, a command, a socket, or a client configuration."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from toolpost.contracts.calls import Credential
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ConfigError, ToolClientError, ToolError
from toolpost.contracts.source_kinds import UtcpMode
from toolpost.policy.redaction import Redactor
from toolpost.sources.utcp.compile import CALL_FUNCTIONS, compile_template
from toolpost.sources.utcp.context import CompiledTool, ContextFactory, Invocation, template_urls
from toolpost.sources.utcp.delegates import Delegate, graphql_delegate, mcp_delegates, openapi_delegate
from toolpost.sources.utcp.documents import load_client_config, parse_document, read_text, resolve_path
from toolpost.sources.utcp.http_calls import open_response
from toolpost.sources.utcp.http_requests import TemplateRequestBuilder
from toolpost.sources.utcp.manuals import Manual, ManualTool, manual_name, parse_manual, qualify_duplicates
from toolpost.sources.utcp.options import UtcpOptions
from toolpost.sources.utcp.scripts import placeholder_names
from toolpost.sources.utcp.templates import CommandStep, HttpTemplate, parse_template
from toolpost.sources.utcp.variables import FilledTemplate, Variables

_MANUAL_SUFFIXES = (".json", "/utcp", "/.well-known/utcp")
_FILE_SUFFIXES = (".json", ".yaml", ".yml")
_HTTP_KINDS = frozenset({"http", "sse", "streamable_http"})
_SOCKET_KINDS = frozenset({"websocket", "tcp", "udp"})
_OPENAPI_KINDS = _HTTP_KINDS | {"file", "text"}
_DISCOVERY_MESSAGE = {"type": "utcp"}
_MAX_CONCURRENT = 8  # concurrent discoveries: a server that does not respond must not delay all others
_DOCUMENT_TIMEOUT_S = 60.0
_BASE_TOOL = "call"


class ManualDiscovery:
    """Discovery of the manuals of one source; `files` are the local files that were read."""

    def __init__(
        self, config: ExternalToolConfig, credential: Credential, contexts: ContextFactory, scratch: Path
    ) -> None:
        self._config = config
        self._credential = credential
        self._contexts = contexts
        self._scratch = scratch
        self._name = manual_name(config.name)
        self.files: list[str] = []

    async def run(self) -> DiscoveryResult:
        """Discover the manuals of the connection; a ConfigError describes any other content."""
        connection = self._config.connection.strip()
        if connection[:1] in ("{", "[") or "\n" in connection:
            origin = _Origin({"call_template_type": "text"}, self._name, "the manual in `connection`", Path.cwd())
            return await self._document(connection, origin)
        if connection.startswith(("http://", "https://")):
            return await self._from_url(connection)
        if connection.startswith(("ws://", "wss://")):
            return await self._from_template(
                {"call_template_type": "websocket", "url": connection}, self._connection_origin()
            )
        return await self._from_local(connection)

    def _connection_origin(self) -> _Origin:
        return _Origin({}, self._name, "the connection", Path.cwd())

    async def _from_url(self, url: str) -> DiscoveryResult:
        """Fetch a manual; in mode auto, a URL that answers with something else becomes a tool itself."""
        mode = self._config.utcp_mode
        if mode is UtcpMode.BASE_URL:
            return DiscoveryResult([_base_manual(self._config)])
        template = {"call_template_type": "http", "url": url, "http_method": "GET"}
        try:
            return await self._from_template(template, self._connection_origin())
        except ToolError as error:
            if _resolve_mode(url, mode) is UtcpMode.MANUAL_URL or not _answered_without_manual(error):
                raise
            note = f"no manual was found ({error}); one tool sends requests to the address itself"
            return DiscoveryResult([_base_manual(self._config)], problems=[note])

    async def _from_local(self, connection: str) -> DiscoveryResult:
        mode = self._config.utcp_mode
        if mode is not UtcpMode.BASE_URL and _is_file(connection):
            return await self._from_template(
                {"call_template_type": "file", "file_path": connection}, self._connection_origin()
            )
        if mode is UtcpMode.MANUAL_URL:
            template = {"call_template_type": "cli", "commands": [{"command": connection}]}
            return await self._from_template(template, self._connection_origin())
        return DiscoveryResult([_base_manual(self._config)])

    async def _from_template(self, template: Mapping[str, Any], origin: _Origin) -> DiscoveryResult:
        """Discover the tools that the call template of a manual leads to."""
        origin = origin._replace(template=template)
        kind = origin.kind
        if kind == "mcp":
            return DiscoveryResult(delegates=list(mcp_delegates(self._config, template)))
        if kind == "graphql":
            return DiscoveryResult(delegates=[graphql_delegate(self._config, template)])
        if kind in _HTTP_KINDS:
            return await self._from_http(template, origin)
        if kind == "text":
            origin = origin._replace(label=f"the content of manual {origin.name!r}")
            return await self._document(str(template.get("content")), origin)
        if kind == "file":
            return await self._from_file(str(template.get("file_path")), origin)
        if kind == "cli" or kind in _SOCKET_KINDS:
            return await self._from_call(template, origin)
        return DiscoveryResult(unknown=[template])

    async def _from_http(self, template: Mapping[str, Any], origin: _Origin) -> DiscoveryResult:
        http = parse_template({**template, "call_template_type": "http"})
        if not isinstance(http, HttpTemplate):
            raise ConfigError(f"{origin.label} is not an address")
        raw, url = await self._fetch(http, origin)
        origin = origin._replace(label=origin.address, remote=url, operator_url=http.url)
        return await self._document(raw, origin)

    async def _fetch(self, template: HttpTemplate, origin: _Origin) -> tuple[bytes, str]:
        """Fetch a document; return it with the URL of the last redirect."""
        context = self._contexts.for_operator(template_urls(template))
        tool = CompiledTool("manual", template, f"GET {origin.address}", _DOCUMENT_TIMEOUT_S, origin.secrets)
        request = TemplateRequestBuilder(template).build({})
        async with await open_response(request, tool, self._invocation(), context, follow="safe") as response:
            return await response.read(), response.url

    def _invocation(self, arguments: Mapping[str, Any] | None = None) -> Invocation:
        return Invocation(arguments or {}, self._credential, ToolContext)

    async def _from_file(self, location: str, origin: _Origin) -> DiscoveryResult:
        path = resolve_path(location, origin.folder)
        self.files.append(str(path.absolute()))
        origin = origin._replace(label=str(path), folder=path.absolute().parent)
        return await self._document(await read_text(path), origin)

    async def _from_call(self, template: Mapping[str, Any], origin: _Origin) -> DiscoveryResult:
        """Call a template whose answer or output is the manual."""
        outputs = {"type": "object"}
        tool = ManualTool(full_name=f"{origin.name}.utcp", outputs=outputs, template=origin.unfilled or template)
        filled = FilledTemplate(dict(template), origin.secrets, ())
        prepared = compile_template(tool, filled, timeout_s=self._config.connect_timeout_s)
        urls = template_urls(prepared.template)
        context = self._contexts.for_operator(urls, origin.folder)
        invocation = self._invocation(None if origin.kind == "cli" else _DISCOVERY_MESSAGE)
        output = await CALL_FUNCTIONS[origin.kind](prepared, invocation, context)
        remote = next(iter(urls), None)
        origin = origin._replace(label=prepared.label, remote=remote, operator_url=remote or "")
        content = output.content
        return await self._document(content if isinstance(content, (str, bytes)) else json.dumps(content), origin)

    async def _document(self, text: str | bytes, origin: _Origin) -> DiscoveryResult:
        """Parse a document and discover its tools."""
        # In a thread: the author of the document decides how long parsing takes.
        document = await asyncio.to_thread(parse_document, text, origin.label)
        match document.kind:
            case "manual":
                return DiscoveryResult([await asyncio.to_thread(self._manual, document.data, origin)])
            case "openapi":
                return self._openapi(document.text, origin)
            case "client" | "template" if origin.remote is not None:
                msg = f"{origin.label} is not a UTCP manual but a client configuration"
                raise ConfigError(f"{msg}, which is only accepted from this machine; save it to a file")
            case "client" | "template" if origin.unfilled is not None:
                msg = f"{origin.label} is a client configuration, and another one refers to it"
                raise ConfigError(f"{msg}; move its manual_call_templates there")
            case "template":
                return await self._from_client_config({"manual_call_templates": [document.data]}, origin)
            case "client":
                return await self._from_client_config(document.data, origin)

    def _manual(self, data: Mapping[str, Any], origin: _Origin) -> Manual:
        default = origin.template.get("allowed_communication_protocols")
        allowed = self._config.read_options(UtcpOptions).allowed_communication_protocols or default
        manual = Manual(
            name=origin.name,
            kind=origin.kind,
            remote=origin.remote,
            operator_url=origin.operator_url,
            folder=origin.folder,
            allowed=frozenset(map(str, allowed)) if allowed else None,
            variables=origin.variables,
        )
        return parse_manual(data, manual, origin.template)

    def _openapi(self, text: str, origin: _Origin) -> DiscoveryResult:
        if origin.kind not in _OPENAPI_KINDS:
            msg = f"{origin.label} is the document of an API, which is not supported by {origin.kind}"
            raise ConfigError(f"{msg}; use its address, or save it to a file")
        location = origin.template.get("url") if origin.remote else origin.label if origin.kind == "file" else None
        if location is None:  # the OpenAPI source reads files and URLs, not texts
            path = self._scratch / f"{origin.name}.yaml"
            path.write_text(text, encoding="utf-8")
            location = str(path)
        delegate, problems = openapi_delegate(self._config, str(location), origin.template)
        return DiscoveryResult(delegates=[delegate], problems=problems)

    async def _from_client_config(self, data: Mapping[str, Any], origin: _Origin) -> DiscoveryResult:
        """Discover all manuals of a client configuration; a failure is a problem, unless all of them fail."""
        client = await load_client_config(data, origin.folder, origin.label)
        self.files += [str(file.absolute()) for file in client.files]
        templates, problems = _name_templates(client.templates, self._name)
        origin = origin._replace(variables=client.variables)
        limit = asyncio.Semaphore(_MAX_CONCURRENT)
        async with asyncio.TaskGroup() as group:
            tasks = {
                name: group.create_task(
                    _result_or_error(partial(self._from_client_template, template, name, origin), limit)
                )
                for name, template in templates.items()
            }
        outcomes = {name: task.result() for name, task in tasks.items()}
        results = [outcome for outcome in outcomes.values() if isinstance(outcome, DiscoveryResult)]
        failures = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, ToolError)}
        if not results:
            raise next(iter(failures.values()))
        problems += [f"manual {name!r} is skipped: {failure}" for name, failure in failures.items()]
        return DiscoveryResult(
            manuals=qualify_duplicates([manual for result in results for manual in result.manuals]),
            delegates=[delegate for result in results for delegate in result.delegates],
            problems=[*problems, *(problem for result in results for problem in result.problems)],
            unknown=[template for result in results for template in result.unknown],
        )

    async def _from_client_template(self, template: Mapping[str, Any], name: str, origin: _Origin) -> DiscoveryResult:
        variables = Variables(name, self.variables(origin.variables), os.environ)
        filled = variables.fill(template)
        if filled.missing:
            raise ConfigError(f"manual {name!r}: its variables are not set: {', '.join(filled.missing)}")
        secrets = (*filled.values, *(value for values in origin.variables for value in values.values()))
        origin = origin._replace(name=name, unfilled=template, secrets=tuple(map(str, secrets)))
        try:
            result = await self._from_template({**filled.template, "name": name}, origin)
        except ToolError as error:
            raise redact_error(error, origin.secrets) from None
        return result._replace(delegates=[each._replace(secrets=origin.secrets) for each in result.delegates])

    def variables(self, more: tuple[Mapping[str, Any], ...] = ()) -> tuple[Mapping[str, Any], ...]:
        """Return the operator's variables in order of precedence."""
        config = self._config
        return (config.read_options(UtcpOptions).variables, *more, config.env, config.auth_config)


def _resolve_mode(connection: str, mode: UtcpMode) -> UtcpMode:
    """Resolve `auto` by the end of the URL's path."""
    if mode is not UtcpMode.AUTO:
        return mode
    path = connection.partition("?")[0].partition("#")[0]
    return UtcpMode.MANUAL_URL if path.endswith(_MANUAL_SUFFIXES) else UtcpMode.BASE_URL


def _name_templates(templates: Iterable[dict[str, Any]], source: str) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Key the templates by manual name, which also prefixes their variables; return problems with duplicates."""
    named: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    for number, template in enumerate(templates):
        name = manual_name(str(template.get("name") or f"{source}_{number}"))
        if name in named:
            problems.append(f"manual {name!r} exists twice; the second is skipped, rename it")
        named.setdefault(name, template)
    return named, problems


async def _result_or_error(
    discover: Callable[[], Awaitable[DiscoveryResult]], limit: asyncio.Semaphore
) -> DiscoveryResult | ToolError:
    try:
        async with limit:
            return await discover()
    except ToolError as error:
        return error


def _is_file(connection: str) -> bool:
    """Tell a file from a command; a ConfigError reports a file that does not exist."""
    if Path(connection).expanduser().is_file():
        return True
    if len(connection.split()) == 1 and connection.lower().endswith(_FILE_SUFFIXES):
        raise ConfigError(f"the file {connection!r} does not exist; use the address, file or text of a manual")
    return False


def _answered_without_manual(error: ToolError) -> bool:
    """Return whether a server answered with something other than a manual."""
    # Not after a rejected credential: then it is unknown whether there is a manual.
    return isinstance(error, ConfigError) or (isinstance(error, ToolClientError) and error.status_code is not None)


class DiscoveryResult(NamedTuple):
    """Manuals and delegates of a connection; `unknown` are templates of kinds that only the bridge may support."""

    manuals: Sequence[Manual] = ()
    delegates: Sequence[Delegate] = ()
    problems: Sequence[str] = ()
    unknown: Sequence[Mapping[str, Any]] = ()


class _Origin(NamedTuple):
    """Origin of a document: its call template, its folder, and its URL if it is remote.

    `label` names the document in errors. `operator_url` is the URL that the operator wrote for it. `unfilled` is the
    template of a client configuration before its variables were filled in, `secrets` are their values.
    """

    template: Mapping[str, Any]
    name: str
    label: str
    folder: Path | None = None
    remote: str | None = None
    operator_url: str = ""
    variables: tuple[Mapping[str, Any], ...] = ()
    unfilled: Mapping[str, Any] | None = None
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"_Origin({self.label!r})"

    @property
    def kind(self) -> str:
        return str(self.template.get("call_template_type"))

    @property
    def address(self) -> str:
        """The URL for errors, with its variables unfilled because they may be secret."""
        return str((self.unfilled or self.template).get("url")).partition("?")[0]


def _base_manual(config: ExternalToolConfig) -> Manual:
    """Build the manual of a bare URL or command: one tool that POSTs to it or runs it."""
    connection = config.connection.strip()
    is_url = connection.startswith(("http://", "https://"))
    tool = _http_tool(config, connection) if is_url else _cli_tool(config, connection)
    return parse_manual({"tools": [tool]}, Manual(name=manual_name(config.name), kind="http" if is_url else "cli"))


def _http_tool(config: ExternalToolConfig, url: str) -> dict[str, Any]:
    return {
        "name": _BASE_TOOL,
        "description": config.description or f"Send a request to {url.partition('?')[0]}.",
        "inputs": {
            "type": "object",
            "properties": {"body": {"description": "What is sent, as JSON"}},
            "description": "Everything beside the body is sent as the query.",
        },
        "tool_call_template": {
            "name": config.name,
            "call_template_type": "http",
            "url": url,
            "http_method": "POST",
            "body_field": "body",
        },
    }


def _cli_tool(config: ExternalToolConfig, command: str) -> dict[str, Any]:
    names = placeholder_names([CommandStep(command=command)])
    scalar = {"anyOf": [{"type": kind} for kind in ("string", "number", "boolean")]}
    return {
        "name": _BASE_TOOL,
        "description": config.description or f"Run {command.split(maxsplit=1)[0]}.",
        "inputs": {
            "type": "object",
            "properties": dict.fromkeys(names, scalar),
            "required": names,
            "additionalProperties": False,
        },
        "tool_call_template": {
            "name": config.name,
            "call_template_type": "cli",
            "commands": [{"command": command}],
            "working_dir": config.cwd,
        },
    }


def redact_error(error: ToolError, secrets: Iterable[str], *, remedy: str = "") -> ToolError:
    """Redact the message of an error in place, and append a remedy."""
    error.message = "; ".join(filter(None, [Redactor(secrets).text(error.message), remedy]))
    error.args = (error.message,)
    return error
