"""Why a source is left out, in words that name its address and what to look at."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.source_manager import SourceState

_UNREACHED = re.compile(r"no connection to|\bConnect(Error|Timeout)\b|no answer within")


def trouble(state: SourceState, box: Toolbox) -> str:
    """What is wrong with a source; where nobody answered at its address, that is named."""
    told = state.error or "it is down"
    address = next((_address(one.connection) for one in box.settings.all_sources() if one.name == state.name), "")
    if not address or not _UNREACHED.search(told):
        return told
    shown = box.redactor.text(address)
    return f"{told}; is the server at {shown} running, and is the address right?"


def _address(connection: str) -> str:
    """A URL without what may be secret in it; a command or a file has none."""
    try:
        url = urlsplit(connection.strip())
        port = f":{url.port}" if url.port else ""
    except ValueError:
        return ""
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    return f"{url.scheme}://{host}{port}{url.path}" if url.scheme and host else ""
