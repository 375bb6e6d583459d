"""Signing in from a terminal: by a browser that comes back to this machine, or by a code entered in any other."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import webbrowser
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolpost.auth.consents import ConnectedAccount, callback_url, finish_device_sign_in, start_device_sign_in
from toolpost.auth.oauth.authorization import callback_parameters
from toolpost.cli.output import show_tools
from toolpost.cli.runner import personal_sources, provider_of
from toolpost.contracts.errors import ToolAuthError, ToolError, ToolTimeoutError
from toolpost.toolbox.account_pages import HtmlPage, connected_page, failure_page
from toolpost.wire.callback_server import DEFAULT_PORT, CallbackResponse, CallbackServer, callback_server_url

if TYPE_CHECKING:
    from toolpost.auth.services import Service
    from toolpost.cli.output import Output
    from toolpost.contracts.principal import Principal
    from toolpost.contracts.questions import PendingAction
    from toolpost.contracts.spec import ToolSpec
    from toolpost.toolbox.box import Toolbox
    from toolpost.wire.callback_server import CallbackRequest

_PATIENCE_S = 60.0
_STRAY = frozenset({"oauth_state", "oauth_person"})
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInWay:
    """How somebody wants to sign in."""

    device: bool
    open_browser: bool
    port: int
    timeout_s: float


async def sign_in(box: Toolbox, provider: str, person: Principal, way: SignInWay, output: Output) -> int:
    """Connect an account, see what it opens and which calls go on; returns the code to leave with."""
    service = box.accounts.consents.service(provider)
    waiting = await _waiting(box, provider, person)
    if way.device:
        await _by_code(box, service, person, way, output)
    else:
        await _by_browser(box, service, person, way, output)
    # What was let go on, and the listing of tools, would end with this process.
    await box.router.background.finish(patience_s=_PATIENCE_S)
    await _show(box, service, person, waiting, output)
    return 0


async def _by_browser(box: Toolbox, service: Service, person: Principal, way: SignInWay, output: Output) -> None:
    async with CallbackServer(port=way.port, prefer=DEFAULT_PORT) as place:
        begun = await box.accounts.connect(service.provider, person, redirect_uri=place.url)
        if isinstance(begun, ConnectedAccount):
            await box.accounts.on_connected(begun)
            return
        _say(output, f"Sign in to {service.display_name} for {person} at this address:\n\n  {begun.url}\n")
        if way.open_browser and _has_screen():
            # Some browsers end only when they are closed, so nobody waits for this thread.
            threading.Thread(target=webbrowser.open, args=(begun.url,), daemon=True).start()
        try:
            async with _counted_down(way.timeout_s, output):
                await _come_back(box, place, service, person, way.timeout_s)
        except TimeoutError:
            raise ToolTimeoutError(
                f"no browser came back within {way.timeout_s:g} s, and nothing was connected; if the service refused "
                f"the address {callback_url(place.url, service.provider)}, allow it there for this program, or choose "
                "its port with --port"
            ) from None


async def _come_back(
    box: Toolbox, place: CallbackServer, service: Service, person: Principal, timeout_s: float
) -> None:
    """Take what browsers bring; one with a state that nobody knows, or for somebody else, is sent away in peace.

    The time is for the person; what they brought is then used, however long the service takes.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        async with asyncio.timeout_at(deadline):
            visit = await place.receive()
        try:
            await box.accounts.finish(_brought(visit), provider=visit.name, person=person)
        except ToolError as error:
            _answer(visit, failure_page(error))
            if error.error_code not in _STRAY:
                raise
        else:
            _answer(visit, connected_page(service.display_name))
            return


def _brought(visit: CallbackRequest) -> dict[str, str]:
    """What a browser brings; one that cannot be read has no state, and any page can send a browser here with it."""
    try:
        return callback_parameters(f"?{visit.query}") if visit.query else {}
    except (ToolAuthError, ValueError):  # a parameter twice, or more of them than anybody has
        return {}


async def _by_code(box: Toolbox, service: Service, person: Principal, way: SignInWay, output: Output) -> None:
    home = callback_server_url(way.port or DEFAULT_PORT)
    accounts = box.accounts.accounts
    grant = await start_device_sign_in(service, accounts, redirect_uri=home)
    _say(
        output,
        f"Sign in to {service.display_name} for {person}: open this address in any browser\n\n"
        f"  {grant.verification_uri_complete or grant.verification_uri}\n\nand see that the code is\n\n"
        f"  {grant.user_code}\n",
    )
    left = min(way.timeout_s, max(0.0, grant.expires - time.time()))
    try:
        async with asyncio.timeout(left), _counted_down(left, output):
            connected = await finish_device_sign_in(service, accounts, person, grant)
    except TimeoutError:
        raise ToolTimeoutError(
            f"nobody entered the code within {left:.0f} s, and nothing was connected; run this again for a new one"
        ) from None
    await box.accounts.on_connected(connected)


@asynccontextmanager
async def _counted_down(seconds: float, output: Output) -> AsyncGenerator[None]:
    """One line that says how long there is left; where nobody looks on it is said once."""
    if not sys.stderr.isatty():
        output.note(f"Waiting for you, for at most {seconds:.0f} s.")
        yield
        return
    counting = asyncio.create_task(_count(seconds))
    try:
        yield
    finally:
        counting.cancel()
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


async def _count(seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        minutes, rest = divmod(int(left), 60)
        sys.stderr.write(f"\r\x1b[KWaiting for you, {minutes}:{rest:02} left; Ctrl-C gives up. ")
        sys.stderr.flush()
        await asyncio.sleep(1)


def _say(output: Output, text: str) -> None:
    if output.as_json:
        output.note(text)
    else:
        output.text(text)


def _has_screen() -> bool:
    """Without one, Linux would start a browser in this very terminal."""
    return sys.platform != "linux" or any(os.environ.get(name) for name in _SCREENS)


def _answer(visit: CallbackRequest, page: HtmlPage) -> None:
    visit.respond(CallbackResponse(page.status, page.headers, page.body))


async def _waiting(box: Toolbox, provider: str, person: Principal) -> list[str]:
    """The calls of this person that wait for the account."""
    found = await box.desk.list(by=str(person), limit=1000)
    return [action.id for action in found if _waits(action, provider, person)]


def _waits(action: PendingAction, provider: str, person: Principal) -> bool:
    question = action.question
    return question.kind == "consent" and action.asked_by == person and question.payload.get("provider") == provider


async def _show(box: Toolbox, service: Service, person: Principal, waiting: list[str], output: Output) -> None:
    specs = _tools_of(box, service.provider)
    went_on = [_told(await box.desk.get(one, by=str(person))) for one in waiting]
    [state] = [one for one in await box.accounts.states(person) if one.provider == service.provider]
    if output.as_json:
        tools = [spec.name for spec in specs]
        output.document({**state._asdict(), "user": str(person), "tools": tools, "went_on": went_on})
        return
    output.text(f"connected: {service.display_name} for {person}.")
    show_tools(specs, output)
    for call in went_on:
        step = f"`toolpost pending show {call['id']}{output.again}` has the rest."
        output.note(f"{call['tool_name']} went on: {call['status']}. {step}")


def _tools_of(box: Toolbox, provider: str) -> list[ToolSpec]:
    names = {source.name for source in personal_sources(box.settings) if provider_of(source) == provider}
    return [spec for spec in box.registry.specs() if spec.source in names]


def _told(action: PendingAction) -> dict[str, Any]:
    status = (action.outcome or {}).get("status", action.status)
    return {"id": action.id, "tool_name": action.tool_name, "status": status}
