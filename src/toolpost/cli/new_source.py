"""Connect a source from the command line: detect its kind, show its entry, write it once confirmed, and connect."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

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
)
from toolpost.configuration.loading import LoadedSettings, environment, load_settings, with_only
from toolpost.configuration.settings import Settings
from toolpost.connecting.client_files import (
    NO_SERVERS,
    read_servers,
    usual_places,
)
from toolpost.connecting.source_plans import (
    ImportPlan,
    SourceArguments,
    SourcePlan,
    TargetError,
    detect_source,
    make_plan,
    missing_requirements,
    needs_detection,
    only_source,
    plan_import,
    source_document,
    unset_variables,
    unsupported_target,
    variable_documents,
    variable_values,
    with_relative_paths,
)
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError, ToolConnectionError, ToolError
from toolpost.contracts.source_kinds import AuthType
from toolpost.contracts.spec import ToolSpec
from toolpost.policy.redaction import Redactor
from toolpost.processes.network_variables import network_variables
from toolpost.sources.registry import describe_transport
from toolpost.wire.targets import is_http_url


def plan_source(arguments: SourceArguments) -> SourcePlan | ToolError:
    """Plan a source; return the error for a target that cannot be connected, raise one for a wrong command line."""
    refused = unsupported_target(arguments.words)
    if refused is not None and refused.error_code == "messages_undeclared":
        return ToolError(f"{refused.message}: {document_hint('websockets.md')}", code=refused.error_code)
    if refused is not None:
        return refused
    try:
        return make_plan(arguments, os.environ)
    except TargetError as error:
        raise typer.BadParameter(error.message, param_hint=error.option) from None
    except ToolError as error:
        return error


def escape_invisible(text: str) -> str:
    """Escape every character of a text that is not printable."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def describe_source(source: ExternalToolConfig) -> Iterator[str]:
    """Describe the program or address of the source, with its variables, headers and credentials."""
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


def write_sources(
    sources: Sequence[ExternalToolConfig], path: Path, output: Output, *, secrets: Mapping[str, str]
) -> Settings:
    """Add sources to the configuration file; where that is impossible, print the text to paste and raise."""
    try:
        return add_sources(path, sources, environ={**os.environ, **secrets})
    except InsertionError as error:
        output.note(error.snippet.rstrip())
        raise ConfigError(str(error), code="insertion_impossible") from error


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
    try:
        plan = await detect_source(plan)
    except TargetError as error:
        raise typer.BadParameter(error.message, param_hint=error.option) from None
    if plan.found:
        output.note(plan.found)
    source = with_relative_paths(plan.source, path)
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
    loaded = LoadedSettings(settings=only_source(settings, name), path=path, secrets=frozenset(variable_values(plan)))
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
    plan = plan_import(file, config_path(config))
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


def _ask_connect(plan: ImportPlan, output: Output) -> bool:
    """Ask whether the new sources are connected now; False without a terminal or with unset variables."""
    if output.as_json or unset_variables(plan.new, environment(plan.path.parent)) or not is_interactive():
        return False
    return confirm("Connect them once to see their tool annotations? This starts the commands above.", yes=False)


async def _trust_imported(plan: ImportPlan, output: Output, *, trust: bool, yes: bool) -> int:
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


def _show_import(plan: ImportPlan, output: Output) -> None:
    if plan.new and not output.as_json:
        output.table(["Source", "Command or URL", "Variables, headers", "Enabled"], map(source_row, plan.new))
    for note in plan.notes():
        output.note(note)
    if not plan.new:
        output.note(f"{plan.file} contains no new sources for {plan.path.name}.")


def _report_next_steps(plan: ImportPlan, output: Output) -> None:
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


def _finish_import(plan: ImportPlan, output: Output, status: str) -> int:
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
