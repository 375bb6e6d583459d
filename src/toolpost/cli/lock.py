"""`toolpost lock`: write, compare and approve the pinned definitions of tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from toolpost.cli.commands import Commands, CommonOptions, Yes
from toolpost.cli.output import Output, count_tools
from toolpost.cli.prompts import require_confirmation
from toolpost.cli.runner import describe_failure, open_in_memory, run_command
from toolpost.configuration.defaults import LOCK_NAME
from toolpost.contracts.errors import ErrorCategory, ToolError

if TYPE_CHECKING:
    from toolpost.catalog.lock import Difference, Lock
    from toolpost.configuration.settings import Settings
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.lock_comparison import LockComparison

app = Commands(help="Pin the definitions of tools.")

Check = Annotated[bool, typer.Option("--check", help="Write nothing; exit with 1 if anything differs.")]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOOL|SOURCE]...", help="What to approve. [default: everything that differs]"),
]


@app.callback(invoke_without_command=True)
def lock(common: CommonOptions, context: typer.Context, check: Check = False, yes: Yes = False) -> None:
    """Pin the tools of all sources in toolpost.lock.

    Shows the changes and prompts for confirmation. With --check, nothing is written, and differences exit with 1.
    """
    if context.invoked_subcommand is not None:
        if check or yes or common.json or common.config:
            raise typer.BadParameter(f"options go after the command: toolpost lock {context.invoked_subcommand} ...")
        return

    async def work(output: Output) -> int:
        comparison = await _compare_sources(common.config, output)
        if check:
            return _check(comparison, output)
        differences = comparison.differences()
        _show_differences(comparison, differences, output)
        pins = comparison.everything()
        written = pins != dict(comparison.lock.sources)
        if written:
            _confirm(f"Write this to {comparison.lock.path.name}?", output, yes=yes)
            comparison.lock.write(pins)
            output.note(f"{comparison.lock.path.name} was written; commit it.")
        elif not comparison.failed:
            output.note("Nothing to write: all tools match their approved definitions.")
        return _finish(comparison, differences, output, written=written)

    run_command(work, common)


@app.command("diff")
def diff(common: CommonOptions) -> None:
    """Show the differences from toolpost.lock, old and new."""

    async def work(output: Output) -> int:
        comparison = await _compare_sources(common.config, output)
        differences = comparison.differences()
        _show_differences(comparison, differences, output)
        if comparison.unpinned:
            _advise_to_pin(comparison, output)
        elif not differences and not comparison.failed:
            output.note("No differences.")
        return _finish(comparison, differences, output, written=False)

    run_command(work, common)


@app.command("approve")
def approve(common: CommonOptions, names: Names = None, yes: Yes = False) -> None:
    """Approve the current definitions of tools.

    Their calls work again, also in running processes. Shows old and new definitions and prompts for confirmation.
    """

    async def work(output: Output) -> int:
        comparison = await _compare_sources(common.config, output)
        chosen = _select(comparison, names or ())
        _show_differences(comparison, chosen, output)
        if chosen:
            _confirm(
                f"Approve {count_tools(len(chosen))} as {'it is' if len(chosen) == 1 else 'they are'} now?",
                output,
                yes=yes,
            )
            is_written = comparison.accept(chosen)
            output.note(f"Approved; {comparison.lock.path.name} was written, commit it." if is_written else "Approved.")
        elif comparison.unpinned:
            _advise_to_pin(comparison, output)
        elif not comparison.failed:
            output.note("Nothing to approve: no differences.")
        return _finish(comparison, chosen, output, written=bool(chosen))

    run_command(work, common)


async def _compare_sources(config: Path | None, output: Output) -> LockComparison:
    from toolpost.catalog.lock import Lock
    from toolpost.configuration.loading import load_settings

    loaded = load_settings(config)
    if loaded.settings.lock is None:
        raise ToolError(
            "pinning is disabled by `lock: null` in the configuration; remove that line to use the lock file",
            code="no_lock",
        )
    async with open_in_memory(loaded, output) as box:
        return _compare(box, loaded.settings, Lock(loaded.settings.lock))


def _compare(box: Toolbox, settings: Settings, lock: Lock) -> LockComparison:
    from toolpost.toolbox.lock_comparison import compare_with_lock

    comparison = compare_with_lock(box, settings, lock)
    failed = {state.name: describe_failure(state, box) for state in box.report if not state.ok}
    return replace(comparison, failed=failed)


def changes_since_seen(box: Toolbox, settings: Settings) -> list[str]:
    """Return a message for each tool that changed since a Toolbox with this data folder has first seen it."""
    from toolpost.catalog.lock import FIRST_SEEN, Lock, describe_change
    from toolpost.toolbox.source_tools import CHANGE_REMEDY

    comparison = _compare(box, settings, Lock(settings.lock or Path(LOCK_NAME)))
    return [
        f"tool {one.name!r}: {describe_change(one.before, one.after, FIRST_SEEN)}. {CHANGE_REMEDY.format(one.name)}"
        for one in comparison.differences()
        if one.source in comparison.unpinned and one.before is not None and one.after is not None
    ]


def _check(comparison: LockComparison, output: Output) -> int:
    if not comparison.lock.path.exists():
        raise ToolError(f"{comparison.lock.path.name} does not exist; `toolpost lock` writes it", code="no_lock")
    differences = comparison.differences()
    _show_differences(comparison, differences, output, pinning=False)
    if differences:
        output.note(
            f"{count_tools(len(differences))} differ from {comparison.lock.path.name}; "
            "`toolpost lock approve` approves them."
        )
    elif comparison.unpinned:
        _advise_to_pin(comparison, output)
    elif not comparison.failed:
        output.note(f"All tools match {comparison.lock.path.name}.")
    return max(_finish(comparison, differences, output, written=False), int(bool(differences or comparison.unpinned)))


def _advise_to_pin(comparison: LockComparison, output: Output) -> None:
    output.note(f"{comparison.lock.path.name} does not have all sources; `toolpost lock` adds them.")


def _select(comparison: LockComparison, names: Sequence[str]) -> list[Difference]:
    """Return the differences of these tools and sources; raise a ToolError for an unknown name."""
    differences = comparison.differences()
    if not names:
        return differences
    for name in names:
        is_source = (
            name in comparison.lock.sources or name in comparison.seen or any(name == one.name for one in differences)
        )
        if not is_source and not _is_pinned(comparison, name):
            lines = f"{name!r} is not a source in {comparison.lock.path.name}, nor a tool of a source that differs"
            raise ToolError(lines, category=ErrorCategory.NON_RETRYABLE_CLIENT, code="tool_not_found", tool_name=name)
    return [one for one in differences if one.name in names or one.source in names]


def _is_pinned(comparison: LockComparison, name: str) -> bool:
    source, _, tool = name.partition(".")
    return tool in comparison.lock.sources.get(source, {})


def _confirm(question: str, output: Output, *, yes: bool) -> None:

    output.status.clear()
    require_confirmation(question, yes=yes)


def _show_differences(
    comparison: LockComparison, found: Sequence[Difference], output: Output, *, pinning: bool = True
) -> None:
    """Show the differences and unpinned sources; on stderr where stdout is for JSON."""
    for one in found:
        output.announce("\n".join(describe_difference(one)))
    for source in comparison.unpinned:
        tools = comparison.listed[source]
        output.announce(
            f"{source}: not pinned yet, {count_tools(len(tools))}"
            + ("".join(f"\n  {name}  {pin.annotations}" for name, pin in sorted(tools.items())) if pinning else "")
        )
    for source, error in comparison.failed.items():
        output.note(f"source {source!r} cannot be compared: {error}")


def describe_difference(one: Difference) -> list[str]:
    """Return the lines of a difference: the approved text with a minus, the current text with a plus."""
    lines = [f"{one.kind} {one.name}"]
    for change in one.changes():
        lines.append(f"  {change.part}")
        lines += [f"    - {line}" for line in change.before.splitlines()]
        lines += [f"    + {line}" for line in change.after.splitlines()]
    return lines


def _finish(comparison: LockComparison, found: Sequence[Difference], output: Output, *, written: bool) -> int:
    failed = bool(comparison.failed)
    if output.as_json:
        differs = bool(found or comparison.unpinned) and not written
        status = "failed" if failed else "different" if differs else "ok"
        document: dict[str, Any] = {
            "status": status,
            "path": str(comparison.lock.path),
            "written": written,
            "differences": [one.to_dict() for one in found],
            "unpinned": comparison.unpinned,
            "failed": comparison.failed,
            "error": None,
        }
        output.document(document)
    return int(failed)
