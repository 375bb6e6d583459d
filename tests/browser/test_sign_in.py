"""A person connects an account with a real browser, at oidc-provider, and the call that waited finishes by itself."""

import asyncio
import socket
from pathlib import Path

import pytest

from tests.browser.conftest import Newcomer, Opening
from tests.browser.visitor import Visitor, button, heading, past_addresses, press, secrets_in_page
from tests.gateway.serving import serving, whole_app
from tests.toolbox.signing_in import ANN, NOTE, NotesApi, Program, notes_source, outcome_of, toolbox
from toolpost import Paused
from toolpost.gateway.http import open_callers

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs]
CONNECTED = "Connected, you can close this page"


@pytest.mark.req("OAUTH-19", "FUT-14")
async def test_a_person_signs_in_and_the_same_call_finishes_automatically(program: Program, ann: Visitor) -> None:
    asked = await program.box.call("notes.read_note", {"id": 7}, user=ANN)
    assert isinstance(asked, Paused)

    tab = await ann.connects(asked.question.payload["auth_url"])
    outcome = await outcome_of(program.box, asked.pending_id, by=ANN)

    assert await heading(tab) == CONNECTED
    assert (outcome["status"], outcome["call_id"]) == ("completed", asked.call_id)
    assert outcome["content"] == {**NOTE, "reader": "alice"}
    assert ann.complaints == []


async def test_a_person_signs_in_at_the_gateway_itself(
    api: NotesApi, place: tuple[str, socket.socket], tmp_path: Path, ann: Visitor
) -> None:
    url, listening = place
    folder = tmp_path / "data"
    async with (
        toolbox(notes_source(api, tmp_path), url, folder) as box,
        open_callers(box, folder, ANN, host="127.0.0.1") as callers,
        serving(whole_app(box, callers, url), listening),
    ):
        pending_id, link = await Program(box, api, url).asks()
        tab = await ann.connects(link)
        outcome = await outcome_of(box, pending_id, by=ANN)

    assert await heading(tab) == CONNECTED
    assert outcome["content"] == {**NOTE, "reader": "alice"}


@pytest.mark.req("OAUTH-31")
async def test_neither_code_nor_state_stays_in_the_page_its_address_or_its_history(
    program: Program, ann: Visitor
) -> None:
    _, link = await program.asks()
    tab = await ann.connects(link)

    [callback] = ann.callbacks
    assert await secrets_in_page(tab, callback) == []
    assert not [url for url in await past_addresses(tab) if url.startswith(f"{ann.home}/oauth/callback/notes?code")]
    await tab.reload()
    assert await heading(tab) == CONNECTED


async def test_a_person_who_declines_sees_that_and_may_change_their_mind(program: Program, ann: Visitor) -> None:
    pending_id, link = await program.asks()
    tab = await ann.begins(link)
    await ann.declines(tab)

    assert await heading(tab) == "Nothing was connected"
    assert "If you did not want to decline, open the link again." in await tab.inner_text("main")
    assert (await program.box.pending.get(pending_id, by=ANN)).status == "open"
    assert await heading(await ann.connects(link)) == CONNECTED
    assert (await outcome_of(program.box, pending_id, by=ANN))["status"] == "completed"


async def test_of_two_tabs_the_second_may_finish_first_and_the_other_is_reported(
    program: Program, ann: Visitor
) -> None:
    pending_id, link = await program.asks()
    idle, first, second = await ann.opens(link), await ann.begins(link), await ann.begins(link)

    await ann.consents(second)
    outcome = await outcome_of(program.box, pending_id, by=ANN)
    await press(button(idle))
    await ann.consents(first)

    assert (await heading(second), outcome["status"]) == (CONNECTED, "completed")
    assert await heading(idle) == "This link has expired"
    assert "This link was used or has expired." in await idle.inner_text("main")
    assert await heading(first) == CONNECTED
    assert program.api.readers == ["alice"]


async def test_many_sign_ins_at_once_in_one_browser_do_not_disturb_each_other(program: Program, ann: Visitor) -> None:
    waiting = [await program.asks() for _ in range(3)]
    tabs = await asyncio.gather(*(ann.opens(link) for _, link in waiting))  # none of them has a cookie yet

    for tab in tabs:
        await press(button(tab))
        if tab.url.startswith(ann.home):  # its cookie was replaced by that of another tab
            await press(button(tab))
    for tab in tabs:
        await ann.consents(tab)

    assert [await heading(tab) for tab in tabs] == [CONNECTED] * 3
    for pending_id, _ in waiting:
        assert (await outcome_of(program.box, pending_id, by=ANN))["status"] == "completed"


async def test_a_tab_whose_cookie_was_replaced_shows_the_button_once_more(program: Program, ann: Visitor) -> None:
    _, link = await program.asks()
    tab = await ann.opens(link)
    [cookie] = await ann.context.cookies()
    await ann.context.add_cookies([{**cookie, "value": "x" * 43}])  # type: ignore[typeddict-item]

    await press(button(tab))
    assert await heading(tab) == "Connect Notes of Ann & Co"
    await press(button(tab))
    await ann.consents(tab)

    assert await heading(tab) == CONNECTED


async def test_it_works_without_javascript(program: Program, newcomer: Newcomer) -> None:
    pending_id, link = await program.asks()
    ann: Visitor = await newcomer(java_script_enabled=False)

    tab = await ann.connects(link)

    assert await heading(tab) == CONNECTED
    assert (await outcome_of(program.box, pending_id, by=ANN))["status"] == "completed"


async def test_the_cookie_is_out_of_reach_of_scripts_and_of_other_sites(program: Program, ann: Visitor) -> None:
    _, link = await program.asks()
    tab = await ann.opens(link)

    [cookie] = await ann.context.cookies()
    assert (cookie["name"], cookie["path"], cookie["httpOnly"], cookie["sameSite"]) == (
        "toolpost",
        "/oauth",
        True,
        "Lax",
    )
    assert await tab.evaluate("document.cookie") == ""


@pytest.mark.req("OAUTH-26")
async def test_a_person_who_takes_too_long_at_the_service_sees_that(opening: Opening, ann: Visitor) -> None:
    async with opening({"sign_in_ttl": "1ms"}) as program:
        pending_id, link = await program.asks()
        tab = await ann.connects(link)

        assert await heading(tab) == "This link has expired"
        assert "Start the sign-in again." in await tab.inner_text("main")
        assert (await program.box.pending.get(pending_id, by=ANN)).status == "open"
