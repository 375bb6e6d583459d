"""What a call is sent to: its circuit breaker and its retry budget, per source, or per host and tenant."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.calls import AuthorizedCall
    from toolpost.runtime.breaker import CircuitBreaker
    from toolpost.runtime.retry import RetryBudget

MOST_HOSTS = 4096
_LONGEST_HOST = 255  # RFC 1035 section 2.3.4: no name on the network is longer
_PORTS = {"http": 80, "https": 443}


class Upstream:
    """A circuit breaker and a retry budget that the calls to one other side share."""

    __slots__ = ("breaker", "budget")

    def __init__(self, breaker: CircuitBreaker, budget: RetryBudget) -> None:
        self.breaker = breaker
        self.budget = budget

    def admit(self, tool_name: str) -> None:
        """Pass the breaker, or raise ToolCircuitOpenError."""
        if self.breaker.failures:
            self.breaker.admit(tool_name)

    def succeeded(self) -> None:
        """Record a try that ended well."""
        if self.breaker.failures:
            self.breaker.succeeded()
        if self.budget.spent:
            self.budget.deposit()


class HostUpstreams:
    """One upstream per host and tenant, for a tool whose argument says where it goes.

    At most `MOST_HOSTS` are kept; the one that was used longest ago is forgotten first, which only means that its
    breaker starts again closed.
    """

    def __init__(self, argument: str, make: Callable[[str, str], Upstream]) -> None:
        self._argument = argument
        self._make = make
        self._upstreams: OrderedDict[tuple[str, str], Upstream] = OrderedDict()

    def __len__(self) -> int:
        return len(self._upstreams)

    def of(self, call: AuthorizedCall) -> Upstream:
        """Return the upstream of the host that a call goes to, for the tenant that it is made for."""
        key = (host_of(call.arguments.get(self._argument)), call.request.principal.tenant)
        upstream = self._upstreams.get(key)
        if upstream is not None:
            self._upstreams.move_to_end(key)
            return upstream
        upstream = self._upstreams[key] = self._make(*key)
        if len(self._upstreams) > MOST_HOSTS:
            self._upstreams.popitem(last=False)
        return upstream


def host_of(url: object) -> str:
    """Return host and port of a URL; empty where there are none, as such a call is refused anyway."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        host, port = (None, None) if parts is None else (parts.hostname, parts.port or _PORTS.get(parts.scheme.lower()))
    except ValueError:
        return ""
    return f"{host.rstrip('.')}:{port}" if host and len(host) <= _LONGEST_HOST else ""
