"""`toolpost keys`: the keys of the gateway's callers, and the key that encrypts the data folder."""

from __future__ import annotations

import time
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from toolpost.cli import completion
from toolpost.cli.arguments import parse_duration_option
from toolpost.cli.commands import Commands, CommonOptions
from toolpost.cli.completion import resolve_id
from toolpost.cli.output import Output, format_time
from toolpost.cli.runner import FAILED, create_store, no_source, run_with_box
from toolpost.contracts.callers import KEY_PREFIX, SCOPES, CallerKey, CallerScope
from toolpost.contracts.errors import ToolError
from toolpost.contracts.principal import Principal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.toolbox.box import Toolbox

app = Commands(
    help="Keys of callers of `toolpost up`, and the key that encrypts the data folder.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Purpose of the key, such as research-bot.")]
For = Annotated[
    str | None,
    typer.Option(
        "--for", metavar="TENANT:USER", help="Principal that its requests run as.", show_default="NAME, in your tenant"
    ),
]
Scopes = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        metavar="SCOPE",
        help="call (for an agent), answer and admin (for programs that people use), or observe (for a monitoring "
        "system). Can be repeated.",
        show_default="call",
    ),
]
Expires = Annotated[
    float | None,
    typer.Option(
        "--expires",
        metavar="DURATION",
        help="Lifetime of the key: 12h, 90d.",
        show_default="until revoked",
        parser=parse_duration_option,
    ),
]
Interactive = Annotated[
    bool,
    typer.Option(
        "--interactive",
        help="A person operates the MCP client with this key and answers questions of tools and servers there.",
    ),
]
ForPerson = Annotated[
    bool,
    typer.Option("--person", help="A person signs in to the console with this key; default scopes: call and answer."),
]
_OTHER_TENANTS = "--user TENANT:USER shows the keys of another tenant."
KeyId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="ID of the key, or a unique prefix; see `keys list`. Accepts the key itself, too.",
        autocompletion=completion.key_ids,
    ),
]


@app.command("create")
def create_key(
    common: CommonOptions,
    name: Name,
    for_: For = None,
    scope: Scopes = None,
    expires: Expires = None,
    interactive: Interactive = False,
    person: ForPerson = False,
) -> None:
    """Create a key for a caller, and print it once.

    A key with the scope call is for an agent and never approves a call. With --interactive, the person who operates
    the MCP client answers questions of tools and servers there; otherwise these questions are pending actions, like
    approvals.

    With --person, the key only opens sessions of the console, where the person may both call and answer.
    """

    async def work(box: Toolbox, output: Output) -> int:
        from toolpost.gateway.caller_keys import create_caller_key

        caller = _parse_caller(for_ or f"{Principal.parse(common.user).tenant}:{name}")
        key, text = await create_caller_key(
            box,
            name,
            caller,
            _parse_scopes(scope, person=person),
            by=common.user,
            expires_in_s=expires,
            interactive=interactive,
            person=person,
        )
        if output.as_json:
            output.document({**key.to_dict(), "key": text})
        else:
            output.text(text)
            use = "sign in to the console with it" if person else "send it as a bearer token"
            output.note(f"This is key {key.id} of {caller}. It is not stored and not shown again; {use}.")
            if caller.tenant != Principal.parse(common.user).tenant:
                output.note(f"`toolpost keys list --user {quote(str(caller))}` shows the keys of its tenant.")
        return 0

    run_with_box(work, common, create_store)


def _parse_caller(text: str) -> Principal:
    try:
        return Principal.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--for") from None


def _parse_scopes(text: list[str] | None, *, person: bool) -> list[CallerScope]:
    for name in text or ():
        if name not in SCOPES:
            raise typer.BadParameter(
                f"{name!r} is not a scope; valid scopes: {', '.join(SCOPES)}", param_hint="--scope"
            )
    default = ("call", "answer") if person else ("call",)
    return [scope for scope in SCOPES if scope in (text or default)]


@app.command("list")
def list_keys(common: CommonOptions) -> None:
    """List the keys of callers of your tenant."""

    async def work(box: Toolbox, output: Output) -> int:
        tenant = Principal.parse(common.user).tenant
        used = await box.store.key_uses.list()
        _show_keys(await box.store.caller_keys.list(tenant=tenant), used, tenant, output)
        return 0

    run_with_box(work, common, no_source)


def _show_keys(keys: list[CallerKey], used: Mapping[str, float], tenant: str, output: Output) -> None:
    if output.as_json:
        output.document([{**key.to_dict(), "last_used_at": used.get(key.id)} for key in keys])
        return
    if not keys:
        create = f"`toolpost keys create NAME{output.options}` creates one"
        output.text(f"The tenant {tenant!r} has no caller keys: {create}. {_OTHER_TENANTS}")
        return
    now = time.time()
    rows = [
        (
            key.id,
            key.name,
            str(key.principal),
            " ".join(sorted(key.scopes)) + _use_of(key),
            format_time(key.created_at),
            f"{format_time(key.expires_at)}{' (expired)' if key.expires_at and key.expires_at <= now else ''}",
            format_time(used.get(key.id)) or "never",
        )
        for key in keys
    ]
    output.table(["Key", "Name", "For", "Scopes", "Created", "Expires", "Last used"], rows)
    output.note(f"Keys of the tenant {tenant!r}. {_OTHER_TENANTS}")


def _use_of(key: CallerKey) -> str:
    return " (interactive)" if key.interactive else " (person)" if key.person else ""


@app.command("revoke")
def revoke_key(common: CommonOptions, key_id: KeyId) -> None:
    """Revoke a key: its next request is rejected."""
    id_start = key_id.removeprefix(KEY_PREFIX).partition("_")[0]  # of a whole key its secret is not repeated

    async def work(box: Toolbox, output: Output) -> int:
        from toolpost.gateway.caller_keys import revoke_caller_key

        full_id = await resolve_id(box, "caller_key", id_start, user=common.user)
        if not await revoke_caller_key(box, full_id, by=common.user):
            tenant = Principal.parse(common.user).tenant
            raise ToolError(
                f"the tenant {tenant!r} has no key {full_id!r}; `toolpost keys list{output.options}` lists its keys, "
                "and with --user TENANT:USER those of another tenant",
                code="key_not_found",
            )
        if output.as_json:
            output.document({"status": "revoked", "id": full_id})
        else:
            output.text(f"revoked: {full_id}.")
        return 0

    run_with_box(work, common, no_source)


Retire = Annotated[
    bool,
    typer.Option("--retire", help="Delete the older keys afterwards; first stop other processes on this data folder."),
]


@app.command("rotate")
def rotate_key(common: CommonOptions, retire: Retire = False) -> None:
    """Create an encryption key, and re-encrypt the data folder with it.

    Older keys are kept unless --retire deletes them. Exits with 1 if a value cannot be decrypted.
    """

    async def work(box: Toolbox, output: Output) -> int:
        counts = await box.store.rotate_key(retire=retire)
        unreadable = counts.pop("unreadable", 0)
        retired = retire and not unreadable
        if output.as_json:
            status = "failed" if unreadable else "ok"
            output.document({"status": status, "sealed": counts, "unreadable": unreadable, "retired": retired})
        else:
            output.table(["Kind", "Re-encrypted"], [(kind, str(count)) for kind, count in sorted(counts.items())])
            if unreadable:
                output.note(
                    f"{unreadable} values cannot be decrypted with any key: they were moved or modified. "
                    "The older keys were kept."
                )
            else:
                older = "deleted" if retired else "kept and still decrypt data that they encrypted"
                output.note(f"All data is now encrypted with the new key. The older keys were {older}.")
        return FAILED if unreadable else 0

    run_with_box(work, common, no_source)
