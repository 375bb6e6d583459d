"""A source shown, agreed to, written into the configuration, and tried once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolpost.auth.static import static_credential, with_environment
from toolpost.cli.confirmation import confirm
from toolpost.cli.output import Output
from toolpost.cli.proposal import beside, document, is_remote, lines, needed, variable_documents, write
from toolpost.cli.target import Plan, Wanted, make_plan
from toolpost.cli.tool_table import show_tools
from toolpost.contracts.config import AuthType, ExternalToolConfig, McpTransport, TransportType
from toolpost.contracts.errors import ToolConnectionError, ToolError
from toolpost.contracts.options import WebhookOptions
from toolpost.contracts.spec import ToolSpec
from toolpost.policy.redaction import Redactor
from toolpost.toolbox.box import Toolbox
from toolpost.toolbox.config_file import config_path, load_leniently, snippet
from toolpost.toolbox.loading import LoadedSettings
from toolpost.toolbox.recognition import recognise
from toolpost.toolbox.settings import Settings


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
    wanted = Wanted(words=what, name=name, env=env, headers=headers, cwd=cwd, transport=McpTransport(transport))
    try:
        return make_plan(wanted, os.environ)
    except ToolError as error:
        return error


async def carry_out(plan: Plan | ToolError, config: Path | None, output: Output, *, yes: bool, dry_run: bool) -> int:
    """Show it, ask, write it, connect it; returns the code to leave with."""
    if isinstance(plan, ToolError):
        raise plan
    path = config_path(config)
    if not dry_run:
        plan = await _looked_at(plan, output)
    source = beside(plan.source, path)
    _refuse_taken(source.name, load_leniently(path, os.environ), path)
    _show(plan, path, output)
    if dry_run:
        if not output.as_json:
            output.text(snippet([source]).rstrip())
        return _leave(output, plan, path, status="dry_run")
    _refuse_unset(plan)
    if not confirm(f"Write this to {path.name}, and connect it once?", yes=yes):
        raise ToolError("nothing was written, because nobody agreed", code="not_confirmed")
    settings = write([source], path, output, secrets=plan.secrets())
    _tell_variables(plan, path, output)
    return await _try(plan, settings, path, output)


async def _looked_at(plan: Plan, output: Output) -> Plan:
    """The plan after a look at its address: an API's document makes it another kind of source."""
    source = plan.source
    if not is_remote(source) or source.mcp.transport is not McpTransport.AUTO:
        return plan
    filled = with_environment(source, {**os.environ, **plan.secrets()})
    found = await recognise(filled.connection, {**filled.headers, **static_credential(filled).headers})
    output.note(f"{source.name}: {_WORDS[found.kind]} ({Redactor(_values(plan)).text(found.because)}).")
    if found.kind == "n8n":
        return replace(
            plan, source=_as_n8n(source), notes=(*plan.notes, _N8N_KEY) if not source.headers else plan.notes
        )
    transport = _TRANSPORTS.get(found.kind, TransportType.MCP)
    return replace(plan, source=source.model_copy(update={"transport": transport}))


def _as_n8n(source: ExternalToolConfig) -> ExternalToolConfig:
    """n8n's key is for its API alone, so that it is a credential and no header of every request."""
    changes: dict[str, Any] = {"transport": TransportType.WEBHOOK, "webhook": WebhookOptions(kind="n8n")}
    key = next((name for name in source.headers if name.lower() == "x-n8n-api-key"), None)
    if key is not None:
        changes["headers"] = {name: value for name, value in source.headers.items() if name != key}
        changes["auth_type"] = AuthType.API_KEY
        changes["auth_config"] = {"api_key": source.headers[key], "header": "X-N8N-API-KEY"}
    return source.model_copy(update=changes)


_N8N_KEY = "n8n lists its workflows for those who have a key; give it with --header 'X-N8N-API-KEY: ...'"
_TRANSPORTS = {
    "openapi": TransportType.HTTP,
    "utcp": TransportType.UTCP,
    "graphql": TransportType.GRAPHQL,
}


_WORDS = {
    "mcp": "an MCP server",
    "openapi": "a REST API",
    "utcp": "a UTCP manual",
    "graphql": "a GraphQL API",
    "n8n": "an n8n",
    "unknown": "nothing that says what it is; it is taken for an MCP server",
}


def _refuse_taken(name: str, settings: Settings | None, path: Path) -> None:
    taken = {source.name for source in settings.all_sources()} if settings else set[str]()
    if name in taken:
        raise ToolError(f"{path.name} has a source named {name!r} already; give another name with --name", code="taken")


def _refuse_unset(plan: Plan) -> None:
    """A file that refers to a variable that is not set would be refused by every other command from then on."""
    missing = needed([plan.source], {**os.environ, **plan.secrets()})
    if missing:
        unset = f"variables that are not set: {', '.join(missing)}"
        raise ToolError(f"{unset}; set them first, or give --env {missing[0]}=...", code="variable_unset")


def _show(plan: Plan, path: Path, output: Output) -> None:
    """What is about to happen, for the person who has to agree; beside the JSON, if that was asked for."""
    told = [*lines(plan.source), f"to be written to {path}"]
    if output.as_json:
        output.note("\n".join(told))
    else:
        output.text("\n".join(told))
    for note in plan.notes:
        output.note(note)


def _tell_variables(plan: Plan, path: Path, output: Output) -> None:
    for variable in plan.variables:
        output.note(f"A secret was kept out of {path.name}: {variable.stands_for}. Set {variable.name} to it.")
    if needed([plan.source], os.environ):
        output.note(f"Until then {path.name} is refused by every command.")


async def _try(plan: Plan, settings: Settings, path: Path, output: Output) -> int:
    """Connect this source alone, keeping nothing, and show its tools."""
    name, redactor = plan.source.name, Redactor(_values(plan))
    loaded = LoadedSettings(settings=_alone(settings, name), path=path, secrets=frozenset(_values(plan)))
    async with Toolbox.open(loaded) as box:
        specs = [spec for spec in box.registry.specs() if spec.source == name]
        error = next((state.error for state in box.report if state.name == name and not state.ok), None)
        problems = [redactor.text(problem) for problem in box.problems]
    for problem in problems:
        output.note(problem)
    if error is not None:
        return _failed(plan, redactor.text(error), path, output)
    if not output.as_json:
        show_tools(specs, output)
    return _leave(output, plan, path, status="ok", specs=specs)


def _values(plan: Plan) -> list[str]:
    """Everything that the server gets from variables; what it says about them may quote them."""
    environ = {**os.environ, **plan.secrets()}
    return [environ[name] for name in needed([plan.source], {}) if name in environ]


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
    output.note("`toolpost config check` tries again; to be rid of it, delete its entry under `sources`.")
    return _leave(output, plan, path, status="failed", error=ToolConnectionError(error))


def _leave(
    output: Output,
    plan: Plan,
    path: Path,
    *,
    status: str,
    specs: Sequence[ToolSpec] = (),
    error: ToolError | None = None,
) -> int:
    if output.as_json:
        output.document(
            {
                "status": status,
                "config": str(path),
                "written": status != "dry_run",
                "source": document(plan.source),
                "variables": variable_documents(needed([plan.source], os.environ), plan.variables, os.environ),
                "notes": list(plan.notes),
                "tools": [spec.to_dict() for spec in specs],
                "error": None if error is None else error.to_dict(),
            }
        )
    return int(status == "failed")
