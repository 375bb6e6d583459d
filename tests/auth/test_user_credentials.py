"""An application's auth manager behind the sources of a Toolbox."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.auth.grants import store_of
from tests.auth.ledger import URL, Ledger, PlainLedger, hub
from tests.auth.services import manager, token
from tests.patient_settings import PatientSettings
from tests.sources.mcp.programs import mirror
from tests.wire.site import Site
from toolpost import Completed, ExternalToolConfig, Failed, Paused, Toolbox
from toolpost.auth.managed_credentials import ManagedCredentials
from toolpost.auth.pending_sign_ins import EncryptedSignIns
from toolpost.auth.token_stores import VaultTokenStore
from toolpost.contracts.outcomes import outcome_to_dict
from toolpost.errors import ToolAuthError

ANN, BOB = "acme:ann", "acme:bob"


def toolbox(
    credentials: ManagedCredentials, folder: Path | None = None, source: dict[str, Any] | None = None, **given: Any
) -> Any:
    wanted: dict[str, Any] = {"connection": "memory:hub", **(source or {})}
    config = ExternalToolConfig(name="github", transport="mcp", auth_type="oauth2_user", **wanted)
    settings = PatientSettings(data_dir=folder, policy="exploratory", sources=[config])
    return Toolbox(settings=settings, credentials={"github": credentials}, **given)


@pytest.mark.req("OAUTH-17", "OAUTH-22", "MISC-23")
async def test_a_call_without_a_token_asks_its_user_to_sign_in_and_then_runs() -> None:
    ledger, (server, created) = Ledger(), hub()
    async with toolbox(ManagedCredentials(ledger, "github"), servers={"github": server}) as box:
        paused = await box.call("github.create", {"title": "Bug"}, user=ANN, run_id="run_1")
        assert isinstance(paused, Paused)
        assert (paused.question.kind, paused.question.reason) == ("consent", "external_event")
        assert paused.question.payload == {
            "pause_type": "oauth",
            "provider": "github",
            "display_name": "GitHub",
            "auth_url": URL,
            "state": "canary-state",
            "scopes": ["repo"],
        }
        assert (ledger.asked, created) == ([("github", ANN, "run_1")], [])
        ledger.tokens[ANN, "github"] = "token-of-ann"
        done = await box.answer(paused.pending_id, by=ANN)
        (started,) = [
            one.payload for one in await box.events(user=ANN, run_id="run_1") if one.code.name.endswith("STARTED")
        ]
    assert min(started["checks_ms"], started["auth_ms"]) > 0
    assert isinstance(done, Completed)
    assert (created, done.call_id, len(ledger.asked)) == (["Bug"], paused.call_id, 1)


@pytest.mark.req("OAUTH-18", "OAUTH-29")
async def test_going_on_without_a_token_is_an_error_that_says_so() -> None:
    ledger, (server, created) = Ledger(), hub()
    async with toolbox(ManagedCredentials(ledger, "github"), servers={"github": server}) as box:
        paused = await box.call("github.create", {"title": "Bug"}, user=ANN)
        ledger.tokens["ann", "github"] = "under-another-key"
        failed = await box.answer(paused.pending_id, by=ANN)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, ToolAuthError)
    assert str(failed.error) == "OAuth for github was not completed"
    assert (created, len(ledger.asked)) == ([], 1)


@pytest.mark.req("OAUTH-22")
async def test_a_manager_without_async_serves_as_well() -> None:
    ledger = PlainLedger(acme_ann="token-of-ann")
    async with toolbox(ManagedCredentials(ledger, "github"), servers={"github": hub()[0]}) as box:
        done = await box.call("github.create", {"title": "Bug"}, user=ANN)
        paused = await box.call("github.create", {"title": "Bug"}, user=BOB)
    assert done.status == "completed"
    assert paused.question.payload == {"pause_type": "oauth", "provider": "github", "auth_url": URL}


class Broken(Ledger):
    """Does everything wrong."""

    def __init__(self, request: Any, **tokens: str) -> None:
        super().__init__(**tokens)
        self.request = request

    async def get_auth_request(self, provider: str, user_id: str, trace_id: str) -> Any:
        if isinstance(self.request, Exception):
            raise self.request
        return self.request


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Broken(ValueError("Unknown OAuth provider: github")), "Unknown OAuth provider: github"),
        (Broken(None), "returned no sign-in request for 'github'"),
        (Broken({}, acme_ann="canary\r\nX-Evil: 1"), "cannot be sent in a header"),
    ],
    ids=["unknown provider", "no request", "no token"],
)
async def test_an_error_of_a_manager_is_reported_without_its_secrets(broken: Broken, said: str) -> None:
    async with toolbox(ManagedCredentials(broken, "github"), servers={"github": hub()[0]}) as box:
        failed = await box.call("github.create", {"title": "Bug"}, user=ANN)
    assert isinstance(failed.error, ToolAuthError)
    assert said in str(failed.error)
    assert "canary" not in str(failed.error)


@pytest.mark.programs
@pytest.mark.req("OAUTH-24", "OAUTH-29")
async def test_users_at_once_travel_each_with_their_own_token() -> None:
    ledger = Ledger(acme_ann="token-of-ann", acme_bob="token-of-bob", rival_ann="token-of-rival")
    whose = {ANN: "token-of-ann", BOB: "token-of-bob", "rival:ann": "token-of-rival"}
    with mirror() as url:
        async with toolbox(ManagedCredentials(ledger, "github"), source={"connection": url}) as box:
            users = [*whose] * 10
            outcomes = await asyncio.gather(*(box.call("github.headers", {}, user=user) for user in users))
    assert [each.content["authorization"] for each in outcomes] == [f"Bearer {whose[user]}" for user in users]


@pytest.mark.programs
async def test_a_token_that_is_refused_is_exchanged_for_a_newer_one_or_asked_for_again() -> None:
    ledger = Ledger(acme_ann="revoked")
    with mirror("good", "list") as url:
        source = {"connection": url, "auth_config": {"discovery": {"token": "list"}}}
        async with toolbox(ManagedCredentials(ledger, "github"), source=source) as box:
            paused = await box.call("github.headers", {}, user=ANN)
            still = await box.answer(paused.pending_id, by=ANN)
            again = await box.call("github.headers", {}, user=ANN)
            ledger.tokens[ANN, "github"] = "good"
            done = await box.answer(again.pending_id, by=ANN)
    assert [paused.status, still.status, again.status, done.status] == ["paused", "failed", "paused", "completed"]
    assert still.error.status_code == 401
    assert done.content["authorization"] == "Bearer good"


@pytest.mark.req("OAUTH-23", "OAUTH-34")
async def test_a_sign_in_begun_here_is_finished_elsewhere_after_a_restart(tmp_path: Path) -> None:
    server, created = hub()
    async with Site(token()) as site, store_of("sqlite", tmp_path / "tokens", lambda: 0.0) as shared:
        how: dict[str, Any] = {
            "pending": EncryptedSignIns(shared.tokens),
            "token_store": VaultTokenStore(shared.tokens),
        }
        here, there = manager(site, **how), manager(site, **how)
        async with toolbox(ManagedCredentials(here, "github"), tmp_path, servers={"github": server}) as box:
            paused = await box.call("github.create", {"title": "Bug"}, user=ANN)
        who = await there.handle_callback("code-1", paused.question.payload["state"])
        async with toolbox(ManagedCredentials(there, "github"), tmp_path, servers={"github": server}) as box:
            (waiting,) = [each for each in await box.pending.list(by=who[0]) if each.run_id == who[1]]
            done = await box.answer(waiting.id, by=who[0])
    assert done.status == "completed"
    assert created == ["Bug"]


@pytest.mark.req("OAUTH-30", "OAUTH-34")
async def test_no_event_log_error_or_file_holds_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server, _ = hub()
    async with Site(token("canary-token")) as site:
        oauth = manager(site)
        async with toolbox(ManagedCredentials(oauth, "github"), tmp_path, servers={"github": server}) as box:
            paused = await box.call("github.create", {"title": "Bug"}, user=ANN)
            secrets = [paused.question.payload["state"], "canary"]
            failed = await box.answer(paused.pending_id, by=ANN)
            again = await box.call("github.create", {"title": "Bug"}, user=ANN)
            secrets.append(again.question.payload["state"])
            await oauth.handle_callback("canary-code", secrets[-1])
            done = await box.answer(again.pending_id, by=ANN)
            events = [event.to_dict() for event in await box.events(user=ANN, limit=1000)]
            told = repr([events, failed.error, outcome_to_dict(paused), outcome_to_dict(done), caplog.text])
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert done.status == "completed"
    assert len(events) > 5
    assert [secret for secret in secrets if secret in told] == []
    assert [secret for secret in [*secrets, "id.example.org/authorize"] if secret.encode() in kept] == []


async def test_a_token_that_comes_back_in_an_answer_is_not_reported() -> None:
    server, _ = hub()

    @server.tool
    def echo(word: str) -> str:
        return f"heard {word}"

    credentials = ManagedCredentials(Ledger(acme_ann="canary-token"), "github")
    async with toolbox(credentials, servers={"github": server}) as box:
        credentials.learn = box.redactor.learn
        for _ in range(2):
            await box.call("github.echo", {"word": "canary-token"}, user=ANN)
        last = [event.to_dict() for event in await box.events(user=ANN)][-1]
    assert last["type"] == "TOOL_CALL_COMPLETED"
    assert "heard [redacted]" in repr(last)
    assert "canary" not in repr(last)


@pytest.mark.req("MET-05", "MET-06", "MET-08")
async def test_pauses_hits_and_the_time_to_resume_are_counted() -> None:
    now, ledger, (server, _) = [1000.0], Ledger(), hub()
    credentials = ManagedCredentials(ledger, "github", clock=lambda: now[0])
    async with toolbox(credentials, servers={"github": server}) as box:
        paused = [await box.call("github.create", {"title": "Bug"}, user=ANN, run_id=f"run_{n}") for n in range(100)]
        ledger.tokens[ANN, "github"] = "token-of-ann"
        for each in paused:
            now[0] += 1.0
            await box.answer(each.pending_id, by=ANN)
        await box.call("github.create", {"title": "Bug"}, user=ANN)
    told = credentials.counts.snapshot()
    assert told["pauses"] == {"github": 100}
    assert (told["token_hits"], told["token_misses"]) == ({"github": 101}, {"github": 100})
    assert told["time_to_resume_s"] == {"p50": 51.0, "p95": 96.0, "p99": 100.0}
