"""What a person wants connected, read from the command line: a preset, a command or a URL."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import typer

from toolpost.auth.providers import KNOWN_PROVIDERS
from toolpost.cli.obstacles import obstacles
from toolpost.cli.proposal import unpinned
from toolpost.configuration.secret_extraction import SecretExtractor, Variable, references
from toolpost.connecting.client_files import fit_name, names_a_relative_path
from toolpost.connecting.endpoint_detection import is_document
from toolpost.connecting.presets import PACKAGES, Package, pinned_preset, unknown_preset
from toolpost.contracts.config import AuthType, ExternalToolConfig, McpOptions, McpTransport, TransportType
from toolpost.contracts.errors import ToolError
from toolpost.wire.callback_server import DEFAULT_PORT, callback_server_url

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LAUNCHERS = frozenset({"npx", "uvx", "bunx", "pipx", "node", "python", "python3", "py", "deno", "bun", "uv", "pnpm"})
_CONTAINERS = frozenset({"docker", "podman"})
_VERBS = frozenset({"run", "dlx", "exec", "tool", "x"})
_AROUND = re.compile(r"^(mcp-server-|server-|mcp-)|(-mcp-server|-mcp|-server)$")
_SAYS_NOTHING = frozenset({"", "mcp", "server", "index", "main", "cli"})
_COMMON_LABELS = frozenset({"mcp", "www", "api", "app", "server"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The command line, as it was written."""

    words: Sequence[str]
    name: str | None = None
    env: Sequence[str] = field(default=(), repr=False)
    headers: Sequence[str] = field(default=(), repr=False)
    cwd: Path | None = None
    transport: McpTransport = McpTransport.AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The source as it will be written, the secrets that were taken out of it, and what to say about it."""

    source: ExternalToolConfig
    variables: tuple[Variable, ...] = ()
    notes: tuple[str, ...] = ()

    def secrets(self) -> dict[str, str]:
        """What the variables stand for, for the one connection that is made now."""
        return {variable.name: variable.value for variable in self.variables if variable.value is not None}


def make_plan(wanted: Wanted, environ: Mapping[str, str]) -> Plan:
    """Read what is wanted; a wrong command line is a BadParameter, an unknown preset a ToolError."""
    concealer = SecretExtractor(environ)
    first, *rest = wanted.words
    if _is_url(first):
        _refuse_for_url(wanted, rest)
        source = _remote(wanted, first, concealer)
        notes: list[str] = []
    elif first in PACKAGES:
        source = _preset(wanted, first, rest, concealer, environ)
        notes = list(_unset(first, source, environ))
    elif not rest and is_document(first):
        _refuse_for_program(wanted)
        source = _document(wanted, first)
        notes = []
    else:
        source = _program(wanted, _command_words(wanted.words, environ), concealer)
        notes = list(unpinned([source]))
    notes += obstacles(source, environ)
    return Plan(source=source, variables=tuple(concealer.variables), notes=tuple(notes))


def _is_url(word: str) -> bool:
    return word.lower().startswith(("http://", "https://"))


def _refuse_for_url(wanted: Wanted, rest: Sequence[str]) -> None:
    if rest:
        raise typer.BadParameter("a URL stands alone; is a header without its quotes?", param_hint="WHAT")
    if wanted.env or wanted.cwd is not None:
        raise typer.BadParameter("only a program that is started has one; a URL has headers", param_hint="--env, --cwd")
    if wanted.transport is McpTransport.STDIO:
        raise typer.BadParameter("a URL is not reached over stdio", param_hint="--transport")


def _remote(wanted: Wanted, url: str, concealer: SecretExtractor) -> ExternalToolConfig:
    if not urlsplit(url).hostname:
        raise typer.BadParameter("the URL names no host", param_hint="WHAT")
    name = _name(wanted, _name_of_host(urlsplit(url).hostname or ""))
    address, login = concealer.login(name, url)
    fields: dict[str, Any] = {"auth_type": AuthType.BASIC, "auth_config": login} if login else {}
    return ExternalToolConfig(
        name=name,
        transport=TransportType.MCP,
        connection=concealer.url(name, address),
        headers={key: concealer.header(name, key, value) for key, value in _headers(wanted.headers)},
        mcp=McpOptions(transport=wanted.transport),
        **fields,
    )


def _document(wanted: Wanted, file: str) -> ExternalToolConfig:
    """The document of an API in a file."""
    name = _name(wanted, fit_name(PurePosixPath(file).name.partition(".")[0]))
    return ExternalToolConfig(name=name, transport=TransportType.HTTP, connection=file)


def _preset(
    wanted: Wanted, preset: str, arguments: Sequence[str], concealer: SecretExtractor, environ: Mapping[str, str]
) -> ExternalToolConfig:
    _refuse_for_program(wanted)
    name = _name(wanted, preset)
    try:
        pinned = pinned_preset(preset, concealer.words(name, arguments))
    except ValueError as error:
        raise ToolError(str(error), code="preset_unavailable") from None
    given = _env(wanted, name, concealer)
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
    """Let a server that needs a token have one: that of the environment, or each person's own after a sign-in.

    Services of this kind register no clients by themselves, so a sign-in takes the id of an app of the operator's.
    """
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


def _program(wanted: Wanted, words: Sequence[str], concealer: SecretExtractor) -> ExternalToolConfig:
    _refuse_for_program(wanted)
    name = _name(wanted, _name_of_command(words))
    return ExternalToolConfig(
        name=name,
        transport=TransportType.MCP,
        connection=shlex.join(concealer.words(name, words)),
        env=_env(wanted, name, concealer),
        cwd=_cwd(wanted, words),
    )


def _refuse_for_program(wanted: Wanted) -> None:
    if wanted.headers:
        raise typer.BadParameter("only a URL has headers; a program has --env", param_hint="--header")
    if wanted.transport not in (McpTransport.AUTO, McpTransport.STDIO):
        raise typer.BadParameter(f"a program is reached over stdio, not {wanted.transport}", param_hint="--transport")


def _command_words(words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """One word that holds a whole line is split as a shell would; one word alone must be a program."""
    if len(words) > 1:
        return list(words)
    try:
        split = shlex.split(words[0])
    except ValueError as error:
        raise typer.BadParameter(f"this cannot be split into words: {error}", param_hint="WHAT") from None
    if not split:
        raise typer.BadParameter("give a preset, a command or a URL", param_hint="WHAT")
    if len(split) == 1 and shutil.which(split[0], path=environ.get("PATH")) is None:
        told = f"{unknown_preset(split[0])}. There is no program of that name either."
        raise ToolError(told, code="preset_unknown")
    return split


def _env(wanted: Wanted, name: str, concealer: SecretExtractor) -> dict[str, str]:
    return {key: concealer.env(name, key, value) for key, value in _variables(wanted.env)}


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
    """References stay; any other `${` is meant as it is written."""
    return value if references(value) else value.replace("${", "$${")


def _cwd(wanted: Wanted, words: Sequence[str]) -> str | None:
    """The folder to start in: the one given, or this one where a relative path is meant."""
    if wanted.cwd is None:
        return str(Path.cwd()) if names_a_relative_path(words, Path.cwd()) else None
    if not wanted.cwd.is_dir():
        raise typer.BadParameter(f"{str(wanted.cwd)!r} is not a folder", param_hint="--cwd")
    return str(wanted.cwd.absolute())


def _name(wanted: Wanted, derived: str) -> str:
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
    elif package.variable and package.variable not in environ and _is_handed_on(source, package.variable):
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


def _is_handed_on(source: ExternalToolConfig, variable: str) -> bool:
    return source.env.get(variable) == f"${{{variable}}}"
