"""Find, read and validate `toolpost.yaml`, and make its paths absolute."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from pydantic import ValidationError

from toolpost.configuration.defaults import DEFAULT_FOLDER, ENV_FILE, FILE_BUILTINS, FILE_NAME, GATEWAY_BUILTINS
from toolpost.configuration.literal_secrets import MIN_SECRET, literal_secrets
from toolpost.configuration.settings import McpServerSettings, PlacedError, Settings, ToolsSettings
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.records import represent
from toolpost.schema.json_values import is_object
from toolpost.sources.registry import describe_transport

if TYPE_CHECKING:
    from toolpost.configuration.document import ConfigDocument
    from toolpost.contracts.config import ExternalToolConfig

_IN_MEMORY = {"data_dir": None}  # all that most programs without a file set
_Source = TypeVar("_Source", "ExternalToolConfig", McpServerSettings)


class LoadedSettings(Struct, frozen=True, kw_only=True):
    """Settings, the file they came from (None: defaults), and the secrets to redact everywhere.

    `names_builtins` says whether the file has `builtins`.
    """

    settings: Settings
    path: Path | None
    secrets: frozenset[str] = frozenset()
    names_builtins: bool = False

    def __repr__(self) -> str:
        return represent(self, without=("secrets",))


def load_settings(
    path: Path | None, *, cwd: Path | None = None, environ: Mapping[str, str] | None = None
) -> LoadedSettings:
    """Load a file, by default `toolpost.yaml` of the working folder if it exists; ConfigError describes errors."""
    here = (cwd or Path.cwd()).absolute()
    file = here / (path or FILE_NAME)
    if path is None and not file.exists():
        return LoadedSettings(settings=_resolve_paths(Settings.defaults(), here), path=None)
    from toolpost.configuration.document import read_document  # noqa: PLC0415 - the defaults need no file

    shown = str(file.relative_to(here) if file.is_relative_to(here) else file)
    document = read_document(file, shown=shown, environ=environment(file.parent, environ))
    settings = parse_settings(_stub_unset_sources(document), shown=shown, secrets=document.secrets)
    settings = _mark_unset_sources(settings, document)
    return LoadedSettings(
        settings=_resolve_paths(settings, file.parent),
        path=file,
        secrets=document.secrets.union(literal_secrets(settings)),
        names_builtins="builtins" in settings.model_fields_set,
    )


def for_gateway(loaded: LoadedSettings) -> LoadedSettings:
    """Return the settings of a gateway: the built-in tools of the file, else only those for artifacts.

    The callers of a gateway are agents of many users, and not all of them may use files or reach any host.
    """
    if loaded.names_builtins:
        return loaded
    return replace(loaded, settings=loaded.settings.model_copy(update={"builtins": list(GATEWAY_BUILTINS)}))


def environment(folder: Path, environ: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return the environment's variables and those of `.env` in `folder`; the environment takes precedence."""
    from toolpost.auth.env_files import read_env_file  # noqa: PLC0415 - the defaults need no file

    variables = os.environ if environ is None else environ
    try:
        return {**read_env_file(folder / ENV_FILE), **variables}
    except FileNotFoundError:
        return variables


def _stub_unset_sources(document: ConfigDocument) -> dict[str, Any]:
    """Return the data, with stubs for sources that are invalid while their variables are not set, such as numbers."""
    if not document.unset:
        return document.data
    from toolpost.contracts.config import ExternalToolConfig  # noqa: PLC0415 - the defaults have no source

    data = deepcopy(document.data)
    for keys in document.unset:
        *parents, last = keys
        entries: Any = data
        for key in parents:
            entries = entries[key]
        model = McpServerSettings if "tools" in keys else ExternalToolConfig
        try:
            source = model.model_validate(entries[last])
        except ValidationError:
            entries[last] = _stub(entries[last])
        else:
            if isinstance(source, ExternalToolConfig) and _option_error(source) is not None:
                entries[last] = _stub(entries[last])
    return data


def _stub(entry: Any) -> Any:
    """Return as much of a source's entry as is needed to report the source."""
    if not is_object(entry):
        return entry
    members = {key: entry[key] for key in ("name", "transport", "connection", "command", "url") if key in entry}
    return members | {key: entry[key] for key in ("enabled", "required") if isinstance(entry.get(key), bool)}


def _mark_unset_sources(settings: Settings, document: ConfigDocument) -> Settings:
    """Mark sources with unset variables as unusable, with the reason."""
    if not document.unset:
        return settings
    reasons = {(keys[0], keys[-1]): reason for keys, reason in document.unset.items()}

    def mark(entries: list[_Source], key: str) -> list[_Source]:
        pairs = [(entry, reasons.get((key, n))) for n, entry in enumerate(entries)]
        return [entry if reason is None else entry.left_out(reason) for entry, reason in pairs]

    tools = settings.tools.model_copy(update={"mcp_servers": mark(settings.tools.mcp_servers, "tools")})
    return settings.model_copy(update={"sources": mark(settings.sources, "sources"), "tools": tools})


def parse_settings(data: Mapping[str, Any], *, shown: str = "settings", secrets: Collection[str] = ()) -> Settings:
    """Validate a mapping with the keys of the file; ConfigError describes every error without any of `secrets`."""
    if not data:
        return Settings.defaults()
    if data == _IN_MEMORY:
        return Settings.model_construct(data_dir=None)  # as `defaults`: no validator is built for so little
    settings: Settings | None = None
    errors: list[PlacedError] = []
    try:
        settings = Settings.model_validate(data)
    except ValidationError as error:
        errors = [PlacedError(error, Settings)]
    if settings is not None:
        errors = list(_option_errors(settings))
        if not errors:
            return settings
    from toolpost.configuration.validation_errors import describe_errors  # noqa: PLC0415 - most files have none

    # Outside the handler: pydantic's error quotes the values, and a traceback would show them.
    raise ConfigError(describe_errors(errors, data, shown, secrets))


def _option_errors(settings: Settings) -> Iterator[PlacedError]:
    """Yield the errors in the options of sources."""
    for number, source in enumerate(settings.sources):
        model = describe_transport(source.transport).options
        if model is not None and (error := _option_error(source)) is not None:
            yield PlacedError(error, model, ("sources", number, "options"))


def _option_error(source: ExternalToolConfig) -> ValidationError | None:
    model = describe_transport(source.transport).options
    try:
        if model is not None:
            source.read_options(model)
    except ValidationError as error:
        return error
    return None


def fill_settings(settings: Settings, environ: Mapping[str, str] | None = None) -> tuple[Settings, frozenset[str]]:
    """Substitute `${NAME}` in settings that were given in code; return them and the values of the variables.

    ConfigError names the variables that are not set. Sources are not changed: each is filled when it connects,
    and is skipped if one of its variables is not set.
    """
    if not settings.model_fields_set:
        return settings, frozenset()
    from toolpost.auth.variables import VariableFiller  # noqa: PLC0415 - most settings are of a file

    filler = VariableFiller(os.environ if environ is None else environ)
    filled = filler.fill_model(settings, without=("sources", "tools"))
    tools = filler.fill_model(settings.tools, without=("mcp_servers",), place="tools")
    if filler.missing:
        listed = ", ".join(f"{name} (at {place})" for name, place in filler.missing.items())
        remedy = "set them, or write $${...} for a plain $"
        raise ConfigError(f"settings: environment variables are not set: {listed}; {remedy}")
    if tools is not settings.tools:
        filled = filled.model_copy(update={"tools": tools})
    return filled, frozenset(value for value in filler.used if len(value) >= MIN_SECRET)


def in_code(settings: Settings | Mapping[str, Any] | None) -> LoadedSettings:
    """Return settings that were given in code, with their variables substituted."""
    given = settings if isinstance(settings, Settings) else parse_settings(settings or {})
    filled, secrets = fill_settings(given)
    return LoadedSettings(settings=filled, path=None, secrets=secrets)


def with_only(loaded: LoadedSettings, names: Collection[str]) -> LoadedSettings:
    """Return a copy in which only the named sources are enabled; the secrets of the others stay redacted."""
    settings = loaded.settings

    def disable_others(entries: list[_Source]) -> list[_Source]:
        return [one if one.name in names else one.model_copy(update={"enabled": False}) for one in entries]

    tools = settings.tools.model_copy(update={"mcp_servers": disable_others(settings.tools.mcp_servers)})
    left_out = [source for source in settings.all_sources() if source.name not in names]
    return replace(
        loaded,
        settings=settings.model_copy(update={"sources": disable_others(settings.sources), "tools": tools}),
        secrets=loaded.secrets.union(*map(_secrets, left_out)),
    )


def _secrets(source: ExternalToolConfig) -> set[str]:
    from toolpost.auth.credentials import secrets_of  # noqa: PLC0415 - the defaults have no source

    try:
        return secrets_of(source)
    except ToolError:  # reported when the source connects
        return set()


def _resolve_paths(settings: Settings, folder: Path) -> Settings:
    data_dir = None if settings.data_dir is None else _absolute(settings.data_dir, folder)
    lock = None if settings.lock is None else _absolute(settings.lock, folder)
    sources = [resolve_source_paths(source, folder) for source in settings.sources]
    tools = _resolve_tool_paths(settings.tools, folder)
    changes: dict[str, Any] = {"data_dir": data_dir, "lock": lock, "sources": sources, "tools": tools}
    if "builtins" not in settings.model_fields_set:
        changes["builtins"] = FILE_BUILTINS
    return settings.model_copy(update=changes)


def resolve_source_paths(source: ExternalToolConfig, folder: Path) -> ExternalToolConfig:
    """Return a source with its paths relative to `folder` made absolute."""
    paths = {"cwd": source.cwd, "env_file": source.env_file}
    changes = {key: str(_absolute(path, folder)) for key, path in paths.items() if path is not None}
    changed = source.model_copy(update=changes)
    if source.unusable:
        return changed  # its options may be invalid while a variable is not set
    transport = describe_transport(source.transport)
    return transport.with_absolute_paths(changed, lambda path: str(_absolute(path, folder)))


def _resolve_tool_paths(tools: ToolsSettings, folder: Path) -> ToolsSettings:
    paths = [DEFAULT_FOLDER] if tools.allowed_paths is None else tools.allowed_paths
    allowed = [_absolute(path, folder) for path in paths]
    servers = [
        server if server.cwd is None else server.model_copy(update={"cwd": str(_absolute(server.cwd, folder))})
        for server in tools.mcp_servers
    ]
    chain = [
        provider if provider.path is None else provider.model_copy(update={"path": _absolute(provider.path, folder)})
        for provider in tools.retrieval.chain
    ]
    retrieval = tools.retrieval.model_copy(update={"chain": chain})
    return tools.model_copy(update={"allowed_paths": allowed, "mcp_servers": servers, "retrieval": retrieval})


def expand_home(path: str | Path) -> Path:
    """Expand `~`; the path of a user without a home stays as written."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def _absolute(path: str | Path, folder: Path) -> Path:
    return Path(os.path.normpath(folder / expand_home(path)))
