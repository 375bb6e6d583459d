"""Show sources that are about to be written, what keeps each from starting, and what their tools claim."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from toolpost.catalog.lock import Lock, Pin
from toolpost.catalog.specs import describe_claims, read_claims, trust_loosens
from toolpost.cli.output import Output
from toolpost.cli.prompts import confirm, is_interactive
from toolpost.configuration.file_editor import InsertionError, add_sources, mark_trusted, source_data
from toolpost.configuration.secret_extraction import Variable, references
from toolpost.configuration.settings import Settings
from toolpost.connecting.presets import unpinned_package
from toolpost.contracts.config import AuthType, ExternalToolConfig, TransportType
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.spec import ToolSpec
from toolpost.schema.json_values import is_array, is_object
from toolpost.transports.registry import find_transport

_INSTALL = {"uvx": " (it comes with uv: pip install uv)", "npx": " (it comes with Node.js)"}
_OUR_OWN = frozenset({"python", "python3"})  # the running interpreter stands in for it


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
    forms = find_transport(source.transport).forms
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
    told = {variable.name: variable.stands_for for variable in variables}
    every = dict.fromkeys([*told, *names])
    return [{"name": name, "stands_for": told.get(name), "set": name in environ} for name in every]


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
    module, extra = find_transport(source.transport).requires or ("", "")
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


def ask_trust(name: str, specs: Sequence[ToolSpec], output: Output, *, trust: bool, yes: bool) -> bool:
    """Show the claims of a source about its tools, and return whether a person trusts them."""
    loosened = [spec for spec in specs if trust_loosens(read_claims(spec))]
    if loosened:
        _show_claims(name, specs, output)
    if trust:
        return True
    if not loosened:
        return False
    if yes or not is_interactive():
        told = f"{name} is not trusted: what it claims lets no call run unasked."
        output.note(f"{told} `trust: true` in the configuration, or --trust here, takes its word.")
        return False
    output.status.clear()
    return confirm(f"Trust {name}? Then these claims count, and its tools are pinned as they are now.", yes=False)


def _show_claims(name: str, specs: Sequence[ToolSpec], output: Output) -> None:
    """Show the claims of a source about each of its tools."""
    rows = [
        (spec.name, describe_claims(read_claims(spec)) or "nothing", spec.description.partition("\n")[0])
        for spec in specs
    ]
    if output.as_json:
        output.note("\n".join([f"{name} claims of its tools:", *(f"  {tool}: {claims}" for tool, claims, _ in rows)]))
    else:
        output.table(["Tool", f"{name} claims that it", "Description"], rows)


def write_trust(
    name: str, path: Path, pins: dict[str, Pin], lock: Path | None, output: Output, *, secrets: Mapping[str, str]
) -> None:
    """Write `trust: true` to the configuration, and the pins of the tools to the lock file."""
    mark_trusted(path, name, environ={**os.environ, **secrets})
    if lock is None:
        output.note(f"{name} is trusted in {path.name}; `lock: null` there pins nothing.")
        return
    kept = Lock(lock)
    kept.write({**kept.sources, name: pins})
    output.note(f"{name} is trusted in {path.name}; its tools are pinned in {lock.name}, commit both.")


def claims_to_dicts(specs: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return the claims about each tool as JSON data."""
    return [{"tool": spec.name, "claims": describe_claims(read_claims(spec))} for spec in specs]
