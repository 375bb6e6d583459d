"""Built-in web tools take host names; addresses only where the operator says so."""

from typing import Any

import pytest

from tests.patient_settings import PatientSettings
from tests.wire.site import Received, Site, reply
from toolpost import Settings, Toolbox

PAGE = reply(200, b"hello", content_type="text/plain")
LITERALS = [
    "http://93.184.215.14/",
    "http://127.0.0.1/",
    "https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]/",
    "http://[::ffff:93.184.215.14]/",
    "http://2130706433/",
    "http://0x5db8d70e/",
    "http://0135.0270.0327.016/",
    "http://93.12113678/",
    "http://\uff19\uff13.184.215.14/",
]


def box(**network: Any) -> Toolbox:
    settings = Settings(data_dir=None, policy="exploratory", network=network)
    return Toolbox(settings=settings, builtins=["http_get", "http_post", "http_request", "web_fetch"])


@pytest.mark.req("NSSRF-02")
@pytest.mark.parametrize("url", LITERALS)
async def test_an_address_in_place_of_a_name_is_refused_whatever_its_notation(url: str) -> None:
    async with box(allow_private=True) as made:
        for name in ("http_get", "http_post", "web_fetch"):
            outcome: Any = await made.call(name, {"url": url})
            assert outcome.error.error_code == "address_refused"
        other: Any = await made.call("http_request", {"method": "GET", "url": url})
    assert "is an IP address" in str(other.error) or "disguised or malformed address" in str(other.error)


@pytest.mark.req("NSSRF-02")
async def test_a_redirect_to_an_address_is_refused() -> None:
    async def answer(received: Received, writer: Any) -> None:
        writer.write(reply(302, location=f"{there.url}/page"))

    async with Site(answer) as there, box(allow_private=True) as made:
        outcome: Any = await made.call("http_get", {"url": f"http://localhost:{there.port}/"})
    assert "is an IP address" in str(outcome.error)
    assert [request.path for request in there.requests] == ["/"]


@pytest.mark.req("NSSRF-02")
async def test_the_operator_can_allow_addresses_and_configure_sources_by_address() -> None:
    async with Site(PAGE) as there:
        async with box(allow_private=True, allow_ip_literals=True) as made:
            allowed: Any = await made.call("http_get", {"url": there.url})
        source = {"name": "api", "transport": "http", "connection": there.url, "utcp_mode": "base_url"}
        async with Toolbox(settings=PatientSettings(data_dir=None, policy="exploratory", sources=[source])) as other:
            await other.wait_for_sources()
            called: Any = await other.call("api.request_get", {"path": "page"})
    assert allowed.content["body"] == "hello"
    assert called.status == "completed", called
