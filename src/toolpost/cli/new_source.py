"""Connect a source from the command line: detect what is there, show it, write it once confirmed, and connect it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import typer
from msgspec import Struct, field
from msgspec.structs import replace

from toolpost.auth.credentials import static_credential, with_environment
from toolpost.auth.providers import KNOWN_PROVIDERS
from toolpost.catalog.lock import Lock, Pin
from toolpost.catalog.specs import describe_claims, read_claims, trust_loosens
from toolpost.cli.commands import CommonOptions
from toolpost.cli.documents import document_hint
from toolpost.cli.output import Output, show_tools
from toolpost.cli.prompts import confirm, is_interactive, require_confirmation
from toolpost.cli.runner import describe_failure, every_source, open_in_memory, progress_sinks
from toolpost.configuration.file_editor import (
    InsertionError,
    add_sources,
    config_path,
    load_leniently,
    mark_trusted,
    snippet,
    source_data,
)
from toolpost.configuration.loading import LoadedSettings, environment, load_settings, with_only
from toolpost.configuration.secret_extraction import SecretExtractor, Variable, references
from toolpost.configuration.settings import Settings
from toolpost.connecting.client_files import (
    NO_SERVERS,
    ImportedServers,
    fit_name,
    names_a_relative_path,
    read_servers,
    usual_places,
)
from toolpost.connecting.endpoint_detection import Endpoint, detect_file, detect_url, is_document
from toolpost.connecting.packages import Package
from toolpost.connecting.presets import PACKAGES, pinned_preset, unknown_preset, unpinned_package
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError, ToolConnectionError, ToolError
from toolpost.contracts.http_syntax import TOKEN
from toolpost.contracts.records import represent
from toolpost.contracts.source_kinds import AuthType, McpTransport, TransportType
from toolpost.contracts.spec import ToolSpec
from toolpost.policy.redaction import Redactor
from toolpost.processes.network_variables import network_variables
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.registry import describe_transport
from toolpost.wire.callback_server import DEFAULT_PORT, callback_server_url
from toolpost.wire.targets import is_http_url

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
_OUR_OWN = frozenset({"python", "python3"})  # the running interpreter stands in for it


class ConnectArguments(Struct, frozen=True, kw_only=True):
    """Arguments of `tools connect` as given."""

    words: Sequence[str]
    name: str | None = None
    env: Sequence[str] = ()
    headers: Sequence[str] = ()
    cwd: Path | None = None
    transport: McpTransport = McpTransport.AUTO

    def __repr__(self) -> str:
        return represent(self, without=("env", "headers"))


class SourcePlan(Struct, frozen=True, kw_only=True):
    """Source to be written, the variables that replace its secrets, and notes for the person who confirms."""

    source: ExternalToolConfig
    variables: tuple[Variable, ...] = ()
    notes: tuple[str, ...] = ()

    def secrets(self) -> dict[str, str]:
        """Return the values of the variables, for the one connection that is made now."""
        return {variable.name: variable.value for variable in self.variables if variable.value is not None}


def plan_source(arguments: ConnectArguments) -> SourcePlan | ToolError:
    """Plan a source; return the error for a target that cannot be connected, raise one for a wrong command line."""
    refused = unsupported_target(arguments.words)
    if refused is not None:
        return refused
    try:
        return make_plan(arguments, os.environ)
    except ToolError as error:
        return error


def make_plan(arguments: ConnectArguments, environ: Mapping[str, str]) -> SourcePlan:
    """Plan a source; raise a BadParameter for a wrong command line, a ToolError for an unknown preset."""
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


def _refuse_for_url(arguments: ConnectArguments, rest: Sequence[str]) -> None:
    if rest:
        raise typer.BadParameter("a URL takes no further words; is a header without its quotes?", param_hint="WHAT")
    if arguments.env or arguments.cwd is not None:
        raise typer.BadParameter("only a program has one; a URL has headers", param_hint="--env, --cwd")
    if arguments.transport is McpTransport.STDIO:
        raise typer.BadParameter("a URL cannot use stdio", param_hint="--transport")


def _remote(arguments: ConnectArguments, url: str, extractor: SecretExtractor) -> ExternalToolConfig:
    if not urlsplit(url).hostname:
        raise typer.BadParameter("the URL has no host", param_hint="WHAT")
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


def _refuse_for_document(arguments: ConnectArguments) -> None:
    if arguments.env or arguments.cwd is not None:
        raise typer.BadParameter("only a program has one", param_hint="--env, --cwd")
    if arguments.transport is not McpTransport.AUTO:
        raise typer.BadParameter("only an MCP server has one, and this is a file", param_hint="--transport")


def _document(arguments: ConnectArguments, file: str, extractor: SecretExtractor) -> ExternalToolConfig:
    """Build the source for the file of an API document."""
    name = _name(arguments, fit_name(PurePosixPath(file).name.partition(".")[0]))
    headers = {key: extractor.header(name, key, value) for key, value in _headers(arguments.headers)}
    return ExternalToolConfig(name=name, transport=TransportType.HTTP, connection=file, headers=headers)


def _preset(
    wanted: ConnectArguments,
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


def _program(arguments: ConnectArguments, words: Sequence[str], extractor: SecretExtractor) -> ExternalToolConfig:
    _refuse_for_program(arguments)
    name = _name(arguments, _name_of_command(words))
    return ExternalToolConfig(
        name=name,
        transport=TransportType.MCP,
        connection=shlex.join(extractor.words(name, words)),
        env=_env(arguments, name, extractor),
        cwd=_cwd(arguments, words),
    )


def _refuse_for_program(arguments: ConnectArguments) -> None:
    if arguments.headers:
        raise typer.BadParameter("only a URL has headers; a program has --env", param_hint="--header")
    if arguments.transport not in (McpTransport.AUTO, McpTransport.STDIO):
        raise typer.BadParameter(f"a program uses stdio, not {arguments.transport}", param_hint="--transport")


def _command_words(words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Split a single word as a shell does; raise a ToolError for a single word that is not a program."""
    if len(words) > 1:
        return list(words)
    try:
        split = shlex.split(words[0])
    except ValueError as error:
        raise typer.BadParameter(f"this cannot be split into words: {error}", param_hint="WHAT") from None
    if not split:
        raise typer.BadParameter("give a preset, a command or a URL", param_hint="WHAT")
    if len(split) == 1 and shutil.which(split[0], path=environ.get("PATH")) is None:
        message = f"{unknown_preset(split[0])}. No program has this name either."
        raise ToolError(message, code="preset_unknown")
    return split


def _env(arguments: ConnectArguments, name: str, extractor: SecretExtractor) -> dict[str, str]:
    return {key: extractor.env(name, key, value) for key, value in _variables(arguments.env)}


def _variables(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for pair in texts:
        key, equals, value = pair.partition("=")
        if not _VARIABLE.fullmatch(key):
            raise typer.BadParameter("write NAME=VALUE, or NAME to pass on your own", param_hint="--env")
        yield key, _escaped(value) if equals else f"${{{key}}}"


def _headers(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for pair in texts:
        key, colon, value = pair.partition(":")
        if not colon or not _HEADER.fullmatch(key.strip()):
            raise typer.BadParameter("write 'Name: value'", param_hint="--header")
        yield key.strip(), _escaped(value.strip())


def _escaped(value: str) -> str:
    """Escape `${` in a text that has no references to variables."""
    return value if references(value) else value.replace("${", "$${")


def _cwd(arguments: ConnectArguments, words: Sequence[str]) -> str | None:
    """Return the working directory: the given one, or the current one where the command names a relative path."""
    if arguments.cwd is None:
        return str(Path.cwd()) if names_a_relative_path(words, Path.cwd()) else None
    if not arguments.cwd.is_dir():
        raise typer.BadParameter(f"{str(arguments.cwd)!r} is not a folder", param_hint="--cwd")
    return str(arguments.cwd.absolute())


def _name(arguments: ConnectArguments, derived: str) -> str:
    if arguments.name is None:
        return derived
    if fit_name(arguments.name) != arguments.name:
        raise typer.BadParameter(
            f"a name consists of letters, digits, _ and -, such as {fit_name(arguments.name)}", param_hint="--name"
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
    """Return the error for a target that cannot be connected, as far as its text alone shows."""
    first = what[0]
    scheme = first.lower().partition("://")[0] if _SCHEME.match(first) else ""
    if scheme in ("ws", "wss"):
        message = "a WebSocket does not describe its messages, so a source cannot be generated for it"
        advice = f"write a source with `transport: websocket`: {document_hint('websockets.md')}"
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


def _mcp_transport(source: ExternalToolConfig) -> str:
    return str(source.options.get("transport", McpTransport.AUTO.value))


def needs_detection(source: ExternalToolConfig) -> bool:
    """Return whether the URL of the source has to be probed; --transport says that it is an MCP server."""
    return is_http_url(source.connection) and _mcp_transport(source) == McpTransport.AUTO


async def detect_source(plan: SourcePlan, output: Output) -> SourcePlan:
    """Return the plan for what is at the URL or in the file; raise a ToolError if it is not recognized."""
    source = plan.source
    if is_file_source(source):
        return replace(plan, source=_detect_file_source(source), notes=())
    if not needs_detection(source):
        return plan
    filled = with_environment(source, {**os.environ, **plan.secrets()})
    detection = await detect_url(filled.connection, {**filled.headers, **static_credential(filled).headers})
    redactor = Redactor(variable_values(plan))
    if detection.transport is None or detection.detection is None:
        raise ToolError(redactor.text(_not_recognised(detection)), code="not_recognised")
    output.note(f"{source.name}: {detection.detection.label} ({redactor.text(detection.because)}).")
    configured = detection.transport.configure(source, detection.detection)
    advice = detection.transport.advice(configured)
    return replace(plan, source=configured, notes=(*plan.notes, advice) if advice else plan.notes)


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
            raise typer.BadParameter(
                f"{file} does not describe an API; only requests have headers", param_hint="--header"
            )
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
    tried = ", ".join(address.partition("?")[0] for address in found.tried)
    if found.kind == "guarded":
        return f"{tried} denied access, and nothing was written: {found.because}"
    return (
        f"{tried.partition(',')[0]} was not recognized, and nothing was written: {found.because}. "
        f"Tried: {tried}. Give the address of an API document. If it is an MCP server, add --transport "
        "streamable_http or sse."
    )


def escape_invisible(text: str) -> str:
    """Escape every character of a text that is not printable."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def describe_source(source: ExternalToolConfig) -> Iterator[str]:
    """Describe what the source starts or reaches, and with which variables, headers and credentials."""
    yield f"{source.name} {_verb(source)}"
    yield f"  {escape_invisible(source.connection)}"
    if source.env:
        yield f"with the environment variables {', '.join(map(escape_invisible, source.env))}"
    if describe_transport(source.transport).starts_program(source):
        yield from describe_inherited(source.env)
    if source.headers:
        yield f"with the headers {', '.join(map(escape_invisible, source.headers))}"
    if source.auth_type is not AuthType.NONE:
        yield f"with the credentials of auth_type {source.auth_type.value}"
    if source.cwd is not None:
        yield f"in the folder {escape_invisible(source.cwd)}"


def describe_inherited(given: Collection[str] = ()) -> Iterator[str]:
    """Describe which variables for the network a started program inherits, beside those that are `given` to it."""
    passed_on, withheld = network_variables()
    names = [name for name in passed_on if name not in given]
    if names:
        yield f"with these variables of the environment: {', '.join(names)}"
    if kept := [name for name in withheld if name not in given]:
        yield f"without {', '.join(kept)}, because of credentials; to pass a variable on, name it in `env`"


def _verb(source: ExternalToolConfig) -> str:
    forms = describe_transport(source.transport).forms
    if "module" in forms:
        return "runs the Python in this file:"
    if is_http_url(source.connection) or not {"file", "command"}.intersection(forms):
        return "is reached at"
    return "is described by this file:" if "file" in forms else "starts this program on this machine:"


def source_row(source: ExternalToolConfig) -> tuple[str, str, str, str]:
    """Return the source as a row of a table."""
    names = [*source.env, *source.headers]
    return (
        source.name,
        escape_invisible(source.connection),
        ", ".join(map(escape_invisible, names)) or "-",
        "yes" if source.enabled else "no",
    )


def source_document(source: ExternalToolConfig) -> dict[str, Any]:
    """Return the source as JSON data; of variables and headers it has the names only."""
    return {
        "name": source.name,
        "description": source.description,
        "transport": source.transport,
        "mcp_transport": _mcp_transport(source),
        "connection": source.connection,
        "env": list(source.env),
        "headers": list(source.headers),
        "cwd": source.cwd,
        "enabled": source.enabled,
    }


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
    """Return the source with its paths relative to the configuration file, where they lie below its folder."""
    places = {"cwd": source.cwd, "env_file": source.env_file}
    texts = {key: _relative_path(place, config) for key, place in places.items() if place and not references(place)}
    return source.model_copy(update=texts) if texts else source


def _relative_path(place: str, config: Path) -> str:
    path = Path(os.path.abspath(place))  # noqa: PTH100 - resolve() would follow links that are there for a reason
    return str(path.relative_to(config.parent) if path.is_relative_to(config.parent) else path)


def write_sources(
    sources: Sequence[ExternalToolConfig], path: Path, output: Output, *, secrets: Mapping[str, str]
) -> Settings:
    """Add sources to the configuration file; where that is impossible, print the text to paste and raise."""
    try:
        return add_sources(path, sources, environ={**os.environ, **secrets})
    except InsertionError as error:
        output.note(error.snippet.rstrip())
        raise ConfigError(str(error), code="insertion_impossible") from error


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    parts = value.values() if is_object(value) else value if is_array(value) else ()
    for part in parts:
        yield from _texts(part)


def missing_requirements(source: ExternalToolConfig, environ: Mapping[str, str]) -> Iterator[str]:
    """Return what keeps a source from starting, and how to get it; starts nothing."""
    if source.unusable:  # its other fields mean nothing
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


async def connect_source(
    plan: SourcePlan | ToolError,
    config: Path | None,
    output: Output,
    *,
    yes: bool,
    trust: bool,
    force: bool,
    dry_run: bool,
) -> int:
    """Show a plan, ask for confirmation, write the source and connect it once; return the exit code."""
    if isinstance(plan, ToolError):
        raise plan
    path = config_path(config)
    output.interruption = f"nothing was written to {path.name}, and no server was added."
    if needs_detection(plan.source):
        _refuse_unset(plan, path)
    plan = await detect_source(plan, output)
    source = _with_relative_paths(plan.source, path)
    _refuse_taken(source.name, load_leniently(path, os.environ), path)
    _show_plan(plan, source, path, output)
    if dry_run:
        return _finish(output, plan, path, status="dry_run")
    _refuse_unset(plan, path)
    _refuse_missing_requirements(plan.source, force=force)
    require_confirmation(f"Write this to {path.name}, and connect it once?", yes=yes)
    settings = write_sources([source], path, output, secrets=plan.secrets())
    output.interruption = f"{source.name!r} is in {path.name} now and is not connected. {_next_steps(source, path)}"
    _report_variables(plan, path, output)
    return await _connect_once(plan, settings, path, output, trust=trust, yes=yes)


def _refuse_taken(name: str, settings: Settings | None, path: Path) -> None:
    taken = {source.name for source in settings.all_sources()} if settings else set[str]()
    if name in taken:
        raise ToolError(f"{path.name} already has a source named {name!r}; give another name with --name", code="taken")


def _refuse_unset(plan: SourcePlan, path: Path) -> None:
    """Raise a ToolError when the source refers to variables that are not set."""
    # Every other command would leave such a source out from then on.
    missing = unset_variables([plan.source], {**environment(path.parent), **plan.secrets()})
    if missing:
        unset = f"variables that are not set: {', '.join(missing)}; set them first"
        advice = "" if is_http_url(plan.source.connection) else f", or give --env {missing[0]}=..."
        raise ToolError(f"{unset}{advice}", code="variable_unset")


def _refuse_missing_requirements(source: ExternalToolConfig, *, force: bool) -> None:
    """Raise a ToolError when the source is known not to start, unless `force` is set."""
    missing = list(missing_requirements(source, os.environ))
    if missing and not force:
        message = f"{source.name!r} cannot start, and nothing was written: {'; '.join(missing)}"
        raise ToolError(f"{message}. With --force, it is written nevertheless.", code="cannot_start")


def _with_relative_paths(source: ExternalToolConfig, path: Path) -> ExternalToolConfig:
    """Return the source with paths below the folder of the configuration relative to it."""
    if not is_file_source(source):
        return relative_to_config(source, path)
    file = Path(os.path.abspath(Path(source.connection).expanduser()))  # noqa: PTH100 - links are there for a reason
    texts = f"./{file.relative_to(path.parent)}" if file.is_relative_to(path.parent) else str(file)
    return source.model_copy(update={"connection": texts})


def _show_plan(plan: SourcePlan, source: ExternalToolConfig, path: Path, output: Output) -> None:
    """Show the planned changes; on stderr if stdout is for JSON."""
    lines = [*describe_source(plan.source), f"to be written to {path}", snippet([source]).rstrip()]
    output.announce("\n".join(lines))
    for note in plan.notes:
        output.note(note)


def _report_variables(plan: SourcePlan, path: Path, output: Output) -> None:
    for variable in plan.variables:
        output.note(f"A secret was kept out of {path.name}: {variable.stands_for}. Set {variable.name} to it.")
    if unset_variables([plan.source], environment(path.parent)):
        output.note(f"Until then, commands skip {plan.source.name}. You can also set it in .env beside the file.")


async def _connect_once(
    plan: SourcePlan, settings: Settings, path: Path, output: Output, *, trust: bool, yes: bool
) -> int:
    """Connect this source alone without a data folder, show its tools, and ask whether it is trusted."""
    name, redactor = plan.source.name, Redactor(variable_values(plan))
    loaded = LoadedSettings(settings=_only_source(settings, name), path=path, secrets=frozenset(variable_values(plan)))
    async with every_source(loaded, progress_sinks(output)) as box:
        specs = [spec for spec in box.registry.specs() if spec.source == name]
        error = next(
            (describe_failure(state, box) for state in box.report if state.name == name and not state.ok), None
        )
        problems = [redactor.text(problem) for problem in box.sources.index.problems]
        pins = box.sources.index.pins(name)
    for problem in problems:
        output.note(problem)
    if error is not None:
        return _report_failure(plan, redactor.text(error), path, output)
    output.interruption = f"{name!r} is in {path.name} now, can be connected, and is not trusted."
    if not output.as_json:
        show_tools(specs, output)
    trusted = _ask_trust(name, specs, output, trust=trust, yes=yes)
    if trusted:
        _write_trust(name, path, pins, settings.lock, output, secrets=plan.secrets())
    return _finish(output, plan, path, status="ok", specs=specs, trusted=trusted)


def _only_source(settings: Settings, name: str) -> Settings:
    return settings.model_copy(
        update={
            "data_dir": None,
            "builtins": "none",
            "collections": {},
            "sources": [source for source in settings.sources if source.name == name],
            "tools": settings.tools.model_copy(update={"mcp_servers": []}),
        }
    )


def _report_failure(plan: SourcePlan, error: str, path: Path, output: Output) -> int:
    output.note(f"{plan.source.name!r} is in {path.name} now, but cannot be connected: {error}")
    output.note(_next_steps(plan.source, path))
    return _finish(output, plan, path, status="failed", error=ToolConnectionError(error))


def _next_steps(source: ExternalToolConfig, path: Path) -> str:
    """Name the commands for a source that is in the configuration and not connected."""
    options = CommonOptions(None if path == config_path(None) else path)
    retry = f"`toolpost config check --connect{options}` tries again"
    return f"{retry}, `toolpost tools disconnect {source.name}{options}` removes it."


def _finish(
    output: Output,
    plan: SourcePlan,
    path: Path,
    *,
    status: str,
    specs: Sequence[ToolSpec] = (),
    trusted: bool = False,
    error: ToolError | None = None,
) -> int:
    if output.as_json:
        environ = environment(path.parent)
        output.document(
            {
                "status": status,
                "config": str(path),
                "written": status != "dry_run",
                "source": {**source_document(plan.source), "auth_type": plan.source.auth_type.value},
                "variables": variable_documents(unset_variables([plan.source], environ), plan.variables, environ),
                "notes": list(plan.notes),
                "tools": [spec.to_dict() for spec in specs],
                "claims": [{"tool": spec.name, "claims": describe_claims(read_claims(spec))} for spec in specs],
                "trusted": trusted,
                "error": None if error is None else error.to_dict(),
            }
        )
    return int(status == "failed")


class _ImportPlan(Struct, frozen=True, kw_only=True):
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


def list_importable(folder: Path, output: Output) -> int:
    """List the files that hold servers, in the working folder and in the usual places of other programs."""
    listings = [_list_servers(path) for path in usual_places(folder)]
    listed = [item for item in listings if item["servers"] or item["error"]]
    if output.as_json:
        output.document(listed)
        return 0
    if not listed:
        output.note(
            "No file with MCP servers was found in this folder or the usual places; give one: `toolpost import FILE`."
        )
        return 0
    output.table(["File", "Servers"], [(item["file"], item["error"] or ", ".join(item["servers"])) for item in listed])
    output.note("`toolpost import FILE` imports the servers of one.")
    return 0


async def import_file(file: Path, config: Path | None, output: Output, *, yes: bool, trust: bool, dry_run: bool) -> int:
    """Show the servers of a file and, after a confirmation, write them; return the exit code."""
    plan = _plan_import(file, config_path(config))
    output.interruption = f"nothing was written to {plan.path.name}."
    _show_import(plan, output)
    if dry_run:
        if plan.new and not output.as_json:
            output.text(snippet(plan.new).rstrip())
        return _finish_import(plan, output, "dry_run")
    if plan.new:
        require_confirmation(f"Write {_count(plan.new)} to {plan.path.name}?", yes=yes)
        write_sources(plan.new, plan.path, output, secrets={})
        output.interruption = f"{_count(plan.new)} written to {plan.path.name}; nothing else was written."
        _report_next_steps(plan, output)
        if trust or (not yes and _ask_connect(plan, output)):
            return await _trust_imported(plan, output, trust=trust, yes=yes)
    return _finish_import(plan, output, "ok")


def _ask_connect(plan: _ImportPlan, output: Output) -> bool:
    """Ask whether the new sources are connected now; False without a terminal or with unset variables."""
    if output.as_json or unset_variables(plan.new, environment(plan.path.parent)) or not is_interactive():
        return False
    return confirm("Connect them once to see their tool annotations? This starts the commands above.", yes=False)


async def _trust_imported(plan: _ImportPlan, output: Output, *, trust: bool, yes: bool) -> int:
    """Connect the new sources, show the claims of each, and write which are trusted."""
    if missing := unset_variables(plan.new, environment(plan.path.parent)):
        unset = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set"
        output.note(f"None of them is trusted, because {unset}; add `trust: true` yourself, and run `toolpost lock`.")
        return _finish_import(plan, output, "failed") or 1
    loaded = load_settings(plan.path)
    names = {source.name for source in plan.new if source.enabled}
    failed: list[str] = []
    async with open_in_memory(with_only(loaded, names), output) as box:
        for state in box.report:
            if not state.ok:
                failed.append(state.name)
                output.note(
                    f"{state.name!r} is not trusted, because it cannot be connected: {describe_failure(state, box)}"
                )
                continue
            specs = [spec for spec in box.registry.specs() if spec.source == state.name]
            if _ask_trust(state.name, specs, output, trust=trust, yes=yes):
                pins = box.sources.index.pins(state.name)
                _write_trust(state.name, plan.path, pins, loaded.settings.lock, output, secrets={})
                plan.trusted.append(state.name)
    return _finish_import(plan, output, "failed" if failed else "ok") or int(bool(failed))


def _list_servers(path: Path) -> dict[str, Any]:
    try:
        names = [source.name for source in read_servers(path).sources]
    except ConfigError as error:
        empty = error.error_code == NO_SERVERS  # the settings of a program, which may well list none
        return {"file": str(path), "servers": [], "error": None if empty else str(error)}
    return {"file": str(path), "servers": names, "error": None}


def _plan_import(file: Path, path: Path) -> _ImportPlan:
    imported = read_servers(file)
    settings = load_leniently(path, os.environ)
    taken = {source.name for source in settings.all_sources()} if settings else set[str]()
    return _ImportPlan(
        file=file,
        path=path,
        new=[relative_to_config(source, path) for source in imported.sources if source.name not in taken],
        skipped=[source.name for source in imported.sources if source.name in taken],
        imported=imported,
    )


def _show_import(plan: _ImportPlan, output: Output) -> None:
    if plan.new and not output.as_json:
        output.table(["Source", "Command or URL", "Variables, headers", "Enabled"], map(source_row, plan.new))
    for note in plan.notes():
        output.note(note)
    if not plan.new:
        output.note(f"{plan.file} contains no new sources for {plan.path.name}.")


def _report_next_steps(plan: _ImportPlan, output: Output) -> None:
    output.note(f"{_count(plan.new)} written to {plan.path.name}; nothing was started.")
    meanings = {variable.name: variable.stands_for for variable in plan.imported.variables}
    environ = environment(plan.path.parent)
    for name in unset_variables(plan.new, environ):
        output.note(f"Set {name}: {meanings.get(name, f'{plan.file.name} refers to it')}.")
    lacking = [source.name for source in plan.new if unset_variables([source], environ)]
    if lacking:
        output.note(f"Until then, commands skip {', '.join(lacking)}. You can also set them in .env beside the file.")
    else:
        output.note("`toolpost config check --connect` connects them.")


def _finish_import(plan: _ImportPlan, output: Output, status: str) -> int:
    """Print the document of an import; return 1 if no server of the file can be used."""
    if output.as_json:
        output.document(plan.to_dict(status))
    return int(bool(plan.imported.notes) and not plan.imported.sources)


def _count(sources: Sequence[ExternalToolConfig]) -> str:
    return "1 source" if len(sources) == 1 else f"{len(sources)} sources"


def _ask_trust(name: str, specs: Sequence[ToolSpec], output: Output, *, trust: bool, yes: bool) -> bool:
    """Show the tool annotations of a source, and return whether they are trusted."""
    loosened = [spec for spec in specs if trust_loosens(read_claims(spec))]
    if loosened:
        _show_claims(name, specs, output)
    if trust:
        return True
    if not loosened:
        return False
    if yes or not is_interactive():
        message = f"{name} is not trusted: its tool annotations do not apply."
        output.note(f"{message} To trust it, use `trust: true` in the configuration, or --trust here.")
        return False
    output.status.clear()
    return confirm(
        f"Trust {name}? Its tool annotations then apply, and its tools are pinned as they are now.", yes=False
    )


def _show_claims(name: str, specs: Sequence[ToolSpec], output: Output) -> None:
    """Show the claims of a source about each of its tools."""
    rows = [
        (spec.name, describe_claims(read_claims(spec)) or "nothing", spec.description.partition("\n")[0])
        for spec in specs
    ]
    if output.as_json:
        output.note(
            "\n".join([f"Annotations of the tools of {name}:", *(f"  {tool}: {claims}" for tool, claims, _ in rows)])
        )
    else:
        output.table(["Tool", f"Annotations of {name}", "Description"], rows)


def _write_trust(
    name: str, path: Path, pins: dict[str, Pin], lock: Path | None, output: Output, *, secrets: Mapping[str, str]
) -> None:
    """Write `trust: true` to the configuration, and the pins of the tools to the lock file."""
    mark_trusted(path, name, environ={**os.environ, **secrets})
    if lock is None:
        output.note(f"{name} is trusted in {path.name}; pinning is disabled by `lock: null`.")
        return
    lock_file = Lock(lock)
    lock_file.write({**lock_file.sources, name: pins})
    output.note(f"{name} is trusted in {path.name}; its tools are pinned in {lock.name}, commit both.")
