"""Redirects: which are followed, with what, and which are not."""

import asyncio

import pytest

from tests.wire.site import Received, Site, reply
from tests.wire.stubs import StubResolver
from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolPermissionError
from toolpost.wire.client import HttpClient
from toolpost.wire.http1 import Http1Transport
from toolpost.wire.messages import Headers, Request
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.redirects import redirect_request


def client_for(*sites: Site, transport: Http1Transport | None = None, max_redirects: int = 3) -> HttpClient:
    policy = NetworkPolicy().for_source(*(site.url for site in sites))
    return HttpClient(policy, transport=transport, max_redirects=max_redirects, timeout_s=60)


def redirecting(*locations: str, status: int = 302) -> Site:
    """Sends the first caller to the first location, the next one to the second, and answers those after them."""

    async def onward(received: Received, writer: asyncio.StreamWriter) -> None:
        turn = len(site.requests) - 1
        writer.write(reply(status, location=locations[turn]) if turn < len(locations) else reply(200, b"here"))

    site = Site(onward)
    return site


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_of_a_get_is_followed(status: int, transport: Http1Transport) -> None:
    async with redirecting("/there?x=1#part", status=status) as site, client_for(site, transport=transport) as client:
        response = await client.send(Request("GET", f"{site.url}/here"))

        assert (await response.read(), response.url) == (b"here", f"{site.url}/there?x=1#part")
        assert [received.path for received in site.requests] == ["/here", "/there?x=1"]


@pytest.mark.req("NSSRF-06")
async def test_three_redirects_are_followed_and_a_fourth_is_not(transport: Http1Transport) -> None:
    async with redirecting("/1", "/2", "/3") as site, client_for(site, transport=transport) as client:
        assert await (await client.send(Request("GET", site.url))).read() == b"here"
    async with redirecting("/1", "/2", "/3", "/4") as site, client_for(site, transport=transport) as client:
        with pytest.raises(ToolClientError, match="redirected more than 3 times") as many:
            await client.send(Request("GET", site.url))

        assert many.value.error_code == "too_many_redirects"
        assert len(site.requests) == 4


@pytest.mark.req("NSSRF-06")
@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:1/",
        "http://localhost/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::ffff:169.254.169.254]/",
        "//10.0.0.5/",
        "http://2130706433/",
        "file:///etc/passwd",
        "http://user:hunter2@example.com/",
        "http://127.0.0.1\\@example.com/",
    ],
)
async def test_a_redirect_to_a_refused_place_is_not_followed(location: str, transport: Http1Transport) -> None:
    async with redirecting(location) as site, client_for(site, transport=transport) as client:
        with pytest.raises(ToolPermissionError) as refused:
            await client.send(Request("GET", site.url))

        text = str(refused.value)
        assert text.startswith(f"Permission denied: the redirect of GET {site.url} is not followed: ")
        assert refused.value.error_code == "address_refused"
        assert "hunter2" not in text
        assert len(site.requests) == 1


@pytest.mark.req("NSSRF-06")
async def test_every_hop_is_judged_not_only_the_first(transport: Http1Transport) -> None:
    async with Site() as inside, redirecting(f"{inside.url}/") as second:
        async with redirecting(second.url) as first, client_for(first, second, transport=transport) as client:
            with pytest.raises(ToolPermissionError, match=rf"the redirect of GET {second.url} is not followed"):
                await client.send(Request("GET", first.url))

        assert (len(second.requests), inside.connections) == (1, 0)


async def test_headers_meant_for_one_origin_stay_there(transport: Http1Transport) -> None:
    headers = {
        "Authorization": "Bearer hunter2",
        "Cookie": "session=hunter2",
        "X-API-Key": "hunter2",
        "X-Anything": "hunter2",
        "Accept": "application/json",
    }
    async with Site() as other, redirecting("/again", other.url) as site:
        async with client_for(site, other, transport=transport) as client:
            await client.send(Request("GET", site.url, headers=headers))

        assert [received.all("authorization") for received in site.requests] == [["Bearer hunter2"]] * 2
        assert "hunter2" not in str(other.last.headers)
        assert other.last.all("accept") == ["application/json"]
        assert other.last.all("host") == [f"127.0.0.1:{other.port}"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_other_methods_get_the_redirect_itself(method: str, transport: Http1Transport) -> None:
    async with redirecting("/there", status=307) as site, client_for(site, transport=transport) as client:
        response = await client.send(Request(method, site.url, body=b"x"))

        assert (response.status, response.headers.get("location")) == (307, "/there")
        assert len(site.requests) == 1


@pytest.mark.parametrize(
    ("status", "method", "sent"),
    [
        (301, "POST", ("GET", b"", [])),
        (302, "POST", ("GET", b"", [])),
        (303, "POST", ("GET", b"", [])),
        (303, "PUT", ("GET", b"", [])),
        (302, "PUT", ("PUT", b"x=1", ["text/plain"])),
        (307, "POST", ("POST", b"x=1", ["text/plain"])),
        (308, "DELETE", ("DELETE", b"x=1", ["text/plain"])),
    ],
)
async def test_whoever_asks_for_it_has_every_method_followed(
    status: int, method: str, sent: tuple[str, bytes, list[str]], transport: Http1Transport
) -> None:
    async with redirecting("/there", status=status) as site, client_for(site, transport=transport) as client:
        headers = {"Content-Type": "text/plain"}
        await client.send(Request(method, site.url, body=b"x=1", headers=headers, follow="all"))

        assert (site.last.method, site.last.body, site.last.all("content-type")) == sent


async def test_a_body_is_never_sent_to_another_origin(transport: Http1Transport) -> None:
    async with Site() as other, redirecting(other.url, status=307) as site:
        async with client_for(site, other, transport=transport) as client:
            response = await client.send(Request("POST", site.url, body=b"hunter2", follow="all"))

        assert (response.status, other.connections) == (307, 0)


async def test_a_stream_cannot_be_sent_twice(transport: Http1Transport) -> None:
    async def once() -> object:
        yield b"x"

    async with redirecting("/there", status=307) as site, client_for(site, transport=transport) as client:
        response = await client.send(Request("POST", site.url, body=once(), follow="all"))  # type: ignore[arg-type]

        assert (response.status, len(site.requests)) == (307, 1)


@pytest.mark.parametrize("answer", [reply(302), reply(304, location="/x"), reply(300, location="/x")])
async def test_an_answer_that_leads_nowhere_is_an_answer(answer: bytes, transport: Http1Transport) -> None:
    async with Site(answer) as site, client_for(site, transport=transport) as client:
        response = await client.send(Request("GET", site.url))

        assert response.status in {300, 302, 304}
        assert len(site.requests) == 1


async def test_a_client_may_follow_nothing(transport: Http1Transport) -> None:
    async with redirecting("/there") as site:
        async with client_for(site, transport=transport, max_redirects=0) as client:
            assert (await client.send(Request("GET", site.url))).status == 302
        async with client_for(site, transport=transport) as client:
            site.requests.clear()
            assert (await client.send(Request("GET", site.url, follow="none"))).status == 302


async def test_what_fails_after_a_redirect_was_sent_before_it(transport: Http1Transport) -> None:
    async with Site() as gone:
        pass
    async with redirecting(gone.url, status=303) as site, client_for(site, gone, transport=transport) as client:
        with pytest.raises(ToolConnectionError, match="no connection") as failed:
            await client.send(Request("POST", site.url, follow="all"))

    assert failed.value.sent


async def test_a_redirect_to_a_name_that_no_one_knows_was_sent_too(transport: Http1Transport) -> None:
    async with redirecting("http://nowhere.example/") as site:
        policy = NetworkPolicy().for_source(site.url)
        async with HttpClient(policy, transport=transport, resolver=StubResolver([])) as client:
            with pytest.raises(ToolConnectionError, match="has no address") as failed:
                await client.send(Request("GET", site.url))

    assert failed.value.sent


# ---------------------------------------------------------------- by rule


def request(url: str = "https://api.example/v1") -> Request:
    headers = (("Authorization", "Bearer hunter2"), ("User-Agent", "toolpost"))
    return Request("GET", url, headers)


@pytest.mark.req("NSSRF-06")
@pytest.mark.parametrize("location", ["http://api.example/v1", "HTTP://other.example/"])
def test_a_redirect_never_leaves_tls(location: str) -> None:
    with pytest.raises(ToolPermissionError, match=r"^Permission denied: it leads to '\w+\.example' without TLS"):
        redirect_request(request(), 302, Headers((("Location", location),)))


@pytest.mark.parametrize(
    ("location", "kept"),
    [
        ("https://api.example/v2", True),
        ("https://API.example:443/v2", True),
        ("/v2", True),
        ("//api.example/v2", True),
        ("https://api.example:8443/v2", False),
        ("https://api.example.org/v2", False),
        ("https://evil-api.example/v2", False),
    ],
)
def test_the_same_origin_is_scheme_host_and_port(location: str, *, kept: bool) -> None:
    following = redirect_request(request(), 302, Headers((("Location", location),)))

    assert following is not None
    assert ("Authorization" in dict(following.headers)) is kept
    assert "User-Agent" in dict(following.headers)


@pytest.mark.parametrize("location", ["//[::1", "//[]/", "https:///x", "https:x", "https://a..b/", "//a b/"])
def test_a_location_that_cannot_be_read_is_refused(location: str) -> None:
    with pytest.raises(ToolPermissionError, match="is refused") as refused:
        redirect_request(request(), 302, Headers((("Location", location),)))

    assert refused.value.error_code == "address_refused"


def test_an_upgrade_to_tls_is_another_origin() -> None:
    following = redirect_request(request("http://api.example/"), 301, Headers((("Location", "https://api.example/"),)))

    assert following is not None
    assert dict(following.headers) == {"User-Agent": "toolpost"}
