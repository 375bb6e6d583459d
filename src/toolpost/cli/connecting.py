"""A source shown, agreed to, written into the configuration, and tried once."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from toolpost.cli.confirmation import confirm
from toolpost.cli.look import is_asked, is_described, looked_at, refusal, values_of
from toolpost.cli.obstacles import obstacles
from toolpost.cli.opening import every_source
from toolpost.cli.output import Output
from toolpost.cli.proposal import beside, document, is_remote, lines, needed, variable_documents, write
from toolpost.cli.session import progress_sinks
from toolpost.cli.source_trouble import trouble
from toolpost.cli.target import Plan, Wanted, make_plan
from toolpost.cli.tool_table import show_tools
from toolpost.cli.trusting import claim_documents, offer_trust, write_trust
from toolpost.configuration.file_editor import config_path, load_leniently, snippet
from toolpost.configuration.loading import LoadedSettings, environment
from toolpost.configuration.settings import Settings
from toolpost.contracts.config import ExternalToolConfig, McpTransport
from toolpost.contracts.errors import ToolConnectionError, ToolError
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
    _show(plan, source, path, output)
    if dry_run:
        return _leave(output, plan, path, status="dry_run")
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


def _show(plan: Plan, source: ExternalToolConfig, path: Path, output: Output) -> None:
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
        return _failed(plan, redactor.text(error), path, output)
    if not output.as_json:
        show_tools(specs, output)
    trusted = offer_trust(name, specs, output, trust=trust, yes=yes)
    if trusted:
        write_trust(name, path, pins, settings.lock, output, secrets=plan.secrets())
    return _leave(output, plan, path, status="ok", specs=specs, trusted=trusted)


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


def _failed(plan: Plan, error: str, path: Path, output: Output) -> int:
    output.note(f"{plan.source.name!r} is in {path.name} now, but it cannot be connected: {error}")
    again = "" if path == config_path(None) else f" --config {shlex.quote(str(path))}"
    tries, rids = f"`toolpost config check --connect{again}` tries again", f"tools disconnect {plan.source.name}{again}"
    output.note(f"{tries}, `toolpost {rids}` takes it out.")
    return _leave(output, plan, path, status="failed", error=ToolConnectionError(error))


def _leave(
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
