"""Schedules of calls: `toolpost schedule add`, `list` and `remove`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolpost.cli.arguments import add_pairs, convert_values, read_json
from toolpost.cli.commands import AllTenants, Commands, CommonOptions, check_operator
from toolpost.cli.output import Output, format_time
from toolpost.cli.runner import create_store, no_source, run_with_box, tool_source
from toolpost.cli.tools import Args, Pairs
from toolpost.contracts.errors import ToolClientError, ToolConflictError
from toolpost.contracts.jobs import Schedule
from toolpost.contracts.principal import Principal

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox

app = Commands(help="Calls that are requested at the times of a cron expression.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule, unique in the tenant.")]
Expression = Annotated[
    str, typer.Argument(metavar="CRON", help="Minute, hour, day, month and weekday, such as '0 2 * * *'; or @daily.")
]
ToolName = Annotated[str, typer.Argument(metavar="TOOL", help="Name of the tool.")]
Timezone = Annotated[str, typer.Option("--timezone", metavar="ZONE", help="Time zone, such as Europe/Berlin.")]


@app.command("add")
def add_schedule(
    common: CommonOptions,
    name: Name,
    cron: Expression,
    tool: ToolName,
    pairs: Pairs = None,
    args: Args = "{}",
    timezone: Timezone = "UTC",
) -> None:
    """Add a schedule of a call, which runs as --user.

    A process with the tool must be running at that time: `toolpost up`, or `toolpost worker`.
    """
    arguments = read_json(args, option="--args")
    values = add_pairs(pairs or (), arguments)

    async def work(box: Toolbox, output: Output) -> int:
        from toolpost.runtime.cron import Cron

        following = Cron.parse(cron, timezone).next_after(time.time())
        entry = box.registry.find(tool)
        convert_values(values, arguments, entry.spec.input_schema)
        entry.fit(arguments)  # raises if the call would be refused
        schedule = Schedule(
            name=name,
            cron=cron,
            principal=Principal.parse(common.user),
            tool_name=tool,
            arguments=arguments,
            created_at=time.time(),
            created_by=common.user,
            timezone=timezone,
        )
        if not await box.engine.schedule(schedule):
            message = f"a schedule {name!r} exists already; remove it first: toolpost schedule remove {name}"
            raise ToolConflictError(message, code="schedule_exists")
        if output.as_json:
            output.document(_row(schedule, following))
        else:
            output.text(f"{name}: {tool} is called as {common.user}, next at {format_time(following)}.")
            output.note("Calls are made while `toolpost up` or `toolpost worker` is running.")
        return 0

    run_with_box(work, common, tool_source(tool, called=True))


@app.command("list")
def list_schedules(common: CommonOptions, all_tenants: AllTenants = False) -> None:
    """List schedules with their next times."""
    check_operator(common.user, all_tenants=all_tenants)

    async def work(box: Toolbox, output: Output) -> int:
        from toolpost.runtime.cron import Cron

        tenant = None if all_tenants else Principal.parse(common.user).tenant
        found = await box.store.schedules.list(tenant=tenant)
        rows = [_row(one, Cron.parse(one.cron, one.timezone).next_after(time.time())) for one in found]
        if output.as_json:
            output.document(rows)
        elif not rows:
            output.text(f"There are no schedules: `toolpost schedule add{output.options}` creates one.")
        else:
            output.table(
                ["Name", "Cron", "Zone", "Tool", "User", "Last", "Next"],
                [
                    (
                        one.name,
                        one.cron,
                        one.timezone,
                        one.tool_name,
                        str(one.principal),
                        format_time(one.last_at) or "never",
                        format_time(row["next_at"]),
                    )
                    for one, row in zip(found, rows, strict=True)
                ],
            )
        return 0

    run_with_box(work, common, no_source)


@app.command("remove")
def remove_schedule(common: CommonOptions, name: Name) -> None:
    """Remove a schedule; calls that were requested before are made."""

    async def work(box: Toolbox, output: Output) -> int:
        if not await box.engine.unschedule(name, tenant=Principal.parse(common.user).tenant):
            message = f"there is no schedule {name!r}; `toolpost schedule list{output.options}` shows all"
            raise ToolClientError(message, code="schedule_not_found")
        if output.as_json:
            output.document({"removed": name})
        else:
            output.text(f"{name} is removed.")
        return 0

    run_with_box(work, common, create_store)


def _row(schedule: Schedule, following: float) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "tool": schedule.tool_name,
        "user": str(schedule.principal),
        "last_at": schedule.last_at,
        "next_at": following,
    }
