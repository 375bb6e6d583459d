"""Plan a source from a URL, a command, a preset or a file: the entry, its variables, and the program that it starts.

Planning starts and writes nothing. Secrets in the given texts are replaced by references to variables.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from toolpost.auth.credentials import static_credential, with_environment
from toolpost.auth.providers import KNOWN_PROVIDERS
from toolpost.configuration.file_editor import (
    load_leniently,
    source_data,
)
from toolpost.configuration.loading import environment
from toolpost.configuration.secret_extraction import SecretExtractor, Variable, references
from toolpost.configuration.settings import Settings
from toolpost.connecting.client_files import (
    ImportedServers,
    fit_name,
    names_a_relative_path,
    read_servers,
)
from toolpost.connecting.endpoint_detection import Endpoint, detect_file, detect_url, is_document
from toolpost.connecting.packages import Package
from toolpost.connecting.presets import PACKAGES, pinned_preset, unknown_preset, unpinned_package
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ToolError
from toolpost.contracts.http_syntax import TOKEN
from toolpost.contracts.records import represent
from toolpost.contracts.source_kinds import AuthType, McpTransport, TransportType
from toolpost.policy.redaction import Redactor
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.registry import describe_transport
from toolpost.wire.callback_server import DEFAULT_PORT, callback_server_url
from toolpost.wire.targets import is_http_url

if TYPE_CHECKING:
    from toolpost.wire.network import NetworkPolicy

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_NO_NAME = re.compile(r"[/\\.:]")
_HOST = re.compile(r"localhost\b|[\w.-]+:\d|([\w-]+\.){2}|[\w-]+\.[\w-]+/")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(TOKEN)
_LAUNCHERS = frozenset({"npx", "uvx", "bunx", "pipx", "node", "python", "python3", "py", "deno", "bun", "uv", "pnpm"})
_CONTAINERS = frozenset({"docker", "podman"})
_VERBS = frozenset({"run", "dlx", "exec", "tool", "x"})
_AROUND = re.compile(r"^(mcp-server-|server-|mcp-)|(-mcp-server|-mcp|-server)$")
_SAYS_NOTHING = frozenset({"", "mcp", "server", "index", "main", "cli"})
_COMMON_LABELS = frozenset({"mcp", "www", "api", "app", "server"})
_INSTALL = {"uvx": " (it comes with uv: pip install uv)", "npx": " (it comes with Node.js)"}
_OUR_OWN = frozenset({"python", "python3"})  # the running interpreter replaces it


class TargetError(ValueError):
    """Arguments that do not fit together; `option` is the one to change. Each surface reports it in its own form."""

    def __init__(self, message: str, *, option: str) -> None:
        super().__init__(message)
        self.message = message
        self.option = option


class SourceArguments(Struct, frozen=True, kw_only=True):
    """The given arguments: the words of a target, and its options."""

    words: Sequence[str]
    name: str | None = None
    env: Sequence[str] = ()
    headers: Sequence[str] = ()
    cwd: Path | None = None
    transport: McpTransport = McpTransport.AUTO

    def __repr__(self) -> str:
        return represent(self, without=("env", "headers"))


class SourcePlan(Struct, frozen=True, kw_only=True):
    """Source to be written, the variables that replace its secrets, and notes for the person who confirms.

    `found` describes what was detected at a URL.
    """

    source: ExternalToolConfig
    found: str = ""
    variables: tuple[Variable, ...] = ()
    notes: tuple[str, ...] = ()

    def secrets(self) -> dict[str, str]:
        """Return the values of the variables, for a single connection."""
        return {variable.name: variable.value for variable in self.variables if variable.value is not None}


def make_plan(arguments: SourceArguments, environ: Mapping[str, str]) -> SourcePlan:
    """Plan a source; raise a TargetError for invalid arguments, a ToolError for an unknown preset."""
    extractor = SecretExtractor(environ)
    first, *rest = arguments.words
    if first.lower().startswith(("http://", "https://")):
        _refuse_for_url(arguments, rest)
        source = _remote(arguments, first, extractor)
        notes: list[str] = []
    elif first in PACKAGES:
        source = _preset(arguments, first, rest, extractor, environ)
        notes = list(_unset(first, source, environ))
    elif not rest and is_document(first):
        _refuse_for_document(arguments)
        source = _document(arguments, first, extractor)
        notes = []
    else:
        source = _program(arguments, _command_words(arguments.words, environ), extractor)
        notes = list(warn_unpinned([source]))
    notes += missing_requirements(source, environ)
    return SourcePlan(source=source, variables=tuple(extractor.variables), notes=tuple(notes))


def _refuse_for_url(arguments: SourceArguments, rest: Sequence[str]) -> None:
    if rest:
        raise TargetError("a URL takes no further words; is a header without its quotes?", option="WHAT")
    if arguments.env or arguments.cwd is not None:
        raise TargetError("only a program has one; a URL has headers", option="--env, --cwd")
    if arguments.transport is McpTransport.STDIO:
        raise TargetError("a URL cannot use stdio", option="--transport")


def _remote(arguments: SourceArguments, url: str, extractor: SecretExtractor) -> ExternalToolConfig:
    if not urlsplit(url).hostname:
        raise TargetError("the URL has no host", option="WHAT")
    name = _name(arguments, _name_of_host(urlsplit(url).hostname or ""))
    address, login = extractor.login(name, url)
    fields: dict[str, Any] = {"auth_type": AuthType.BASIC, "auth_config": login} if login else {}
    return ExternalToolConfig(
        name=name,
        transport=TransportType.MCP,
        connection=extractor.url(name, address),
        headers={key: extractor.header(name, key, value) for key, value in _headers(arguments.headers)},
        options={} if arguments.transport is McpTransport.AUTO else {"transport": arguments.transport.value},
        **fields,
    )


def _refuse_for_document(arguments: SourceArguments) -> None:
    if arguments.env or arguments.cwd is not None:
        raise TargetError("only a program has one", option="--env, --cwd")
    if arguments.transport is not McpTransport.AUTO:
        raise TargetError("only an MCP server has one, and this is a file", option="--transport")


def _document(arguments: SourceArguments, file: str, extractor: SecretExtractor) -> ExternalToolConfig:
    """Build the source for the file of an API document."""
    name = _name(arguments, fit_name(PurePosixPath(file).name.partition(".")[0]))
    headers = {key: extractor.header(name, key, value) for key, value in _headers(arguments.headers)}
    return ExternalToolConfig(name=name, transport=TransportType.HTTP, connection=file, headers=headers)


def _preset(
    wanted: SourceArguments,
    preset: str,
    arguments: Sequence[str],
    extractor: SecretExtractor,
    environ: Mapping[str, str],
) -> ExternalToolConfig:
    _refuse_for_program(wanted)
    name = _name(wanted, preset)
    try:
        pinned = pinned_preset(preset, extractor.words(name, arguments))
    except ValueError as error:
        raise ToolError(str(error), code="preset_unavailable") from None
    variables = _env(wanted, name, extractor)
    handed_on = {key: f"${{{key}}}" for key in PACKAGES[preset].reads if key in environ}
    words = shlex.split(pinned.connection)
    for key, value in variables.items():
        words = [word.replace(f"${{{key}}}", value) for word in words]
    env = {**pinned.env, **handed_on, **variables}
    made = pinned.model_copy(
        update={"name": name, "connection": shlex.join(words), "env": env, "cwd": _cwd(wanted, ["", *arguments])}
    )
    return _with_credential(made, PACKAGES[preset], environ)


def _with_credential(source: ExternalToolConfig, package: Package, environ: Mapping[str, str]) -> ExternalToolConfig:
    """Give the server of a preset its token: from the environment, or of each user after a sign-in."""
    # These services register no clients dynamically, so a sign-in takes the client id of an app of the operator.
    if not package.variable:
        return source
    client_id, client_secret = _client_variables(package)
    if package.variable in source.env or client_id not in environ:
        env = {**source.env, package.variable: source.env.get(package.variable, f"${{{package.variable}}}")}
        return source.model_copy(update={"auth_type": AuthType.NONE, "auth_config": {}, "env": env})
    auth: dict[str, Any] = {"provider": package.provider, "client_id": f"${{{client_id}}}"}
    if client_secret in environ:
        auth["client_secret"] = f"env:{client_secret}"
    if package.scopes:
        auth["scopes"] = list(package.scopes)
    auth["token_env"] = package.variable
    return source.model_copy(update={"auth_type": AuthType.OAUTH2_USER, "auth_config": auth})


def _client_variables(package: Package) -> tuple[str, str]:
    prefix = package.provider.upper()
    return f"{prefix}_CLIENT_ID", f"{prefix}_CLIENT_SECRET"


def _program(arguments: SourceArguments, words: Sequence[str], extractor: SecretExtractor) -> ExternalToolConfig:
    _refuse_for_program(arguments)
    name = _name(arguments, _name_of_command(words))
    return ExternalToolConfig(
        name=name,
        transport=TransportType.MCP,
        connection=shlex.join(extractor.words(name, words)),
        env=_env(arguments, name, extractor),
        cwd=_cwd(arguments, words),
    )


def _refuse_for_program(arguments: SourceArguments) -> None:
    if arguments.headers:
        raise TargetError("only a URL has headers; a program has --env", option="--header")
    if arguments.transport not in (McpTransport.AUTO, McpTransport.STDIO):
        raise TargetError(f"a program uses stdio, not {arguments.transport}", option="--transport")


def _command_words(words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Split a single word as a shell does; raise a ToolError for a single word that is not a program."""
    if len(words) > 1:
        return list(words)
    try:
        split = shlex.split(words[0])
    except ValueError as error:
        raise TargetError(f"this cannot be split into words: {error}", option="WHAT") from None
    if not split:
        raise TargetError("give a preset, a command or a URL", option="WHAT")
    if len(split) == 1 and shutil.which(split[0], path=environ.get("PATH")) is None:
        message = f"{unknown_preset(split[0])}. No program has this name either."
        raise ToolError(message, code="preset_unknown")
    return split


def _env(arguments: SourceArguments, name: str, extractor: SecretExtractor) -> dict[str, str]:
    return {key: extractor.env(name, key, value) for key, value in _variables(arguments.env)}


def _variables(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for pair in texts:
        key, equals, value = pair.partition("=")
        if not _VARIABLE.fullmatch(key):
            raise TargetError("write NAME=VALUE, or NAME to pass on your own", option="--env")
        yield key, _escaped(value) if equals else f"${{{key}}}"


def _headers(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for pair in texts:
        key, colon, value = pair.partition(":")
        if not colon or not _HEADER.fullmatch(key.strip()):
            raise TargetError("write 'Name: value'", option="--header")
        yield key.strip(), _escaped(value.strip())


def _escaped(value: str) -> str:
    """Escape `${` in a text that has no references to variables."""
    return value if references(value) else value.replace("${", "$${")


def _cwd(arguments: SourceArguments, words: Sequence[str]) -> str | None:
    """Return the working directory: the given one, or the current one if the command contains a relative path."""
    if arguments.cwd is None:
        return str(Path.cwd()) if names_a_relative_path(words, Path.cwd()) else None
    if not arguments.cwd.is_dir():
        raise TargetError(f"{str(arguments.cwd)!r} is not a folder", option="--cwd")
    return str(arguments.cwd.absolute())


def _name(arguments: SourceArguments, derived: str) -> str:
    if arguments.name is None:
        return derived
    if fit_name(arguments.name) != arguments.name:
        raise TargetError(
            f"a name consists of letters, digits, _ and -, such as {fit_name(arguments.name)}", option="--name"
        )
    return arguments.name


def _name_of_command(words: Sequence[str]) -> str:
    program = PurePosixPath(words[0].replace("\\", "/")).name
    plain = [word for word in words[1:] if not word.startswith("-") and word not in _VERBS]
    if program in _CONTAINERS and plain:
        program = plain[-1]
    elif program in _LAUNCHERS and plain:
        program = plain[0]
    scope, _, package = program.rpartition("/")
    bare = re.sub(r"(?<=.)[@:=].*$", "", package or program)
    stem = re.sub(r"\.(py|js|mjs|cjs|ts|exe)$", "", bare)
    name = _AROUND.sub("", stem)
    return fit_name(scope if name in _SAYS_NOTHING and scope else name or stem)


def _name_of_host(host: str) -> str:
    labels = [label for label in host.split(".") if label not in _COMMON_LABELS]
    return fit_name(host if ":" in host or host.replace(".", "").isdigit() or not labels else labels[0])


def _unset(preset: str, source: ExternalToolConfig, environ: Mapping[str, str]) -> Iterator[str]:
    package = PACKAGES[preset]
    if source.auth_type is AuthType.OAUTH2_USER:
        yield f"each user signs in with `toolpost accounts connect {source.name}` and gets a separate process"
    elif package.variable not in environ and source.env.get(package.variable) == f"${{{package.variable}}}":
        client_id, client_secret = _client_variables(package)
        app = KNOWN_PROVIDERS[package.provider].register_at
        yield (
            f"{preset} needs a token: set {package.variable}, or give it with --env {package.variable}=...; or let "
            f"users sign in: set {client_id} and {client_secret} of an OAuth app, registered at {app} "
            f"with the redirect URI {callback_server_url(DEFAULT_PORT)}/{package.provider}"
        )
    for key in package.reads:
        if key not in source.env and key != package.variable:
            yield f"{preset} also reads {key}, which is not set; set it first, or give it with --env {key}=..."


def unsupported_target(what: Sequence[str]) -> ToolError | None:
    """Return the error for a target that cannot be connected, according to its text alone."""
    first = what[0]
    scheme = first.lower().partition("://")[0] if _SCHEME.match(first) else ""
    if scheme in ("ws", "wss"):
        message = "a WebSocket does not describe its messages, so a source cannot be generated for it"
        advice = "write a source with `transport: websocket`"
        return ToolError(f"{message}; {advice}", code="messages_undeclared")
    if scheme in ("http", "https"):
        return None
    if scheme:
        message = f"unsupported scheme {scheme}://; give an address with http:// or https://, or the path of a file"
        return ToolError(message, code="scheme_unknown")
    return _missing_path(first) if len(what) == 1 and len(first.split()) == 1 else None


def is_file_source(source: ExternalToolConfig) -> bool:
    """Return whether the source is, or is described by, a local file; it starts no program."""
    return "file" in describe_transport(source.transport).forms and not is_http_url(source.connection)


def runs_code(source: ExternalToolConfig) -> bool:
    """Return whether a source starts programs on this machine, or runs code of this machine."""
    return describe_transport(source.transport).runs_code(source)


def literal_secrets_of(source: ExternalToolConfig, environ: Mapping[str, str]) -> list[Variable]:
    """Return the literal secrets of a source, without their values."""
    extractor, name = SecretExtractor(environ), source.name
    for key, value in source.env.items():
        extractor.env(name, key, value)
    for key, value in source.headers.items():
        extractor.header(name, key, value)
    if is_http_url(source.connection):
        extractor.login(name, source.connection)
        extractor.url(name, source.connection)
    else:
        with suppress(ValueError):
            extractor.words(name, shlex.split(source.connection))
    for key, value in (*source.auth_config.items(), *source.options.items()):
        if isinstance(value, str) and not value.startswith("env:"):
            extractor.env(name, key, value)
    return [Variable(name=variable.name, stands_for=variable.stands_for) for variable in extractor.variables]


def with_references(source: ExternalToolConfig, environ: Mapping[str, str]) -> ExternalToolConfig:
    """Return a source with references instead of secrets in its environment, headers, credential and options."""
    extractor, name = SecretExtractor(environ), source.name

    def replaced(named: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: extractor.env(name, key, value) if isinstance(value, str) and not value.startswith("env:") else value
            for key, value in named.items()
        }

    changes = {
        "env": replaced(source.env),
        "headers": {key: extractor.header(name, key, value) for key, value in source.headers.items()},
        "auth_config": replaced(source.auth_config),
        "options": replaced(source.options),
    }
    return source.model_copy(update=changes)


def mcp_transport(source: ExternalToolConfig) -> str:
    """Return the transport of an MCP server; `auto` if it is detected."""
    return str(source.options.get("transport", McpTransport.AUTO.value))


def needs_detection(source: ExternalToolConfig) -> bool:
    """Return whether the URL of the source has to be probed; --transport says that it is an MCP server."""
    return is_http_url(source.connection) and mcp_transport(source) == McpTransport.AUTO


async def detect_source(plan: SourcePlan, network: NetworkPolicy | None = None) -> SourcePlan:
    """Return the plan for the source at the URL or in the file; raise a ToolError if it is not recognized.

    `network` is the policy for the requests.
    """
    source = plan.source
    if is_file_source(source):
        return replace(plan, source=_detect_file_source(source), notes=())
    if not needs_detection(source):
        return plan
    filled = with_environment(source, {**os.environ, **plan.secrets()})
    detection = await detect_url(filled.connection, {**filled.headers, **static_credential(filled).headers}, network)
    redactor = Redactor(variable_values(plan))
    if detection.transport is None or detection.detection is None:
        raise ToolError(redactor.text(_not_recognised(detection)), code="not_recognised")
    found = f"{source.name}: {detection.detection.label} ({redactor.text(detection.because)})."
    configured = detection.transport.configure(source, detection.detection)
    advice = detection.transport.advice(configured)
    return replace(plan, source=configured, found=found, notes=(*plan.notes, advice) if advice else plan.notes)


def variable_values(plan: SourcePlan) -> list[str]:
    """Return the values of all variables that the source refers to, for redaction."""
    environ = {**os.environ, **plan.secrets()}
    return [environ[name] for name in unset_variables([plan.source], {}) if name in environ]


def _missing_path(word: str) -> ToolError | None:
    """Return the error for a word that looks like a path or an address and is neither."""
    path = Path(word).expanduser()
    if word in PACKAGES or path.is_file() or shutil.which(word) is not None:
        return None
    if path.is_dir():
        return ToolError(f"{word!r} is a folder; give a file in it, or a command", code="file_missing")
    if not _NO_NAME.search(word):
        return None
    advice = f"; for an address write http://{word}, or https://" if _HOST.match(word) else ""
    return ToolError(f"the file {word!r} does not exist{advice}", code="file_missing")


def _detect_file_source(source: ExternalToolConfig) -> ExternalToolConfig:
    """Configure the source by the content of its file; raise a ToolError if it is not recognized."""
    detection, file = detect_file(source.connection), source.connection
    if detection.transport is not None and detection.detection is not None:
        if source.headers and "url" not in detection.transport.forms:
            raise TargetError(f"{file} does not describe an API; only requests have headers", option="--header")
        return detection.transport.configure(source, detection.detection)
    if detection.kind is not None:
        raise ToolError(f"{file} {detection.because}", code="not_recognised")
    if Path(file).suffix == ".py":
        message = f"{file} contains no tools: it does not import a decorator of toolpost, such as `tool`"
        remedy = f"if it is an MCP server, give its whole command: 'python {file}'"
        raise ToolError(f"{message}; {remedy}", code="not_recognised")
    message = f"{file} is neither an API document nor a UTCP manual ({detection.because})"
    raise ToolError(f"{message}; for a program, give the whole command: 'python {file}'", code="not_recognised")


def _not_recognised(found: Endpoint) -> str:
    tried = ", ".join(probed.url.partition("?")[0] for probed in found.tried)
    if found.kind == "guarded":
        return f"{tried} denied access, and nothing was written: {found.because}"
    return (
        f"{tried.partition(',')[0]} was not recognized, and nothing was written: {found.because}. "
        f"Tried: {tried}. Give the address of an API document. If it is an MCP server, add --transport "
        "streamable_http or sse."
    )


def warn_unpinned(sources: Iterable[ExternalToolConfig]) -> Iterator[str]:
    """Return a warning for each command that runs the newest version of its package."""
    for source in sources:
        package = None if is_http_url(source.connection) else unpinned_package(source.connection)
        if package is not None:
            yield f"{package} has no version, so every start runs the newest one; pin it with {package}@VERSION"


def unset_variables(sources: Iterable[ExternalToolConfig], environ: Mapping[str, str]) -> list[str]:
    """Return the variables that the sources refer to and that are not set."""
    named = (name for source in sources for text in _texts(source_data(source)) for name in references(text))
    return [name for name in dict.fromkeys(named) if name not in environ]


def variable_documents(
    names: Sequence[str], variables: Sequence[Variable], environ: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the variables as JSON data, with their meaning and whether they are set."""
    meanings = {variable.name: variable.stands_for for variable in variables}
    every = dict.fromkeys([*meanings, *names])
    return [{"name": name, "stands_for": meanings.get(name), "set": name in environ} for name in every]


def relative_to_config(source: ExternalToolConfig, config: Path) -> ExternalToolConfig:
    """Return the source with the paths below the folder of the configuration file relative to it."""
    places = {"cwd": source.cwd, "env_file": source.env_file}
    texts = {key: _relative_path(place, config) for key, place in places.items() if place and not references(place)}
    return source.model_copy(update=texts) if texts else source


def _relative_path(place: str, config: Path) -> str:
    path = Path(os.path.abspath(place))  # noqa: PTH100 - resolve() would follow links that are there for a reason
    return str(path.relative_to(config.parent) if path.is_relative_to(config.parent) else path)


def with_relative_paths(source: ExternalToolConfig, path: Path) -> ExternalToolConfig:
    """Return the source with paths below the folder of the configuration relative to it."""
    if not is_file_source(source):
        return relative_to_config(source, path)
    file = Path(os.path.abspath(Path(source.connection).expanduser()))  # noqa: PTH100 - links are there for a reason
    texts = f"./{file.relative_to(path.parent)}" if file.is_relative_to(path.parent) else str(file)
    return source.model_copy(update={"connection": texts})


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    parts = value.values() if is_object(value) else value if is_array(value) else ()
    for part in parts:
        yield from _texts(part)


def missing_requirements(source: ExternalToolConfig, environ: Mapping[str, str]) -> Iterator[str]:
    """Return the missing requirement of a source and its remedy; start nothing."""
    if source.unusable:  # its other fields are not used
        yield source.unusable
        return
    transport = describe_transport(source.transport)
    module, extra = transport.requires or ("", "")
    if module and find_spec(module) is None:
        yield f"{source.transport} sources need the extra {extra}: pip install 'toolpost[{extra}]'"
    yield from _missing_program(source, transport.required_program(source), environ)
    if "module" in transport.forms and source.connection.endswith(".py"):
        file = Path(source.connection).expanduser()
        if not file.is_file():
            yield f"the file {source.connection} does not exist"


def _missing_program(source: ExternalToolConfig, program: str, environ: Mapping[str, str]) -> Iterator[str]:
    if not program:
        return
    if os.sep in program and source.cwd is not None:
        program = str(Path(source.cwd, program))
    path = source.env.get("PATH") or environ.get("PATH")
    if program not in _OUR_OWN and shutil.which(program, path=path) is None:
        yield f"{program} is not on the PATH; install it first{_INSTALL.get(program, '')}"


def only_source(settings: Settings, name: str) -> Settings:
    """Return settings with one source, no built-in tools and no data folder, to connect this source once."""
    return settings.model_copy(
        update={
            "data_dir": None,
            "builtins": "none",
            "collections": {},
            "sources": [source for source in settings.sources if source.name == name],
            "tools": settings.tools.model_copy(update={"mcp_servers": []}),
        }
    )


def source_document(source: ExternalToolConfig) -> dict[str, Any]:
    """Return the source as JSON data, with only the names of variables and headers."""
    return {
        "name": source.name,
        "description": source.description,
        "transport": source.transport,
        "mcp_transport": mcp_transport(source),
        "connection": source.connection,
        "env": list(source.env),
        "headers": list(source.headers),
        "cwd": source.cwd,
        "enabled": source.enabled,
    }


class ImportPlan(Struct, frozen=True, kw_only=True):
    """Sources that a file of another program would add to the configuration."""

    file: Path
    path: Path
    new: list[ExternalToolConfig]
    skipped: list[str]
    imported: ImportedServers
    trusted: list[str] = field(default_factory=list[str])

    def notes(self) -> list[str]:
        there = [
            f"{name}: skipped, because {self.path.name} already has a source of that name" for name in self.skipped
        ]
        return [*self.imported.notes, *there, *warn_unpinned(self.new)]

    def to_dict(self, status: str) -> dict[str, Any]:
        environ = environment(self.path.parent)
        missing = unset_variables(self.new, environ)
        return {
            "status": status,
            "file": str(self.file),
            "config": str(self.path),
            "written": status != "dry_run" and bool(self.new),
            "sources": [source_document(source) for source in self.new],
            "skipped": self.skipped,
            "variables": variable_documents(missing, self.imported.variables, environ),
            "notes": self.notes(),
            "trusted": self.trusted,
            "error": None,
        }


def plan_import(file: Path, path: Path) -> ImportPlan:
    """Plan to add the servers of a file to the configuration file at `path`; start and write nothing."""
    imported = read_servers(file)
    settings = load_leniently(path, os.environ)
    taken = {source.name for source in settings.all_sources()} if settings else set[str]()
    return ImportPlan(
        file=file,
        path=path,
        new=[relative_to_config(source, path) for source in imported.sources if source.name not in taken],
        skipped=[source.name for source in imported.sources if source.name in taken],
        imported=imported,
    )
