"""`toolpost lock`: the definitions of tools that a person agreed to, written, compared and agreed to again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolpost.cli.commands import Commands, Config, Json, User
from toolpost.cli.output import Output, count_tools
from toolpost.cli.runner import rehearsal, run_command, trouble
from toolpost.contracts.errors import ErrorCategory, ToolError

if TYPE_CHECKING:
    from toolpost.catalog.lock import Difference, Lock, Pin, Pins
    from toolpost.configuration.settings import Settings
    from toolpost.toolbox.box import Toolbox

app = Commands(help="Pin the definitions of tools.")

Check = Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 where something differs.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask whether this is agreed to.")]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="[TOOL|SOURCE]...", help="What to agree to; without, all that differs.")
]


@app.callback(invoke_without_command=True)
def lock(
    context: typer.Context,
    check: Check = False,
    yes: Yes = False,
    config: Config = None,
    user: User = "",  # noqa: ARG001 - as every command
    json: Json = False,
) -> None:
    """Pin every source's tools in toolpost.lock.

    Shows what changes and asks first. With --check nothing is written, and what differs exits 1.
    """
    if context.invoked_subcommand is not None:
        if check or yes or json or config:
            raise typer.BadParameter(f"options go after the command: toolpost lock {context.invoked_subcommand} ...")
        return

    async def work(output: Output) -> int:
        survey = await _survey(config, output)
        if check:
            return _checked(survey, output)
        found = survey.differences()
        _tell(survey, found, output)
        pins = survey.everything()
        written = pins != dict(survey.lock.sources)
        if written:
            _agree(f"Write this to {survey.lock.path.name}?", output, yes=yes)
            survey.lock.write(pins)
            output.note(f"{survey.lock.path.name} is written; commit it.")
        elif not survey.failed:
            output.note("Nothing to write: all is as it was agreed to.")
        return _leave(survey, found, output, written=written)

    run_command(work, as_json=json)


@app.command("diff")
def diff(config: Config = None, user: User = "", json: Json = False) -> None:  # noqa: ARG001 - as every command
    """Show what differs from toolpost.lock, old and new."""

    async def work(output: Output) -> int:
        survey = await _survey(config, output)
        found = survey.differences()
        _tell(survey, found, output)
        if not found:
            output.note("Nothing differs.")
        return _leave(survey, found, output, written=False)

    run_command(work, as_json=json)


@app.command("approve")
def approve(
    names: Names = None,
    yes: Yes = False,
    config: Config = None,
    user: User = "",  # noqa: ARG001 - as every command
    json: Json = False,
) -> None:
    """Agree to tools as they are now.

    Their calls run again, in processes that run already, too. Shows old and new and asks first.
    """

    async def work(output: Output) -> int:
        survey = await _survey(config, output)
        chosen = _chosen(survey, names or ())
        _tell(survey, chosen, output)
        if chosen:
            _agree(
                f"Agree to {count_tools(len(chosen))} as {'it is' if len(chosen) == 1 else 'they are'} now?",
                output,
                yes=yes,
            )
            survey.lock.write(survey.with_only(chosen))
            output.note(f"Agreed; {survey.lock.path.name} is written, commit it.")
        else:
            output.note("Nothing to agree to: nothing differs.")
        return _leave(survey, chosen, output, written=bool(chosen))

    run_command(work, as_json=json)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Survey:
    """The lock file, and what the sources list now; `failed` are those that cannot be asked, and why.

    Of `partial` ones others may show to whoever signs in, so that nothing is gone for not being listed.
    """

    lock: Lock
    configured: set[str]
    listed: Pins
    failed: dict[str, str]
    partial: set[str]

    def differences(self) -> list[Difference]:
        """What differs of the sources that are pinned."""
        from toolpost.catalog.lock import Difference, compare

        found: list[Difference] = []
        for source, before in self.lock.sources.items():
            if source in self.listed:
                found += compare(source, before, self.listed[source], whole=source not in self.partial)
            elif source not in self.configured:
                found += [Difference(source, name, "gone", pin, None) for name, pin in sorted(before.items())]
        return found

    @property
    def unpinned(self) -> list[str]:
        """The sources that the lock file does not have."""
        return [source for source in self.listed if source not in self.lock.sources]

    def everything(self) -> Pins:
        """The pins of all sources; those that cannot be asked keep theirs, those that were taken out have none."""
        kept = {name: dict(pins) for name, pins in self.lock.sources.items() if name in self.configured}
        for source, pins in self.listed.items():
            kept[source] = {**kept.get(source, {}), **pins} if source in self.partial else dict(pins)
        return kept

    def with_only(self, chosen: Sequence[Difference]) -> Pins:
        """The pins with these differences agreed to."""
        pins = {name: dict(pins) for name, pins in self.lock.sources.items()}
        for one in chosen:
            pins[one.source].pop(one.tool, None)
            if one.after is not None:
                pins[one.source][one.tool] = one.after
        return {name: tools for name, tools in pins.items() if tools or name in self.configured}


async def _survey(config: Path | None, output: Output) -> _Survey:
    from toolpost.catalog.lock import Lock
    from toolpost.configuration.loading import load_settings

    loaded = load_settings(config)
    if loaded.settings.lock is None:
        raise ToolError("the configuration has lock: null, so that nothing is pinned; take that out", code="no_lock")
    async with rehearsal(loaded, output) as box:
        return _surveyed(box, loaded.settings, Lock(loaded.settings.lock))


def _surveyed(box: Toolbox, settings: Settings, lock: Lock) -> _Survey:
    states = {state.name: state for state in box.report}
    up = {name: box.sources.pins(name) for name, state in states.items() if state.ok}
    return _Survey(
        lock=lock,
        configured={source.name for source in settings.all_sources()},
        listed=up,
        failed={name: trouble(state, box) for name, state in states.items() if not state.ok},
        partial={listing.config.name for listing in box.sources.listings if not listing.sure},
    )


def _checked(survey: _Survey, output: Output) -> int:
    if not survey.lock.path.exists():
        raise ToolError(f"there is no {survey.lock.path.name}; `toolpost lock` writes it", code="no_lock")
    found = survey.differences()
    _tell(survey, found, output, pinning=False)
    if found:
        output.note(
            f"{count_tools(len(found))} differ from {survey.lock.path.name}; `toolpost lock approve` agrees to them."
        )
    elif survey.unpinned:
        output.note(f"{survey.lock.path.name} does not have all sources; `toolpost lock` adds them.")
    elif not survey.failed:
        output.note(f"All is as {survey.lock.path.name} has it.")
    return max(_leave(survey, found, output, written=False), int(bool(found or survey.unpinned)))


def _chosen(survey: _Survey, names: Sequence[str]) -> list[Difference]:
    """The differences that are meant; a name that means none is told."""
    found = survey.differences()
    if not names:
        return found
    for name in names:
        known = name in survey.lock.sources or any(name == one.name for one in found)
        if not known and not _is_pinned(survey, name):
            told = f"{name!r} is no source in {survey.lock.path.name}, and no tool of one that differs"
            raise ToolError(told, category=ErrorCategory.NON_RETRYABLE_CLIENT, code="tool_not_found", tool_name=name)
    return [one for one in found if one.name in names or one.source in names]


def _is_pinned(survey: _Survey, name: str) -> bool:
    source, _, tool = name.partition(".")
    return tool in survey.lock.sources.get(source, {})


def _agree(question: str, output: Output, *, yes: bool) -> None:
    from toolpost.cli.prompts import confirm

    output.status.clear()
    if not confirm(question, yes=yes):
        raise ToolError("nothing was written, because nobody agreed", code="not_confirmed")


def _tell(survey: _Survey, found: Sequence[Difference], output: Output, *, pinning: bool = True) -> None:
    """What there is to agree to, for people: it stands beside the JSON where that was asked for."""
    say = output.note if output.as_json else output.text
    for one in found:
        say("\n".join(lines_of(one)))
    for source in survey.unpinned:
        tools = survey.listed[source]
        say(f"{source}: not pinned yet, {count_tools(len(tools))}" + ("".join(_names(tools)) if pinning else ""))
    for source, error in survey.failed.items():
        output.note(f"source {source!r} cannot be compared: {error}")


def _names(tools: dict[str, Pin]) -> list[str]:
    return [f"\n  {name}  {pin.annotations}" for name, pin in sorted(tools.items())]


def lines_of(one: Difference) -> list[str]:
    """One difference, for people: what was agreed to with a minus, what is there now with a plus."""
    told = [f"{one.kind} {one.name}"]
    for change in one.changes():
        told.append(f"  {change.part}")
        told += [f"    - {line}" for line in change.before.splitlines()]
        told += [f"    + {line}" for line in change.after.splitlines()]
    return told


def _leave(survey: _Survey, found: Sequence[Difference], output: Output, *, written: bool) -> int:
    failed = bool(survey.failed)
    if output.as_json:
        differs = bool(found or survey.unpinned) and not written
        status = "failed" if failed else "different" if differs else "ok"
        document: dict[str, Any] = {
            "status": status,
            "path": str(survey.lock.path),
            "written": written,
            "differences": [one.to_dict() for one in found],
            "unpinned": survey.unpinned,
            "failed": survey.failed,
            "error": None,
        }
        output.document(document)
    return int(failed)
