"""Write new sources to the configuration file after a confirmation, and connect each once."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolpost.cli.connect_plan import Plan, Wanted, is_asked, is_described, looked_at, make_plan, refusal, values_of
from toolpost.cli.connect_preview import (
    beside,
    claim_documents,
    document,
    is_remote,
    lines,
    needed,
    obstacles,
    offer_trust,
    row,
    unpinned,
    variable_documents,
    write,
    write_trust,
)
from toolpost.cli.output import Output, show_tools
from toolpost.cli.prompts import at_a_terminal, confirm
from toolpost.cli.runner import every_source, progress_sinks, rehearsal, trouble
from toolpost.configuration.file_editor import config_path, load_leniently, snippet
from toolpost.configuration.loading import LoadedSettings, environment, load_settings, with_only
from toolpost.configuration.settings import Settings
from toolpost.connecting.client_files import NO_SERVERS, ImportedServers, read_servers, usual_places
from toolpost.contracts.config import ExternalToolConfig, McpTransport
from toolpost.contracts.errors import ConfigError, ToolConnectionError, ToolError
from toolpost.contracts.spec import ToolSpec
from toolpost.policy.redaction import Redactor


def planned(
    what: Sequence[str],
    *,
    name: str | None,
    env: Sequence[str],
    headers: Sequence[str],
    cwd: Path | None,
    transport: str,
) -> Plan | ToolError:
    """Read the command line; what is wrong with it is raised, what cannot be had is handed on to be told."""
    refused = refusal(what)
    if refused is not None:
        return refused
    wanted = Wanted(words=what, name=name, env=env, headers=headers, cwd=cwd, transport=McpTransport(transport))
    try:
        return make_plan(wanted, os.environ)
    except ToolError as error:
        return error


async def carry_out(
    plan: Plan | ToolError,
    config: Path | None,
    output: Output,
    *,
    yes: bool,
    trust: bool,
    force: bool,
    dry_run: bool,
) -> int:
    """Show it, ask, write it, connect it; returns the code to leave with."""
    if isinstance(plan, ToolError):
        raise plan
    path = config_path(config)
    if is_asked(plan.source):
        _refuse_unset(plan, path)
    plan = await looked_at(plan, output)
    source = _placed(plan.source, path)
    _refuse_taken(source.name, load_leniently(path, os.environ), path)
    _show_plan(plan, source, path, output)
    if dry_run:
        return _finish(output, plan, path, status="dry_run")
    _refuse_unset(plan, path)
    _refuse_obstacles(plan.source, force=force)
    if not confirm(f"Write this to {path.name}, and connect it once?", yes=yes):
        raise ToolError("nothing was written, because nobody agreed", code="not_confirmed")
    settings = write([source], path, output, secrets=plan.secrets())
    _tell_variables(plan, path, output)
    return await _try(plan, settings, path, output, trust=trust, yes=yes)


def _refuse_taken(name: str, settings: Settings | None, path: Path) -> None:
    taken = {source.name for source in settings.all_sources()} if settings else set[str]()
    if name in taken:
        raise ToolError(f"{path.name} has a source named {name!r} already; give another name with --name", code="taken")


def _refuse_unset(plan: Plan, path: Path) -> None:
    """A source that refers to a variable that is not set would be left out by every other command from then on."""
    missing = needed([plan.source], {**environment(path.parent), **plan.secrets()})
    if missing:
        unset = f"variables that are not set: {', '.join(missing)}; set them first"
        advice = "" if is_remote(plan.source) else f", or give --env {missing[0]}=..."
        raise ToolError(f"{unset}{advice}", code="variable_unset")


def _refuse_obstacles(source: ExternalToolConfig, *, force: bool) -> None:
    """Write nothing that is known not to start, unless whoever writes it knows better."""
    missing = list(obstacles(source, os.environ))
    if missing and not force:
        told = f"{source.name!r} cannot start, and nothing was written: {'; '.join(missing)}"
        raise ToolError(f"{told}. With --force it is written all the same.", code="cannot_start")


def _placed(source: ExternalToolConfig, path: Path) -> ExternalToolConfig:
    """The source with its folder and its file as they are written there: relative, where they lie below."""
    if not is_described(source):
        return beside(source, path)
    file = Path(os.path.abspath(Path(source.connection).expanduser()))  # noqa: PTH100 - links are there for a reason
    written = f"./{file.relative_to(path.parent)}" if file.is_relative_to(path.parent) else str(file)
    return source.model_copy(update={"connection": written})


def _show_plan(plan: Plan, source: ExternalToolConfig, path: Path, output: Output) -> None:
    """What is about to happen, for the person who has to agree; beside the JSON, if that was asked for."""
    told = [*lines(plan.source), f"to be written to {path}", snippet([source]).rstrip()]
    if output.as_json:
        output.note("\n".join(told))
    else:
        output.text("\n".join(told))
    for note in plan.notes:
        output.note(note)


def _tell_variables(plan: Plan, path: Path, output: Output) -> None:
    for variable in plan.variables:
        output.note(f"A secret was kept out of {path.name}: {variable.stands_for}. Set {variable.name} to it.")
    if needed([plan.source], environment(path.parent)):
        output.note(f"Until then every command goes on without {plan.source.name}; .env beside the file will do, too.")


async def _try(plan: Plan, settings: Settings, path: Path, output: Output, *, trust: bool, yes: bool) -> int:
    """Connect this source alone, keeping nothing, show its tools, and ask whether it is trusted."""
    name, redactor = plan.source.name, Redactor(values_of(plan))
    loaded = LoadedSettings(settings=_alone(settings, name), path=path, secrets=frozenset(values_of(plan)))
    async with every_source(loaded, progress_sinks(output)) as box:
        specs = [spec for spec in box.registry.specs() if spec.source == name]
        error = next((trouble(state, box) for state in box.report if state.name == name and not state.ok), None)
        problems = [redactor.text(problem) for problem in box.sources.problems]
        pins = box.sources.pins(name)
    for problem in problems:
        output.note(problem)
    if error is not None:
        return _report_failure(plan, redactor.text(error), path, output)
    if not output.as_json:
        show_tools(specs, output)
    trusted = offer_trust(name, specs, output, trust=trust, yes=yes)
    if trusted:
        write_trust(name, path, pins, settings.lock, output, secrets=plan.secrets())
    return _finish(output, plan, path, status="ok", specs=specs, trusted=trusted)


def _alone(settings: Settings, name: str) -> Settings:
    return settings.model_copy(
        update={
            "data_dir": None,
            "builtins": "none",
            "collections": {},
            "sources": [source for source in settings.sources if source.name == name],
            "tools": settings.tools.model_copy(update={"mcp_servers": []}),
        }
    )


def _report_failure(plan: Plan, error: str, path: Path, output: Output) -> int:
    output.note(f"{plan.source.name!r} is in {path.name} now, but it cannot be connected: {error}")
    again = "" if path == config_path(None) else f" --config {shlex.quote(str(path))}"
    tries, rids = f"`toolpost config check --connect{again}` tries again", f"tools disconnect {plan.source.name}{again}"
    output.note(f"{tries}, `toolpost {rids}` takes it out.")
    return _finish(output, plan, path, status="failed", error=ToolConnectionError(error))


def _finish(
    output: Output,
    plan: Plan,
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
                "source": {**document(plan.source), "auth_type": plan.source.auth_type.value},
                "variables": variable_documents(needed([plan.source], environ), plan.variables, environ),
                "notes": list(plan.notes),
                "tools": [spec.to_dict() for spec in specs],
                "claims": claim_documents(specs),
                "trusted": trusted,
                "error": None if error is None else error.to_dict(),
            }
        )
    return int(status == "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ImportPlan:
    """What one file would add to another."""

    file: Path
    path: Path
    new: list[ExternalToolConfig]
    skipped: list[str]
    imported: ImportedServers
    trusted: list[str] = field(default_factory=list[str])

    def notes(self) -> list[str]:
        there = [f"{name}: left out, because {self.path.name} has a source of that name" for name in self.skipped]
        return [*self.imported.notes, *there, *unpinned(self.new)]

    def to_dict(self, status: str) -> dict[str, Any]:
        environ = environment(self.path.parent)
        missing = needed(self.new, environ)
        return {
            "status": status,
            "file": str(self.file),
            "config": str(self.path),
            "written": status != "dry_run" and bool(self.new),
            "sources": [document(source) for source in self.new],
            "skipped": self.skipped,
            "variables": variable_documents(missing, self.imported.variables, environ),
            "notes": self.notes(),
            "trusted": self.trusted,
            "error": None,
        }


def list_found(folder: Path, output: Output) -> int:
    """List the files that hold servers, in the working folder and in the usual places of this person."""
    found = [_list_servers(path) for path in usual_places(folder)]
    listed = [item for item in found if item["servers"] or item["error"]]
    if output.as_json:
        output.document(listed)
        return 0
    if not listed:
        output.note("No file with MCP servers in this folder or in the usual places; name one: `toolpost import FILE`.")
        return 0
    output.table(["File", "Servers"], [(item["file"], item["error"] or ", ".join(item["servers"])) for item in listed])
    output.note("`toolpost import FILE` takes the servers of one over.")
    return 0


async def take_over(file: Path, config: Path | None, output: Output, *, yes: bool, trust: bool, dry_run: bool) -> int:
    """Show what a file lists and, if that is agreed to, write it; returns the code to leave with."""
    taking = _plan_import(file, config_path(config))
    _show_import(taking, output)
    if dry_run:
        if taking.new and not output.as_json:
            output.text(snippet(taking.new).rstrip())
        return _finish_import(taking, output, "dry_run")
    if taking.new:
        if not confirm(f"Write {_count(taking.new)} to {taking.path.name}?", yes=yes):
            raise ToolError("nothing was written, because nobody agreed", code="not_confirmed")
        write(taking.new, taking.path, output, secrets={})
        _tell_what_next(taking, output)
        if trust or (not yes and _wants_to_see(taking, output)):
            return await _trust_imported(taking, output, trust=trust, yes=yes)
    return _finish_import(taking, output, "ok")


def _wants_to_see(taking: _ImportPlan, output: Output) -> bool:
    """Whether a person wants to know now what the servers' tools claim; what is not set keeps them from starting."""
    if output.as_json or needed(taking.new, environment(taking.path.parent)) or not at_a_terminal():
        return False
    return confirm("Connect them once, to see what their tools claim? This starts the commands above.", yes=False)


async def _trust_imported(taking: _ImportPlan, output: Output, *, trust: bool, yes: bool) -> int:
    """Connect the new sources, show what each claims, and write down which are trusted."""
    if missing := needed(taking.new, environment(taking.path.parent)):
        unset = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set"
        output.note(f"None of them is trusted, because {unset}; write trust: true yourself, and run `toolpost lock`.")
        return _finish_import(taking, output, "failed") or 1
    loaded = load_settings(taking.path)
    names = {source.name for source in taking.new if source.enabled}
    failed: list[str] = []
    async with rehearsal(with_only(loaded, names), output) as box:
        for state in box.report:
            if not state.ok:
                failed.append(state.name)
                output.note(f"{state.name!r} is not trusted, because it cannot be connected: {trouble(state, box)}")
                continue
            specs = [spec for spec in box.registry.specs() if spec.source == state.name]
            if offer_trust(state.name, specs, output, trust=trust, yes=yes):
                pins = box.sources.pins(state.name)
                write_trust(state.name, taking.path, pins, loaded.settings.lock, output, secrets={})
                taking.trusted.append(state.name)
    return _finish_import(taking, output, "failed" if failed else "ok") or int(bool(failed))


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
        new=[beside(source, path) for source in imported.sources if source.name not in taken],
        skipped=[source.name for source in imported.sources if source.name in taken],
        imported=imported,
    )


def _show_import(taking: _ImportPlan, output: Output) -> None:
    if taking.new and not output.as_json:
        output.table(["Source", "Command or URL", "Variables, headers", "Enabled"], map(row, taking.new))
    for note in taking.notes():
        output.note(note)
    if not taking.new:
        output.note(f"There is nothing in {taking.file} to add to {taking.path.name}.")


def _tell_what_next(taking: _ImportPlan, output: Output) -> None:
    output.note(f"{_count(taking.new)} written to {taking.path.name}; nothing was started.")
    told = {variable.name: variable.stands_for for variable in taking.imported.variables}
    environ = environment(taking.path.parent)
    for name in needed(taking.new, environ):
        output.note(f"Set {name}: {told.get(name, f'{taking.file.name} refers to it')}.")
    lacking = [source.name for source in taking.new if needed([source], environ)]
    if lacking:
        output.note(
            f"Until then every command goes on without {', '.join(lacking)}; .env beside the file will do, too."
        )
    else:
        output.note("`toolpost config check --connect` connects them.")


def _finish_import(taking: _ImportPlan, output: Output, status: str) -> int:
    """Failed is a file that lists servers of which none can be used."""
    if output.as_json:
        output.document(taking.to_dict(status))
    return int(bool(taking.imported.notes) and not taking.imported.sources)


def _count(sources: Sequence[ExternalToolConfig]) -> str:
    return "1 source" if len(sources) == 1 else f"{len(sources)} sources"
