"""Plan a source: read the command line of `tools connect`, detect what is there, and describe the source."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import typer

from toolpost.auth.credentials import static_credential, with_environment
from toolpost.auth.providers import KNOWN_PROVIDERS
from toolpost.cli.output import Output
from toolpost.configuration.file_editor import InsertionError, add_sources, source_data
from toolpost.configuration.secret_extraction import SecretExtractor, Variable, references
from toolpost.configuration.settings import Settings
from toolpost.connecting.client_files import fit_name, names_a_relative_path
from toolpost.connecting.endpoint_detection import Endpoint, detect_file, detect_url, is_document
from toolpost.connecting.presets import PACKAGES, Package, pinned_preset, unknown_preset, unpinned_package
from toolpost.contracts.config import AuthType, ExternalToolConfig, McpOptions, McpTransport, TransportType
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.policy.redaction import Redactor
from toolpost.schema.json_values import is_array, is_object
from toolpost.transports.registry import describe_transport
from toolpost.wire.callback_server import DEFAULT_PORT, callback_server_url

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_NO_NAME = re.compile(r"[/\\.:]")
_HOST = re.compile(r"localhost\b|[\w.-]+:\d|([\w-]+\.){2}|[\w-]+\.[\w-]+/")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LAUNCHERS = frozenset({"npx", "uvx", "bunx", "pipx", "node", "python", "python3", "py", "deno", "bun", "uv", "pnpm"})
_CONTAINERS = frozenset({"docker", "podman"})
_VERBS = frozenset({"run", "dlx", "exec", "tool", "x"})
_AROUND = re.compile(r"^(mcp-server-|server-|mcp-)|(-mcp-server|-mcp|-server)$")
_SAYS_NOTHING = frozenset({"", "mcp", "server", "index", "main", "cli"})
_COMMON_LABELS = frozenset({"mcp", "www", "api", "app", "server"})
_INSTALL = {"uvx": " (it comes with uv: pip install uv)", "npx": " (it comes with Node.js)"}
_OUR_OWN = frozenset({"python", "python3"})  # the running interpreter stands in for it


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectArguments:
    """Arguments of `tools connect` as given."""

    words: Sequence[str]
    name: str | None = None
    env: Sequence[str] = field(default=(), repr=False)
    headers: Sequence[str] = field(default=(), repr=False)
    cwd: Path | None = None
    transport: McpTransport = McpTransport.AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlan:
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


def make_plan(wanted: ConnectArguments, environ: Mapping[str, str]) -> SourcePlan:
    """Plan a source; raise a BadParameter for a wrong command line, a ToolError for an unknown preset."""
    extractor = SecretExtractor(environ)
    first, *rest = wanted.words
    if first.lower().startswith(("http://", "https://")):
        _refuse_for_url(wanted, rest)
        source = _remote(wanted, first, extractor)
        notes: list[str] = []
    elif first in PACKAGES:
        source = _preset(wanted, first, rest, extractor, environ)
        notes = list(_unset(first, source, environ))
    elif not rest and is_document(first):
        _refuse_for_program(wanted)
        source = _document(wanted, first)
        notes = []
    else:
        source = _program(wanted, _command_words(wanted.words, environ), extractor)
        notes = list(warn_unpinned([source]))
    notes += missing_requirements(source, environ)
    return SourcePlan(source=source, variables=tuple(extractor.variables), notes=tuple(notes))


def _refuse_for_url(wanted: ConnectArguments, rest: Sequence[str]) -> None:
    if rest:
        raise typer.BadParameter("a URL stands alone; is a header without its quotes?", param_hint="WHAT")
    if wanted.env or wanted.cwd is not None:
        raise typer.BadParameter("only a program that is started has one; a URL has headers", param_hint="--env, --cwd")
    if wanted.transport is McpTransport.STDIO:
        raise typer.BadParameter("a URL is not reached over stdio", param_hint="--transport")


def _remote(wanted: ConnectArguments, url: str, extractor: SecretExtractor) -> ExternalToolConfig:
    if not urlsplit(url).hostname:
        raise typer.BadParameter("the URL names no host", param_hint="WHAT")
    name = _name(wanted, _name_of_host(urlsplit(url).hostname or ""))
    address, login = extractor.login(name, url)
    fields: dict[str, Any] = {"auth_type": AuthType.BASIC, "auth_config": login} if login else {}
    return ExternalToolConfig(
        name=name,
        transport=TransportType.MCP,
        connection=extractor.url(name, address),
        headers={key: extractor.header(name, key, value) for key, value in _headers(wanted.headers)},
        mcp=McpOptions(transport=wanted.transport),
        **fields,
    )


def _document(wanted: ConnectArguments, file: str) -> ExternalToolConfig:
    """Build the source for the file of an API document."""
    name = _name(wanted, fit_name(PurePosixPath(file).name.partition(".")[0]))
    return ExternalToolConfig(name=name, transport=TransportType.HTTP, connection=file)


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
    given = _env(wanted, name, extractor)
    handed_on = {key: f"${{{key}}}" for key in PACKAGES[preset].reads if key in environ}
    words = shlex.split(pinned.connection)
    for key, value in given.items():
        words = [word.replace(f"${{{key}}}", value) for word in words]
    env = {**pinned.env, **handed_on, **given}
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


def _program(wanted: ConnectArguments, words: Sequence[str], extractor: SecretExtractor) -> ExternalToolConfig:
    _refuse_for_program(wanted)
    name = _name(wanted, _name_of_command(words))
    return ExternalToolConfig(
        name=name,
        transport=TransportType.MCP,
        connection=shlex.join(extractor.words(name, words)),
        env=_env(wanted, name, extractor),
        cwd=_cwd(wanted, words),
    )


def _refuse_for_program(wanted: ConnectArguments) -> None:
    if wanted.headers:
        raise typer.BadParameter("only a URL has headers; a program has --env", param_hint="--header")
    if wanted.transport not in (McpTransport.AUTO, McpTransport.STDIO):
        raise typer.BadParameter(f"a program is reached over stdio, not {wanted.transport}", param_hint="--transport")


def _command_words(words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Split a single word as a shell does; raise a ToolError for a lone word that is no program."""
    if len(words) > 1:
        return list(words)
    try:
        split = shlex.split(words[0])
    except ValueError as error:
        raise typer.BadParameter(f"this cannot be split into words: {error}", param_hint="WHAT") from None
    if not split:
        raise typer.BadParameter("give a preset, a command or a URL", param_hint="WHAT")
    if len(split) == 1 and shutil.which(split[0], path=environ.get("PATH")) is None:
        message = f"{unknown_preset(split[0])}. There is no program of that name either."
        raise ToolError(message, code="preset_unknown")
    return split


def _env(wanted: ConnectArguments, name: str, extractor: SecretExtractor) -> dict[str, str]:
    return {key: extractor.env(name, key, value) for key, value in _variables(wanted.env)}


def _variables(written: Sequence[str]) -> Iterator[tuple[str, str]]:
    for pair in written:
        key, equals, value = pair.partition("=")
        if not _VARIABLE.fullmatch(key):
            raise typer.BadParameter("write NAME=VALUE, or NAME to hand on your own", param_hint="--env")
        yield key, _escaped(value) if equals else f"${{{key}}}"


def _headers(written: Sequence[str]) -> Iterator[tuple[str, str]]:
    for pair in written:
        key, colon, value = pair.partition(":")
        if not colon or not _HEADER.fullmatch(key.strip()):
            raise typer.BadParameter("write 'Name: value'", param_hint="--header")
        yield key.strip(), _escaped(value.strip())


def _escaped(value: str) -> str:
    """Escape `${` in a text that has no references to variables."""
    return value if references(value) else value.replace("${", "$${")


def _cwd(wanted: ConnectArguments, words: Sequence[str]) -> str | None:
    """Return the working directory: the given one, or the current one where the command names a relative path."""
    if wanted.cwd is None:
        return str(Path.cwd()) if names_a_relative_path(words, Path.cwd()) else None
    if not wanted.cwd.is_dir():
        raise typer.BadParameter(f"{str(wanted.cwd)!r} is not a folder", param_hint="--cwd")
    return str(wanted.cwd.absolute())


def _name(wanted: ConnectArguments, derived: str) -> str:
    if wanted.name is None:
        return derived
    if fit_name(wanted.name) != wanted.name:
        raise typer.BadParameter(
            f"a name is letters, digits, _ and -, such as {fit_name(wanted.name)}", param_hint="--name"
        )
    return wanted.name


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
        yield f"each person signs in with `toolpost accounts connect {source.name}`, and acts in a process of their own"
    elif package.variable not in environ and source.env.get(package.variable) == f"${{{package.variable}}}":
        client_id, client_secret = _client_variables(package)
        app = KNOWN_PROVIDERS[package.provider].register_at
        yield (
            f"{preset} needs a token: set {package.variable}, or give it with --env {package.variable}=...; or let "
            f"people sign in: set {client_id} and {client_secret} of an OAuth app, registered at {app} "
            f"with the redirect URI {callback_server_url(DEFAULT_PORT)}/{package.provider}"
        )
    for key in package.reads:
        if key not in source.env and key != package.variable:
            yield f"{preset} also reads {key}, which is not set; set it before, or give it with --env {key}=..."


def unsupported_target(what: Sequence[str]) -> ToolError | None:
    """Return the error for a target that cannot be connected, as far as its text alone shows."""
    first = what[0]
    scheme = first.lower().partition("://")[0] if _SCHEME.match(first) else ""
    if scheme in ("ws", "wss"):
        message = "a WebSocket does not tell which messages it takes, so that nothing can be written for it"
        advice = "declare them by hand, in a source with `transport: websocket` (docs/websockets.md)"
        return ToolError(f"{message}; {advice}", code="messages_undeclared")
    if scheme in ("http", "https"):
        return None
    if scheme:
        message = (
            f"nothing is connected at {scheme}://; give an address with http:// or https://, or the path of a file"
        )
        return ToolError(message, code="scheme_unknown")
    return _missing_path(first) if len(what) == 1 and len(first.split()) == 1 else None


def is_file_source(source: ExternalToolConfig) -> bool:
    """Return whether the source is, or is described by, a local file; it starts no program."""
    return "file" in describe_transport(source.transport).forms and not is_remote(source)


def needs_detection(source: ExternalToolConfig) -> bool:
    """Return whether the URL of the source has to be probed; --transport says that it is an MCP server."""
    return is_remote(source) and source.mcp.transport is McpTransport.AUTO


async def detect_source(plan: SourcePlan, output: Output) -> SourcePlan:
    """Return the plan for what is at the URL or in the file; raise a ToolError where that is not recognised."""
    source = plan.source
    if is_file_source(source):
        return replace(plan, source=_detect_file_source(source), notes=())
    if not needs_detection(source):
        return plan
    filled = with_environment(source, {**os.environ, **plan.secrets()})
    found = await detect_url(filled.connection, {**filled.headers, **static_credential(filled).headers})
    redactor = Redactor(variable_values(plan))
    if found.transport is None or found.detection is None:
        raise ToolError(redactor.text(_not_recognised(found)), code="not_recognised")
    output.note(f"{source.name}: {found.detection.label} ({redactor.text(found.because)}).")
    configured = found.transport.configure(source, found.detection)
    advice = found.transport.advice(configured)
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
    return ToolError(f"there is no file {word!r}{advice}", code="file_missing")


def _detect_file_source(source: ExternalToolConfig) -> ExternalToolConfig:
    """Configure the source by the content of its file; raise a ToolError where that is not recognised."""
    found, file = detect_file(source.connection), source.connection
    if found.transport is not None and found.detection is not None:
        return found.transport.configure(source, found.detection)
    if found.kind is not None:
        raise ToolError(f"{file} {found.because}", code="not_recognised")
    if Path(file).suffix == ".py":
        message = f"{file} has no tools: nothing of toolpost is imported there to mark functions with, such as `tool`"
        remedy = f"if it is an MCP server, give its whole command: 'python {file}'"
        raise ToolError(f"{message}; {remedy}", code="not_recognised")
    message = f"{file} is neither the document of an API nor a UTCP manual ({found.because})"
    raise ToolError(f"{message}; a program is given with its whole command: 'python {file}'", code="not_recognised")


def _not_recognised(found: Endpoint) -> str:
    tried = ", ".join(address.partition("?")[0] for address in found.tried)
    return (
        f"what is at {tried.partition(',')[0]} was not recognised, and nothing was written: {found.because}. "
        f"Tried: {tried}. Give the address of an API's document, or say that it is an MCP server all the same: "
        "--transport streamable_http, or sse."
    )


def is_remote(source: ExternalToolConfig) -> bool:
    """Return whether the source is reached at a URL."""
    return source.connection.lower().startswith(("http://", "https://"))


def escape_invisible(text: str) -> str:
    """Escape every character of a text that is not printable."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def describe_source(source: ExternalToolConfig) -> Iterator[str]:
    """Describe what the source starts or reaches, and with which variables, headers and credentials."""
    yield f"{source.name} {_verb(source)}"
    yield f"  {escape_invisible(source.connection)}"
    if source.env:
        yield f"with the environment variables {', '.join(map(escape_invisible, source.env))}"
    if source.headers:
        yield f"with the headers {', '.join(map(escape_invisible, source.headers))}"
    if source.auth_type is not AuthType.NONE:
        yield f"with the credentials of auth_type {source.auth_type.value}"
    if source.cwd is not None:
        yield f"in the folder {escape_invisible(source.cwd)}"


def _verb(source: ExternalToolConfig) -> str:
    forms = describe_transport(source.transport).forms
    if "module" in forms:
        return "runs the Python in this file:"
    if is_remote(source) or not {"file", "command"}.intersection(forms):
        return "is reached at"
    return "is what this file describes:" if "file" in forms else "starts this program on this machine:"


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
        "mcp_transport": source.mcp.transport.value,
        "connection": source.connection,
        "env": list(source.env),
        "headers": list(source.headers),
        "cwd": source.cwd,
        "enabled": source.enabled,
    }


def warn_unpinned(sources: Iterable[ExternalToolConfig]) -> Iterator[str]:
    """Return a warning for each command that runs the newest version of its package."""
    for source in sources:
        package = None if is_remote(source) else unpinned_package(source.connection)
        if package is not None:
            yield f"{package} has no version, so every start runs whatever is newest; {package}@VERSION would not"


def unset_variables(sources: Iterable[ExternalToolConfig], environ: Mapping[str, str]) -> list[str]:
    """Return the variables that the sources refer to and that are not set."""
    named = (name for source in sources for text in _texts(source_data(source)) for name in references(text))
    return [name for name in dict.fromkeys(named) if name not in environ]


def variable_documents(
    names: Sequence[str], variables: Sequence[Variable], environ: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the variables as JSON data: what each stands for, and whether it is set."""
    meanings = {variable.name: variable.stands_for for variable in variables}
    every = dict.fromkeys([*meanings, *names])
    return [{"name": name, "stands_for": meanings.get(name), "set": name in environ} for name in every]


def relative_to_config(source: ExternalToolConfig, config: Path) -> ExternalToolConfig:
    """Return the source with its paths relative to the configuration file, where they lie below its folder."""
    places = {"cwd": source.cwd, "env_file": source.env_file}
    written = {key: _relative_path(place, config) for key, place in places.items() if place and not references(place)}
    return source.model_copy(update=written) if written else source


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
    if source.unusable:  # what else is written of it stands for nothing
        yield source.unusable
        return
    module, extra = describe_transport(source.transport).requires or ("", "")
    if module and find_spec(module) is None:
        yield f"{source.transport} sources need the extra {extra}: pip install 'toolpost[{extra}]'"
    yield from _missing_program(source, environ)
    if source.transport is TransportType.PYTHON and source.connection.endswith(".py"):
        file = Path(source.connection).expanduser()
        if not file.is_file():
            yield f"there is no file {source.connection}"


def _missing_program(source: ExternalToolConfig, environ: Mapping[str, str]) -> Iterator[str]:
    if is_remote(source) or source.transport is not TransportType.MCP or source.connection.startswith("memory:"):
        return
    program = next(iter(shlex.split(source.connection)), "")
    if os.sep in program and source.cwd is not None:
        program = str(Path(source.cwd, program))
    path = source.env.get("PATH") or environ.get("PATH")
    if program not in _OUR_OWN and shutil.which(program, path=path) is None:
        yield f"there is no {program} on the PATH; install it first{_INSTALL.get(program, '')}"
