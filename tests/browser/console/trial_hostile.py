"""What tools, servers and agents write is shown as text on every page: nothing runs, and nothing overflows."""

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.browser.console.conftest import Figure, Guest
from tests.browser.console.desk import Desk, open_desk
from tests.browser.console.visitor import ConsoleVisitor, axe, live, longest_task, overflowing
from toolpost import ToolContext, tool
from toolpost.contracts.questions import CallPreview

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs, pytest.mark.slow]

MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script><a href=javascript:alert(3)>x</a>"
BIDI = "\u202egnp.exe\u202c\u200b\u2066\ufeff\x07\x1b[31m"
MARKDOWN = "# [x](javascript:alert(4)) ![x](https://evil.example/x.png) <iframe src=https://evil.example></iframe>"
FORMULA = '=HYPERLINK("https://evil.example","x")'
HOSTILE = f"{MARKUP}{BIDI}{{{{7*7}}}}{FORMULA}"
LONG = "w" * 5_000_000
NAME = "e" * 55


async def _preview(arguments: dict[str, Any], _context: ToolContext) -> CallPreview:
    text = f"--- a/{HOSTILE}\n+++ b/{HOSTILE}\n@@ -1 +1 @@\n-{HOSTILE}\n+{MARKDOWN}\n"
    return CallPreview(text=text, data={"kind": "diff"})


@tool(
    name=f"evil.{NAME}",
    side_effects="external",
    destructive=True,
    desc=HOSTILE * 20,
    tags=["<b>tag</b>"],
    preview=_preview,
)
async def evil(text: str, more: dict[str, Any] | None = None) -> str:
    """Hostile in every part."""
    return HOSTILE


@tool(name="evil.answer", side_effects="pure", desc=MARKDOWN)
async def evil_answer(ctx: ToolContext, size: int = 5_000_000) -> Any:
    ctx.progress(HOSTILE, fraction=0.5)
    await ctx.save_artifact(HOSTILE.encode(), media_type="text/html", name=f"{MARKUP}{BIDI}.html")
    return {HOSTILE: HOSTILE, "long": "x" * size, "rows": [{HOSTILE: HOSTILE, "=1+1": "=1+1"}], "text": MARKDOWN}


@tool(name="evil.markdown", side_effects="pure", desc=HOSTILE)
async def evil_markdown() -> str:
    return f"{MARKDOWN}\n\n- {HOSTILE}\n\n```html\n{MARKUP}\n```\n\n|{MARKUP}|b|\n|-|-|\n|{HOSTILE}|{MARKDOWN}|\n"


@tool(name="evil.raise", side_effects="pure", desc=HOSTILE)
async def evil_raise() -> str:
    raise ValueError(HOSTILE * 50)


@tool(name="evil.ask", side_effects="pure", desc=HOSTILE)
async def evil_ask(ctx: ToolContext) -> str:
    return str(await ctx.pause("<b>", {"prompt": HOSTILE * 20, "choices": [HOSTILE]}))


class Hostile(NamedTuple):
    """A gateway that was used by an attacker, and the addresses of what there is to see."""

    desk: Desk
    pages: dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hostile(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hostile]:
    folder = tmp_path_factory.mktemp("hostile")
    rules: list[dict[str, Any]] = [{"action": "ask", "destructive": True, "reason": HOSTILE}, {"action": "allow"}]
    async with open_desk(folder, evil, evil_answer, evil_markdown, evil_raise, evil_ask, policy=rules) as desk:
        yield await _attack(desk)


async def _attack(desk: Desk) -> Hostile:
    http = desk.gate.http
    asked = await desk.asks(f"evil.{NAME}", text=HOSTILE + LONG[:400_000], more={HOSTILE: [HOSTILE, {HOSTILE: 1}]})
    denied = await desk.asks(f"evil.{NAME}", text=HOSTILE)
    await http.post(f"/api/v1/pending/{denied}/answer", json={"decision": "deny", "reason": HOSTILE})
    question = await desk.asks("evil.ask")
    runs = {name: (await desk.calls(f"evil.{name}"))["run_id"] for name in ("answer", "markdown", "raise")}
    await http.post("/api/v1/keys", json={"name": MARKUP, "scopes": ["call"], "for": "acme:bot"})
    await http.post("/api/v1/artifacts", params={"name": f"{MARKUP}.svg"}, content=MARKUP.encode())
    await desk.gate.box.store.events.flush()
    return Hostile(
        desk,
        {
            "now": "/",
            "card": f"/approvals/{asked}",
            "denied": f"/approvals/{denied}",
            "question": f"/approvals/{question}",
            "runs": "/runs",
            **{f"run-{name}": f"/runs/{run}" for name, run in runs.items()},
            "tools": "/tools",
            "tool": f"/tools/evil.{NAME}",
            "tool-schema": f"/tools/evil.{NAME}?tab=schema",
            "tool-safety": f"/tools/evil.{NAME}?tab=safety",
            "tool-calls": f"/tools/evil.{NAME}?tab=calls",
            "insight": "/insight",
            "audit": "/audit",
            "keys": "/settings/keys",
            "policy": f"/settings/policy?tool=evil.{NAME}",
            "gone": f"/runs/{MARKUP.replace('/', '')}".replace("<", "%3C").replace(">", "%3E"),
        },
    )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def signed_in(hostile: Hostile, chromium: Browser) -> AsyncIterator[Any]:
    async with await chromium.new_context() as context:
        await ConsoleVisitor(context, hostile.desk.url).signs_in(await hostile.desk.ticket())
        yield await context.storage_state()


PAGES = (
    *("now", "card", "denied", "question", "runs", "run-answer", "run-markdown", "run-raise", "tools", "tool"),
    *("tool-schema", "tool-safety", "tool-calls", "insight", "audit", "keys", "policy", "gone"),
)


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("name", PAGES)
async def test_hostile_text_is_shown_and_nothing_of_it_runs(
    hostile: Hostile, guest: Guest, signed_in: Any, name: str, width: int, figure: Figure
) -> None:
    ann: ConsoleVisitor = await guest(
        hostile.desk.url, storage_state=signed_in, viewport={"width": width, "height": 800}
    )
    tab = await ann.opens(hostile.pages[name])
    await expect(live(tab)).to_be_visible()
    await ann.settles(tab)
    longest = await longest_task(tab)
    found = [await axe(tab), await overflowing(tab)]
    loaded = await tab.locator("iframe, object, embed, svg script, img[src^='http'], a[href^='javascript']").count()
    if longest > 100:
        figure(f"hostile text on {name} at {width} px: longest task", longest, 100)

    assert (found, loaded) == ([[], []], 0)
    assert "\u202e" not in await tab.locator("body").inner_text()


@pytest.mark.parametrize("name", ["answer", "markdown", "raise"])
async def test_a_hostile_result_is_shown_in_every_form_and_nothing_of_it_runs(
    hostile: Hostile, guest: Guest, signed_in: Any, name: str, figure: Figure
) -> None:
    ann: ConsoleVisitor = await guest(
        hostile.desk.url, storage_state=signed_in, viewport={"width": 1280, "height": 800}
    )
    tab = await ann.opens(f"/tools/evil.{name}")
    await tab.get_by_role("button", name="Call Ctrl").click()
    await expect(tab.get_by_text("onerror=alert(1)").last).to_be_visible()
    longest = await longest_task(tab)
    found: list[Any] = []
    for form in await tab.get_by_role("radiogroup", name="Result").get_by_role("radio").all():
        await form.click()
        await ann.settles(tab)
        found += [await axe(tab), await overflowing(tab)]
    figure(f"a hostile result of {name}: longest task", longest, 100)

    assert json.dumps([one for one in found if one]) == "[]"
    assert await tab.locator("iframe, object, embed, img[src^='http'], a[href^='javascript']").count() == 0
