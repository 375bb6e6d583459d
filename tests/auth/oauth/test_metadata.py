"""Discovery: where documents are looked for, and which of them are believed."""

from typing import Any

import pytest

from tests.auth.oauth.flows import DOCUMENT, ISSUER, MCP, NOT_FOUND, RESOURCE, TRUST, Script, told
from toolpost.auth.oauth.metadata import (
    Trust,
    configured_server,
    discover_server,
    find_resource,
    find_server,
    legacy_server,
    resource_of,
)
from toolpost.contracts.errors import ToolAuthError, ToolConnectionError, ToolServerError
from toolpost.wire.network import NetworkPolicy

WELL_KNOWN = "https://mcp.example.org/.well-known/oauth-protected-resource"
HTML = told(b"<!doctype html><p>Welcome", content_type="text/html")


def test_the_document_that_the_challenge_names_is_the_only_one_asked_for() -> None:
    script = Script(told(RESOURCE))
    found = script.play(find_resource(MCP, trust=TRUST, metadata_url="https://mcp.example.org/custom.json"))
    assert script.urls == ["https://mcp.example.org/custom.json"]
    assert found is not None
    assert found.authorization_servers == (ISSUER,)
    assert found.documents == (MCP, "https://mcp.example.org/custom.json")


def test_without_a_named_document_the_path_comes_before_the_root() -> None:
    script = Script(NOT_FOUND, told({**RESOURCE, "resource": "https://mcp.example.org", "scopes_supported": ["a"]}))
    found = script.play(find_resource(MCP, trust=TRUST))
    assert script.urls == [f"{WELL_KNOWN}/mcp", WELL_KNOWN]
    assert found is not None
    assert found.scopes_supported == ("a",)
    assert [ask.documents for ask in script.asks] == [(), ()]


def test_a_named_document_that_is_not_there_is_looked_for_elsewhere() -> None:
    script = Script(NOT_FOUND, told(RESOURCE))
    assert script.play(find_resource(MCP, trust=TRUST, metadata_url="https://mcp.example.org/gone")) is not None
    assert script.urls == ["https://mcp.example.org/gone", f"{WELL_KNOWN}/mcp"]


@pytest.mark.parametrize("page", [NOT_FOUND, HTML, told([1]), told(b"{"), told(b"[" * 100_000)])
def test_a_server_without_a_document_has_none(page: Any) -> None:
    assert Script(page, page).play(find_resource(MCP, trust=TRUST)) is None


def test_a_server_in_trouble_is_not_a_server_without_a_document() -> None:
    with pytest.raises(ToolServerError, match="failed with status 503"):
        Script(told({}, 503)).play(find_resource(MCP, trust=TRUST))
    with pytest.raises(ToolConnectionError):
        Script(ToolConnectionError("gone")).play(find_resource(MCP, trust=TRUST))


@pytest.mark.parametrize(
    "resource",
    [
        "https://evil.example.com/mcp",
        "http://mcp.example.org/mcp",
        "https://mcp.example.org:444/mcp",
        "https://mcp.example.org/mc",
        "https://mcp.example.org/mcp/deeper",
        "https://mcp.example.org/mcp#x",
        "https://mcp.example.org/mcp?x",
        "https://[broken/mcp",
        None,
        7,
    ],
)
def test_a_document_that_speaks_for_another_resource_is_refused(resource: object) -> None:
    with pytest.raises(ToolAuthError, match="another resource") as refused:
        Script(told({**RESOURCE, "resource": resource})).play(find_resource(MCP, trust=TRUST))
    assert refused.value.error_code == "oauth_resource_mismatch"


@pytest.mark.parametrize(
    "resource", ["https://MCP.example.org:443/mcp", "https://mcp.example.org/", "https://mcp.example.org/mcp/"]
)
def test_a_document_may_write_the_same_resource_otherwise(resource: str) -> None:
    found = Script(told({**RESOURCE, "resource": resource})).play(find_resource(MCP, trust=TRUST))
    assert found is not None
    assert found.resource == resource


@pytest.mark.parametrize("servers", [None, [], "https://id.example.org", [7], {}])
def test_a_document_without_an_authorization_server_is_refused(servers: object) -> None:
    with pytest.raises(ToolAuthError, match="names no authorization server"):
        Script(told({**RESOURCE, "authorization_servers": servers})).play(find_resource(MCP, trust=TRUST))


def test_an_issuer_without_a_path_is_looked_for_in_two_places() -> None:
    script = Script(NOT_FOUND, told(DOCUMENT))
    found = script.play(discover_server(ISSUER, trust=TRUST))
    assert script.urls == [
        f"{ISSUER}/.well-known/oauth-authorization-server",
        f"{ISSUER}/.well-known/openid-configuration",
    ]
    assert found.token_endpoint == f"{ISSUER}/token"
    assert found.documents == (f"{ISSUER}/.well-known/openid-configuration",)


def test_an_issuer_with_a_path_is_looked_for_in_three_places_and_never_at_the_root() -> None:
    issuer = f"{ISSUER}/tenant1"
    script = Script(NOT_FOUND, HTML, told({**DOCUMENT, "issuer": issuer}))
    assert script.play(discover_server(issuer, trust=TRUST)).issuer == issuer
    assert script.urls == [
        f"{ISSUER}/.well-known/oauth-authorization-server/tenant1",
        f"{ISSUER}/.well-known/openid-configuration/tenant1",
        f"{ISSUER}/tenant1/.well-known/openid-configuration",
    ]


def test_what_a_document_led_to_is_asked_for_as_its_guest() -> None:
    script = Script(told(DOCUMENT))
    found = script.play(discover_server(ISSUER, trust=TRUST, documents=(MCP,)))
    assert script.asks[0].documents == (MCP,)
    assert found.documents == (MCP, f"{ISSUER}/.well-known/oauth-authorization-server")


@pytest.mark.parametrize("issuer", ["https://attacker.example.com", f"{ISSUER}/", "HTTPS://id.example.org", None])
def test_a_document_of_another_issuer_is_refused_and_no_other_place_is_tried(issuer: object) -> None:
    with pytest.raises(ToolAuthError, match="another issuer") as refused:
        Script(told({**DOCUMENT, "issuer": issuer})).play(find_server(ISSUER, trust=TRUST))
    assert refused.value.error_code == "oauth_issuer_mismatch"


def test_an_issuer_that_publishes_nothing_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ToolAuthError, match="write its endpoints into the configuration"):
        Script(NOT_FOUND, NOT_FOUND).play(discover_server(ISSUER, trust=TRUST))


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "registration_endpoint"])
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("javascript:alert(1)", "only http and https"),
        ("data:text/html,x", "only http and https"),
        ("file:///etc/passwd", "only http and https"),
        ("http://id.example.org/x", "not https"),
        ("http://127.0.0.1:8080/x", "this machine"),
        ("https://localhost/x", "this machine"),
        ("https://169.254.169.254/latest", "this machine"),
        ("https://[::1]/x", "this machine"),
        ("https://2130706433/x", "disguised"),
        ("https://user:pw@id.example.org/x", "credentials"),
        ("https://id.example.org/x#y", "fragment"),
        ("/relative", "only http and https"),
        ("https://id.example.org/\nx", "control character"),
        (7, "not a URL"),
        ("", "not a URL"),
    ],
)
def test_an_endpoint_that_leads_astray_is_refused(name: str, url: object, reason: str) -> None:
    with pytest.raises(ToolAuthError, match=reason) as refused:
        Script(told({**DOCUMENT, name: url})).play(find_server(ISSUER, trust=TRUST))
    assert refused.value.error_code == "oauth_endpoint_refused"
    assert name in str(refused.value)
    assert "pw" not in str(refused.value)


def test_on_this_machine_a_document_may_point_at_this_machine() -> None:
    issuer = "http://localhost:9000"
    document = {**DOCUMENT, "issuer": issuer, "token_endpoint": "http://127.0.0.1:9001/token"}
    found = Script(told(document)).play(find_server(issuer, trust=TRUST, documents=("http://localhost:8000/mcp",)))
    assert found is not None
    assert found.token_endpoint == "http://127.0.0.1:9001/token"


def test_a_host_that_an_operator_allowed_may_be_without_tls() -> None:
    trust = Trust(policy=NetworkPolicy(allow_hosts=frozenset({"*.corp.example", "other.example:81", "10.0.0.0/8"})))
    document = {
        **DOCUMENT,
        "token_endpoint": "http://id.corp.example/token",
        "revocation_endpoint": "http://10.1.2.3/r",
    }
    found = Script(told(document)).play(find_server(ISSUER, trust=trust))
    assert found is not None
    assert found.revocation_endpoint == "http://10.1.2.3/r"


@pytest.mark.parametrize("documents", [(MCP,), (MCP, "http://localhost:8000/x"), ("http://localhost:8000/x", MCP)])
def test_an_issuer_on_this_machine_is_refused_to_a_document_from_elsewhere(documents: tuple[str, ...]) -> None:
    with pytest.raises(ToolAuthError, match="this machine"):
        Script().play(find_server("http://127.0.0.1:9000", trust=TRUST, documents=documents))


def test_an_issuer_has_no_query() -> None:
    with pytest.raises(ToolAuthError, match="query"):
        Script().play(find_server(f"{ISSUER}?x=y", trust=TRUST))


def test_a_document_without_a_token_endpoint_is_refused() -> None:
    with pytest.raises(ToolAuthError, match="token_endpoint"):
        Script(told({"issuer": ISSUER})).play(find_server(ISSUER, trust=TRUST))


def test_lists_of_the_wrong_kind_say_nothing() -> None:
    document = {**DOCUMENT, "code_challenge_methods_supported": "S256", "scopes_supported": ["a", 7, None, "a", ""]}
    found = Script(told(document)).play(find_server(ISSUER, trust=TRUST))
    assert found is not None
    assert found.code_challenge_methods == ()
    assert found.scopes_supported == ("a",)
    assert found.auth_methods is None


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://MCP.example.org/", "https://mcp.example.org"),
        ("https://mcp.example.org/mcp?key=secret#x", "https://mcp.example.org/mcp"),
        ("https://mcp.example.org:8443/Mcp/", "https://mcp.example.org:8443/Mcp/"),
    ],
)
def test_a_server_without_a_document_is_named_by_its_url_without_what_may_be_secret(url: str, name: str) -> None:
    assert resource_of(url) == name


def test_a_server_of_the_first_revision_has_its_endpoints_at_the_root() -> None:
    found = legacy_server("https://old.example.org/deep/mcp")
    assert (found.issuer, found.token_endpoint) == ("https://old.example.org", "https://old.example.org/token")


def test_endpoints_that_an_operator_wrote_are_nobodys_guests() -> None:
    found = configured_server(authorization_endpoint="https://a.example/auth", token_endpoint="https://b.example/token")
    assert (found.documents, found.issuer_known, found.issuer) == ((), False, "https://a.example")
