"""One webhook, as whoever calls it must know it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from toolpost.contracts.errors import ConfigError
from toolpost.contracts.spec import ToolTarget
from toolpost.web.targets import pairs_of

if TYPE_CHECKING:
    from toolpost.contracts.spec import ToolSpec
    from toolpost.web.encoding import Pair

_WHOLE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_LITERAL = "/:@!$&'()*+,;=%~"
_STEPS = frozenset({".", ".."})


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """Where a call goes and how.

    `slots` are the arguments that stand in the path as `:name`. `workflow` is the name of the n8n workflow
    behind it, `mode` when that answers, and `login` what kind of login its webhook asks for.
    """

    method: str
    address: str
    query: tuple[Pair, ...] = ()
    slots: tuple[str, ...] = ()
    key_header: str | None = None
    timeout_s: float | None = None
    is_n8n: bool = False
    workflow: str = ""
    mode: str = ""
    login: str = ""

    @property
    def target(self) -> ToolTarget:
        """The request that a call sends."""
        fixed = "&".join("=".join(pair) for pair in self.query)
        whole = f"{self.address}?{fixed}" if fixed else self.address
        return ToolTarget.of("webhook", f"{self.method} {whole}", slots=self.slots, workflow=self.workflow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A webhook with the record of its tool."""

    name: str
    spec: ToolSpec
    hook: Hook


def is_whole(url: str) -> bool:
    """Whether a URL has a scheme and a host of its own."""
    return _WHOLE.match(url) is not None


def address_of(connection: str, url: str) -> tuple[str, tuple[Pair, ...]]:
    """The address that a URL means beside a connection, and its query; a path never leads above the connection."""
    base, path = (urlsplit(url), "") if is_whole(url) else (urlsplit(connection), url)
    below, _, fixed = path.partition("#")[0].partition("?")
    whole = f"{base.path.rstrip('/')}/{below.lstrip('/')}" if below else base.path or "/"
    if not _STEPS.isdisjoint(whole.split("/")):
        raise ConfigError(f"the webhook path {below or base.path!r} has a step '.' or '..'; write the path out")
    return f"{base.scheme}://{base.netloc}{quote(whole, safe=_LITERAL)}", (*pairs_of(base.query), *pairs_of(fixed))


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port, by which two addresses are told to be of one server."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").lower(), parts.port or {"http": 80, "https": 443}.get(scheme)
