"""Where an API is served: absolute addresses, their variables filled in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Sequence

_VARIABLE = re.compile(r"\{([^{}]+)\}")
_BEST_FIRST = ("https", "http")


def servers_of(listed: Any, address: str) -> tuple[str, ...]:
    """The addresses that a list of servers stands for; relative ones are resolved against the document's own."""
    found = [_server(server, address) for server in listed if is_object(server)] if is_array(listed) else []
    return tuple(dict.fromkeys(url for url in found if url is not None))


def default_servers(address: str) -> tuple[str, ...]:
    """Where an API is that names no server: at the root of where its document came from."""
    return servers_of([{"url": "/"}], address)


def swagger_servers(document: dict[str, Any], schemes: Any, address: str) -> tuple[str, ...]:
    """The addresses that `schemes`, `host` and `basePath` stand for, the safest first."""
    own = urlsplit(address)
    remote = own.scheme in _BEST_FIRST
    host = document.get("host")
    if not isinstance(host, str) or not host:
        host = own.netloc.rpartition("@")[2] if remote else ""
    if not host:
        return ()
    named: Sequence[Any] = schemes if is_array(schemes) else []
    usable = [scheme for scheme in _BEST_FIRST if scheme in named] or [own.scheme if remote else "https"]
    path = document.get("basePath")
    path = path if isinstance(path, str) else ""
    return servers_of([{"url": f"{scheme}://{host}/{path.strip('/')}"} for scheme in usable], address)


def _server(server: dict[str, Any], address: str) -> str | None:
    url = server.get("url")
    if not isinstance(url, str):
        return None
    variables = server.get("variables")
    filled = _VARIABLE.sub(lambda found: _value(variables, found[1]) or found[0], url.strip())
    try:
        whole = urljoin(address, filled)
        parts = urlsplit(whole)
    except ValueError:
        return None
    if _VARIABLE.search(filled) or parts.scheme not in _BEST_FIRST or not parts.netloc:
        return None
    return whole.partition("#")[0].rstrip("/") or None


def _value(variables: Any, name: str) -> str | None:
    """A variable's default, or the first of its values."""
    variable = variables.get(name) if is_object(variables) else None
    if not is_object(variable):
        return None
    options = variable.get("enum")
    value = variable.get("default", options[0] if is_array(options) and options else None)
    return str(value) if isinstance(value, str | int | float) else None
