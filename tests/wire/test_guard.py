"""What a URL points at, and which of its addresses may be connected to."""

import asyncio
import contextlib
import re
import socket
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.stubs import StubResolver
from toolpost.contracts.errors import ConfigError, ToolConnectionError, ToolPermissionError
from toolpost.wire.network import allow_rules, resolve
from toolpost.wire.targets import HTTP_SCHEMES, WEBSOCKET_SCHEMES, Target, parse_target


async def addresses(url: str, *answers: str, allow: tuple[str, ...] = (), allow_private: bool = False) -> list[str]:
    found = await resolve(
        parse_target(url),
        allow_hosts=frozenset(allow),
        allow_private=allow_private,
        resolver=StubResolver(list(answers)),
    )
    return [str(address) for address in found]


# ---------------------------------------------------------------- URLs


def test_a_url_becomes_a_target() -> None:
    assert parse_target("HTTPS://Bücher.Example:8443/a?b#c") == Target(
        scheme="https", host="Bücher.Example", port=8443, ascii_host="xn--bcher-kva.example"
    )


@pytest.mark.parametrize(
    ("url", "literal"),
    [("http://8.8.8.8/", IPv4Address("8.8.8.8")), ("http://[2606:4700::0:1]/", IPv6Address("2606:4700::1"))],
)
def test_a_literal_is_an_address_at_once(url: str, literal: IPv4Address | IPv6Address) -> None:
    target = parse_target(url)

    assert (target.address, target.ascii_host) == (literal, str(literal))


@pytest.mark.parametrize(
    ("host", "ascii_host"),
    [
        ("EXAMPLE.com.", "example.com"),
        ("straße.de", "xn--strae-oqa.de"),
        ("ΟΔΟΣ.ελ", "xn--pxavbq.xn--qxam"),
        ("例え。テスト", "xn--r8jz45g.xn--zckzah"),
        ("\uff45xample\uff0ecom", "example.com"),  # full-width letter and dot
        ("пример.рф", "xn--e1afmkfd.xn--p1ai"),
        ("☃.net", "xn--n3h.net"),
    ],
)
def test_names_of_any_script_are_written_in_ascii(host: str, ascii_host: str) -> None:
    assert parse_target(f"https://{host}/").ascii_host == ascii_host


@pytest.mark.req("NSSRF-01")
@given(scheme=st.from_regex(r"[A-Za-z][A-Za-z0-9+.-]{0,8}", fullmatch=True))
def test_only_http_and_https_are_schemes(scheme: str) -> None:
    url = f"{scheme}://example.com/"

    if scheme.lower() in HTTP_SCHEMES:
        assert parse_target(url).scheme == scheme.lower()
    else:
        with pytest.raises(ToolPermissionError, match="only http and https are allowed"):
            parse_target(url)


def test_websocket_schemes_are_for_callers_that_ask_for_them() -> None:
    ports = {scheme: parse_target(f"{scheme}://a.org/", schemes=WEBSOCKET_SCHEMES).port for scheme in ("ws", "wss")}

    assert ports == {"ws": 80, "wss": 443}
    with pytest.raises(ToolPermissionError, match="only ws and wss are allowed"):
        parse_target("https://a.org/", schemes=WEBSOCKET_SCHEMES)


@given(url=st.text() | st.text().map("http://{}".format) | st.text().map("http://a{}b.org/".format))
def test_any_text_is_a_target_or_a_refusal(url: str) -> None:
    with contextlib.suppress(ToolPermissionError):
        target = parse_target(url)
        assert target.address or re.fullmatch(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", target.ascii_host)


@given(host=st.text(alphabet="0123456789xXabcdef.②⑦٧\uff10\uff11\uff0e\u3002\uff61\u2024", min_size=1))
def test_a_host_is_never_read_as_an_address_by_inet_aton_alone(host: str) -> None:
    try:
        target = parse_target(f"http://{host}/")
    except ToolPermissionError:
        return
    if target.address is None:
        with pytest.raises(OSError, match="illegal IP address"):
            socket.inet_aton(target.ascii_host)


@pytest.mark.parametrize(
    "url",
    [
        "http://ann:hunter2@example.com/",
        "http://ann:hunter2@hunter2@example.com/",
        "http://ann:x@hunter2/y@example.com/",
        "http://ann:hunter2/",
        "http://example.com:0/?key=hunter2",
        "http://exa mple.com/?key=hunter2",
        "gopher://ann:hunter2@example.com/hunter2",
        "http:hunter2",
        "hunter2",
    ],
)
def test_a_refusal_tells_nothing_that_may_be_secret(url: str) -> None:
    with pytest.raises(ToolPermissionError) as refused:
        parse_target(url)

    assert "hunter2" not in str(refused.value)


def test_a_refused_form_names_the_host() -> None:
    with pytest.raises(ToolPermissionError, match=r"^Permission denied: the URL of host '0x7f\.1' is refused: .*plain"):
        parse_target("http://0x7f.1:80/")


# ---------------------------------------------------------------- look-ups


async def test_a_name_is_looked_up_once_and_a_later_answer_does_not_count() -> None:
    resolver = StubResolver(["93.184.216.34"], ["127.0.0.1"])

    found = await resolve(parse_target("https://bücher.example/"), resolver=resolver)

    assert found == [IPv4Address("93.184.216.34")]
    assert resolver.asked == [("xn--bcher-kva.example", 443)]


async def test_a_literal_is_judged_without_a_look_up() -> None:
    resolver = StubResolver(["8.8.8.8"])

    with pytest.raises(ToolPermissionError):
        await resolve(parse_target("http://127.0.0.1/"), resolver=resolver)

    assert resolver.asked == []


async def test_the_loops_own_resolver_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = StubResolver(["93.184.216.34"])
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolver)

    assert await resolve(parse_target("http://example.com/")) == [IPv4Address("93.184.216.34")]


async def test_answers_come_back_plain_in_order_and_once() -> None:
    answers = ("2606:4700::1", "::ffff:8.8.8.8", "8.8.8.8", "2606:4700::1")

    assert await addresses("http://example.com/", *answers) == ["2606:4700::1", "8.8.8.8"]


async def test_a_refusal_names_host_address_reason_and_remedy() -> None:
    with pytest.raises(ToolPermissionError) as refused:
        await addresses("http://intranet.example/", "93.184.216.34", "10.0.0.5")

    assert str(refused.value) == (
        "Permission denied: host 'intranet.example' resolves to 10.0.0.5, which is not a public address: "
        "private use (RFC 1918). An operator can allow it with 'intranet.example' or '10.0.0.5' in network.allow_hosts."
    )


@pytest.mark.parametrize("error", [socket.gaierror(-2, "Name or service not known"), UnicodeError("label too long")])
async def test_a_failed_look_up_was_certainly_not_sent(error: Exception) -> None:
    async def failing(host: str, port: int, /, *, type: int) -> list[tuple[Any, ...]]:
        raise error

    with pytest.raises(ToolConnectionError, match=r"'nowhere\.example' could not be found") as failed:
        await resolve(parse_target("http://nowhere.example/"), resolver=failing)

    assert not failed.value.sent


@pytest.mark.parametrize(("answers", "says"), [([], "has no address"), (["not an address"], "could not be found")])
async def test_an_empty_or_unreadable_answer_is_no_address(answers: list[str], says: str) -> None:
    with pytest.raises(ToolConnectionError, match=says):
        await addresses("http://nowhere.example/", *answers)


async def test_a_look_up_has_a_deadline() -> None:
    async def silent(host: str, port: int, /, *, type: int) -> list[tuple[Any, ...]]:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(ToolConnectionError, match=r"Looking up 'slow\.example' took longer than 0\.01 s") as failed:
        await resolve(parse_target("http://slow.example/"), resolver=silent, timeout_s=0.01)
    assert not failed.value.sent


# ---------------------------------------------------------------- what the operator allows


@pytest.mark.parametrize(
    ("entry", "url", "answer"),
    [
        ("intranet.example", "http://intranet.example/", "10.0.0.5"),
        ("INTRANET.example.", "http://intranet.example:8080/", "10.0.0.5"),
        ("bücher.example", "http://xn--bcher-kva.example/", "10.0.0.5"),
        ("*.corp.example", "http://wiki.corp.example/", "fd00::5"),
        ("*.corp.example", "http://a.b.corp.example/", "10.0.0.5"),
        ("*.corp.example:8080", "http://wiki.corp.example:8080/", "10.0.0.5"),
        ("localhost:8080", "http://localhost:8080/", "127.0.0.1"),
        ("10.0.0.5", "http://10.0.0.5/", ""),
        ("10.0.0.5", "http://[::ffff:10.0.0.5]/", ""),
        ("10.0.0.5", "http://intranet.example/", "10.0.0.5"),
        ("10.0.0.0/8", "http://intranet.example/", "10.9.9.9"),
        ("10.0.0.0/8", "http://intranet.example/", "::ffff:10.9.9.9"),
        ("127.0.0.1:8080", "http://127.0.0.1:8080/", ""),
        ("::1", "http://[::1]/", ""),
        ("[::1]:8080", "http://[::1]:8080/", ""),
        ("fd00::/8", "http://[fd00::1]/", ""),
        ("169.254.169.254", "http://metadata.google.internal/", "169.254.169.254"),
        ("198.18.0.0/15", "http://example.com/", "198.18.0.7"),
    ],
)
async def test_an_entry_of_allow_hosts_opens_its_own_door(entry: str, url: str, answer: str) -> None:
    with pytest.raises(ToolPermissionError):
        await addresses(url, answer)

    assert await addresses(url, answer, allow=(entry,))


@pytest.mark.parametrize(
    ("entry", "url", "answer"),
    [
        ("intranet.example", "http://other.example/", "10.0.0.5"),
        ("intranet.example", "http://a.intranet.example/", "10.0.0.5"),
        ("*.corp.example", "http://corp.example/", "10.0.0.5"),
        ("*.corp.example", "http://evilcorp.example/", "10.0.0.5"),
        ("*.corp.example", "http://wiki.corp.example.org/", "10.0.0.5"),
        ("*.corp.example:8080", "http://wiki.corp.example/", "10.0.0.5"),
        ("localhost:8080", "http://localhost:8081/", "127.0.0.1"),
        ("10.0.0.5", "http://10.0.0.6/", ""),
        ("10.0.0.5:80", "https://10.0.0.5/", ""),
        ("10.0.0.0/24", "http://intranet.example/", "10.0.1.1"),
        ("10.0.0.0/8", "http://[64:ff9b::10.0.0.5]/", ""),
        ("10.0.0.0/8", "http://[2002:a00:5::]/", ""),
        ("intranet.example", "http://intranet.example/", "169.254.169.254"),
        ("intranet.example", "http://intranet.example/", "168.63.129.16"),
        ("intranet.example", "http://intranet.example/", "169.254.1.1"),
        ("intranet.example", "http://intranet.example/", "0.0.0.0"),
    ],
)
async def test_an_entry_of_allow_hosts_opens_no_other_door(entry: str, url: str, answer: str) -> None:
    with pytest.raises(ToolPermissionError):
        await addresses(url, answer, allow=(entry,))


async def test_one_allowed_answer_does_not_excuse_another() -> None:
    with pytest.raises(ToolPermissionError, match=r"10\.0\.0\.6"):
        await addresses("http://intranet.example/", "10.0.0.5", "10.0.0.6", allow=("10.0.0.5",))


@pytest.mark.parametrize("private", ["127.0.0.1", "10.0.0.5", "100.64.0.1", "fd00::1", "::1", "::ffff:192.168.1.1"])
async def test_allow_private_opens_the_operators_own_networks(private: str) -> None:
    assert await addresses("http://intranet.example/", private, allow_private=True)


@pytest.mark.parametrize(
    "other",
    ["169.254.169.254", "100.100.100.200", "fd00:ec2::254", "169.254.1.1", "0.0.0.0", "224.0.0.1", "64:ff9b::7f00:1"],
)
async def test_allow_private_opens_nothing_else(other: str) -> None:
    with pytest.raises(ToolPermissionError):
        await addresses("http://intranet.example/", other, allow_private=True)


@pytest.mark.parametrize(
    "answer", ["10.0.0.5", "::1", "fe80::1", "169.254.169.254", "2002:7f00:1::", "::ffff:127.0.0.1"]
)
async def test_every_remedy_that_a_refusal_names_works(answer: str) -> None:
    with pytest.raises(ToolPermissionError) as refused:
        await addresses("http://intranet.example/", answer)

    remedies = re.findall(r"'([^']+)'", str(refused.value).partition("allow it with ")[2])
    assert remedies
    for remedy in remedies:
        assert await addresses("http://intranet.example/", answer, allow=(remedy,))


@pytest.mark.parametrize(
    "entry",
    ["", "*", "*.", "http://a.org", "a.org/b", "10.0.0.5/8", "10.0.0.0/33", "0x7f.1", "a.org:0", "a.org:x", "u@a.org"],
)
def test_an_entry_that_cannot_be_read_is_a_mistake_in_the_configuration(entry: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"network.allow_hosts: {entry!r} cannot be read")):
        allow_rules(frozenset({entry}))
