"""From a connection to manuals: by address, from a file, from a text, by a command, or made of a bare address."""

from __future__ import annotations

import asyncio
import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.config import UtcpMode
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ConfigError, ToolClientError, ToolError
from toolpost.policy.redaction import Redactor
from toolpost.sources.utcp.base_manual import base_manual
from toolpost.sources.utcp.client_config import client_config
from toolpost.sources.utcp.content_calls import located, read_text
from toolpost.sources.utcp.delegates import api_delegate, graphql_delegate, mcp_delegates
from toolpost.sources.utcp.documents import document_of
from toolpost.sources.utcp.manuals import Manual, ManualTool, manual_name, manual_of, told_apart
from toolpost.sources.utcp.preparing import CALLS, prepared_of
from toolpost.sources.utcp.templates import HttpTemplate, template_of
from toolpost.sources.utcp.variables import Filled, Variables
from toolpost.sources.utcp.wires import Asked, addresses_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from toolpost.contracts.calls import Credential
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.sources.utcp.delegates import Delegate
    from toolpost.sources.utcp.reach import Reach

_MANUAL_ENDINGS = (".json", "/utcp", "/.well-known/utcp")
_FILE_ENDINGS = (".json", ".yaml", ".yml")
_BY_REQUEST = frozenset({"http", "sse", "streamable_http"})
_BY_QUESTION = frozenset({"websocket", "tcp", "udp"})
_API_KINDS = _BY_REQUEST | {"file", "text"}
_QUESTION = {"type": "utcp"}
_AT_ONCE = 8  # manuals that are looked for together: one that keeps silent must not hold up all others


class Found(NamedTuple):
    """What a connection leads to; `unknown` are manuals of kinds that only others speak."""

    manuals: Sequence[Manual] = ()
    delegates: Sequence[Delegate] = ()
    problems: Sequence[str] = ()
    unknown: Sequence[Mapping[str, Any]] = ()


class _Place(NamedTuple):
    """Where a document came from: the template that led there, its folder, and its address if it is not ours.

    `as_written` is that template before its variables were filled in, `secrets` are what went into it.
    """

    template: Mapping[str, Any]
    name: str
    shown: str
    folder: Path | None = None
    remote: str | None = None
    written: str = ""
    variables: tuple[Mapping[str, Any], ...] = ()
    as_written: Mapping[str, Any] | None = None
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"_Place({self.shown!r})"

    @property
    def kind(self) -> str:
        return str(self.template.get("call_template_type"))

    @property
    def address(self) -> str:
        """The address as errors tell it: a variable in it may be a secret."""
        return str((self.as_written or self.template).get("url")).partition("?")[0]


def resolved_mode(connection: str, mode: UtcpMode) -> UtcpMode:
    """How a connection is to be read; by itself the address of a manual tells by its end that it is one."""
    if mode is not UtcpMode.AUTO:
        return mode
    path = connection.partition("?")[0].partition("#")[0]
    return UtcpMode.MANUAL_URL if path.endswith(_MANUAL_ENDINGS) else UtcpMode.BASE_URL


class Finder:
    """Finds the manuals of one source; `files` are those that it read."""

    def __init__(self, config: ExternalToolConfig, credential: Credential, reach: Reach, scratch: Path) -> None:
        self._config = config
        self._credential = credential
        self._reach = reach
        self._scratch = scratch
        self._name = manual_name(config.name)
        self.files: list[str] = []

    async def find(self) -> Found:
        """What the connection leads to; a ConfigError says what was found where that is no manual."""
        connection = self._config.connection.strip()
        if connection[:1] in ("{", "[") or "\n" in connection:
            place = _Place({"call_template_type": "text"}, self._name, "the manual in `connection`", Path.cwd())
            return await self._document(connection, place)
        if connection.startswith(("http://", "https://")):
            return await self._at_address(connection)
        if connection.startswith(("ws://", "wss://")):
            return await self._by_template({"call_template_type": "websocket", "url": connection}, self._own_place())
        return await self._on_this_machine(connection)

    def _own_place(self) -> _Place:
        return _Place({}, self._name, "the connection", Path.cwd())

    async def _at_address(self, url: str) -> Found:
        """The manual at an address; where a bare address answers with something else, it is itself the tool."""
        mode = self._config.utcp_mode
        if mode is UtcpMode.BASE_URL:
            return Found([base_manual(self._config)])
        template = {"call_template_type": "http", "url": url, "http_method": "GET"}
        try:
            return await self._by_template(template, self._own_place())
        except ToolError as error:
            if resolved_mode(url, mode) is UtcpMode.MANUAL_URL or not _is_no_manual(error):
                raise
            note = f"no manual was found ({error}), so that one tool sends to the address itself"
            return Found([base_manual(self._config)], problems=[note])

    async def _on_this_machine(self, connection: str) -> Found:
        mode = self._config.utcp_mode
        if mode is not UtcpMode.BASE_URL and _is_file(connection):
            return await self._by_template({"call_template_type": "file", "file_path": connection}, self._own_place())
        if mode is UtcpMode.MANUAL_URL:
            template = {"call_template_type": "cli", "commands": [{"command": connection}]}
            return await self._by_template(template, self._own_place())
        return Found([base_manual(self._config)])

    async def _by_template(self, template: Mapping[str, Any], place: _Place) -> Found:
        """What the template of a manual leads to."""
        place = place._replace(template=template)
        kind = place.kind
        if kind == "mcp":
            return Found(delegates=list(mcp_delegates(self._config, template)))
        if kind == "graphql":
            return Found(delegates=[graphql_delegate(self._config, template)])
        if kind in _BY_REQUEST:
            return await self._fetched(template, place)
        if kind == "text":
            place = place._replace(shown=f"the content of manual {place.name!r}")
            return await self._document(str(template.get("content")), place)
        if kind == "file":
            return await self._from_file(str(template.get("file_path")), place)
        if kind == "cli" or kind in _BY_QUESTION:
            return await self._asked(template, place)
        return Found(unknown=[template])

    async def _fetched(self, template: Mapping[str, Any], place: _Place) -> Found:
        read = template_of({**template, "call_template_type": "http"})
        if not isinstance(read, HttpTemplate):
            raise ConfigError(f"{place.shown} is not an address")
        raw, url = await self._reach.fetch(read, place.address, place.secrets)
        place = place._replace(shown=place.address, remote=url, written=read.url)
        return await self._document(raw, place)

    async def _from_file(self, written: str, place: _Place) -> Found:
        path = located(written, place.folder)
        self.files.append(str(path.absolute()))
        place = place._replace(shown=str(path), folder=path.absolute().parent)
        return await self._document(await read_text(path), place)

    async def _asked(self, template: Mapping[str, Any], place: _Place) -> Found:
        """A manual that is the answer to a question, or the output of a command."""
        written = place.as_written or template
        tool = ManualTool(full_name=f"{place.name}.utcp", outputs={"type": "object"}, template=written)
        filled = Filled(dict(template), place.secrets, ())
        prepared = prepared_of(tool, filled, timeout_s=self._config.connect_timeout_s)
        addresses = addresses_of(prepared.template)
        wires = self._reach.own(addresses, place.folder)
        arguments = {} if place.kind == "cli" else _QUESTION
        output = await CALLS[place.kind](prepared, Asked(arguments, self._credential, ToolContext), wires)
        remote = next(iter(addresses), None)
        place = place._replace(shown=prepared.shown, remote=remote, written=remote or "")
        return await self._document(_text(output.content), place)

    async def _document(self, text: str | bytes, place: _Place) -> Found:
        """What a document leads to; its author decides how long it takes to read, so that a thread does."""
        document = await asyncio.to_thread(document_of, text, place.shown)
        match document.kind:
            case "manual":
                return Found([await asyncio.to_thread(self._manual, document.data, place)])
            case "openapi":
                return self._api(document.text, place)
            case "client" | "template" if place.remote is not None:
                msg = f"{place.shown} is not a UTCP manual but a client's configuration"
                raise ConfigError(f"{msg}, which is only taken from this machine; save it to a file")
            case "client" | "template" if place.as_written is not None:
                msg = f"{place.shown} is a client's configuration, and another one leads to it"
                raise ConfigError(f"{msg}; write its manual_call_templates into that one")
            case "template":
                return await self._by_client({"manual_call_templates": [document.data]}, place)
            case "client":
                return await self._by_client(document.data, place)

    def _manual(self, data: Mapping[str, Any], place: _Place) -> Manual:
        given = place.template.get("allowed_communication_protocols")
        allowed = self._config.utcp.allowed_communication_protocols or given
        return manual_of(
            data,
            name=place.name,
            kind=place.kind,
            remote=place.remote,
            written=place.written,
            folder=place.folder,
            allowed=frozenset(map(str, allowed)) if allowed else None,
            template=place.template,
            variables=place.variables,
        )

    def _api(self, text: str, place: _Place) -> Found:
        if place.kind not in _API_KINDS:
            msg = f"{place.shown} is an API's own document, which is not taken by {place.kind}"
            raise ConfigError(f"{msg}; give its address, or save it to a file")
        location = place.template.get("url") if place.remote else place.shown if place.kind == "file" else None
        if location is None:  # a text has no address that others could read it from
            path = self._scratch / f"{place.name}.yaml"
            path.write_text(text, encoding="utf-8")
            location = str(path)
        delegate, problems = api_delegate(self._config, str(location), place.template)
        return Found(delegates=[delegate], problems=problems)

    async def _by_client(self, data: Mapping[str, Any], place: _Place) -> Found:
        """All manuals that a client's configuration names; one that fails is told of, unless none is left."""
        given = await client_config(data, place.folder, place.shown)
        self.files += [str(file.absolute()) for file in given.files]
        named, told = _by_name(given.templates, self._name)
        place = place._replace(variables=given.variables)
        finds = {name: partial(self._by_client_template, template, name, place) for name, template in named.items()}
        few = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(_tried(find, few)) for name, find in finds.items()}
        tried = {name: task.result() for name, task in tasks.items()}
        found = [one for one in tried.values() if isinstance(one, Found)]
        failures = {name: one for name, one in tried.items() if isinstance(one, ToolError)}
        if not found:
            raise next(iter(failures.values()))
        told += [f"manual {name!r} is left out: {failure}" for name, failure in failures.items()]
        return Found(
            manuals=told_apart([manual for one in found for manual in one.manuals]),
            delegates=[delegate for one in found for delegate in one.delegates],
            problems=[*told, *(problem for one in found for problem in one.problems)],
            unknown=[template for one in found for template in one.unknown],
        )

    async def _by_client_template(self, template: Mapping[str, Any], name: str, place: _Place) -> Found:
        variables = Variables(name, self.variables(place.variables), os.environ)
        filled = variables.filled(template)
        if filled.missing:
            raise ConfigError(f"manual {name!r}: its variables are not set: {', '.join(filled.missing)}")
        secrets = (*filled.values, *(value for values in place.variables for value in values.values()))
        place = place._replace(name=name, as_written=template, secrets=tuple(map(str, secrets)))
        try:
            found = await self._by_template({**filled.template, "name": name}, place)
        except ToolError as error:
            raise told_without(error, place.secrets) from None
        return found._replace(delegates=[one._replace(secrets=place.secrets) for one in found.delegates])

    def variables(self, more: tuple[Mapping[str, Any], ...] = ()) -> tuple[Mapping[str, Any], ...]:
        """What the operator set, the first that has a variable first."""
        config = self._config
        return (config.utcp.variables, *more, config.env, config.auth_config)


def _by_name(templates: Iterable[dict[str, Any]], source: str) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The templates by the names of their manuals, by which their variables are found, too; and what is wrong there."""
    named: dict[str, dict[str, Any]] = {}
    told: list[str] = []
    for number, template in enumerate(templates):
        name = manual_name(str(template.get("name") or f"{source}_{number}"))
        if name in named:
            told.append(f"manual {name!r} is there twice; the second is left out, give it another name")
        named.setdefault(name, template)
    return named, told


async def _tried(find: Callable[[], Awaitable[Found]], few: asyncio.Semaphore) -> Found | ToolError:
    try:
        async with few:
            return await find()
    except ToolError as error:
        return error


def told_without(error: ToolError, secrets: Iterable[str], *, remedy: str = "") -> ToolError:
    """The same error, which tells no secret, and what may help."""
    error.message = "; ".join(filter(None, [Redactor(secrets).text(error.message), remedy]))
    error.args = (error.message,)
    return error


def _is_file(connection: str) -> bool:
    """Whether a connection is a file, which must then be there; else it is a command."""
    if Path(connection).expanduser().is_file():
        return True
    if len(connection.split()) == 1 and connection.lower().endswith(_FILE_ENDINGS):
        raise ConfigError(f"there is no file {connection!r}; give a manual's address, file or text")
    return False


def _is_no_manual(error: ToolError) -> bool:
    """Whether something answered, but not with a manual; who was not let in does not know what is there."""
    return isinstance(error, ConfigError) or (isinstance(error, ToolClientError) and error.status_code is not None)


def _text(content: Any) -> str | bytes:
    return content if isinstance(content, (str, bytes)) else json.dumps(content)
