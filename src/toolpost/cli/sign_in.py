"""Sign in from a terminal: by a browser redirect to this machine, or by a device code."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import webbrowser
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolpost.auth.consents import ConnectedAccount, callback_url
from toolpost.auth.device_sign_in import finish_device_sign_in, start_device_sign_in
from toolpost.auth.oauth.authorization import callback_parameters
from toolpost.cli.output import Output, show_tools
from toolpost.cli.runner import personal_sources, provider_of
from toolpost.contracts.errors import ToolAuthError, ToolError, ToolTimeoutError
from toolpost.toolbox.account_pages import HtmlPage, connected_page, failure_page
from toolpost.wire.callback_server import DEFAULT_PORT, CallbackResponse, CallbackServer, callback_server_url

if TYPE_CHECKING:
    from toolpost.auth.services import Service
    from toolpost.contracts.principal import Principal
    from toolpost.contracts.questions import PendingAction
    from toolpost.contracts.spec import ToolSpec
    from toolpost.toolbox.box import Toolbox
    from toolpost.wire.callback_server import CallbackRequest

SIGN_IN_TIMEOUT_S = 300.0
_BACKGROUND_WAIT_S = 60.0
_STRAY_CODES = frozenset({"oauth_state", "oauth_person"})
_DISPLAY_VARIABLES = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


class SignInOptions(Struct, frozen=True, kw_only=True):
    """Options of `accounts connect`."""

    device: bool = False
    open_browser: bool = True
    port: int = 0
    timeout_s: float = SIGN_IN_TIMEOUT_S


async def sign_in(box: Toolbox, provider: str, person: Principal, options: SignInOptions, output: Output) -> int:
    """Connect an account, and show its tools and the calls that resumed; return the exit code."""
    waiting = await _waiting_calls(box, provider, person)
    service = await connect_account(box, provider, person, options, output)
    await _show(box, service, person, waiting, output)
    return 0


async def connect_account(
    box: Toolbox, provider: str, person: Principal, options: SignInOptions, output: Output
) -> Service:
    """Connect an account, and wait until the calls that waited for it have ended."""
    service = box.accounts.consents.service(provider)
    if options.device:
        await _by_code(box, service, person, options, output)
    else:
        await _by_browser(box, service, person, options, output)
    # Resumed calls and the listing of tools would end with this process.
    await box.router.background.finish(patience_s=_BACKGROUND_WAIT_S)
    return service


async def _by_browser(
    box: Toolbox, service: Service, person: Principal, options: SignInOptions, output: Output
) -> None:
    async with CallbackServer(port=options.port, prefer=DEFAULT_PORT) as server:
        started = await box.accounts.connect(service.provider, person, redirect_uri=server.url)
        if isinstance(started, ConnectedAccount):
            await box.accounts.on_connected(started)
            return
        output.announce(f"Sign in to {service.display_name} for {person} at this address:\n\n  {started.url}\n")
        if options.open_browser and _has_display():
            # Some browsers end only when they are closed, so this thread is not joined.
            threading.Thread(target=webbrowser.open, args=(started.url,), daemon=True).start()
        try:
            async with _countdown(options.timeout_s, output):
                await _receive_callback(box, server, service, person, options.timeout_s)
        except TimeoutError:
            raise ToolTimeoutError(
                f"the browser did not return within {options.timeout_s:g} s, and no account was connected; if the "
                f"service rejected the address {callback_url(server.url, service.provider)}, register it there, "
                "or choose the port with --port"
            ) from None


async def _receive_callback(
    box: Toolbox, server: CallbackServer, service: Service, person: Principal, timeout_s: float
) -> None:
    """Receive browser redirects until one completes the sign-in; answer and ignore those with a foreign state."""
    # The timeout is for the person; exchanging the code may take as long as the service needs.
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        async with asyncio.timeout_at(deadline):
            request = await server.receive()
        try:
            await box.accounts.finish(_callback_parameters(request), provider=request.name, person=person)
        except ToolError as error:
            _respond(request, failure_page(error))
            if error.error_code not in _STRAY_CODES:
                raise
        else:
            _respond(request, connected_page(service.display_name))
            return


def _callback_parameters(request: CallbackRequest) -> dict[str, str]:
    """Parse the query of a redirect; one that cannot be parsed has no parameters."""
    # Any page can send a browser here with such a query.
    try:
        return callback_parameters(f"?{request.query}") if request.query else {}
    except (ToolAuthError, ValueError):  # a parameter twice, or more of them than anybody has
        return {}


async def _by_code(box: Toolbox, service: Service, person: Principal, options: SignInOptions, output: Output) -> None:
    home = callback_server_url(options.port or DEFAULT_PORT)
    accounts = box.accounts.accounts
    grant = await start_device_sign_in(service, accounts, redirect_uri=home)
    output.announce(
        f"Sign in to {service.display_name} for {person}: open this address in any browser\n\n"
        f"  {grant.verification_uri_complete or grant.verification_uri}\n\nand check that the code is\n\n"
        f"  {grant.user_code}\n",
    )
    left = min(options.timeout_s, max(0.0, grant.expires - time.time()))
    try:
        async with asyncio.timeout(left), _countdown(left, output):
            connected = await finish_device_sign_in(service, accounts, person, grant)
    except TimeoutError:
        raise ToolTimeoutError(
            f"the code was not entered within {left:.0f} s, and no account was connected; run this again for a new code"
        ) from None
    await box.accounts.on_connected(connected)


@asynccontextmanager
async def _countdown(seconds: float, output: Output) -> AsyncGenerator[None]:
    """Show the remaining time on a status line; once if stderr is not a terminal."""
    if not sys.stderr.isatty():
        output.note(f"Waiting for the sign-in for at most {seconds:.0f} s.")
        yield
        return
    task = asyncio.create_task(_show_countdown(seconds))
    try:
        yield
    finally:
        task.cancel()
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


async def _show_countdown(seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        minutes, rest = divmod(int(left), 60)
        sys.stderr.write(f"\r\x1b[KWaiting for the sign-in, {minutes}:{rest:02} left; Ctrl-C cancels. ")
        sys.stderr.flush()
        await asyncio.sleep(1)


def _has_display() -> bool:
    """Return whether a browser can open a window."""
    # Without a display, Linux would start a browser in this terminal.
    return sys.platform != "linux" or any(os.environ.get(name) for name in _DISPLAY_VARIABLES)


def _respond(request: CallbackRequest, page: HtmlPage) -> None:
    request.respond(CallbackResponse(page.status, page.headers, page.body))


async def _waiting_calls(box: Toolbox, provider: str, person: Principal) -> list[str]:
    """Return the pending actions of this user that wait for the account."""
    actions = await box.pending.list(by=str(person), user=person.user, limit=1000)
    return [action.id for action in actions if _waits(action, provider, person)]


def _waits(action: PendingAction, provider: str, person: Principal) -> bool:
    question = action.question
    return question.kind == "consent" and action.asked_by == person and question.payload.get("provider") == provider


async def _show(box: Toolbox, service: Service, person: Principal, waiting: list[str], output: Output) -> None:
    specs = _tools_of(box, service.provider)
    resumed = [_call_summary(await box.pending.get(one, by=str(person))) for one in waiting]
    [state] = [one for one in await box.accounts.states(person) if one.provider == service.provider]
    if output.as_json:
        tools = [spec.name for spec in specs]
        output.document({**state._asdict(), "user": str(person), "tools": tools, "went_on": resumed})
        return
    output.text(f"connected: {service.display_name} for {person}.")
    show_tools(specs, output)
    for call in resumed:
        step = f"`toolpost pending show {call['id']}{output.options}` shows the result."
        output.note(f"Resumed {call['tool_name']}: {call['status']}. {step}")


def _tools_of(box: Toolbox, provider: str) -> list[ToolSpec]:
    names = {source.name for source in personal_sources(box.settings) if provider_of(source) == provider}
    return [spec for spec in box.registry.specs() if spec.source in names]


def _call_summary(action: PendingAction) -> dict[str, Any]:
    status = (action.outcome or {}).get("status", action.status)
    return {"id": action.id, "tool_name": action.tool_name, "status": status}
