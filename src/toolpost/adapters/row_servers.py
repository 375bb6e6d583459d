"""Servers that rows of a table refer to: those of the Toolbox, and those that the caller's code allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple, TypeAlias, assert_never

from pydantic import ValidationError

from toolpost.adapters.credentials import NamedCredential, is_same_server, is_url
from toolpost.adapters.stored_tools import AnyToolValue, HTTPTool, MCPTool, PythonFunctionTool, RemoteTool, WorkflowTool
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError, ToolError, ToolPermissionError
from toolpost.contracts.source_kinds import TransportType
from toolpost.sources.registry import find_transport

FindCredential: TypeAlias = Callable[[str], NamedCredential]
AllowedServer: TypeAlias = str | PathLike[str] | ExternalToolConfig

_ROW = "row"
_LONGEST_SHOWN = 200


class RowServer(NamedTuple):
    """The server of a row: the `name` of an open source, or the `config` of one that has to be added.

    `from_data` says that its address is the row's. `runs` says that calls start a command or import a module of the
    row.
    """

    name: str
    config: ExternalToolConfig | None = None
    from_data: bool = False
    runs: bool = False


class RowServers:
    """Find the server of a row among open sources and allowed servers; with `trust_rows`, take the row's own.

    Nothing is started, imported or connected here.
    """

    def __init__(
        self,
        open_configs: Callable[[], Sequence[ExternalToolConfig]],
        servers: Iterable[AllowedServer],
        credentials: Iterable[NamedCredential] | FindCredential,
        *,
        trust_rows: bool,
    ) -> None:
        self._open_configs = open_configs
        self._allowed = [one if isinstance(one, ExternalToolConfig) else fspath(one) for one in servers]
        self._find_credential = credentials if callable(credentials) else _among(credentials)
        self._trusts_rows = trust_rows

    def find(self, value: RemoteTool, transport: TransportType) -> RowServer:
        """Return the server of a row; raise a ToolError with the reason if the row cannot be used."""
        uri = value.server_uri.strip()
        known = next((one for one in self._open_configs() if _is_at(one, transport, uri)), None)
        if known is not None and value.credential_name is None:
            return RowServer(known.name)
        config = known or self._find_allowed(transport, uri)
        from_data = config is None
        if config is None:
            if not self._trusts_rows:
                raise _refusal(transport, uri)
            config = _config(transport, uri)
        runs = from_data and not is_url(uri) and bool({"command", "module"}.intersection(connection_forms(transport)))
        if value.credential_name is not None:
            if runs:
                raise ToolPermissionError("a command or a module from a row gets no credential")
            config = self._with_credential(config, value.credential_name)
        return RowServer(_ROW, config, from_data, runs)

    def _find_allowed(self, transport: TransportType, uri: str) -> ExternalToolConfig | None:
        """Return the settings of the allowed server at this address, as the code wrote it."""
        for allowed in self._allowed:
            if isinstance(allowed, ExternalToolConfig):
                if _is_at(allowed, transport, uri):
                    return allowed
            elif _means(allowed, uri, transport):
                return _config(transport, allowed)
        return None

    def _with_credential(self, config: ExternalToolConfig, name: str) -> ExternalToolConfig:
        try:
            credential = self._find_credential(name)
        except ToolError:
            raise
        except Exception as error:  # the caller's function is foreign code
            raise ConfigError(f"the credential {name!r} cannot be found: {type(error).__name__}: {error}") from error
        token_env = str(config.auth_config.get("token_env") or "")
        return config.model_copy(update=credential.source_options(config.connection, token_env=token_env))


def transport_of(value: AnyToolValue) -> TransportType:
    """Return the transport of the tool of a value."""
    match value:
        case MCPTool():
            return TransportType.MCP
        case HTTPTool():
            return TransportType.HTTP
        case PythonFunctionTool():
            return TransportType.PYTHON
        case WorkflowTool():
            raise ConfigError(f"the workflow {value.name!r} has no server")
        case _:
            assert_never(value)


def _is_at(config: ExternalToolConfig, transport: TransportType, uri: str) -> bool:
    return config.enabled and config.transport == transport and _means(config.connection, uri, transport)


def _means(connection: str, uri: str, transport: TransportType) -> bool:
    """Return whether the address of a row is that of a connection; two paths may name the same file."""
    if is_same_server(connection, uri):
        return True
    is_file = "command" not in connection_forms(transport) and not is_url(connection) and not is_url(uri)
    return is_file and Path(connection).absolute() == Path(uri).absolute()


def _config(transport: TransportType, connection: str) -> ExternalToolConfig:
    try:
        return ExternalToolConfig(name=_ROW, transport=transport, connection=connection)
    except ValidationError as error:
        raise ConfigError(f"{_shown(connection)} cannot be a server: {error.errors()[0]['msg']}") from error


def _refusal(transport: TransportType, uri: str) -> ToolPermissionError:
    """Return the error of a row with a server that is not allowed."""
    kind = "server"
    if not is_url(uri):
        forms = connection_forms(transport)
        kind = "command" if "command" in forms else "file or module" if "module" in forms else "file"
    remedy = "add it as a source to the configuration, or allow it with servers=[...]"
    msg = f"its {kind} {_shown(uri)} comes from the table alone, and a table is not trusted"
    return ToolPermissionError(f"{msg}; {remedy}", code="row_not_allowed")


def connection_forms(transport: TransportType) -> Sequence[str]:
    """Return the forms of an address of this transport."""
    return find_transport(transport).forms


def _shown(uri: str) -> str:
    return repr(uri if len(uri) <= _LONGEST_SHOWN else f"{uri[:_LONGEST_SHOWN]}…")


def _among(credentials: Iterable[NamedCredential]) -> FindCredential:
    by_name = {credential.name: credential for credential in credentials}

    def find(name: str) -> NamedCredential:
        if name not in by_name:
            there = f"there are: {', '.join(sorted(by_name)) or 'none'}"
            raise ConfigError(f"it needs the credential {name!r}, which was not given; {there}")
        return by_name[name]

    return find
