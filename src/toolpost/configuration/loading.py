"""From `toolpost.yaml` to settings: found, read, checked, and with its paths made absolute."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from pydantic import BaseModel, ValidationError

from toolpost.auth.env_file import read_env_file
from toolpost.auth.static import secrets_of
from toolpost.builtin.providers.config import ProviderSettings
from toolpost.configuration.document import Document, Keys, key_text, kind_of, read_document
from toolpost.configuration.secret_extraction import literal_secrets
from toolpost.configuration.settings import DEFAULT_FOLDER, FILE_BUILTINS, McpServerSettings, Settings, ToolsSettings
from toolpost.contracts.config import ExternalToolConfig, TransportType
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.suggestions import nearest
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.schema.pydantic_words import in_plain_words

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

FILE_NAME = "toolpost.yaml"
ENV_FILE = ".env"
_Source = TypeVar("_Source", ExternalToolConfig, McpServerSettings)
# Transports whose connection can be a file; for the others it is a command or an address.
_FILE_TRANSPORTS = frozenset(TransportType) - {TransportType.MCP, TransportType.CLI, TransportType.WEBSOCKET}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """Settings, the file they came from (None: defaults alone), and the secrets that must never be told."""

    settings: Settings
    path: Path | None
    secrets: frozenset[str] = field(default=frozenset(), repr=False)


def load_settings(
    path: Path | None, *, cwd: Path | None = None, environ: Mapping[str, str] | None = None
) -> LoadedSettings:
    """Read the given file, or `toolpost.yaml` of the working folder if there is one; ConfigError says what is wrong."""
    here = (cwd or Path.cwd()).absolute()
    file = here / path if path is not None else _found(here)
    if file is None:
        return LoadedSettings(settings=_anchored(Settings(), here), path=None)
    shown = _shown(file, here)
    document = read_document(file, shown=shown, environ=environment(file.parent, environ))
    settings = _without_unset(_validated(_with_stubs(document), shown), document)
    secrets = document.secrets.union(literal_secrets(settings))
    return LoadedSettings(settings=_anchored(settings, file.parent), path=file, secrets=secrets)


def environment(folder: Path, environ: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """The variables of the environment, and below them those of `.env` in a configuration's folder."""
    known = os.environ if environ is None else environ
    try:
        return {**read_env_file(folder / ENV_FILE), **known}
    except FileNotFoundError:
        return known


def _with_stubs(document: Document) -> Document:
    """The document without what cannot be read of a source while its variables are not set, as a number cannot."""
    if not document.unset:
        return document
    data = deepcopy(document.data)
    for keys in document.unset:
        *parents, last = keys
        listed: Any = reduce(_below, parents, cast("Any", data))
        model = McpServerSettings if "tools" in keys else ExternalToolConfig
        try:
            model.model_validate(listed[last])
        except ValidationError:
            listed[last] = _stub(listed[last])
    return replace(document, data=data)


def _below(value: Any, key: str | int) -> Any:
    return value[key]


def _stub(entry: Any) -> Any:
    """As much of a source as is needed to tell of it."""
    if not is_object(entry):
        return entry
    known = {key: entry[key] for key in ("name", "transport", "connection", "command", "url") if key in entry}
    return known | {key: entry[key] for key in ("enabled", "required") if isinstance(entry.get(key), bool)}


def _without_unset(settings: Settings, document: Document) -> Settings:
    """The settings, with those sources told apart that lack a variable."""
    if not document.unset:
        return settings
    reasons = {(keys[0], keys[-1]): reason for keys, reason in document.unset.items()}
    sources = _told(settings.sources, "sources", reasons)
    servers = _told(settings.tools.mcp_servers, "tools", reasons)
    tools = settings.tools.model_copy(update={"mcp_servers": servers})
    return settings.model_copy(update={"sources": sources, "tools": tools})


def _told(listed: list[_Source], place: str, reasons: Mapping[tuple[str | int, str | int], str]) -> list[_Source]:
    given = [(one, reasons.get((place, n))) for n, one in enumerate(listed)]
    return [one if reason is None else one.left_out(reason) for one, reason in given]


def settings_of(data: Mapping[str, Any]) -> Settings:
    """Settings written as a mapping with the keys of the file; ConfigError says what is wrong."""
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        text = complaint(error, model=Settings, data=data, shown="settings", secrets=())
    # Outside the handler: pydantic's own error quotes the values, and a traceback would show it.
    raise ConfigError(text)


def with_only(loaded: LoadedSettings, names: Collection[str]) -> LoadedSettings:
    """The same with every source but these turned off; what is secret of the others is still never told."""
    settings = loaded.settings
    sources = [one if one.name in names else _off(one) for one in settings.sources]
    servers = [one if one.name in names else _off(one) for one in settings.tools.mcp_servers]
    tools = settings.tools.model_copy(update={"mcp_servers": servers})
    left_out = [source for source in settings.all_sources() if source.name not in names]
    return replace(
        loaded,
        settings=settings.model_copy(update={"sources": sources, "tools": tools}),
        secrets=loaded.secrets.union(*map(_secrets, left_out)),
    )


def _off(one: _Source) -> _Source:
    return one.model_copy(update={"enabled": False})


def _secrets(source: ExternalToolConfig) -> set[str]:
    try:
        return secrets_of(source)
    except ToolError:  # it is told where the source is wanted
        return set()


def _found(folder: Path) -> Path | None:
    file = folder / FILE_NAME
    return file if file.exists() else None


def _shown(file: Path, here: Path) -> str:
    return str(file.relative_to(here) if file.is_relative_to(here) else file)


def _validated(document: Document, shown: str) -> Settings:
    try:
        return Settings.model_validate(document.data)
    except ValidationError as error:
        text = complaint(error, model=Settings, data=document.data, shown=shown, secrets=document.secrets)
    # Outside the handler: pydantic's own error quotes the values, and a traceback would show it.
    raise ConfigError(text)


def _anchored(settings: Settings, folder: Path) -> Settings:
    data_dir = None if settings.data_dir is None else _absolute(settings.data_dir, folder)
    lock = None if settings.lock is None else _absolute(settings.lock, folder)
    sources = [_anchored_source(source, folder) for source in settings.sources]
    tools = _anchored_tools(settings.tools, folder)
    changes: dict[str, Any] = {"data_dir": data_dir, "lock": lock, "sources": sources, "tools": tools}
    if "builtins" not in settings.model_fields_set:
        changes["builtins"] = FILE_BUILTINS
    return settings.model_copy(update=changes)


def _anchored_source(source: ExternalToolConfig, folder: Path) -> ExternalToolConfig:
    changes: dict[str, Any] = {}
    if source.cwd is not None:
        changes["cwd"] = str(_absolute(source.cwd, folder))
    elif source.transport is TransportType.CLI and source.cli.manual is None:  # a manual has a folder of its own
        changes["cwd"] = str(folder)
    if source.transport in _FILE_TRANSPORTS and is_local_file(source.connection):
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


def _anchored_tools(tools: ToolsSettings, folder: Path) -> ToolsSettings:
    paths = [DEFAULT_FOLDER] if tools.allowed_paths is None else tools.allowed_paths
    allowed = [_absolute(path, folder) for path in paths]
    servers = [_anchored_server(server, folder) for server in tools.mcp_servers]
    retrieval = tools.retrieval.model_copy(
        update={"chain": [_anchored_link(link, folder) for link in tools.retrieval.chain]}
    )
    return tools.model_copy(update={"allowed_paths": allowed, "mcp_servers": servers, "retrieval": retrieval})


def _anchored_link(link: ProviderSettings, folder: Path) -> ProviderSettings:
    return link if link.path is None else link.model_copy(update={"path": _absolute(link.path, folder)})


def _anchored_server(server: McpServerSettings, folder: Path) -> McpServerSettings:
    if server.cwd is None:
        return server
    return server.model_copy(update={"cwd": str(_absolute(server.cwd, folder))})


def is_local_file(connection: str) -> bool:
    """Whether a connection is written as a file: `./x`, `~/x`, `x.py`; a URL or a module's name is not."""
    if "://" in connection:
        return False
    return connection.startswith((".", "/", "~")) or connection.endswith((".py", ".json", ".yaml", ".yml"))


def _absolute(path: str | Path, folder: Path) -> Path:
    try:
        own = Path(path).expanduser()
    except RuntimeError:  # ~someone, who has no home here
        own = Path(path)
    return Path(os.path.normpath(folder / own))


_SECRET_KEY = re.compile(r"^(env|auth_?config)$|key|token|secret|password", re.IGNORECASE)
_MAX_SHOWN = 60


def complaint(
    error: ValidationError, *, model: type[BaseModel], data: Mapping[str, Any], shown: str, secrets: Collection[str]
) -> str:
    """Everything that a failed validation found, as one text."""
    found = [_Finding(details, model, data, shown).text() for details in error.errors()]
    texts = [_without(text, secrets) for text in dict.fromkeys(found)]
    if len(texts) == 1:
        return texts[0]
    return "\n".join([f"{shown} is wrong in {len(texts)} places:", *(f"- {text}" for text in texts)])


class _Finding:
    """One error of pydantic's, put into words."""

    def __init__(self, details: ErrorDetails, model: type[BaseModel], data: Mapping[str, Any], shown: str) -> None:
        self._details = details
        self._keys = _written_keys(details, data)
        self._model = _model_at(model, details["loc"][:-1])
        self._shown = shown

    def text(self) -> str:
        match self._details["type"]:
            case "extra_forbidden":
                return self._unknown()
            case "missing":
                return f"key {key_text(self._keys)!r} is missing in {self._shown}"
            case "value_error":
                return self._told(str(self._details.get("ctx", {}).get("error")))
            case _:
                return self._told(_first_part(in_plain_words(self._details["msg"])))

    def _told(self, expected: str) -> str:
        if expected.startswith("must "):
            return f"{self._place()} {expected}, got {self._got()}{self._hint()}"
        return f"{self._place()}: {expected.removeprefix(f'{key_text(self._keys)}: ')}"

    def _place(self) -> str:
        return f"{key_text(self._keys)!r} in {self._shown}" if self._keys else self._shown

    def _unknown(self) -> str:
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
    """Pydantic adds how it tried to read a value; what was expected comes before that."""
    return re.split(r", (?:unable|got|not) ", text)[0]


def _written_keys(details: ErrorDetails, data: Any) -> Keys:
    """The keys of an error as they stand in the file: pydantic adds the names of alternatives, and drops camelCase."""
    keys: list[str | int] = []
    for part in details["loc"]:
        written = _written(part, data)
        if written is not None:
            keys.append(written)
            data = data[written]
    if details["type"] == "missing":
        keys.append(details["loc"][-1])
    return tuple(keys)


def _written(part: str | int, data: Any) -> str | int | None:
    if isinstance(part, int):
        return part if is_array(data) and part < len(data) else None
    if not isinstance(data, Mapping):
        return None
    camel = re.sub(r"_([a-z])", lambda found: found[1].upper(), part)
    return next((key for key in (part, camel) if key in data), None)


def _model_at(model: type[BaseModel], loc: Keys) -> type[BaseModel]:
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
    """Every key that a model takes, with its other spelling."""
    for name, known in model.model_fields.items():
        alias = known.alias or name
        yield name, alias
        yield alias, name


def _without(text: str, secrets: Collection[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
