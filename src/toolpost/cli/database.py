"""`toolpost db`: migrate, check, back up, restore and move the database of a configuration."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from toolpost.cli.commands import Commands, CommonOptions
from toolpost.cli.output import Output, format_time
from toolpost.cli.runner import FAILED, run_command
from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from toolpost.stores.moves import ConfiguredDatabase
    from toolpost.stores.registry import StoreCheck, StoreOptions

app = Commands(help="Migrate, check, back up, restore and move the database.", no_args_is_help=True)

T = TypeVar("T")
_ENVIRONMENT = "env:"
Verify = Annotated[
    bool, typer.Option("--verify", help="Also verify the event log and all rows that grant rights; reads everything.")
]
Target = Annotated[Path, typer.Argument(metavar="FILE|FOLDER", help="New file, or a folder for it.")]
Source = Annotated[Path, typer.Argument(metavar="FILE", help="A file that `db backup` wrote.")]
To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="DATABASE",
        help="postgresql://USER@HOST/DATABASE, or sqlite for the data folder; env:NAME reads it from the environment.",
    ),
]


@app.command("migrate")
def migrate(common: CommonOptions) -> None:
    """Apply the missing migrations to the database, which is created if it is missing.

    Every command that opens the database does this, too. One process migrates, and the others wait for it.
    """

    async def work(output: Output) -> int:
        from toolpost.stores.transfer import find_portable

        options = _options(common)
        backend = find_portable(options)
        done = _interruptible(partial(backend.migrate, options))
        place = backend.describe(options)
        if output.as_json:
            output.document({"database": place, "from": done.before, "to": done.after})
        elif done.before == done.after:
            output.text(f"{place}: version {done.after} is the newest.")
        else:
            begin = f"migrated from version {done.before}" if done.before else "created with version"
            output.text(f"{place}: {begin}{' to ' if done.before else ' '}{done.after}.")
        return 0

    run_command(work, common)


@app.command("check")
def check(common: CommonOptions, verify: Verify = False) -> None:
    """Check the database without changing it: its version, its key and the processes that use it.

    With --verify, also verify the event log. Exits with 1 if a check fails.
    """

    async def work(output: Output) -> int:
        from toolpost.stores.registry import StoreCheck, find_backend

        options = _options(common)
        backend = find_backend(options.database)
        checks = list(backend.check(options))
        broken = any(one.status == "broken" for one in checks)
        if verify and not broken:
            found = await _verify(options)
            checks += found or [StoreCheck("ok", "the event log and all rows that grant rights verify")]
        _show_checks(checks, output)
        return FAILED if any(one.status == "broken" for one in checks) else 0

    run_command(work, common)


@app.command("backup")
def backup(common: CommonOptions, target: Target) -> None:
    """Back up the database and the contents of artifacts into one file, while processes use them.

    The file does not contain the encryption key: back it up separately, because nothing can be restored without it.
    Exits with 1 if the content of an artifact is missing.
    """

    async def work(output: Output) -> int:
        from toolpost.stores.backups import back_up
        from toolpost.stores.transfer import find_portable

        output.interruption = "no backup was written."
        options = _options(common)
        done = _interruptible(partial(back_up, find_portable(options), options, target))
        manifest, size = done.manifest, done.path.stat().st_size
        if output.as_json:
            facts = {"rows": dict(manifest.rows), "contents": manifest.contents, "missing": done.missing}
            output.document({"path": str(done.path), "bytes": size, "created_at": manifest.created_at, **facts})
        else:
            contents = f"the contents of {_count(manifest.contents, 'artifact')}"
            contents += f" from {options.artifacts}" if options.artifacts else ""
            output.text(f"{done.path}: {_rows(manifest.rows)} and {contents}, {size // 1024 + 1} KB.")
            output.note("The encryption key is not in it. Back it up separately: without it, nothing can be restored.")
        if done.deleted:
            output.note(f"{_count(done.deleted, 'artifact')} of deleted runs were left out.")
        if done.missing:
            output.note(
                f"The contents of {_count(len(done.missing), 'artifact')} are not in "
                f"{options.artifacts or 'this data folder'}, so the backup does not contain them: "
                f"{', '.join(sha256[:12] for sha256 in done.missing[:5])}. Are they stored on another machine?"
            )
        return FAILED if done.missing else 0

    run_command(work, common)


@app.command("restore")
def restore(common: CommonOptions, source: Source) -> None:
    """Restore a backup into the database of the configuration, which must be empty.

    Calls that were open in the backup may have happened since: a person decides, and none of them runs again
    automatically. Console sessions end. Keys of callers that were revoked since are valid again.
    """

    async def work(output: Output) -> int:
        from toolpost.stores.backups import announce_restore, restore
        from toolpost.stores.transfer import find_portable

        output.interruption = "nothing was restored; run the command again."
        options = _options(common)
        backend = find_portable(options)
        done = _interruptible(partial(restore, backend, options, source))
        problems = await announce_restore(backend, options, done)
        place, rows = backend.describe(options), done.manifest.rows
        if output.as_json:
            facts = {"created_at": done.manifest.created_at, "rows": dict(rows), "interrupted": done.interrupted}
            output.document({"database": place, **facts, "sessions_ended": done.sessions, "problems": problems})
        else:
            output.text(f"{place}: {_rows(rows)} of {format_time(done.manifest.created_at)} are restored.")
            if options.artifacts:
                output.note(f"The contents of {_count(done.manifest.contents, 'artifact')} are in {options.artifacts}.")
            if done.interrupted:
                output.note(
                    f"{_count(done.interrupted, 'call')} may have happened since: `toolpost pending list"
                    f"{common}` shows them once a process with their tools, such as `toolpost up`, has started."
                )
            output.note("Keys that were revoked since the backup are valid again: `toolpost keys list` shows all.")
        return _report_problems(problems, output)

    run_command(work, common)


@app.command("move")
def move(common: CommonOptions, to: To) -> None:
    """Move all data to another, empty database, such as from SQLite to PostgreSQL, and verify the copy.

    No process may use the database. Afterwards, the old one refuses to open and names the new one. A move that fails
    changes nothing, and one that was interrupted is finished by the next.
    """

    async def work(output: Output) -> int:
        from toolpost.stores import moves

        output.interruption = "run the same command again to finish the move."
        options = _options(common)
        source, target = _place(options), _place(options._replace(database=_address(to)))
        if source.describe() == target.describe():
            raise ConfigError(f"--to: the data is in {source.describe()} already; name another database")
        done = await moves.move(source, target)
        if output.as_json:
            facts = {"rows": dict(done.rows), "problems": done.problems, "resumed": done.resumed}
            output.document({"from": source.describe(), "to": target.describe(), **facts})
        else:
            output.text(f"{_rows(done.rows)} are in {target.describe()} and verified.")
            output.note(f"The contents of artifacts stay in {options.artifacts or options.data_dir}.")
            output.note(
                f"Set `database` to that address in the configuration. {source.describe()} refuses to open now."
            )
        return _report_problems(done.problems, output)

    run_command(work, common)


def _interruptible(work: Callable[[], T]) -> T:
    """Do work that blocks; a signal ends it with KeyboardInterrupt, and its transaction is rolled back."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        return work()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _options(common: CommonOptions) -> StoreOptions:
    from toolpost.configuration.loading import load_settings
    from toolpost.toolbox.wiring import store_options

    return store_options(load_settings(common.config).settings)


def _place(options: StoreOptions) -> ConfiguredDatabase:
    from toolpost.stores.moves import ConfiguredDatabase
    from toolpost.stores.transfer import find_portable

    return ConfiguredDatabase(find_portable(options), options)


def _address(to: str) -> str:
    if not to.startswith(_ENVIRONMENT):
        return to
    name = to.removeprefix(_ENVIRONMENT)
    try:
        return os.environ[name]
    except KeyError:
        raise ConfigError(f"--to: the environment variable {name} is not set") from None


async def _verify(options: StoreOptions) -> list[StoreCheck]:
    from toolpost.stores.registry import StoreCheck, find_backend

    store = await find_backend(options.database).open(options)
    try:
        return [StoreCheck("broken", problem) for problem in await store.events.verify()]
    finally:
        await store.close()


def _show_checks(checks: list[StoreCheck], output: Output) -> None:
    broken = any(one.status == "broken" for one in checks)
    if output.as_json:
        output.document({"status": "failed" if broken else "ok", "checks": [one._asdict() for one in checks]})
    else:
        output.table(["State", ""], checks)
        output.note("A check failed; see above." if broken else "All checks passed.")


def _report_problems(problems: list[str], output: Output) -> int:
    for problem in problems:
        output.note(f"the event log does not verify: {problem}")
    return FAILED if problems else 0


def _rows(rows: Mapping[str, Any]) -> str:
    from toolpost.stores.transfer import count_rows_of_users

    return f"{_count(rows['runs'], 'run')} with {_count(count_rows_of_users(rows), 'row')}"


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
