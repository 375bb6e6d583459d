"""What others try with links, callbacks and pages of their own is refused by a real browser, or on a clear page."""

from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from playwright.async_api import Page, Route

from tests.browser.conftest import Newcomer, Opening
from tests.browser.visitor import Visitor, button, heading, press
from tests.toolbox.signing_in import ANN, Program, outcome_of
from toolpost import Principal

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs]
EVIL = "http://evil.localhost/"


async def evil_page(visitor: Visitor, content: str) -> Page:
    """A page of another site, in the visitor's own browser."""

    async def answer(route: Route) -> None:
        await route.fulfill(body=content, content_type="text/html")

    await visitor.context.route(f"{EVIL}**", answer)
    return await visitor.opens(EVIL)


@pytest.mark.req("OAUTH-25")
async def test_a_callback_in_another_browser_is_refused_and_spoils_nothing(
    program: Program, ann: Visitor, newcomer: Newcomer
) -> None:
    pending_id, link = await program.asks()
    callback = await ann.comes_as_far_as(link)
    bob: Visitor = await newcomer()

    without_cookie = await bob.opens(callback)
    await bob.opens(link)
    with_another = await bob.opens(callback)

    for tab in (without_cookie, with_another):
        assert await heading(tab) == "Another browser started this sign-in"
        assert "Open the link again in this one." in await tab.inner_text("main")
    assert await heading(await ann.opens(callback)) == "Connected, you can close this page"
    assert (await outcome_of(program.box, pending_id, by=ANN))["status"] == "completed"


@pytest.mark.req("OAUTH-25")
async def test_a_stranger_cannot_have_ann_finish_what_they_began_for_themselves(
    program: Program, ann: Visitor, newcomer: Newcomer
) -> None:
    pending_id, link = await program.asks(user="acme:mallory")
    mallory: Visitor = await newcomer(extra_http_headers={"X-User": "acme:mallory"})
    callback = await mallory.comes_as_far_as(link)

    lured = await ann.opens(callback)

    assert await heading(lured) == "This link is for another user"
    assert (await program.box.pending.get(pending_id, by="acme:mallory")).status == "open"
    for user in ("acme:mallory", ANN):
        [account] = await program.box.accounts.states(Principal.parse(user))
        assert account.status == "missing"


@pytest.mark.req("OAUTH-25")
async def test_a_callback_that_is_loaded_again_is_told_to_be_over(program: Program, ann: Visitor) -> None:
    _, link = await program.asks()
    tab = await ann.connects(link)

    answer = await tab.goto(ann.callbacks[0])

    assert answer is not None
    assert (answer.status, await heading(tab)) == (400, "This sign-in is not in progress")
    assert "It may have been finished before." in await tab.inner_text("main")


async def test_a_page_that_says_connected_is_shown_only_to_the_browser_that_connected(
    program: Program, ann: Visitor, newcomer: Newcomer
) -> None:
    _, link = await program.asks()
    shown = await ann.connects(link)
    bob: Visitor = await newcomer(extra_http_headers={"X-User": "acme:bob"})
    await bob.opens((await program.asks(user="acme:bob"))[1])

    lured = await bob.opens(shown.url)

    assert await heading(lured) == "This sign-in is not in progress"


async def test_another_site_can_neither_press_the_button_nor_frame_the_page(program: Program, ann: Visitor) -> None:
    _, link = await program.asks()
    await ann.opens(link)
    start, _, ticket = link.partition("?ticket=")
    form = f'<form method=post action="{start}"><input name=ticket value="{ticket}"><input name=check value=x>'

    forged = await evil_page(ann, f"{form}<button>Win</button></form><iframe src='{link}'></iframe>")
    framed = [frame.url for frame in forged.frames[1:]]
    assert framed == ["chrome-error://chromewebdata/"]
    await press(forged.get_by_role("button", name="Win"))

    assert await heading(forged) == "Please start again"
    assert await forged.get_by_role("button").count() == 0


async def test_a_link_of_another_site_shows_the_page_and_begins_nothing(program: Program, ann: Visitor) -> None:
    _, link = await program.asks()

    lured = await evil_page(ann, f"<a href='{link}' target=_blank rel=opener>Free cake</a>")
    async with ann.context.expect_page() as opened:
        await lured.get_by_role("link").click()
    tab = await opened.value

    assert await button(tab).count() == 1
    assert await tab.evaluate("window.opener") is None
    await press(button(tab))
    assert await tab.evaluate("document.referrer") == ""


async def test_names_that_are_html_are_text_and_run_nothing(opening: Opening, ann: Visitor) -> None:
    nasty = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'><b>"
    async with opening(display_name=nasty, scopes=["tools.read", "<svg/onload=alert(3)>"]) as program:
        _, link = await program.asks()
        tab = await ann.opens(link)
        told = await tab.inner_text("main")

        assert await heading(tab) == f"Connect {nasty}"
        assert "<svg/onload=alert(3)>" in told
        assert await tab.locator("img, script").count() == 0
        assert await tab.title() == f"Connect {nasty}"
        assert ann.complaints == []


async def test_what_the_service_says_in_a_refusal_is_text_too(program: Program, ann: Visitor) -> None:
    _, link = await program.asks()
    tab = await ann.begins(link)
    told = {
        "state": dict(parse_qsl(urlsplit(ann.sent[0]).query))["state"],
        "iss": program.api.issuer,
        "error": "server_error",
        "error_description": "<img src=x onerror=alert(1)>",
    }

    await tab.goto(f"{program.url}/oauth/callback/notes?{urlencode(told)}")

    assert await heading(tab) == "The service did not connect"
    assert "<img src=x onerror=alert(1)>" in await tab.inner_text("main")
    assert await tab.locator("img").count() == 0
    assert ann.complaints == []
