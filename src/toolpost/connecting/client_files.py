"""Import MCP servers from other clients' files: `.mcp.json`, and those of desktop clients and editors.

Reading starts no server and writes no file.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from pydantic import ValidationError

from toolpost.configuration.document import read_text
from toolpost.configuration.secret_extraction import SecretExtractor, Variable, references, variable_name
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.source_kinds import AuthType, McpTransport, TransportType
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.secrets import is_secret_variable

NO_SERVERS = "no_servers"  # the code of the error for a file that lists no servers
# The keys that servers are listed under; a file has one of them.
_TABLES = ("mcpServers", "servers", "context_servers")
# Folders that clients create in a project for their own files.
_PROGRAM_FOLDERS = frozenset({".cursor", ".vscode", ".gemini", ".zed", ".roo", ".windsurf", ".claude"})
# Files that contain only servers: other keys are reported.
_LISTS_ALONE = frozenset({".mcp.json", "mcp.json", "mcp_config.json", "mcp-config.json"})
_IN_PROJECT = (".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".gemini/settings.json", ".zed/settings.json")
_IN_HOME = (
    ".claude.json",
    ".cursor/mcp.json",
    ".codeium/windsurf/mcp_config.json",
    ".gemini/settings.json",
    ".copilot/mcp-config.json",
    "Library/Application Support/Claude/claude_desktop_config.json",
    "Library/Application Support/Code/User/mcp.json",
)
_IN_CONFIG = ("Claude/claude_desktop_config.json", "Code/User/mcp.json", "zed/settings.json")

_TRANSPORTS = {
    "stdio": McpTransport.STDIO,
    "local": McpTransport.STDIO,
    "http": McpTransport.STREAMABLE_HTTP,
    "streamable-http": McpTransport.STREAMABLE_HTTP,
    "streamablehttp": McpTransport.STREAMABLE_HTTP,
    "streamable_http": McpTransport.STREAMABLE_HTTP,
    "sse": McpTransport.SSE,
    "remote": McpTransport.AUTO,
}
# Permissions of other clients are not imported; here `policy` decides.
_PERMISSIONS = ("alwaysAllow", "autoApprove", "trust", "autoAllow")
_MOST_SECONDS = 3600  # the maximum of clients with seconds; a larger number is in milliseconds
_LONGEST_S = 300.0
_PLACEHOLDER = re.compile(r"\$\{(?P<inside>[^}]*)\}?")
_BARE = re.compile(r"\$(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WITH_DEFAULT = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*):-(?P<default>.*)", re.DOTALL)
_UNREADABLE = "file_unreadable"
MAX_BYTES = 32 * 1024 * 1024  # some clients store their history in the same file

# Strings match first: comments and commas within them stay.
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_TRAILING = re.compile(r'"(?:\\.|[^"\\\n])*"?|,(?=\s*[}\]])', re.DOTALL)
_NOT_BLANK = re.compile(r"[^\n]")


class ImportedServers(Struct, frozen=True, kw_only=True):
    """The servers of a file as sources, notes about changes and skipped parts, and the required variables."""

    sources: tuple[ExternalToolConfig, ...]
    notes: tuple[str, ...] = ()
    variables: tuple[Variable, ...] = ()


def read_servers(path: Path, *, environ: Mapping[str, str] | None = None) -> ImportedServers:
    """Read the servers of a file; ConfigError if the file is invalid or lists none."""
    document = read_lenient_json(path)
    if not is_object(document):
        raise ConfigError(f"{path} contains no MCP servers: it is not a JSON object", code=NO_SERVERS)
    key, servers = _table(path, document)
    reader = _FileReader(path.absolute(), document, os.environ if environ is None else environ)
    reader.note_ignored(key, document)
    sources = tuple(reader.sources(servers))
    return ImportedServers(sources=sources, notes=tuple(reader.notes()), variables=tuple(reader.variables()))


def usual_places(folder: Path, *, environ: Mapping[str, str] | None = None) -> list[Path]:
    """Return the existing client files with servers, of a project's folder and of the user."""
    variables = os.environ if environ is None else environ
    home = Path(variables.get("HOME") or variables.get("USERPROFILE") or folder)
    settings = [
        Path(variables.get("XDG_CONFIG_HOME") or home / ".config"),
        Path(variables.get("APPDATA") or home / ".config"),
    ]
    candidates = [folder / name for name in _IN_PROJECT] + [home / name for name in _IN_HOME]
    candidates += [place / name for place in settings for name in _IN_CONFIG]
    return [path for path in dict.fromkeys(candidates) if path.is_file()]


def fit_name(name: str) -> str:
    """Convert a name to one that a source can have."""
    fit = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")
    return fit or "server"


def _table(path: Path, document: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    for key, holder in [*((key, document) for key in _TABLES), ("servers", document.get("mcp"))]:
        servers = holder.get(key) if is_object(holder) else None
        if is_object(servers):
            return key, servers
        if servers is not None:
            raise ConfigError(
                f"{path}: {key!r} must map names to servers, as in {{{key!r}: {{'name': {{...}}}}}}", code=_UNREADABLE
            )
    raise ConfigError(f"{path} contains no MCP servers: it has none of the keys {', '.join(_TABLES)}", code=NO_SERVERS)


class _FileReader:
    """Convert the servers of one file to sources and collect notes and variables."""

    def __init__(self, path: Path, document: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self._path = path
        # The value of `${workspaceFolder}`, and the base of relative paths.
        self._folder = path.parent.parent if path.parent.name in _PROGRAM_FOLDERS else path.parent
        self._placeholders = _Placeholders(
            folder=self._folder,
            inputs=_inputs(document),
            environ=environ,
            bare=path.parent.name == ".gemini",  # the only client that also reads `$NAME`
        )
        self._extractor = SecretExtractor(environ)
        self._notes: list[str] = []

    def note_ignored(self, table: str, document: Mapping[str, Any]) -> None:
        """Note the keys beside the servers that are not imported."""
        beside = [key for key in document if key not in {table, "inputs", "$schema"}]
        if beside and self._path.name in _LISTS_ALONE:
            self._notes.append(f"{_quote(beside)} beside {table!r} skipped: unknown key")
        projects = document.get("projects")
        abouts = projects.items() if is_object(projects) else ()
        own = [name for name, about in abouts if is_object(about) and about.get("mcpServers")]
        if own:
            self._notes.append(f"servers of the projects {_quote(own)} are skipped")

    def sources(self, servers: Mapping[str, Any]) -> Iterator[ExternalToolConfig]:
        taken: set[str] = set()
        for value, entry in servers.items():
            name = self._name(value, taken)
            try:
                yield self._source(name, entry)
            except _UnusableServerError as unfit:
                self._notes.append(f"{value}: skipped, because {unfit}")
                continue
            taken.add(name)

    def notes(self) -> list[str]:
        return [*self._notes, *self._placeholders.notes]

    def variables(self) -> list[Variable]:
        return [*self._extractor.variables, *self._placeholders.variables]

    def _name(self, value: str, taken: set[str]) -> str:
        fit = fit_name(value)
        name, number = fit, 1
        while name in taken:
            number += 1
            name = f"{fit}-{number}"
        if name != value:
            self._notes.append(f"{value}: renamed to {name}: names are unique and contain letters, digits, _ and -")
        return name

    def _source(self, name: str, entry: Any) -> ExternalToolConfig:
        if not is_object(entry):
            raise _UnusableServerError("it is not a JSON object")
        server = _ServerEntry(name, entry, self._placeholders, self._extractor)
        source = server.to_config(self._folder)
        self._notes.extend(f"{name}: {note}" for note in server.notes)
        return source


def _inputs(document: Mapping[str, Any]) -> dict[str, Any]:
    listed = document.get("inputs")
    items = [item for item in listed if is_object(item)] if is_array(listed) else []
    return {str(item.get("id")): item for item in items}


def _quote(names: list[str]) -> str:
    return ", ".join(map(repr, names))


class _UnusableServerError(ValueError):
    """A server cannot become a source; the message contains the reason."""


class _ServerEntry:
    """Convert one server entry, in the dialect of any client, to a source; unknown keys are noted."""

    def __init__(
        self, name: str, entry: Mapping[str, Any], placeholders: _Placeholders, extractor: SecretExtractor
    ) -> None:
        self.notes: list[str] = []
        self._name = name
        self._left = _flat(entry)
        self._placeholders = placeholders
        self._extractor = extractor

    def to_config(self, folder: Path) -> ExternalToolConfig:
        """Return the source; relative paths start from `folder`."""
        fields = {**self._endpoint(folder), **self._limits()}
        disabled, enabled = self._take("disabled"), self._take("enabled")
        fields["enabled"] = not disabled and enabled is not False
        fields["description"] = str(self._take("description") or self._take("title") or "")
        self._note_leftovers()
        try:
            return ExternalToolConfig(name=self._name, transport=TransportType.MCP, **fields)
        except ValidationError as error:
            wrong = ", ".join(sorted({str(one["loc"][0]) for one in error.errors() if one["loc"]}))
            raise _UnusableServerError(f"its {wrong or 'values'} cannot be used") from None

    def _endpoint(self, folder: Path) -> dict[str, Any]:
        """Return the fields of the connection: a command or a URL."""
        command, address, origin = self._take("command"), self._address(), self._take("source")
        transport = self._transport()
        if command and address and transport not in (None, McpTransport.STDIO):
            self.notes.append("it has a command and an address; the address is used")
            command = None
        if command and (isinstance(command, str) or is_array(command)):
            return self._process(_words(command, self._take("args")), folder)
        if isinstance(address, str) and address:
            return self._remote(address, transport)
        if origin == "extension":
            raise _UnusableServerError("an extension of the editor starts it")
        raise _UnusableServerError("it has neither a command nor an address")

    def _address(self) -> Any:
        plain, streamable = self._take("url") or self._take("serverUrl"), self._take("httpUrl")
        if streamable:
            self._left.setdefault("type", "http")
        return streamable or plain

    def _transport(self) -> McpTransport | None:
        value = self._take("type") or self._take("transport") or self._take("transportType")
        if value is None:
            return None
        transport = _TRANSPORTS.get(str(value).lower())
        if transport is None:
            raise _UnusableServerError(f"its transport {str(value)!r} is not supported")
        return transport

    def _process(self, value: Sequence[str], folder: Path) -> dict[str, Any]:
        words = [self._convert(word) for word in value]
        if self._take("headers"):
            self.notes.append("headers are skipped: a command has none")
        return {
            "connection": shlex.join(self._extractor.words(self._name, words)),
            "env_file": self._env_file(folder),
            "cwd": self._folder(words, folder),
            "env": self._mapping("env", partial(self._extractor.env, self._name, own_name=True)),
        }

    def _folder(self, words: list[str], folder: Path) -> str | None:
        """Return the working folder of the command; without a `cwd`, only for commands with relative paths."""
        value = self._take("cwd")
        if isinstance(value, str) and value:
            place = self._convert(value)
            return place if references(place) else str(folder / Path(place).expanduser())
        return str(folder) if names_a_relative_path(words, folder) else None

    def _env_file(self, folder: Path) -> str | None:
        """Return the file of environment variables."""
        value = self._left.get("envFile")
        if not isinstance(value, str) or not value:
            return None
        place = self._convert(str(self._take("envFile")))
        return place if references(place) else str(folder / Path(place).expanduser())

    def _remote(self, address: str, transport: McpTransport | None) -> dict[str, Any]:
        if transport is McpTransport.STDIO:
            raise _UnusableServerError("its transport is stdio, and it has no command")
        url = self._convert(address)
        if not re.match(r"https?://|\$\{", url):
            raise _UnusableServerError("its address is not an http or https URL")
        if self._take("env"):
            self.notes.append("env is skipped: a server at an address has none")
        address, login = self._extractor.login(self._name, url)
        fields: dict[str, Any] = {"connection": self._extractor.url(self._name, address)}
        if login:
            fields |= {"auth_type": AuthType.BASIC, "auth_config": login}
        fields["headers"] = self._mapping("headers", partial(self._extractor.header, self._name))
        if transport not in (None, McpTransport.AUTO):
            fields["options"] = {"transport": transport.value}
        return fields

    def _mapping(self, key: str, conceal: Callable[[str, str], str]) -> dict[str, str]:
        mapping = self._take(key)
        if not is_object(mapping):
            if mapping:
                self.notes.append(f"{key} is skipped: it is not a JSON object")
            return {}
        unset = [name for name, value in mapping.items() if value is None]
        if unset:
            self.notes.append(f"{key} {', '.join(unset)} skipped: null is not a value")
        texts = {name: _text(value) for name, value in mapping.items() if value is not None}
        return {name: conceal(name, self._convert(value, name)) for name, value in texts.items()}

    def _limits(self) -> dict[str, Any]:
        """Return the fields of tool filters and timeout."""
        fields: dict[str, Any] = {}
        included = self._patterns("includeTools", "tools")
        if included and included != [re.escape("*")]:
            fields["tool_filter"] = included
        if excluded := self._patterns("excludeTools", "disabledTools"):
            fields["tool_exclude"] = excluded
        timeout = self._left.get("timeout")
        if isinstance(timeout, int | float) and timeout > 0 and not isinstance(timeout, bool):
            fields["timeout_s"] = _seconds(self._take("timeout"))
            self.notes.append(f"the timeout {timeout} becomes {fields['timeout_s']:g} s")
        return fields

    def _patterns(self, *keys: str) -> list[str]:
        """Return names of tools as patterns; other values are noted as unknown."""
        lists: list[list[Any]] = [self._take(key) for key in keys if is_array(self._left.get(key))]
        return [re.escape(str(name)) for names in lists for name in names]

    def _note_leftovers(self) -> None:
        allowed = [key for key in _PERMISSIONS if self._take(key)]
        if allowed:
            self.notes.append(f"{', '.join(allowed)} skipped: `policy` decides which calls run without approval")
        if self._left:
            self.notes.append(f"{', '.join(map(repr, self._left))} skipped: unknown key")

    def _take(self, key: str) -> Any:
        return self._left.pop(key, None)

    def _convert(self, text: str, name: str = "") -> str:
        return self._placeholders.convert(text, place=self._name, name=name)


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry with `command: {path, args}` and `transport: {type, url}` flattened."""
    flat = dict(entry)
    command = flat.get("command")
    if is_object(command):
        flat |= {**command, "command": command.get("path")}
        flat.pop("path", None)
    transport = flat.get("transport")
    if is_object(transport):
        flat.pop("transport")
        flat |= transport
    return flat


def _words(command: str | list[Any], args: Any) -> list[str]:
    """Return the words of the command line; a command without arguments may be a whole line or a list."""
    if args is not None and not is_array(args):
        raise _UnusableServerError("its args are not a list")
    if not isinstance(command, str):
        return [*map(str, command), *map(str, args or [])]
    if args is not None or " " not in command or Path(command).exists():
        return [command, *map(str, args or [])]
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise _UnusableServerError(f"its command cannot be split into words: {error}") from None
    if not words:
        raise _UnusableServerError("its command is empty")
    return words


def names_a_relative_path(words: Sequence[str], folder: Path) -> bool:
    """Return whether a command line depends on its working folder: `./run`, `.`, or the path of an existing file."""
    program, *arguments = words
    return _is_relative(program, folder, program=True) or any(_is_relative(word, folder) for word in arguments)


def _is_relative(word: str, folder: Path, *, program: bool = False) -> bool:
    """Return whether a word is a relative path; with `program`, a bare name is not: it is searched on the PATH."""
    if word in (".", "..") or word.startswith(("./", "../", ".\\", "..\\")):
        return True
    try:
        there = bool(word) and not Path(word).is_absolute() and (folder / word).exists()
    except (OSError, ValueError):  # too long for a path, or with a NUL
        return False
    return there and ("/" in word or not program)


def _seconds(value: float) -> float:
    seconds = value if value <= _MOST_SECONDS else value / 1000
    return min(max(seconds, 1.0), _LONGEST_S)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else str(value)


class _Placeholders:
    """Convert the placeholders of one file, such as `${env:NAME}` and `${input:id}`, and collect notes on them."""

    def __init__(
        self, *, folder: Path, inputs: Mapping[str, Any], environ: Mapping[str, str], bare: bool = False
    ) -> None:
        self.notes: list[str] = []
        self.variables: list[Variable] = []
        self._inputs = inputs
        self._environ = environ
        self._bare = bare
        self._known = {
            "workspaceFolder": str(folder),
            "workspaceRoot": str(folder),
            "workspaceFolderBasename": folder.name,
            "userHome": str(_home()),
            "pathSeparator": os.sep,
            "/": os.sep,
        }

    def convert(self, text: str, *, place: str, name: str = "") -> str:
        """Return the text with references as `${NAME}`; `name` is the key of the text, `place` prefixes notes."""
        whole = _BARE.fullmatch(text)
        if whole is not None and self._bare:
            return f"${{{whole['name']}}}"
        return _PLACEHOLDER.sub(lambda match: self._convert_one(match, place, name), text)

    def _convert_one(self, match: re.Match[str], place: str, name: str) -> str:
        inside = match["inside"] if match[0].endswith("}") else ""
        if inside in self._known:
            return self._known[inside]
        if inside.startswith("input:"):
            return self._input(inside.removeprefix("input:"), place)
        variable = inside.removeprefix("env:")
        if _NAME.fullmatch(variable):
            return f"${{{variable}}}"
        optional = _WITH_DEFAULT.fullmatch(variable)
        if optional is not None:
            return self._with_default(optional["name"], optional["default"], place, name)
        self.notes.append(f"{place}: the placeholder {match[0]} is unknown and stays as it is written")
        return f"${match[0]}"

    def _input(self, id_: str, place: str) -> str:
        variable = variable_name(id_)
        about = self._inputs.get(id_)
        description = about.get("description") if is_object(about) else None
        if all(one.name != variable for one in self.variables):
            self.variables.append(Variable(name=variable, stands_for=str(description or f"the input {id_!r}")))
            self.notes.append(f"{place}: the input {id_!r} of the editor is now the variable {variable}")
        return f"${{{variable}}}"

    def _with_default(self, variable: str, default: str, place: str, name: str) -> str:
        # `toolpost.yaml` has no defaults for variables, so one of the two is chosen now; a secret is never written.
        if variable in self._environ or is_secret_variable(name) or is_secret_variable(variable):
            self.notes.append(f"{place}: {variable} must be set; its default is not imported")
            return f"${{{variable}}}"
        self.notes.append(f"{place}: {variable} is not set, so its default is written instead of it")
        return default.replace("${", "$${")


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        return Path("~")


def read_lenient_json(path: Path) -> Any:
    """Read JSON with comments, trailing commas and a byte order mark; ConfigError names file, line and column."""
    text = read_text(path, name=str(path), max_bytes=MAX_BYTES, code=_UNREADABLE)
    try:
        return json.loads(strict_json(text), object_pairs_hook=_reject_duplicates)
    except json.JSONDecodeError as error:
        place = f"{path}, line {error.lineno}, column {error.colno}"
        raise ConfigError(f"{place}: this is not JSON: {error.msg}", code=_UNREADABLE) from None
    except _DuplicateKeyError as error:
        raise ConfigError(
            f"{path}: key {str(error)!r} is given twice in one object; keep one", code=_UNREADABLE
        ) from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply to be read", code=_UNREADABLE) from None


def strict_json(text: str) -> str:
    """Replace comments and trailing commas with blanks, which keeps the positions in the text."""
    return _TRAILING.sub(_blank, _COMMENT.sub(_blank, text))


class _DuplicateKeyError(ValueError):
    """An object has a key twice; JSON would silently keep the last one."""


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise _DuplicateKeyError(key)
        mapping[key] = value
    return mapping


def _blank(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else _NOT_BLANK.sub(" ", match[0])
