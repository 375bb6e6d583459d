"""Who may be reached, by whose word."""

import pytest

from tests.wire.stubs import StubResolver
from toolpost.contracts.errors import ConfigError, ToolPermissionError
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.targets import WEBSOCKET_SCHEMES, parse_target


async def reaches(policy: NetworkPolicy, url: str, *answers: str) -> bool:
    try:
        return bool(await policy.resolve(parse_target(url), resolver=StubResolver(list(answers))))
    except ToolPermissionError:
        return False


async def test_without_a_word_only_public_addresses_are_reached() -> None:
    policy = NetworkPolicy()

    assert await reaches(policy, "https://a.example/", "93.184.216.34")
    assert not await reaches(policy, "https://a.example/", "10.0.0.5")
    assert not await reaches(policy, "http://127.0.0.1/")


async def test_the_networks_own_settings_hold_for_every_source() -> None:
    assert await reaches(NetworkPolicy(allow_hosts=frozenset({"a.example"})), "https://a.example/", "10.0.0.5")
    assert await reaches(NetworkPolicy(allow_private=True), "https://b.example/", "10.0.0.5")


@pytest.mark.parametrize(
    ("written", "url", "answers"),
    [
        ("http://localhost:8080/openapi.json", "http://localhost:8080/v1/x", ["127.0.0.1"]),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/", []),
        ("http://[::1]:8080", "http://[::1]:8080/", []),
        ("https://intranet.example/", "https://INTRANET.example/api", ["10.0.0.5"]),
        ("ws://n8n.local:5678/", "http://n8n.local:5678/", ["192.168.1.5"]),
        ("http://169.254.169.254/", "http://169.254.169.254/latest", []),
    ],
)
async def test_a_host_that_an_operator_wrote_is_reached_for_that_source_alone(
    written: str, url: str, answers: list[str]
) -> None:
    base = NetworkPolicy()

    assert await reaches(base.for_source(written), url, *answers)
    assert not await reaches(base, url, *answers)
    assert not await reaches(base.for_source("http://other.example/"), url, *answers)


@pytest.mark.parametrize("url", ["http://localhost:6379/", "https://localhost/", "http://a.localhost:8080/"])
async def test_an_operators_host_is_reached_at_its_own_port(url: str) -> None:
    assert not await reaches(NetworkPolicy().for_source("http://localhost:8080/"), url, "127.0.0.1")


async def test_an_operators_name_does_not_lead_to_metadata() -> None:
    policy = NetworkPolicy().for_source("http://intranet.example/")

    assert not await reaches(policy, "http://intranet.example/", "169.254.169.254")


async def test_a_source_may_have_several_hosts() -> None:
    policy = NetworkPolicy().for_source("http://one.example/").for_source("http://two.example/")

    assert await reaches(policy, "http://one.example/", "10.0.0.1")
    assert await reaches(policy, "http://two.example/", "10.0.0.2")


def test_a_wrong_entry_is_found_at_once() -> None:
    with pytest.raises(ConfigError, match=r"network\.allow_hosts: 'a/b' cannot be read"):
        NetworkPolicy(allow_hosts=frozenset({"a/b"}))


# ---------------------------------------------------------------- documents


async def test_a_public_document_points_at_public_addresses_and_no_others() -> None:
    policy = NetworkPolicy(allow_hosts=frozenset({"10.0.0.0/8"}), allow_private=True).for_source("http://localhost:80/")
    narrow = policy.for_document("https://docs.example/openapi.json")

    assert await reaches(narrow, "https://api.example/", "93.184.216.34")
    for url, answers in (("http://localhost/", ["127.0.0.1"]), ("http://10.0.0.5/", []), ("http://192.168.1.1/", [])):
        assert await reaches(policy, url, *answers)
        assert not await reaches(narrow, url, *answers)


async def test_a_document_inside_points_at_its_own_host_and_not_at_its_neighbours() -> None:
    policy = NetworkPolicy().for_source("http://one.local:8000/", "http://two.local/")
    narrow = policy.for_document("http://one.local:8000/openapi.json")

    assert await reaches(narrow, "http://one.local:8000/v1", "10.0.0.1")
    assert not await reaches(narrow, "http://one.local:6379/", "10.0.0.1")
    assert not await reaches(narrow, "http://two.local/", "10.0.0.2")
    assert await reaches(policy, "http://two.local/", "10.0.0.2")


async def test_the_host_of_a_public_document_may_not_turn_private() -> None:
    narrow = NetworkPolicy().for_source("http://localhost/").for_document("https://evil.example/openapi.json")

    assert not await reaches(narrow, "https://evil.example/", "127.0.0.1")


async def test_a_document_that_a_document_points_at_is_bound_by_both() -> None:
    policy = NetworkPolicy().for_source("http://one.local/", "http://two.local/")
    narrow = policy.for_document("http://one.local/a.json").for_document("http://two.local/b.json")

    assert not await reaches(narrow, "http://one.local/", "10.0.0.1")
    assert not await reaches(narrow, "http://two.local/", "10.0.0.2")
    assert await reaches(narrow, "http://three.example/", "93.184.216.34")


async def test_a_refused_document_is_reported_with_what_would_help() -> None:
    narrow = NetworkPolicy().for_document("https://docs.example/")

    with pytest.raises(ToolPermissionError, match="write the right URL into the source's configuration"):
        await narrow.resolve(parse_target("http://127.0.0.1/"))


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://a.example/", "a.example"),
        ("http://a.example:80/", "a.example"),
        ("https://a.example:80/", "a.example:80"),
        ("wss://a.example/", "a.example"),
        ("http://[::1]/", "[::1]"),
        ("http://[::1]:81/", "[::1]:81"),
    ],
)
def test_a_host_is_named_with_its_port_unless_that_goes_without_saying(url: str, host: str) -> None:
    assert parse_target(url, schemes=WEBSOCKET_SCHEMES | {"http", "https"}).host_header == host
