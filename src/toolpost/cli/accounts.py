"""`toolpost accounts`: connect, list, disconnect and forget the accounts of users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolpost.cli.arguments import parse_duration_option
from toolpost.cli.commands import Commands, CommonOptions, Yes
from toolpost.cli.output import Output, format_time
from toolpost.cli.prompts import require_confirmation
from toolpost.cli.runner import FAILED, no_source, personal_sources, run_with_box, service_sources
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.principal import Principal

if TYPE_CHECKING:
    from toolpost.toolbox.accounts import AccountManager, AccountState
    from toolpost.toolbox.box import Toolbox

_REMOVED_LABELS = {"events": "contents of events", "runs": "names on runs"}
_NOT_REVOKED = (
    "{services} could not be reached for revocation, or does not support it: the grant may still be valid there. "
    "Revoke it in the settings of your account at the service."
)
_STATUS_TEXTS = {
    "missing": "none",
    "doubtful": "sign in again: the outcome of the last token refresh is unknown",
    "revoked": "sign in again: it was revoked at the service",
}

app = Commands(help="Connect your accounts to the sources that need them.", no_args_is_help=True)


def _parse_person(text: str) -> str:
    """Parse the user to forget; raise a BadParameter for an empty text."""
    # An unset variable is an empty text, which must not erase the current user.
    try:
        return str(Principal.parse(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Service = Annotated[str, typer.Argument(metavar="SERVICE", help="Name of the service; see `accounts list`.")]
Person = Annotated[str, typer.Argument(metavar="USER", help="The user to erase: TENANT:USER.", callback=_parse_person)]
Device = Annotated[
    bool, typer.Option("--device", help="Sign in with a code that you enter in a browser on any machine.")
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address without opening it.")]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", min=1, max=65535, show_default="21917, or a free one", help="Port for the redirect of the browser."
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="DURATION",
        show_default="5m",
        help="Time limit of the sign-in.",
        parser=parse_duration_option,
    ),
]


@app.command("list")
def list_accounts(common: CommonOptions) -> None:
    """List services and the status of your account at each."""

    async def work(box: Toolbox, output: Output) -> int:
        manager = _account_manager(box, output)
        states = [] if manager is None else await manager.states(Principal.parse(common.user))
        _show_list(states, output)
        return 0

    run_with_box(work, common, no_source)


@app.command("connect")
def connect(
    common: CommonOptions,
    service: Service,
    device: Device = False,
    no_browser: NoBrowser = False,
    port: Port = None,
    timeout: Timeout = None,
) -> None:
    """Sign in to a service.

    Opens a browser and waits for its redirect to this machine. Calls that waited for the account then resume. Exits
    with 1 if no account was connected.
    """
    from toolpost.cli.sign_in import SIGN_IN_TIMEOUT_S, SignInOptions, sign_in

    options = SignInOptions(
        device=device, open_browser=not no_browser, port=port or 0, timeout_s=timeout or SIGN_IN_TIMEOUT_S
    )

    async def work(box: Toolbox, output: Output) -> int:
        _account_manager(box, output)
        return await sign_in(box, service, Principal.parse(common.user), options, output)

    run_with_box(work, common, service_sources(service))


@app.command("disconnect")
def disconnect(common: CommonOptions, service: Service) -> None:
    """Disconnect an account.

    Deletes its tokens and revokes them at the service. Exits with 1 if there was no account, or if the service could
    not be reached for revocation or does not support it.
    """

    async def work(box: Toolbox, output: Output) -> int:
        _account_manager(box, output)
        revoked = await box.accounts.disconnect(service, Principal.parse(common.user))
        if revoked is None:
            raise ToolError(f"{common.user} has no account at {service!r}; nothing was changed", code="not_connected")
        if output.as_json:
            output.document(
                {"status": "disconnected", "provider": service, "user": common.user, "service_told": revoked}
            )
        else:
            output.text(f"disconnected: {service} for {common.user}.")
        if not revoked:
            output.note(_NOT_REVOKED.format(services=service))
        return 0 if revoked else FAILED

    run_with_box(work, common, no_source)


@app.command("forget")
def forget(common: CommonOptions, person: Person, yes: Yes = False) -> None:
    """Erase all stored data of a user.

    Disconnects accounts, and deletes pending actions, results, artifacts, task logs, sessions and the contents of
    events. Exits with 1 if a service could not be reached for revocation, or if calls of the user are still running.
    """

    async def work(box: Toolbox, output: Output) -> int:
        records = "accounts, pending actions, results, artifacts, task logs, sessions and what events say"
        require_confirmation(f"Permanently erase all data of {person} ({records})?", yes=yes, done="removed")
        who, manager = Principal.parse(person), _account_manager(box, output)
        revoked = {} if manager is None else await _disconnect_all(manager, who)
        removed = await box.recovery.data.forget(who) if manager is None else await manager.forget(who)
        return _show_forgotten(person, revoked, dict(removed), output)

    run_with_box(work, common, no_source)


def _account_manager(box: Toolbox, output: Output) -> AccountManager | None:
    """Return the account manager with every service registered; None where no source needs accounts."""
    try:
        manager: AccountManager = box.accounts
    except ConfigError:
        return None
    for source in personal_sources(box.settings):
        if box.sources.index.source(source.name) is None:
            try:
                manager.credentials_for(source)
            except ToolError as error:
                output.note(f"source {source.name!r} is skipped: {error}")
    return manager


async def _disconnect_all(manager: AccountManager, who: Principal) -> dict[str, bool]:
    """Disconnect every account of a user; return the services and whether each confirmed the revocation."""
    revoked = {name: await manager.disconnect(name, who) for name in manager.consents.services}
    return {name: done for name, done in revoked.items() if done is not None}


def _show_list(states: list[AccountState], output: Output) -> None:
    if output.as_json:
        output.document([state._asdict() for state in states])
        return
    if not states:
        output.text("No source uses accounts of users.")
        return
    rows = [
        (
            state.provider,
            state.display_name,
            _STATUS_TEXTS.get(state.status, state.status),
            " ".join(state.scopes),
            format_time(state.connected_at),
        )
        for state in states
    ]
    output.table(["Service", "Name", "Account", "Scopes", "Since"], rows)
    if any(state.status != "connected" for state in states):
        output.note(f"`toolpost accounts connect SERVICE{output.options}` connects one.")


def _show_forgotten(person: str, revoked: dict[str, bool], removed: dict[str, int], output: Output) -> int:
    left = removed.pop("under_way", 0)
    not_revoked = sorted(name for name, done in revoked.items() if not done)
    if output.as_json:
        output.document(
            {"status": "forgotten", "user": person, "services_told": revoked, "removed": removed, "under_way": left}
        )
    else:
        output.text(f"forgotten: {person}.")
        rows = [
            ("accounts", str(len(revoked))),
            *((_REMOVED_LABELS.get(kind, kind), str(n)) for kind, n in removed.items()),
        ]
        output.table(["Removed", "Count"], rows)
    if not_revoked:
        output.note(_NOT_REVOKED.format(services=", ".join(not_revoked)))
    if left:
        output.note(f"{left} calls or sessions of the user are still running; run this again when they have ended.")
    return FAILED if not_revoked or left else 0
