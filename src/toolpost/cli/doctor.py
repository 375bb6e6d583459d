"""`toolpost doctor`: whether this machine, the data folder and the sources are well."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolpost.cli.options import Config, Json, User
from toolpost.cli.output import Output
from toolpost.cli.session import rehearsal, run_command
from toolpost.cli.source_trouble import trouble
from toolpost.cli.tool_table import counted
from toolpost.contracts.errors import ToolError

if TYPE_CHECKING:
    from toolpost.cli.checks import Check
    from toolpost.configuration.loading import LoadedSettings
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.source_manager import SourceState


def doctor(config: Config = None, user: User = "", json: Json = False) -> None:  # noqa: ARG001 - as every command
    """Look for what is broken.

    Everything that calls depend on is looked at; exits 1 when something is broken.
    """

    async def work(output: Output) -> int:
        found = await _checks(config, output)
        broken = any(check.state == "broken" for check in found)
        if output.as_json:
            output.document(_document(found, broken=broken))
        else:
            output.table(["Check", "State", ""], found)
            output.note("Something is broken; see above." if broken else "All is well.")
        return int(broken)

    run_command(work, as_json=json)


def _document(found: list[Check], *, broken: bool) -> dict[str, Any]:
    return {"status": "failed" if broken else "ok", "checks": [check.to_dict() for check in found]}


async def _checks(config: Path | None, output: Output) -> list[Check]:
    """From what everything stands on to what stands on everything."""
    from toolpost.cli.checks import Check, data_folder, machine
    from toolpost.configuration.loading import load_settings

    found = list(machine())
    try:
        loaded = load_settings(config)
    except ToolError as error:
        return [*found, Check("configuration", "broken", str(error))]
    found.append(Check("configuration", "ok", str(loaded.path) if loaded.path else "none; the defaults hold"))
    found.extend(data_folder(loaded.settings.data_dir))
    return [*found, *await _sources(loaded, output)]


async def _sources(loaded: LoadedSettings, output: Output) -> list[Check]:
    from toolpost.cli.checks import Check
    from toolpost.cli.config import harmless

    try:
        async with rehearsal(loaded, output) as box:
            count = Check("tools", "ok", f"{len(box.registry.specs())} can be called")
            told_only, told = harmless(box), box.sources.left_out
            others = [problem for problem in box.problems if problem not in told]
            problems = [Check("tool", "note" if one in told_only else "broken", one) for one in others]
            return [count, *(_source(state, box) for state in box.report), *problems]
    except ToolError as error:
        return [Check("toolbox", "broken", str(error))]


def _source(state: SourceState, box: Toolbox) -> Check:
    from toolpost.cli.checks import Check

    if state.ok:
        return Check(f"source {state.name}", "ok", f"{state.transport}, {counted(state.tools)}")
    return Check(f"source {state.name}", "broken", trouble(state, box))
