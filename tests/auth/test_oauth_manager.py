"""The auth manager: the URL for a person, and the callback that keeps their token."""

import asyncio
import base64
import hashlib
from typing import Any

import pytest

from tests.auth.services import NOW, REDIRECT, answer, form_of, manager, provider, query_of, token
from tests.wire.site import Received, Site, reply
from toolpost.auth.oauth_manager import OAuthCallbackError, OAuthManager
from toolpost.auth.pending_sign_ins import MemorySignIns
from toolpost.auth.secret import Secret
from toolpost.auth.token_stores import InMemoryTokenStore
from toolpost.contracts.errors import ConfigError

USER, TRACE = "acme:ann", "trace_1"


@pytest.mark.req("OAUTH-03", "OAUTH-32")
def test_a_provider_is_what_its_operator_registered_and_tells_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_SECRET", "canary-from-the-environment")
    known = provider()
    assert (known.name, known.display_name, known.client_id) == ("github", "GitHub", "app")
    assert provider(scopes=[]).scopes == []
    assert "canary" not in repr(known) + repr(manager())
    referred = provider(client_secret="env:GITHUB_SECRET")
    assert referred.client().secret == Secret("canary-from-the-environment")
    assert provider(client_secret=Secret("x")).client().secret == Secret("x")


@pytest.mark.req("OAUTH-25")
@pytest.mark.parametrize(
    ("place", "url"),
    [
        ("auth_url", "javascript:alert(1)"),
        ("auth_url", "id.example.org/authorize"),
        ("token_url", "file:///etc/passwd"),
        ("token_url", "https://user:pass@id.example.org/token"),
        ("redirect_uri", "http://app.example.org/oauth/callback"),
        ("redirect_uri", "myapp://callback"),
    ],
)
def test_urls_that_cannot_be_used_are_refused_where_they_are_written(place: str, url: str) -> None:
    with pytest.raises(ConfigError, match=rf"{place} of OAuth provider 'github'"):
        provider(**{place: url})


async def test_a_secret_that_is_not_there_is_reported_before_anybody_signs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_SECRET", raising=False)
    with pytest.raises(ValueError, match="'NO_SUCH_SECRET' is not set"):
        await manager(changes={"client_secret": "env:NO_SUCH_SECRET"}).get_auth_request("github", USER, TRACE)


@pytest.mark.req("OAUTH-04")
async def test_a_manager_keeps_tokens_in_memory_unless_it_is_given_a_store() -> None:
    mine = InMemoryTokenStore()
    await mine.store(USER, "github", "one", None)
    assert await OAuthManager({"github": provider()}, mine).get_token(USER, "github") == "one"
    plain = OAuthManager(providers={"github": provider()})
    assert isinstance(plain.token_store, InMemoryTokenStore)
    assert await plain.get_token(USER, "github") is None
    assert "_pending" in vars(plain)
    assert "_pending" not in repr(plain)


@pytest.mark.req("OAUTH-06")
async def test_an_unknown_provider_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"^Unknown OAuth provider: gitlab$"):
        await manager().get_auth_request("gitlab", USER, TRACE)


@pytest.mark.req("OAUTH-07", "OAUTH-08", "OAUTH-09")
async def test_a_request_is_what_a_person_needs_to_sign_in() -> None:
    pending = MemorySignIns()
    request = await manager(pending=pending).get_auth_request("github", USER, TRACE)
    sent = query_of(request["auth_url"])
    assert set(request) == {"display_name", "auth_url", "scopes", "state"}
    assert (request["display_name"], request["scopes"]) == ("GitHub", ["repo", "user"])
    assert (sent["client_id"], sent["redirect_uri"], sent["scope"]) == ("app", REDIRECT, "repo user")
    assert (sent["response_type"], sent["state"]) == ("code", request["state"])
    assert len(request["state"]) == 43
    kept = await pending.find(request["state"])
    assert kept is not None
    transaction, caller = kept.transaction, kept.transaction.caller
    assert (caller.user, caller.trace_id, caller.provider, transaction.created) == (USER, TRACE, "github", NOW)


@pytest.mark.req("DEF-09", "OAUTH-08")
async def test_a_url_that_has_a_query_keeps_it_and_everything_is_encoded() -> None:
    changes: dict[str, Any] = {
        "auth_url": "https://id.example.org/authorize?tenant=a%26b&state=fixed",
        "redirect_uri": "https://app.example.org/cb?next=/a?b=c&d",
        "scopes": ["https://www.googleapis.com/auth/drive", "ünï&x=y"],
    }
    request = await manager(changes=changes).get_auth_request("github", USER, TRACE)
    sent = query_of(request["auth_url"])
    assert request["auth_url"].count("?") == 1
    assert sent["tenant"] == "a&b"
    assert sent["state"] == request["state"]
    assert sent["redirect_uri"] == changes["redirect_uri"]
    assert sent["scope"] == " ".join(changes["scopes"])
    assert request["auth_url"].isascii()


async def test_without_scopes_none_are_sent() -> None:
    request = await manager(changes={"scopes": []}).get_auth_request("github", USER)
    assert "scope" not in query_of(request["auth_url"])


@pytest.mark.req("OAUTH-10", "OAUTH-12", "OAUTH-14")
async def test_a_callback_redeems_the_code_and_keeps_the_token() -> None:
    async with Site(token(expires_in=3600)) as site:
        oauth = manager(site)
        request = await oauth.get_auth_request("github", USER, TRACE)
        assert await oauth.handle_callback("code-1", request["state"]) == (USER, TRACE)
        assert site.last.method == "POST"
        assert site.last.all("accept") == ["application/json"]
        assert form_of(site) | {"code_verifier": ""} == {
            "client_id": "app",
            "client_secret": "canary-client-secret",
            "code": "code-1",
            "redirect_uri": REDIRECT,
            "grant_type": "authorization_code",
            "code_verifier": "",
        }
    assert await oauth.get_token(USER, "github") == "canary-token"
    assert await oauth.get_token("acme:bob", "github") is None


async def test_a_code_is_bound_to_its_request_unless_the_operator_says_no() -> None:
    async with Site(token()) as site:
        for pkce in (True, False):
            oauth = manager(site, changes={"pkce": pkce})
            request = await oauth.get_auth_request("github", USER, TRACE)
            await oauth.handle_callback("code-1", request["state"])
            sent, form = query_of(request["auth_url"]), form_of(site)
            if pkce:
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                assert sent["code_challenge"] == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
                assert sent["code_challenge_method"] == "S256"
            else:
                assert not {"code_challenge", "code_challenge_method"} & set(sent)
                assert "code_verifier" not in form


@pytest.mark.req("OAUTH-10", "OAUTH-25")
async def test_a_state_serves_once_and_others_never() -> None:
    async with Site(token()) as site:
        oauth = manager(site)
        request = await oauth.get_auth_request("github", USER, TRACE)
        await oauth.handle_callback("code-1", request["state"])
        for state in (request["state"], "x" * 43, "", "\ud800"):
            with pytest.raises(ValueError, match=r"^Invalid or expired OAuth state$"):
                await oauth.handle_callback("code-2", state)
        assert len(site.requests) == 1


async def test_of_two_tabs_that_come_back_at_once_one_connects_the_account() -> None:
    async with Site(token()) as site:
        oauth = manager(site)
        request = await oauth.get_auth_request("github", USER, TRACE)
        both = await asyncio.gather(
            *(oauth.handle_callback("code-1", request["state"]) for _ in range(2)), return_exceptions=True
        )
        assert sorted(map(str, both)) == sorted([str((USER, TRACE)), "Invalid or expired OAuth state"])
        assert len(site.requests) == 1


@pytest.mark.req("OAUTH-11", "OAUTH-26")
@pytest.mark.parametrize("ttl", [600.0, 5.0, 86_400.0])
async def test_a_request_expires_when_its_time_is_over(ttl: float) -> None:
    now = [NOW]
    async with Site(token()) as site:
        how: dict[str, Any] = {} if ttl == 600.0 else {"ttl_s": ttl}
        oauth = manager(site, clock=lambda: now[0], **how)
        late, early = [await oauth.get_auth_request("github", USER, TRACE) for _ in range(2)]
        now[0] += ttl
        assert await oauth.handle_callback("code-1", early["state"]) == (USER, TRACE)
        now[0] += 0.1
        with pytest.raises(ValueError, match=r"^OAuth request expired$"):
            await oauth.handle_callback("code-2", late["state"])
        assert len(site.requests) == 1


def test_a_time_to_live_must_be_one() -> None:
    with pytest.raises(ValueError, match="ttl_s must be more than 0"):
        manager(ttl_s=0)


@pytest.mark.req("DEF-10", "OAUTH-26")
async def test_requests_that_no_one_came_back_for_do_not_pile_up() -> None:
    now, pending = [NOW], MemorySignIns()
    oauth = manager(clock=lambda: now[0], pending=pending)
    for _ in range(1000):
        await oauth.get_auth_request("github", USER, TRACE)
        now[0] += 60.0
    assert len(pending) <= 22


@pytest.mark.req("OAUTH-13")
@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"error": "bad_verification_code", "error_description": "The code is wrong."}, "The code is wrong."),
        ({"error": "invalid_grant"}, "invalid_grant"),
        ({"error": "x", "error_description": "evil\x1b[2J\n" + "y" * 500}, "evil [2J " + "y" * 191 + "…"),
        ({"error": "no", "error_description": "code-1 and canary-client-secret"}, "… and …"),
    ],
    ids=["described", "bare", "tricky", "echo"],
)
@pytest.mark.parametrize("status", [200, 400])
async def test_a_refusal_of_the_provider_is_reported_in_its_words(told: dict[str, str], said: str, status: int) -> None:
    async with Site(answer(status, **told)) as site:
        oauth = manager(site)
        request = await oauth.get_auth_request("github", USER, TRACE)
        with pytest.raises(ValueError, match="OAuth error") as raised:
            await oauth.handle_callback("code-1", request["state"])
        assert str(raised.value) == f"OAuth error: {said}"
        with pytest.raises(ValueError, match="Invalid or expired OAuth state"):
            await oauth.handle_callback("code-1", request["state"])


async def test_a_person_who_says_no_is_heard_and_asked_again() -> None:
    oauth = manager()
    request = await oauth.get_auth_request("github", USER, TRACE)
    with pytest.raises(OAuthCallbackError, match=r"^OAuth error: They said no$") as raised:
        await oauth.handle_callback("", request["state"], error="access_denied", error_description="They said no")
    assert raised.value.cause == "denied"
    with pytest.raises(ValueError, match="Invalid or expired OAuth state"):
        await oauth.handle_callback("code-1", request["state"])


async def test_a_browser_that_comes_back_without_a_code_may_come_again_with_one() -> None:
    async with Site(token()) as site:
        oauth = manager(site)
        request = await oauth.get_auth_request("github", USER, TRACE)
        with pytest.raises(OAuthCallbackError, match="contains no code"):
            await oauth.handle_callback("", request["state"])
        assert site.requests == []
        assert await oauth.handle_callback("code-1", request["state"]) == (USER, TRACE)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (reply(200, b"<html>Sign in</html>", content_type="text/html"), "not a JSON object (text/html)"),
        (reply(404, b"<html>Nothing here</html>", content_type="text/html"), "returned status 404"),
        (answer(token_type="bearer"), "returned no access_token"),
        (answer(access_token="a\nb"), "that cannot be sent in a header"),
        (answer(access_token="a", token_type="mac"), "a token of the unsupported type 'mac'"),
        (reply(302, location="https://elsewhere.example.org/"), "redirected (302)"),
        (reply(200, b'{"access_token": "' + b"x" * 2_000_000 + b'"}'), "larger than 1,048,576 bytes"),
        (reply(200, b"[]"), "not a JSON object"),
    ],
    ids=["page", "missing", "no token", "unsendable", "other type", "redirect", "huge", "array"],
)
async def test_an_answer_that_is_no_token_is_a_clear_value_error(body: bytes, said: str) -> None:
    async with Site(body) as site:
        oauth = manager(site)
        request = await oauth.get_auth_request("github", USER, TRACE)
        with pytest.raises(ValueError, match=r"token endpoint|127\.0\.0\.1") as raised:
            await oauth.handle_callback("code-1", request["state"])
    assert said in str(raised.value)
    assert "canary" not in str(raised.value)
    assert await oauth.get_token(USER, "github") is None


@pytest.mark.req("OAUTH-14")
@pytest.mark.parametrize(
    ("told", "lives"), [("3600", 3600.0), (3600.5, 3600.5), (None, None), ("soon", None), (-5, 0.0), (True, None)]
)
async def test_a_token_lives_as_long_as_it_says_also_in_words(told: Any, lives: float | None) -> None:
    now = [NOW]
    async with Site(token(expires_in=told)) as site:
        oauth = manager(site, clock=lambda: now[0])
        request = await oauth.get_auth_request("github", USER, TRACE)
        await oauth.handle_callback("code-1", request["state"])
    if lives is None:
        now[0] += 10 * 365 * 86_400.0
        assert await oauth.get_token(USER, "github") == "canary-token"
        return
    if lives:
        now[0] += lives - 0.5
        assert await oauth.get_token(USER, "github") == "canary-token"
        now[0] += 0.5
    assert await oauth.get_token(USER, "github") is None


@pytest.mark.parametrize(
    "failure",
    [
        answer(503, error="temporarily_unavailable"),
        reply(502, b"<html>Bad gateway</html>"),
        reply(429, b"slow down"),
        answer(401, error="invalid_client"),
        b"",
    ],
    ids=["unavailable", "bad gateway", "too many", "wrong secret", "broken off"],
)
async def test_a_failure_that_is_not_about_the_code_does_not_use_up_the_state(failure: bytes) -> None:
    answers = [failure, token()]

    async def next_answer(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(told := answers.pop(0))
        await writer.drain()
        if not told:
            writer.transport.abort()

    async with Site(next_answer) as site:
        oauth = manager(site)
        request = await oauth.get_auth_request("github", USER, TRACE)
        with pytest.raises(OAuthCallbackError) as raised:
            await oauth.handle_callback("code-1", request["state"])
        assert raised.value.again
        assert await oauth.handle_callback("code-1", request["state"]) == (USER, TRACE)


async def test_a_caller_who_goes_away_does_not_use_up_the_state() -> None:
    arrived, again = asyncio.Event(), asyncio.Event()

    async def slow(received: Received, writer: asyncio.StreamWriter) -> None:
        if not arrived.is_set():
            arrived.set()
            await again.wait()
        writer.write(token())
        await writer.drain()

    async with Site(slow) as site:
        oauth = manager(site)
        request = await oauth.get_auth_request("github", USER, TRACE)
        gone = asyncio.create_task(oauth.handle_callback("code-1", request["state"]))
        await arrived.wait()
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert await oauth.handle_callback("code-1", request["state"]) == (USER, TRACE)


async def test_no_one_connects_an_account_by_anothers_link() -> None:
    async with Site(token()) as site:
        oauth = manager(site)
        request = await oauth.get_auth_request("github", USER, TRACE)
        with pytest.raises(OAuthCallbackError, match="started by another user"):
            await oauth.handle_callback("code-of-bob", request["state"], user_id="acme:bob")
        assert site.requests == []
        assert await oauth.handle_callback("code-1", request["state"], user_id=USER) == (USER, TRACE)


async def test_a_code_of_another_issuer_is_not_sent_anywhere() -> None:
    async with Site(token()) as site:
        oauth = manager(site, changes={"issuer": "https://id.example.org"})
        request = await oauth.get_auth_request("github", USER, TRACE)
        with pytest.raises(OAuthCallbackError, match=r"is not from 'https://id\.example\.org'"):
            await oauth.handle_callback("code-1", request["state"], iss="https://evil.example.org")
        assert site.requests == []
        done = await oauth.handle_callback("code-1", request["state"], iss="https://id.example.org")
    assert done == (USER, TRACE)


@pytest.mark.parametrize(("method", "secret"), [("client_secret_basic", "s"), ("client_secret_post", "")])
async def test_a_client_shows_who_it_is_as_it_was_registered(method: str, secret: str) -> None:
    async with Site(token()) as site:
        oauth = manager(site, changes={"client_auth": method, "client_secret": secret})
        request = await oauth.get_auth_request("github", USER, TRACE)
        await oauth.handle_callback("code-1", request["state"])
        basic = [f"Basic {base64.b64encode(b'app:s').decode()}"] if secret else []
        assert site.last.all("authorization") == basic
        assert "client_secret" not in form_of(site)


@pytest.mark.req("OAUTH-21")
async def test_only_the_access_token_and_its_end_are_kept() -> None:
    kept: list[tuple[Any, ...]] = []

    class Recorder(InMemoryTokenStore):
        async def store(self, user_id: str, provider: str, token: str, expires_at: float | None) -> None:
            kept.append((user_id, provider, token, expires_at))

    async with Site(token(refresh_token="canary-refresh", id_token="canary-id", expires_in=60)) as site:
        oauth = manager(site, token_store=Recorder())
        request = await oauth.get_auth_request("github", USER, TRACE)
        await oauth.handle_callback("code-1", request["state"])
    assert kept == [(USER, "github", "canary-token", NOW + 60)]


@pytest.mark.req("MET-05", "MET-07", "MET-08")
async def test_pauses_callbacks_and_hits_are_counted() -> None:
    answers = [token(), answer(400, error="invalid_grant")]

    async def next_answer(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(answers.pop(0))
        await writer.drain()

    now = [NOW]
    async with Site(next_answer) as site:
        oauth = manager(site, clock=lambda: now[0])
        states = [(await oauth.get_auth_request("github", USER, TRACE))["state"] for _ in range(3)]
        await oauth.get_token(USER, "github")
        await oauth.handle_callback("code-1", states[0])
        await oauth.get_token(USER, "github")
        now[0] += 300.0
        for code, state in [("code-2", states[1]), ("code-3", "unknown")]:
            with pytest.raises(OAuthCallbackError):
                await oauth.handle_callback(code, state)
        now[0] += 400.0
        with pytest.raises(OAuthCallbackError):
            await oauth.handle_callback("code-4", states[2])
    told = oauth.counts.snapshot()
    assert told["pauses"] == {"github": 3}
    assert told["callbacks"] == {"success": 1, "provider": 1, "state_invalid": 1, "expired": 1}
    assert (told["token_hits"], told["token_misses"], told["token_hit_rate"]) == ({"github": 1}, {"github": 1}, 0.5)
