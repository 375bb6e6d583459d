"""Tokens that are refused again and again, and who is shown where to sign in."""

from pathlib import Path

import pytest

from tests.auth.small_issuer import ANN, BOB, SmallIssuer, connect, oauth_error, source, toolbox
from tests.wire.site import reply
from toolpost import Completed, Failed, Paused


async def test_a_token_that_is_refused_right_after_it_was_renewed_leads_to_a_question_and_then_to_an_error(
    tmp_path: Path,
) -> None:
    async with SmallIssuer() as issuer:
        async with toolbox(tmp_path / "data", source("notes", issuer, tmp_path, **issuer.endpoints())) as box:
            await connect(box, "notes")
            issuer.refuse = lambda _: reply(401, www_authenticate="Bearer")
            asked = await box.call("notes.read", {}, user=ANN)
            assert isinstance(asked, Paused)
            assert (issuer.renewals, len(issuer.shown)) == (1, 2)
            await connect(box, "notes")
            await box.router.background.finish(patience_s=20)
            outcome = (await box.pending.get(asked.pending_id, by=ANN)).outcome
        assert outcome is not None
        assert outcome["error"]["error_code"] == "oauth_token_refused"


async def test_where_to_sign_in_is_shown_to_the_one_who_must_and_to_no_one_else(tmp_path: Path) -> None:
    async with (
        SmallIssuer() as issuer,
        toolbox(tmp_path / "data", source("notes", issuer, tmp_path, **issuer.endpoints())) as box,
    ):
        asked = await box.call("notes.read", {}, user=ANN)
        assert isinstance(asked, Paused)
        (mine,), (theirs,) = await box.pending.list(by=ANN), await box.pending.list(by=BOB)
        got = await box.pending.get(asked.pending_id, by=BOB)
    assert mine.question.payload == asked.question.payload
    assert sorted(theirs.question.payload) == sorted(got.question.payload)
    assert "auth_url" not in theirs.question.payload


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_an_issuer_that_fails_for_a_while_costs_no_one_their_account(tmp_path: Path, status: int) -> None:
    async with (
        SmallIssuer() as issuer,
        toolbox(tmp_path / "data", source("notes", issuer, tmp_path, **issuer.endpoints())) as box,
    ):
        await connect(box, "notes")
        issuer.good.clear()
        issuer.says = reply(status)
        failed = await box.call("notes.read", {}, user=ANN)
        issuer.says = None
        done = await box.call("notes.read", {}, user=ANN)
    assert isinstance(failed, Failed)
    assert f"failed with status {status}. Retry later." in str(failed.error)
    assert isinstance(done, Completed)


@pytest.mark.parametrize("code", ["invalid_grant", "interaction_required"])
@pytest.mark.parametrize("status", [200, 400])
async def test_a_person_whose_grant_has_ended_is_asked_once_more_and_the_call_continues(
    tmp_path: Path, code: str, status: int
) -> None:
    async with (
        SmallIssuer() as issuer,
        toolbox(tmp_path / "data", source("notes", issuer, tmp_path, **issuer.endpoints())) as box,
    ):
        await connect(box, "notes")
        issuer.good.clear()
        issuer.says = oauth_error(code, status)
        asked = await box.call("notes.read", {}, user=ANN)
        assert isinstance(asked, Paused)
        issuer.says = None
        await connect(box, "notes")
        await box.router.background.finish(patience_s=20)
        action = await box.pending.get(asked.pending_id, by=ANN)
    assert action.outcome is not None
    assert (action.outcome["status"], issuer.renewals) == ("completed", 1)
