"""Find, read and validate `toolpost.yaml`, make its paths absolute, and describe its errors in plain words."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from toolpost.auth.credentials import secrets_of
from toolpost.auth.secret import read_env_file
from toolpost.configuration.document import ConfigDocument, Keys, key_text, kind_of, read_document
from toolpost.configuration.literal_secrets import literal_secrets
from toolpost.configuration.settings import DEFAULT_FOLDER, FILE_BUILTINS, McpServerSettings, Settings, ToolsSettings
from toolpost.contracts.config import ExternalToolConfig, TransportType
from toolpost.contracts.errors import ConfigError, ToolError, nearest
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.violations import plain_message
from toolpost.transports.registry import describe_transport

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

FILE_NAME = "toolpost.yaml"
ENV_FILE = ".env"
_SECRET_KEY = re.compile(r"^(env|auth_?config)$|key|token|secret|password", re.IGNORECASE)
_MAX_SHOWN = 60  # characters of a wrong value that a message quotes
_Source = TypeVar("_Source", ExternalToolConfig, McpServerSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """Settings, the file they came from (None: defaults), and the secrets to redact everywhere."""

    settings: Settings
    path: Path | None
    secrets: frozenset[str] = field(default=frozenset(), repr=False)


def load_settings(
    path: Path | None, *, cwd: Path | None = None, environ: Mapping[str, str] | None = None
) -> LoadedSettings:
    """Load a file, by default `toolpost.yaml` of the working folder if it exists; ConfigError describes errors."""
    here = (cwd or Path.cwd()).absolute()
    file = here / (path or FILE_NAME)
    if path is None and not file.exists():
        return LoadedSettings(settings=_resolve_paths(Settings.defaults(), here), path=None)
    shown = str(file.relative_to(here) if file.is_relative_to(here) else file)
    document = read_document(file, shown=shown, environ=environment(file.parent, environ))
    settings = parse_settings(_stub_unset_sources(document), shown=shown, secrets=document.secrets)
    settings = _mark_unset_sources(settings, document)
    secrets = document.secrets.union(literal_secrets(settings))
    return LoadedSettings(settings=_resolve_paths(settings, file.parent), path=file, secrets=secrets)


def environment(folder: Path, environ: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return the environment's variables and those of `.env` in `folder`; the environment takes precedence."""
    known = os.environ if environ is None else environ
    try:
        return {**read_env_file(folder / ENV_FILE), **known}
    except FileNotFoundError:
        return known


def _stub_unset_sources(document: ConfigDocument) -> dict[str, Any]:
    """Return the data, with stubs for sources that are invalid while their variables are not set, such as numbers."""
    if not document.unset:
        return document.data
    data = deepcopy(document.data)
    for keys in document.unset:
        *parents, last = keys
        entries: Any = data
        for key in parents:
            entries = entries[key]
        model = McpServerSettings if "tools" in keys else ExternalToolConfig
        try:
            model.model_validate(entries[last])
        except ValidationError:
            entries[last] = _stub(entries[last])
    return data


def _stub(entry: Any) -> Any:
    """Return as much of a source's entry as is needed to report the source."""
    if not is_object(entry):
        return entry
    known = {key: entry[key] for key in ("name", "transport", "connection", "command", "url") if key in entry}
    return known | {key: entry[key] for key in ("enabled", "required") if isinstance(entry.get(key), bool)}


def _mark_unset_sources(settings: Settings, document: ConfigDocument) -> Settings:
    """Mark the sources whose variables are not set as unusable, with the reason."""
    if not document.unset:
        return settings
    reasons = {(keys[0], keys[-1]): reason for keys, reason in document.unset.items()}

    def mark(entries: list[_Source], key: str) -> list[_Source]:
        given = [(entry, reasons.get((key, n))) for n, entry in enumerate(entries)]
        return [entry if reason is None else entry.left_out(reason) for entry, reason in given]

    tools = settings.tools.model_copy(update={"mcp_servers": mark(settings.tools.mcp_servers, "tools")})
    return settings.model_copy(update={"sources": mark(settings.sources, "sources"), "tools": tools})


def parse_settings(data: Mapping[str, Any], *, shown: str = "settings", secrets: Collection[str] = ()) -> Settings:
    """Validate a mapping with the keys of the file; ConfigError describes every error without any of `secrets`."""
    if not data:
        return Settings.defaults()
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        text = _describe_errors(error, data, shown, secrets)
    # Outside the handler: pydantic's error quotes the values, and a traceback would show them.
    raise ConfigError(text)


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
    try:
        return secrets_of(source)
    except ToolError:  # reported when the source connects
        return set()


def _resolve_paths(settings: Settings, folder: Path) -> Settings:
    data_dir = None if settings.data_dir is None else _absolute(settings.data_dir, folder)
    lock = None if settings.lock is None else _absolute(settings.lock, folder)
    sources = [_resolve_source_paths(source, folder) for source in settings.sources]
    tools = _resolve_tool_paths(settings.tools, folder)
    changes: dict[str, Any] = {"data_dir": data_dir, "lock": lock, "sources": sources, "tools": tools}
    if "builtins" not in settings.model_fields_set:
        changes["builtins"] = FILE_BUILTINS
    return settings.model_copy(update=changes)


def _resolve_source_paths(source: ExternalToolConfig, folder: Path) -> ExternalToolConfig:
    changes: dict[str, Any] = {}
    if source.cwd is not None:
        changes["cwd"] = str(_absolute(source.cwd, folder))
    elif (
        source.transport is TransportType.CLI and source.cli.manual is None
    ):  # the commands of a manual run in the folder of the manual
        changes["cwd"] = str(folder)
    if "command" not in describe_transport(source.transport).forms and is_local_file(source.connection):
        changes["connection"] = str(_absolute(source.connection, folder))
    if source.env_file is not None:
        changes["env_file"] = str(_absolute(source.env_file, folder))
    if source.graphql.schema_file is not None:
        file = str(_absolute(source.graphql.schema_file, folder))
        changes["graphql"] = source.graphql.model_copy(update={"schema_file": file})
    if source.cli.manual is not None and "://" not in source.cli.manual:
        file = str(_absolute(source.cli.manual, folder))
        changes["cli"] = source.cli.model_copy(update={"manual": file})
        changes["connection"] = file if source.connection == source.cli.manual else source.connection
    return source.model_copy(update=changes)


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


def is_local_file(connection: str) -> bool:
    """Return whether a connection is written as a file: `./x`, `~/x`, `x.py`; not a URL or the name of a module."""
    if "://" in connection:
        return False
    return connection.startswith((".", "/", "~")) or connection.endswith((".py", ".json", ".yaml", ".yml"))


def expand_home(path: str | Path) -> Path:
    """Expand `~`; the path of a user without a home stays as written."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def _absolute(path: str | Path, folder: Path) -> Path:
    return Path(os.path.normpath(folder / expand_home(path)))


def _describe_errors(error: ValidationError, data: Mapping[str, Any], shown: str, secrets: Collection[str]) -> str:
    """Describe every error of a validation in one text: the key, the expectation, the value, and never a secret."""
    found = [_ErrorMessage(details, data, shown).text() for details in error.errors()]
    texts = [_without(text, secrets) for text in dict.fromkeys(found)]
    if len(texts) == 1:
        return texts[0]
    return "\n".join([f"{shown} is wrong in {len(texts)} places:", *(f"- {text}" for text in texts)])


class _ErrorMessage:
    """Build the message of one pydantic error."""

    def __init__(self, details: ErrorDetails, data: Mapping[str, Any], shown: str) -> None:
        self._details = details
        self._keys = _written_keys(details, data)
        self._model = _model_at(details["loc"][:-1])
        self._shown = shown

    def text(self) -> str:
        match self._details["type"]:
            case "extra_forbidden":
                return self._unknown_key()
            case "missing":
                return f"key {key_text(self._keys)!r} is missing in {self._shown}"
            case "value_error":
                return self._expected(str(self._details.get("ctx", {}).get("error")))
            case _:
                return self._expected(_first_part(plain_message(self._details["msg"])))

    def _expected(self, expected: str) -> str:
        if expected.startswith("must "):
            return f"{self._place()} {expected}, got {self._got()}{self._hint()}"
        return f"{self._place()}: {expected.removeprefix(f'{key_text(self._keys)}: ')}"

    def _place(self) -> str:
        return f"{key_text(self._keys)!r} in {self._shown}" if self._keys else self._shown

    def _unknown_key(self) -> str:
        *parents, key = self._keys
        spellings = dict(_spellings(self._model))
        if key in spellings:
            twin = f"{key_text((*parents, spellings[key]))!r}"
            return f"key {key_text(self._keys)!r} in {self._shown} is given twice, also as {twin}; keep one"
        near = nearest(str(key), spellings, cutoff=0.5)
        hint = f"did you mean {key_text((*parents, near))!r}?" if near else self._all_keys(parents)
        return f"unknown key {key_text(self._keys)!r} in {self._shown}; {hint}"

    def _all_keys(self, parents: list[str | int]) -> str:
        where = f"{key_text(tuple(parents))!r}" if parents else "the file"
        return f"{where} takes {', '.join(self._model.model_fields)}"

    def _got(self) -> str:
        value = self._details["input"]
        if isinstance(value, dict | list) or value is None or any(_SECRET_KEY.search(str(key)) for key in self._keys):
            return kind_of(value)
        text = repr(value)
        return f"{kind_of(value)} of {len(text)} characters" if len(text) > _MAX_SHOWN else text

    def _hint(self) -> str:
        numeric = isinstance(self._details["input"], int | float)
        return "; put it in quotes" if self._details["type"] == "string_type" and numeric else ""


def _first_part(text: str) -> str:
    # Pydantic appends how it tried to read the value; the expectation comes first.
    return re.split(r", (?:unable|got|not) ", text)[0]


def _written_keys(details: ErrorDetails, data: Any) -> Keys:
    """Return the keys of an error as written: pydantic adds the tags of unions and reports camelCase in snake_case."""
    keys: list[str | int] = []
    for part in details["loc"]:
        written = _written_key(part, data)
        if written is not None:
            keys.append(written)
            data = data[written]
    if details["type"] == "missing":
        keys.append(details["loc"][-1])
    return tuple(keys)


def _written_key(part: str | int, data: Any) -> str | int | None:
    if isinstance(part, int):
        return part if is_array(data) and part < len(data) else None
    if not isinstance(data, Mapping):
        return None
    camel = re.sub(r"_([a-z])", lambda found: found[1].upper(), part)
    return next((key for key in (part, camel) if key in data), None)


def _model_at(loc: Keys) -> type[BaseModel]:
    model: type[BaseModel] = Settings
    for part in loc:
        found = next((f for name, f in model.model_fields.items() if part in (name, f.alias)), None)
        if found is not None:
            model = next(_models(found.annotation), model)
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _spellings(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Yield every key of a model with its other spelling."""
    for name, known in model.model_fields.items():
        alias = known.alias or name
        yield name, alias
        yield alias, name


def _without(text: str, secrets: Collection[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
