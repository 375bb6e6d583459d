"""`toolpost config`: whether the configuration holds."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolpost.cli.commands import Commands
from toolpost.cli.obstacles import obstacles
from toolpost.cli.options import Config, Json, User
from toolpost.cli.output import Output
from toolpost.cli.session import rehearsal, run_command
from toolpost.cli.source_trouble import trouble
from toolpost.cli.tool_table import counted

if TYPE_CHECKING:
    from toolpost.configuration.loading import LoadedSettings
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.source_manager import SourceState

Connect = Annotated[bool, typer.Option("--connect", help="Start every source once, and count its tools.")]

app = Commands(help="Check the configuration.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Check the configuration."""


@app.command("check")
def check(
    connect: Connect = False,
    config: Config = None,
    user: User = "",  # noqa: ARG001 - as every command
    json: Json = False,
) -> None:
    """Read it and say what is wrong, without starting anything.

    With --connect every source is started once, and its tools are counted. Exits 1 when something is wrong: a
    source that fails or cannot start, or a rule that forbids nothing. All else is a warning.
    """

    async def work(output: Output) -> int:
        from toolpost.configuration.loading import load_settings

        loaded = load_settings(config)
        async with rehearsal(loaded, output, connect=connect) as box:
            document = _document(loaded, box, connected=connect)
        if output.as_json:
            output.document(document)
        else:
            _tell(document, output)
        return 0 if document["status"] == "ok" else 1

    run_command(work, as_json=json)


def _document(loaded: LoadedSettings, box: Toolbox, *, connected: bool) -> dict[str, Any]:
    settings = loaded.settings
    told = box.sources.left_out
    problems = [problem for problem in box.problems if problem not in told]
    told_only = harmless(box)
    warnings = [problem for problem in problems if problem in told_only]
    sources = [_told(state, box) for state in box.report] if connected else _unstarted(settings)
    fine = all(source["ok"] is not False for source in sources) and len(warnings) == len(problems)
    return {
        "status": "ok" if fine else "failed",
        "path": _text(loaded.path),
        "data_dir": _text(settings.data_dir),
        "policy": settings.policy_data(),
        "builtins": settings.builtins,
        "allowed_paths": [str(path) for path in settings.tools.allowed_paths or []],
        "sources": sources,
        "disabled": [source.name for source in settings.all_sources() if not source.enabled],
        "problems": problems,
        "warnings": warnings,
        "error": None,
    }


def _told(state: SourceState, box: Toolbox) -> dict[str, Any]:
    return {**asdict(state), "error": None if state.ok else trouble(state, box)}


def _unstarted(settings: Settings) -> list[dict[str, Any]]:
    """The sources as far as they can be known without starting one: `ok` is false where one cannot start."""
    return [_unstarted_source(source) for source in settings.all_sources() if source.enabled]


def _unstarted_source(source: ExternalToolConfig) -> dict[str, Any]:
    missing = "; ".join(obstacles(source, os.environ))
    return {
        "name": source.name,
        "transport": source.transport,
        "ok": False if missing else None,
        "tools": None,
        "error": missing or None,
        "state": "down" if missing else "not_started",
    }


def harmless(box: Toolbox) -> set[str]:
    """Problems that leave no tool without its guard: tools that were left out, and names that match nothing."""
    from toolpost.configuration.lint import lint_settings

    found = lint_settings(box.settings, box.registry, box.sources.listings, box.redactor)
    return {*box.sources.problems, *(stray.text for stray in found if not stray.unguarded)}


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _tell(document: dict[str, Any], output: Output) -> None:
    policy = document["policy"]
    rows = [
        ("file", document["path"] or "none; the defaults hold"),
        ("data folder", document["data_dir"] or "none; everything is kept in memory"),
        ("policy", policy if isinstance(policy, str) else f"{len(policy)} rules"),
        ("files allowed in", "\n".join(document["allowed_paths"]) or "no folder"),
    ]
    rows += [(f"source {source['name']}", _state(source)) for source in document["sources"]]
    rows += [(f"source {name}", "disabled") for name in document["disabled"]]
    output.table(["", "read as"], rows)
    for problem in document["problems"]:
        output.note(f"{'warning' if problem in document['warnings'] else 'wrong'}: {problem}")
    output.note("The configuration holds." if document["status"] == "ok" else "Something is wrong; see above.")


def _state(source: dict[str, Any]) -> str:
    if source["ok"] is None:
        return f"{source['transport']}, not started; --connect does"
    if source["ok"]:
        return f"ok: {source['transport']}, {counted(source['tools'])}"
    return f"failed: {source['error']}"
