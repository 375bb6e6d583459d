"""`toolpost accounts`: connecting accounts of one's own, and letting them go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolpost.cli.commands import Commands, Config, Json, User
from toolpost.cli.output import Output, moment
from toolpost.cli.prompts import confirm
from toolpost.cli.runner import FAILED, no_source, personal_sources, run_with_box, service_sources
from toolpost.configuration.settings import parse_duration
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.principal import Principal

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.toolbox.accounts import AccountManager, AccountState
    from toolpost.toolbox.box import Toolbox

_REMOVED = {"events": "what events said", "runs": "names on runs"}
_UNHEARD = (
    "{services} could not be told, or has no way to be told: what was granted there may live on. "
    "End it in the settings of your account at the service."
)
_WORDS = {
    "missing": "none",
    "doubtful": "sign in again: what became of its last renewal is unknown",
    "revoked": "sign in again: it was ended at the service",
}

_TIMEOUT_S = 300.0

app = Commands(help="Connect accounts of your own to the sources that need them.", no_args_is_help=True)


def _duration(written: str) -> float:
    try:
        return parse_duration(written)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _person(written: str) -> str:
    """Nobody is meant by an empty text: a variable that is not set must not forget whoever types."""
    try:
        return str(Principal.parse(written))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Service = Annotated[str, typer.Argument(metavar="SERVICE", help="The service, as `accounts list` names it.")]
Person = Annotated[str, typer.Argument(metavar="USER", help="Whom to forget: TENANT:USER.", callback=_person)]
Device = Annotated[bool, typer.Option("--device", help="By a code that you enter in a browser on any machine.")]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Only print the address; do not open it.")]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", min=1, max=65535, show_default="21917, or a free one", help="Where the browser comes back to."
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="DURATION", show_default="5m", help="How long to wait for you.", parser=_duration
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command("list")
def list_accounts(config: Config = None, user: User = "", json: Json = False) -> None:
    """List the services, and how you stand there."""

    async def work(box: Toolbox, output: Output) -> int:
        desk = _desk_of(box, output)
        states = [] if desk is None else await desk.states(Principal.parse(user))
        _show_list(states, output)
        return 0

    run_with_box(work, config=config, user=user, as_json=json, opening=no_source)


@app.command("connect")
def connect(
    service: Service,
    device: Device = False,
    no_browser: NoBrowser = False,
    port: Port = None,
    timeout: Timeout = None,
    config: Config = None,
    user: User = "",
    json: Json = False,
) -> None:
    """Sign in to a service.

    Opens a browser and waits until it comes back to this machine. Calls that waited
    for the account then go on. Exits 1 when nothing was connected.
    """
    from toolpost.cli.sign_in import SignInWay, sign_in

    way = SignInWay(device=device, open_browser=not no_browser, port=port or 0, timeout_s=timeout or _TIMEOUT_S)

    async def work(box: Toolbox, output: Output) -> int:
        _desk_of(box, output)
        return await sign_in(box, service, Principal.parse(user), way, output)

    run_with_box(work, config=config, user=user, as_json=json, opening=service_sources(service))


@app.command("disconnect")
def disconnect(service: Service, config: Config = None, user: User = "", json: Json = False) -> None:
    """Let an account go.

    Its tokens are removed here and ended at the service. Exits 1 when there was no
    account, or when the service did not hear of it.
    """

    async def work(box: Toolbox, output: Output) -> int:
        _desk_of(box, output)
        heard = await box.accounts.disconnect(service, Principal.parse(user))
        if heard is None:
            raise ToolError(f"{user} has no account at {service!r}; nothing was changed", code="not_connected")
        if output.as_json:
            output.document({"status": "disconnected", "provider": service, "user": user, "service_told": heard})
        else:
            output.text(f"disconnected: {service} for {user}.")
        if not heard:
            output.note(_UNHEARD.format(services=service))
        return 0 if heard else FAILED

    run_with_box(work, config=config, user=user, as_json=json, opening=no_source)


@app.command("forget")
def forget(
    person: Person,
    yes: Yes = False,
    config: Config = None,
    user: User = "",  # noqa: ARG001 - as every command
    json: Json = False,
) -> None:
    """Remove all that is kept of a user.

    Accounts are disconnected; questions, results and artifacts are removed, and so is what the record of events says
    of them. Exits 1 when a service did not hear of it, or when calls of theirs are still under way.
    """

    async def work(box: Toolbox, output: Output) -> int:
        kept = "accounts, questions, results, artifacts and what events say"
        if not confirm(f"Remove all that is kept of {person} ({kept}), for good?", yes=yes):
            raise ToolError("nothing was removed, because nobody agreed", code="not_confirmed")
        who, desk = Principal.parse(person), _desk_of(box, output)
        told = {} if desk is None else await _disconnect_all(desk, who)
        removed = await box.store.forget(who) if desk is None else await desk.forget(who)
        return _show_forgotten(person, told, dict(removed), output)

    run_with_box(work, config=config, as_json=json, opening=no_source)


def _desk_of(box: Toolbox, output: Output) -> AccountManager | None:
    """The desk with every service, whether or not its sources were brought in; None where nobody needs one."""
    try:
        desk: AccountManager = box.accounts
    except ConfigError:
        return None
    for source in personal_sources(box.settings):
        if box.sources.source(source.name) is None:
            _offer(desk, source, output)
    return desk


def _offer(desk: AccountManager, source: ExternalToolConfig, output: Output) -> None:
    try:
        desk.credentials_for(source)
    except ToolError as error:
        output.note(f"source {source.name!r} is left out: {error}")


async def _disconnect_all(desk: AccountManager, who: Principal) -> dict[str, bool]:
    """The services where there was an account, and whether each was told."""
    heard = {name: await desk.disconnect(name, who) for name in desk.consents.services}
    return {name: told for name, told in heard.items() if told is not None}


def _show_list(states: list[AccountState], output: Output) -> None:
    if output.as_json:
        output.document([state._asdict() for state in states])
        return
    if not states:
        output.text("No source here is for accounts of your own.")
        return
    rows = [
        (
            state.provider,
            state.display_name,
            _WORDS.get(state.status, state.status),
            " ".join(state.scopes),
            moment(state.connected_at),
        )
        for state in states
    ]
    output.table(["Service", "Name", "Account", "Scopes", "Since"], rows)
    if any(state.status != "connected" for state in states):
        output.note(f"`toolpost accounts connect SERVICE{output.again}` signs you in.")


def _show_forgotten(person: str, told: dict[str, bool], removed: dict[str, int], output: Output) -> int:
    left = removed.pop("under_way", 0)
    unheard = sorted(name for name, heard in told.items() if not heard)
    if output.as_json:
        output.document(
            {"status": "forgotten", "user": person, "services_told": told, "removed": removed, "under_way": left}
        )
    else:
        output.text(f"forgotten: {person}.")
        rows = [("accounts", str(len(told))), *((_REMOVED.get(kind, kind), str(n)) for kind, n in removed.items())]
        output.table(["Removed", "Count"], rows)
    if unheard:
        output.note(_UNHEARD.format(services=", ".join(unheard)))
    if left:
        output.note(f"{left} calls of theirs are under way and were left to end; run this again afterwards.")
    return FAILED if unheard or left else 0
