"""`toolpost open`: open the web console of a running gateway in the browser, signed in as the operator."""

from __future__ import annotations

import asyncio
import os
import webbrowser
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolpost.cli.commands import CommonOptions
from toolpost.cli.runner import run_command
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.schema.json_values import is_object
from toolpost.wire.local_http import post_local

if TYPE_CHECKING:
    from toolpost.cli.output import Output

_ANSWER_S, _CREATED = 10.0, 201
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

    async def work(output: Output) -> int:
        from toolpost.configuration.loading import load_settings
        from toolpost.gateway.caller_keys import local_token

        settings = load_settings(common.config).settings
        folder = settings.data_dir
        if folder is None:
            raise ConfigError("data_dir: null keeps no token for callers; give the gateway a data folder")
        may_print = output.is_terminal and not output.as_json
        if no_browser and not may_print:
            raise ToolError("the link signs in, so it is printed to a terminal only", code="not_a_terminal")
        address = f"http://127.0.0.1:{port}"
        link = sign_in_link(address, await request_ticket(address, local_token(folder, settings.server.token)))
        if no_browser:
            output.text(link)
        elif await asyncio.to_thread(webbrowser.open, write_link(folder, link).as_uri()):
            output.note(f"opened {address} in the browser")
        else:
            raise ToolError("there is no browser here; --no-browser prints the link to a terminal", code="no_browser")
        return 0

    run_command(work, common)


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


async def request_ticket(address: str, token: str) -> str:
    """Return a new ticket of the gateway at an address; raise ToolError if no gateway of this data folder answers."""
    headers = {"Authorization": f"Bearer {token}"}
    try:
        status, ticket = await post_local(f"{address}/api/v1/tickets", headers=headers, timeout_s=_ANSWER_S)
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise ToolError(
            f"no gateway answers at {address}: {reason}; start it with `toolpost up`, or give its --port",
            code="no_gateway",
        ) from None
    if status != _CREATED or not is_object(ticket):
        raise ToolError(
            f"the gateway at {address} refused a ticket (HTTP {status}): it runs on another data folder, or its "
            "version is older; give the --config that it was started with",
            code="ticket_refused",
        )
    return str(ticket["ticket"])
