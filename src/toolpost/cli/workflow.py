"""`toolpost workflow`: check, run and draw workflows."""

from __future__ import annotations

import shlex
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolpost.cli.arguments import add_pairs, convert_values, read_json
from toolpost.cli.commands import Commands, CommonOptions
from toolpost.cli.completion import resolve_id
from toolpost.cli.output import Output
from toolpost.cli.prompts import ask_at_terminal, show_outcome
from toolpost.cli.runner import FAILED, every_source, one_source, run_command, run_with_box
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.nearest_names import nearest
from toolpost.contracts.outcomes import Failed, Paused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import ModuleType

    from toolpost.catalog.registry import ToolRegistry
    from toolpost.configuration.loading import LoadedSettings
    from toolpost.contracts.storage import EventSink
    from toolpost.sources.workflow.definition import PlannedStep, Workflow
    from toolpost.toolbox.box import Toolbox

app = Commands(help="Check, run and draw workflows.")

_ADVICE = {
    "validation_failed": "See `inputs` in {path} for the accepted arguments.",
    "timeout": "To allow more time, raise `timeout_s` in {path}.",
}

File = Annotated[Path, typer.Argument(metavar="FILE", help="The YAML file of a workflow.")]
Files = Annotated[list[Path], typer.Argument(metavar="FILE|FOLDER", help="YAML files, or folders of them.")]
Pairs = Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Arguments, one by one.")]
Args = Annotated[str, typer.Option("--args", metavar="JSON", help="The arguments: JSON, @FILE, or - for stdin.")]
Resume = Annotated[
    str, typer.Option("--resume", metavar="ID", help="Resume the run that waited for this pending action.")
]
Picture = Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to write the picture.")]


@app.command("check")
def check(common: CommonOptions, paths: Files) -> None:
    """Check workflows, and their steps against the tools of the catalog.

    Exits with 1 if it finds faults.
    """
    definition = _module("definition")

    async def work(box: Toolbox, output: Output) -> int:
        reports: list[dict[str, Any]] = []
        for path in paths:
            for file, workflow in definition.read_folder(path):
                faults = (
                    [workflow.message] if isinstance(workflow, ConfigError) else list(_faults(workflow, box.registry))
                )
                reports.append({"file": str(file), "faults": faults})
        broken = any(one["faults"] for one in reports)
        if output.as_json:
            output.document({"status": "failed" if broken else "ok", "workflows": reports})
        else:
            for one in reports:
                file = one["file"]
                for fault in one["faults"] or ["no faults"]:
                    said = fault.removeprefix(f"{file}: ").removeprefix(f"{Path(file).name}: ")
                    output.text(f"{file}: {said}")
        return FAILED if broken else 0

    run_with_box(work, common, one_source(None))


@app.command("run")
def run(common: CommonOptions, path: File, pairs: Pairs = None, args: Args = "{}", resume: Resume = "") -> None:
    """Run a workflow that is not in the configuration.

    Configured workflows are tools: toolpost tools call. To resume a run that waited for an answer, use --resume after
    the question is answered; the run keeps its arguments.
    """
    arguments = read_json(args, option="--args")
    values = add_pairs(pairs or (), arguments)
    definition, source = _module("definition"), _module("source")
    read_function = cache(lambda: source.WorkflowFunction(definition.Workflow.read(path)))

    def open_box(loaded: LoadedSettings, sinks: Sequence[EventSink] = (), /) -> AbstractAsyncContextManager[Toolbox]:
        read_function()  # report errors of the file before those of the data folder
        return every_source(loaded, sinks)

    async def work(box: Toolbox, output: Output) -> int:
        function = read_function()
        box.registry.register(function)
        if values:
            convert_values(values, arguments, function.spec.input_schema)
        if resume:
            action_id = await resolve_id(box, "pending", resume, user=common.user)
            await box.recovery.sweep()  # which did not have the workflow when the Toolbox was opened
            outcome = await box.pending.outcome(action_id, by=common.user, wait_s=0)
        else:
            outcome = await box.call(function.spec.name, arguments, user=common.user)
        outcome = await ask_at_terminal(outcome, box, output, user=common.user)
        if isinstance(outcome, Paused):
            command = shlex.join(["toolpost", "workflow", "run", str(path), "--resume", outcome.pending_id])
            output.note(f"To resume after the answer: {command}{output.options}")
        code = outcome.error.error_code if isinstance(outcome, Failed) else ""
        return show_outcome(outcome, output, advice=_ADVICE[code].format(path=path) if code in _ADVICE else None)

    run_with_box(work, common, open_box)


@app.command("graph")
def graph(common: CommonOptions, path: File, output_file: Picture = None) -> None:
    """Draw a workflow as SVG."""
    definition, picture = _module("definition"), _module("picture")

    async def work(output: Output) -> int:
        drawn = picture.draw(definition.Workflow.read(path))
        if output_file is None:
            output.bytes(drawn.encode())
        else:
            _write_picture(output_file, drawn)
            output.note(f"written: {output_file}")
        return 0

    run_command(work, common)


def _write_picture(path: Path, drawn: str) -> None:
    try:
        path.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}; give another file with -o") from error


def _module(name: str) -> ModuleType:
    """Import a module of workflows, which needs the extra."""
    try:
        return import_module(f"toolpost.sources.workflow.{name}")
    except ModuleNotFoundError as error:
        message = f"workflows need the extra workflow ({error.name} is missing): pip install 'toolpost[workflow]'"
        raise typer.BadParameter(message) from error


def _faults(workflow: Workflow, registry: ToolRegistry) -> Iterator[str]:
    """Yield the faults of a workflow's steps against the catalog."""
    for name, step in workflow.steps.items():
        for fault in _step_faults(workflow, step, registry):
            yield f"{workflow.label}: step {name!r} {fault}"


def _step_faults(workflow: Workflow, step: PlannedStep, registry: ToolRegistry) -> Iterator[str]:
    called = step.step.tool
    if not registry.has(called):
        near = nearest(called, [one.name for one in registry.specs()])
        yield f"calls {called!r}, which is not in the catalog{f'; did you mean {near!r}?' if near else ''}"
        return
    spec = registry.find(called).spec
    if spec.has_effects and workflow.data.side_effects in ("pure", "read"):
        effects = f"calls {called!r}, which has effects ({spec.side_effects})"
        yield f"{effects}, and the workflow declares side_effects: {workflow.data.side_effects}"
    arguments, schema = step.step.arguments, spec.input_schema
    for missing in set(schema.get("required", ())).difference(arguments):
        yield f"calls {called!r} without its argument {missing!r}"
    if schema.get("additionalProperties") is False:
        for unknown in set(arguments).difference(schema.get("properties", {})):
            yield f"calls {called!r} with {unknown!r}, which it does not accept"
