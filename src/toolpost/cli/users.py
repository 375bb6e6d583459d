"""`toolpost users`: the users and tenants of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolpost.cli.commands import AllTenants, Commands, CommonOptions, check_operator
from toolpost.cli.output import Output, format_time
from toolpost.cli.runner import no_source, run_with_box
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.contracts.users import sum_tenants

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox

app = Commands(help="List users and tenants.", no_args_is_help=True)
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most N, by name.")]


@app.callback()
def _group() -> None:
    """List users and tenants."""


@app.command("list")
def list_users(common: CommonOptions, limit: Limit = 1000, all_tenants: AllTenants = False) -> None:
    """List the users of your tenant.

    A user has made a call, or has a key, an account at a service or an open pending action.
    """
    check_operator(common.user, all_tenants=all_tenants)

    async def work(box: Toolbox, output: Output) -> int:
        tenant = None if all_tenants else Principal.parse(common.user).tenant
        users = (await box.store.users(tenant=tenant))[:limit]
        if output.as_json:
            output.document([user.to_dict() for user in users])
        elif not users:
            output.text("There are no users yet." if tenant is None else f"The tenant {tenant!r} has no users yet.")
        else:
            rows = [
                (str(one.principal), format_time(one.last_run_at), *map(str, (one.keys, one.accounts, one.pending)))
                for one in users
            ]
            output.table(["User", "Last run", "Keys", "Accounts", "Pending"], rows)
        return 0

    run_with_box(work, common, no_source)


@app.command("tenants")
def list_tenants(common: CommonOptions) -> None:
    """List the tenants with the sums of their users: all for the operator, else your own."""

    async def work(box: Toolbox, output: Output) -> int:
        own = Principal.parse(common.user).tenant
        tenants = sum_tenants(await box.store.users(tenant=None if own == LOCAL_TENANT else own))
        if output.as_json:
            output.document([tenant.to_dict() for tenant in tenants])
        elif not tenants:
            output.text("There are no users yet.")
        else:
            rows = [
                (one.tenant, str(one.users), format_time(one.last_run_at), str(one.keys), str(one.pending))
                for one in tenants
            ]
            output.table(["Tenant", "Users", "Last run", "Keys", "Pending"], rows)
        return 0

    run_with_box(work, common, no_source)
