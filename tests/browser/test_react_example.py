"""The React page of the examples, in a real browser: a pause, a sign-in in a window of its own, the answer."""

import pytest
from playwright.async_api import Browser

from examples.react_oauth.server import PAGES, create_app
from tests.toolbox.signing_in import address, served

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs]


@pytest.mark.req("EXA-05")
async def test_a_page_asks_its_user_to_sign_in_and_shows_the_answer_then(chromium: Browser) -> None:
    if not (PAGES["/react.js"].exists() and PAGES["/approval-card.js"].exists()):
        pytest.skip("NOT TESTED: react is not in node_modules, or the card is not built; run make setup")
    context = await chromium.new_context()
    with address() as (url, listening):
        async with served(create_app(url), listening):
            page = await context.new_page()
            await page.goto(url)
            await page.get_by_role("button", name="Ask").click()
            card = page.get_by_role("article", name="github.create_issue")
            await card.get_by_text("GitHub wants your consent for: repo, user").wait_for()
            async with page.expect_popup() as opened:
                await page.get_by_role("button", name="Connect GitHub").click()
            await (await opened.value).get_by_role("link", name="Allow").click()

            assert await page.locator("p[role=status]").inner_text() == "I opened home#3: Paint the fence."
            assert "resume_token" not in await page.content()
    await context.close()
