"""`toolpost config check` and `toolpost doctor`: find errors of the configuration, the machine and the sources."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from msgspec.structs import asdict

from toolpost import __version__
from toolpost.cli.commands import Commands, CommonOptions
from toolpost.cli.documents import document_hint
from toolpost.cli.lock import changes_since_seen
from toolpost.cli.output import Output, count_tools
from toolpost.cli.platform_checks import describe_extras, describe_programs, missing_features
from toolpost.cli.runner import describe_failure, open_in_memory, run_command
from toolpost.contracts.errors import ConfigError, ToolError

if TYPE_CHECKING:
    from toolpost.configuration.loading import LoadedSettings
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.source_index import SourceState


State = Literal["ok", "note", "broken"]

OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 35)  # UPDATE ... RETURNING, which makes a claim one statement
_LOW_SPACE = 256 * 1024 * 1024
_NO_SPACE = 1024 * 1024
_FEW_FILES = 256


class Check(NamedTuple):
    """Result of one check."""

    name: str
    state: State
    detail: str


Connect = Annotated[bool, typer.Option("--connect", help="Start every source once and count its tools.")]

config_app = Commands(help="Check the configuration.", no_args_is_help=True)


@config_app.callback()
def _group() -> None:
    """Check the configuration."""


@config_app.command("check")
def check(common: CommonOptions, connect: Connect = False) -> None:
    """Validate the configuration without starting any source.

    With --connect, starts every source once and counts its tools. Exits with 1 on errors: a source that fails or cannot
    start, or a deny rule or `hide` override that blocks nothing. Other findings are warnings.
    """

    async def work(output: Output) -> int:
        from toolpost.configuration.loading import load_settings

        loaded = load_settings(common.config)
        async with open_in_memory(loaded, output, connect=connect) as box:
            document = _config_document(loaded, box, connected=connect)
        if output.as_json:
            output.document(document)
        else:
            _print_config(document, output)
        return 0 if document["status"] == "ok" else 1

    run_command(work, common)


def _config_document(loaded: LoadedSettings, box: Toolbox, *, connected: bool) -> dict[str, Any]:
    from toolpost.processes.network_variables import network_variables
    from toolpost.sources.registry import describe_transport

    settings = loaded.settings
    down_sources = box.sources.index.left_out
    problems = [problem for problem in box.problems if problem not in down_sources]
    harmless = find_warnings(box)
    warnings = [problem for problem in problems if problem in harmless]
    sources = (
        [_source_state(state, box) for state in box.report]
        if connected
        else [_unstarted_source(source) for source in settings.all_sources() if source.enabled]
    )
    starts = any(
        describe_transport(source.transport).starts_program(source)
        for source in settings.all_sources()
        if source.enabled
    )
    fine = all(source["ok"] is not False for source in sources) and len(warnings) == len(problems)
    return {
        "status": "ok" if fine else "failed",
        "path": _path_text(loaded.path),
        "data_dir": _path_text(settings.data_dir),
        "policy": settings.policy_data(),
        "builtins": settings.builtins,
        "allowed_paths": [str(path) for path in settings.tools.allowed_paths or []],
        "sources": sources,
        "inherited": list(network_variables().passed_on) if starts else [],
        "withheld": list(network_variables().withheld) if starts else [],
        "disabled": [source.name for source in settings.all_sources() if not source.enabled],
        "problems": problems,
        "warnings": warnings,
        "error": None,
    }


def _source_state(state: SourceState, box: Toolbox) -> dict[str, Any]:
    return {**asdict(state), "error": None if state.ok else describe_failure(state, box)}


def _unstarted_source(source: ExternalToolConfig) -> dict[str, Any]:
    from toolpost.connecting.source_plans import missing_requirements

    missing = "; ".join(missing_requirements(source, os.environ))
    return {
        "name": source.name,
        "transport": source.transport,
        "ok": False if missing else None,
        "tools": None,
        "error": missing or None,
        "state": "down" if missing else "not_started",
    }


def find_warnings(box: Toolbox) -> set[str]:
    """Return the problems that leave no tool unguarded: skipped tools, and names that match nothing."""
    from toolpost.configuration.lint import lint_settings

    warnings = lint_settings(box.settings, box.registry, box.sources.index.listings, box.redactor.text)
    return {*box.sources.index.problems, *(stray.text for stray in warnings if not stray.unguarded)}


def _path_text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _print_config(document: dict[str, Any], output: Output) -> None:
    policy = document["policy"]
    rows = [
        ("file", document["path"] or "none; the defaults apply"),
        ("data folder", document["data_dir"] or "none; all data is in memory"),
        ("policy", policy if isinstance(policy, str) else f"{len(policy)} rules"),
        ("files allowed in", "\n".join(document["allowed_paths"]) or "no folder"),
    ]
    rows += [(f"source {source['name']}", _state_text(source)) for source in document["sources"]]
    rows += [(f"source {name}", "disabled") for name in document["disabled"]]
    if document["inherited"]:
        rows.append(("variables passed to programs", ", ".join(document["inherited"])))
    if document["withheld"]:
        rows.append(
            ("withheld because of credentials", f"{', '.join(document['withheld'])}; to pass them, name them in `env`")
        )
    output.table(["", "read as"], rows)
    for problem in document["problems"]:
        output.note(f"{'warning' if problem in document['warnings'] else 'error'}: {problem}")
    output.note(
        "The configuration is valid." if document["status"] == "ok" else "The configuration has errors; see above."
    )


def _state_text(source: dict[str, Any]) -> str:
    if source["ok"] is None:
        return f"{source['transport']}, not started; use --connect"
    if source["ok"]:
        return f"ok: {source['transport']}, {count_tools(source['tools'])}"
    return f"failed: {source['error']}"


def doctor(common: CommonOptions) -> None:
    """Check everything that calls depend on.

    Checks the installation, the configuration, the data folder and the sources. Exits with 1 if a check fails.
    """

    async def work(output: Output) -> int:
        results = await _run_checks(common.config, output)
        broken = any(check.state == "broken" for check in results)
        if output.as_json:
            checks = [check._asdict() for check in results]
            output.document({"status": "failed" if broken else "ok", "checks": checks})
        else:
            output.table(["Check", "State", ""], results)
            output.note("A check failed; see above." if broken else "All checks passed.")
        return int(broken)

    run_command(work, common)


async def _run_checks(config: Path | None, output: Output) -> list[Check]:
    """Run all checks: machine, configuration, data folder, sources."""
    from toolpost.configuration.loading import load_settings

    checks = list(check_machine())
    try:
        loaded = load_settings(config)
    except ToolError as error:
        return [*checks, Check("configuration", "broken", str(error))]
    checks.append(Check("configuration", "ok", str(loaded.path) if loaded.path else "none; the defaults apply"))
    checks.extend(check_data_folder(loaded.settings))
    return [*checks, *await _check_sources(loaded, output)]


async def _check_sources(loaded: LoadedSettings, output: Output) -> list[Check]:
    try:
        async with open_in_memory(loaded, output) as box:
            count = Check("tools", "ok", f"{len(box.registry.specs())} can be called")
            harmless, down_sources = find_warnings(box), box.sources.index.left_out
            others = [problem for problem in box.problems if problem not in down_sources]
            problems = [Check("tool", "note" if one in harmless else "broken", one) for one in others]
            problems += [Check("tool", "note", change) for change in changes_since_seen(box, loaded.settings)]
            return [count, *(_check_source(state, box) for state in box.report), *problems]
    except ToolError as error:
        return [Check("toolbox", "broken", str(error))]


def _check_source(state: SourceState, box: Toolbox) -> Check:
    if state.ok:
        return Check(f"source {state.name}", "ok", f"{state.transport}, {count_tools(state.tools)}")
    return Check(f"source {state.name}", "broken", describe_failure(state, box))


def check_machine() -> Iterator[Check]:
    """Check versions, platform, process supervision, limits and plug-ins."""
    yield Check("toolpost", "ok", __version__)
    yield Check("documents", "ok", document_hint())
    yield _console()
    yield _at_least("python", sys.version_info[:3], OLDEST_PYTHON)
    yield _at_least("sqlite", sqlite3.sqlite_version_info, OLDEST_SQLITE)
    yield from _platform()
    yield from _installation()
    yield _processes()
    yield from _open_files()
    yield from _plugins()


def check_data_folder(settings: Settings) -> Iterator[Check]:
    """Check permissions, free space, database and encryption key of the data folder."""
    folder = settings.data_dir
    if folder is None:
        yield Check("data folder", "note", "none: all data is in memory and lost at exit")
        return
    if not folder.exists():
        yield _creatable(folder)
        return
    yield _writable(folder)
    yield _space(folder)
    yield from _database(settings)
    yield from _work(settings)
    yield from _keys(settings, folder)


def _at_least(name: str, version: tuple[int, ...], oldest: tuple[int, ...]) -> Check:
    written = ".".join(map(str, version))
    if version < oldest:
        return Check(name, "broken", f"{written}; {'.'.join(map(str, oldest))} or newer is needed")
    return Check(name, "ok", written)


def _console() -> Check:
    from toolpost.console.files import BUILD_COMMANDS, console_build

    build = console_build()
    if build is None:
        return Check("console", "note", f"not in this installation; in a clone, `{BUILD_COMMANDS[0]}` builds it")
    return Check("console", "ok", f"build {build[:8]}")


def _platform() -> Iterator[Check]:
    name = f"{platform.system()} {platform.release()} ({platform.machine()})"
    if platform.system() == "Linux":
        yield Check("platform", "ok", name)
    else:
        yield Check("platform", "note", f"{name}: Toolpost is tested on Linux only; see docs/platforms.md")
    yield from (Check("platform", "note", f"no {one.name}: {one.without}") for one in missing_features())


def _installation() -> Iterator[Check]:
    from toolpost.configuration.extras import installed_extras

    yield Check("extras", "ok", describe_extras(installed_extras()))
    yield Check("programs", "ok", describe_programs())


def _processes() -> Check:
    """Check whether processes that sources start end with this program."""
    from toolpost.processes.sandbox import sandbox_report

    report = sandbox_report()
    whole = report.subreaper and report.parent_death_signal
    return Check("processes", "ok" if whole else "note", report.summary)


def _open_files() -> Iterator[Check]:
    try:
        import resource
    except ImportError:  # Windows has no such limit to ask for.
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FEW_FILES:
        yield Check("open files", "note", f"at most {soft}; raise it with `ulimit -n 1024`")
    else:
        yield Check("open files", "ok", "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft}")


def _plugins() -> Iterator[Check]:
    from toolpost.sources.registry import load_plugins

    plugins = load_plugins()
    sources = ", ".join(plugins.transports) or "none"
    yield Check("plug-ins", "ok", f"{len(plugins.tools)} tools; sources: {sources}")
    yield from (Check("plug-in", "broken", problem) for problem in plugins.problems)


def _creatable(folder: Path) -> Check:
    nearest = next(parent for parent in folder.parents if parent.exists())
    if nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK):
        return Check("data folder", "ok", f"{folder}: created at the first call")
    return Check("data folder", "broken", f"{folder} cannot be created: {nearest} is not a writable folder")


def _writable(folder: Path) -> Check:
    if not folder.is_dir():
        return Check("data folder", "broken", f"{folder} is not a folder; set data_dir to another one")
    place = f"{folder} (mode {_mode(folder):04o})"
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check("data folder", "broken", f"{place} is read-only; give this user write permission or set data_dir")
    if _mode(folder) & 0o077:
        return Check(
            "data folder", "note", f"{place}: other users of this machine can read it; chmod 700 makes it private"
        )
    return Check("data folder", "ok", place)


def _space(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    megabytes = f"{free // (1024 * 1024)} MB"
    if free < _NO_SPACE:
        return Check(
            "free space", "broken", f"{megabytes}: the disk is full; free some space or set data_dir to another folder"
        )
    return Check("free space", "ok" if free >= _LOW_SPACE else "note", megabytes)


def _database(settings: Settings) -> Iterator[Check]:
    from toolpost.stores.registry import find_backend
    from toolpost.toolbox.wiring import store_options

    options = store_options(settings)
    try:
        yield from (Check("database", *check) for check in find_backend(options.database).check(options))
    except ConfigError as error:
        yield Check("database", "broken", str(error))


def _work(settings: Settings) -> Iterator[Check]:
    """Check for processes that ended and left calls, running calls without events, and work that no process reads."""
    from toolpost.cli.status import inspect_store
    from toolpost.contracts.store_status import status_problems

    try:
        inspection = inspect_store(settings)
    except ToolError:  # `_database` says why it cannot be read
        return
    if inspection is None:
        return
    status = inspection.status
    yield from (Check("work", "note", problem) for problem in status_problems(status))
    yield Check("work", "ok", f"{status.running} running, {status.paused} paused, {status.pending} pending actions")


def _keys(settings: Settings, folder: Path) -> Iterator[Check]:
    from toolpost.auth.key_storage import KEY_FILE

    if settings.accounts.key != "file":
        yield _key_elsewhere(settings.accounts.key, folder)
        return
    key = folder / KEY_FILE
    if not key.exists():
        yield Check("key file", "ok", "not created yet")
    elif _mode(key) & 0o077:
        yield Check("key file", "broken", f"{key} has mode {_mode(key):04o}; other users can read it: chmod 600 {key}")
    else:
        yield Check("key file", "ok", f"{key} (mode {_mode(key):04o})")


def _key_elsewhere(reference: str, folder: Path) -> Check:
    from toolpost.auth.keys import keys_from

    try:
        is_missing = keys_from(reference, folder=folder).is_missing()
    except ToolError as error:
        return Check("key", "broken", str(error))
    return Check("key", "ok", f"{reference}{': not created yet' if is_missing else ''}")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
