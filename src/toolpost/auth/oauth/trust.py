"""Which URLs a document may name as endpoints: those over TLS, and on this machine only if the document is from there.

It judges what a URL says, for a browser may be sent there; where our own requests go is for the wire to judge again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolpost.auth.oauth.refusals import host_of
from toolpost.contracts.errors import ToolAuthError, ToolPermissionError
from toolpost.wire.addresses import judge
from toolpost.wire.network import NetworkPolicy, allow_rules, parse_target

if TYPE_CHECKING:
    from toolpost.wire.network import AllowRule, Target

_ANYBODY = NetworkPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Judges by the policy of the source that the sign-in is for."""

    policy: NetworkPolicy = _ANYBODY

    def check(self, url: object, *, name: str, documents: tuple[str, ...] = ()) -> str:
        """The URL, if it may be used; without documents an operator wrote it, who may write http as well."""
        if not isinstance(url, str) or not url:
            raise _refused(name, documents, "it is no URL")
        try:
            target = parse_target(url)
        except ToolPermissionError as refused:
            raise _refused(name, documents, str(refused).partition(" is refused: ")[2]) from None
        if "#" in url:
            raise _refused(name, documents, "it has a fragment")
        if documents and not self._allows(target):
            self._judge(target, name, documents)
        return url

    def _judge(self, target: Target, name: str, documents: tuple[str, ...]) -> None:
        if is_local(target):
            if self.policy.allow_private or all(is_local(parse_target(document)) for document in documents):
                return
            raise _refused(name, documents, "it points at this machine or a private network, and the document does not")
        if target.scheme != "https":
            raise _refused(name, documents, "it is not https. An operator can allow its host in network.allow_hosts")

    def _allows(self, target: Target) -> bool:
        rules = allow_rules(self.policy.allow_hosts | self.policy.operator_hosts)
        return any(_names(rule, target) for rule in rules)


def is_local(target: Target) -> bool:
    """Whether the host is plainly this machine, or an address that is not public."""
    if target.address is not None:
        return judge(target.address) is not None
    return f".{target.ascii_host}".endswith(".localhost")


def is_loopback(url: str) -> bool:
    """Whether a URL is on this machine."""
    target = parse_target(url)
    return target.address.is_loopback if target.address else f".{target.ascii_host}".endswith(".localhost")


def _names(rule: AllowRule, target: Target) -> bool:
    if rule.port not in {None, target.port}:
        return False
    if rule.network is not None:
        return target.address is not None and target.address in rule.network
    return target.ascii_host == rule.name or (rule.name.startswith(".") and target.ascii_host.endswith(rule.name))


def _refused(name: str, documents: tuple[str, ...], reason: str) -> ToolAuthError:
    where = f" in the document of {host_of(documents[-1])!r}" if documents else ""
    return ToolAuthError(f"{name}{where} is refused: {reason}.", code="oauth_endpoint_refused")
