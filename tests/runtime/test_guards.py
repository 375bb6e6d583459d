"""Upstreams: one breaker and one retry budget per host and tenant."""

import time
from typing import cast

import pytest

from toolpost.contracts.calls import NO_CREDENTIAL, AuthorizedCall, PermittedCall, RequestedCall, ValidatedCall
from toolpost.contracts.principal import Principal
from toolpost.contracts.spec import Tool
from toolpost.runtime import guards
from toolpost.runtime.guards import HostUpstreams, Upstream, host_of
from toolpost.runtime.resilience import CircuitBreaker, RetryBudget
from toolpost.stores.memory.limits import MemoryLimits


def call_to(url: object, tenant: str = "acme") -> AuthorizedCall:
    request = RequestedCall("c", "r", "http_get", {"url": url}, Principal(tenant, "ann"))
    validated = ValidatedCall(request, cast("Tool", None), {"url": url})
    return AuthorizedCall(PermittedCall(validated), NO_CREDENTIAL, lambda: cast("object", None))  # type: ignore[arg-type, return-value]


@pytest.fixture
def hosts() -> HostUpstreams:
    limits = MemoryLimits("own_a", time.monotonic)

    def make(host: str, tenant: str) -> Upstream:
        name = f"{host} {tenant}"
        return Upstream(CircuitBreaker(name, limits), RetryBudget(name, limits))

    return HostUpstreams("url", make)


def test_the_same_host_and_tenant_share_one_upstream(hosts: HostUpstreams) -> None:
    one = hosts.of(call_to("http://A.example/x"))
    assert hosts.of(call_to("http://a.example:80/y?z")) is one
    assert hosts.of(call_to("http://a.example:81/x")) is not one
    assert hosts.of(call_to("http://a.example/x", "other")) is not one


def test_only_so_many_hosts_are_remembered(hosts: HostUpstreams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "MOST_HOSTS", 3)
    first = hosts.of(call_to("http://0.example/"))
    for number in range(10):
        hosts.of(call_to(f"http://{number}.example/"))
    assert len(hosts) == 3
    assert hosts.of(call_to("http://0.example/")) is not first


@pytest.mark.parametrize("url", [None, 5, "", "/x", "http://[::1", "http://a:99999/", f"http://{'a' * 300}/"])
def test_what_is_no_address_has_no_host(url: object) -> None:
    assert host_of(url) == ""
