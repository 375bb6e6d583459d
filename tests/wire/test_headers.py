"""Header fields that may be sent and those that may not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.site import Site
from toolpost.contracts.errors import ToolValidationError
from toolpost.wire.client import HttpClient
from toolpost.wire.http1 import Http1Transport
from toolpost.wire.messages import MANAGED_HEADERS, Headers, Request, clean_headers
from toolpost.wire.network import NetworkPolicy

HOP_BY_HOP = ["Connection", "Keep-Alive", "Proxy-Authorization", "TE", "Trailer", "Transfer-Encoding", "Upgrade"]


@pytest.mark.req("NSSRF-07")
@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", "a\x0bb", "a\x7fb", "\x1b[0m", "a\ud800"])
async def test_a_value_with_a_line_break_or_a_nul_is_never_sent(value: str, transport: Http1Transport) -> None:
    async with Site() as site, HttpClient(NetworkPolicy().for_source(site.url), transport=transport) as client:
        with pytest.raises(ToolValidationError, match=r"header 'X-Note' has a line break") as refused:
            await client.send(Request("GET", site.url, headers={"X-Note": value}))

        assert "evil" not in str(refused.value).lower()
        assert site.connections == 0


@pytest.mark.req("NSSRF-07")
@pytest.mark.parametrize("name", ["", "X Note", "X-Note:", "X-Nöte", "X\r\nEvil", "X\0", "(x)", "a" * 10 + "\n"])
def test_a_name_is_a_token(name: str) -> None:
    with pytest.raises(ToolValidationError, match="is not the name of a header"):
        clean_headers({name: "x"})


@pytest.mark.req("NSSRF-07")
@pytest.mark.parametrize("name", [*HOP_BY_HOP, "Host", "content-length", "HOST"])
def test_what_belongs_to_the_connection_cannot_be_set(name: str) -> None:
    assert name.lower() in MANAGED_HEADERS
    with pytest.raises(ToolValidationError, match=rf"header '{name}' belongs to the connection"):
        clean_headers(((name, "x"),))


def test_every_wrong_field_is_named() -> None:
    with pytest.raises(ToolValidationError) as refused:
        clean_headers({"Host": "a", "X-A": "\n", "X-B": "fine"})

    assert len(refused.value.issues) == 2


def test_defaults_give_way() -> None:
    assert clean_headers({"accept": "text/html"}, defaults=(("Accept", "*/*"), ("User-Agent", "x"))) == (
        ("accept", "text/html"),
        ("User-Agent", "x"),
    )


@pytest.mark.req("NSSRF-07")
@given(name=st.text(), value=st.text())
def test_any_text_is_a_field_or_a_refusal(name: str, value: str) -> None:
    try:
        pairs = clean_headers({name: value})
    except ToolValidationError:
        return
    line = "".join(f"{name}: {value}" for name, value in pairs).encode()
    assert not set(line) & set(b"\r\n\0")


def test_fields_are_found_in_any_case_and_shown_without_values() -> None:
    headers = Headers((("Set-Cookie", "a=hunter2"), ("X-One", "1"), ("set-cookie", "b=2")))

    assert (headers.get("SET-cookie"), headers.get_all("set-cookie")) == ("a=hunter2", ("a=hunter2", "b=2"))
    assert (headers.get("none"), headers.get_all("none"), "none" in headers) == (None, (), False)
    assert (len(headers), list(headers)[1]) == (3, ("X-One", "1"))
    assert "hunter2" not in repr(headers)
