"""`toolpost open`: open the web console of a running gateway in the browser, signed in as the operator."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
import webbrowser
from hmac import compare_digest
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolpost.cli.commands import CommonOptions
from toolpost.cli.runner import no_source, run_with_box
from toolpost.contracts.errors import ToolError
from toolpost.contracts.principal import Principal
from toolpost.schema.json_values import is_object
from toolpost.wire.local_http import get_local

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.cli.output import Output
    from toolpost.contracts.storage import Store
    from toolpost.toolbox.box import Toolbox

NO_GATEWAY, OTHER_GATEWAY = "no_gateway", "other_gateway"
_ANSWER_S = 10.0
_LINK_FILE = "open.html"


def open_console(
    common: CommonOptions,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where the gateway listens.")] = 7300,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the link instead; to a terminal only, because it signs in.")
    ] = False,
) -> None:
    """Open the console of the gateway that runs on this machine, signed in as the operator.

    The link is valid for two minutes and for one sign-in.
    """

    async def work(box: Toolbox, output: Output) -> int:
        may_print = output.is_terminal and not output.as_json
        if no_browser and not may_print:
            raise ToolError("the link signs in, so it is printed to a terminal only", code="not_a_terminal")
        folder = box.settings.data_dir
        if folder is None:
            raise ToolError(
                "no gateway of this folder runs, because there is no data folder; start one with `toolpost up`, or "
                "give the --config that it was started with",
                code=NO_GATEWAY,
            )
        address = f"http://127.0.0.1:{port}"
        await check_gateway(box.store.mac, address, port)
        link = sign_in_link(address, await operator_ticket(box.store, common.user))
        if no_browser:
            output.text(link)
        elif await asyncio.to_thread(webbrowser.open, write_link(folder, link).as_uri()):
            output.note(f"opened {address} in the browser")
        else:
            raise ToolError("there is no browser here; --no-browser prints the link to a terminal", code="no_browser")
        return 0

    run_with_box(work, common, no_source)


def shows_console(output: Output) -> bool:
    """Return whether to print a link that signs in: to a terminal only; a missing console is reported there instead."""
    from toolpost.console.files import BUILD_COMMANDS, console_folder

    if not output.is_terminal or output.as_json:
        return False
    if console_folder() is None:
        output.text(f"Console: not in this installation; in a clone, `{BUILD_COMMANDS[0]}` builds it")
        return False
    return True


def sign_in_link(address: str, ticket: str) -> str:
    """Return the link that signs in with a ticket. Browsers do not send the fragment, so no log contains it."""
    return f"{address}/#t={ticket}"


def write_link(folder: Path, link: str) -> Path:
    """Write a page that leads to a link, readable only by its owner; other users see the arguments of a browser."""
    path = folder.absolute() / _LINK_FILE
    path.unlink(missing_ok=True)
    page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={escape(link)}">\n'
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(page)
    return path


async def operator_ticket(store: Store, user: str) -> str:
    """Write a ticket of the operator to the store, where the running gateway finds it, and return its text."""
    from toolpost.gateway.access import operator_caller
    from toolpost.gateway.sessions import issue_ticket

    _, text = await issue_ticket(store.sessions, operator_caller(Principal.parse(user)), now=time.time())
    return text


async def check_gateway(mac: Callable[[str, bytes], bytes], address: str, port: int) -> None:
    """Raise ToolError unless a gateway of this data folder answers at an address; it receives no secret.

    `mac` is that of the store.
    """
    from toolpost.gateway.access import IDENTITY
    from toolpost.gateway.identity import prove_identity

    challenge = secrets.token_hex(32)
    try:
        _, answer = await get_local(f"{address}{IDENTITY}?challenge={challenge}", timeout_s=_ANSWER_S)
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise ToolError(
            f"no gateway answers at {address}: {reason}; start it with `toolpost up`, or give its --port",
            code=NO_GATEWAY,
        ) from None
    proof = answer.get("proof") if is_object(answer) else None
    if not isinstance(proof, str) or not compare_digest(proof.encode(), prove_identity(mac, challenge, port).encode()):
        raise ToolError(
            f"the program at {address} is not the gateway of this data folder: it is another program, runs on another "
            "data folder, or its version is older; give the --config that it was started with, or its --port",
            code=OTHER_GATEWAY,
        )
